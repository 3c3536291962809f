"""The check at load finds kernels whose rounding depends on how a pass is cut."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from engine.config import Config
from engine.model.torch.cuda import torch_ops
from engine.model.torch.cuda.static_pass import AttentionShape, StaticPass
from engine.model.torch.loading import load
from engine.model.torch.row_invariance import rows_are_independent


def test_another_rounding_of_committed_keys_is_found(
    tiny: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a card, whose passes run on the CPU here."""
    config = Config(device="cpu", dtype="f32", threads=1, graphs="static")
    loaded = load(tiny("llama"), config)
    loaded.devices = [torch.device("cuda")]
    assert rows_are_independent(loaded)
    attend = torch_ops.attend

    def rounding(model: AttentionShape, n: int, q: Tensor, now: StaticPass) -> Tensor:
        mixed = attend(model, n, q, now)
        return mixed * (1 + 2**-20) if now.base >= 64 else mixed

    monkeypatch.setattr(torch_ops, "attend", rounding)
    assert not rows_are_independent(loaded)
