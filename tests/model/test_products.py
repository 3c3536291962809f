"""Matrix products of a card with fixed tiles agree with plain torch: compiled on a GPU, else in
Triton's interpreter."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from tests.support.triton_interpreter import cases, needs_triton

needs_triton()

from engine.model.families import read_config  # noqa: E402
from engine.model.families.gguf_tensors import tensors_of_gguf  # noqa: E402
from engine.model.torch import llama  # noqa: E402
from engine.model.torch.cuda import products  # noqa: E402
from engine.model.torch.cuda.products import Tiled  # noqa: E402
from engine.model.torch.cuda.static_pass import BUCKETS, MAX_ROWS, USUAL_ROWS  # noqa: E402
from engine.model.torch.cuda.weight_formats import (  # noqa: E402
    FORMATS,
    SLICE,
    head_format,
    matrix_bytes,
    unpaired,
    widened,
)
from engine.model.torch.gguf_weights import GgufWeights  # noqa: E402
from engine.model.torch.llama import Llama  # noqa: E402
from engine.model.torch.ops import Rows  # noqa: E402
from engine.model.torch.placement import size_of  # noqa: E402
from engine.model.torch.random_weights import RandomWeights  # noqa: E402
from engine.weights import locate  # noqa: E402
from tests.support.live_bytes import LiveBytes  # noqa: E402
from tests.support.tiny_gguf import write_gguf  # noqa: E402

CUDA = torch.cuda.is_available()
pytestmark = [pytest.mark.gpu] if CUDA else []
DEVICE = torch.device("cuda" if CUDA else "cpu")
NUMBERS = [torch.float32, torch.bfloat16] if CUDA else [torch.float32]
NEAR = {"rtol": 1e-3, "atol": 1e-3}


def normal(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape))).to(DEVICE)


def rounded(tiled: Tiled) -> Tensor:
    """The weights that narrow ones stand for, in f32."""
    assert tiled.scales is not None
    if tiled.narrow == "int4":
        return widened(tiled.weight, tiled.scales, tiled.inner, torch.float32)
    levels = unpaired(tiled.weight, tiled.inner, tiled.narrow)
    return levels.float() * tiled.scales[:, None]


def as_on_a_card(weight: Tensor, bias: Tensor | None, exact: bool, narrow: str) -> Tiled:
    """What `product` makes there of weights in a format, or for exact passes."""
    return Tiled(weight, bias, narrow)


@pytest.mark.parametrize("rows", [1, 5, 64, 70])
def test_tiled_products(rows: int) -> None:
    weight, bias, x = normal(90, 130), normal(90), normal(rows, 130)
    for added in (None, bias):
        tiled = Tiled(weight, added)
        whole = tiled(x)
        torch.testing.assert_close(whole, torch.nn.functional.linear(x, weight, added), **NEAR)
        for start in range(0, rows, 9):
            assert torch.equal(tiled(x[start : start + 1]), whole[start : start + 1])


@pytest.mark.parametrize("rows", [1, 9])
def test_int8_products(rows: int) -> None:
    """They equal those of the rounded weights, which are near the original ones."""
    weight, bias, x = normal(90, 130), normal(90), normal(rows, 130)
    weight[3] = 0
    tiled = Tiled(weight, bias, "int8")
    assert tiled.nbytes == matrix_bytes("int8", 4, *weight.shape) - 4 * len(weight)
    assert tiled.scales is not None
    assert ((rounded(tiled) - weight).abs() <= weight.abs().amax(1, keepdim=True) / 127).all()
    whole = tiled(x)
    expected = torch.nn.functional.linear(x, rounded(tiled), bias)
    torch.testing.assert_close(whole, expected, **NEAR)
    assert torch.equal(tiled(x[:1]), whole[:1])


@pytest.mark.parametrize(("columns", "inner"), [(90, 130), (33, 256), (70, 700), (1, 1)])
@pytest.mark.parametrize("narrow", FORMATS)
def test_narrow_products_equal_those_of_the_rounded_weights(
    narrow: str, columns: int, inner: int
) -> None:
    """With inputs that fill no whole number of tiles and groups, with and without a bias."""
    weight, bias, x = normal(columns, inner), normal(columns), normal(19, inner)
    weight[-1] = 0
    for added in (None, bias):
        tiled = Tiled(weight, added, narrow)
        expected = torch.nn.functional.linear(x, rounded(tiled), added)
        torch.testing.assert_close(tiled(x), expected, **NEAR)


@pytest.mark.parametrize("dtype", NUMBERS)
@pytest.mark.parametrize("narrow", FORMATS)
def test_a_row_has_the_same_bits_in_every_bucket(narrow: str, dtype: torch.dtype) -> None:
    """Whatever rows stand beside it, and wherever it stands."""
    x = normal(max(BUCKETS), 130).to(dtype)
    tiled = Tiled(normal(40, 130).to(dtype), normal(40).to(dtype), narrow)
    whole = tiled(x)
    for rows in BUCKETS:
        start = min(rows, len(x) - rows)
        some = slice(start, start + rows)
        assert torch.equal(tiled(x[some]), whole[some]), rows


@pytest.mark.parametrize("dtype", NUMBERS)
@pytest.mark.parametrize("narrow", cases(["", *FORMATS], ["int8"]))
def test_programs_that_share_a_sum_give_the_bits_of_one_that_does_not(
    narrow: str, dtype: torch.dtype
) -> None:
    """Drafts share the sums of a matrix with few columns and many inputs; prompts do not."""
    x = normal(MAX_ROWS + 6, 1700).to(dtype)
    tiled = Tiled(normal(40, 1700).to(dtype), normal(40).to(dtype), narrow)
    assert tiled.inner > tiled.part
    whole = tiled(x)
    for rows in (1, 17, MAX_ROWS):
        assert torch.equal(tiled(x[5 : 5 + rows]), whole[5 : 5 + rows]), rows
    assert not products.counters_of(DEVICE).any()


@given(columns=st.integers(1, 200_000), inner=st.integers(1, 40_000), narrow=st.booleans())
def test_parts_of_a_sum_cover_its_inputs(columns: int, inner: int, narrow: bool) -> None:
    """In whole steps, and in no more programs at a time than there are counters."""
    part = products.part_inputs(columns, inner, narrow)
    parts = -(-inner // part)
    assert part % products.PART_STEP == 0 and 1 <= parts <= products.MOST_PARTS
    assert parts == 1 or part >= products.LEAST_INPUTS
    tiles = -(-columns // 64) * -(-MAX_ROWS // 64)
    assert parts == 1 or tiles <= products.COUNTERS


@pytest.mark.parametrize("limit", [99 << 10, 227 << 10])
@pytest.mark.parametrize("narrow", ["", *FORMATS])
def test_tiles_fit_the_shared_memory_of_a_card(narrow: str, limit: int) -> None:
    """And hold all rows of a usual draft, whose weights are widened once, where that is large."""
    for rows, number_bytes, parts in product((*BUCKETS, 1024), (2, 4), (1, 4)):
        wide = "" if rows > MAX_ROWS else narrow
        tile = products.tile_of(rows, narrow, number_bytes, parts)
        tile = products.fitting(tile, wide, number_bytes, limit)
        assert tile.stages * products.stage_bytes(tile, wide, number_bytes) <= limit
        least = min(rows, USUAL_ROWS if limit > 99 << 10 else 32)
        assert tile.rows >= least and tile.stages >= 1


def test_programs_that_share_weights_follow_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """A matrix that is larger than a card's cache is read once for all rows."""
    kernel, grids = products._product, []

    class Recorded:
        def __getitem__(self, grid: tuple[int, ...]) -> Any:
            grids.append(grid)
            return kernel[grid]

    monkeypatch.setattr(products, "_product", Recorded())
    Tiled(normal(200, 64), None)(normal(150, 64))
    assert grids == [(3, 4, 1)]  # the first number runs first


@pytest.mark.skipif(not CUDA, reason="Triton's interpreter does not calculate in bf16")
@pytest.mark.parametrize("narrow", FORMATS)
def test_numbers_of_sixteen_bits(narrow: str) -> None:
    """As on a card: what is multiplied is exact, sums are f32, and only the result is rounded."""
    weight, bias, x = normal(70, 400).bfloat16(), normal(70).bfloat16(), normal(3, 400).bfloat16()
    tiled = Tiled(weight, bias, narrow)
    found = tiled(x)
    assert found.dtype == torch.bfloat16
    expected = torch.nn.functional.linear(x.float(), rounded(tiled), bias.float())
    torch.testing.assert_close(found.float(), expected, rtol=2**-8, atol=1e-3)


@pytest.mark.parametrize("narrow", FORMATS)
@pytest.mark.parametrize("bias", [None, normal(90)])
def test_prompts_get_the_bits_of_drafts(
    narrow: str, bias: Tensor | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though their levels are unpacked before, in several parts."""
    monkeypatch.setattr(products, "WIDENED", 4000)
    tiled, x = Tiled(normal(90, 130), bias, narrow), normal(MAX_ROWS + 6, 130)
    assert torch.equal(tiled(x)[:MAX_ROWS], tiled(x[:MAX_ROWS]))


@pytest.mark.parametrize("narrow", cases(["", *FORMATS], ["int4"]))
def test_a_model_is_loaded_with_one_matrix_in_bf16_at_a_time(narrow: str) -> None:
    """Layers of Qwen2.5-Coder 14B, on a fake device: what they take in the end is as predicted, and
    while they are loaded a card has room for them and one more matrix."""
    settings = {
        "model_type": "qwen2", "hidden_size": 5120, "intermediate_size": 13824,
        "num_hidden_layers": 2, "num_attention_heads": 40, "num_key_value_heads": 8,
        "vocab_size": 15206, "max_position_embeddings": 2048, "rms_norm_eps": 1e-6,
        "rope_theta": 1e6, "tie_word_embeddings": True,
    }  # fmt: skip
    config, card = read_config(settings), torch.device("meta")
    with FakeTensorMode(), torch.inference_mode(), LiveBytes("meta") as seen:
        weights = RandomWeights(settings, torch.device("cpu"), torch.bfloat16)
        model = Llama(config, weights, card, torch.bfloat16, True, narrow)
        taken, most = seen.live, seen.most
    predicted = size_of(config, narrow or "bf16").weights
    vectors = 4 * 5120 * (2 * 2 + 1) + 2 * 7168 * 2  # norms in f32, and biases
    assert taken == predicted + vectors, model
    assert most < taken + 2 * 2 * 13824 * 5120 + 10 * 4 * SLICE


@pytest.mark.parametrize("narrow", FORMATS)
def test_a_gguf_file_is_kept_in_a_card_s_format(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, narrow: str
) -> None:
    """Its tensors are read as numbers, and then rounded: all matrices to the format, the head to
    its own, the embedding not at all."""
    monkeypatch.setenv("DRAFTLINE_HOME", str(tmp_path / "home"))
    write_gguf(tmp_path / "tiny.gguf")
    folder = locate(str(tmp_path / "tiny.gguf"))
    file = tensors_of_gguf(folder)
    assert file is not None
    with file:
        source = GgufWeights(file)
        tensors = {name: source[name] for name in source}
        if not CUDA:
            monkeypatch.setattr(llama, "product", as_on_a_card)
        kept = Llama(file.config, source, DEVICE, torch.float32, True, narrow)
    for name, tensor in tensors.items():
        if tensor.dim() == 2 and name != "model.embed_tokens.weight":
            own = head_format(narrow) if name == "lm_head.weight" else narrow
            tensors[name] = rounded(Tiled(tensor.to(DEVICE), None, own)).cpu()
    expected = Llama(file.config, tensors, DEVICE, torch.float32, True)
    logits = []
    for model in (kept, expected):
        cache = torch.zeros(2, model.layers, model.kv_heads, 8, model.head_dim, device=DEVICE)
        ids = torch.tensor([3, 50, 7, 99, 12], device=DEVICE)
        states = model.run(ids, Rows.of(0, [-1, 0, 1, 2, 3], DEVICE), (cache,))
        logits.append(model.head(states))
    torch.testing.assert_close(*logits, **NEAR)
    assert kept.embedding.equal(tensors["model.embed_tokens.weight"].to(DEVICE))
