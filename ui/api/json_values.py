"""Reads JSON whose values are counted before any of them is made.

A few bytes of JSON take many of memory: 3 MB of `[],` become 60 MB of lists. Counting lets other
threads run every few milliseconds; parsing does not, and takes a tenth of a second at most.
"""

from __future__ import annotations

import gc
import json
import re
import threading
from contextlib import nullcontext
from typing import Any

LARGE_BYTES = 1 << 16  # bytes; a larger text is read in a thread
MAX_VALUES = 1 << 18  # values of a body: names, strings, numbers, lists and objects
BEGINS = re.compile(r'[\[{,:"]')  # the signs before a value; a string itself
# Part of a string, up to its end: short enough that it is matched in a millisecond
IN_STRING = re.compile(r'(?:[^"\\]{1,4096}+|\\.){0,64}+("?)', re.DOTALL)
_parsing = threading.Lock()


class TooManyValues(Exception):
    """JSON of more than MAX_VALUES values."""

    def __init__(self) -> None:
        super().__init__(f"the body has too many values: send at most {MAX_VALUES:,}")


def parsed(data: bytes) -> Any:
    """Parse JSON.

    ValueError or RecursionError where it is none, TooManyValues. Blocks where it is large: one such
    text is read at a time.
    """
    with _parsing if len(data) > LARGE_BYTES else nullcontext():
        text = data.decode(json.detect_encoding(data), "surrogatepass")
        if values_in(text) > MAX_VALUES:
            raise TooManyValues
        collects = gc.isenabled()
        gc.disable()  # collections take ten times as long as parsing where there are many lists
        try:
            return json.loads(text)
        finally:
            if collects:
                gc.enable()


def values_in(text: str) -> int:
    """Count the values in a JSON text, at least; up to MAX_VALUES and one more."""
    count = place = 0
    while count <= MAX_VALUES and (found := BEGINS.search(text, place)):
        place = found.end()
        if found[0] != '"':
            count += 1
            continue
        while place < len(text):
            part = IN_STRING.match(text, place)
            assert part is not None
            place = max(part.end(), place + 1)  # a lone backslash at the end is no JSON
            if part[1]:
                break
    return count
