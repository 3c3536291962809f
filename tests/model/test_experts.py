"""Mixtures of experts: routing and sums against numpy, models against transformers, and the law."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from gguf.constants import GGMLQuantizationType as Kind

from engine.model import _kernels as kernels
from engine.model.torch.tensor_model import TensorModel
from engine.records import Draft
from engine.weights import locate
from tests.conftest import tiny_model
from tests.model.test_target import (
    assert_nodes_have_the_bits_of_one_token_passes,
    begin,
    load,
    some_tokens,
    some_tree,
)
from tests.support.gguf_of_model import VOCABULARY, write_gguf_of
from tests.support.kernels import F32, forward, isas, normal, reseed, same

SHAPE = {
    "vocab_size": VOCABULARY, "hidden_size": 64, "head_dim": 16, "num_experts": 8,
    "num_experts_per_tok": 3, "moe_intermediate_size": 32, "norm_topk_prob": True,
}  # fmt: skip


@pytest.fixture(autouse=True)
def same_numbers() -> None:
    reseed()


def routed(
    logits: F32, k: int, normalise: bool, **options: Any
) -> tuple[np.ndarray[Any, Any], F32]:
    choice = np.empty((len(logits), k), np.int32)
    weights = np.empty((len(logits), k), np.float32)
    kernels.route(np.ascontiguousarray(logits), normalise, choice, weights, **options)
    return choice, weights


@pytest.mark.parametrize("normalise", [False, True])
@pytest.mark.parametrize("k", [1, 3, 8])
def test_routing_is_the_softmax_of_the_largest(k: int, normalise: bool) -> None:
    logits = normal(50, 8) * 5
    choice, weights = routed(logits, k, normalise)
    expected = np.sort(np.argsort(-logits, 1, kind="stable")[:, :k], 1)
    assert np.array_equal(choice, expected)
    wide = np.exp(logits.astype(np.float64) - logits.max(1, keepdims=True))
    kept = np.take_along_axis(wide, expected, 1)
    kept /= kept.sum(1, keepdims=True) if normalise else wide.sum(1, keepdims=True)
    assert np.allclose(weights, kept, rtol=1e-5)


@pytest.mark.parametrize("normalise", [False, True])
@pytest.mark.parametrize("sigmoid", [False, True])
@pytest.mark.parametrize("biased", [False, True])
def test_scores_choose_with_a_bias_and_weigh_without_it(
    normalise: bool, sigmoid: bool, biased: bool
) -> None:
    logits, bias, scales = normal(50, 8), normal(8), normal(8)
    options = {"bias": bias} if biased else {}
    choice, weights = routed(
        logits, 3, normalise, sigmoid=sigmoid, scale=2.5, expert_scales=scales, **options
    )
    wide = logits.astype(np.float64)
    scores = np.exp(wide) / np.exp(wide).sum(1, keepdims=True)
    if sigmoid:
        scores = 1 / (1 + np.exp(-wide))
    best = np.argsort(-(scores + (bias if biased else 0)), 1)[:, :3]
    expected = np.sort(best, 1)
    assert np.array_equal(choice, expected)
    kept = np.take_along_axis(scores, expected, 1)
    if normalise:
        kept /= kept.sum(1, keepdims=True)
    assert np.allclose(weights, kept * 2.5 * scales[expected], rtol=1e-5)


def test_ties_go_to_the_first_and_no_logit_is_needed() -> None:
    choice, weights = routed(np.zeros((1, 8), np.float32), 3, True)
    assert choice.tolist() == [[0, 1, 2]] and np.allclose(weights, 1 / 3)
    choice, weights = routed(np.full((1, 8), np.nan, np.float32), 2, True)
    assert choice.tolist() == [[0, 1]] and np.isnan(weights).all()


def experts(
    count: int, width: int, inner: int, kind: Kind = Kind.Q8_0, biased: bool = False
) -> tuple[list[Any], list[Any]]:
    """Experts with weights of one format."""

    def linear(out: int, n: int) -> kernels.QLinear:
        rows = gguf.quants.quantize(normal(out, n), kind).view(np.uint8)
        return kernels.QLinear.stored([(int(kind), rows)], n, normal(out) if biased else None)

    return [linear(2 * inner, width) for _ in range(count)], [
        linear(width, inner) for _ in range(count)
    ]


def gated_by(activation: str, gate_up: F32) -> F32:
    out = np.empty((len(gate_up), gate_up.shape[1] // 2), np.float32)
    if activation == "clamped_swiglu":
        kernels.clamped_swiglu(gate_up, 1.702, 0.5, out)
    else:
        (kernels.silu_mul if activation == "silu" else kernels.gelu_mul)(gate_up, out)
    return out


@pytest.mark.parametrize(
    ("activation", "kind", "biased"),
    [("silu", Kind.Q8_0, False), ("gelu", Kind.Q4_1, False), ("clamped_swiglu", Kind.Q8_0, True),
     ("silu", Kind.F32, False)],
)  # fmt: skip
def test_a_row_is_the_weighted_sum_of_its_experts_whatever_is_beside_it(
    activation: str, kind: Kind, biased: bool
) -> None:
    gate_up, down = experts(6, 64, 96, kind, biased)
    x = normal(20, 64)
    choice, weights = routed(normal(20, 6), 2, True)
    out = np.full_like(x, np.nan)
    options = (activation, 1.702, 0.5)
    kernels.run_experts(gate_up, down, x, choice, weights, out, *options)
    for row in range(20):
        expected = np.zeros(64, np.float32)
        for expert, weight in zip(choice[row], weights[row], strict=True):
            gated = gated_by(activation, forward(gate_up[expert], x[row : row + 1]))
            expected += weight * forward(down[expert], gated)[0]
        assert same(out[row], expected)
    best = kernels.isa()
    for name in isas():
        kernels.set_isa(name)
        for threads in (1, 2, 3):
            kernels.set_threads(threads)
            for rows in ([3], [3, 4], [7, 3, 0], list(range(19, -1, -1))):
                some = np.full((len(rows), 64), np.nan, np.float32)
                args = (x[rows], choice[rows], weights[rows], some)
                kernels.run_experts(gate_up, down, *args, *options)
                assert same(some, out[rows]), (name, threads, rows)
    kernels.set_isa(best)
    kernels.set_threads(1)


def test_what_does_not_fit_is_one_line() -> None:
    gate_up, down = experts(2, 64, 32)
    x, out = normal(1, 64), normal(1, 64)
    weights = normal(1, 1)
    for bad in (-1, 2):
        with pytest.raises(ValueError, match=f"^choice has {bad}: must be below 2$"):
            kernels.run_experts(gate_up, down, x, np.full((1, 1), bad, np.int32), weights, out)
    with pytest.raises(ValueError, match=r"^expert 1: its shape is not the others'$"):
        other = [gate_up[0], experts(1, 64, 64)[0][0]]
        kernels.run_experts(other, down, x, np.zeros((1, 1), np.int32), weights, out)
    with pytest.raises(ValueError, match=r"^activation relu: must be silu, gelu"):
        kernels.run_experts(gate_up, down, x, np.zeros((1, 1), np.int32), weights, out, "relu")
    with pytest.raises(ValueError, match=r"^bias has shape \(7\): expected \(8\)$"):
        routed(normal(1, 8), 2, True, bias=normal(7))
    with pytest.raises(ValueError, match=r"^choice has 9 columns: must be 1 to 8$"):
        routed(normal(1, 8), 9, True)


def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: Kind) -> tuple[Path, Path]:
    """A tiny mixture of experts: its folder of transformers, and that of its GGUF file."""
    monkeypatch.setenv("DRAFTLINE_HOME", str(tmp_path / "home"))
    original = tiny_model(tmp_path / "original", "qwen3_moe", **SHAPE)
    write_gguf_of(original, tmp_path / "m.gguf", kind)
    return original, locate(str(tmp_path / "m.gguf"))


def test_logits_are_those_of_transformers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from transformers import AutoModelForCausalLM

    original, folder = model(tmp_path, monkeypatch, Kind.F32)
    target = load(folder, "auto", threads=1)
    assert isinstance(target.model, TensorModel) and target.exact
    tokens = some_tokens(40, target.vocab)
    begin(target, tokens[:31])
    draft = Draft()
    for node, token in enumerate(tokens[31:]):
        draft.add(token, node - 1, 1.0, "test")
    logits = target.forward(tokens[30], draft).logits
    with torch.inference_mode():
        oracle = AutoModelForCausalLM.from_pretrained(original, dtype=torch.float32)
        expected = oracle(torch.tensor([tokens])).logits[0, 30:]
    torch.testing.assert_close(logits, expected, rtol=1e-4, atol=1e-4)


def test_nodes_of_a_tree_have_the_bits_of_one_token_passes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, folder = model(tmp_path, monkeypatch, Kind.Q8_0)
    target = load(folder, "auto", threads=2)
    prompt, draft = some_tokens(50, target.vocab), some_tree(20, target.vocab)
    assert target.exact
    assert_nodes_have_the_bits_of_one_token_passes(target, prompt, draft, 3)
