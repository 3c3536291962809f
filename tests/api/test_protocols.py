"""What all protocols of chats share: /v1/messages and /v1/responses answer as /v1/chat/completions
does, and each writes its answers, streams and errors in its own form."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine import Config, Engine
from tests.support.conversations import SCHEMA, Conversation, conversations
from tests.support.protocols import (
    AS_CHAT,
    AS_MESSAGES,
    AS_RESPONSES,
    CHAT,
    MESSAGES,
    PROTOCOLS,
    RESPONSES,
    Protocol,
    openai_error,
    without_random,
)
from tests.support.server import (
    ANSWER,
    HELLO,
    REASONING,
    THOUGHT_OUT,
    LocalServer,
    answers_pause,
    endless,
    http,
    occupied,
    serve_engine,
    serve_model,
    thinker,
    wait_until,
)
from ui.api import replies

every_protocol = pytest.mark.parametrize("protocol", PROTOCOLS, ids=str)
other_protocols = pytest.mark.parametrize("protocol", [AS_MESSAGES, AS_RESPONSES], ids=str)
COUNT = f"{MESSAGES}/count_tokens"
FEW = settings(max_examples=8, suppress_health_check=[HealthCheck.too_slow])
JSON = {"content-type": "application/json"}


@pytest.fixture(scope="module")
def thinking(models: Path) -> Iterator[LocalServer]:
    """A server whose model reasons REASONING before it answers THOUGHT_OUT."""
    with serve_model(thinker(models / "thinker")) as served:
        yield served


@pytest.fixture(scope="module")
def repeating(models: Path) -> Path:
    """A model that fills its context."""
    return endless(models / "endless")


# -- the law -----------------------------------------------------------------------------------


@other_protocols
@given(talk=conversations())
def test_a_conversation_is_the_same_request_as_in_a_chat(
    protocol: Protocol, talk: Conversation
) -> None:
    assert protocol.request(protocol.body(talk)) == AS_CHAT.request(AS_CHAT.body(talk))


@other_protocols
@pytest.mark.parametrize("calling", [False, True])
@FEW
@given(talk=conversations())
def test_answers_are_those_of_chat_completions(
    writing: LocalServer,
    reciting: LocalServer,
    protocol: Protocol,
    calling: bool,
    talk: Conversation,
) -> None:
    """Whole and streamed; `count_tokens` is exact."""
    body = protocol.body(talk)
    with (reciting if calling else writing).http() as http:
        chat = http.post(CHAT, json=AS_CHAT.body(talk)).raise_for_status().json()
        whole = http.post(protocol.path, json=body).raise_for_status().json()
        stream = http.post(protocol.path, json=body | protocol.streaming).raise_for_status()
        count = http.post(COUNT, json=AS_MESSAGES.body(talk)).raise_for_status().json()
    answer = AS_CHAT.read(chat)
    added = protocol.added(stream.content)
    assert protocol.read(whole) == protocol.read(added) == answer
    assert without_random(added) == without_random(whole)
    assert answer.tokens and count == {"input_tokens": answer.tokens[0]}


# -- reasoning, schemas, other fields ----------------------------------------------------------


@every_protocol
def test_reasoning_is_a_part_of_its_own(thinking: LocalServer, protocol: Protocol) -> None:
    for answer in (protocol.ask(thinking), protocol.stream(thinking)):
        assert (answer.text, answer.reasoning) == (THOUGHT_OUT, REASONING)


@pytest.mark.parametrize(
    ("protocol", "fields", "thinks"),
    [
        (AS_MESSAGES, {"thinking": {"type": "enabled", "budget_tokens": 1024}}, True),
        (AS_MESSAGES, {"thinking": {"type": "adaptive"}}, True),
        (AS_MESSAGES, {"thinking": {"type": "disabled"}}, False),
        (AS_RESPONSES, {"reasoning": {"effort": "none", "summary": "auto"}}, False),
        (AS_RESPONSES, {"reasoning": {"effort": "minimal"}}, False),
        (AS_RESPONSES, {"reasoning": {"effort": "low"}}, True),
        (AS_RESPONSES, {"reasoning": {"effort": None}}, True),
        (AS_CHAT, {}, True),
        (AS_CHAT, {"reasoning_effort": "none"}, False),
        (AS_CHAT, {"reasoning_effort": "minimal"}, False),
        (AS_CHAT, {"reasoning_effort": "high"}, True),
        (AS_CHAT, {"chat_template_kwargs": {"enable_thinking": False, "other": True}}, False),
        (AS_CHAT, {"chat_template_kwargs": {"thinking": False}}, False),
        (AS_CHAT, {"chat_template_kwargs": {"enable_thinking": True}}, True),
    ],
    ids=str,
)
def test_a_client_may_ask_for_no_reasoning(
    protocol: Protocol, fields: dict[str, Any], thinks: bool
) -> None:
    assert protocol.request(protocol.hello | fields).thinking is thinks


FORM = {"type": "json_schema", "schema": SCHEMA}
NAMED = {"name": "x", "strict": True}


@pytest.mark.parametrize(
    ("protocol", "fields"),
    [
        (AS_MESSAGES, {"output_config": {"effort": "low", "format": FORM}}),
        (AS_RESPONSES, {"text": {"format": FORM | NAMED, "verbosity": "low"}}),
    ],
    ids=str,
)
def test_an_answer_fits_a_schema(
    reciting: LocalServer, protocol: Protocol, fields: dict[str, Any]
) -> None:
    assert json.loads(protocol.ask(reciting, **fields).text) == {"path": "a.py"}


# Tools that only OpenAI's servers can run are left out.
IGNORED: dict[str, dict[str, Any]] = {
    CHAT: {
        "reasoning_effort": "low", "store": True, "metadata": {"a": "b"}, "tools": [], "n": 1,
        "presence_penalty": 0, "logit_bias": {}, "logprobs": False, "max_tokens": None,
        **dict.fromkeys(("stop", "seed", "temperature", "top_p", "stream", "user")),
    },
    MESSAGES: {
        "metadata": {"user_id": "somebody"}, "cache_control": {"type": "ephemeral"},
        "service_tier": "auto", "betas": ["x"], "context_management": {"edits": []},
        "container": None,
    },
    RESPONSES: {
        "store": False, "include": ["reasoning.encrypted_content"], "prompt_cache_key": "x",
        "client_metadata": {"a": "b"}, "service_tier": "auto", "truncation": "disabled",
        "previous_response_id": None,
        "tools": [{"type": "web_search", "external_web_access": False}],
    },
}  # fmt: skip


@every_protocol
def test_what_agents_send_next_to_it_changes_nothing(
    reciting: LocalServer, protocol: Protocol
) -> None:
    headers = {"anthropic-version": "2023-06-01", "anthropic-beta": "x", "x-api-key": "any"}
    body = protocol.hello | IGNORED[protocol.path] | {"new_field": [1]}
    with reciting.http(headers=headers) as http:
        answer = http.post(f"{protocol.path}?beta=true", json=body).raise_for_status().json()
    assert protocol.read(answer).text == ANSWER
    if protocol is AS_RESPONSES:
        assert answer["tools"] == [] and answer["store"] is False


@pytest.mark.parametrize(
    ("protocol", "event"),
    [
        (AS_CHAT, ": the answer is in progress"),
        (AS_MESSAGES, "event: ping"),
        (AS_RESPONSES, "event: response.in_progress"),
    ],
    ids=str,
)
def test_a_quiet_stream_says_that_it_is_in_progress(
    reciting: LocalServer, monkeypatch: pytest.MonkeyPatch, protocol: Protocol, event: str
) -> None:
    monkeypatch.setattr(replies, "QUIET_SECONDS", 0.001)
    body = protocol.hello | protocol.streaming
    with (
        occupied(reciting.engine) as release,
        reciting.http() as http,
        http.stream("POST", protocol.path, json=body) as stream,
    ):
        lines = stream.iter_lines()
        for _ in range(3):
            assert next(line for line in lines if line == event)
        release()
        ends = {"event: message_stop", "event: response.completed", "data: [DONE]"}
        assert ends & {*lines}


# -- errors ------------------------------------------------------------------------------------


def user(*blocks: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": [*blocks]}]}


TOOL: Any = {"name": "read", "description": "reads a file", "input_schema": SCHEMA}
FUNCTION: Any = {"type": "function", "name": "read", "parameters": SCHEMA, "strict": False}
USE = {"type": "tool_use", "id": "a", "name": "read", "input": {}}
PART = {"type": "text", "text": "x"}

# Protocol -> invalid fields, and how the error begins.
INVALID: list[tuple[Protocol, dict[str, Any], str]] = [
    (AS_CHAT, {"n": 0}, "n"),
    (AS_CHAT, {"n": "1"}, "n"),
    (AS_CHAT, {"messages": []}, "messages"),
    (AS_CHAT, {"messages": "hi"}, "messages"),
    (AS_CHAT, {"messages": [{"role": "critic", "content": "x"}]}, "messages.0.role"),
    (AS_CHAT, {"messages": [{"role": "user", "content": 5}]}, "messages.0.content"),
    (AS_CHAT, {"messages": [*HELLO, {"content": "x"}]}, "messages.1.role"),
    (AS_CHAT, {"messages": [{"role": "user", "content": "\ud800"}]}, "messages.0.content"),
    (AS_CHAT, user(PART, {"type": "image_url"}), "messages.0.content.1.type"),
    (AS_CHAT, {"stop": ["a"] * 65}, "stop"),
    (AS_CHAT, {"stop": 5}, "stop"),
    (AS_CHAT, {"temperature": "hot"}, "temperature"),
    (AS_CHAT, {"temperature": -1}, "temperature"),
    (AS_CHAT, {"temperature": 2.1}, "temperature"),
    (AS_CHAT, {"temperature": float("nan")}, "temperature"),
    (AS_CHAT, {"top_p": 1.1}, "top_p"),
    (AS_CHAT, {"top_k": -2}, "top_k"),
    (AS_CHAT, {"max_tokens": -2}, "max_tokens"),
    (AS_CHAT, {"max_completion_tokens": 1.5}, "max_completion_tokens"),
    (AS_CHAT, {"seed": 1.5}, "seed"),
    (AS_CHAT, {"stream": "yes"}, "stream"),
    (AS_CHAT, {"model": 5}, "model"),
    (AS_CHAT, {"prediction": "text"}, "prediction"),
    (AS_CHAT, {"prediction": {"type": "diff", "content": ""}}, "prediction.type"),
    (AS_CHAT, {"prediction": {"type": "content"}}, "prediction.content"),
    (AS_CHAT, {"tools": [{"type": "function"}]}, "tools.0.function"),
    (AS_CHAT, {"logprobs": 2}, "logprobs"),
    (AS_CHAT, {"presence_penalty": 2.5}, "presence_penalty"),
    (AS_CHAT, {"logit_bias": {"5": 101}}, "logit_bias"),
    (AS_CHAT, {"logit_bias": {"five": 1}}, "logit_bias"),
    (AS_CHAT, {"response_format": {"type": "xml"}}, "response_format"),
    (AS_CHAT, {"response_format": {"type": "json_schema"}}, "response_format.json_schema."),
    (AS_MESSAGES, {"messages": []}, "messages"),
    (AS_MESSAGES, {"messages": "hi"}, "messages"),
    (AS_MESSAGES, {"messages": [{"role": "secret", "content": "x"}]}, "messages.0"),
    (AS_MESSAGES, {"messages": [{"role": "user", "content": 5}]}, "messages.0.user.content"),
    (AS_MESSAGES, {"messages": [{"role": "user", "content": "\ud800"}]}, "messages.0.user.content"),
    (AS_MESSAGES, {"messages": [{"role": "assistant", "content": "x"}]}, "messages: to go on"),
    (AS_MESSAGES, user({"type": "image", "source": {}}), "messages.0.user.content.0: images"),
    (AS_MESSAGES, user(USE), "messages.0.user.content.0"),
    (AS_MESSAGES, user({"type": "text"}), "messages.0.user.content.0.text.text: missing"),
    (AS_MESSAGES, user({"type": "tool_result"}), "messages.0.user.content.0.tool_result.tool_use"),
    (AS_MESSAGES, user({}), "messages.0.user.content.0"),
    (AS_MESSAGES, {"system": 5}, "system"),
    (AS_MESSAGES, {"system": [{"type": "image"}]}, "system.0"),
    (AS_MESSAGES, {"max_tokens": -1}, "max_tokens"),
    (AS_MESSAGES, {"temperature": 2.1}, "temperature"),
    (AS_MESSAGES, {"top_p": "x"}, "top_p"),
    (AS_MESSAGES, {"stop_sequences": ["a"] * 65}, "stop_sequences"),
    (AS_MESSAGES, {"stream": "yes"}, "stream"),
    (AS_MESSAGES, {"tools": [{"name": "", "input_schema": {}}]}, "tools.0.name"),
    (AS_MESSAGES, {"tools": [{"name": "a"}]}, "tools.0.input_schema: missing"),
    (AS_MESSAGES, {"tools": [{"type": "web_search", "name": "x"}]}, "tools.0: only tools"),
    (AS_MESSAGES, {"tool_choice": {"type": "sometimes"}}, "tool_choice"),
    (AS_MESSAGES, {"tools": [TOOL], "tool_choice": {"type": "tool", "name": "x"}}, "tool_choice"),
    (AS_MESSAGES, {"output_config": {"format": {"type": "json_schema"}}}, "output_config.format"),
    (AS_RESPONSES, {"input": []}, "input"),
    (AS_RESPONSES, {"input": 5}, "input"),
    (AS_RESPONSES, {"input": [{"type": "reasoning"}]}, "input: there is no message"),
    (AS_RESPONSES, {"input": [{"role": "secret", "content": "x"}]}, "input.0.message.role"),
    (AS_RESPONSES, {"input": [{"role": "user"}]}, "input.0.message.content: missing"),
    (AS_RESPONSES, {"input": [{"role": "user", "content": [{"type": "input_image"}]}]},
     "input.0.message.content.0: only text"),
    (AS_RESPONSES, {"input": [{"type": "computer_call"}]}, "input.0: only messages"),
    (AS_RESPONSES, {"input": [{"type": "function_call_output", "call_id": "a"}]},
     "input.0.function_call_output"),
    (AS_RESPONSES, {"previous_response_id": "resp_1"}, "previous_response_id: responses are not"),
    (AS_RESPONSES, {"conversation": {"id": "x"}}, "conversation: responses are not stored"),
    (AS_RESPONSES, {"prompt": {"id": "x"}}, "prompt: responses are not stored"),
    (AS_RESPONSES, {"background": True}, "background"),
    (AS_RESPONSES, {"top_logprobs": 2}, "top_logprobs"),
    (AS_RESPONSES, {"max_output_tokens": -1}, "max_output_tokens"),
    (AS_RESPONSES, {"temperature": 2.1}, "temperature"),
    (AS_RESPONSES, {"stream": "yes"}, "stream"),
    (AS_RESPONSES, {"tools": [{"type": "function", "name": ""}]}, "tools.0.function.name"),
    (AS_RESPONSES, {"tools": [{"name": "a"}]}, "tools.0.other.type"),
    (AS_RESPONSES, {"tool_choice": "sometimes"}, "tool_choice"),
    (AS_RESPONSES, {"tools": [FUNCTION], "tool_choice": {"type": "function", "name": "x"}},
     "tool_choice"),
    (AS_RESPONSES, {"text": {"format": {"type": "secret"}}}, "text.format"),
    (AS_RESPONSES, {"text": {"format": {"type": "json_schema"}}}, "text.format"),
    (AS_RESPONSES, {"reasoning": {"effort": 5}}, "reasoning.effort"),
]  # fmt: skip


@every_protocol
def test_an_invalid_field_is_named(reciting: LocalServer, protocol: Protocol) -> None:
    cases = [(fields, start) for other, fields, start in INVALID if other is protocol]
    with reciting.http(headers=JSON) as http:
        for fields, start in cases:
            body = json.dumps(protocol.hello | fields)  # may contain NaN
            error = protocol.error(http.post(protocol.path, content=body), 400)
            assert error["message"].startswith(start), error["message"]
            assert error["type"] == "invalid_request_error" and "secret" not in error["message"]
            if protocol is AS_CHAT:
                assert error["param"].startswith(start)
            if protocol is AS_MESSAGES:
                assert protocol.error(http.post(COUNT, content=body), 400) == error


# Fields whose value may be anything.
FIELDS = {
    CHAT: ["seed", "stop", "user", "n", "stream", "tools", "new_field", "model"],
    MESSAGES: ["system", "stop_sequences", "tools", "tool_choice", "messages", "stream"],
    RESPONSES: ["input", "instructions", "tools", "tool_choice", "text", "reasoning"],
}
KEYS = st.sampled_from(["type", "role", "content", "name", "text"]) | st.text(max_size=5)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(KEYS, inner, max_size=2),
    max_leaves=4,
)


@every_protocol
@settings(max_examples=40)
@given(data=st.data())
def test_any_body_gets_an_answer_or_an_error(
    reciting: LocalServer, protocol: Protocol, data: st.DataObject
) -> None:
    names = st.sampled_from(FIELDS[protocol.path])
    fields = data.draw(st.dictionaries(names, VALUES, max_size=3))
    body = json.dumps(protocol.hello | {protocol.limit: 1} | fields)
    with reciting.http(headers=JSON) as http:
        answer = http.post(protocol.path, content=body)
    if answer.status_code != 200:
        protocol.error(answer, 404 if answer.status_code == 404 else 400)


BODIES = [
    b"",
    b"{",
    b"[]",
    b"null",
    b'"text"',
    b"\xff\xfe",
    b'{"prompt": "\xff"}',
    b"[" * 9000,  # deeper than the recursion limit
    b'{"seed": ' + b"9" * 6000 + b"}",  # more digits than int() accepts
]


ROUTES = [(one.path, one.error) for one in PROTOCOLS]
ROUTES += [(path, openai_error) for path in ("/v1/completions", "/predict")]


@pytest.mark.parametrize(("path", "error_of"), ROUTES)
def test_a_body_that_is_not_an_object_is_refused(
    reciting: LocalServer, path: str, error_of: Any
) -> None:
    with reciting.http(headers=JSON) as http:
        for body in BODIES:
            error_of(http.post(path, content=body), 400)


@every_protocol
def test_a_model_that_is_not_served_is_not_found(reciting: LocalServer, protocol: Protocol) -> None:
    with reciting.http() as http:
        answer = http.post(protocol.path, json=protocol.hello | {"model": "gpt-5"})
    assert "reciter" in protocol.error(answer, 404)["message"]


def test_a_full_queue_gives_429(reciting: LocalServer) -> None:
    with serve_engine(reciting.engine, queue_size=1) as busy, occupied(busy.engine):
        body = AS_CHAT.hello | AS_CHAT.streaming
        with busy.http() as client, client.stream("POST", CHAT, json=body):
            for protocol in PROTOCOLS:
                paths = [MESSAGES, COUNT] if protocol is AS_MESSAGES else [protocol.path]
                for path in paths:
                    with http(busy.url) as fresh:
                        answer = fresh.post(path, json=protocol.hello)
                    error = protocol.error(answer, 429)
                    assert error.get("code", "rate_limit_exceeded") == "rate_limit_exceeded"
                    assert answer.headers["retry-after"] == "1"
        wait_until(lambda: busy.open() == 0)


# Protocol -> the first line of a stream, and the last ones where it is interrupted.
INTERRUPTED = {
    CHAT: ("data: ", ["data: "]),
    MESSAGES: ("event: message_start", ["event: error", "data: "]),
    RESPONSES: ("event: response.created", ["event: response.failed", "data: "]),
}


@every_protocol
def test_a_stream_that_is_interrupted_ends_with_an_error(
    repeating: Path, protocol: Protocol
) -> None:
    engine = Engine(Config(model=str(repeating), library=False))
    first, ends = INTERRUPTED[protocol.path]
    with serve_engine(engine) as served, answers_pause(engine), served.http() as http:
        body = protocol.hello | {"stream": True, protocol.limit: 30_000}
        with http.stream("POST", protocol.path, json=body) as stream:
            lines = stream.iter_lines()
            assert next(lines).startswith(first)
            engine.close()
            last = [line for line in lines if line][-len(ends) :]
        assert all(line.startswith(end) for line, end in zip(last, ends, strict=True))
        event = json.loads(last[-1].removeprefix("data: "))  # not [DONE]
        if protocol is AS_RESPONSES:
            assert event["response"]["status"] == "failed"
            event = event["response"]
        assert event["error"]["message"]
        if protocol is not AS_RESPONSES:
            kind = "server_error" if protocol is AS_CHAT else "overloaded_error"
            assert event["error"]["type"] == kind
        protocol.error(http.post(protocol.path, json=protocol.hello), 503)
