"""The Triton kernels of experts agree with plain torch: compiled on a GPU, else in Triton's
interpreter."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from tests.support.triton_interpreter import cases, needs_triton

needs_triton()

from engine.model.model_config import CLAMPED_SWIGLU, GELU, SILU, Experts  # noqa: E402
from engine.model.torch.cuda import expert_ops  # noqa: E402
from engine.model.torch.cuda.feed_forward import TorchExpertsBlock  # noqa: E402
from engine.model.torch.cuda.weights import ExpertWeights  # noqa: E402

CUDA = torch.cuda.is_available()
pytestmark = [pytest.mark.gpu] if CUDA else []
DEVICE = torch.device("cuda" if CUDA else "cpu")
SHORT = torch.bfloat16 if CUDA else torch.float16  # the interpreter does not calculate in bf16
WIDTH = 80


@pytest.fixture(autouse=True)
def inference() -> Any:
    with torch.inference_mode():
        yield


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed + sum(shape))).to(DEVICE)


def block_of(spec: Experts, dtype: torch.dtype = torch.float32) -> TorchExpertsBlock:
    """A mixture of random weights."""
    block = TorchExpertsBlock.__new__(TorchExpertsBlock)
    shapes = ((spec.count, 2 * spec.width, WIDTH), (spec.count, WIDTH, spec.width))
    block.spec, block.shared, block.shared_gate = spec, None, None
    block.gate_up, block.down = (
        ExpertWeights(
            (normal(*shape) * 0.2).to(dtype),
            normal(*shape[:2], seed=1).to(dtype) if spec.biased else None,
        )
        for shape in shapes
    )
    return block


def meta_of(count: int) -> torch.Tensor:
    return torch.tensor([0, 0, 0, 0, count, 0, 0, 0], device=DEVICE)


def ours(
    block: TorchExpertsBlock, logits: torch.Tensor, h: torch.Tensor,
    scales: torch.Tensor | None = None, count: int = 0,
) -> torch.Tensor:  # fmt: skip
    meta = meta_of(count or len(h))
    return expert_ops.run_experts(block.spec, block.gate_up, block.down, logits, h, scales, meta)


def theirs(
    block: TorchExpertsBlock, logits: torch.Tensor, h: torch.Tensor,
    scales: torch.Tensor | None = None,
) -> torch.Tensor:  # fmt: skip
    block.router = lambda x: x  # type: ignore[assignment, return-value]
    return block.run_routed(logits, h, scales)


SPECS = [
    Experts(8, 3, 48, SILU),
    Experts(8, 3, 40, SILU, normalised=False),
    Experts(6, 2, 48, GELU),
    Experts(40, 4, 33, CLAMPED_SWIGLU, biased=True, alpha=1.702, limit=1.0),
]


@pytest.mark.parametrize("rows", cases([1, 2, 5, 64], [2]))
@pytest.mark.parametrize("spec", SPECS)
def test_experts_agree_with_plain_torch(spec: Experts, rows: int) -> None:
    block = block_of(spec)
    logits, h = normal(rows, spec.count) * 2, normal(rows, WIDTH)
    scales = normal(spec.count, seed=9)
    for factors in (None, scales):
        torch.testing.assert_close(
            ours(block, logits, h, factors), theirs(block, logits, h, factors), rtol=1e-4, atol=1e-4
        )


@pytest.mark.parametrize("rows", [1, 40])
def test_numbers_of_16_bits_give_nearly_the_same(rows: int) -> None:
    wide, narrow = block_of(SPECS[0]), block_of(SPECS[0], SHORT)
    logits, h = normal(rows, 8).to(SHORT), normal(rows, WIDTH).to(SHORT)
    expected = theirs(wide, logits.float(), h.float())
    error = (ours(narrow, logits, h).float() - expected).norm() / expected.norm()
    assert error < 0.02, float(error)


@pytest.mark.parametrize("dtype", cases([torch.float32, SHORT], [SHORT]))
def test_a_row_has_the_same_bits_whatever_rows_are_next_to_it(dtype: torch.dtype) -> None:
    """Where every expert has few rows, and where one has all of them."""
    block = block_of(SPECS[0], dtype)
    logits, h = normal(40, 8).to(dtype), normal(40, WIDTH).to(dtype)
    logits[20:] = logits[20]
    whole = ours(block, logits, h)
    for rows in ([0], [3, 1], [*range(39, -1, -1)], [*range(18, 25)]):
        assert torch.equal(ours(block, logits[rows], h[rows]), whole[rows]), rows


@pytest.mark.skipif(CUDA, reason="products are counted in the interpreter only")
@pytest.mark.parametrize("experts", [8, 40])
def test_an_expert_is_read_once_for_all_its_rows(
    experts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In passes of more pairs than experts, and of fewer."""
    from triton.runtime.interpreter import InterpreterBuilder

    dot, counts = InterpreterBuilder.create_dot, []

    def counted(*given: Any) -> Any:
        counts[-1] += 1
        return dot(*given)

    monkeypatch.setattr(InterpreterBuilder, "create_dot", counted)
    block = block_of(replace(SPECS[0], count=experts))
    for rows in (1, 5):
        counts.append(0)
        ours(block, normal(1, experts).expand(rows, -1), normal(rows, WIDTH))
    assert counts[0] == counts[1] > 0


def test_padding_rows_choose_no_expert() -> None:
    block = block_of(SPECS[0])
    logits, h = normal(8, 8), normal(8, WIDTH)
    logits[5:], h[5:] = float("nan"), float("nan")
    padded = ours(block, logits, h, count=5)
    assert torch.equal(padded[:5], ours(block, logits[:5], h[:5]))
    assert (padded[5:] == 0).all()


def test_logits_that_are_not_finite_stay_in_their_row() -> None:
    block = block_of(SPECS[0])
    logits, h = normal(4, 8), normal(4, WIDTH)
    expected = ours(block, logits, h)
    logits[1], logits[3, 2] = float("nan"), float("nan")
    found = ours(block, logits, h)
    assert torch.equal(found[::2], expected[::2])
    assert found[1].isnan().all() and found[3].isnan().all()


@pytest.mark.parametrize("pairs", [1, 7, 200, 2048])
def test_pairs_are_sorted_by_expert(pairs: int) -> None:
    choice = torch.randint(0, 6, (pairs, 1), generator=torch.Generator().manual_seed(pairs))
    choice = choice.int().to(DEVICE)  # 5: no expert
    starts, order = expert_ops.sort(choice, 5)
    flat = choice.flatten()
    assert torch.equal(order.long(), flat.argsort(stable=True))
    before = [int((flat < expert).sum()) for expert in range(7)]
    assert starts.tolist() == before
