"""The formats in which models write calls of functions.

Each has its signs in a chat template, a function that reads its calls, and a grammar that forces
them.
"""

from __future__ import annotations

from engine.prompts.call_formats.call_format import CallFormat
from engine.prompts.call_formats.gemma_calls import GEMMA
from engine.prompts.call_formats.harmony_calls import HARMONY
from engine.prompts.call_formats.json_calls import GRANITE, HERMES, LLAMA, MISTRAL, MISTRAL_ARGS
from engine.prompts.call_formats.xml_calls import XML

# The first whose signs a template has is the model's.
FORMATS = (MISTRAL_ARGS, MISTRAL, HARMONY, GEMMA, GRANITE, XML, HERMES, LLAMA)
# All marks of calls. Where they are control tokens they are text in an answer that may call.
MARKS = tuple(dict.fromkeys(mark for format in FORMATS for mark in format.marks))


def format_of(template: str) -> CallFormat:
    """Return the format of a chat template.

    Without tools in it, it is Hermes's, whose prompt describes it.
    """
    if "tools" not in template:
        return HERMES
    known = (format for format in FORMATS if all(sign in template for sign in format.signs))
    return next(known, HERMES)
