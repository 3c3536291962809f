"""Chat templates of families whose GGUF files from Ollama have none.

Ollama keeps its own next to them, in another language; they are known by their marks. The templates
here write no tools, which the prompt then describes in words.
"""

from __future__ import annotations

from collections.abc import Collection

CHATML = r"""
{%- for m in messages %}
    {{- "<|im_start|>" ~ m.role ~ "\n" ~ m.content ~ "<|im_end|>\n" }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- "<|im_start|>assistant\n" }}
{%- endif %}
""".strip()

LLAMA3 = r"""
{{- bos_token }}
{%- for m in messages %}
    {{- "<|start_header_id|>" ~ m.role ~ "<|end_header_id|>\n\n" ~ m.content | trim }}
    {{- "<|eot_id|>" }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- "<|start_header_id|>assistant<|end_header_id|>\n\n" }}
{%- endif %}
""".strip()

PHI3 = r"""
{%- for m in messages %}
    {{- "<|" ~ m.role ~ "|>\n" ~ m.content ~ "<|end|>\n" }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- "<|assistant|>\n" }}
{%- endif %}
""".strip()

MISTRAL = r"""
{{- bos_token }}
{%- set first = messages[0].content ~ "\n\n" if messages[0].role == "system" else "" %}
{%- for m in messages if m.role != "system" %}
    {%- if m.role == "assistant" %}
        {{- " " ~ m.content | trim ~ eos_token }}
    {%- else %}
        {{- "[INST] " ~ (first if loop.first else "") ~ m.content ~ " [/INST]" }}
    {%- endif %}
{%- endfor %}
""".strip()

GEMMA3 = r"""
{{- bos_token }}
{%- set first = messages[0].content ~ "\n\n" if messages[0].role == "system" else "" %}
{%- for m in messages if m.role != "system" %}
    {{- "<start_of_turn>" ~ ("model" if m.role == "assistant" else m.role) ~ "\n" }}
    {{- first if loop.first }}
    {{- m.content | trim ~ "<end_of_turn>\n" }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- "<start_of_turn>model\n" }}
{%- endif %}
""".strip()

GPT_OSS = r"""
{{- "<|start|>system<|message|>You are ChatGPT, a large language model trained by OpenAI.\n" }}
{{- "Knowledge cutoff: 2024-06\nCurrent date: " ~ strftime_now("%Y-%m-%d") }}
{{- "\n\nReasoning: " ~ (reasoning_effort or "medium") }}
{{- "\n\n# Valid channels: analysis, commentary, final. " }}
{{- "Channel must be included for every message.<|end|>" }}
{%- for m in messages %}
    {%- if m.role == "system" %}
        {{- "<|start|>developer<|message|># Instructions\n\n" ~ m.content ~ "\n\n<|end|>" }}
    {%- elif m.role == "assistant" %}
        {{- "<|start|>assistant<|channel|>final<|message|>" ~ m.content ~ "<|end|>" }}
    {%- else %}
        {{- "<|start|>" ~ m.role ~ "<|message|>" ~ m.content ~ "<|end|>" }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- "<|start|>assistant" }}
{%- endif %}
""".strip()

# The marks of a family's turns, which its template has, and its vocabulary, unless they are in [];
# and its template.
BY_MARKS = (
    (("<|im_start|>", "<|im_end|>"), CHATML),
    (("<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"), LLAMA3),
    (("<start_of_turn>", "<end_of_turn>"), GEMMA3),
    (("<|user|>", "<|assistant|>", "<|end|>"), PHI3),
    (("[INST]", "[/INST]"), MISTRAL),
)


def of_ollama(template: str, tokens: Collection[str]) -> str:
    """Return the chat template that stands for one of Ollama's; "" where it is not understood."""
    for marks, found in BY_MARKS:
        if all(mark in template and (mark[0] == "[" or mark in tokens) for mark in marks):
            return found
    return ""
