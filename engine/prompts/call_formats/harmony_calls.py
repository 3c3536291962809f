"""Calls of gpt-oss, in OpenAI's harmony format.

They are messages to a function, whose name is in the header, before or behind the channel
(https://cookbook.openai.com/articles/openai-harmony):

    <|start|>assistant<|channel|>commentary to=functions.NAME <|constrain|>json<|message|>{...}
"""

from __future__ import annotations

import re

from engine.prompts.call_formats.call_format import Call, CallFormat, HalfCall, Schemas
from engine.prompts.call_formats.json_calls import decoded, is_half, json_rules
from engine.prompts.reasoning import ASSISTANT, CHANNEL, MESSAGE, TO_FUNCTION

CONSTRAIN, END = "<|constrain|>", "<|call|>"
MAX_HEADER_CHARS = 400
RECIPIENT = re.compile(re.escape(TO_FUNCTION) + r"([\w.-]{1,128})")
HALF_HEADERS = (f" {TO_FUNCTION}", CHANNEL)


def read_message(text: str, at: int, schemas: Schemas) -> tuple[list[Call], int]:
    """Read the call in a message."""
    stop = text.find(MESSAGE, at, at + MAX_HEADER_CHARS)
    rest = text[at:]
    if stop < 0:
        begun = any(header.startswith(rest) or rest.startswith(header) for header in HALF_HEADERS)
        if begun and len(rest) < MAX_HEADER_CHARS:
            raise HalfCall
        return [], at
    names = RECIPIENT.findall(text, at, stop)
    value, end = decoded(text, stop + len(MESSAGE))
    if len(names) != 1:
        return [], at
    if isinstance(value, dict):
        end += len(END) * text.startswith(END, end)
        return [Call.of(names[0], value)], end
    if is_half(text[stop + len(MESSAGE) :]):
        raise HalfCall
    return [], at


HARMONY = CallFormat(
    "harmony",
    signs=(f"{CHANNEL}commentary",),
    opening=ASSISTANT,
    marks=(CHANNEL, CONSTRAIN, MESSAGE),
    read=read_message,
    rules=json_rules,
    first=f"{CHANNEL}commentary {TO_FUNCTION}",
    after_name=f" {CONSTRAIN}json{MESSAGE}",
)
