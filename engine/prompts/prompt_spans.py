"""Where the tokens of a prompt stand in the documents that it shows.

A message has a document's text in its `plain` form; places are those of the document. What the
model reads is decided elsewhere: this only tells what it was made of.
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

Turn = tuple[str, list[int]]  # a part of the prompt that was encoded by itself, and its ids
Places = NDArray[np.int64]


class Encoder(Protocol):
    """What is asked of a tokenizer."""

    def encode_with_offsets(self, text: str) -> tuple[NDArray[Any], NDArray[Any]]: ...


def places(
    passages: Sequence[Passage], turns: Sequence[Turn], encoder: Encoder
) -> Callable[[int], Span | None] | None:
    """Token of the prompt -> its place in a document, None where it is of none. A passage that no
    turn has as lines of its own is left out."""
    if not passages:
        return None

    @cache
    def known() -> dict[int, Span]:  # when the first draft is made, which may be never
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
    """Those of the passages that a text has, in their order, and where. They leave the list."""
    at = 0
    for passage in [*left]:
        shown = plain(passage.text)
        found = text.find(f"\n{shown}\n", at)
        if shown and found >= 0:
            left.remove(passage)
            at = found + len(shown) + 1
            yield found + 1, passage


def _spans(passage: Passage, starts: Places, stops: Places, first: int) -> dict[int, Span]:
    """The places of the tokens that lie inside a passage whole. `starts`, `stops`: code points
    from its start in the prompt; `first`: the number of their first token."""
    body = passage.text.lstrip(BOM)
    begin = passage.start + len(passage.text) - len(body)
    size = len(plain(body))
    ends = [one.start() - n for n, one in enumerate(re.finditer("\r\n", body))]  # in plain text

    def place(at: int) -> int:
        return begin + at + bisect_left(ends, at)

    inside = np.flatnonzero((starts >= 0) & (stops <= size) & (starts < stops))
    return {
        first + int(n): Span(passage.document, place(int(starts[n])), place(int(stops[n])))
        for n in inside
    }
