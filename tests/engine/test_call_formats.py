"""The formats of calls of the model families: what a family's template writes is read as what it
was, and what its grammar forces can be read and fits the schema."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise, takewhile
from random import Random
from typing import Any

import jsonschema
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.generate import marks_in_text, reasoning_filter
from engine.prompts.builder import prompt_of
from engine.prompts.call_formats import FORMATS, MARKS, format_of
from engine.prompts.call_formats.call_format import Call, CallFormat
from engine.prompts.call_formats.gemma_calls import GEMMA
from engine.prompts.call_formats.harmony_calls import HARMONY
from engine.prompts.call_formats.json_calls import GRANITE, HERMES, LLAMA, MISTRAL, MISTRAL_ARGS
from engine.prompts.call_formats.schema_parts import alternatives
from engine.prompts.call_formats.xml_calls import XML
from engine.prompts.reasoning import ASSISTANT
from engine.prompts.tokenizer import Tokenizer
from engine.prompts.tool_calls import held_back, read_calls
from engine.prompts.tool_grammar import call_grammar, grammar_of_calls
from engine.prompts.tools import Tool
from engine.records import Message, Request, RequestError
from engine.sampling.grammar import Grammars
from engine.text_stream import TextStream
from tests.engine.test_model_families import FAMILIES, FOLDER, tokenizer_of
from tests.support.marked_tokenizer import with_marks

FORMAT_OF = {
    "llama3": LLAMA, "qwen2.5": HERMES, "qwen3": HERMES, "qwen3-next": HERMES,
    "granite4.1": HERMES, "qwen3-coder": XML, "qwen3.5": XML, "ministral3": MISTRAL_ARGS,
    "gemma4": GEMMA, "gpt-oss": HARMONY, "granite3.3": GRANITE,
    **dict.fromkeys(("smollm3", "phi3.5", "phi4", "seed-coder", "gemma3", "olmo3-think"), HERMES),
}  # fmt: skip
# Families with templates that write calls, and one whose prompt describes the tools as text.
WRITERS = [*[*FORMAT_OF][:10], "phi4"]
TYPED: dict[str, Any] = {
    "type": "object",
    "properties": {
        "path": {"type": "string"},
        "count": {"type": "integer"},
        "ratio": {"type": "number"},
        "deep": {"type": "boolean"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "inner": {"type": "object"},
        "note": {"type": ["string", "null"]},
    },
}
TEXTS: dict[str, Any] = {
    "type": "object",
    "properties": {"path": {"type": "string"}, "note": {"type": "string"}},
    "required": ["path"],
}
MEANT = st.sampled_from(
    [*MARKS, "\n", " ", "\n\n", "{", "}", "<function=read>", "</function>", '"']
)
texts = st.lists(st.text(max_size=6) | MEANT, max_size=5).map("".join)
values = st.recursive(
    texts | st.integers() | st.booleans() | st.none(),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(texts, inner, max_size=2),
    max_leaves=4,
)
typed = st.fixed_dictionaries({"path": texts}, optional={
    "count": st.integers(), "ratio": st.floats(allow_nan=False, allow_infinity=False),
    "deep": st.booleans(), "tags": st.lists(texts, max_size=2),
    "inner": st.dictionaries(texts, values, max_size=2), "note": st.none() | texts,
})  # fmt: skip
letters = st.text(st.characters(exclude_categories=["Cc", "Cs"]), max_size=9) | MEANT
plain = st.fixed_dictionaries({"path": letters}, optional={"note": letters})
keys = st.text("abcdefgh_1-", min_size=1, max_size=3)
gemmas = st.dictionaries(keys, st.recursive(
    texts | st.integers() | st.booleans() | st.none() | st.floats(-9, 9),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(keys, inner, max_size=2),
    max_leaves=4,
), max_size=3)  # fmt: skip


@pytest.fixture(scope="module", params=WRITERS)
def family(request: pytest.FixtureRequest) -> Iterator[tuple[str, Tokenizer]]:
    with tokenizer_of(request.param) as tokenizer:
        yield request.param, tokenizer


def chat(tool: Tool, arguments: dict[str, Any] | None = None, **options: Any) -> Request:
    """A question; with arguments also a call that answers it, and its result."""
    call = {"id": "abcdefghi", "name": "read", "arguments": arguments}
    messages: list[Message] = [{"role": "user", "content": "What?"}]
    if arguments is not None:
        messages += [
            {"role": "assistant", "content": "", "tool_calls": json.dumps([call])},
            {"role": "tool", "content": "x", "name": "read", "tool_call_id": "abcdefghi"},
        ]
    told = json.dumps(tool.definition()["function"])
    return Request("chat", messages=tuple(messages), tools=(told,), **options)


def written(tokenizer: Tokenizer, tool: Tool, arguments: dict[str, Any]) -> list[int]:
    """The answer in a conversation, in tokens, as the template writes it."""
    asked = prompt_of(chat(tool), tokenizer).ids
    told = prompt_of(chat(tool, arguments), tokenizer).ids
    same = len([*takewhile(lambda pair: pair[0] == pair[1], zip(asked, told, strict=False))])
    return [*takewhile(lambda token: token not in tokenizer.eos, told[same:])]


def streamed(tokenizer: Tokenizer, tool: Tool, ids: list[int]) -> str:
    """The text of an answer."""
    request = chat(tool)
    reasoning = reasoning_filter(request, prompt_of(request, tokenizer), tokenizer)
    stream = TextStream(tokenizer, (), reasoning, marks=marks_in_text(request, tokenizer))
    stream.push(ids, [("model", None)] * len(ids))
    stream.finish()
    return stream.text


def readable(name: str, arguments: dict[str, Any]) -> bool:
    """Whether the format can tell these arguments from others at all."""
    if FORMAT_OF[name] is XML:
        return "</parameter>" not in str(arguments) and arguments.get("note") not in {
            "None", "null",
        }  # fmt: skip
    return FORMAT_OF[name] is not GEMMA or '<|"|>' not in str(arguments)


def test_the_format_is_that_of_the_template() -> None:
    found = {name: format_of((FOLDER / f"{name}.jinja").read_text("utf-8")) for name in FAMILIES}
    assert found == FORMAT_OF
    assert format_of("tools [TOOL_CALLS]") is MISTRAL and format_of("<function=") is HERMES


@settings(max_examples=8)
@given(data=st.data())
def test_a_call_in_a_conversation_is_read_as_it_was(
    family: tuple[str, Tokenizer], data: st.DataObject
) -> None:
    """Wherever it is cut off, nothing of it is text."""
    name, tokenizer = family
    texts_only = name == "gemma4"  # as its template here has it
    arguments = data.draw((plain if texts_only else typed).filter(lambda one: readable(name, one)))
    tool = Tool("read", "Read.", TEXTS if texts_only else TYPED)
    text = streamed(tokenizer, tool, written(tokenizer, tool, arguments))
    content, calls = read_calls(text, {"read": tool.parameters})
    assert (content, [call.name for call in calls]) == ("", ["read"])
    assert json.loads(calls[0].arguments) == arguments
    for at in data.draw(st.lists(st.integers(0, len(text)), max_size=10)):
        part = text[:at]
        assert held_back(part) == len(part)
        assert read_calls(part, {"read": tool.parameters}, cut=True) in (("", []), ("", calls))
        assert read_calls(part, {"read": tool.parameters}) in ((part, []), ("", calls))
    assert read_calls(text, {"write": None}) == (text, [])


@settings(max_examples=6)
@given(data=st.data())
def test_the_grammar_takes_what_the_template_writes(
    family: tuple[str, Tokenizer], data: st.DataObject
) -> None:
    name, tokenizer = family
    drawn = data.draw(plain.filter(lambda one: readable(name, one)))
    arguments = {key: drawn[key] for key in TEXTS["properties"] if key in drawn}
    tool = Tool("read", "Read.", TEXTS)
    ids = written(tokenizer, tool, arguments)
    if name == "gpt-oss":  # its template writes the name before the channel
        ids = spelled(tokenizer, HARMONY_HEADERS[1])
        ids += tokenizer.encode(json.dumps(arguments, ensure_ascii=False))
    elif name == "qwen3.5":  # without its reasoning
        ids = ids[ids.index(tokenizer.control["<tool_call>"]) :]
    grammar, trigger = grammar_of_calls(chat(tool, must_call=("read",)), tokenizer)
    assert trigger is None
    state = Grammars(tokenizer).start(grammar, tokenizer.eos)
    assert all(map(state.takes, ids))
    assert state.takes(min(tokenizer.eos))


def spelled(tokenizer: Tokenizer, text: str) -> list[int]:
    """The tokens of a text with marks."""
    return tokenizer._template(text, tokenizer.encode)


HARMONY_HEADERS = (
    " to=functions.read<|channel|>commentary json<|message|>",
    "<|channel|>commentary to=functions.read <|constrain|>json<|message|>",
    "<|channel|>analysis to=functions.read<|message|>",
    "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>commentary "
    "to=functions.read json<|message|>",
    "<|channel|>analysis<|message|>hm<|end|><|start|>assistant to=functions.read<|channel|>"
    "commentary <|constrain|>json<|message|>",
)


@pytest.mark.parametrize("header", HARMONY_HEADERS)
def test_a_harmony_message_to_a_function_is_a_call(header: str) -> None:
    tool = Tool("read", "Read.", TYPED)
    with tokenizer_of("gpt-oss") as tokenizer:
        ids = spelled(tokenizer, header) + tokenizer.encode('{"path": "<|end|>"}')
        text = streamed(tokenizer, tool, ids)
        assert read_calls(text, {"read": None}) == ("", [Call("read", '{"path": "<|end|>"}')])
        preamble = "<|channel|>commentary<|message|>I look.<|end|><|start|>assistant"
        ids = spelled(tokenizer, preamble + header + "{}")
        assert read_calls(streamed(tokenizer, tool, ids), {"read": None}) == (
            "I look.", [Call("read", "{}")],
        )  # fmt: skip
        for other in ("to the point", " to=me", "to"):
            assert streamed(tokenizer, tool, tokenizer.encode(other)) == other


def test_a_forced_call_of_harmony_is_in_its_own_channel() -> None:
    with tokenizer_of("gpt-oss") as tokenizer:
        for options in ({"must_call": ("read",)}, {"thinking": False}):
            ids = prompt_of(chat(Tool("read", "Read.", TYPED), **options), tokenizer).ids
            assert tokenizer.decode(ids[-9:]) == "assistant"


# -- values without quotes ---------------------------------------------------------------------


def in_gemmas(value: Any) -> str:
    """A value as Gemma 4 writes it."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{key}:{in_gemmas(one)}" for key, one in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(in_gemmas, value)) + "]"
    return f'<|"|>{value}<|"|>' if isinstance(value, str) else json.dumps(value)


@given(gemmas.filter(lambda one: '<|"|>' not in str(one)))
def test_gemmas_values_are_read_as_they_were(arguments: dict[str, Any]) -> None:
    text = f"<|tool_call>call:read{in_gemmas(arguments)}<tool_call|>"
    content, (call,) = read_calls(f"I look.{text}\nDone.", {"read": None})
    assert content == "I look.\nDone." and json.loads(call.arguments) == arguments
    for at in range(len(text)):
        cut = read_calls(text[:at], {"read": None}, cut=True)
        assert cut in (("", []), ("", [call])), at


def in_tags(name: str, pairs: list[tuple[str, str]]) -> str:
    tags = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in pairs)
    return f"<tool_call>\n<function={name}>\n{tags}</function>\n</tool_call>"


@pytest.mark.parametrize(
    ("schema", "text", "value"),
    [
        ({"type": "string"}, "5", "5"),
        ({"type": "string"}, "null", "null"),
        ({"type": "string"}, " a\n\nb ", " a\n\nb "),
        ({"type": "string"}, "", ""),
        ({"type": "string"}, "x</parameter>\ny", "x</parameter>\ny"),
        ({"type": "integer"}, "5", 5),
        ({"type": "integer"}, " 5 ", 5),
        ({"type": "integer"}, "five", "five"),
        ({"type": "number"}, "NaN", "NaN"),
        ({"type": "boolean"}, "True", True),
        ({"type": "boolean"}, "false", False),
        ({"type": ["string", "null"]}, "None", None),
        ({"type": ["string", "null"]}, "5", "5"),
        ({"type": ["string", "integer"]}, "5", 5),
        ({"type": "array"}, '["</parameter>\\n</function>"]', ["</parameter>\n</function>"]),
        ({"type": "object"}, '{"a": [1]}', {"a": [1]}),
        ({"type": "object"}, "{'a': 1}", "{'a': 1}"),
        ({"enum": ["1", 2]}, "2", 2),
        ({"enum": ["1"]}, "1", "1"),
        ({"const": 3}, "3", 3),
        ({"anyOf": [{"type": "string"}, {"type": "array"}]}, "[1]", [1]),
        ({"$ref": "#/$defs/n"}, "4", 4),
        ({"$ref": "#/$defs/loop"}, "4", 4),
        ({}, '{"a": 1}', {"a": 1}),
        ({}, "word", "word"),
        (None, "7", 7),
        ({"type": {"a": 1}}, "7", 7),
    ],
)
def test_a_value_in_tags_is_what_the_schema_says(schema: Any, text: str, value: Any) -> None:
    root = {
        "properties": {"a": schema},
        "$defs": {
            "n": {"type": "integer"},
            "loop": {"anyOf": [{"$ref": "#/$defs/loop"}, {"$ref": "#/$defs/n"}]},
        },
    }
    call = in_tags("read", [("a", text), ("a", text)])
    _, (found,) = read_calls(call, {"read": root})
    assert json.loads(found.arguments) == {"a": value}


def test_a_schema_of_many_references_is_followed_once() -> None:
    names = [f"n{n}" for n in range(15)]
    defs: dict[str, Any] = {
        one: {"anyOf": [{"$ref": f"#/$defs/{other}"}] * 2} for one, other in pairwise(names)
    }
    defs["n14"] = {"type": "null"}
    assert alternatives({"$ref": "#/$defs/n0"}, {"$defs": defs}) == ([], [{"type": "null"}])


@pytest.mark.parametrize(
    "text",
    [
        "<tool_call>\n<function=read>\n<parameter=a>\nx\n</function>\n</tool_call>",
        "<tool_call>\n<function=read>\n<parameter=a>\nx\n</parameter>\n</tool_call>",
        "<tool_call>\n<function=read>\nwords\n</function>\n</tool_call>",
        "<tool_call>\n<function=read\n</function>\n</tool_call>",
        "<tool_call>\n<function=>\n</function>\n</tool_call>",
        "<tool_call>\n<function=other>\n</function>\n</tool_call>",
        "<function=read>\n</function>",
        "<|tool_call>call:read",
        "<|tool_call>call:read{a}<tool_call|>",
        '<|tool_call>call:read{a:<|"|>x}<tool_call|>',
        "<|tool_call>call:read{a:x}<tool_call|>",
        "<|tool_call>call:read{a:1 b:2}<tool_call|>",
        "<|tool_call>call:read{a:" + "[" * 100_000,
        "<|tool_call>call:read{" * 5_000,
        "<|tool_call>read{}<tool_call|>",
        "<|tool_call|>read{}",
        f"{ASSISTANT}<|channel|>final<|message|>{{}}",
        f"{ASSISTANT}<|channel|>commentary to=functions.read<|message|>[1]",
        f"{ASSISTANT} to=functions.read<|channel|>commentary to=functions.read<|message|>{{}}",
        f"{ASSISTANT} to=functions.read" * 5_000,
        "<tool_call><function=read><parameter=a>" * 5_000,
        "<tool_call>" + " " * 100_000,
    ],
)
def test_malformed_calls_are_text(text: str) -> None:
    assert read_calls(text, {"read": None}) == (text, [])


# -- the grammar -------------------------------------------------------------------------------

RICH: dict[str, Any] = {
    "type": "object",
    "properties": {
        "word": {"type": "string", "maxLength": 4},
        "code": {"type": "string", "pattern": "^[a-z/]{2,3}$"},
        "part": {"type": "string", "pattern": "x|yz", "maxLength": 3},
        "kind": {"enum": ["a b", "c", "", 3, None]},
        "count": {"type": "integer", "minimum": 1, "maximum": 20},
        "flag": {"type": "boolean"},
        "note": {"type": ["string", "null"], "maxLength": 4},
        "either": {"anyOf": [{"type": "string", "maxLength": 2}, {"type": "integer"}]},
        "bounded": {"anyOf": [{"type": "string", "maxLength": 2}, {"$ref": "#/$defs/digit"}]},
        "tags": {"type": "array", "items": {"enum": ["x", "y"]}, "minItems": 1, "maxItems": 3},
        "inner": {
            "type": "object",
            "properties": {
                "a": {"type": "boolean"}, "b": {"$ref": "#/$defs/digit"}, "c": {"type": "null"},
            },
            "required": ["b"],
            "additionalProperties": False,
        },
    },
    "$defs": {"digit": {"type": "integer", "minimum": 0, "maximum": 9}},
    "required": ["word", "count"],
    "additionalProperties": False,
}  # fmt: skip
TOOLS = [
    Tool("read", "", RICH),
    Tool("go-1", "", {"type": "object", "additionalProperties": False}),
    Tool("any"),
]
MAX_TOKENS = 200


@pytest.fixture(scope="module")
def marked(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return with_marks(tmp_path_factory.mktemp("marked"), MARKS)


@settings(max_examples=40)
@given(st.sampled_from(FORMATS), st.booleans(), st.booleans(), st.randoms(use_true_random=False))
def test_what_is_forced_is_read_and_fits_the_schema(
    marked: Tokenizer, form: CallFormat, control: bool, many: bool, random: Random
) -> None:
    """Whichever tokens are chosen among those that the grammar allows."""
    known = marked.control if control else {}
    state = Grammars(marked).start(call_grammar(TOOLS, form, known, many), marked.eos)
    names, text = {number: mark for mark, number in known.items()}, b""
    logits = np.zeros(1 + max(marked.control.values()), np.float32)
    end = min(marked.eos)
    for _ in range(MAX_TOKENS):
        allowed = np.flatnonzero(np.isfinite(state.masked(logits))).tolist()
        assert allowed
        if allowed == [end] or (end in allowed and random.random() < 0.5):
            break
        token = random.choice([one for one in allowed if one != end])
        text += names[token].encode() if token in names else marked.token_bytes[token] or b""
        assert state.takes(token)
    else:
        return
    whole = (ASSISTANT if form is HARMONY else "") + text.decode()
    schemas = {tool.name: tool.parameters for tool in TOOLS}
    content, calls = read_calls(whole, schemas)
    assert content == "" and calls and (many or len(calls) == 1)
    for call in calls:
        jsonschema.validate(json.loads(call.arguments), schemas[call.name] or {"type": "object"})


@pytest.mark.parametrize("form", [XML, GEMMA], ids=lambda form: form.name)
@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"a": {"allOf": [{"type": "string"}, {"minLength": 2}]}}},
        {"properties": {"a": {"type": "string", "pattern": "(?=a)b"}}},
        {"properties": {"a": {"type": "string", "pattern": "^a|b$"}}},
        {"properties": {}, "required": ["b"]},
        {"properties": {"a>\n:": {"type": "string"}}},
        {"properties": {"a": {}}, "minProperties": 1},
    ],
)
def test_what_the_format_cannot_enforce_is_refused(form: CallFormat, schema: Any) -> None:
    name = {"xml": "qwen3-coder", "gemma": "gemma4"}[form.name]
    tool = Tool("read", "Read.", {"type": "object", **schema})
    with tokenizer_of(name) as tokenizer:
        with pytest.raises(RequestError, match=r"^tools: read: .*cannot be enforced"):
            grammar_of_calls(chat(tool, must_call=("read",)), tokenizer)
        grammar, trigger = grammar_of_calls(chat(tool), tokenizer)
        assert trigger is not None and trigger.token == tokenizer.control[form.opening]
        Grammars(tokenizer).start(grammar, tokenizer.eos, trigger)
