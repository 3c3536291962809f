"""The formats in which models write calls of functions: what each is known by in a chat template,
how its calls are read, and the grammar that forces them."""

from __future__ import annotations

from engine.prompts.call_formats.call_format import CallFormat
from engine.prompts.call_formats.gemma_calls import GEMMA
from engine.prompts.call_formats.harmony_calls import HARMONY
from engine.prompts.call_formats.json_calls import GRANITE, HERMES, LLAMA, MISTRAL, MISTRAL_ARGS
from engine.prompts.call_formats.xml_calls import XML

# The first whose signs a template has is the model's.
FORMATS = (MISTRAL_ARGS, MISTRAL, HARMONY, GEMMA, GRANITE, XML, HERMES, LLAMA)
# All marks of calls. Where they are control tokens they are text in an answer that may call.
MARKS = tuple(dict.fromkeys(mark for one in FORMATS for mark in one.marks))


def format_of(template: str) -> CallFormat:
    """The format of a chat template; Hermes's for one without tools, whose prompt describes it."""
    if "tools" not in template:
        return HERMES
    known = (one for one in FORMATS if all(sign in template for sign in one.signs))
    return next(known, HERMES)
