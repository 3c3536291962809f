"""Calls of tools in chats: from OpenAI's form to the engine's, and from an answer to OpenAI's."""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from engine.prompts.call_formats.call_format import Call
from engine.prompts.tool_calls import held_back, read_calls
from engine.prompts.tools import NAME
from engine.records import Done, Message, RequestError
from ui.api import schemas as types

OTHER = re.compile(r"[^\w.-]")  # characters that no name has
MAX_NAME_CHARS = 120  # characters of a shortened name, without a number behind it


def names_of(body: types.ChatRequest) -> dict[str, str]:
    """Return a name for each function that every format of calls can write, by the client's own.

    Most stay. Gateways of MCP write some with other characters.
    """
    names = [tool.function.name for tool in body.tools or ()]
    found = {name: name for name in names if NAME.fullmatch(name)}
    taken = {*found}
    for name in names:
        if name not in found:
            base = OTHER.sub("_", name)[:MAX_NAME_CHARS]
            free = (f"{base}_{number}" for number in count(2))
            found[name] = (
                base if base not in taken else next(one for one in free if one not in taken)
            )
            taken.add(found[name])
    return found


def functions_of(body: types.ChatRequest) -> list[types.Function]:
    """Return the functions that the model may call, by the names that it knows."""
    if body.tool_choice == "none":
        return []
    names = names_of(body)
    functions = [tool.function for tool in body.tools or ()]
    return [one.model_copy(update={"name": names[one.name]}) for one in functions]


def tools_of(body: types.ChatRequest) -> tuple[str, ...]:
    """Return the functions that the model may call, as the engine has them."""
    return tuple(
        json.dumps(
            {
                "name": function.name,
                "description": function.description or "",
                "parameters": function.parameters or {"type": "object", "properties": {}},
            }
        )
        for function in functions_of(body)
    )


def call_reader(body: types.ChatRequest) -> CallReader:
    """Return a reader of the calls in an answer."""
    return CallReader(
        {function.name: function.parameters for function in functions_of(body)},
        body.parallel_tool_calls is not False,
        {short: name for name, short in names_of(body).items()},
    )


def must_call(body: types.ChatRequest) -> tuple[str, ...]:
    """Return the functions of which the model must call one; none if it is free.

    RequestError for a choice of what is not there, or between two of one name.
    """
    names = [tool.function.name for tool in body.tools or ()]
    known = names_of(body)
    choice = body.tool_choice
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise RequestError(f"tools: two are named {twice}: give each a name of its own")
    if isinstance(choice, types.NamedTool):
        if choice.function.name not in names:
            raise RequestError("tool_choice: no tool has this name: choose one of `tools`")
        return (known[choice.function.name],)
    if choice == "required" and not names:
        raise RequestError("tool_choice: required, but there are no tools")
    return tuple(known[name] for name in names) if choice == "required" else ()


def with_calls(message: types.Message, found: Message, names: Mapping[str, str]) -> Message:
    """Return a message with its reasoning and calls, or as the result of one.

    `names`: those that the model knows, by the client's.
    """
    if message.role == "assistant" and message.reasoning_content:
        found["reasoning_content"] = message.reasoning_content
    if message.tool_calls:
        calls = []
        for call in message.tool_calls:
            calls.append(
                {
                    "id": call.id,
                    "name": names.get(call.function.name, call.function.name),
                    "arguments": arguments_of(call.function),
                }
            )
        found["tool_calls"] = json.dumps(calls)
    if message.role == "tool":
        if message.tool_call_id is not None:
            found["tool_call_id"] = message.tool_call_id
        if message.name is not None:
            found["name"] = names.get(message.name, message.name)
    return found


def arguments_of(function: types.CalledFunction) -> dict[str, Any] | str:
    """Return the arguments of an earlier call; as they are where they are no JSON object."""
    try:
        found = json.loads(function.arguments or "{}")
    except (ValueError, RecursionError):
        found = None
    return found if isinstance(found, dict) else function.arguments


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
    names: Mapping[str, str] = field(default_factory=dict)  # the client's, by the functions' names
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
        calls = [call._replace(name=self.names.get(call.name, call.name)) for call in calls]
        return content[self._passed :], calls if self.many else calls[:1]
