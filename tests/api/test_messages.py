"""/v1/messages, Anthropic's protocol: its answers are those of /v1/chat/completions."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anthropic
import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine import Config, Engine
from tests.conftest import tiny_model
from tests.support.conversations import (
    SCHEMA,
    TEXTS,
    Conversation,
    chat_body,
    conversations,
    messages_body,
    named_events,
)
from tests.support.server import (
    ANSWER,
    HELLO,
    REASONING,
    THOUGHT_OUT,
    TIMEOUT_S,
    LocalServer,
    answers_pause,
    endless,
    http,
    occupied,
    reciter,
    serve_engine,
    serve_model,
    thinker,
    wait_until,
)
from ui.api import chat_parts
from ui.api.anthropic_messages.requests import chat_of
from ui.api.anthropic_messages.schemas import MessagesRequest
from ui.api.requests import chat_request
from ui.api.schemas import ChatRequest
from ui.api.security import AccessRules

MESSAGES, COUNT, CHAT = "/v1/messages", "/v1/messages/count_tokens", "/v1/chat/completions"
MAX_BODY_BYTES = 20_000
TOOL: Any = {"name": "read", "description": "reads a file", "input_schema": SCHEMA}
FEW = settings(max_examples=8, suppress_health_check=[HealthCheck.too_slow])


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder for models, with a cache that only these tests use."""
    patch = pytest.MonkeyPatch()
    patch.setenv("DRAFTLINE_HOME", str(tmp_path_factory.mktemp("home")))
    yield tmp_path_factory.mktemp("served")
    patch.undo()


@pytest.fixture(scope="module")
def reciting(models: Path) -> Iterator[LocalServer]:
    """A server whose model answers ANSWER, or calls a tool if it must. It accepts only small
    bodies."""
    rules = AccessRules(max_body=MAX_BODY_BYTES)
    with serve_model(reciter(models / "reciter"), rules=rules, aliases=["claude-local"]) as served:
        yield served


@pytest.fixture(scope="module")
def writing(models: Path) -> Iterator[LocalServer]:
    """A server whose answers depend on the whole prompt."""
    with serve_model(tiny_model(models / "writer", context=4096)) as served:
        yield served


def client(served: LocalServer) -> anthropic.Anthropic:
    """Anthropic's client, without retries."""
    return anthropic.Anthropic(
        base_url=served.url,
        api_key="none",
        max_retries=0,
        timeout=TIMEOUT_S,
        http_client=anthropic.DefaultHttpxClient(trust_env=False, verify=False),
    )


# -- the law -----------------------------------------------------------------------------------


@given(conversations())
def test_a_conversation_is_the_same_request_as_in_a_chat(talk: Conversation) -> None:
    here = chat_request(chat_of(MessagesRequest.model_validate(messages_body(talk))))
    assert here == chat_request(ChatRequest.model_validate(chat_body(talk)))


@pytest.mark.parametrize("calling", [False, True])
@FEW
@given(talk=conversations())
def test_answers_are_those_of_chat_completions(
    writing: LocalServer, reciting: LocalServer, calling: bool, talk: Conversation
) -> None:
    """Whole and streamed; `count_tokens` is exact."""
    body = messages_body(talk)
    with (reciting if calling else writing).http() as http:
        chat = http.post(CHAT, json=chat_body(talk)).raise_for_status().json()
        whole = http.post(MESSAGES, json=body).raise_for_status().json()
        stream = http.post(MESSAGES, json=body | {"stream": True}).raise_for_status()
        count = http.post(COUNT, json=body).raise_for_status().json()
    (choice,) = chat["choices"]
    assert text_of(whole) == (choice["message"]["content"] or "")
    calls = [
        (one["function"]["name"], json.loads(one["function"]["arguments"]))
        for one in choice["message"]["tool_calls"] or ()
    ]
    assert calls_of(whole) == calls
    reasons = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}
    assert whole["stop_reason"] == reasons[choice["finish_reason"]]
    assert stream.headers["content-type"].startswith("text/event-stream")
    added_up = added(list(named_events(stream.content)))
    assert without_ids(added_up) == without_ids(whole)
    tokens = [prompt_tokens(whole), prompt_tokens(added_up), count["input_tokens"]]
    assert tokens == [chat["usage"]["prompt_tokens"]] * 3
    assert whole["usage"]["output_tokens"] == chat["usage"]["completion_tokens"]


def text_of(message: dict[str, Any]) -> str:
    return "".join(one["text"] for one in message["content"] if one["type"] == "text")


def calls_of(message: dict[str, Any]) -> list[tuple[str, Any]]:
    return [(one["name"], one["input"]) for one in message["content"] if one["type"] == "tool_use"]


def prompt_tokens(message: dict[str, Any]) -> int:
    usage = message["usage"]
    return int(usage["input_tokens"] + usage["cache_read_input_tokens"])


def without_ids(message: dict[str, Any]) -> dict[str, Any]:
    """What two answers to a request have in common."""
    content = [{key: one[key] for key in one if key != "id"} for one in message["content"]]
    return {key: message[key] for key in message if key not in ("id", "usage")} | {
        "content": content
    }


def added(events: list[dict[str, Any]]) -> dict[str, Any]:
    """The message that events add up to; checks their order."""
    events = [event for event in events if event["type"] != "ping"]
    start, *inner, delta, stop = events
    message: dict[str, Any] = start["message"]
    assert (start["type"], delta["type"], stop) == (
        "message_start",
        "message_delta",
        {"type": "message_stop"},
    )
    assert message["content"] == [] and message["stop_reason"] is None
    is_open = False
    for event in inner:
        kind = event["type"].removeprefix("content_block_")
        if kind == "start":
            assert not is_open and event["index"] == len(message["content"])
            message["content"].append(event["content_block"] | {"json": ""})
        assert event["index"] == len(message["content"]) - 1 and (is_open or kind == "start")
        is_open = kind != "stop"
        block = message["content"][-1]
        if kind == "delta":
            for key, value in event["delta"].items():
                if key != "type":
                    block[key.replace("partial_", "")] += value
    assert not is_open
    for block in message["content"]:
        if arguments := block.pop("json"):
            block["input"] = json.loads(arguments)
    return message | delta["delta"] | {"usage": delta["usage"]}


# -- blocks ------------------------------------------------------------------------------------


def cut(draw: st.DrawFn, text: str) -> Any:
    """A text as it is, or cut into blocks."""
    if draw(st.booleans()):
        return text
    places = sorted(draw(st.lists(st.integers(0, len(text)), max_size=3)))
    parts = [text[a:b] for a, b in zip([0, *places], [*places, len(text)], strict=True)]
    cached = {"cache_control": {"type": "ephemeral"}} if draw(st.booleans()) else {}
    return [{"type": "text", "text": part} | cached for part in parts]


@given(st.data(), conversations())
def test_any_split_into_blocks_gives_the_same_prompt(
    data: st.DataObject, talk: Conversation
) -> None:
    """Also with reasoning of earlier turns between them."""

    @st.composite
    def split(draw: st.DrawFn) -> dict[str, Any]:
        body = json.loads(json.dumps(messages_body(talk)))
        body["system"] = cut(draw, body["system"])
        for message in body["messages"]:
            if isinstance(message["content"], str):
                message["content"] = cut(draw, message["content"])
            elif message["role"] == "assistant":
                text, *uses = message["content"]
                blocks = cut(draw, text["text"])
                blocks = [text] if isinstance(blocks, str) else blocks
                thought = {"type": "thinking", "thinking": "hm", "signature": "x"}
                message["content"] = [thought, *blocks, *uses]
            else:
                for result in message["content"]:
                    result["content"] = cut(draw, result["content"])
        return body

    body = data.draw(split())
    whole = MessagesRequest.model_validate(messages_body(talk))
    assert chat_of(MessagesRequest.model_validate(body)) == chat_of(whole)


@given(TEXTS.filter(bool), TEXTS)
def test_results_come_before_the_text_beside_them(text: str, result: str) -> None:
    blocks = [
        {"type": "text", "text": text},
        {"type": "tool_result", "tool_use_id": "a", "content": result, "is_error": True},
    ]
    expected = [("tool", result), ("user", text)]
    for content in (blocks, blocks[::-1]):
        body = {"messages": [{"role": "user", "content": content}]}
        messages = chat_of(MessagesRequest.model_validate(body)).messages
        assert [(one.role, one.content) for one in messages] == expected


# -- Anthropic's client ------------------------------------------------------------------------


def test_the_client_reads_answers_and_streams(reciting: LocalServer) -> None:
    create = client(reciting).messages
    asked: Any = {"model": "claude-local", "messages": HELLO, "max_tokens": 99}
    message = create.create(**asked)
    assert (message.type, message.role, message.model) == ("message", "assistant", "claude-local")
    (block,) = message.content
    assert block.type == "text" and block.text == ANSWER
    assert (message.stop_reason, message.stop_sequence) == ("end_turn", None)
    assert message.usage.output_tokens == len(ANSWER)
    with create.stream(**asked) as stream:
        assert "".join(stream.text_stream) == ANSWER
        final = stream.get_final_message()
    assert final.content[0].to_dict()["text"] == ANSWER and final.stop_reason == "end_turn"
    assert final.usage.output_tokens == len(ANSWER)
    assert final.usage.cache_read_input_tokens == len("user: hi\n\nassistant: ") - 1
    count = create.count_tokens(model="claude-local", messages=HELLO)
    assert count.input_tokens == len("user: hi\n\nassistant: ")  # one token per character


@pytest.mark.parametrize("choice", [{"type": "any"}, {"type": "tool", "name": "read"}])
@pytest.mark.parametrize("streamed", [True, False])
def test_the_client_calls_tools(reciting: LocalServer, choice: Any, streamed: bool) -> None:
    create = client(reciting).messages
    asked: Any = {"model": "reciter", "messages": HELLO, "max_tokens": 200}
    asked |= {"tools": [TOOL], "tool_choice": choice}
    if streamed:
        with create.stream(**asked) as stream:
            message = stream.get_final_message()
    else:
        message = create.create(**asked)
    (block,) = message.content
    assert block.type == "tool_use" and (block.name, block.input) == ("read", {"path": "a.py"})
    assert message.stop_reason == "tool_use" and block.id.startswith("toolu_")
    result = {"type": "tool_result", "tool_use_id": block.id, "content": "x = 1"}
    more = [message.to_param(), {"role": "user", "content": [result]}]
    answer = create.create(**asked | {"messages": [*HELLO, *more], "tool_choice": {"type": "none"}})
    assert all(one.type == "text" for one in answer.content)


@pytest.mark.parametrize("streamed", [True, False])
def test_reasoning_is_a_block_of_its_own(models: Path, streamed: bool) -> None:
    folder = models / f"streamed-{streamed}"
    folder.mkdir()
    asked: Any = {"model": "thinker", "messages": HELLO, "max_tokens": 99}
    with serve_model(thinker(folder / "thinker")) as served:
        create = client(served).messages
        if streamed:
            with create.stream(**asked) as stream:
                message = stream.get_final_message()
        else:
            message = create.create(**asked)
    thinking, text = message.content
    assert thinking.type == "thinking" and thinking.thinking == REASONING
    assert text.type == "text" and text.text == THOUGHT_OUT


def test_thinking_can_be_disabled() -> None:
    for kind, thinks in (("enabled", True), ("adaptive", True), ("disabled", False)):
        body = {"messages": HELLO, "thinking": {"type": kind, "budget_tokens": 1024}}
        assert chat_request(chat_of(MessagesRequest.model_validate(body))).thinking == thinks


# -- options -----------------------------------------------------------------------------------


def test_reasons_to_stop(reciting: LocalServer) -> None:
    def stopped(**options: Any) -> tuple[str, Any, Any]:
        body = {"messages": HELLO} | options
        with reciting.http() as http:
            message = http.post(MESSAGES, json=body).raise_for_status().json()
            stream = http.post(MESSAGES, json=body | {"stream": True})
        assert without_ids(added(list(named_events(stream.content)))) == without_ids(message)
        return text_of(message), message["stop_reason"], message["stop_sequence"]

    assert stopped() == (ANSWER, "end_turn", None)
    assert stopped(max_tokens=5) == (ANSWER[:5], "max_tokens", None)
    assert stopped(stop_sequences=["zz", "m"]) == (ANSWER[:12], "stop_sequence", "m")
    assert stopped(max_tokens=0) == ("", "max_tokens", None)


def test_an_answer_fits_a_schema(reciting: LocalServer) -> None:
    form = {"type": "json_schema", "schema": SCHEMA}
    body = {"messages": HELLO, "output_config": {"effort": "low", "format": form}}
    with reciting.http() as http:
        message = http.post(MESSAGES, json=body).raise_for_status().json()
    assert json.loads(text_of(message)) == {"path": "a.py"}


def test_what_agents_send_beside_it_changes_nothing(reciting: LocalServer) -> None:
    extra = {
        "metadata": {"user_id": "somebody"},
        "cache_control": {"type": "ephemeral"},
        "service_tier": "auto",
        "betas": ["x"],
        "context_management": {"edits": []},
        "container": None,
        "new_field": [1],
    }
    headers = {"anthropic-version": "2023-06-01", "anthropic-beta": "x", "x-api-key": "any"}
    with reciting.http(headers=headers) as http:
        answer = http.post(f"{MESSAGES}?beta=true", json={"messages": HELLO} | extra)
    assert text_of(answer.json()) == ANSWER


def test_a_quiet_stream_pings(reciting: LocalServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat_parts, "QUIET_SECONDS", 0.001)
    wanted: Any = {"messages": HELLO, "stream": True}
    with (
        occupied(reciting.engine) as release,
        reciting.http() as http,
        http.stream("POST", MESSAGES, json=wanted) as stream,
    ):
        lines = stream.iter_lines()
        assert next(line for line in lines if line.startswith("event: ping"))
        release()
        assert "event: message_stop" in list(lines)


# -- errors ------------------------------------------------------------------------------------


def error_of(answer: httpx.Response, status: int) -> dict[str, Any]:
    """The error in a response; checks its status and that it has Anthropic's form."""
    assert answer.status_code == status, answer.text
    body = answer.json()
    assert set(body) == {"type", "error"} and body["type"] == "error"
    error: dict[str, Any] = body["error"]
    assert set(error) == {"type", "message"} and error["type"].endswith(("_error", "_too_large"))
    message = error["message"]
    assert ": " in message and "\n" not in message and len(message) < 300, message
    return error


def user(*blocks: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": [*blocks]}]}


USE = {"type": "tool_use", "id": "a", "name": "read", "input": {}}
INVALID: list[tuple[dict[str, Any], str]] = [
    ({"messages": []}, "messages"),
    ({"messages": "hi"}, "messages"),
    ({"messages": [{"role": "secret", "content": "x"}]}, "messages.0"),
    ({"messages": [{"role": "user", "content": 5}]}, "messages.0.user.content"),
    ({"messages": [{"role": "user", "content": "\ud800"}]}, "messages.0.user.content"),
    ({"messages": [*HELLO, {"role": "assistant", "content": "x"}]}, "messages"),
    (user({"type": "image", "source": {}}), "messages.0.user.content.0: images"),
    (user({"type": "document", "source": {}}), "messages.0.user.content.0: images"),
    (user(USE), "messages.0.user.content.0"),
    (user({"type": "text"}), "messages.0.user.content.0.text.text: missing"),
    (user({"type": "tool_result"}), "messages.0.user.content.0.tool_result.tool_use_id"),
    (user({}), "messages.0.user.content.0"),
    ({"system": 5}, "system"),
    ({"system": [{"type": "image"}]}, "system.0"),
    ({"max_tokens": -1}, "max_tokens"),
    ({"temperature": 2.1}, "temperature"),
    ({"top_p": "x"}, "top_p"),
    ({"stop_sequences": list("abcde")}, "stop_sequences"),
    ({"stream": "yes"}, "stream"),
    ({"tools": [{"name": "a b", "input_schema": {}}]}, "tools.0.name"),
    ({"tools": [{"name": "a"}]}, "tools.0.input_schema: missing"),
    ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "tools.0: only tools"),
    ({"tool_choice": {"type": "sometimes"}}, "tool_choice"),
    ({"tools": [TOOL], "tool_choice": {"type": "tool", "name": "x"}}, "tool_choice"),
    ({"output_config": {"format": {"type": "json_schema"}}}, "output_config.format.schema"),
]


@pytest.mark.parametrize(("fields", "start"), INVALID)
def test_an_invalid_field_is_named(
    reciting: LocalServer, fields: dict[str, Any], start: str
) -> None:
    body = json.dumps({"messages": HELLO} | fields)
    headers = {"content-type": "application/json"}
    with reciting.http() as http:
        error = error_of(http.post(MESSAGES, content=body, headers=headers), 400)
        assert error_of(http.post(COUNT, content=body, headers=headers), 400) == error
    assert error["message"].startswith(start) and error["type"] == "invalid_request_error"
    assert "secret" not in error["message"]


@settings(max_examples=40)
@given(
    st.dictionaries(
        st.sampled_from(["system", "stop_sequences", "tools", "tool_choice", "messages", "stream"]),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.text(),
            lambda inner: (
                st.lists(inner, max_size=2)
                | st.dictionaries(
                    st.sampled_from(["type", "role", "content", "name", "text"]), inner, max_size=2
                )
            ),
            max_leaves=4,
        ),
        max_size=3,
    )
)
def test_any_body_gets_an_answer_or_an_error(reciting: LocalServer, fields: dict[str, Any]) -> None:
    body = {"messages": HELLO, "max_tokens": 1} | fields
    with reciting.http() as http:
        answer = http.post(
            MESSAGES, content=json.dumps(body), headers={"content-type": "application/json"}
        )
    if answer.status_code != 200:
        error_of(answer, 400)


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"\xff", b"[" * 9000])
def test_a_body_that_is_not_an_object_is_refused(reciting: LocalServer, body: bytes) -> None:
    with reciting.http() as http:
        answer = http.post(MESSAGES, content=body, headers={"content-type": "application/json"})
    error_of(answer, 400)


def test_deep_inputs_are_answered_or_refused(reciting: LocalServer) -> None:
    with reciting.http() as http:
        for depth in (100, 500, 900, 950, 990, 1500):
            value = '{"a":' * depth + "1" + "}" * depth
            use = f'{{"type":"tool_use","id":"a","name":"read","input":{value}}}'
            result = '{"type":"tool_result","tool_use_id":"a"}'
            turns = (
                f'{{"role":"assistant","content":[{use}]}},{{"role":"user","content":[{result}]}}'
            )
            headers = {"content-type": "application/json"}
            answer = http.post(MESSAGES, content=f'{{"messages":[{turns}]}}', headers=headers)
            if answer.status_code != 200:
                error_of(answer, 400)


def test_the_client_s_errors(reciting: LocalServer) -> None:
    create = client(reciting).messages.create
    with pytest.raises(anthropic.NotFoundError, match="reciter"):
        create(model="claude-5", messages=HELLO, max_tokens=1)
    long: Any = [{"role": "user", "content": "x" * 5000}]
    with pytest.raises(anthropic.BadRequestError, match=r"prompt is too long: .* context is 2048"):
        create(model="reciter", messages=long, max_tokens=1)
    with pytest.raises(anthropic.BadRequestError, match="prompt is too long"):
        client(reciting).messages.count_tokens(model="reciter", messages=long)


def test_every_error_below_the_path_has_this_form(reciting: LocalServer) -> None:
    with reciting.http() as http:
        error_of(http.get(MESSAGES), 405)
        error_of(http.post(f"{MESSAGES}/batches", json={}), 404)
        error_of(http.post(MESSAGES, json={"messages": "x" * MAX_BODY_BYTES}), 413)
        error_of(http.post(MESSAGES, json={}, headers={"host": "evil.com"}), 400)
        error_of(http.post(COUNT, json={}, headers={"origin": "http://evil.com"}), 403)
        assert "param" in http.get(f"{MESSAGES}x").json()["error"]


def test_a_full_queue_gives_429(reciting: LocalServer) -> None:
    with serve_engine(reciting.engine, queue_size=1) as busy, occupied(busy.engine):
        with (
            busy.http() as http,
            http.stream("POST", MESSAGES, json={"messages": HELLO, "stream": True}),
        ):
            for path in (MESSAGES, COUNT):
                answer = http_of(busy, path)
                assert error_of(answer, 429)["type"] == "rate_limit_error"
                assert answer.headers["retry-after"] == "1"
        wait_until(lambda: busy.open() == 0)


def http_of(served: LocalServer, path: str) -> httpx.Response:
    with http(served.url) as fresh:
        return fresh.post(path, json={"messages": HELLO})


def test_a_stream_that_is_interrupted_ends_with_an_error(models: Path) -> None:
    engine = Engine(Config(model=str(endless(models / "endless")), library=False))
    with serve_engine(engine) as served, answers_pause(engine), served.http() as http:
        body = {"messages": HELLO, "stream": True, "max_tokens": 30_000}
        with http.stream("POST", MESSAGES, json=body) as stream:
            lines = stream.iter_lines()
            assert next(lines) == "event: message_start"
            engine.close()
            *_, name, last = (line for line in lines if line)
        assert name == "event: error"
        error = json.loads(last.removeprefix("data: "))
        assert error["type"] == "error" and error["error"]["type"] == "overloaded_error"
        error_of(http.post(MESSAGES, json={"messages": HELLO}), 503)
