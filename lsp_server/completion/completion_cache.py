"""The completions offered lately, so that typing into one keeps it, and those written lately.

Counts what became of them. Nothing of this leaves the process.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from dataclasses import dataclass
from itertools import count

from engine.editing.brackets import OPENER_OF
from engine.editing.edits import common_prefix, plain
from lsp_server.completion.postprocess import fit_to_context

MAX_COMPLETIONS = 64
MAX_WRITTEN = 2  # completions that the next one is drafted from
CONTEXT_BEFORE_CHARS, CONTEXT_AFTER_CHARS = 2000, 500  # characters that must stay unchanged
MAX_TYPED_CHARS = 400  # characters typed into a completion
MAX_AUTO_CLOSED = 2  # brackets or quotes that the editor inserted
STATES = ("made", "shown", "partly", "accepted")  # in this order, each reached at most once

_numbers = count(1)


@dataclass(slots=True, eq=False)
class Completion:
    """Text offered at an offset of a document."""

    uri: str
    offset: int  # code points
    before: str  # the text around the offset
    after: str
    text: str
    multiline: bool
    original: Completion | None = None  # the completion that this is the remainder of
    id: str = ""
    state: str = STATES[0]
    accepted_utf16: int = 0  # accepted so far, in UTF-16 code units

    def __post_init__(self) -> None:
        self.id = f"c{next(_numbers)}"


class CompletionCache:
    """The latest MAX_COMPLETIONS completions of one client."""

    def __init__(self) -> None:
        self._by_id: OrderedDict[str, Completion] = OrderedDict()
        # As the model writes them, unfinished and unchecked ones too
        self.written: deque[Completion] = deque(maxlen=MAX_WRITTEN)
        self.counts: Counter[str] = Counter()  # states reached, and "kept": reused while typing
        self.accepted = 0  # UTF-16 code units

    def add(
        self, uri: str, text: str, offset: int, answers: list[str], multiline: bool
    ) -> list[Completion]:
        """Add the completions offered at `text[offset]`, best first."""
        made = [
            Completion(uri, offset, *context_around(text, offset), answer, multiline)
            for answer in answers
        ]
        for answer in reversed(made):  # `find` returns the newest, which must be the best
            self._remember(answer)
        self.counts["made"] += len(made)
        return made

    def find(self, uri: str, text: str, offset: int) -> Completion | None:
        """Find the completion at a cursor, or what is left of it after its beginning was typed."""
        for shown in reversed(self._by_id.values()):
            rest = _remainder(shown, text, offset) if shown.uri == uri else ""
            if not rest:
                continue
            self.counts["kept"] += 1
            if rest == shown.text and shown.offset == offset:
                self._by_id.move_to_end(shown.id)
                return shown
            sides = context_around(text, offset)
            kept = Completion(uri, offset, *sides, rest, shown.multiline, shown.original or shown)
            self._remember(kept)
            return kept
        return None

    def expected(self, uri: str, text: str, offset: int) -> tuple[str, ...]:
        """Return what the model wrote here, newest first, from where something else was typed."""
        found = []
        for one in reversed(self.written):
            typed = typed_since(one, text, offset) if one.uri == uri else None
            if typed is not None:
                found.append(one.text[common_prefix(typed, one.text) :])
        return tuple(rest for rest in found if rest.strip())

    def record_state(self, id: str, state: str, length: int = 0) -> None:
        """Record that a completion was shown, partly accepted or accepted.

        `length`: the UTF-16 code units that were accepted of one partly accepted.
        """
        one = self._by_id.get(id)
        if one is None:
            return
        original = one.original or one
        if STATES.index(state) > STATES.index(original.state):
            original.state = state
            self.counts[state] += 1
        longest = len(one.text.encode("utf-16-le")) // 2
        taken = longest if state == "accepted" else min(length, longest)
        self.accepted += max(0, taken - one.accepted_utf16)
        one.accepted_utf16 = max(taken, one.accepted_utf16)

    def _remember(self, one: Completion) -> None:
        self._by_id[one.id] = one
        while len(self._by_id) > MAX_COMPLETIONS:
            self._by_id.popitem(last=False)


def context_around(text: str, offset: int) -> tuple[str, str]:
    """Return the text before and after an offset that must stay unchanged."""
    return text[max(0, offset - CONTEXT_BEFORE_CHARS) : offset], text[
        offset : offset + CONTEXT_AFTER_CHARS
    ]


def typed_since(one: Completion, text: str, offset: int) -> str | None:
    """Find the text typed between a completion's offset and the cursor.

    None if anything else changed, except for closing brackets that the editor inserted behind the
    cursor.
    """
    if not 0 <= offset - one.offset <= MAX_TYPED_CHARS:
        return None
    if text[max(0, one.offset - CONTEXT_BEFORE_CHARS) : one.offset] != one.before:
        return None
    for closed in range(MAX_AUTO_CLOSED + 1):
        added = text[offset : offset + closed]
        if text[offset + closed : offset + closed + CONTEXT_AFTER_CHARS] == one.after and all(
            char in OPENER_OF or char in "\"'`>" for char in added
        ):
            return plain(text[one.offset : offset])  # answers have "\n" line ends
    return None


def _remainder(one: Completion, text: str, offset: int) -> str:
    """Return what is left of a completion after its beginning was typed; "" after other text."""
    typed = typed_since(one, text, offset)
    if typed is None or not one.text.startswith(typed):
        return ""
    rest = one.text[len(typed) :]
    if text[offset : offset + CONTEXT_AFTER_CHARS] == one.after:
        return rest
    before = text[max(0, offset - CONTEXT_BEFORE_CHARS) : offset]
    after = text[offset : offset + CONTEXT_BEFORE_CHARS]
    return fit_to_context(rest, before, after, one.multiline)
