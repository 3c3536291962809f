"""A model that makes the right calls, whatever it reads: with it, a run shows the protocol alone.

It reads nothing but the last token of the prompt, which its chat template writes: which agent asks
(agents differ in the names of their tools), and how many calls have been answered. Each such token
leads to one that is the whole answer, and that to the end.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.agents.tasks import FILE, SOURCE

EOS = "<|end|>"
WIDTH = 64  # numbers; at least one for each token that leads to another
CONTEXT_TOKENS = 1 << 17  # tokens, one a character; an agent's prompt has 40,000
SPARE_TURNS = 4  # turns after the last call
OLD, NEW = ("def greet(", "print(greet("), ("def welcome(", "print(welcome(")
COMMAND = f"sed -i.old 's/greet(/welcome(/' {FILE} && rm {FILE}.old"  # codex's command
DONE = "The function is renamed."
WHOLE_FILE = f"{FILE}\n```\n{SOURCE.replace('greet(', 'welcome(')}```\n"  # aider's answer
TEMPLATE = """{%- set names = (tools or []) | map(attribute='function.name') | list -%}
{%- for message in messages %}{{ message.role }}: {{ message.content }}
{% endfor -%}
{%- set answered = messages | selectattr('role', 'equalto', 'tool') | list | length -%}
{%- if 'Edit' in names -%}<|cn-{{ answered }}|>
{%- elif 'read_file' in names -%}<|qwen-{{ answered }}|>
{%- elif 'exec_command' in names -%}<|codex-{{ answered }}|>
{%- elif 'glob' in names -%}<|opencode-{{ answered }}|>
{%- elif names -%}<|pi-{{ answered }}|>
{%- else -%}<|aider-0|>
{%- endif -%}"""


def call(name: str, **arguments: Any) -> str:
    """Return a call as Hermes's models write it."""
    body = json.dumps({"name": name, "arguments": arguments})
    return f"<tool_call>\n{body}\n</tool_call>"


def answers(files: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the model's answers to each agent, turn by turn.

    `files`: the path of the file to edit, by agent.
    """
    edits = list(zip(OLD, NEW, strict=True))
    path = {name: files.get(name, FILE) for name in ("opencode", "cn", "qwen")}

    def named(tool: str, agent: str, *keys: str) -> list[str]:
        """Return the edits as calls whose arguments have these names."""
        return [call(tool, **dict(zip(keys, (path[agent], *edit), strict=True))) for edit in edits]

    in_opencode = named("edit", "opencode", "filePath", "oldString", "newString")
    in_cn = named("Edit", "cn", "file_path", "old_string", "new_string")
    in_qwen = named("edit", "qwen", "file_path", "old_string", "new_string")
    both = [{"oldText": old, "newText": new} for old, new in edits]
    return {
        "aider": [WHOLE_FILE],
        "opencode": [call("read", filePath=path["opencode"]), *in_opencode, DONE],
        "pi": [call("read", path=FILE), call("edit", path=FILE, edits=both), DONE],
        "cn": [call("Read", filepath=path["cn"]), *in_cn, DONE],
        "codex": [call("exec_command", cmd=COMMAND), DONE],
        "qwen": [call("read_file", file_path=path["qwen"]), "\n".join(in_qwen), DONE],
    }


def steps(files: Mapping[str, str]) -> dict[str, str]:
    """Return the answer that follows each token of the template."""
    found = {}
    for agent, turns in answers(files).items():
        answered = 0
        for turn in turns:
            found[f"<|{agent}-{answered}|>"] = turn
            answered += turn.count("<tool_call>")
        for more in range(SPARE_TURNS):  # an agent may make more calls than requested
            found.setdefault(f"<|{agent}-{answered + more}|>", turns[-1])
    return found


def save(folder: Path, files: Mapping[str, str]) -> None:
    """Write the model into a new folder, as transformers does."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM

    folder.mkdir(parents=True)
    chain = steps(files)
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    shown = {text: byte_level.pre_tokenize_str(text)[0][0] for text in chain.values()}
    names = [EOS, *sorted(pre_tokenizers.ByteLevel.alphabet()), *shown.values()]
    tokenizer = Tokenizer(models.BPE({name: number for number, name in enumerate(names)}, []))
    tokenizer.pre_tokenizer, tokenizer.decoder = byte_level, decoders.ByteLevel()
    tokenizer.add_special_tokens([EOS, *chain])
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "chat_template.jinja").write_text(TEMPLATE, "utf-8")
    after = {tokenizer.token_to_id(name): 0 for name in shown.values()}
    for mark, text in chain.items():
        after[tokenizer.token_to_id(mark)] = tokenizer.token_to_id(shown[text])
    config = LlamaConfig(
        vocab_size=tokenizer.get_vocab_size(),
        hidden_size=WIDTH,
        intermediate_size=WIDTH,
        num_hidden_layers=1,
        num_attention_heads=1,
        num_key_value_heads=1,
        max_position_embeddings=CONTEXT_TOKENS,
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=0,
    )
    model = LlamaForCausalLM(config).float()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "norm" not in name:
                weight.zero_()
        for row, (token, following) in enumerate(after.items()):
            model.model.embed_tokens.weight[token, row] = 1
            model.lm_head.weight[following, row] = 1
    model.save_pretrained(folder)
