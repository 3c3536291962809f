"""The protocols in which a chat is asked over HTTP, as data: their bodies, answers, streams and
errors, read into one form."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import httpx

from engine.records import Request
from tests.support.conversations import (
    Conversation,
    chat_body,
    messages_body,
    named_events,
    responses_body,
)
from tests.support.server import HELLO, LocalServer, parse_events
from ui.api.anthropic_messages.requests import chat_of as chat_of_messages
from ui.api.anthropic_messages.schemas import MessagesRequest
from ui.api.openai_responses.requests import chat_of as chat_of_responses
from ui.api.openai_responses.schemas import ResponsesRequest
from ui.api.requests import chat_request
from ui.api.schemas import ChatRequest

CHAT, MESSAGES, RESPONSES = "/v1/chat/completions", "/v1/messages", "/v1/responses"
MESSAGES_REASONS = {
    "end_turn": "stop", "stop_sequence": "stop", "max_tokens": "length", "tool_use": "tool_calls",
}  # fmt: skip
RESPONSE_ENDS = {"response.completed", "response.incomplete", "response.failed"}
RANDOM = ("id", "call_id", "created_at", "usage")  # what two answers to a request differ in
MAX_MESSAGE_CHARS = 300  # of an error

Body = dict[str, Any]


class Answer(NamedTuple):
    """An answer of any protocol."""

    text: str
    reasoning: str
    calls: list[tuple[str, str]]  # names, and arguments as JSON
    reason: str  # OpenAI's finish_reason
    tokens: tuple[int, int] | None  # of the prompt and of the answer


@dataclass(frozen=True)
class Protocol:
    path: str
    hello: Body  # the smallest body
    limit: str  # the field with the most tokens
    body: Callable[[Conversation], Body]
    request: Callable[[Body], Request]  # what the engine is asked
    read: Callable[[Body], Answer]
    added: Callable[[bytes], Body]  # the whole answer that a stream's events add up to
    error: Callable[[httpx.Response, int], dict[str, Any]]  # an error; checks status and form
    streaming: Body

    def __str__(self) -> str:
        return self.path.rpartition("/")[2]

    def ask(self, server: LocalServer, **fields: Any) -> Answer:
        """The answer to the smallest body with other fields."""
        with server.http() as http:
            return self.read(
                http.post(self.path, json=self.hello | fields).raise_for_status().json()
            )

    def stream(self, server: LocalServer, **fields: Any) -> Answer:
        """The same from a stream."""
        with server.http() as http:
            response = http.post(self.path, json=self.hello | fields | self.streaming)
        assert response.raise_for_status().headers["content-type"].startswith("text/event-stream")
        return self.read(self.added(response.content))


def without_random(value: Any) -> Any:
    """What two answers to a request have in common."""
    if isinstance(value, dict):
        return {key: without_random(each) for key, each in value.items() if key not in RANDOM}
    return [without_random(each) for each in value] if isinstance(value, list) else value


def check_message(message: str) -> None:
    """One short line that names what is wrong."""
    assert ": " in message and "\n" not in message and len(message) < MAX_MESSAGE_CHARS, message


# -- chat completions --------------------------------------------------------------------------


def read_chat(body: Body) -> Answer:
    (choice,) = body["choices"]
    message, usage = choice["message"], body.get("usage")
    calls = message["tool_calls"] or []
    assert all(call["id"].startswith("call_") and call["type"] == "function" for call in calls)
    assert len({call["id"] for call in calls}) == len(calls)
    return Answer(
        message["content"] or "",
        message["reasoning_content"] or "",
        [(call["function"]["name"], call["function"]["arguments"]) for call in calls],
        choice["finish_reason"],
        (usage["prompt_tokens"], usage["completion_tokens"]) if usage else None,
    )


def added_chunks(stream: bytes) -> Body:
    """The answer of the chunks, as clients put them together."""
    *chunks, last = parse_events(stream)
    assert last["choices"] == [] and all(chunk["usage"] is None for chunk in chunks)
    message: dict[str, Any] = {"content": "", "reasoning_content": "", "tool_calls": []}
    choices = [choice for chunk in chunks for choice in chunk["choices"]]
    for choice in choices:
        delta = choice["delta"]
        for key in ("content", "reasoning_content"):
            message[key] += delta.get(key) or ""
        for call in delta.get("tool_calls") or []:
            assert call.pop("index") == len(message["tool_calls"])
            message["tool_calls"].append(call)
    reasons = [choice["finish_reason"] for choice in choices]
    assert reasons[:-1] == [None] * (len(choices) - 1)
    choice = {"message": message, "finish_reason": reasons[-1]}
    return {"choices": [choice], "usage": last["usage"]}


def openai_error(answer: httpx.Response, status: int) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/json"
    body = answer.json()
    assert set(body) == {"error"}
    error: dict[str, Any] = body["error"]
    assert set(error) == {"message", "type", "param", "code"} and error["type"]
    check_message(error["message"])
    return error


# -- Anthropic's messages ----------------------------------------------------------------------


def read_message(body: Body) -> Answer:
    def joined(kind: str, key: str) -> str:
        return "".join(block[key] for block in body["content"] if block["type"] == kind)

    usage, uses = body["usage"], [each for each in body["content"] if each["type"] == "tool_use"]
    return Answer(
        joined("text", "text"),
        joined("thinking", "thinking"),
        [(use["name"], json.dumps(use["input"])) for use in uses],
        MESSAGES_REASONS[body["stop_reason"]],
        (usage["input_tokens"] + usage["cache_read_input_tokens"], usage["output_tokens"]),
    )


def added_blocks(stream: bytes) -> Body:
    """The message that events add up to; checks their order."""
    events = [event for event in named_events(stream) if event["type"] != "ping"]
    start, *inner, delta, stop = events
    message: dict[str, Any] = start["message"]
    assert (start["type"], delta["type"]) == ("message_start", "message_delta")
    assert stop == {"type": "message_stop"}
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


def anthropic_error(answer: httpx.Response, status: int) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    body = answer.json()
    assert set(body) == {"type", "error"} and body["type"] == "error"
    error: dict[str, Any] = body["error"]
    assert set(error) == {"type", "message"} and error["type"].endswith(("_error", "_too_large"))
    check_message(error["message"])
    return error


# -- OpenAI's responses ------------------------------------------------------------------------


def read_response(body: Body) -> Answer:
    def joined(kind: str) -> str:
        items = [item for item in body["output"] if item["type"] == kind]
        return "".join(part["text"] for item in items for part in item["content"])

    usage, calls = body["usage"], [one for one in body["output"] if one["type"] == "function_call"]
    assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"]
    incomplete = {"completed": None, "incomplete": {"reason": "max_output_tokens"}}
    assert body["incomplete_details"] == incomplete[body["status"]]
    reason = "length" if body["status"] == "incomplete" else "tool_calls" if calls else "stop"
    return Answer(
        joined("message"),
        joined("reasoning"),
        [(call["name"], call["arguments"]) for call in calls],
        reason,
        (usage["input_tokens"], usage["output_tokens"]),
    )


def added_items(stream: bytes) -> Body:
    """The response of the last event. Checks that the others add up to its output."""
    events = list(named_events(stream))
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    kinds = [event["type"] for event in events]
    assert kinds[0] == "response.created" and events[0]["response"]["output"] == []
    assert kinds[-1] in RESPONSE_ENDS and not RESPONSE_ENDS & {*kinds[:-1]}
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


def request_of_chat(body: Body) -> Request:
    return chat_request(ChatRequest.model_validate(body))


def request_of_messages(body: Body) -> Request:
    return chat_request(chat_of_messages(MessagesRequest.model_validate(body)))


def request_of_responses(body: Body) -> Request:
    return chat_request(chat_of_responses(ResponsesRequest.model_validate(body)))


AS_CHAT = Protocol(
    CHAT, {"messages": HELLO}, "max_tokens", chat_body, request_of_chat, read_chat, added_chunks,
    openai_error, {"stream": True, "stream_options": {"include_usage": True}},
)  # fmt: skip
AS_MESSAGES = Protocol(
    MESSAGES, {"messages": HELLO}, "max_tokens", messages_body, request_of_messages, read_message,
    added_blocks, anthropic_error, {"stream": True},
)  # fmt: skip
AS_RESPONSES = Protocol(
    RESPONSES, {"input": HELLO}, "max_output_tokens", responses_body, request_of_responses,
    read_response, added_items, openai_error, {"stream": True},
)  # fmt: skip
PROTOCOLS = (AS_CHAT, AS_MESSAGES, AS_RESPONSES)
