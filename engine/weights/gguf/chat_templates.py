"""Chat templates of families whose GGUF files from Ollama have none.

Ollama keeps its own next to them, in another language. The templates here write no tools, which the
prompt then describes in words.
"""

from __future__ import annotations

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
