"""Weights as GGUF files store them: held against the gguf package's reference, bit for bit."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from gguf.constants import GGML_QUANT_SIZES
from gguf.constants import GGMLQuantizationType as Kind
from gguf.quants import dequantize
from numpy.typing import NDArray

from engine.model import _kernels as kernels
from tests.support.kernels import F32, forward, isas, normal, quantized, reseed, rng, same, weights

# Where the f16 scales and minima of a block are; all other bytes may have any value.
SCALES = {
    Kind.Q4_0: [0], Kind.Q4_1: [0, 2], Kind.Q5_0: [0], Kind.Q5_1: [0, 2], Kind.Q8_0: [0],
    Kind.Q2_K: [80, 82], Kind.Q3_K: [108], Kind.Q4_K: [0, 2], Kind.Q5_K: [0, 2], Kind.Q6_K: [208],
    Kind.IQ4_NL: [0], Kind.IQ4_XS: [0], Kind.MXFP4: [],
}  # fmt: skip
FACTORS = {  # where the integers are that these scales are multiplied with
    Kind.Q2_K: slice(0, 16), Kind.Q3_K: slice(96, 108), Kind.Q4_K: slice(4, 16),
    Kind.Q5_K: slice(4, 16), Kind.Q6_K: slice(192, 208), Kind.IQ4_XS: slice(2, 8),
    Kind.MXFP4: slice(0, 1),
}  # fmt: skip
FLOATS = [Kind.F32, Kind.F16, Kind.BF16]
EVERY = [*SCALES, *FLOATS]
Bytes = NDArray[np.uint8]


@pytest.fixture(autouse=True)
def best_isa() -> Iterator[None]:
    reseed()
    best = kernels.isa()
    yield
    kernels.set_isa(best)
    kernels.set_threads(1)


def stored(kind: Kind, out: int, n: int) -> Bytes:
    """Random weights [out, bytes of a row]."""
    inputs, size = GGML_QUANT_SIZES[kind]
    if kind in FLOATS:
        values = normal(out, n)
        if kind == Kind.F16:
            return values.astype(np.float16).view(np.uint8)
        return (
            (values if kind == Kind.F32 else values.view(np.uint16)[:, 1::2]).copy().view(np.uint8)
        )
    blocks = rng.integers(0, 256, (out, n // inputs, size), dtype=np.uint8)
    for at in SCALES[kind]:
        scales = rng.standard_normal((out, n // inputs, 1)) * np.exp(rng.normal(-4, 3))
        blocks[:, :, at : at + 2] = scales.astype(np.float16).view(np.uint8)
    if kind == Kind.MXFP4:
        blocks[:, :, 0] = rng.integers(90, 140, (out, n // inputs))
    return blocks.reshape(out, -1)


def reference(kind: Kind, rows: Bytes) -> F32:
    if kind == Kind.F32:
        return rows.view(np.float32)
    if kind == Kind.F16:
        return rows.view(np.float16).astype(np.float32)
    return np.asarray(dequantize(rows, kind), np.float32)


@pytest.mark.parametrize("kind", EVERY, ids=lambda kind: kind.name)
def test_weights_equal_the_reference(kind: Kind) -> None:
    for out, n in ((1, 256), (75, 512)):
        rows = stored(kind, out, n)
        expected = reference(kind, rows)
        assert same(weights(kernels.QLinear.stored([(int(kind), rows)], n)), expected)
        found = np.empty((out, n), np.float32)
        kernels.dequantize(int(kind), rows, found)
        assert same(found, expected)


def test_any_scale_of_mxfp4() -> None:
    rows = stored(Kind.MXFP4, 256, 32)
    rows[:, 0] = np.arange(256)
    found = np.empty((256, 32), np.float32)
    kernels.dequantize(int(Kind.MXFP4), rows, found)
    assert same(found, reference(Kind.MXFP4, rows))
    usable = rows[:253]
    assert same(weights(kernels.QLinear.stored([(int(Kind.MXFP4), usable)], 32)), found[:253])
    for scale in range(253, 256):
        with pytest.raises(ValueError, match=r"^weight: output channel 0 holds NaN or infinity"):
            kernels.QLinear.stored([(int(Kind.MXFP4), rows[scale : scale + 1])], 32)


@pytest.mark.parametrize("kind", EVERY, ids=lambda kind: kind.name)
def test_products_are_those_of_the_reference(kind: Kind) -> None:
    """With x in 8 bits, or as it is beside weights that are floats; up to rounding."""
    rows, x, bias = stored(kind, 40, 768), normal(9, 768), normal(40)
    linear = kernels.QLinear.stored([(int(kind), rows)], 768, bias)
    w, seen = reference(kind, rows).astype(np.float64), x.astype(np.float64)
    if kind not in FLOATS:
        seen = quantized(x)
    size = np.abs(seen) @ np.abs(w).T + np.abs(bias)
    parts = 8 if kind in (Kind.Q2_K, Kind.Q4_1, Kind.Q5_1, Kind.Q4_K, Kind.Q5_K) else 1
    assert np.all(np.abs(forward(linear, x) - (seen @ w.T + bias)) <= parts * 4e-6 * size)


@pytest.mark.parametrize("kind", EVERY, ids=lambda kind: kind.name)
def test_a_row_has_the_same_bits_in_every_pass(kind: Kind) -> None:
    """Whatever rows are beside it, on every instruction set and number of threads."""
    n = 512 if kind in SCALES else 37
    linear = kernels.QLinear.stored([(int(kind), stored(kind, 70, n))], n, normal(70))
    x = normal(15, n) * np.exp(3 * normal(15, 1))
    alone = np.concatenate([forward(linear, x[i : i + 1]) for i in range(len(x))])
    for isa in isas():
        kernels.set_isa(isa)
        for count in (1, 2, 3, 4, 5, 6, 7, 12, 15):
            kernels.set_threads(1 + count % 3)
            rows = rng.permutation(len(x))[:count]
            assert same(forward(linear, x[rows]), alone[rows]), (isa, count)


@pytest.mark.parametrize("kind", SCALES, ids=lambda kind: kind.name)
def test_the_largest_levels_and_inputs_overflow_no_sum(kind: Kind) -> None:
    """Levels whose bits are all 0 or all 1, and inputs that are 127 or -127 in 8 bits."""
    rows = stored(kind, 66, 512)
    blocks = rows.reshape(66, -1, GGML_QUANT_SIZES[kind][1])
    levels = np.ones(blocks.shape[2], bool)
    for at in SCALES[kind]:
        levels[at : at + 2] = False
    levels[FACTORS.get(kind, slice(0))] = False
    blocks[:33, :, levels], blocks[33:, :, levels] = 0, 255
    linear = kernels.QLinear.stored([(int(kind), rows)], 512)
    x = np.concatenate([np.ones((1, 512)), -np.ones((1, 512)), np.sign(normal(7, 512))])
    x = x.astype(np.float32)
    kernels.set_isa("plain")
    expected = forward(linear, x)
    for isa in isas():
        kernels.set_isa(isa)
        for count in (1, 2, 9):
            assert same(forward(linear, x[:count]), expected[:count]), (isa, count)


def test_parts_of_several_formats_are_those_alone() -> None:
    x = normal(7, 256)
    parts = [(kind, stored(kind, 20 + 7 * at, 256)) for at, kind in enumerate(EVERY)]
    for chosen in ([0, 5, 9], [13, 2], [14], [15, 13, 7, 7], range(len(parts))):
        some = [parts[at] for at in chosen]
        linear = kernels.QLinear.stored([(int(kind), rows) for kind, rows in some], 256)
        alone = [kernels.QLinear.stored([(int(kind), rows)], 256) for kind, rows in some]
        for isa in isas():
            kernels.set_isa(isa)
            assert same(forward(linear, x), np.concatenate([forward(one, x) for one in alone], 1))
        assert same(weights(linear), np.concatenate([weights(one) for one in alone]))


def test_packed_weights_are_hardly_larger_than_the_files() -> None:
    larger = {Kind.Q2_K: 1.2, Kind.MXFP4: 1.06, Kind.Q3_K: 1.04}
    for kind in EVERY:
        rows = stored(kind, 64, 1024)
        size = kernels.QLinear.stored([(int(kind), rows)], 1024).nbytes
        assert size <= larger.get(kind, 1.03) * rows.nbytes, kind.name


@pytest.mark.parametrize("kind", EVERY, ids=lambda kind: kind.name)
@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan])
def test_a_scale_that_is_not_finite_is_refused(kind: Kind, bad: float) -> None:
    if kind == Kind.MXFP4:
        return  # each of its scales is a power of two
    rows = stored(kind, 40, 256)
    for at in SCALES.get(kind, [4]):
        broken = rows.copy()
        value = np.array([bad], np.float16 if kind not in (Kind.F32, Kind.BF16) else np.float32)
        if kind == Kind.BF16:
            value = value.view(np.uint16)[1:]
        broken[33, at : at + value.nbytes] = value.view(np.uint8)
        with pytest.raises(ValueError, match=r"^weight: output channel 33 holds NaN or infinity"):
            kernels.QLinear.stored([(int(kind), broken)], 256)


def test_what_does_not_fit_is_one_line() -> None:
    rows = stored(Kind.Q4_K, 3, 512)
    for parts, inputs, line in [
        ([], 512, "weight is empty: give at least one"),
        ([(12, rows)], 0, "weight is empty: give at least one"),
        ([(99, rows)], 512, "weights of type 99 are not known"),
        ([(12, rows)], 500, "weight has 500 inputs: expected whole blocks of 256"),
        ([(12, rows)], 768, r"weight has shape \(3, 288\): expected \(3, 432\)"),
    ]:
        with pytest.raises(ValueError, match=f"^{line}$"):
            kernels.QLinear.stored(parts, inputs)
    with pytest.raises(ValueError, match=r"^bias has shape \(4\): expected \(3\)$"):
        kernels.QLinear.stored([(12, rows)], 512, normal(4))
    linear = kernels.QLinear.stored([(12, rows)], 512)
    for channel in (-1, 3):
        with pytest.raises(ValueError, match=f"^channel {channel}: must be 0 to 2$"):
            linear.channels(np.array([channel]), np.empty((1, 512), np.float32))


def test_four_bits_are_within_half_a_step_of_a_block() -> None:
    w = normal(40, 100) * np.exp(3 * normal(40, 1)) + normal(40, 1)
    padded = np.zeros((40, 128), np.float32)
    padded[:, :100] = w
    blocks = padded.reshape(40, 4, 32)
    low, high = (edge(2).repeat(32, 1)[:, :100] for edge in (blocks.min, blocks.max))
    found = weights(kernels.QLinear(w, bits=4))
    # bfloat16 rounds the minimum down by 1/128 of it at most, and the step up by as much.
    step = (high - low + np.abs(low) / 128) / 15 * (1 + 1 / 128)
    assert np.all(np.abs(found - w) <= step / 2 + 1e-6 * np.abs(w))
    assert kernels.QLinear(w, bits=4).nbytes < 0.7 * kernels.QLinear(w).nbytes
    x, linear = normal(9, 100), kernels.QLinear(w, bits=4)
    alone = np.concatenate([forward(linear, x[i : i + 1]) for i in range(len(x))])
    for isa in isas():
        kernels.set_isa(isa)
        assert same(forward(linear, x), alone)
    with pytest.raises(ValueError, match=r"^bits 5: must be 4 or 8$"):
        kernels.QLinear(w, bits=5)
    w[3, 1] = np.inf
    with pytest.raises(ValueError, match=r"^weight: output channel 3 holds NaN or infinity"):
        kernels.QLinear(w, bits=4)
