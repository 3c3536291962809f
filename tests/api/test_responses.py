"""/v1/responses, the stateless part of OpenAI's protocol: its answers are those of
/v1/chat/completions."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine import Config, Engine
from tests.conftest import tiny_model
from tests.support.conversations import (
    SCHEMA,
    Conversation,
    chat_body,
    conversations,
    named_events,
    responses_body,
)
from tests.support.server import (
    ANSWER,
    HELLO,
    REASONING,
    THOUGHT_OUT,
    LocalServer,
    answers_pause,
    endless,
    occupied,
    reciter,
    serve_engine,
    serve_model,
    thinker,
    wait_until,
)
from ui.api import chat_parts
from ui.api.openai_responses.requests import chat_of
from ui.api.openai_responses.schemas import ResponsesRequest
from ui.api.requests import chat_request
from ui.api.schemas import ChatRequest

RESPONSES, CHAT = "/v1/responses", "/v1/chat/completions"
TOOL: Any = {"type": "function", "name": "read", "parameters": SCHEMA, "strict": False}
FEW = settings(max_examples=8, suppress_health_check=[HealthCheck.too_slow])
ENDS = {"response.completed", "response.incomplete", "response.failed"}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder for models, with a cache that only these tests use."""
    patch = pytest.MonkeyPatch()
    patch.setenv("DRAFTLINE_HOME", str(tmp_path_factory.mktemp("home")))
    yield tmp_path_factory.mktemp("served")
    patch.undo()


@pytest.fixture(scope="module")
def reciting(models: Path) -> Iterator[LocalServer]:
    """A server whose model answers ANSWER, or calls a tool if it must."""
    with serve_model(reciter(models / "reciter"), aliases=["gpt-local"]) as served:
        yield served


@pytest.fixture(scope="module")
def writing(models: Path) -> Iterator[LocalServer]:
    """A server whose answers depend on the whole prompt."""
    with serve_model(tiny_model(models / "writer", context=4096)) as served:
        yield served


# -- the law -----------------------------------------------------------------------------------


@given(conversations())
def test_a_conversation_is_the_same_request_as_in_a_chat(talk: Conversation) -> None:
    here = chat_request(chat_of(ResponsesRequest.model_validate(responses_body(talk))))
    assert here == chat_request(ChatRequest.model_validate(chat_body(talk)))


@pytest.mark.parametrize("calling", [False, True])
@FEW
@given(talk=conversations())
def test_answers_are_those_of_chat_completions(
    writing: LocalServer, reciting: LocalServer, calling: bool, talk: Conversation
) -> None:
    """Whole and streamed."""
    body = responses_body(talk)
    with (reciting if calling else writing).http() as http:
        chat = http.post(CHAT, json=chat_body(talk)).raise_for_status().json()
        whole = http.post(RESPONSES, json=body).raise_for_status().json()
        stream = http.post(RESPONSES, json=body | {"stream": True}).raise_for_status()
    (choice,) = chat["choices"]
    assert text_of(whole) == (choice["message"]["content"] or "")
    calls = [one["function"] for one in choice["message"]["tool_calls"] or ()]
    assert calls_of(whole) == [(one["name"], one["arguments"]) for one in calls]
    assert whole["status"] == ("incomplete" if choice["finish_reason"] == "length" else "completed")
    details = {"reason": "max_output_tokens"} if whole["status"] == "incomplete" else None
    assert whole["incomplete_details"] == details
    usage, expected = whole["usage"], chat["usage"]
    assert usage["input_tokens"] == expected["prompt_tokens"]
    assert usage["output_tokens"] == expected["completion_tokens"]
    assert usage["total_tokens"] == expected["total_tokens"]
    assert stream.headers["content-type"].startswith("text/event-stream")
    added_up = added(list(named_events(stream.content)))
    assert without_ids(added_up) == without_ids(whole)


def text_of(response: dict[str, Any]) -> str:
    messages = [item for item in response["output"] if item["type"] == "message"]
    return "".join(part["text"] for item in messages for part in item["content"])


def calls_of(response: dict[str, Any]) -> list[tuple[str, str]]:
    items = [item for item in response["output"] if item["type"] == "function_call"]
    return [(item["name"], item["arguments"]) for item in items]


def without_ids(response: dict[str, Any]) -> dict[str, Any]:
    """What two responses to a request have in common."""
    output = [
        {key: item[key] for key in item if key not in ("id", "call_id")}
        for item in response["output"]
    ]
    different = ("id", "created_at", "usage", "output")
    return {key: response[key] for key in response if key not in different} | {"output": output}


def added(events: list[dict[str, Any]]) -> dict[str, Any]:
    """The response of the last event. Checks that the others add up to its output."""
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    kinds = [event["type"] for event in events]
    assert kinds[0] == "response.created" and kinds[-1] in ENDS and not ENDS & {*kinds[:-1]}
    assert all(event["response"]["output"] == [] for event in events[:1])
    items: list[dict[str, Any]] = []
    ended = 0
    for kind, event in zip(kinds, events, strict=True):
        if kind == "response.output_item.added":
            assert event["output_index"] == len(items) == ended
            items.append(event["item"])
        elif kind == "response.output_item.done":
            assert event["output_index"] == ended == len(items) - 1
            ended += 1
            assert event["item"] == items[-1] | {"status": event["item"]["status"]}
            items[-1] = event["item"]
        elif "item_id" in event:
            assert event["item_id"] == items[-1]["id"] and event["output_index"] == ended
            if kind == "response.content_part.added":
                items[-1]["content"].append(event["part"])
            elif kind == "response.function_call_arguments.delta":
                items[-1]["arguments"] += event["delta"]
            elif kind.endswith(".delta"):
                items[-1]["content"][event["content_index"]]["text"] += event["delta"]
            elif kind == "response.content_part.done":
                assert event["part"] == items[-1]["content"][event["content_index"]]
            elif kind == "response.function_call_arguments.done":
                assert event["arguments"] == items[-1]["arguments"]
            else:
                assert event["text"] == items[-1]["content"][event["content_index"]]["text"]
    response: dict[str, Any] = events[-1]["response"]
    assert response["output"] == items and ended == len(items)
    return response


# -- items -------------------------------------------------------------------------------------


@given(st.data(), conversations())
def test_any_split_into_parts_gives_the_same_prompt(
    data: st.DataObject, talk: Conversation
) -> None:
    """Also with reasoning of earlier turns between the items."""

    @st.composite
    def split(draw: st.DrawFn) -> dict[str, Any]:
        body = responses_body(talk)
        items = []
        for item in body["input"]:
            key = "output" if item.get("type") == "function_call_output" else "content"
            if key in item and draw(st.booleans()):
                at = draw(st.integers(0, len(item[key])))
                kind = "output_text" if item.get("role") == "assistant" else "input_text"
                parts = [{"type": kind, "text": one} for one in (item[key][:at], item[key][at:])]
                item = item | {key: parts}
            if draw(st.booleans()):
                items.append({"type": "reasoning", "id": "rs_1", "summary": []})
            if "role" in item and draw(st.booleans()):
                item = {"type": "message", "id": "msg_1", "status": "completed"} | item
            items.append(item)
        return body | {"input": items}

    body = data.draw(split())
    whole = ResponsesRequest.model_validate(responses_body(talk))
    assert chat_of(ResponsesRequest.model_validate(body)) == chat_of(whole)


def test_a_text_is_the_user_s_message() -> None:
    text = ResponsesRequest.model_validate({"input": "hi", "instructions": "be brief"})
    items = ResponsesRequest.model_validate(
        {"input": [{"role": "developer", "content": "be brief"}, *HELLO]}
    )
    assert chat_request(chat_of(text)) == chat_request(chat_of(items))


# -- OpenAI's client ---------------------------------------------------------------------------


def test_the_client_reads_responses_and_streams(reciting: LocalServer) -> None:
    create = reciting.client().responses
    response = create.create(model="gpt-local", input="hi")
    assert (response.output_text, response.status) == (ANSWER, "completed")
    assert (response.object, response.model) == ("response", "gpt-local")
    assert response.usage and response.usage.output_tokens == len(ANSWER)
    with create.stream(model="gpt-local", input="hi") as stream:
        texts = [event.delta for event in stream if event.type == "response.output_text.delta"]
        final = stream.get_final_response()
    assert "".join(texts) == final.output_text == ANSWER
    assert final.usage and final.usage.input_tokens == len("user: hi\n\nassistant: ")
    assert final.usage.input_tokens_details.cached_tokens == final.usage.input_tokens - 1
    limited = create.create(model="gpt-local", input="hi", max_output_tokens=5)
    assert (limited.output_text, limited.status) == (ANSWER[:5], "incomplete")


@pytest.mark.parametrize("choice", ["required", {"type": "function", "name": "read"}])
@pytest.mark.parametrize("streamed", [True, False])
def test_the_client_calls_functions(reciting: LocalServer, choice: Any, streamed: bool) -> None:
    create = reciting.client().responses
    asked: Any = {"model": "reciter", "input": HELLO, "tools": [TOOL], "tool_choice": choice}
    if streamed:
        with create.stream(**asked) as stream:
            response = stream.get_final_response()
    else:
        response = create.create(**asked)
    (call,) = response.output
    assert call.type == "function_call" and call.name == "read"
    assert json.loads(call.arguments) == {"path": "a.py"} and call.call_id
    assert response.tools[0].to_dict()["name"] == "read"
    output = {"type": "function_call_output", "call_id": call.call_id, "output": "x = 1"}
    more = asked | {"input": [*HELLO, call.to_dict(), output], "tool_choice": "none"}
    assert all(item.type == "message" for item in create.create(**more).output)


@pytest.mark.parametrize("streamed", [True, False])
def test_reasoning_is_an_item_of_its_own(models: Path, streamed: bool) -> None:
    folder = models / f"streamed-{streamed}"
    folder.mkdir()
    with serve_model(thinker(folder / "thinker")) as served:
        create = served.client().responses
        if streamed:
            with create.stream(model="thinker", input="hi") as stream:
                response = stream.get_final_response()
        else:
            response = create.create(model="thinker", input="hi")
    reasoning, message = response.output
    assert reasoning.type == "reasoning" and reasoning.content
    assert reasoning.content[0].text == REASONING
    assert message.type == "message" and response.output_text == THOUGHT_OUT
    assert response.usage and response.usage.output_tokens_details.reasoning_tokens == len(
        REASONING
    )


def test_reasoning_can_be_left_out() -> None:
    for effort, thinks in (("none", False), ("minimal", False), ("low", True), (None, True)):
        body = {"input": "hi", "reasoning": {"effort": effort, "summary": "auto"}}
        assert chat_request(chat_of(ResponsesRequest.model_validate(body))).thinking == thinks


def test_a_response_fits_a_schema(reciting: LocalServer) -> None:
    form: Any = {"type": "json_schema", "name": "x", "schema": SCHEMA, "strict": True}
    response = reciting.client().responses.create(
        model="reciter", input="hi", text={"format": form, "verbosity": "low"}
    )
    assert json.loads(response.output_text) == {"path": "a.py"}


def test_what_agents_send_beside_it_changes_nothing(reciting: LocalServer) -> None:
    """Tools that only OpenAI's servers can run are left out."""
    extra = {
        "store": False,
        "include": ["reasoning.encrypted_content"],
        "prompt_cache_key": "x",
        "client_metadata": {"a": "b"},
        "service_tier": "auto",
        "truncation": "disabled",
        "previous_response_id": None,
        "tools": [{"type": "web_search", "external_web_access": False}],
        "new_field": [1],
    }
    with reciting.http() as http:
        answer = http.post(RESPONSES, json={"input": HELLO} | extra).raise_for_status().json()
    assert text_of(answer) == ANSWER and answer["tools"] == [] and answer["store"] is False


def test_a_quiet_stream_says_that_it_is_in_progress(
    reciting: LocalServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chat_parts, "QUIET_SECONDS", 0.001)
    wanted: Any = {"input": "hi", "stream": True}
    with (
        occupied(reciting.engine) as release,
        reciting.http() as http,
        http.stream("POST", RESPONSES, json=wanted) as stream,
    ):
        lines = stream.iter_lines()
        for _ in range(3):
            assert next(line for line in lines if line == "event: response.in_progress")
        release()
        assert "event: response.completed" in list(lines)


# -- errors ------------------------------------------------------------------------------------

INVALID: list[tuple[dict[str, Any], str]] = [
    ({"input": []}, "input"),
    ({"input": 5}, "input"),
    ({"input": [{"type": "reasoning", "summary": []}]}, "input: there is no message"),
    ({"input": [{"role": "secret", "content": "x"}]}, "input.0.message.role"),
    ({"input": [{"role": "user"}]}, "input.0.message.content: missing"),
    (
        {"input": [{"role": "user", "content": [{"type": "input_image"}]}]},
        "input.0.message.content.0: only text",
    ),
    ({"input": [{"type": "computer_call"}]}, "input.0: only messages"),
    ({"input": [{"type": "item_reference", "id": "x"}]}, "input.0: only messages"),
    (
        {"input": [{"type": "function_call", "call_id": "a", "name": "b", "arguments": "["}]},
        "tool_calls",
    ),
    ({"input": [{"type": "function_call_output", "call_id": "a"}]}, "input.0.function_call_output"),
    ({"previous_response_id": "resp_1"}, "previous_response_id: responses are not stored"),
    ({"conversation": {"id": "x"}}, "conversation: responses are not stored"),
    ({"prompt": {"id": "x"}}, "prompt: responses are not stored"),
    ({"background": True}, "background"),
    ({"top_logprobs": 2}, "top_logprobs"),
    ({"max_output_tokens": -1}, "max_output_tokens"),
    ({"temperature": 2.1}, "temperature"),
    ({"stream": "yes"}, "stream"),
    ({"tools": [{"type": "function", "name": "a b"}]}, "tools.0.function.name"),
    ({"tools": [{"name": "a"}]}, "tools.0.other.type"),
    ({"tool_choice": "sometimes"}, "tool_choice"),
    ({"tools": [TOOL], "tool_choice": {"type": "function", "name": "x"}}, "tool_choice"),
    ({"text": {"format": {"type": "secret"}}}, "text.format"),
    ({"text": {"format": {"type": "json_schema"}}}, "text.format"),
    ({"reasoning": {"effort": 5}}, "reasoning.effort"),
]


@pytest.mark.parametrize(("fields", "start"), INVALID)
def test_an_invalid_field_is_named(
    reciting: LocalServer, fields: dict[str, Any], start: str
) -> None:
    with reciting.http() as http:
        answer = http.post(RESPONSES, json={"input": "hi"} | fields)
    assert answer.status_code == 400, answer.text
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    message = error["message"]
    assert message.startswith(start) and ": " in message and "\n" not in message
    assert len(message) < 300 and "secret" not in message


@settings(max_examples=40)
@given(
    st.dictionaries(
        st.sampled_from(["input", "instructions", "tools", "tool_choice", "text", "reasoning"]),
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
    body = json.dumps({"input": "hi", "max_output_tokens": 1} | fields)
    headers = {"content-type": "application/json"}
    with reciting.http() as http:
        answer = http.post(RESPONSES, content=body, headers=headers)
    assert answer.status_code in (200, 400), answer.text
    if answer.status_code == 400:
        message = answer.json()["error"]["message"]
        assert ": " in message and "\n" not in message


def test_the_client_s_errors(reciting: LocalServer) -> None:
    create = reciting.client().responses.create
    with pytest.raises(openai.NotFoundError, match="reciter"):
        create(model="gpt-5", input="hi")
    with pytest.raises(openai.BadRequestError, match="context is 2048") as caught:
        create(model="reciter", input="x" * 5000, stream=True)
    assert caught.value.code == "context_length_exceeded"
    with serve_engine(reciting.engine, queue_size=1) as busy:
        asked: Any = {"model": "reciter", "input": "hi"}
        with (
            occupied(busy.engine),
            busy.client().responses.create(stream=True, **asked),
            pytest.raises(openai.RateLimitError),
        ):
            busy.client().responses.create(**asked)
        wait_until(lambda: busy.open() == 0)


def test_a_stream_that_is_interrupted_says_that_it_failed(models: Path) -> None:
    engine = Engine(Config(model=str(endless(models / "endless")), library=False))
    with serve_engine(engine) as served, answers_pause(engine), served.http() as http:
        body = {"input": "hi", "stream": True, "max_output_tokens": 30_000}
        with http.stream("POST", RESPONSES, json=body) as stream:
            lines = stream.iter_lines()
            assert next(lines) == "event: response.created"
            engine.close()
            *_, name, last = (line for line in lines if line)
        assert name == "event: response.failed"
        response = json.loads(last.removeprefix("data: "))["response"]
        assert response["status"] == "failed" and response["error"]["message"]
        assert http.post(RESPONSES, json={"input": "hi"}).status_code == 503
