"""Tools that a model may call: what its template is told of them, and the calls that it writes.

Models write calls in one of a few formats: Hermes's (Qwen and most others), Mistral's, and Llama
3's, a JSON object without marks. The format is the one of the model's chat template.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from engine.prompts.chat_template import SLOT, ToolUse
from engine.records import Message, RequestError

Format = Literal["hermes", "mistral", "mistral-args", "llama"]

# Marks of calls. Where they are control tokens they are text in an answer of a request with tools.
MARKS = ("<tool_call>", "</tool_call>", "[TOOL_CALLS]", "[ARGS]", "[CALL_ID]", "<|python_tag|>")
OPEN, CLOSE = "<tool_call>", "</tool_call>"
BEGINNINGS = (OPEN, "[TOOL_CALLS]", "<|python_tag|>")
BEGINNING = re.compile("|".join(map(re.escape, BEGINNINGS)))
FENCED = re.compile(r"\s*```(?:json|xml)?\s*([{\[].*)```\s*", re.DOTALL)
MAY_BE_BARE = re.compile(  # calls without marks, or their beginning
    r"\s*(?:`{1,2}|(?:```(?:json|jso|js|j|xml|xm|x)?\s*)?(?:\[\s*)?(?:\{\s*(?:\".*)?)?)", re.DOTALL
)
HALF_BARE = re.compile(  # the beginning of a call without marks, and of its name
    r"[^{]*(?:\{\s*(?:\"(?:n|na|nam|name|name\"\s*:?\s*|name\"\s*:\s*\"([^\"]*)(?:\".*)?)?)?)?",
    re.DOTALL,
)
STRING = re.compile(r'"(?:[^"\\]|\\.)*(?:"|\\?$)', re.DOTALL)  # in JSON; the last may not end
NAME_OF_MISTRAL = re.compile(r"[\w.-]{0,128}(?:\[[A-Z_]+\]?\w*){0,2}")
PRIVATE = re.compile("[\ue000\ue001]")  # what slots are made of
CALL_OF_MISTRAL = re.compile(r"\s*([\w.-]{1,128})(?:\[CALL_ID\]\w*)?(?:\[ARGS\])?\s*(?=\{)")
ANY_ARGUMENTS: dict[str, Any] = {"type": "object", "properties": {}}

# What a model is told whose template knows no tools.
INSTRUCTIONS = (
    "You may call functions. Their signatures:\n<tools>\n{}\n</tools>\n\nTo call one, answer with "
    'nothing but\n<tool_call>\n{{"name": <function-name>, "arguments": <args-json-object>}}\n'
    "</tool_call>"
)


class Call(NamedTuple):
    """A call of a function: its name, and its arguments as a JSON object's text."""

    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Tool:
    """A function that a model may call. `parameters`: the JSON schema of its arguments."""

    name: str
    description: str = ""
    parameters: Any = None

    @classmethod
    def of(cls, text: str) -> Tool:
        """A tool from its JSON text, as requests have it. RequestError."""
        fields = _object(text)
        name, description = fields.get("name"), fields.get("description") or ""
        parameters = fields.get("parameters")
        if not (isinstance(name, str) and isinstance(description, str)):
            raise RequestError("tools: one has no name, or a description that is no text")
        if not isinstance(parameters, dict | None):
            raise RequestError(f"tools: {name}: the parameters are no JSON schema: send an object")
        return cls(name, description, parameters)

    def definition(self) -> dict[str, Any]:
        """As chat templates expect it."""
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
    """The calls in an earlier answer. RequestError."""
    calls = _object(f'{{"calls": {message.get("tool_calls", "[]")}}}').get("calls")
    types = {"id": str, "name": str, "arguments": dict}
    if not isinstance(calls, list) or not all(
        isinstance(call, dict) and all(isinstance(call.get(key), types[key]) for key in types)
        for call in calls
    ):
        raise RequestError("tool_calls: send a list of objects with id, name and arguments")
    return calls


def format_of(template: str) -> Format:
    """The format of calls that a chat template speaks of."""
    if "[TOOL_CALLS]" in template:
        return "mistral-args" if "[ARGS]" in template else "mistral"
    if OPEN not in template and "<|python_tag|>" in template:
        return "llama"
    return "hermes"


# -- the calls in an answer --------------------------------------------------------------------


def read_calls(text: str, names: Collection[str], cut: bool = False) -> tuple[str, list[Call]]:
    """An answer's text around its calls, and its calls. What is no call of a function among `names`
    is text, but for half a call at the end of an answer that was `cut` off. Without marks the whole
    answer must be calls."""

    def known(calls: list[Call]) -> bool:
        return bool(calls) and all(call.name in names for call in calls)

    bare = FENCED.fullmatch(text)
    body = bare[1] if bare else text
    calls, end = _objects(body, 0)
    if known(calls) and (not body[end:].strip() or (cut and _is_half(body[end:].lstrip("\n;, ")))):
        return "", calls
    half = HALF_BARE.fullmatch(text) if cut and MAY_BE_BARE.fullmatch(text) else None
    if half and (half[1] is None or any(name.startswith(half[1]) for name in names)):
        return "", []
    content, calls, at = "", [], 0  # the text up to `at` has been read
    while mark := BEGINNING.search(text, at):
        found, end = _marked(text, mark)
        if known(found):
            content += text[at : mark.start()].removesuffix("\n")
            calls += found
            at = end
        elif cut and _is_half(text[mark.end() :]):
            content += text[at : mark.start()].removesuffix("\n")
            at = len(text)
        else:
            content += text[at : mark.end()]
            at = mark.end()
    rest = text[at:]
    if cut and (half_mark := _half_mark(rest)):
        rest = rest[:-half_mark].removesuffix("\n")
    content += rest if rest.strip() or not calls else ""
    return content if content.strip() or not calls else "", calls


def _is_half(text: str) -> bool:
    """Whether a text is the beginning of a call behind its mark: a name, if the format has it
    there, and JSON that does not end."""
    text = STRING.sub("", NAME_OF_MISTRAL.sub("", text.lstrip(), count=1).lstrip())
    return not text or (text[0] in "{[" and sum(map(text.count, "{[")) > sum(map(text.count, "}]")))


def held_back(text: str) -> int:
    """How many characters at the end of an unfinished answer may belong to a call, or go when a
    call follows."""
    mark = BEGINNING.search(text)
    before = text[: mark.start()] if mark else text[: len(text) - _half_mark(text)]
    if not before.strip() or MAY_BE_BARE.fullmatch(text):
        return len(text)
    return len(text) - len(before.removesuffix("\n"))


def _half_mark(text: str) -> int:
    """The length of the beginning of a mark at the end of a text."""
    for count in range(min(len(text), max(map(len, BEGINNINGS)) - 1), 0, -1):
        if any(mark.startswith(text[-count:]) for mark in BEGINNINGS):
            return count
    return 0


def _marked(text: str, mark: re.Match[str]) -> tuple[list[Call], int]:
    """The calls behind a mark, and their end."""
    if mark[0] == "[TOOL_CALLS]" and (named := CALL_OF_MISTRAL.match(text, mark.end())):
        value, end = _decoded(text, named.end())
        return ([Call(named[1], _text(value))] if isinstance(value, dict) else []), end
    calls, end = _objects(text, mark.end())
    if mark[0] == OPEN:
        close = _skip(text, end)
        if text.startswith(CLOSE, close) or CLOSE.startswith(text[close:]):  # cut off
            end = close + len(CLOSE)
    return calls, end


def _objects(text: str, at: int) -> tuple[list[Call], int]:
    """The calls in JSON objects, or lists of them, at a place in a text, and their end."""
    calls: list[Call] = []
    end = at
    while True:
        value, stop = _decoded(text, _skip(text, end, " \n\t\r;,") if calls else end)
        found = [_call(one) for one in (value if isinstance(value, list) else [value])]
        if not found or None in found:
            return calls, end
        calls += [call for call in found if call]
        end = stop


def _skip(text: str, at: int, chars: str = " \n\t\r") -> int:
    """The place of the first other character."""
    while at < len(text) and text[at] in chars:
        at += 1
    return at


def _decoded(text: str, at: int) -> tuple[Any, int]:
    """The JSON object or list at a place, and its end; None where there is none."""
    at = _skip(text, at)
    if text[at : at + 1] not in ("{", "["):
        return None, at
    try:
        return json.JSONDecoder().raw_decode(text, at)
    except (ValueError, RecursionError):
        return None, at


def _call(value: Any) -> Call | None:
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        return None
    arguments = value.get("arguments", value.get("parameters"))
    if isinstance(arguments, str):  # JSON in JSON
        arguments, _ = _decoded(arguments, 0)
    return Call(value["name"], _text(arguments)) if isinstance(arguments, dict) else None


def _text(arguments: dict[str, Any]) -> str:
    return json.dumps(arguments, ensure_ascii=False)


# -- the prompt --------------------------------------------------------------------------------


def tool_use(
    messages: Sequence[Message], tools: Sequence[Tool], marks: re.Pattern[str] | None
) -> ToolUse:
    """What the template is told. Texts with a control token's name in them (`marks`), or with
    characters of slots, become slots: they are text, whatever they say."""
    texts: list[str] = []

    def shown(value: Any) -> Any:
        if isinstance(value, dict):
            return {shown(key): shown(one) for key, one in value.items()}
        if isinstance(value, list):
            return [shown(one) for one in value]
        if not isinstance(value, str):
            return value
        if not (marks and marks.search(value)) and not PRIVATE.search(value):
            return value
        texts.append(json.dumps(value, ensure_ascii=False)[1:-1])
        return SLOT.format(len(messages) + len(texts) - 1)

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
                    "function": shown({key: call[key] for key in ("name", "arguments")}),
                }
                for call in made_calls(message)
            ]
            if not message["content"]:
                more["content"] = ""
        if more:
            fields[number] = more
    return ToolUse([shown(tool.definition()) for tool in tools], fields, texts)


def told_of_tools(messages: Sequence[Message], tools: Sequence[Tool]) -> list[Message]:
    """A conversation for a model whose template knows no tools: they are told in words, calls are
    text, and results are the user's."""
    found: list[Message] = []
    for message in messages:
        role, content = message["role"], message["content"]
        for call in made_calls(message):
            body = json.dumps({"name": call["name"], "arguments": call["arguments"]})
            content += f"\n{OPEN}\n{body}\n{CLOSE}"
        if role == "tool":
            role, content = "user", f"<tool_response>\n{content}\n</tool_response>"
        if found and found[-1]["role"] == role == "user":
            found[-1] = {"role": "user", "content": f"{found[-1]['content']}\n\n{content}"}
        else:
            found.append({"role": role, "content": content.lstrip("\n")})
    if not tools:
        return found
    told = INSTRUCTIONS.format("\n".join(json.dumps(tool.definition()) for tool in tools))
    if found and found[0]["role"] == "system":
        return [{"role": "system", "content": f"{found[0]['content']}\n\n{told}"}, *found[1:]]
    return [{"role": "system", "content": told}, *found]
