"""Finds the places in documents that a prompt quotes, by token.

Messages quote documents in their `plain` form (LF line ends, no BOM); Spans refer to the documents
themselves.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from engine.editing.edits import BOM, plain
from engine.records import Passage
from index.records import Span

Turn = tuple[str, list[int]]  # a part of the prompt that was encoded by itself: text and ids
Offsets = NDArray[np.int64]  # code points


class OffsetEncoder(Protocol):
    """The part of a tokenizer that is needed here."""

    def encode_with_offsets(self, text: str) -> tuple[NDArray[Any], NDArray[Any]]: ...


def places(
    passages: Sequence[Passage], turns: Sequence[Turn], encoder: OffsetEncoder
) -> Callable[[int], Span | None] | None:
    """Return a function from a token of the prompt to its Span in a document, or to None.

    Passages that no turn quotes as lines of their own are left out.
    """
    if not passages:
        return None

    @cache
    def known() -> dict[int, Span]:  # computed when a draft first asks
        found: dict[int, Span] = {}
        left = [*passages]
        first = 0
        for text, ids in turns:
            if here := [*_inside(text, left)]:
                _, starts = encoder.encode_with_offsets(text)
                stops = np.append(starts, len(text))[np.searchsorted(starts, starts, "right")]
                for at, passage in here:
                    found |= _spans(passage, starts - at, stops - at, first)
            first += len(ids)
        return found

    return lambda token: known().get(token)


def _inside(text: str, left: list[Passage]) -> Iterator[tuple[int, Passage]]:
    """Yield the passages that a text quotes, with their offsets; they are removed from `left`."""
    at = 0
    for passage in [*left]:
        shown = plain(passage.text)
        found = text.find(f"\n{shown}\n", at)
        if shown and found >= 0:
            left.remove(passage)
            at = found + len(shown) + 1
            yield found + 1, passage


def _spans(passage: Passage, starts: Offsets, stops: Offsets, first: int) -> dict[int, Span]:
    """Return the spans of the tokens that are entirely inside a passage.

    `starts`, `stops`: code points from the passage's start in the prompt; `first`: the index of the
    first token.
    """
    body = passage.text.lstrip(BOM)
    begin = passage.start + len(passage.text) - len(body)
    size = len(plain(body))
    crlfs = re.finditer("\r\n", body)
    ends = [crlf.start() - n for n, crlf in enumerate(crlfs)]  # in the plain text

    def place(at: int) -> int:
        return begin + at + bisect_left(ends, at)

    inside = np.flatnonzero((starts >= 0) & (stops <= size) & (starts < stops))
    return {
        first + int(n): Span(passage.document, place(int(starts[n])), place(int(stops[n])))
        for n in inside
    }
