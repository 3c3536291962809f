"""KV caches of recent sequences, so that a prompt that shares a prefix with one is not read again.

Their arrays are numpy's or torch's, as the runtime has them. Nothing here runs the model.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from engine.model.native.recurrent_state import RecurrentState
from engine.records import RequestError

ALLOCATION_ROWS = 256  # rows; capacities are multiples of it


@dataclass(slots=True)
class Sequence:
    """One cached sequence: row i of the cache belongs to tokens[i]."""

    tokens: list[int] = field(default_factory=list)
    # keys and values [2, layers, kv heads, capacity, head dim], one array for each device, or for
    # each shape of heads
    cache: tuple[Any, ...] = ()
    states: Any = None  # [capacity, width]: final hidden states of the rows, where they are kept
    recurrent: RecurrentState | None = None  # states of a model with linear attention
    owner: str = ""  # key whose text it is

    @property
    def capacity(self) -> int:
        """Rows that the cache has memory for."""
        return int(self.cache[0].shape[3]) if self.cache else 0

    @property
    def nbytes(self) -> int:
        states = 0 if self.states is None else self.states.nbytes
        recurrent = 0 if self.recurrent is None else self.recurrent.nbytes
        return int(sum(part.nbytes for part in self.cache)) + states + recurrent

    def reusable(self, rows: int) -> int:
        """Count how many of the first `rows` tokens another text that starts with them can use."""
        return rows if self.recurrent is None else self.recurrent.reusable(rows)

    def assume(self, tokens: list[int]) -> None:
        """Take what is in the cache for that of `tokens`, to time passes behind them."""
        self.tokens = tokens
        if self.recurrent is not None:
            self.recurrent.position, self.recurrent.pending = len(tokens), 0

    def truncate(self, rows: int) -> None:
        """Go back to the first `rows` tokens, a number that `reusable` gave."""
        if self.recurrent is not None:
            self.recurrent.truncate(rows)
        del self.tokens[rows:]


class SequencePool:
    """The cached sequences, least recently used first; the last one is current."""

    def __init__(
        self,
        allocate: Callable[[Sequence, int, int], Sequence],
        max_sequences: int,
        max_bytes: int,
        give_back: Callable[[], None] = lambda: None,
    ) -> None:
        """Make a pool without sequences.

        `allocate(source, rows, capacity)` copies the first rows of a sequence into new memory;
        MemoryError where there is none left. `give_back` frees that of dropped sequences. The
        current sequence is kept whatever its size.
        """
        self.allocate, self._give_back = allocate, give_back
        self.max_sequences, self.max_bytes = max_sequences, max_bytes
        self.sequences: list[Sequence] = []
        # the level below: given the tokens of a prompt, how many of them a sequence has here, and
        # the capacity needed, a new sequence that has many more, and their number
        self.find_stored: Callable[[list[int], int, int], tuple[Sequence, int] | None] = (
            lambda tokens, cached, need: None
        )

    @property
    def current(self) -> Sequence:
        return self.sequences[-1]

    def empty(self) -> SequencePool:
        """Make another pool with the same limits, without sequences."""
        return SequencePool(self.allocate, self.max_sequences, self.max_bytes, self._give_back)

    def begin(self, prompt: list[int], capacity: int, owner: str = "") -> int:
        """Make current the owner's sequence that shares the longest prefix with `prompt`.

        It can take `capacity` more rows. Returns how many of the prompt's tokens it holds, at most
        all but one. RequestError where there is no memory for it.
        """
        shared = [
            sequence.reusable(common_prefix(sequence.tokens, prompt[:-1]))
            if sequence.owner == owner
            else 0
            for sequence in self.sequences
        ]
        need = -(-(len(prompt) + capacity + 1) // ALLOCATION_ROWS) * ALLOCATION_ROWS
        best = max(range(len(shared)), key=lambda n: shared[n], default=-1)
        cached = shared[best] if best >= 0 else 0
        try:
            stored = None if owner else self.find_stored(prompt[:-1], cached, need)
            current, cached = stored or (self._continued(best, cached, need), cached)
        except MemoryError:
            cached, current = 0, self._alone(need)
        current.truncate(cached)
        current.owner = owner
        self.sequences.append(current)
        self._evict()
        return cached

    def clear(self) -> None:
        """Drop all sequences, and free their memory."""
        self.sequences.clear()
        self._give_back()

    def demote_current(self) -> None:
        """Make the current sequence the first to be dropped. `begin` must follow."""
        self.sequences = [*self.sequences[-1:], *self.sequences[:-1]]

    def _continued(self, best: int, cached: int, need: int) -> Sequence:
        """Continue the cached sequence itself where at least half of it goes on, else a copy."""
        if cached and cached * 2 >= len(self.sequences[best].tokens):
            current = self.sequences.pop(best)
            if current.capacity >= need:
                return current
            return self.allocate(current, cached, need)
        return self.allocate(self.sequences[best] if cached else Sequence(), cached, need)

    def _alone(self, need: int) -> Sequence:
        """Make a new sequence after dropping all others, where memory is short."""
        self.clear()
        try:
            return self.allocate(Sequence(), 0, need)
        except MemoryError as error:
            raise RequestError(
                f"there is no memory for {need} tokens: select fewer lines, or ask for a shorter "
                "answer"
            ) from error

    def _evict(self) -> None:
        while len(self.sequences) > 1 and (
            len(self.sequences) > self.max_sequences
            or sum(sequence.nbytes for sequence in self.sequences) > self.max_bytes
        ):
            del self.sequences[0]


def common_prefix(one: list[int], other: list[int]) -> int:
    """Count the tokens of the longest common prefix."""
    length = min(len(one), len(other))
    if one[:length] == other[:length]:
        return length
    return next(n for n in range(length) if one[n] != other[n])
