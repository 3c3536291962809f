"""The most likely tokens of a pass, in plain torch, equal those that sorting finds."""

from __future__ import annotations

import math
import struct

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from engine.model.torch.cuda.static_pass import TOP
from engine.model.torch.cuda.torch_ops import top

NUMBERS = st.one_of(
    st.sampled_from([0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, math.nan, 2.0**-140, 2.0**127]),
    st.floats(width=32, allow_nan=False),
)
ROWS = st.integers(1, 40).flatmap(
    lambda vocab: st.lists(st.lists(NUMBERS, min_size=vocab, max_size=vocab), min_size=1,
                           max_size=4)
)  # fmt: skip


def expected(row: list[float]) -> tuple[int, list[int], list[float]]:
    """The choice, the most likely tokens and their logits. What is no number is above all."""
    row = [math.inf if math.isnan(value) else value for value in row]
    ids = sorted(range(len(row)), key=lambda token: (-row[token], token))[:TOP]
    missing = TOP - len(ids)
    best = ids[0] if math.isfinite(row[ids[0]]) else -1
    return best, ids + [-1] * missing, [row[token] for token in ids] + [-math.inf] * missing


def read(found: torch.Tensor, rows: int) -> list[tuple[int, list[int], list[float]]]:
    """What `PassOutput.top` says of each row."""
    best, numbers = found[:rows].tolist(), found[rows:].view(2, rows, TOP)
    ids, logits = numbers[0].tolist(), numbers[1].contiguous().view(torch.float32).tolist()
    return list(zip(best, ids, logits, strict=True))


@given(ROWS)
def test_tokens_and_logits_are_those_that_sorting_finds(rows: list[list[float]]) -> None:
    """Lower ids first on ties; what is not finite is chosen nowhere."""
    found = top(torch.tensor(rows, dtype=torch.float32))
    assert found.dtype == torch.int32 and len(found) == len(rows) * (1 + 2 * TOP)
    assert read(found, len(rows)) == [expected(row) for row in rows]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_logits_keep_their_value(dtype: torch.dtype) -> None:
    """In bf16, in which ties are frequent, as in f32."""
    logits = torch.randn(3, 2000, generator=torch.Generator().manual_seed(0)).to(dtype)
    assert read(top(logits), 3) == [expected(row) for row in logits.float().tolist()]


def test_a_row_does_not_depend_on_the_others() -> None:
    logits = torch.randn(9, 500, generator=torch.Generator().manual_seed(0))
    whole = read(top(logits), 9)
    assert [read(top(row[None]), 1)[0] for row in logits] == whole


def test_the_bits_of_a_logit_are_those_of_an_f32() -> None:
    (bits,) = struct.unpack("<i", struct.pack("<f", -1.5))
    assert top(torch.tensor([[-2.0, -1.5]]))[1 + TOP].item() == bits
