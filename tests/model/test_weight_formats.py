"""Formats of weights on a card: what is kept of a weight, how it is packed, and the bytes it
takes."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from engine.model.torch.cuda import weight_formats
from engine.model.torch.cuda.weight_formats import (
    FORMATS,
    GROUP,
    QUAD,
    by_channel,
    by_group,
    head_format,
    matrix_bytes,
    unpaired,
    widened,
)
from tests.support.live_bytes import LiveBytes

SHAPES = [(1, 1), (3, 64), (5, 130), (7, 256), (4, 700)]


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def kept(weight: Tensor, narrow: str) -> Tensor:
    """What a format keeps of a weight, in f32."""
    if narrow == "int4":
        return widened(*by_group(weight), weight.shape[1], torch.float32)
    words, scales = by_channel(weight, narrow)
    return unpaired(words, weight.shape[1], narrow).float() * scales[:, None]


def plainly(weight: Tensor) -> list[list[float]]:
    """int4, one weight after another."""
    made: list[list[float]] = []
    for channel in weight.tolist():
        made.append([])
        for start in range(0, len(channel), GROUP):
            group = channel[start : start + GROUP]
            largest = max(group, key=abs)
            scale = float(torch.tensor(largest / -8).bfloat16()) or 1.0
            for one in group:
                made[-1].append(max(-8, min(7, round(one / scale))) * scale)
    return made


@pytest.mark.parametrize("shape", SHAPES)
def test_groups_of_four_bits_are_those_of_a_plain_loop(shape: tuple[int, int]) -> None:
    weight = normal(*shape)
    torch.testing.assert_close(kept(weight, "int4"), torch.tensor(plainly(weight)))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("narrow", FORMATS)
def test_no_weight_moves_by_more_than_its_scale_allows(narrow: str, shape: tuple[int, int]) -> None:
    weight = normal(*shape)
    error = (kept(weight, narrow) - weight).abs()
    largest = weight.abs().amax(1, keepdim=True)
    if narrow == "int8":
        assert (error <= largest / 127 * 0.501).all()
    elif narrow == "fp8":  # 3 bits behind the first, and below the smallest normal number steps
        assert (error <= torch.maximum(weight.abs() / 16, largest / 448 * 2**-10) * 1.001).all()
    else:  # of a group; the largest weight's opposite is one step beyond the levels
        inner = shape[1]
        padded = torch.nn.functional.pad(weight, (0, -inner % GROUP)).unflatten(1, (-1, GROUP))
        step = padded.abs().amax(2, keepdim=True) / 8
        assert (error <= step.expand_as(padded).flatten(1)[:, :inner] * 1.04).all()


def test_eight_bits_are_nearer_than_four() -> None:
    """In root mean squares, relative to normal weights: what a channel's or a group's levels
    give."""
    weight = normal(64, 1024)
    off = {name: float((kept(weight, name) - weight).norm() / weight.norm()) for name in FORMATS}
    assert off["int8"] < 0.009 < off["fp8"] < 0.03 < 0.08 < off["int4"] < 0.1


@pytest.mark.parametrize("narrow", FORMATS)
def test_zeros_stay_zeros(narrow: str) -> None:
    weight = normal(4, 300)
    weight[1], weight[2, 64:128] = 0, 0
    found = kept(weight, narrow)
    assert (found[weight == 0] == 0).all() and found.isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("narrow", FORMATS)
def test_slices_make_no_difference(
    narrow: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    weight = normal(13, 130).to(dtype)
    whole = kept(weight, narrow)
    monkeypatch.setattr(weight_formats, "SLICE", 4 * 130 + 5)
    assert torch.equal(kept(weight, narrow), whole)


def test_parts_of_a_packed_weight_are_widened_alone() -> None:
    """Output channels; and to numbers of fewer bits by rounding."""
    words, scales = by_group(normal(9, 300))
    whole = widened(words, scales, 300, torch.float32)
    part = slice(3, 7)
    assert torch.equal(widened(words[part], scales[:, part], 300, torch.float32), whole[part])
    narrow = widened(words, scales, 300, torch.bfloat16)
    torch.testing.assert_close(narrow.float(), whole, rtol=2**-8, atol=0)


def test_padding_is_zeros() -> None:
    words, scales = by_group(normal(3, 70))
    assert words.shape == (3, GROUP) and scales.shape == (QUAD, 3)
    assert not widened(words, scales, QUAD * GROUP, torch.float32)[:, 70:].any()


@given(st.integers(1, 9), st.integers(1, 600))
def test_sizes_are_those_of_the_tensors(out: int, inner: int) -> None:
    weight = torch.zeros(out, inner)
    for name, tensors in (
        ("int8", by_channel(weight, "int8")),
        ("fp8", by_channel(weight, "fp8")),
        ("int4", by_group(weight)),
    ):
        assert matrix_bytes(name, 2, out, inner) == sum(one.nbytes for one in tensors)
    assert matrix_bytes("", 2, out, inner) == weight.bfloat16().nbytes


def test_a_head_keeps_eight_bits() -> None:
    assert [head_format(name) for name in ("", *FORMATS)] == ["", "int8", "fp8", "int8"]


@pytest.mark.parametrize("narrow", FORMATS)
def test_little_memory_is_taken_beside_a_weight_and_its_format(
    narrow: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Several f32 copies of one slice at a time, not of the weight."""
    monkeypatch.setattr(weight_formats, "SLICE", 8 * 512)
    weight = normal(400, 512).bfloat16()
    with LiveBytes("cpu") as seen:
        tensors = by_group(weight) if narrow == "int4" else by_channel(weight, narrow)
    own = sum(one.nbytes for one in tensors)
    assert own <= seen.most < own + 10 * 4 * weight_formats.SLICE
