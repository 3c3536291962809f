"""Completions that were made: typing into one keeps it, and what became of each is counted.

Nothing of this leaves the process.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from dataclasses import dataclass
from itertools import count

from engine.editing.edits import plain
from lsp_server.completion.brackets import PAIRS
from lsp_server.completion.postprocess import fitted

MOST = 64  # completions remembered
HEAD, TAIL = 2000, 500  # characters around the place that must be as they were
TYPED = 400  # characters typed into a completion at most
CLOSERS = 2  # brackets or quotes that an editor closes by itself
STATES = ("made", "shown", "partly", "accepted")  # each reached once, in this order

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
    first: Completion | None = None  # what it is the rest of
    id: str = ""
    state: str = STATES[0]
    taken: int = 0  # characters accepted, in UTF-16

    def __post_init__(self) -> None:
        self.id = f"c{next(_numbers)}"


class Shown:
    """The latest completions of one client."""

    def __init__(self) -> None:
        self._by_id: OrderedDict[str, Completion] = OrderedDict()
        self.counts: Counter[str] = Counter()  # of states reached, and "kept": found again
        self.accepted = 0  # characters, in UTF-16

    def add(
        self, uri: str, text: str, offset: int, answers: list[str], lines: bool
    ) -> list[Completion]:
        """Remember what is offered at `text[offset]`, best first."""
        made = [Completion(uri, offset, *around(text, offset), one, lines) for one in answers]
        for one in reversed(made):  # the best is the first to be found
            self._remember(one)
        self.counts["made"] += len(made)
        return made

    def find(self, uri: str, text: str, offset: int) -> Completion | None:
        """What is left of a completion that was typed into, or to which typing came back."""
        for one in reversed(self._by_id.values()):
            rest = _rest(one, text, offset) if one.uri == uri else ""
            if not rest:
                continue
            self.counts["kept"] += 1
            if rest == one.text and one.offset == offset:
                self._by_id.move_to_end(one.id)
                return one
            sides = around(text, offset)
            kept = Completion(uri, offset, *sides, rest, one.lines, one.first or one)
            self._remember(kept)
            return kept
        return None

    def became(self, id: str, state: str, length: int = 0) -> None:
        """A completion was shown, partly accepted (its first `length` characters) or accepted."""
        one = self._by_id.get(id)
        if one is None:
            return
        first = one.first or one
        if STATES.index(state) > STATES.index(first.state):
            first.state = state
            self.counts[state] += 1
        longest = len(one.text.encode("utf-16-le")) // 2
        taken = longest if state == "accepted" else min(length, longest)
        self.accepted += max(0, taken - one.taken)
        one.taken = max(taken, one.taken)

    def _remember(self, one: Completion) -> None:
        self._by_id[one.id] = one
        while len(self._by_id) > MOST:
            self._by_id.popitem(last=False)


def around(text: str, offset: int) -> tuple[str, str]:
    """What stands before and behind a place, as far as it must stay as it is."""
    return text[max(0, offset - HEAD) : offset], text[offset : offset + TAIL]


def typed_since(one: Completion, text: str, offset: int) -> str | None:
    """What stands between the place of a completion and the cursor; None where anything else than
    that was changed. Behind the cursor stands what stood there, maybe after brackets that the
    editor closed."""
    if not 0 <= offset - one.offset <= TYPED:
        return None
    if text[max(0, one.offset - HEAD) : one.offset] != one.head:
        return None
    for closed in range(CLOSERS + 1):
        added = text[offset : offset + closed]
        if text[offset + closed : offset + closed + TAIL] == one.tail and all(
            char in PAIRS or char in "\"'`>" for char in added
        ):
            return plain(text[one.offset : offset])  # answers end lines in "\n"
    return None


def _rest(one: Completion, text: str, offset: int) -> str:
    """What of a completion still stands to be written at text[offset]; "" where it no longer fits:
    between its place and the cursor stands its own beginning."""
    typed = typed_since(one, text, offset)
    if typed is None or not one.text.startswith(typed):
        return ""
    rest = one.text[len(typed) :]
    if text[offset : offset + TAIL] == one.tail:
        return rest
    before, after = text[max(0, offset - HEAD) : offset], text[offset : offset + HEAD]
    return fitted(rest, before, after, one.lines)
