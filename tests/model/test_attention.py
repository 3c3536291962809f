"""Attention in plain torch: the fused way of cards equals the masked one, and masks are those of
the tree."""

from __future__ import annotations

import pytest
import torch

from engine.model.torch.ops import Rows, fused_attention, masked_attention
from tests.model.test_target import some_tree

CPU = torch.device("cpu")


def parents_of(shape: str, count: int) -> list[int]:
    tree = some_tree(count - 1, 100, count)
    return [-1, *(range(count - 1) if shape == "chain" else (one + 1 for one in tree.parents))]


@pytest.mark.parametrize("base", [0, 70])
@pytest.mark.parametrize("count", [1, 2, 30])
@pytest.mark.parametrize("shape", ["chain", "tree"])
def test_a_row_sees_what_is_committed_and_its_ancestors(shape: str, count: int, base: int) -> None:
    """Chains, such as prompts, are masked in one operation."""
    parents = parents_of(shape, count)
    mask = Rows.of(base, parents, CPU).mask(CPU)
    assert mask.shape == (count, base + count)
    for row in range(count):
        line, at = [], row
        while at >= 0:
            line.append(base + at)
            at = parents[at]
        assert mask[row].nonzero()[:, 0].tolist() == [*range(base), *sorted(line)]


@pytest.mark.parametrize("shape", ["chain", "tree"])
@pytest.mark.parametrize(("heads", "kv"), [(8, 2), (4, 4)])
def test_fused_attention_equals_the_masked_one(heads: int, kv: int, shape: str) -> None:
    chance = torch.Generator().manual_seed(0)
    rows = Rows.of(40, parents_of(shape, 20), CPU)
    q = torch.randn(20, heads, 16, generator=chance)
    keys, values = (torch.randn(kv, 60, 16, generator=chance) for _ in range(2))
    fused, masked = (
        one(q, keys, values, rows.mask(CPU), 0.25) for one in (fused_attention, masked_attention)
    )
    torch.testing.assert_close(fused, masked, rtol=1e-5, atol=1e-5)
