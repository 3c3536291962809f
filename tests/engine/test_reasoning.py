"""Reasoning is asked for or not as the model's template does it, and taken out of every answer."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.prompts.builder import prompt_of
from engine.prompts.reasoning import FINAL, ReasoningFilter, reasoning_marks
from engine.prompts.tokenizer import Tokenizer
from engine.records import Request
from engine.text_stream import TextStream
from tests.support.tiny_gguf import byte_tokens

THINK = ("<think>", "</think>")
HARMONY = ("<|start|>", "<|channel|>", "<|message|>", "<|end|>", "<|return|>")
COHERE = ("<|START_THINKING|>", "<|END_THINKING|>", "<|START_RESPONSE|>", "<|END_RESPONSE|>")
GEMMA = ("<|channel>", "<channel|>")
CONTROL = ("<|im_start|>", "<|im_end|>")
TURNS = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n"
)
# How families ask, or do not ask, their models for no reasoning.
TEMPLATES = {
    "Qwen3": TURNS + "{% if enable_thinking is defined and enable_thinking is false %}"
    "{{ '<think>\n\n</think>\n\n' }}{% endif %}{% endif %}",
    "GLM": TURNS + "{% if enable_thinking is defined and not enable_thinking %}"
    "{{ '<think></think>\n' }}{% endif %}{% endif %}",
    "DeepSeek-V3": "{% if not thinking is defined %}{% set thinking = false %}{% endif %}" + TURNS
    + "{% if thinking %}<think>{% else %}</think>{% endif %}{% endif %}",
    "DeepSeek-R1": TURNS + "<think>\n{% endif %}{# drops </think> of earlier answers #}"
    "{% set x = messages[0].content.split('</think>')[-1] %}",
    "without a switch": TURNS + "{% endif %}{% set x = '<think></think>' %}",
    "plain": TURNS + "{% endif %}",
    "gpt-oss": "{{ 'Reasoning: ' + reasoning_effort|default('medium') }}{% for m in messages %}"
    "<|start|>{{ m.role }}<|message|>{{ m.content }}<|end|>{% endfor %}<|start|>assistant",
    "Mistral": "{% set reasoning_effort = reasoning_effort|default('high') %}"
    "{% if reasoning_effort not in ['none', 'high'] %}{{ raise_exception('none or high') }}"
    "{% endif %}" + TURNS + "{% if reasoning_effort == 'none' %}[THINK][/THINK]{% endif %}"
    "{% endif %}",
}  # fmt: skip
REPLY = 'The code after the change "say 2":\n\n```\n'
ENDS = {  # of an edit's prompt
    "Qwen3": "assistant\n<think>\n\n</think>\n\n",
    "GLM": "assistant\n<think></think>\n",
    "DeepSeek-V3": "assistant\n</think>",
    "DeepSeek-R1": "assistant\n<think>\n\n</think>\n\n",
    "without a switch": "assistant\n<think>\n\n</think>\n\n",
    "plain": "assistant\n",
    "gpt-oss": f"assistant{FINAL}",
    "Mistral": "assistant\n[THINK][/THINK]",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


@pytest.fixture
def tokenizers(folder: Path) -> Iterator[list[Tokenizer]]:
    """Tokenizers whose templates' processes are ended after the test."""
    made: list[Tokenizer] = []
    yield made
    for one in made:
        if one.template is not None:
            one.template.close()


def tokenizer_of(
    folder: Path, template: str, marks: tuple[str, ...] = (*THINK, *HARMONY)
) -> Tokenizer:
    """A tokenizer of single bytes with control tokens, and a template."""
    words = [*byte_tokens(), *CONTROL, *marks]
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False}
    spec = {
        "version": "1.0", "truncation": None, "padding": None, "normalizer": None,
        "added_tokens": [
            {"id": n, "content": one, "single_word": False, "lstrip": False, "rstrip": False,
             "normalized": False, "special": True} for n, one in enumerate(words) if n >= 256
        ],
        "pre_tokenizer": level | {"use_regex": False}, "post_processor": None,
        "decoder": level | {"use_regex": False},
        "model": {"type": "BPE", "vocab": {one: n for n, one in enumerate(words)}, "merges": []},
    }  # fmt: skip
    (folder / "tokenizer.json").write_text(json.dumps(spec))
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": template}))
    return Tokenizer(folder)


def shown(tokenizer: Tokenizer, ids: list[int]) -> str:
    names = {n: name for name, n in tokenizer.control.items()}
    return "".join(names[one] if one in names else tokenizer.decode([one]) for one in ids)


@pytest.mark.parametrize("name", sorted(TEMPLATES))
def test_an_edit_is_asked_for_without_reasoning(
    name: str, folder: Path, tokenizers: list[Tokenizer]
) -> None:
    marks = {"Mistral": ("[THINK]", "[/THINK]"), "gpt-oss": HARMONY}.get(name, THINK)
    tokenizers.append(tokenizer := tokenizer_of(folder, TEMPLATES[name], marks))
    prompt = prompt_of(Request("edit", "x = 1\n", instruction="say 2"), tokenizer)
    assert shown(tokenizer, prompt.ids).endswith(f"{ENDS[name]}{REPLY}")
    assert not prompt.thinks
    request = Request("chat", messages=({"role": "user", "content": "hi"},), thinking=False)
    prompt = prompt_of(request, tokenizer)
    assert shown(tokenizer, prompt.ids).endswith(ENDS[name]) and not prompt.thinks


@pytest.mark.parametrize("name", ["DeepSeek-R1", "Qwen3"])
def test_a_chat_reasons_where_its_model_does(
    name: str, folder: Path, tokenizers: list[Tokenizer]
) -> None:
    tokenizers.append(tokenizer := tokenizer_of(folder, TEMPLATES[name]))
    messages = [{"role": "user", "content": "hi <think>"}]
    prompt = prompt_of(Request("chat", messages=tuple(messages)), tokenizer)
    assert prompt.thinks == (name == "DeepSeek-R1")
    assert tokenizer.template is not None
    text = tokenizer.template.render(["user"]).replace("\ue0000\ue001", "hi <think>")
    assert shown(tokenizer, prompt.ids) == text


def answer(
    text: str,
    marks: tuple[str, ...],
    template: str,
    opened: bool,
    sizes: list[int],
    as_text: bool = True,
    stop: tuple[str, ...] = (),
) -> tuple[str, str]:
    """The text and the reasoning of an answer that comes in tokens of these sizes; a control token
    is one token."""
    control = {one: n for n, one in enumerate(marks)}
    found = reasoning_marks(control, template)
    assert found is not None
    pieces: list[tuple[int, str]] = []
    while text:
        mark = next((one for one in marks if text.startswith(one)), "")
        nearest = min((text.find(one) for one in marks if one in text), default=len(text))
        size = len(mark) or min(sizes[len(pieces) % len(sizes)], nearest)
        pieces.append((control.get(mark, len(marks) + len(pieces)), text[:size]))
        text = text[size:]

    class Texts:
        """The part of a tokenizer that a text stream needs."""

        def decode(self, ids: list[int]) -> str:
            return "".join(piece for one in ids for n, piece in pieces if n == one)

        def own_text(self, token: int) -> None:
            return None

    filtered = ReasoningFilter(found, opened, as_text)
    stream = TextStream(Texts(), stop, filtered)  # type: ignore[arg-type]
    out: list[str] = []
    for n, _ in pieces:
        out += [piece.text for piece in stream.push([n], [("model", None)])[1]]
        if stream.matched is not None:
            break
    out += [piece.text for piece in stream.finish()]
    assert "".join(out) == stream.text
    return stream.text, stream.reasoning


GRANITE = "Here is my thought process: Here is my response: <think></think><response></response>"
ANSWERS = [  # marks, template, opened, what the model writes, answer, reasoning
    (THINK, "", False, "<think>\nhm\n</think>\n\nyes ", "yes ", "\nhm\n"),
    (THINK, "", True, "hm</think>yes", "yes", "hm"),
    (THINK, "", True, "<think>hm</think>yes", "yes", "hm"),  # again, as some do
    (THINK, "", False, "\n\n  yes", "\n\n  yes", ""),
    (THINK, "", False, "</think>\n\nyes", "yes", ""),  # the prompt ended it before
    (THINK, "", False, "say <think> or </think>", "say <think> or </think>", ""),
    (THINK, "", True, "never ends", "", "never ends"),
    (THINK, "", False, "<think>a</think>", "", "a"),
    (COHERE, "", False, "<|START_THINKING|>hm<|END_THINKING|><|START_RESPONSE|>yes<|END_RESPONSE|>",
     "yes", "hm"),
    ((), "<think></think>", False, "<think>hm <th</think>\nyes </think>", "yes </think>", "hm <th"),
    ((), "<think></think>", True, "hm</thin</think>yes", "yes", "hm</thin"),
    ((), "<think></think>", False, "  <thinly", "  <thinly", ""),
    ((), GRANITE, False, "Here is my thought process: hm Here is my response: yes", "yes", " hm "),
    ((), GRANITE, False, "<think>hm</think>\n<response>a </response> b</response>\n",
     "a </response> b", "hm"),
    ((), GRANITE, False, "<think>hm</think><response>yes </res", "yes </res", "hm"),
    (HARMONY, "", False, "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final"
     "<|message|>yes", "yes", "hm"),
    (HARMONY, "", False, "<|channel|>commentary<|message|>yes", "yes", ""),
    (HARMONY, "", False, "yes", "yes", ""),
    (GEMMA, "", False, "<|channel>thought\nhm<channel|>yes", "yes", "hm"),
    (GEMMA, "", False, "<|channel>thoughtful\n<channel|>yes", "yes", "thoughtful\n"),
    (GEMMA, "", False, "<|channel>thought\n<channel|>yes", "yes", ""),
]  # fmt: skip


@pytest.mark.parametrize("case", ANSWERS, ids=lambda case: case[3][:24])
@settings(max_examples=20)
@given(sizes=st.lists(st.integers(1, 40), min_size=1, max_size=4))
def test_reasoning_is_no_part_of_the_answer(
    case: tuple[tuple[str, ...], str, bool, str, str, str], sizes: list[int]
) -> None:
    """However its text is split into tokens."""
    marks, template, opened, written, text, reasoning = case
    assert answer(written, marks, template, opened, sizes) == (text, reasoning)


def test_marks_that_are_text_are_left_in_code() -> None:
    found = answer("<think>hm</think>x", (), "<think></think>", False, [3], as_text=False)
    assert found == ("<think>hm</think>x", "")


def test_a_stop_string_does_not_count_in_reasoning() -> None:
    written = "<think>```\n a</think>b```c"
    assert answer(written, THINK, "", False, [1], stop=("```",)) == ("b", "```\n a")


SWITCHES = {
    "{% if enable_thinking %}": True,
    "{{ '' if not thinking else '<think>' }}": True,
    "{%- set effort = reasoning_effort | default('low') -%}": True,
    "{% if block['type'] == 'thinking' %}": False,
    '{{ message.thinking }}{% set x = "say \\" thinking" %}': False,
    "First draft your thinking process.{# thinking #}": False,
    "{% set x = '" + "\\'" * 20_000: False,
    "{% " * 20_000: False,
}


@pytest.mark.parametrize("template", SWITCHES, ids=lambda one: one[:30])
def test_a_switch_is_a_variable_that_the_template_reads(template: str) -> None:
    """Not a word of its prose, nor a field of a message."""
    found = reasoning_marks({"<think>": 1, "</think>": 2}, template)
    assert found is not None and found.switch == SWITCHES[template]


@pytest.mark.parametrize("name", ["<|channel|>", "<think>", "[THINK]"])
def test_half_a_pair_of_marks_is_none(name: str) -> None:
    assert reasoning_marks({name: 1}, name) is None
