"""Tools that a model may call: what its chat template is told of them, the calls that it writes,
and the grammar that makes it write valid ones.

Models write calls in one of a few formats: Hermes's (Qwen and most others), Mistral's, and Llama
3's, a JSON object without marks. The format is the one of the model's chat template.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from engine.prompts.chat_template import SLOT, ToolUse
from engine.records import Message, Request, RequestError
from engine.sampling.grammar import json_grammar

if TYPE_CHECKING:
    from engine.prompts.tokenizer import Tokenizer

logger = logging.getLogger(__name__)

Format = Literal["hermes", "mistral", "llama"]
Choice = Literal["auto", "required"]

# Marks of calls. Where they are control tokens they are text in an answer of a request with tools.
MARKS = ("<tool_call>", "</tool_call>", "[TOOL_CALLS]", "[ARGS]", "[CALL_ID]", "<|python_tag|>")
OPEN, CLOSE = "<tool_call>", "</tool_call>"
BEGINNINGS = (OPEN, "[TOOL_CALLS]", "<|python_tag|>")
FENCED = re.compile(r"\s*```(?:json|xml)?\s*(\{.*\})\s*```\s*", re.DOTALL)
PRIVATE = re.compile("[\ue000\ue001]")  # what slots are made of
CALL_OF_MISTRAL = re.compile(r"\s*([\w.-]{1,128})(?:\[CALL_ID\]\w*)?(?:\[ARGS\])?\s*(?=\{)")

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
        """A tool from its JSON text, as requests have it."""
        fields = json.loads(text)
        return cls(fields["name"], fields.get("description", ""), fields.get("parameters"))

    def definition(self) -> dict[str, Any]:
        """As chat templates expect it."""
        function: dict[str, Any] = {"name": self.name}
        if self.description:
            function["description"] = self.description
        function["parameters"] = self.parameters or {"type": "object", "properties": {}}
        return {"type": "function", "function": function}


def format_of(template: str) -> Format:
    """The format of calls that a chat template speaks of."""
    if "[TOOL_CALLS]" in template:
        return "mistral"
    if OPEN not in template and "<|python_tag|>" in template:
        return "llama"
    return "hermes"


# -- the calls in an answer --------------------------------------------------------------------


def read_calls(text: str, names: Collection[str]) -> tuple[str, list[Call]]:
    """An answer's text before the first call, and its calls. A call that is cut off, or of a
    function that is not among `names`, is none; what stands between calls is dropped."""
    starts = [at for at in (text.find(mark) for mark in BEGINNINGS) if at >= 0]
    if starts:
        content, rest = text[: min(starts)], text[min(starts) :]
        calls = [call for call in _marked(rest) if call.name in names]
        return (content.rstrip(), calls) if calls else (text, [])
    bare = FENCED.fullmatch(text)
    calls = [*_objects(bare[1] if bare else text.strip(), whole=True)]
    return ("", calls) if calls and all(one.name in names for one in calls) else (text, [])


def held_back(text: str) -> int:
    """How many characters at the end of an unfinished answer may belong to a call."""
    starts = [at for at in (text.find(mark) for mark in BEGINNINGS) if at >= 0]
    if starts:
        return len(text) - min(starts)
    if text.lstrip()[:1] in ("", "{", "`", "["):
        return len(text)
    longest = max(map(len, BEGINNINGS)) - 1
    for count in range(min(len(text), longest), 0, -1):
        if any(mark.startswith(text[-count:]) for mark in BEGINNINGS):
            return count
    return 0


def _marked(text: str) -> Iterator[Call]:
    """The calls of a text that begins with a mark."""
    if text.startswith("[TOOL_CALLS]"):
        for part in text.split("[TOOL_CALLS]")[1:]:
            yield from _mistral(part)
    elif text.startswith("<|python_tag|>"):
        yield from _objects(text.removeprefix("<|python_tag|>"))
    else:
        for part in text.split(OPEN)[1:]:
            yield from _objects(part)


def _mistral(text: str) -> Iterator[Call]:
    """`[{"name": ..., "arguments": {...}}, ...]`, or `name[ARGS]{...}` of the newer models."""
    named = CALL_OF_MISTRAL.match(text)
    if not named:
        yield from _objects(text)
    elif (found := _decoded(text, named.end())) and isinstance(found[0], dict):
        yield Call(named[1], _text(found[0]))


def _objects(text: str, whole: bool = False) -> Iterator[Call]:
    """The calls in JSON objects, or lists of them, at the start of a text. `whole`: nothing else
    may stand there."""
    calls: list[Call] = []
    at = 0
    while found := _decoded(text, at):
        value, at = found
        for one in value if isinstance(value, list) else [value]:
            if (call := _call(one)) is None:
                return
            calls.append(call)
        at += len(text[at:]) - len(text[at:].lstrip(" \n\t;,"))
    if not whole or at == len(text):
        yield from calls


def _decoded(text: str, at: int) -> tuple[Any, int] | None:
    """The JSON value at a place, and its end."""
    at += len(text[at:]) - len(text[at:].lstrip())
    if text[at : at + 1] not in ("{", "["):
        return None
    try:
        return json.JSONDecoder().raw_decode(text, at)
    except (ValueError, RecursionError):
        return None


def _call(value: Any) -> Call | None:
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        return None
    arguments = value.get("arguments", value.get("parameters"))
    if isinstance(arguments, str):  # JSON in JSON
        found = _decoded(arguments, 0)
        arguments = found[0] if found else None
    return Call(value["name"], _text(arguments)) if isinstance(arguments, dict) else None


def _text(arguments: dict[str, Any]) -> str:
    return json.dumps(arguments, ensure_ascii=False)


# -- the grammar of calls ----------------------------------------------------------------------


def call_grammar(
    tools: Sequence[Tool], choice: Choice, form: Format, control: Collection[str], many: bool
) -> str:
    """The grammar, for llguidance, of an answer that calls tools: at least once if they are
    `required`, else where it begins a call. `control`: the model's control tokens; `many`: more
    than one call is allowed."""
    rules = ["%llguidance {}"]
    names = []
    for number, tool in enumerate(tools):
        schema = json.dumps(tool.parameters or {"type": "object"})
        key = "parameters" if form == "llama" else "arguments"
        head = json.dumps(f'{{"name": {json.dumps(tool.name)}, "{key}": ')
        rules.append(f'call_{number}: {head} args_{number} "}}"\nargs_{number}: %json {schema}')
        names.append(f"call_{number}")
    if not names:
        raise RequestError("tools: there is none to call")
    rules.append(f"one: {' | '.join(names)}")

    def mark(text: str) -> str:
        """A control token by its name, which grammars have in angle brackets only, else text."""
        return text if text in control and text.startswith("<") else json.dumps(text)

    if form == "hermes":
        rules.append(f'call: {mark(OPEN)} "\\n" one "\\n" {mark(CLOSE)}')
        calls = 'call ("\\n" call)*' if many else "call"
    elif form == "mistral":
        calls = f'{mark("[TOOL_CALLS]")} "[" one' + (' (", " one)*' if many else "") + ' "]"'
    else:
        calls = "one"
    if choice == "required":
        return "\n".join([rules[0], f"start: {calls}", *rules[1:]])
    if form != "hermes" or OPEN not in control:
        return ""  # nothing but a control token tells at once that a call begins
    text = "TEXT: /(.|\\n)*/"
    return "\n".join([rules[0], f"start: TEXT ({calls})?", text, *rules[1:]])


def grammar_of_calls(request: Request, tokenizer: Tokenizer) -> str:
    """The grammar of the answer to a request with tools; "" for text that may be anything. Where
    the model need not call, a schema that cannot be enforced is any object; where it must,
    RequestError."""
    template = "" if tokenizer.template is None else tokenizer.template.text
    tools = [Tool.of(text) for text in request.tools]
    if request.must_call:
        tools = [tool for tool in tools if tool.name in request.must_call]
    for number, tool in enumerate(tools):
        try:
            json_grammar(tool.parameters or {"type": "object"})
        except RequestError as error:
            if request.must_call:
                raise RequestError(f"tools: {tool.name}: {error}") from None
            logger.info("tool %r: any arguments are allowed: %s", tool.name, error)
            tools[number] = Tool(tool.name, tool.description, {"type": "object"})
    choice: Choice = "required" if request.must_call else "auto"
    form = format_of(template)
    return call_grammar(tools, choice, form, tokenizer.control, many=choice == "auto")


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
            key: shown(message[key]) for key in ("name", "tool_call_id") if key in message
        }
        if "tool_calls" in message:
            more["tool_calls"] = [
                {
                    "id": shown(call["id"]),
                    "type": "function",
                    "function": shown({key: call[key] for key in ("name", "arguments")}),
                }
                for call in json.loads(message["tool_calls"])
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
        for call in json.loads(message.get("tool_calls", "[]")):
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
