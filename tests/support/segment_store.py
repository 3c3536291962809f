"""Shared parts of the segment store tests: distinct states."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from index.workspace.segment_store import Part, SavedState, SegmentStore

OURS = "tokenizer a, roots b"


def state(number: int, size: int = 3) -> SavedState:
    """A state that shares one part with state(number - 1)."""

    def part(number: int) -> Part:
        return Part(f"part{number}", {"ids": np.full(size, number), "ends": np.arange(number % 5)})

    table = {"paths": np.full(5, number % 256, np.uint8), "none": np.zeros((0, 2), np.float32)}
    return SavedState({"number": number}, table, [part(number), part(number + 1)])


def same(left: SavedState | None, right: SavedState) -> bool:
    """Whether all bits, dtypes, shapes and names in order are equal."""

    def plain(saved: SavedState) -> object:
        bundles = [saved.table, *(part.arrays for part in saved.parts)]
        return (
            saved.meta,
            [part.name for part in saved.parts],
            [[(k, a.dtype, a.shape, a.tobytes()) for k, a in each.items()] for each in bundles],
        )

    return left is not None and plain(left) == plain(right)


def save(folder: Path, saved: SavedState) -> None:
    with SegmentStore(folder, OURS) as store:
        assert store.acquire()
        store.save(saved)


def load(folder: Path) -> SavedState | None:
    return SegmentStore(folder, OURS).load()


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def whole(folder: Path, saved: SavedState) -> bool:
    """Whether a folder holds this state and no other file."""
    files = {"table", "lock", *(f"{part.name}.part" for part in saved.parts)}
    return same(load(folder), saved) and names(folder) == files
