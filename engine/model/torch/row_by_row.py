"""The other operations of a transformers module, the same for any number of rows.

The linear layers are replaced once at load. What is left sums in an order that depends on the
number of rows: `F.linear` on weights of a module's own (routers, experts). And torch computes the
last numbers of a tensor with other instructions than those before, which round differently: with
rows of odd widths, a row's place in a pass would show.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

CONTRACTIONS = (  # functions that nothing runs row by row
    torch.matmul, Tensor.matmul, Tensor.__matmul__, Tensor.__rmatmul__, torch.bmm, Tensor.bmm,
    torch.mm, Tensor.mm, torch.addmm, torch.baddbmm, torch.einsum, torch.conv1d,
    F.scaled_dot_product_attention,
)  # fmt: skip
ACTIVATIONS = (
    torch.sigmoid, Tensor.sigmoid, F.sigmoid, F.silu, F.gelu, F.softplus, F.logsigmoid, F.mish,
    torch.tanh, Tensor.tanh, F.tanh, torch.exp, Tensor.exp,
)  # fmt: skip
LANES = 64  # numbers that one turn of a loop handles, at most, with any instruction set


class RowByRow(TorchFunctionMode):
    """A mode in which `F.linear` and activations of odd widths run one row at a time.

    `calls`: how many did. `others`: the names of other sums over products that were called; those
    of a single product (rotary embeddings are made so) round the same way in every pass.
    """

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0
        self.others: set[str] = set()

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is F.linear or (func in ACTIVATIONS and _is_odd(args[0])):
            self.calls += 1
            return _each_row(func, *args, **kwargs)
        if func in CONTRACTIONS and not _is_outer(args):
            self.others.add(func.__name__)
        return func(*args, **kwargs)


def _each_row(func: Callable[..., Tensor], x: Tensor, *more: Any, **options: Any) -> Tensor:
    """Run `func` on each row of x [..., width]; copies, so that all are aligned in memory alike."""
    rows = x.reshape(-1, x.shape[-1])
    if len(rows) <= 1:
        return func(x, *more, **options)
    made = torch.cat([func(row.clone()[None], *more, **options) for row in rows])
    return made.view(*x.shape[:-1], made.shape[-1])


def _is_odd(x: Tensor) -> bool:
    """Return whether rows of this width do not end where a turn of a loop does."""
    return x.dim() > 1 and x.shape[-1] % LANES != 0


def _is_outer(args: tuple[Any, ...]) -> bool:
    """Return whether a product of two tensors sums over a single number."""
    return isinstance(args[0], Tensor) and args[0].shape[-1] == 1
