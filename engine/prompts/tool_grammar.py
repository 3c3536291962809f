"""The grammar of answers that call tools, in the format of the model."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence

from engine.prompts.reasoning import CLOSING, OPENING
from engine.prompts.tokenizer import Tokenizer
from engine.prompts.tools import ANY_ARGUMENTS, CLOSE, OPEN, Format, Tool, format_of
from engine.records import Request, RequestError
from engine.sampling.grammar import Trigger, json_grammar

logger = logging.getLogger(__name__)

# Arguments are written as Python's json does, so that a template writes them in the same way again.
AS_JSON_DUMPS = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}


def call_grammar(
    tools: Sequence[Tool], form: Format, control: Mapping[str, int], many: bool
) -> str:
    """The grammar, for llguidance, of an answer that calls tools, more than once if there may be
    `many` calls. `control`: the ids of the model's control tokens."""
    rules = []
    for number, tool in enumerate(tools):
        schema = json.dumps((tool.parameters or ANY_ARGUMENTS) | {"x-guidance": AS_JSON_DUMPS})
        if form == "mistral-args":
            call = f"{json.dumps(tool.name)} {_mark('[ARGS]', control)} args_{number}"
        else:
            key = "parameters" if form == "llama" else "arguments"
            head = json.dumps(f'{{"name": {json.dumps(tool.name)}, "{key}": ')
            call = f'{head} args_{number} "}}"'
        rules.append(f"call_{number}: {call}\nargs_{number}: %json {schema}")
    one = f"one: {' | '.join(f'call_{number}' for number in range(len(tools)))}"
    newline, mark = json.dumps("\n"), _mark("[TOOL_CALLS]", control)
    first, last = f"{_mark(OPEN, control)} {newline}", f"{newline} {_mark(CLOSE, control)}"
    first, between, last = {
        "hermes": (first, f"{last} {newline} {first}", last),
        "mistral": (f'{mark} "["', '", "', '"]"'),
        "mistral-args": (mark, mark, ""),
        "llama": ("", '"; "', ""),
    }[form]
    more = f"({between} one)*" if many else ""
    return "\n".join(["%llguidance {}", f"start: {first} one {more} {last}", one, *rules])


def _mark(text: str, control: Mapping[str, int]) -> str:
    """A mark in a grammar: a token where the model has one, else text."""
    return f"<[{control[text]}]>" if text in control else json.dumps(text)


def grammar_of_calls(request: Request, tokenizer: Tokenizer) -> tuple[str, Trigger | None]:
    """The grammar of the answer to a request with tools. Where the model must call one it holds
    from the start, and a schema that cannot be enforced is a RequestError. Else it holds where the
    model begins a call with a control token, for which such a schema is any object; ("", None)
    where nothing tells at once that a call begins."""
    form = format_of("" if tokenizer.template is None else tokenizer.template.text)
    must = bool(request.must_call)
    trigger = None if must else trigger_of(form, tokenizer)
    if not must and trigger is None:
        return "", None
    tools = [Tool.of(text) for text in request.tools]
    if must:
        tools = [tool for tool in tools if tool.name in request.must_call]
    if not tools:
        raise RequestError("tools: there is none to call")
    known = [_enforceable(tool, must) for tool in tools]
    return call_grammar(known, form, tokenizer.control, many=not must), trigger


def trigger_of(form: Format, tokenizer: Tokenizer) -> Trigger | None:
    """The token that begins a call, outside of reasoning; None where no single token does."""
    mark = {"hermes": OPEN, "mistral": "[TOOL_CALLS]", "mistral-args": "[TOOL_CALLS]"}.get(form)
    marks = tokenizer.reasoning
    if mark not in tokenizer.control or (marks is not None and marks.texts):
        return None
    tokens = {} if marks is None else marks.tokens
    return Trigger(
        tokenizer.control[mark],
        frozenset(token for token, name in tokens.items() if name in OPENING),
        frozenset(token for token, name in tokens.items() if name in CLOSING),
    )


def _enforceable(tool: Tool, must: bool) -> Tool:
    """The tool. Where its schema cannot be enforced, with any arguments, or RequestError if it
    `must` be."""
    schema = {"type": "object"} | (tool.parameters or ANY_ARGUMENTS)
    try:
        if schema["type"] != "object":
            raise RequestError("the schema is of no object: arguments have names")
        json_grammar(schema)
    except RequestError as error:
        if must:
            raise RequestError(f"tools: {tool.name}: {error}") from None
        logger.info("tool %r: any arguments are allowed: %s", tool.name, error)
        schema = ANY_ARGUMENTS
    return Tool(tool.name, tool.description, schema)
