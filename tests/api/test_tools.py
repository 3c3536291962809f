"""Tools and answers in a format over /v1/chat/completions, used through OpenAI's client."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.prompts.tokenizer import Tokenizer
from engine.prompts.tools import NAME, Tool
from tests.conftest import tiny_model
from tests.support.protocols import AS_CHAT
from tests.support.server import (
    HELLO,
    LocalServer,
    renamed,
    serve_model,
    speaker,
)
from ui.api.requests import chat_request
from ui.api.schemas import ChatRequest

CHAT = "/v1/chat/completions"
CITY: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 8}, "days": {"enum": [1, 2, 3]}},
    "required": ["city", "days"],
    "additionalProperties": False,
}


def tool(name: str, parameters: Any = None) -> Any:
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


TOOLS: Any = [tool("weather", CITY), tool("time")]
ARGUMENTS = '{"city": "Rome", "days": 2}'
# What `caller` says: tokens that are no others' text.
PIECES = (
    "I look.", "\n<tool_call>", '\n{"name": "weather", ', '"arguments": ', '{"city": "Rome"',
    ', "days"', ": 2}}", "\n</tool_call>", "\n<tool_call>{", '"name": "time", ', '"arguments": {}',
    "}</tool_call>",
)  # fmt: skip
SAID = [("weather", ARGUMENTS), ("time", "{}")]


@pytest.fixture(scope="module")
def caller(models: Path) -> Iterator[LocalServer]:
    """A server whose model always writes the same text and two calls."""
    with serve_model(speaker(models / "caller", *PIECES)) as served:
        yield served


def ask(server: LocalServer, **body: Any) -> tuple[Any, ...]:
    """The text of a whole answer, its reasoning, its calls, and why it ended."""
    return AS_CHAT.ask(server, **body)[:4]


def streamed(server: LocalServer, **body: Any) -> tuple[Any, ...]:
    """The same from the chunks of a stream."""
    return AS_CHAT.stream(server, **body)[:4]


# -- the model's own calls ---------------------------------------------------------------------


def test_calls_beside_text(caller: LocalServer) -> None:
    assert ask(caller, tools=TOOLS) == ("I look.", "", SAID, "tool_calls")
    one = ask(caller, tools=TOOLS, parallel_tool_calls=False)
    assert one == ("I look.", "", SAID[:1], "tool_calls")
    (choice,) = (
        caller.client()
        .chat.completions.create(model="caller", messages=HELLO, tools=TOOLS, tool_choice="auto")
        .choices
    )
    calls: Any = choice.message.tool_calls
    assert [(one.function.name, one.function.arguments) for one in calls] == SAID


def test_without_tools_marks_are_text(caller: LocalServer) -> None:
    text = "".join(PIECES)
    for body in ({}, {"tools": []}, {"tools": TOOLS, "tool_choice": "none"}):
        assert ask(caller, **body) == (text, "", [], "stop")
    assert ask(caller, tools=[tool("other")]) == (text, "", [], "stop")
    with caller.http() as http:
        answer = http.post(CHAT, json={"messages": HELLO}).json()
    assert answer["choices"][0]["message"]["tool_calls"] is None


@pytest.mark.parametrize("room", range(len(PIECES) + 1))
def test_an_answer_cut_off_by_the_limit_has_no_half_call(caller: LocalServer, room: int) -> None:
    body = {"tools": TOOLS, "max_tokens": room}
    message = content, _, calls, reason = ask(caller, **body)
    assert content == ("I look." if room else "")
    # A call is whole as soon as its JSON is.
    assert calls == SAID[: (room >= 7) + (room >= 12)]
    assert reason == "length"
    assert streamed(caller, **body) == message


def test_a_stop_string_leaves_no_half_call(caller: LocalServer) -> None:
    for body in ({"stop": '"days'}, {"stop": "</tool"}):
        message = content, _, calls, reason = ask(caller, tools=TOOLS, **body)
        assert (content, reason) == ("I look.", "tool_calls" if calls else "stop")
        assert calls == SAID[: int(body["stop"] == "</tool")]
        assert streamed(caller, tools=TOOLS, **body) == message


def test_a_stream_is_the_whole_answer(caller: LocalServer) -> None:
    for body in ({"tools": TOOLS}, {"tools": TOOLS, "tool_choice": "none"}):
        assert streamed(caller, **body) == ask(caller, **body)


def test_a_call_that_the_model_begins_fits_its_tool(models: Path) -> None:
    """Where it begins with a control token. Text before it is the model's own."""
    marks = ("<tool_call>", "</tool_call>")
    pieces = ("Hm. {", marks[0], "nonsense", marks[1])
    with serve_model(speaker(models / "beginner", *pieces, control=marks)) as served:
        message = content, _, calls, reason = ask(served, tools=TOOLS[:1], max_tokens=200)
        assert streamed(served, tools=TOOLS[:1], max_tokens=200) == message
    assert (content, reason) == ("Hm. {", "tool_calls")
    ((name, arguments),) = calls
    assert name == "weather"
    jsonschema.validate(json.loads(arguments), CITY)


# -- enforced calls and formats ----------------------------------------------------------------


@settings(max_examples=10)
@given(
    st.sampled_from(["required", "weather", "time", "json_schema", "json_object"]),
    st.sampled_from([0.0, 1.0]),
    st.integers(0, 99),
    st.sampled_from([5, 300]),
)
def test_what_is_enforced_fits(
    writing: LocalServer, form: str, temperature: float, seed: int, room: int
) -> None:
    """And speculation does not change it, nor does streaming."""
    body: dict[str, Any] = {"temperature": temperature, "seed": seed, "max_tokens": room}
    if form == "json_schema":
        schema = {"name": "city", "schema": CITY, "strict": True}
        body["response_format"] = {"type": "json_schema", "json_schema": schema}
    elif form == "json_object":
        body["response_format"] = {"type": "json_object"}
    else:
        named = {"type": "function", "function": {"name": form}}
        body |= {"tools": TOOLS, "tool_choice": form if form == "required" else named}
    message = content, _, calls, reason = ask(writing, **body)
    assert streamed(writing, **body) == message
    if reason == "length":  # at most one call, and whole: the limit may fall right behind it
        assert len(calls) <= 1 and (not content or "response_format" in body)
        for name, arguments in calls:
            jsonschema.validate(json.loads(arguments), CITY if name == "weather" else {})
    elif "tools" in body:
        ((name, arguments),) = calls
        assert (content, reason) == ("", "tool_calls")
        assert form in ("required", name)
        value = json.loads(arguments)
        jsonschema.validate(value, CITY if name == "weather" else {"type": "object"})
    else:
        jsonschema.validate(json.loads(content), CITY if form == "json_schema" else {})
    request = chat_request(ChatRequest.model_validate({"messages": HELLO} | body))
    without = writing.engine.submit(request, speculation=False).result()
    with_it = writing.engine.submit(request).result()
    assert (without.text, without.reason) == (with_it.text, with_it.reason)
    if not calls and "tools" not in body:
        assert content == without.text


def test_some_enforced_answers_end(writing: LocalServer) -> None:
    """Or the test above would check nothing."""
    body = {"tools": TOOLS[:1], "tool_choice": "required", "max_tokens": 300}
    assert ask(writing, **body)[3] == "tool_calls"


# -- earlier calls -----------------------------------------------------------------------------


HISTORY: list[dict[str, Any]] = [
    {"role": "user", "content": "weather?"},
    {"role": "assistant", "content": None, "reasoning_content": "hm", "tool_calls": [
        {"id": "call_1", "function": {"name": "weather", "arguments": ARGUMENTS}}
    ]},
    {"role": "tool", "tool_call_id": "call_1", "content": [{"type": "text", "text": "sunny"}]},
]  # fmt: skip


def test_results_of_calls_reach_the_model(caller: LocalServer) -> None:
    request = chat_request(ChatRequest.model_validate({"messages": HISTORY, "tools": TOOLS}))
    call = {"id": "call_1", "name": "weather", "arguments": json.loads(ARGUMENTS)}
    calls = json.dumps([call])
    assert request.messages[1:] == (
        {"role": "assistant", "content": "", "reasoning_content": "hm", "tool_calls": calls},
        {"role": "tool", "content": "sunny", "tool_call_id": "call_1"},
    )
    assert ask(caller, messages=HISTORY, tools=TOOLS)[2] == SAID
    assert ask(caller, messages=HISTORY)[2] == []  # the tools are gone


@pytest.mark.parametrize("arguments", ['{"city": "Ro', "[1]", "Rome", "7", '{"a": <|end|>'])
@pytest.mark.parametrize("family", ["words", "template", "tags"])
def test_arguments_that_are_no_json_object_are_shown_as_they_are(
    models: Path, arguments: str, family: str
) -> None:
    """Whatever the template does with them. A control token's name in them is text."""
    folder = models / f"{family}-{abs(hash(arguments))}"
    tiny_model(folder)
    if family != "words":
        template = TEMPLATE if family == "template" else TAGS
        (folder / "chat_template.jinja").write_text(template, "utf-8")
    call = {"id": "c", "function": {"name": "weather", "arguments": arguments}}
    messages = [HISTORY[0], HISTORY[1] | {"tool_calls": [call]}, HISTORY[2]]
    request = chat_request(ChatRequest.model_validate({"messages": messages, "tools": TOOLS}))
    tokenizer = Tokenizer(folder)
    ids = tokenizer.turns(request.messages, tools=[Tool.of(text) for text in request.tools])
    text = "".join(tokenizer.decode(part) for _, part in ids)
    assert arguments in text or json.dumps(arguments)[1:-1] in text


NAMES = [
    "github/create issue", "github/create-issue", "a b", "a/b", "a_b", "get.one", "x" * 300,
    "\u00e9\u4eba",
]  # fmt: skip


def test_names_with_other_characters_are_mapped(models: Path) -> None:
    """The model knows each by a name of its own, and the client hears its own names."""
    tools = [tool(name) for name in NAMES]
    body = {"messages": HELLO, "tools": tools, "tool_choice": "required"}
    request = chat_request(ChatRequest.model_validate(body))
    known = [json.loads(text)["name"] for text in request.tools]
    assert len({*known}) == len(known) and all(map(NAME.fullmatch, known))
    assert [one for one in known if one in NAMES] == ["a_b", "get.one", NAMES[-1]]
    assert request.must_call == (*known,)
    call = {"id": "c", "function": {"name": "a/b", "arguments": "{}"}}
    result = {"role": "tool", "content": "x", "tool_call_id": "c", "name": "a/b"}
    history = [*HELLO, {"role": "assistant", "tool_calls": [call]}, result]
    request = chat_request(ChatRequest.model_validate(body | {"messages": history}))
    assert json.loads(request.messages[1]["tool_calls"])[0]["name"] == known[3]
    assert request.messages[2]["name"] == known[3]
    said = f'<tool_call>{{"name": "{known[3]}", "arguments": {{}}}}</tool_call>'
    with serve_model(speaker(models / "gateway", *re.findall("<?[^<]+", said))) as served:
        calls = [("a/b", "{}")]
        assert ask(served, tools=tools)[2] == streamed(served, tools=tools)[2] == calls


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("calls_first", [False, True])
def test_a_format_of_the_answers_together_with_tools(
    writing: LocalServer, temperature: float, calls_first: bool
) -> None:
    """Every answer is a call, where the model likes to begin one, or fits; a draft does not change
    it."""
    schema = {"type": "json_schema", "json_schema": {"name": "a", "schema": {"enum": [1, 22]}}}
    (begin,) = writing.engine.encode("<")
    for seed in range(3 if temperature else 1):
        body = {"tools": TOOLS[:1], "response_format": schema, "seed": seed, "max_tokens": 300}
        body |= {"temperature": temperature, "logit_bias": {begin: 100 if calls_first else -100}}
        message = content, _, calls, reason = ask(writing, **body)
        assert streamed(writing, **body) == message
        if calls_first:
            ((name, arguments),) = calls
            assert (name, content, reason) == ("weather", "", "tool_calls")
            jsonschema.validate(json.loads(arguments), CITY)
        else:
            assert reason == "stop" and json.loads(content) in (1, 22)
        body["logit_bias"] = {str(begin): body["logit_bias"][begin]}
        request = chat_request(ChatRequest.model_validate({"messages": HELLO} | body))
        texts = [writing.engine.submit(request, flag).result().text for flag in (False, True)]
        assert texts[0] == texts[1]


def test_a_required_call_is_one_whatever_the_format(writing: LocalServer) -> None:
    body = {"tools": TOOLS[:1], "tool_choice": "required", "max_tokens": 300}
    assert ask(writing, **body, response_format={"type": "json_object"}) == ask(writing, **body)


# -- bad input ---------------------------------------------------------------------------------

FISH = {"type": "object", "properties": {"a": {"type": "array", "items": {"type": "fish"}}}}
BAD: list[tuple[dict[str, Any], str]] = [
    ({"tools": [tool("a", FISH)], "tool_choice": "required"},
     "tools: a: the schema's properties.a.items cannot be enforced"),
    ({"tools": [tool("a", {"type": "string"})], "tool_choice": "required"},
     "tools: a: the schema is"),
    ({"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "x"}}},
     "tool_choice: no tool has this name"),
    ({"tool_choice": "required"}, "tool_choice: required, but there are no tools"),
    ({"tools": [{"type": "web_search"}]}, "tools.0.type"),
    ({"tools": [tool("")]}, "tools.0.function.name"),
    ({"tools": TOOLS, "tool_choice": "sometimes"}, "tool_choice"),
    ({"tools": [tool("a"), tool("a")]}, "tools: two are named a"),
    ({"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": FISH}}},
     "response_format: the schema's properties.a.items cannot be enforced"),
    ({"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": {
        "properties": {"x\n" * 999: {"type": "fish\x07" * 999}}}}}}, "the schema's properties.x"),
]  # fmt: skip


@pytest.mark.parametrize(("body", "said"), BAD, ids=[said for _, said in BAD])
def test_bad_tools_are_refused_in_one_line(
    caller: LocalServer, body: dict[str, Any], said: str
) -> None:
    for stream in (False, True):
        with caller.http() as http:
            answer = http.post(CHAT, json={"messages": HELLO, "stream": stream} | body)
        message = answer.json()["error"]["message"]
        assert answer.status_code == 400 and said in message
        assert message.isprintable() and len(message) < 400
    assert caller.open() == 0


def test_a_schema_that_cannot_be_enforced_is_any_object_where_no_call_is_required(
    caller: LocalServer,
) -> None:
    tools = [tool("weather", FISH), tool("time", {"type": "string"})]
    assert ask(caller, tools=tools)[2] == SAID


# -- reasoning ---------------------------------------------------------------------------------

THOUGHT = ("<think>", "Let me", " see", "</think>", "\n\n", *PIECES)


@pytest.mark.parametrize("opened", [False, True])
def test_reasoning_before_calls(models: Path, opened: bool) -> None:
    """The template itself may open the block."""
    folder = models / f"thinker-{opened}"
    control = ("<think>", "</think>")
    speaker(folder, *(THOUGHT[1:] if opened else THOUGHT), control=control)
    if opened:
        file = folder / "tokenizer.json"
        spec = json.loads(file.read_text("utf-8"))
        spec["added_tokens"].append(spec["added_tokens"][0] | {"id": 5, "content": "<think>"})
        file.write_text(json.dumps(spec), "utf-8")
        template = "{% for m in messages %}{{ m.role }}: {{ m.content }}{% endfor %}{# </think> #}"
        (folder / "chat_template.jinja").write_text(template + "<think> ", "utf-8")
    with serve_model(folder) as served:
        message = ask(served, tools=TOOLS)
        assert message == ("I look.", "Let me see", SAID, "tool_calls")
        assert streamed(served, tools=TOOLS) == message
        cut = ask(served, tools=TOOLS, max_tokens=2)
        assert cut[0] == "" and cut[1] and cut[3] == "length"
        chunks = served.client().chat.completions.create(
            model=folder.name, messages=HELLO, tools=TOOLS, stream=True
        )
        deltas: list[Any] = [one.choices[0].delta for one in chunks]
    thoughts = [getattr(one, "reasoning_content", None) for one in deltas]
    first_text = next(n for n, one in enumerate(deltas) if one.content)
    assert not any(thoughts[first_text:])


# -- prefixes ----------------------------------------------------------------------------------

TURNS = 20
# As that of Qwen 2.5, which most models of Hermes's format resemble.
TEMPLATE = (
    "{% for t in tools or [] %}{{ t | tojson }}{{ '\\n' }}{% endfor %}"
    "{% for m in messages %}{% if m.role == 'tool' %}"
    "{{ '<|start|>user\\n<tool_response>\\n' + m.content + '\\n</tool_response><|end|>\\n' }}"
    "{% else %}{{ '<|start|>' + m.role }}{% if m.content %}{{ '\\n' + m.content }}{% endif %}"
    "{% for c in m.tool_calls or [] %}"
    '{{ \'\\n<tool_call>\\n{"name": "\' + c.function.name + \'", "arguments": \' }}'
    "{{ c.function.arguments | tojson }}{{ '}\\n</tool_call>' }}{% endfor %}"
    "{{ '<|end|>\\n' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|start|>assistant\\n' }}{% endif %}"
)


# As that of Qwen3-Coder.
TAGS = (
    "{# <tool_call><function= and <parameter= #}"
    "{% for t in tools or [] %}{{ t | tojson }}{% endfor %}"
    "{% for m in messages %}{{ m.role }}: {{ m.content }}{% for c in m.tool_calls or [] %}"
    "<tool_call><function={{ c.function.name }}>{% for k, v in c.function.arguments | items %}"
    "<parameter={{ k }}>{{ v }}</parameter>{% endfor %}</function></tool_call>"
    "{% endfor %}{% endfor %}"
)


@pytest.mark.parametrize("choice", ["required", "auto"])
def test_a_turn_of_an_agent_reads_only_what_is_new(models: Path, choice: str) -> None:
    """A call that is enforced is written as the template writes it, so that not even the answer is
    read again. Text of the model's own is, where its tokens are not those of the text."""
    folder = models / f"agent-{choice}"
    model = tiny_model(models / f"written-{choice}", context=16384)
    renamed(model, folder, dict(zip("\u00c0\u00c1", ("<tool_call>", "</tool_call>"), strict=True)))
    (folder / "chat_template.jinja").write_text(TEMPLATE, "utf-8")
    read = {
        "path": {"enum": ["a.py", "b \u00e9.py"]},
        "lines": {"type": "array", "items": {"enum": [1, 20]}, "maxItems": 2},
        "all": {"type": "boolean"},
    }
    schema = {
        "type": "object",
        "properties": read,
        "required": [*read],
        "additionalProperties": False,
    }
    messages: list[Any] = [{"role": "user", "content": "Read all files."}]
    before = made = 0  # tokens of the last prompt, and of the last answer
    with serve_model(folder) as served, served.http() as http:
        for turn in range(TURNS):
            body = {"messages": messages, "tools": [tool("read", schema), *TOOLS[1:]], "seed": turn}
            body |= {"tool_choice": choice, "max_tokens": 200 if choice == "required" else 20}
            if choice == "required":
                body["tool_choice"] = {"type": "function", "function": {"name": "read"}}
            answer = http.post(CHAT, json=body).raise_for_status().json()
            usage, message = answer["usage"], answer["choices"][0]["message"]
            if turn and choice == "required":
                # The last token's state is not kept, nor is that of the end token.
                assert usage["prompt_tokens_details"]["cached_tokens"] >= before + made - 1
                assert message["tool_calls"]
            elif turn:
                assert usage["prompt_tokens_details"]["cached_tokens"] >= before - 1
            before, made = usage["prompt_tokens"], usage["completion_tokens"]
            messages.append({key: message[key] for key in ("role", "content", "tool_calls")})
            if message["tool_calls"]:
                (call,) = message["tool_calls"]
                result = {"role": "tool", "tool_call_id": call["id"], "content": f"{turn} \u00e9\n"}
                messages.append(result)
            else:
                messages.append({"role": "user", "content": f"And number {turn}?"})
