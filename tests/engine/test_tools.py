"""Calls of tools: read from answers in every format, however they arrive, and enforced by a grammar
that leaves text before them free."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.drafting import NullDrafter
from engine.prompts.builder import Prompt, prompt_of
from engine.prompts.call_formats import FORMATS, MARKS
from engine.prompts.call_formats.call_format import Call, CallFormat
from engine.prompts.call_formats.harmony_calls import HARMONY
from engine.prompts.call_formats.json_calls import HERMES
from engine.prompts.reasoning import ASSISTANT
from engine.prompts.reasoning import HARMONY as HARMONY_MARKS
from engine.prompts.tokenizer import Tokenizer
from engine.prompts.tool_calls import BEGINNINGS, MAX_MALFORMED, held_back, read_calls
from engine.prompts.tool_grammar import call_grammar, grammar_of_calls
from engine.prompts.tools import Tool
from engine.records import Draft, Message, Request, RequestError
from engine.sampling.grammar import Grammars, Trigger
from tests.conftest import HashTarget
from tests.support import law
from tests.support.drafters import drafters
from tests.support.law import SAMPLED, answer, run
from tests.support.marked_tokenizer import with_marks

tokenizer = law.tokenizer  # fixture
NAMES: dict[str, Any] = dict.fromkeys(("look_up", "write.file", "go-1"))
JSON_FORMATS = ("hermes", "mistral", "mistral-args", "granite", "harmony", "llama")
CITY: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 6}, "days": {"enum": [1, 2, 3]}},
    "required": ["city", "days"],
    "additionalProperties": False,
}
TOOLS = [Tool("look_up", "", CITY), Tool("go-1")]

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
values = st.recursive(
    texts | st.integers() | st.booleans() | st.none() | st.sampled_from(MARKS),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
calls = st.builds(
    lambda name, value: Call(name, json.dumps(value, ensure_ascii=False)),
    st.sampled_from([*NAMES]),
    st.dictionaries(texts, values, max_size=3),
)
# What answers are made of, right and wrong.
parts = st.sampled_from(
    [*BEGINNINGS, "</tool_call>", "\n", " ", "{", "}", "[", "]", "```json\n", "```", "a", "<",
     "<to", '{"name": "look_up", "arguments": {"a": 1}}', '{"name": "other", "arguments": {}}',
     "look_up[ARGS]{}", '{"name": "look_up"', '"', "[TOOL", "; ", "\u00e9", "call:look_up{",
     "<function=look_up>", "<parameter=a>", "</parameter>", "</function>", '<|"|>', "a:1",
     "<|channel|>commentary to=functions.look_up json<|message|>", "<tool_call|>"]
)  # fmt: skip
answers = st.lists(parts, max_size=10).map("".join)


def written(form: str, made: Sequence[Call]) -> str:
    """Calls as a model of this format writes them."""
    if form == "mistral-args":
        return "".join(f"[TOOL_CALLS]{one.name}[ARGS]{one.arguments}" for one in made)
    if form == "harmony":
        head = (
            "<|start|>assistant<|channel|>commentary to=functions.{} <|constrain|>json<|message|>"
        )
        return "".join(head.format(one.name) + one.arguments for one in made)
    key = "parameters" if form == "llama" else "arguments"
    objects = [f'{{"name": "{one.name}", "{key}": {one.arguments}}}' for one in made]
    if form == "hermes":
        return "\n".join(f"<tool_call>\n{one}\n</tool_call>" for one in objects)
    mark = {"mistral": "[TOOL_CALLS]", "granite": "<|tool_call|>"}.get(form)
    return f"{mark}[{', '.join(objects)}]" if mark else "; ".join(objects)


# -- reading -----------------------------------------------------------------------------------


@given(st.sampled_from(JSON_FORMATS), st.lists(calls, min_size=1, max_size=3))
def test_a_call_that_is_written_and_read_is_itself(form: str, made: list[Call]) -> None:
    assert read_calls(written(form, made), NAMES) == ("", made)
    assert read_calls(written(form, made), NAMES, cut=True) == ("", made)


@given(calls, st.sampled_from(["```json\n{}\n```", "```\n[{}]```\n", "  {}\n", "[{}, {}]"]))
def test_calls_without_marks_are_a_whole_answer(made: Call, around: str) -> None:
    one = f'{{"name": "{made.name}", "arguments": {made.arguments}}}'
    assert read_calls(around.replace("{}", one), NAMES) == ("", [made] * around.count("{}"))
    text = f"For example: {one}"
    assert read_calls(text, NAMES) == (text, [])


@given(
    st.sampled_from(JSON_FORMATS[:-1]),
    st.lists(calls, min_size=1, max_size=2),
    st.sampled_from(["", "I look.", "I look.\n\nNow\n", "\u00e9 ```"]),
    st.sampled_from(["", "Done.", "\n\nDone.\n"]),
)
def test_text_around_calls_is_kept(form: str, made: list[Call], lead: str, tail: str) -> None:
    """All of it, but for the newline that templates write before a call."""
    newline = "\n" if lead else ""
    assert read_calls(f"{lead}{newline}{written(form, made)}{tail}", NAMES) == (lead + tail, made)


@settings(max_examples=300)
@given(answers, st.lists(st.integers(1, 30), min_size=1, max_size=4), st.booleans())
def test_a_stream_in_pieces_is_the_whole(text: str, sizes: list[int], cut: bool) -> None:
    """What is passed on is never taken back, and is all there is if no call comes."""
    content, _ = read_calls(text, NAMES, cut)
    at = step = 0
    while at < len(text):
        at += sizes[step % len(sizes)]
        step += 1
        shown = text[:at]
        passed = shown[: len(shown) - held_back(shown)]
        assert content.startswith(passed)


@settings(max_examples=300)
@given(answers)
def test_an_answer_without_calls_is_its_text(text: str) -> None:
    content, found = read_calls(text, NAMES)
    assert found or content == text
    assert all(call.name in NAMES for call in found)


@given(
    st.sampled_from(JSON_FORMATS),
    st.lists(calls, min_size=1, max_size=2),
    st.sampled_from(["", "Hm."]),
)
def test_half_calls_never_appear(form: str, made: list[Call], lead: str) -> None:
    """Wherever an answer is cut off."""
    lead = "" if form == "llama" else lead
    text = lead + written(form, made)
    for at in range(len(lead), len(text)):
        content, found = read_calls(text[:at], NAMES, cut=True)
        assert content == lead
        assert found == made[: len(found)]


@pytest.mark.parametrize(
    "text",
    [
        "<function=look_up><parameter=city>Rome</parameter></function>",
        "look_up(city='Rome')",
        '<tool_call>\n{"name": "other", "arguments": {}}\n</tool_call>',
        '<tool_call>\n{"name": "look_up", "arguments": [1]}\n</tool_call>',
        '<tool_call>\n{"name": "look_up", "arguments": {"city": }}\n</tool_call>',
        '{"name": "look_up"}',
        '{"name": ["look_up"], "arguments": {}}',
        '[TOOL_CALLS]other{"a": 1}',
        "[TOOL_CALLS] look_up",
        "<|python_tag|>look_up.call()",
        "[]",
        "```json\n[]\n```",
        "{}",
        "",
    ],
)
def test_other_formats_are_text(text: str) -> None:
    assert read_calls(text, NAMES) == (text, [])


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        '{"name":' * 50_000,
        "<tool_call>" * 20_000,
        "<tool_call>" + "[" * 100_000,
        '<tool_call>{"name": "look_up", "arguments": ' * 5_000,
        "[TOOL_CALLS]" + "look_up" * 20_000,
        "`" * 100_000,
        " " * 100_000,
        '<tool_call>{"name": "look_up", "arguments": "' + "{" * 100_000 + '"}',
        '{"name": "look_up", "arguments": "\\ud800{}"}',
    ],
)
def test_hostile_answers_are_text(text: str) -> None:
    assert read_calls(text, NAMES) == (text, [])
    assert 0 <= held_back(text) <= len(text)


def test_json_in_json_is_read() -> None:
    text = json.dumps({"name": "go-1", "arguments": '{"a": "\u00e9"}'})
    assert read_calls(text, NAMES) == ("", [Call("go-1", '{"a": "\u00e9"}')])


def test_half_characters_are_escaped() -> None:
    text = '<tool_call>{"name": "go-1", "arguments": {"a": "\\ud800"}}</tool_call>'
    assert read_calls(text, NAMES) == ("", [Call("go-1", '{"a": "\\ud800"}')])


def test_what_json_does_not_know_is_no_call() -> None:
    text = '<tool_call>{"name": "go-1", "arguments": {"a": NaN}}</tool_call>'
    assert read_calls(text, NAMES) == (text, [])


def test_only_so_many_malformed_calls_are_looked_at() -> None:
    call = written("hermes", [Call("go-1", "{}")])
    for count, found in ((MAX_MALFORMED - 1, 1), (MAX_MALFORMED, 0)):
        assert len(read_calls("<tool_call>x" * count + call, NAMES)[1]) == found


# -- the grammar -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def marked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tokenizer]:
    """A tokenizer with all marks as control tokens, and a template that knows tools."""
    folder = tmp_path_factory.mktemp("marked")
    marks = [*(one for one in MARKS if one not in HARMONY_MARKS), "<think>", "</think>"]
    tokenizer = with_marks(folder, marks)
    (folder / "chat_template.jinja").write_text(
        "{% for t in tools or [] %}{{ t | tojson }}\n{% endfor %}"
        "{% for m in messages %}<|start|>{{ m.role }}\n"
        "{% if m.reasoning_content is defined %}<think>{{ m.reasoning_content }}</think>{% endif %}"
        "{{ m.content }}{% for c in m.tool_calls or [] %}<tool_call>"
        "{{ c.function | tojson }}</tool_call>{% endfor %}<|end|>\n{% endfor %}<|start|>assistant"
    )
    tokenizer = Tokenizer(folder)
    tokenizer.eos = frozenset({tokenizer.control["<|end|>"]})
    yield tokenizer
    assert tokenizer.template
    tokenizer.template.close()


@settings(max_examples=8)
@given(st.sampled_from(FORMATS), st.integers(0, 999), st.booleans(), st.booleans())
def test_enforced_calls_can_be_read(
    marked: Tokenizer, form: CallFormat, seed: int, many: bool, control: bool
) -> None:
    """And no drafter changes them."""
    grammars = Grammars(marked)
    grammar = call_grammar(TOOLS, form, marked.control if control else {}, many)
    vocabulary = max(marked.control.values()) + 8
    target, prompt = HashTarget(vocabulary, seed=seed), Prompt([5], max_tokens=300)
    options = {"seed": seed, **SAMPLED, "tools": ("{}",)}

    def finished(drafter: Any) -> Any:
        state = grammars.start(grammar, marked.eos)
        return run(target, marked, prompt, drafter, grammar=state, **options)[1]

    expected = finished(NullDrafter())
    text = (ASSISTANT if form is HARMONY else "") + expected.text  # which the prompt has
    if expected.reason == "stop":
        content, found = read_calls(text, NAMES)
        assert content == "" and found and (many or len(found) == 1)
        for call in found:
            assert call.name in ("look_up", "go-1")
            value = json.loads(call.arguments)
            jsonschema.validate(value, CITY if call.name == "look_up" else {"type": "object"})
    else:
        assert read_calls(text, NAMES, cut=True)[0] == ""
    truth = target.tokens[1:]
    prompt.predictions = [truth]
    for name, drafter in drafters(truth, target.vocab).items():
        assert answer(finished(drafter)) == answer(expected), name


def test_most_enforced_calls_end(marked: Tokenizer) -> None:
    """Or the test above would compare nothing."""
    grammars, ended = Grammars(marked), 0
    text = call_grammar(TOOLS[:1], HERMES, marked.control, many=False)
    for seed in range(10):
        state, target = grammars.start(text, marked.eos), HashTarget(320, seed=seed)
        _, done = run(target, marked, Prompt([5], max_tokens=300), NullDrafter(), grammar=state)
        ended += done.reason == "stop"
    assert ended >= 8


TRIGGERED = Trigger(70, frozenset({71}), frozenset({72}))
LETTERS = "%llguidance {}\nstart: <[70]> /[a-c]{1,9}/"


@settings(max_examples=10)
@given(st.integers(0, 999), st.booleans(), st.booleans())
def test_no_drafter_changes_an_answer_whose_grammar_begins_later(
    tokenizer: Tokenizer, seed: int, sampled: bool, reasons: bool
) -> None:
    """The oracle: up to the trigger it is the free answer, from there on letters."""
    trigger = Trigger(70, TRIGGERED.opening, TRIGGERED.closing, reasons)
    grammars, options = Grammars(tokenizer), {"seed": seed, **(SAMPLED if sampled else {})}
    # Few tokens, so that the trigger is among them.
    target, prompt = FewTokens(300, seed=seed), Prompt([5, 6], max_tokens=50)

    def finished(drafter: Any, enforced: bool = True) -> Any:
        state = grammars.start(LETTERS, tokenizer.eos, trigger) if enforced else None
        return run(target, tokenizer, prompt, drafter, grammar=state, **options)[1]

    finished(NullDrafter(), enforced=False)
    free = target.tokens[2:]
    expected = finished(NullDrafter())
    truth = target.tokens[2:]
    begun = begins(free, reasons)
    assert truth[: begun + 1] == free[: begun + 1][: len(truth)]
    letters = {tokenizer.encode(one)[0] for one in "abc"}
    assert {one for one in truth[begun + 1 :] if one not in tokenizer.eos} <= letters
    for predicted in (truth, free):
        prompt.predictions = [predicted]
        for name, drafter in drafters(predicted, 300).items():
            assert answer(finished(drafter)) == answer(expected), name


class FewTokens(HashTarget):
    """Its choice is among some tokens, but where a grammar forbids all of them."""

    def row(self, text: list[int]) -> Any:
        import torch

        row = super().row(text).clone()
        likely = torch.zeros(self.vocab, dtype=torch.bool)
        likely[60:80] = True
        row[~likely] -= 40
        return row


def begins(tokens: list[int], reasons: bool) -> int:
    """Where the grammar begins; the number of tokens if it does not."""
    for at, token in enumerate(tokens):
        if not reasons and token == TRIGGERED.token:
            return at
        reasons = token not in TRIGGERED.closing if reasons else token in TRIGGERED.opening
    return len(tokens)


@given(st.lists(st.integers(60, 80), max_size=40), st.booleans(), st.data())
def test_what_is_pruned_behind_a_trigger_is_what_the_grammar_forbids(
    tokenizer: Tokenizer, tokens: list[int], reasons: bool, data: st.DataObject
) -> None:
    letters = [tokenizer.encode(one)[0] for one in "abc"]
    draft = Draft()
    for token in tokens:
        one = data.draw(st.sampled_from([token, 70, *letters, *tokenizer.eos]))
        draft.add(one, data.draw(st.integers(-1, len(draft) - 1)), 1.0, "x")

    def allowed(node: int) -> bool:
        path = [node]
        while draft.parents[path[0]] >= 0:
            path.insert(0, draft.parents[path[0]])
        found = [draft.tokens[at] for at in path]
        if not tokenizer.eos.isdisjoint(found[:-1]):
            return False
        inside = [one for one in found[begins(found, reasons) + 1 :] if one not in tokenizer.eos]
        return set(inside) <= {*letters} and len(inside) <= 9

    trigger = Trigger(70, TRIGGERED.opening, TRIGGERED.closing, reasons)
    state = Grammars(tokenizer).start(LETTERS, tokenizer.eos, trigger)
    kept = [node for node in range(len(draft)) if allowed(node)]
    assert state.pruned(draft).tokens == draft.only(kept).tokens
    assert state.pruned(draft).tokens == draft.only(kept).tokens  # the state is where it was


def request(*tools: Tool, must: Sequence[str] = (), **options: Any) -> Request:
    messages: tuple[Message, ...] = ({"role": "user", "content": "hi"},)
    known = tuple(json.dumps(tool.definition()["function"]) for tool in tools)
    fields = {"messages": messages, "tools": known, "must_call": tuple(must)} | options
    return Request("chat", **fields)


def test_what_must_be_called_must_be_enforceable(marked: Tokenizer) -> None:
    bad = Tool("bad", "", {"type": "object", "properties": {"a": {"items": {"type": "fish"}}}})
    none = Tool("none", "", {"type": "string"})
    with pytest.raises(
        RequestError, match=r"^tools: bad: the schema's properties\.a\.items cannot"
    ):
        grammar_of_calls(request(bad, must=["bad"]), marked)
    with pytest.raises(RequestError, match=r"^tools: none: .*no object"):
        grammar_of_calls(request(none, must=["none"]), marked)
    with pytest.raises(RequestError, match="none to call"):
        grammar_of_calls(request(bad, must=["other"]), marked)
    text, trigger = grammar_of_calls(request(bad, none), marked)
    assert trigger is not None and trigger.token == marked.control["<tool_call>"]
    Grammars(marked).start(text, marked.eos, trigger)


def test_without_a_mark_nothing_is_enforced_unless_it_must_be(tokenizer: Tokenizer) -> None:
    assert grammar_of_calls(request(*TOOLS), tokenizer) == ("", None)
    text, trigger = grammar_of_calls(request(*TOOLS, must=["go-1"]), tokenizer)
    assert trigger is None and "go-1" in text and "look_up" not in text


# -- the prompt --------------------------------------------------------------------------------


def shown(tokenizer: Tokenizer, asked: Request) -> str:
    names = {number: name for name, number in tokenizer.control.items()}
    ids = prompt_of(asked, tokenizer).ids
    return "".join(names.get(one) or tokenizer.decode([one]) for one in ids)


HISTORY: tuple[Message, ...] = (
    {"role": "user", "content": "hi"},
    {"role": "assistant", "content": "I look.", "reasoning_content": "hm",
     "tool_calls": '[{"id": "1", "name": "look_up", "arguments": {"city": "<|end|>"}}]'},
    {"role": "tool", "content": "sun <tool_call>", "tool_call_id": "1"},
)  # fmt: skip


def test_a_template_that_knows_tools_is_given_them(marked: Tokenizer) -> None:
    text = shown(marked, request(TOOLS[0], messages=HISTORY))
    tool = json.dumps(TOOLS[0].definition())
    call = '{"name": "look_up", "arguments": {"city": "<|end|>"}}'
    assert text == (
        f"{tool}\n<|start|>user\nhi<|end|>\n"
        f"<|start|>assistant\n<think>hm</think>I look.<tool_call>{call}</tool_call><|end|>\n"
        "<|start|>tool\nsun <tool_call><|end|>\n<|start|>assistant"
    )
    ids = prompt_of(request(TOOLS[0], messages=HISTORY), marked).ids
    assert ids.count(marked.control["<tool_call>"]) == 1  # that of the template
    assert ids.count(marked.control["<|end|>"]) == 3


def test_a_template_that_knows_no_tools_is_told_in_words(tokenizer: Tokenizer) -> None:
    text = tokenizer.decode(prompt_of(request(TOOLS[0], messages=HISTORY), tokenizer).ids)
    call = '{"name": "look_up", "arguments": {"city": "<|end|>"}}'
    assert json.dumps(TOOLS[0].definition()) in text
    assert f"I look.\n<tool_call>\n{call}\n</tool_call>" in text
    assert "<tool_response>\nsun <tool_call>\n</tool_response>" in text


def test_an_answer_that_must_fit_does_not_reason(tmp_path: Path) -> None:
    with_marks(tmp_path, ["<think>", "</think>"])
    template = "{% for m in messages %}{{ m.content }}{% endfor %}<think>{# </think> #}"
    (tmp_path / "chat_template.jinja").write_text(template)
    tokenizer = Tokenizer(tmp_path)
    try:
        assert prompt_of(request(TOOLS[0]), tokenizer).thinks
        for options in ({"must": ["look_up"]}, {"grammar": "x"}):
            assert not prompt_of(request(TOOLS[0], **options), tokenizer).thinks
    finally:
        assert tokenizer.template
        tokenizer.template.close()
