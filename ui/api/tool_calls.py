"""Calls of tools in chats: from OpenAI's form to the engine's, and from an answer to OpenAI's."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from engine.prompts.call_formats.call_format import Call
from engine.prompts.tool_calls import held_back, read_calls
from engine.records import Done, Message, RequestError
from ui.api import schemas as types


def tools_of(body: types.ChatRequest) -> tuple[str, ...]:
    """Return the functions that the model may call, as the engine has them."""
    if body.tool_choice == "none":
        return ()
    functions = [tool.function for tool in body.tools or ()]
    return tuple(
        json.dumps(
            {
                "name": function.name,
                "description": function.description or "",
                "parameters": function.parameters or {"type": "object", "properties": {}},
            }
        )
        for function in functions
    )


def schemas_of(body: types.ChatRequest) -> dict[str, Any]:
    """Return the JSON schemas of the arguments of the functions that the model may call.

    They are by name.
    """
    functions = [] if body.tool_choice == "none" else [tool.function for tool in body.tools or ()]
    return {function.name: function.parameters for function in functions}


def must_call(body: types.ChatRequest) -> tuple[str, ...]:
    """Return the functions of which the model must call one; none if it is free.

    RequestError for a choice of what is not there, or between two of one name.
    """
    names = tuple(tool.function.name for tool in body.tools or ())
    choice = body.tool_choice
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise RequestError(f"tools: two are named {twice}: give each a name of its own")
    if isinstance(choice, types.NamedTool):
        if choice.function.name not in names:
            raise RequestError("tool_choice: no tool has this name: choose one of `tools`")
        return (choice.function.name,)
    if choice == "required" and not names:
        raise RequestError("tool_choice: required, but there are no tools")
    return names if choice == "required" else ()


def with_calls(message: types.Message, found: Message) -> Message:
    """Return a message with its reasoning and calls, or as the result of one.

    RequestError for arguments that are no JSON object.
    """
    if message.role == "assistant" and message.reasoning_content:
        found["reasoning_content"] = message.reasoning_content
    if message.tool_calls:
        calls = []
        for call in message.tool_calls:
            calls.append(
                {
                    "id": call.id,
                    "name": call.function.name,
                    "arguments": arguments_of(call.function),
                }
            )
        found["tool_calls"] = json.dumps(calls)
    for key, value in (("tool_call_id", message.tool_call_id), ("name", message.name)):
        if message.role == "tool" and value is not None:
            found[key] = value
    return found


def arguments_of(function: types.CalledFunction) -> dict[str, Any]:
    """Return the arguments of an earlier call."""
    try:
        found = json.loads(function.arguments or "{}")
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise RequestError("tool_calls: arguments that are no JSON object: send one, as a string")
    return found


def calls_in_answer(calls: list[Call]) -> list[types.AnswerCall]:
    """Return the calls as a response has them, each with an id of its own."""
    return [
        types.AnswerCall(
            id=f"call_{secrets.token_hex(12)}",
            function=types.CalledFunction(name=call.name, arguments=call.arguments),
        )
        for call in calls
    ]


@dataclass
class CallReader:
    """Parts an answer into text and calls while it is streamed.

    Text is passed on as soon as it cannot belong to a call.
    """

    schemas: Mapping[str, Any] = field(default_factory=dict)  # by the functions' names
    many: bool = True
    _text: str = ""
    _passed: int = 0  # characters

    def push(self, text: str) -> str:
        """Return the text that may be passed on."""
        if not self.schemas:
            return text
        self._text += text
        passed = max(self._passed, len(self._text) - held_back(self._text))
        text, self._passed = self._text[self._passed : passed], passed
        return text

    def finish(self, done: Done) -> tuple[str, list[Call]]:
        """Return the rest of the text, and the calls.

        There is no half call of an answer that was cut off, by the limit or a stop string.
        """
        if not self.schemas:
            return "", []
        cut = done.reason == "length" or done.matched is not None
        content, calls = read_calls(self._text, self.schemas, cut)
        return content[self._passed :], calls if self.many else calls[:1]
