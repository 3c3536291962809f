"""What runs row by row gives a row the same bits in every pass, and those of torch for one row."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from engine.model.torch.row_by_row import ACTIVATIONS, RowByRow


def normal(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(len(shape)))


@pytest.mark.parametrize("width", [1, 7, 64, 100])
@pytest.mark.parametrize("func", ACTIVATIONS)
def test_activations_do_not_depend_on_the_rows_beside(
    func: Callable[[Tensor], Tensor], width: int
) -> None:
    x = normal(70, width)
    with RowByRow() as mode:
        together = func(x)
        for count in (1, 2, 3, 16, 69):
            assert torch.equal(func(x[:count]), together[:count])
        assert torch.equal(func(x.view(7, 10, width)), together.view(7, 10, width))
    alone = torch.cat([func(row.clone()[None]) for row in x])
    torch.testing.assert_close(together, alone, rtol=1e-6, atol=1e-6)
    assert bool(mode.calls) == (width != 64)


@pytest.mark.parametrize("biased", [True, False])
def test_products_do_not_depend_on_the_rows_beside(biased: bool) -> None:
    x, weight = normal(70, 48), normal(20, 48)
    bias = normal(20) if biased else None
    with RowByRow() as mode:
        together = F.linear(x, weight, bias)
        for count in (0, 1, 2, 3, 16, 69):
            assert torch.equal(F.linear(x[:count], weight, bias), together[:count])
        assert torch.equal(F.linear(x.view(7, 10, 48), weight, bias), together.view(7, 10, 20))
    torch.testing.assert_close(together, F.linear(x, weight, bias), rtol=1e-5, atol=1e-5)
    assert mode.calls and not mode.others


def test_other_sums_over_products_are_named() -> None:
    x = normal(4, 8)
    with RowByRow() as mode:
        x[:, :1] @ x[:1]  # no sum
        assert not mode.others
        x @ x.T
        torch.bmm(x[None], x.T[None])
    assert mode.others == {"matmul", "bmm"} or mode.others == {"__matmul__", "bmm"}
