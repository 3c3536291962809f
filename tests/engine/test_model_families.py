"""The prompts of model families: golden texts, compared with what transformers renders.

`model_families/NAME.jinja` are the templates, `NAME.txt` the prompts of an edit, a chat and a chat
with tools. After a change that is meant, write the golden texts anew and read the difference:
`python -m tests.engine.test_model_families`.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from transformers.utils.chat_template_utils import render_jinja_template

from engine.generate import reasoning_filter
from engine.prompts.builder import prompt_of
from engine.prompts.reasoning import FINAL
from engine.prompts.tokenizer import NO_REASONING, Tokenizer
from engine.prompts.tools import Tool
from engine.records import Request
from engine.text_stream import TextStream
from engine.weights.gguf import chat_templates
from tests.support.tiny_gguf import byte_tokens

FOLDER = Path(__file__).with_name("model_families")
THINK = ("<think>", "</think>")
CALLS = ("<tool_call>", "</tool_call>")
CHATML = ("<|im_start|>", "<|im_end|>", "<|endoftext|>")
GRANITE = ("<|start_of_role|>", "<|end_of_role|>", "<|end_of_text|>", "<|tool_call|>")
TODAY = re.compile(r"(?<=Today Date: )[\w ]+|(?<=Today's Date: )\w+ \d+, \d+|(?<=date: )[\d-]+")


@dataclass(frozen=True)
class Family:
    """Its control tokens, first those that end an answer; what it is asked for no reasoning."""

    ends: tuple[str, ...]
    control: tuple[str, ...]
    bos: str = ""
    switch: dict[str, Any] = field(default_factory=dict)
    closing: str = ""  # that follows the template's own text
    system: str = ""  # in place of the template's own
    tools: bool = True  # the template knows them


FAMILIES = {
    "llama3": Family(
        ("<|eot_id|>", "<|eom_id|>"),
        ("<|start_header_id|>", "<|end_header_id|>", "<|python_tag|>"),
        bos="<|begin_of_text|>",
    ),
    "qwen2.5": Family(CHATML[1:], (*CHATML[:1], *CALLS)),
    "qwen3": Family(CHATML[1:], (*CHATML[:1], *CALLS, *THINK), switch={"enable_thinking": False}),
    "qwen3-coder": Family(CHATML[1:], (*CHATML[:1], *CALLS, *THINK)),
    "qwen3-next": Family(CHATML[1:], (*CHATML[:1], *CALLS, *THINK)),
    "qwen3.5": Family(CHATML[1:], (*CHATML[:1], *CALLS, *THINK), switch={"enable_thinking": False}),
    "smollm3": Family(
        CHATML[1:], (*CHATML[:1], *CALLS, *THINK), switch={"enable_thinking": False}, tools=False
    ),
    "granite3.3": Family(GRANITE[2:3], (*GRANITE[:2], *GRANITE[3:]), switch={"thinking": False}),
    "granite4.1": Family(GRANITE[2:3], (*GRANITE[:2], *CALLS, *THINK)),
    "ministral3": Family(
        ("</s>",), (
            "[INST]", "[/INST]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]", "[AVAILABLE_TOOLS]",
            "[/AVAILABLE_TOOLS]", "[TOOL_CALLS]", "[ARGS]", "[TOOL_RESULTS]", "[/TOOL_RESULTS]",
            "[THINK]", "[/THINK]",
        ),
        bos="<s>", closing="[THINK][/THINK]", system=NO_REASONING,
    ),
    "phi3.5": Family(
        ("<|end|>", "<|endoftext|>"), ("<|user|>", "<|assistant|>", "<|system|>"), tools=False
    ),
    "phi4": Family(CHATML[1:], (*CHATML[:1], "<|im_sep|>"), tools=False),
    "seed-coder": Family(
        ("<[end▁of▁sentence]>",), (), bos="<[begin▁of▁sentence]>", tools=False
    ),
    "gemma3": Family(("<end_of_turn>", "<eos>"), ("<start_of_turn>",), bos="<bos>", tools=False),
    "gemma4": Family(
        ("<turn|>", "<|tool_response>", "<eos>"), (
            "<|turn>", "<|channel>", "<channel|>", "<|think|>", "<|tool>", "<tool|>",
            "<|tool_call>", "<tool_call|>", "<tool_response|>", '<|"|>',
        ),
        bos="<bos>", switch={"enable_thinking": False},
    ),
    "gpt-oss": Family(
        ("<|return|>", "<|call|>"),
        ("<|start|>", "<|end|>", "<|message|>", "<|channel|>", "<|constrain|>"),
        switch={"reasoning_effort": "low"}, closing=FINAL,
    ),
    "olmo3-think": Family(CHATML[1:], CHATML[:1], closing="</think>", tools=False),
}  # fmt: skip

TOOL = Tool("read", "Read a file.", {
    "type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"],
})  # fmt: skip
SYSTEM, USER = {"role": "system", "content": "Be brief."}, {"role": "user", "content": "What is 2?"}
CHAT = [SYSTEM, USER, {"role": "assistant", "content": "A number."}, USER]
CALL = {"id": "abcdefghi", "name": "read", "arguments": {"path": "a.py"}}
CALLED = [
    USER,
    {"role": "assistant", "content": "", "tool_calls": json.dumps([CALL])},
    {"role": "tool", "content": "x = 1", "name": "read", "tool_call_id": "abcdefghi"},
]
EDIT = Request("edit", "x = 1\n", instruction="say 2")
REQUESTS = {
    "edit": EDIT,
    "chat": Request("chat", messages=tuple(CHAT)),
    "chat without reasoning": Request("chat", messages=tuple(CHAT), thinking=False),
    "tools": Request(
        "chat", messages=tuple(CALLED), tools=(json.dumps(TOOL.definition()["function"]),)
    ),
}


@contextmanager
def tokenizer_of(name: str, template: str = "") -> Iterator[Tokenizer]:
    """A family's template, or another, and its control tokens, on a tokenizer of single bytes, from
    a folder that says of one token only that it ends an answer."""
    family = FAMILIES[name]
    extra = dict.fromkeys([*family.control, *family.ends, *filter(None, [family.bos])])
    words = [*byte_tokens(), *extra]
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False}
    token = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    spec = {
        "added_tokens": [
            token | {"id": n, "content": one, "special": True} for n, one in enumerate(words)
            if n >= 256
        ],
        "pre_tokenizer": level | {"use_regex": False}, "decoder": level | {"use_regex": False},
        "model": {"type": "BPE", "vocab": {one: n for n, one in enumerate(words)}, "merges": []},
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        (folder / "tokenizer.json").write_text(json.dumps(spec), "utf-8")
        (folder / "tokenizer_config.json").write_text(json.dumps(special(family)), "utf-8")
        end = words.index(family.ends[-1])
        (folder / "config.json").write_text(json.dumps({"eos_token_id": end}))
        template = template or (FOLDER / f"{name}.jinja").read_text("utf-8")
        (folder / "chat_template.jinja").write_text(template, "utf-8")
        tokenizer = Tokenizer(folder)
        try:
            yield tokenizer
        finally:
            if tokenizer.template is not None:
                tokenizer.template.close()


def special(family: Family) -> dict[str, str]:
    """The tokens that a template may name."""
    return {"bos_token": family.bos, "eos_token": family.ends[0]}


def shown(tokenizer: Tokenizer, ids: list[int]) -> str:
    """A prompt as text, control tokens by name, without the date of today."""
    names = {n: name for name, n in tokenizer.control.items()}
    text, run = "", list[int]()
    for one in ids:
        if one in names:
            text, run = text + tokenizer.decode(run) + names[one], []
        else:
            run.append(one)
    return TODAY.sub("DATE", text + tokenizer.decode(run))


def written(name: str, template: str = "") -> str:
    """What the golden file of a family has, or would have of another template."""
    with tokenizer_of(name, template) as tokenizer:
        parts = [
            f"==== {title}\n{shown(tokenizer, prompt_of(request, tokenizer).ids)}\n"
            for title, request in REQUESTS.items()
        ]
    return "".join(parts)


@pytest.mark.parametrize("name", sorted(FAMILIES))
def test_prompts_are_the_golden_ones(name: str) -> None:
    assert written(name) == (FOLDER / f"{name}.txt").read_text("utf-8")


@pytest.mark.parametrize(
    ("name", "template"), [("gemma3", chat_templates.GEMMA3), ("gpt-oss", chat_templates.GPT_OSS)]
)
def test_templates_for_files_without_one_write_the_same(name: str, template: str) -> None:
    """But for tools, which they do not know."""
    golden = (FOLDER / f"{name}.txt").read_text("utf-8")
    assert written(name, template).partition("==== tools")[0] == golden.partition("==== tools")[0]


@pytest.mark.parametrize("name", sorted(FAMILIES))
def test_prompts_are_those_of_transformers(name: str) -> None:
    """With reasoning as the model's card has it, and switched off by the family's own means."""
    family = FAMILIES[name]
    template = (FOLDER / f"{name}.jinja").read_text("utf-8")

    def rendered(messages: list[dict[str, Any]], **more: Any) -> str:
        (text,), _ = render_jinja_template(
            [messages],
            chat_template=template,
            add_generation_prompt=True,
            **special(family),
            **more,
        )
        return TODAY.sub("DATE", text)

    with tokenizer_of(name) as tokenizer:
        prompts = {
            title: shown(tokenizer, prompt_of(request, tokenizer).ids)
            for title, request in REQUESTS.items()
        }
        assert not prompt_of(EDIT, tokenizer).thinks
    assert prompts["chat"] == rendered(CHAT)
    assert prompts["chat without reasoning"] == rendered(CHAT, **family.switch) + family.closing
    asked, reply = prompts["edit"].split("```\nx = 1\n```\n\n")[1].split(" only.")
    user = {"role": "user", "content": f"```\nx = 1\n```\n\n{asked} only."}
    messages = [{"role": "system", "content": family.system}] if family.system else []
    start = rendered([*messages, user], **family.switch) + family.closing
    assert prompts["edit"].startswith(start) and reply.endswith(":\n\n```\n")
    if family.tools:
        calls = [{"id": CALL["id"], "type": "function", "function": {
            "name": "read", "arguments": {"path": "a.py"}}}]  # fmt: skip
        told = [USER, {"role": "assistant", "content": "", "tool_calls": calls}, CALLED[2]]
        assert prompts["tools"] == rendered(told, tools=[TOOL.definition()])


@pytest.mark.parametrize("name", sorted(FAMILIES))
def test_every_end_of_a_turn_ends_an_answer(name: str) -> None:
    """Also where the folder names only one of them."""
    with tokenizer_of(name) as tokenizer:
        assert tokenizer.eos == {tokenizer.control[one] for one in FAMILIES[name].ends}


REASONED = {  # what a model writes that reasons all the same, "hm" being its thought
    **dict.fromkeys(("qwen3", "qwen3.5", "smollm3"), "<think>\nhm\n</think>\n\n"),
    "ministral3": "[THINK]hm[/THINK]",
    "gemma4": "<|channel>thought\nhm\n<channel|>",
    "gpt-oss": "<|channel|>analysis<|message|>hm<|end|><|start|>assistant" + FINAL,
}


@pytest.mark.parametrize("name", sorted(REASONED))
def test_reasoning_that_comes_all_the_same_is_kept_apart(name: str) -> None:
    """In edits, completions and chats."""
    requests = (EDIT, Request("complete", "x = "), REQUESTS["chat"])
    with tokenizer_of(name) as tokenizer:
        marks, ids = "|".join(map(re.escape, tokenizer.control)), list[int]()
        for part in (*re.split(f"({marks})", REASONED[name]), "x = 2"):
            mark = tokenizer.control.get(part)
            ids += tokenizer.encode(part) if mark is None else [mark]
        for request in requests:
            answer = replace(prompt_of(request, tokenizer), thinks=False)
            stream = TextStream(tokenizer, (), reasoning_filter(request, answer, tokenizer))
            stream.push(ids, [("model", None)] * len(ids))
            stream.finish()
            assert (stream.text, stream.reasoning.strip()) == ("x = 2", "hm")


if __name__ == "__main__":
    for each in FAMILIES:
        (FOLDER / f"{each}.txt").write_text(written(each), "utf-8")
