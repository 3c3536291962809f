"""The native inputs of a pass of static shape equal an obvious builder's, word for word."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from engine.model import _kernels
from engine.model.torch.cuda.static_pass import MAX_ROWS
from engine.records import Draft
from tests.model.test_target import some_tree

VOCAB = 1000
HEADER = 8  # int64s
Ints = NDArray[np.int64]


def size_of(rows: int, paths: bool) -> int:
    return HEADER + rows * (2 + rows // 64) + (rows * rows // 8 if paths else 0)


def fill(out: Ints, rows: int, paths: bool, draft: Draft, base: int = 7) -> None:
    _kernels.fill_pass(
        out, rows, paths, 5, draft.tokens, draft.parents, VOCAB, 1 << 40, 3, 512, base
    )


def expected(rows: int, paths: bool, draft: Draft, base: int) -> Ints:
    """Row by row, from the list of each row's ancestors."""
    parents = [-1, *(parent + 1 for parent in draft.parents)]
    lines: list[list[int]] = []
    for row, parent in enumerate(parents):
        lines.append([*(lines[parent] if parent >= 0 else []), row])
    lines += [[0]] * (rows - len(lines))
    tokens = [5, *draft.tokens] + [0] * (rows - len(parents))
    positions = [base + len(line) - 1 for line in lines]
    masks = [sum(1 << row for row in line) for line in lines]
    words = [mask >> 64 * word & (1 << 64) - 1 for mask in masks for word in range(rows // 64)]
    header = [1 << 40, 3, 512, base, len(parents), 0, 0, 0]
    made = np.array([*header, *tokens, *positions], np.int64)
    made = np.concatenate([made, np.array(words, np.uint64).view(np.int64)])
    if not paths:
        return made
    path = np.zeros((rows, rows), np.uint8)
    for row, line in enumerate(lines):
        path[row, : len(line)] = line
    return np.concatenate([made, path.reshape(-1).view(np.int64)])


@given(
    st.sampled_from([64, 128, 192, 256]),
    st.booleans(),
    st.integers(0, MAX_ROWS - 1),
    st.integers(0, 1 << 20),
    st.integers(0, 100_000),
)
def test_inputs_equal_the_obvious_ones(
    rows: int, paths: bool, size: int, seed: int, base: int
) -> None:
    """In a buffer that held another pass."""
    draft = some_tree(min(size, rows - 1), VOCAB, seed)
    out = np.zeros(size_of(rows, paths), np.int64)
    out[HEADER:] = -1
    fill(out, rows, paths, draft, base)
    assert out.tolist() == expected(rows, paths, draft, base).tolist()


@pytest.mark.parametrize(
    ("draft", "error"),
    [
        (Draft([VOCAB], [-1]), IndexError),
        (Draft([-1], [-1]), IndexError),
        (Draft([1, 1], [-1, 1]), ValueError),
        (Draft([1, 1], [-1, -2]), ValueError),
        (Draft([1, 1], [-1]), ValueError),
        (Draft([1] * 64, [-1] * 64), ValueError),
    ],
)
def test_what_does_not_fit_is_refused_and_nothing_is_written(
    draft: Draft, error: type[Exception]
) -> None:
    out = np.full(size_of(64, False), 9, np.int64)
    with pytest.raises(error):
        fill(out, 64, False, draft)
    assert (out == 9).all()


@pytest.mark.parametrize(("rows", "size"), [(63, 8), (0, 8), (320, 8), (64, size_of(64, True))])
def test_a_buffer_of_another_size_is_refused(rows: int, size: int) -> None:
    with pytest.raises(ValueError, match=r"rows|out"):
        fill(np.zeros(size, np.int64), rows, False, Draft())
