"""The common part of the two runtimes: their sequences, which the pool of KV caches holds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from engine.model.kv_cache import Sequence, SequencePool
from engine.model.native.recurrent_state import CHECKPOINT_TOKENS
from engine.records import Draft, RequestError


class PooledTarget:
    """A target whose current sequence is that of a pool."""

    pool: SequencePool
    epoch = 0
    head_tile = 0  # tokens whose logits can be computed without all others'; 0: none
    pending: tuple[int, Draft] | None = None  # token and draft of the last forward

    @property
    def sequence(self) -> Sequence:
        """The current sequence."""
        return self.pool.current

    @property
    def tokens(self) -> list[int]:
        """Tokens whose rows are in the cache, of the current sequence."""
        return self.sequence.tokens

    def begin(self, prompt: list[int], capacity: int, owner: str = "") -> int:
        """Begin a sequence as `Target.begin` does.

        RequestError where the prompt is empty or memory is short.
        """
        if not prompt:
            raise RequestError("the prompt is empty: nothing to continue")
        self.pending = None
        self.epoch += 1
        return self.pool.begin(prompt, capacity, owner)

    def resume(self, tokens: list[int], capacity: int, owner: str = "") -> None:
        """Resume a sequence as `Target.resume` does."""
        self.begin(tokens, capacity, owner)
        for _ in self.prefill(tokens, capacity, owner=owner):
            pass

    def prefill(
        self,
        prompt: list[int],
        capacity: int,
        on_chunk: Callable[[list[int], Any], None] | None = None,
        owner: str = "",
    ) -> Iterator[int]:
        """Read a prompt as `Target.prefill` does."""
        raise NotImplementedError

    def capacity(self) -> int:
        """Count the draft nodes that the cache of the current sequence can still take."""
        return self.sequence.capacity - len(self.tokens) - 1

    def _check_capacity(self, rows: int) -> None:
        if len(self.tokens) + rows > self.sequence.capacity:
            raise ValueError(
                f"the cache holds {self.sequence.capacity} rows: draft {self.capacity()} at most"
            )

    def _checkpoint(self, start: int, last: bool) -> None:
        """Remember the states of a model that has any, along a prompt and at its end.

        It is called after a chunk that begins at token `start`.
        """
        recurrent = self.sequence.recurrent
        if recurrent is None:
            return
        if last or start // CHECKPOINT_TOKENS < len(self.tokens) // CHECKPOINT_TOKENS:
            recurrent.checkpoint(self.pool.max_bytes // 2)

    def hand_back(self) -> None:
        """Hand the memory of all cached sequences back to the system; the weights stay."""
        self._forget_all()
        self.pool.clear()

    def _forget_all(self) -> None:
        """Drop all cached sequences, which are read again where needed."""
        self.epoch += 1
        self.pending = None
        self.pool.sequences.clear()
