"""Described models by a card's Triton kernels agree with plain torch: compiled on a GPU, else in
Triton's interpreter."""

from __future__ import annotations

import itertools
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from tests.support.triton_interpreter import cases, needs_triton

needs_triton()

from engine.model.model_config import Experts  # noqa: E402
from engine.model.torch.cuda import expert_ops, static_forward, triton_ops  # noqa: E402
from engine.model.torch.cuda.static_forward import Static  # noqa: E402
from engine.model.torch.cuda.static_pass import ADDRESSES, StaticPass, bucket_of  # noqa: E402
from engine.model.torch.ops import Rows, masked_attention  # noqa: E402
from tests.model.test_described_model import NAMES, family, model_of  # noqa: E402
from tests.model.test_target import some_tokens, some_tree  # noqa: E402

__all__ = ["family"]  # a fixture
CUDA = torch.cuda.is_available()
pytestmark = [pytest.mark.gpu] if CUDA else []
DEVICE = torch.device("cuda" if CUDA else "cpu")


@pytest.fixture(autouse=True)
def inference() -> Any:
    with torch.inference_mode():
        yield


@pytest.mark.parametrize("name", cases(NAMES, []))  # most of a minute each
def test_passes_agree_with_plain_torch(family: Any, name: str) -> None:
    """A prompt longer than the windows in two parts, and a tree behind it, with padding."""
    static = Static(model_of(family(name), device=DEVICE))
    assert static.model.fuses  # type: ignore[union-attr]
    tokens, tree = some_tokens(20, static.model.vocab), some_tree(4, static.model.vocab, 3)
    found = []
    for kernels in (triton_ops, None):
        static.fused, static.ready = kernels, kernels is not None
        cache = tuple(torch.zeros_like(part[..., :40, :]) for part in static.scratch())
        read = [static.read(tokens[:13], cache, 0), static.read(tokens[13:], cache, 13)]
        output = static.step(5, tree, cache, 20)
        best = output.top[: len(output.logits)][:5].tolist()
        assert best == output.logits[:5].argmax(-1).tolist()
        found.append([*read, output.states[:5], output.logits[:5], *cache])
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("name", cases(["gpt-oss", "gemma4-moe", "gemma4-e"], ["gpt-oss"]))
def test_a_pass_can_be_captured(family: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """All that changes between two passes is read from the device, of a model that has kernels."""
    monkeypatch.setattr(static_forward, "_fused", lambda device: triton_ops)
    run, mixtures = expert_ops.run_experts, []

    def run_experts(spec: Experts, *rest: Any) -> torch.Tensor:
        mixtures.append(spec)
        return run(spec, *rest)

    monkeypatch.setattr(expert_ops, "run_experts", run_experts)
    static = Static(model_of(family(name), device=DEVICE))
    static.ready = True
    cache = tuple(torch.zeros_like(part[..., :40, :]) for part in static.scratch())
    tree = some_tree(1, static.model.vocab)
    static.send(5, tree, cache, 20)
    now = static.sent(tree, cache, 20, 2)
    unknown: Any = None
    later = replace(now, base=unknown, count=unknown, parents=unknown)
    static.receive()
    states = [static._states(static.ids[:2], one, 2) for one in (now, later)]
    assert torch.equal(*states) and not states[0].isnan().any()
    layers = static.model.description.layers[:2]  # type: ignore[union-attr]
    assert mixtures == 2 * [one.experts for one in layers if one.experts]
    assert static._ops.top is triton_ops.top


def pass_of(base: int, size: int, exact: bool, tree: bool) -> StaticPass:
    """A pass over a cache of 2 layers, 2 key heads and 16 dimensions, in the second place."""
    numbers = torch.Generator().manual_seed(1)
    cache = torch.randn((2, 2, 2, 256, 16), generator=numbers).to(DEVICE)
    draft = some_tree(size, 100, size)
    parents = [-1, *(parent + 1 for parent in draft.parents)] if tree else [*range(-1, size)]
    rows, bucket = Rows.of(base, parents, DEVICE), bucket_of(1 + size)
    meta = [0, 0, 256, base, 1 + size, cache.data_ptr(), cache.data_ptr() + cache.nbytes // 2, 0]
    positions = torch.full((bucket,), base, device=DEVICE)
    positions[: 1 + size] = rows.positions
    seen = torch.ones(bucket, 1, dtype=torch.int64)
    path = torch.zeros(bucket, 64, dtype=torch.uint8)
    for row, parent in enumerate(parents):
        seen[row, 0] = (int(seen[parent, 0]) if parent >= 0 else 0) | 1 << row
        depth = int(rows.positions[row]) - base
        path[row] = path[parent] if parent >= 0 else path[row]
        path[row, depth] = row
    return StaticPass(
        base, 1 + size, np.array(parents, np.int32), (cache,), torch.tensor(meta, device=DEVICE),
        positions, seen.to(DEVICE), path.to(DEVICE), tree, exact,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("tree", "exact", "window", "cap", "sinks"),
    cases(
        [
            (tree, exact, *of_window)
            for tree, exact in itertools.product((False, True), repeat=2)
            for of_window in ((8, 0.0, True), (70, 2.0, False))
        ],
        [(True, False, 8, 0.0, True), (False, True, 8, 0.0, True)],
    ),
)
def test_windows_caps_and_sinks(
    tree: bool, exact: bool, window: int, cap: float, sinks: bool
) -> None:
    """Windows of fewer tokens than the draft, and of more than a tile of keys."""
    heads = SimpleNamespace(heads=4, kv_heads=2, head_dim=16, scale=0.25)
    logits = torch.tensor([1.0, -2.0, 3.0, 0.5], device=DEVICE) if sinks else None
    for base, size in ((0, 0), (150, 20)):
        now = pass_of(base, size, exact, tree)
        numbers = torch.Generator().manual_seed(2)
        q = torch.randn((len(now.positions), 4, 16), generator=numbers).to(DEVICE)
        found = triton_ops.attend(heads, 1, q, now, window, cap, logits, ADDRESSES[1])
        keys = torch.cat([torch.arange(base, device=DEVICE), now.positions[: 1 + size]])
        mask = now.mask(DEVICE) & (keys > now.positions[:, None] - window)
        stop = base + 1 + size
        expected = masked_attention(
            q, now.keys[1, :, :stop], now.values[1, :, :stop], mask, 0.25, cap, logits
        )
        torch.testing.assert_close(found[: 1 + size], expected[: 1 + size], rtol=1e-4, atol=1e-4)
