"""For tests of prefixes on disk: a tiny model, and a target without one, in which every number of
the cache and the states tells the tokens before it, so that a wrong row is seen at once."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any

import numpy as np

from engine.model.kv_cache import Sequence, SequencePool
from engine.model.native.recurrent_state import LayerState, RecurrentState
from engine.model.pooled_target import PooledTarget
from engine.model.prefix_store import FOLDER, PrefixStore
from tests.conftest import tiny_model
from tests.support.gguf_of_model import VOCABULARY, write_gguf_of

CODE = "".join(f"def part_{n}(left, right):\n    return left + right * {n}\n" for n in range(24))
CHUNK = 64  # tokens; there is a checkpoint behind each chunk
SHAPES = ((2, 3, 8), (1, 1, 16))  # layers, heads and dimensions of the arrays of a cache
TOKENIZER = "a tokenizer"


class RowsTarget(PooledTarget):
    """Its own model, too. `read` checks what the cache has of a prompt, and computes the rest."""

    dtype_name, kv, weights_digest, context = "stored", "auto", "some weights", 4096

    def __init__(self, has_states: bool = False, name: str = "model") -> None:
        self.folder, self.has_states = Path(name), has_states
        self.pool = SequencePool(self._allocate, 4, 1 << 30)

    @property
    def model(self) -> Any:
        return self

    def new_cache(self, capacity: int) -> tuple[Any, ...]:
        return tuple(np.zeros((2, n, heads, capacity, d), np.float32) for n, heads, d in SHAPES)

    def recurrent_state(self) -> RecurrentState | None:
        if not self.has_states:
            return None
        log = tuple(np.zeros((0, width), np.float32) for width in (4, 1, 1))
        state, tail = np.zeros((2, 3, 5), np.float32), np.zeros((3, 4), np.float32)
        return RecurrentState([LayerState(state, tail, log)])

    def _allocate(self, source: Sequence, rows: int, capacity: int) -> Sequence:
        cache = self.new_cache(capacity)
        for part, old in zip(cache, source.cache, strict=False):
            part[..., :rows, :] = old[..., :rows, :]
        states = source.recurrent.copy(rows) if source.recurrent else self.recurrent_state()
        return Sequence(source.tokens[:rows], cache, None, states)

    def read(self, prompt: list[int], owner: str = "") -> int:
        """Read a prompt but its last token; returns how many of its tokens were cached."""
        cached, marks = self.begin(prompt, 8, owner), marks_of(prompt)
        assert self.tokens == prompt[:cached]
        self._check(marks, cached)
        for start in range(cached, len(prompt) - 1, CHUNK):
            stop = min(start + CHUNK, len(prompt) - 1)
            for part in self.sequence.cache:
                part[..., start:stop, :] = _rows(part, marks[start:stop])
            self.tokens.extend(prompt[start:stop])
            if (states := self.sequence.recurrent) is not None:
                layer, mark = states.layers[0], marks[stop - 1]
                layer.state[:], layer.tail[:] = mark, -mark
                states.position = stop
                states.checkpoint(1 << 30)
        return cached

    def _check(self, marks: Any, rows: int) -> None:
        for part in self.sequence.cache:
            assert np.array_equal(part[..., :rows, :], _rows(part, marks[:rows]))
        if rows and (states := self.sequence.recurrent) is not None:
            assert states.tokens == rows and not states.broken
            assert (states.layers[0].state == marks[rows - 1]).all()
            assert (states.layers[0].tail == -marks[rows - 1]).all()


def _rows(part: Any, marks: Any) -> Any:
    """The rows of tokens with these marks; no two numbers of a row are equal."""
    shape = (*part.shape[:3], 1, part.shape[4])
    return marks[:, None] + np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


def marks_of(tokens: list[int]) -> Any:
    """A number for each token that depends on it and all before it, f32."""
    found, checksum = [], 0
    for token in tokens:
        checksum = zlib.crc32(token.to_bytes(4, "little"), checksum)
        found.append(checksum >> 12)
    return np.array(found, np.float32)


def tiny_gguf(root: Path) -> Path:
    """A tiny GGUF file in a folder."""
    tiny_model(root / "llama", context=4096, vocab_size=VOCABULARY, pad_token_id=0)
    write_gguf_of(root / "llama", root / "m.gguf")
    return root / "m.gguf"


def opened(home: Path, target: RowsTarget, limit: int = 1 << 30) -> PrefixStore:
    return PrefixStore(home, target, TOKENIZER, limit)  # type: ignore[arg-type]


def keep(store: PrefixStore, *prompts: list[int]) -> None:
    """Write what memory has of these prompts."""
    for prompt in prompts:
        store.want(prompt, lambda: True)
    for _ in store.save():
        pass


def stored(home: Path, *prompts: list[int], has_states: bool = False) -> list[Path]:
    """Read prompts and write them, one after the other; their files, in order."""
    target, paths = RowsTarget(has_states), list[Path]()
    store = opened(home, target)
    for prompt in prompts:
        target.read(prompt)
        keep(store, prompt)
        paths += set(files(home)) - set(paths)
    return paths


def files(home: Path) -> list[Path]:
    return sorted((home / FOLDER).iterdir()) if (home / FOLDER).exists() else []
