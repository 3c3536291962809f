"""Drafting with the model's own layer that predicts the token after the next (MTP).

The layer has keys and values of its own. A row of it is a token and the model's state behind the
token before. Behind the committed text the layer's own states stand for the model's, and the next
round writes over those rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from engine.drafting.reduced_head import reduced_head
from engine.model.native.forward_pass import Array, PassRows

if TYPE_CHECKING:
    from engine.model.native.mtp import MtpHead

PASS_ROWS = 128  # rows of a pass over committed tokens, at most
GROWTH_ROWS = 256  # rows by which the cache grows


class MtpSource:
    """The layer and its cache, as the source of a `DraftModel`. Serves one answer."""

    needs_states = True

    def __init__(self, layer: MtpHead, tile: int) -> None:
        """Start with nothing read. `tile`: tokens whose logits are computed together, or 0."""
        self.layer = layer
        self.head = reduced_head(layer.model.vocab, tile)
        self._cache = layer.new_cache(GROWTH_ROWS)
        self._rows = 0  # rows of committed tokens in the cache
        self._first = 0  # position of the first of them
        # The model's states, of which each waits for the token behind it to make a row of: those of
        # many passes where another drafter's drafts go on being accepted
        self._waiting: list[Array] = []
        self._text: list[int] = []  # the tokens behind them
        self._drafted = 0  # rows of this round's draft, the first of which is the last token's
        self._state: Array | None = None  # [1, width]: the layer's, behind the last of them

    def observe_prompt(self, target: Any, tokens: list[int], states: Any) -> None:
        """Read a chunk of the prompt that the model has just read."""
        start = len(target.tokens) - len(tokens)
        if not self._waiting or start != self._first + self._rows:  # or it is read again
            self._waiting, self._rows, self._first = [], 0, start + 1
        known = np.concatenate([*self._waiting, states])
        self._read(tokens[len(tokens) + 1 - len(known) :], known[:-1])
        self._waiting = [known[-1:].copy()]

    def prepare(self, text: list[int], capacity: int) -> int:
        """Return how many tokens may be drafted behind the committed `text`.

        None before the model's state behind its last token but one is known.
        """
        waiting = sum(map(len, self._waiting))
        if not self._rows:  # nothing of the prompt had to be read
            self._first = len(text) - waiting
        if not waiting or self._first + self._rows + waiting != len(text):
            return 0
        self._text, self._drafted, self._state = text[-waiting:], 0, None
        if self.head is not None:
            self.head.follow(text)
        return min(capacity, self.layer.model.max_positions - len(text))

    def step(self, token: int) -> tuple[Array, Array]:
        """Read one token, and return logits [vocabulary] and a state [width] behind it."""
        if self._state is not None:
            self._state = self._run([token], self._state, self._rows + self._drafted - 1)
        else:
            self._state = self._read(self._text, np.concatenate(self._waiting))
            self._waiting = []
        self._drafted += 1
        tiles = None if self.head is None else self.head.tiles
        return self.layer.head(self._state, tiles)[0], self._state[0]

    def observe(self, path: list[int], scores: Any) -> None:
        """Note the model's states behind the tokens that a pass has read and that stay."""
        rows = [0, *(node + 1 for node in path)]
        self._waiting.append(scores.hidden[rows])

    def _read(self, tokens: list[int], states: Array) -> Array:
        """Read committed tokens, and return the layer's state [1, width] behind the last one."""
        state = states[:0]  # [0 or 1, width]
        for start in range(0, len(tokens), PASS_ROWS):
            some = slice(start, start + PASS_ROWS)
            state = self._run(tokens[some], states[some], self._rows)
            self._rows += len(tokens[some])
        return state

    def _run(self, tokens: list[int], states: Array, base: int) -> Array:
        """Run rows from row `base` on, and return the layer's last state [1, width]."""
        count, capacity = len(tokens), self._cache.shape[3]
        if base + count > capacity:
            grown = self.layer.new_cache(base + count + max(GROWTH_ROWS, base // 2))
            grown[..., :base, :] = self._cache[..., :base, :]
            self._cache = grown
        positions = np.arange(base, base + count, dtype=np.int64) + self._first
        rows = PassRows(base, np.arange(-1, count - 1, dtype=np.int32), positions)
        found = self.layer.run(np.array(tokens, np.int64), states, rows, self._cache)
        return np.ascontiguousarray(found[-1:])
