"""Completions that were made: typing into one keeps it, and what became of each is counted.

Nothing of this leaves the process.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from dataclasses import dataclass
from itertools import count

from lsp_server.shape import fitted

MOST = 64  # completions remembered
HEAD, TAIL = 2000, 500  # characters around the place that must be as they were
TYPED = 200  # characters typed into a completion at most

_numbers = count(1)


@dataclass(slots=True, eq=False)
class Completion:
    """Text offered at a place."""

    uri: str
    offset: int  # code points
    head: str  # what stood before the place
    tail: str  # and behind it
    text: str
    lines: bool
    id: str = ""
    state: str = "made"  # made, shown, partly, accepted

    def __post_init__(self) -> None:
        self.id = f"c{next(_numbers)}"


class Shown:
    """The latest completions of one client."""

    def __init__(self) -> None:
        self._by_id: OrderedDict[str, Completion] = OrderedDict()
        self.counts: Counter[str] = Counter()  # of states reached, and "kept": found again
        self.accepted = 0  # characters

    def add(self, uri: str, text: str, offset: int, answer: str, lines: bool) -> Completion:
        """Remember what is offered at `text[offset]`."""
        head, tail = text[max(0, offset - HEAD) : offset], text[offset : offset + TAIL]
        one = Completion(uri, offset, head, tail, answer, lines)
        self._by_id[one.id] = one
        self.counts["made"] += 1
        while len(self._by_id) > MOST:
            self._by_id.popitem(last=False)
        return one

    def find(self, uri: str, text: str, offset: int) -> Completion | None:
        """What is left of a completion that was typed into, or to which typing came back."""
        for one in reversed(self._by_id.values()):
            if one.uri != uri:
                continue
            rest = _rest(one, text, offset)
            if rest:
                self.counts["kept"] += 1
                if rest == one.text and one.offset == offset:
                    return one
                kept = self.add(uri, text, offset, rest, one.lines)
                self.counts["made"] -= 1
                return kept
        return None

    def became(self, id: str, state: str, length: int = 0) -> None:
        """A completion was shown, partly accepted (its first `length` characters) or accepted."""
        one = self._by_id.get(id)
        if one is None or one.state == state:
            return
        one.state = state
        self.counts[state] += 1
        self.accepted += length or (len(one.text) if state == "accepted" else 0)


def _rest(one: Completion, text: str, offset: int) -> str:
    """What of a completion still stands to be written at text[offset]; "" where it no longer fits.

    Between its place and the cursor stands its own beginning. Behind the cursor stands what stood
    there, maybe after a bracket that the editor closed."""
    typed = offset - one.offset
    if not 0 <= typed <= TYPED or typed > len(one.text):
        return ""
    if text[max(0, one.offset - HEAD) : one.offset] != one.head:
        return ""
    if text[one.offset : offset] != one.text[:typed]:
        return ""
    rest = one.text[typed:]
    if text[offset : offset + TAIL] == one.tail:
        return rest
    closed = next((n for n in (1, 2) if text[offset + n : offset + n + TAIL] == one.tail), 0)
    if closed and all(char in ")]}\"'`>" for char in text[offset : offset + closed]):
        return fitted(rest, text[max(0, offset - HEAD) : offset], text[offset:], one.lines)
    return ""
