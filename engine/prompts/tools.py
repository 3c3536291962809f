"""Tools that a model may call, and how its chat template gets them."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from engine.prompts.call_formats.json_calls import CLOSE, OPEN
from engine.prompts.chat_template import SLOT, ToolUse
from engine.records import Message, RequestError

PRIVATE = re.compile("[\ue000\ue001]")  # the characters of slots
NAME = re.compile(r"[\w.-]{1,128}")  # a function's name, as every format of calls can write it
ANY_ARGUMENTS: dict[str, Any] = {"type": "object", "properties": {}}

# The instructions for a model whose template knows no tools.
INSTRUCTIONS = (
    "You may call functions. Their signatures:\n<tools>\n{}\n</tools>\n\nTo call one, answer with "
    'nothing but\n<tool_call>\n{{"name": <function-name>, "arguments": <args-json-object>}}\n'
    "</tool_call>"
)


@dataclass(frozen=True, slots=True)
class Tool:
    """A function that a model may call. `parameters`: the JSON schema of its arguments."""

    name: str
    description: str = ""
    parameters: Any = None

    @classmethod
    def of(cls, text: str) -> Tool:
        """Read a tool from its JSON text, as requests have it. RequestError."""
        fields = _object(text)
        name, description = fields.get("name"), fields.get("description") or ""
        parameters = fields.get("parameters")
        if not (isinstance(name, str) and isinstance(description, str)):
            raise RequestError("tools: one has no name, or a description that is no text")
        if not NAME.fullmatch(name):
            raise RequestError(f"tools: {name!r}: names have letters, digits and _.- only")
        if not isinstance(parameters, dict | None):
            raise RequestError(f"tools: {name}: the parameters are no JSON schema: send an object")
        return cls(name, description, parameters)

    def definition(self) -> dict[str, Any]:
        """Return the tool as chat templates expect it."""
        function: dict[str, Any] = {"name": self.name}
        if self.description:
            function["description"] = self.description
        function["parameters"] = self.parameters or ANY_ARGUMENTS
        return {"type": "function", "function": function}


def _object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise RequestError("tools: one is no JSON object: send its name and its parameters")
    return value


def made_calls(message: Message) -> list[dict[str, Any]]:
    """Return the calls in an earlier answer. RequestError."""
    calls = _object(f'{{"calls": {message.get("tool_calls", "[]")}}}').get("calls")
    types = {"id": str, "name": str, "arguments": dict | str}
    if not isinstance(calls, list) or not all(
        isinstance(call, dict) and all(isinstance(call.get(key), types[key]) for key in types)
        for call in calls
    ):
        raise RequestError("tool_calls: send a list of objects with id, name and arguments")
    return calls


def tool_use(
    messages: Sequence[Message],
    tools: Sequence[Tool],
    marks: re.Pattern[str] | None,
    raw: bool = False,
) -> ToolUse:
    """Return the tools and calls that the template shows.

    Texts with a control token's name in them (`marks`), or with characters of slots, become slots:
    they are text, whatever they say. Arguments that are texts are `raw` where the template writes
    them as they are, not as JSON.
    """
    texts: list[str] = []

    def slot(text: str) -> str:
        texts.append(text)
        return SLOT.format(len(messages) + len(texts) - 1)

    def special(text: str) -> bool:
        return bool((marks and marks.search(text)) or PRIVATE.search(text))

    def argument(value: Any) -> Any:
        return slot(value) if isinstance(value, str) and special(value) else shown(value)

    def shown(value: Any) -> Any:
        if isinstance(value, dict):
            return {shown(key): shown(one) for key, one in value.items()}
        if isinstance(value, list):
            return [shown(item) for item in value]
        if not isinstance(value, str) or not special(value):
            return value
        return slot(json.dumps(value, ensure_ascii=False)[1:-1])

    def arguments(call: dict[str, Any]) -> Any:
        found = call["arguments"]
        if raw and isinstance(found, str):  # of no arguments by name
            found = {"arguments": found}
        return {shown(key): argument(found[key]) for key in found} if raw else shown(found)

    fields: dict[int, dict[str, Any]] = {}
    for number, message in enumerate(messages):
        more: dict[str, Any] = {
            key: shown(message[key])
            for key in ("name", "tool_call_id", "reasoning_content")
            if key in message
        }
        if "tool_calls" in message:
            more["tool_calls"] = [
                {
                    "id": shown(call["id"]),
                    "type": "function",
                    "function": {"name": shown(call["name"]), "arguments": arguments(call)},
                }
                for call in made_calls(message)
            ]
            if not message["content"]:
                more["content"] = ""
        if more:
            fields[number] = more
    return ToolUse([shown(tool.definition()) for tool in tools], fields, texts)


def with_tools_in_words(messages: Sequence[Message], tools: Sequence[Tool]) -> list[Message]:
    """Make a conversation for a model whose template knows no tools.

    Words describe the tools, calls are text, and results are the user's.
    """
    found: list[Message] = []
    for message in messages:
        role, content = message["role"], message["content"]
        for call in made_calls(message):
            fields = {"name": call["name"], "arguments": call["arguments"]}
            body = json.dumps(fields, ensure_ascii=False)
            content += f"\n{OPEN}\n{body}\n{CLOSE}"
        if role == "tool":
            role, content = "user", f"<tool_response>\n{content}\n</tool_response>"
        if found and found[-1]["role"] == role == "user":
            found[-1] = {"role": "user", "content": f"{found[-1]['content']}\n\n{content}"}
        else:
            found.append({"role": role, "content": content.lstrip("\n")})
    if not tools:
        return found
    guide = INSTRUCTIONS.format("\n".join(json.dumps(tool.definition()) for tool in tools))
    if found and found[0]["role"] == "system":
        return [
            {"role": "system", "content": f"{found[0]['content']}\n\n{guide}"},
            *found[1:],
        ]
    return [{"role": "system", "content": guide}, *found]
