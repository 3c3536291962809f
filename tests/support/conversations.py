"""Conversations with calls of tools, written in each protocol that the API speaks."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

WORDS = st.lists(
    st.sampled_from(["add", " ", "\n", "é", "\U0001f60b", "```\n", "{}", "<tool_call>"]), max_size=5
)
TEXTS = WORDS.map("".join)
SCHEMA = {
    "type": "object",
    "properties": {"path": {"enum": ["a.py"]}},
    "required": ["path"],
    "additionalProperties": False,
}


@dataclass(frozen=True)
class Turn:
    """A turn and, in the assistant's, its calls: an id, the arguments and the result of each."""

    role: str
    text: str
    calls: tuple[tuple[str, dict[str, str], str], ...] = ()


@dataclass(frozen=True)
class Conversation:
    """Ends with a user's turn, or with the results of calls."""

    system: str
    turns: tuple[Turn, ...]
    options: dict[str, Any]  # that all protocols have, by OpenAI's names
    tools: tuple[str, ...] = ()  # names
    choice: str = ""  # "auto", "required", "none" or the name of a tool; "": not sent


@st.composite
def conversations(draw: st.DrawFn) -> Conversation:
    turns: list[Turn] = []
    number = 0
    for _ in range(draw(st.integers(0, 3))):
        turns.append(Turn("user", draw(TEXTS)))
        calls = []
        for _ in range(draw(st.integers(0, 2))):
            number += 1
            arguments = draw(st.dictionaries(TEXTS, TEXTS, max_size=2))
            calls.append((f"call_{number}", arguments, draw(TEXTS)))
        turns.append(Turn("assistant", draw(TEXTS), tuple(calls)))
    if not turns or not turns[-1].calls or draw(st.booleans()):
        turns.append(Turn("user", draw(TEXTS)))
    temperature = draw(st.sampled_from([None, 0.0, 0.7]))
    options = {"temperature": temperature, "top_p": draw(st.sampled_from([None, 0.9]))}
    options |= {"seed": draw(st.integers(0, 9)), "max_tokens": draw(st.sampled_from([0, 9, 150]))}
    tools = tuple(draw(st.sampled_from([(), ("read",), ("read", "write")])))
    choices = ["", "auto", "none", *(["required", *tools] if tools else [])]
    choice = draw(st.sampled_from(choices))
    return Conversation(draw(TEXTS), tuple(turns), options, tools, choice)


def chat_body(talk: Conversation) -> dict[str, Any]:
    """For /v1/chat/completions."""
    messages: list[dict[str, Any]] = []
    if talk.system:
        messages.append({"role": "system", "content": talk.system})
    for turn in talk.turns:
        message: dict[str, Any] = {"role": turn.role, "content": turn.text}
        if turn.calls:
            message["tool_calls"] = [
                {
                    "id": call_id,
                    "type": "function",
                    "function": {"name": "read", "arguments": json.dumps(arguments)},
                }
                for call_id, arguments, _ in turn.calls
            ]
        messages.append(message)
        for call_id, _, result in turn.calls:
            messages.append({"role": "tool", "tool_call_id": call_id, "content": result})
    functions = [{"name": name, "parameters": SCHEMA} for name in talk.tools]
    body = {"messages": messages} | talk.options
    body["tools"] = [{"type": "function", "function": function} for function in functions]
    if talk.choice:
        named = {"type": "function", "function": {"name": talk.choice}}
        body["tool_choice"] = named if talk.choice in talk.tools else talk.choice
    return body


def messages_body(talk: Conversation) -> dict[str, Any]:
    """For /v1/messages."""
    messages: list[dict[str, Any]] = []
    for turn in talk.turns:
        if not turn.calls:
            messages.append({"role": turn.role, "content": turn.text})
            continue
        uses = [
            {"type": "tool_use", "id": call_id, "name": "read", "input": arguments}
            for call_id, arguments, _ in turn.calls
        ]
        text = [{"type": "text", "text": turn.text}]
        messages.append({"role": "assistant", "content": [*text, *uses]})
        results = [
            {"type": "tool_result", "tool_use_id": call_id, "content": result}
            for call_id, _, result in turn.calls
        ]
        messages.append({"role": "user", "content": results})
    body: dict[str, Any] = {"messages": messages, "system": talk.system} | talk.options
    body["tools"] = [{"name": name, "input_schema": SCHEMA} for name in talk.tools]
    if talk.choice in talk.tools:
        body["tool_choice"] = {"type": "tool", "name": talk.choice}
    elif talk.choice:
        body["tool_choice"] = {"type": talk.choice.replace("required", "any")}
    return body


def responses_body(talk: Conversation) -> dict[str, Any]:
    """For /v1/responses."""
    items: list[dict[str, Any]] = []
    for turn in talk.turns:
        if turn.text or not turn.calls:
            items.append({"role": turn.role, "content": turn.text})
        for call_id, arguments, _ in turn.calls:
            call = {"type": "function_call", "call_id": call_id, "name": "read"}
            items.append(call | {"arguments": json.dumps(arguments)})
        for call_id, _, result in turn.calls:
            items.append({"type": "function_call_output", "call_id": call_id, "output": result})
    options = dict(talk.options)
    options["max_output_tokens"] = options.pop("max_tokens")
    body: dict[str, Any] = {"input": items, "instructions": talk.system} | options
    body["tools"] = [
        {"type": "function", "name": name, "parameters": SCHEMA} for name in talk.tools
    ]
    if talk.choice:
        named = {"type": "function", "name": talk.choice}
        body["tool_choice"] = named if talk.choice in talk.tools else talk.choice
    return body


def named_events(body: bytes) -> Iterator[dict[str, Any]]:
    """The server-sent events of a stream, each named after its type."""
    *parts, rest = body.split(b"\n\n")
    assert rest == b""
    for part in parts:
        assert part.isascii(), part
        name, data = part.split(b"\n")
        event = json.loads(data.removeprefix(b"data: "))
        assert name == f"event: {event['type']}".encode()
        yield event
