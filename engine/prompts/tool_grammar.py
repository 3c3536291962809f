"""The grammar of answers that call tools, in the format of the model."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping, Sequence

from engine.prompts.call_formats import MARKS
from engine.prompts.call_formats.call_format import CallFormat
from engine.prompts.reasoning import CLOSING, OPENING
from engine.prompts.tokenizer import Tokenizer
from engine.prompts.tools import ANY_ARGUMENTS, Tool
from engine.records import Request, RequestError
from engine.sampling.grammar import Trigger, check_grammar, json_grammar

logger = logging.getLogger(__name__)

HEADER = "%llguidance {}"
MARK = re.compile(f"({'|'.join(map(re.escape, MARKS))})")


def call_grammar(
    tools: Sequence[Tool], form: CallFormat, control: Mapping[str, int], many: bool
) -> str:
    """Make the grammar, for llguidance, of an answer that calls tools.

    It calls more than one if there may be `many` calls. `control`: the ids of the model's control
    tokens. RequestError for a schema that it cannot enforce.
    """

    def mark(text: str) -> str:
        """Write a token where the model has one of this name, else text."""
        return f"<[{control[text]}]>" if text in control else json.dumps(text)

    def written(text: str) -> str:
        """Write a text with marks."""
        return " ".join(mark(part) for part in MARK.split(text) if part)

    rules = []
    for number, tool in enumerate(tools):
        name, arguments = json.dumps(tool.name), f"args_{number}"
        before, after = written(form.before_name), written(form.after_name)
        rules.append(
            f"call_{number}: {before} {name} {after} {arguments} {written(form.after_arguments)}"
        )
        rules += form.rules(arguments, tool.parameters or ANY_ARGUMENTS, mark)
    one = f"one: {' | '.join(f'call_{number}' for number in range(len(tools)))}"
    more = f"({written(form.between)} one)*" if many and form.between else ""
    start = f"start: {written(form.first)} one {more} {written(form.last)}"
    return "\n".join([HEADER, start, one, *rules])


def with_calls(request: Request, tokenizer: Tokenizer) -> str:
    """Make the grammar of an answer that follows the request's grammar or calls tools.

    It only calls where the model must.
    """
    calls, _ = grammar_of_calls(request, tokenizer, start=True)
    if request.must_call:
        return calls
    try:
        (answer,) = json.loads(request.grammar)["grammars"]
    except ValueError:
        answer = {"lark_grammar": request.grammar}
    parts = [{"lark_grammar": "start: @answer | @calls"}]
    parts += [answer | {"name": "answer"}, {"name": "calls", "lark_grammar": calls}]
    return json.dumps({"grammars": parts})


def grammar_of_calls(
    request: Request, tokenizer: Tokenizer, start: bool = False
) -> tuple[str, Trigger | None]:
    """Make the grammar of the answer to a request with tools.

    Where the model must call one it holds from the start, and a schema that cannot be enforced is a
    RequestError; with `start` it holds from there for calls that are free. Else it holds where the
    model begins a call with a control token. Where it is free, a schema that cannot be enforced is
    any object; ("", None) where nothing tells at once that a call begins.
    """
    form = tokenizer.call_format
    must = bool(request.must_call)
    trigger = None if must or start else trigger_of(form, tokenizer)
    if not (must or start) and trigger is None:
        return "", None
    tools = [Tool.of(text) for text in request.tools]
    if must:
        tools = [tool for tool in tools if tool.name in request.must_call]
    if not tools:
        raise RequestError("tools: there is none to call")
    known = [_enforceable(tool, form, tokenizer.control, must) for tool in tools]
    return call_grammar(known, form, tokenizer.control, many=not must), trigger


def trigger_of(form: CallFormat, tokenizer: Tokenizer) -> Trigger | None:
    """Return the token that begins a call, outside of reasoning.

    None where no single token does.
    """
    mark, marks = form.opening, tokenizer.reasoning
    if mark not in tokenizer.control or not form.first.startswith(mark):
        return None
    if marks is not None and marks.texts:
        return None
    tokens = {} if marks is None else marks.tokens
    return Trigger(
        tokenizer.control[mark],
        frozenset(token for token, name in tokens.items() if name in OPENING),
        frozenset(token for token, name in tokens.items() if name in CLOSING),
    )


def _enforceable(tool: Tool, form: CallFormat, control: Mapping[str, int], must: bool) -> Tool:
    """Return the tool, with any arguments where its schema cannot be enforced.

    If it `must` be, that is a RequestError.
    """
    schema = {"type": "object"} | (tool.parameters or ANY_ARGUMENTS)
    try:
        if schema["type"] != "object":
            raise RequestError("the schema is of no object: arguments have names")
        json_grammar(schema)
        check_grammar(call_grammar([Tool(tool.name, "", schema)], form, control, many=False))
    except RequestError as error:
        if must:
            raise RequestError(f"tools: {tool.name}: {error}") from None
        logger.info("tool %r: any arguments are allowed: %s", tool.name, error)
        schema = ANY_ARGUMENTS
    except RecursionError:
        raise RequestError(f"tools: {tool.name}: the schema is nested too deeply") from None
    return Tool(tool.name, tool.description, schema)
