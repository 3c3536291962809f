"""How much memory tensors take at a time, for tests of what needs little."""

from __future__ import annotations

import weakref
from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class LiveBytes(TorchDispatchMode):
    """Counts the bytes of tensors that operations make on one type of device, while it is active:
    those alive, and the most at a time. Views take none."""

    def __init__(self, device: str) -> None:
        super().__init__()
        self.device, self.live, self.most = device, 0, 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        given = {_storage(one) for one in tree_leaves((args, kwargs)) if isinstance(one, Tensor)}
        for one in tree_leaves(out):
            if not isinstance(one, Tensor) or one.device.type != self.device:
                continue
            if _storage(one) not in given:
                self._count(one)
        return out

    def _count(self, tensor: Tensor) -> None:
        self.live += tensor.nbytes
        self.most = max(self.most, self.live)
        weakref.finalize(tensor, self._end, tensor.nbytes)

    def _end(self, count: int) -> None:
        self.live -= count


def _storage(tensor: Tensor) -> int:
    return tensor.untyped_storage()._cdata
