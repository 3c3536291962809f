"""States of a sequence's linear-attention layers, with checkpoints to go back to.

The states cover the first `position` tokens. The inputs of the tokens behind them, which the last
pass computed and the caller accepted, wait in a log: the next pass applies them first. So a draft
that is not accepted leaves nothing to undo, and every token updates a state once, in order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from engine.model.model_config import LinearAttention, ModelConfig

Array = np.ndarray[Any, Any]

CHECKPOINT_TOKENS = 512  # tokens between two checkpoints along a prompt
MAX_CHECKPOINTS = 16  # checkpoints of a sequence


@dataclass(slots=True)
class LayerState:
    """The state of one layer.

    `state`: f32 [value heads, key dim, value dim]; `tail`: the convolution's last inputs f32
    [kernel - 1, channels]; `log`: the inputs behind them, those of the convolution f32 [capacity,
    channels] and of the gates f32 [capacity, value heads] each.
    """

    state: Array
    tail: Array
    log: tuple[Array, ...]
    applied: int = 0  # rows of the log that the state has already, where a pass was cut short

    def copy(self, rows: int) -> LayerState:
        """Copy the state with the first `rows` of the log."""
        log = tuple(column[:rows].copy() for column in self.log)
        return LayerState(self.state.copy(), self.tail.copy(), log, self.applied)

    def reserve(self, rows: int) -> None:
        """Grow the log to a capacity of `rows` rows."""
        if len(self.log[0]) < rows:
            grown = tuple(np.empty((rows, column.shape[1]), np.float32) for column in self.log)
            for new, old in zip(grown, self.log, strict=True):
                new[: len(old)] = old
            self.log = grown

    @property
    def nbytes(self) -> int:
        return self.state.nbytes + self.tail.nbytes + sum(column.nbytes for column in self.log)


@dataclass(slots=True)
class Checkpoint:
    """The states after the first `position` tokens."""

    position: int
    layers: list[tuple[Array, Array]]  # state and tail

    @property
    def nbytes(self) -> int:
        return sum(state.nbytes + tail.nbytes for state, tail in self.layers)


class RecurrentState:
    """The states of all linear-attention layers of one sequence."""

    def __init__(self, layers: list[LayerState]) -> None:
        self.layers = layers
        self.position = 0  # tokens that the states cover
        self.pending = 0  # tokens behind them, in the log
        self.last_start = 0  # row of the log at which the last pass's rows start
        self.checkpoints: list[Checkpoint] = []
        self.broken = False  # a prompt's pass was cut short: only checkpoints are left

    @classmethod
    def empty(cls, description: ModelConfig) -> RecurrentState:
        made = []
        for n in description.recurrent:
            one = description.layers[n].mixer
            assert isinstance(one, LinearAttention)
            made.append(
                LayerState(
                    np.zeros((one.value_heads, one.key_dim, one.value_dim), np.float32),
                    np.zeros((one.kernel - 1, one.channels), np.float32),
                    tuple(
                        np.empty((0, width), np.float32)
                        for width in (one.channels, one.value_heads, one.value_heads)
                    ),
                )
            )
        return cls(made)

    @property
    def tokens(self) -> int:
        """Tokens that the states and the log cover."""
        return self.position + self.pending

    @property
    def nbytes(self) -> int:
        layers = sum(layer.nbytes for layer in self.layers)
        return layers + sum(checkpoint.nbytes for checkpoint in self.checkpoints)

    def reusable(self, rows: int) -> int:
        """Count how many of the first `rows` tokens a sequence can reuse.

        They are all of them, or as many as the last checkpoint before has.
        """
        if not self.broken and self._in_log(rows):
            return rows
        return max(
            (checkpoint.position for checkpoint in self.checkpoints if checkpoint.position <= rows),
            default=0,
        )

    def truncate(self, rows: int) -> None:
        """Go back to the first `rows` tokens, a number that `reusable` gave."""
        if not self.broken and self._in_log(rows):
            self.pending = rows - self.position
        else:
            self._restore(rows)
        self.checkpoints = [
            checkpoint for checkpoint in self.checkpoints if checkpoint.position <= rows
        ]

    def copy(self, rows: int) -> RecurrentState:
        """Copy the states of the first `rows` tokens, a number that `reusable` gave."""
        made = RecurrentState([layer.copy(self.pending) for layer in self.layers])
        made.position, made.pending, made.broken = self.position, self.pending, self.broken
        made.checkpoints = list(self.checkpoints)
        made.truncate(rows)
        return made

    def begin_pass(self, rows: int, committed: bool) -> None:
        """Begin a pass of `rows` rows.

        `committed`: they are a chain that stays; otherwise `keep` says which ones stay.
        """
        self.broken |= committed  # until the pass is through all layers
        if not committed:
            for layer in self.layers:
                layer.reserve(self.pending + rows)

    def end_pass(self, rows: int, committed: bool) -> None:
        """End a pass that went through all layers: their states now include what was pending."""
        self.position += self.pending + (rows if committed else 0)
        self.last_start, self.pending = self.pending, 0
        for layer in self.layers:
            layer.applied = 0
        self.broken = False

    def keep(self, path: list[int]) -> None:
        """Keep the rows of the accepted path.

        They are the first of the last pass's rows, and those of the draft's nodes on `path`.
        """
        rows = np.array([0, *(node + 1 for node in path)]) + self.last_start
        for layer in self.layers:
            for log in layer.log:
                log[: len(rows)] = log[rows]
        self.pending = len(rows)

    def checkpoint(self, max_bytes: int) -> None:
        """Remember the states, which must cover all tokens.

        Where the checkpoints take more than `max_bytes`, or are too many, every second one is
        dropped, except the last one.
        """
        assert not self.pending and not self.broken
        if any(checkpoint.position == self.position for checkpoint in self.checkpoints):
            return
        layers = [(layer.state.copy(), layer.tail.copy()) for layer in self.layers]
        self.checkpoints.append(Checkpoint(self.position, layers))
        most = max(1, min(MAX_CHECKPOINTS, max_bytes // self.checkpoints[-1].nbytes))
        while len(self.checkpoints) > most:
            del self.checkpoints[-2::-2]

    def _in_log(self, rows: int) -> bool:
        """Return whether going back to `rows` tokens only shortens the log."""
        applied = max((layer.applied for layer in self.layers), default=0)
        return self.position + applied <= rows <= self.tokens

    def _restore(self, rows: int) -> None:
        found = next(
            (checkpoint for checkpoint in self.checkpoints if checkpoint.position == rows), None
        )
        for n, one in enumerate(self.layers):
            one.applied = 0
            if found is None:
                assert rows == 0
                one.state[:], one.tail[:] = 0.0, 0.0
            else:
                one.state[:], one.tail[:] = found.layers[n]
        self.position, self.pending, self.broken = rows, 0, False
