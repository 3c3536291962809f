"""The native kernels: a row's bits depend on that row alone, and float64 numpy oracles agree.

All instruction sets of this processor are compared bit for bit.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from engine.model import _kernels as kernels
from engine.model.families.gguf_tensors import F32_KIND
from tests.support.kernels import F32, forward, isas, normal, quantized, reseed, rng, same, weights

BEST = kernels.isa()


@pytest.fixture(autouse=True)
def two_threads() -> Iterator[None]:
    reseed()
    kernels.set_threads(2)
    yield
    kernels.set_isa(BEST)
    kernels.set_threads(1)


# --- QLinear ---------------------------------------------------------------------------------


@pytest.mark.parametrize("out, n", [(1, 1), (17, 33), (16, 32), (33, 31), (64, 96), (100, 500)])
@pytest.mark.parametrize("biased", [False, True])
def test_forward_is_the_quantized_product(out: int, n: int, biased: bool) -> None:
    w, x, bias = normal(out, n), normal(9, n), normal(out) if biased else None
    linear = kernels.QLinear(w, bias)
    kept = weights(linear).astype(np.float64)
    oracle = quantized(x) @ kept.T + (0 if bias is None else bias)
    size = np.abs(quantized(x)) @ np.abs(kept).T + 1
    assert np.all(np.abs(forward(linear, x) - oracle) <= 2e-6 * size)
    assert linear.shape == (out, n)


def test_weights_are_within_half_a_quantization_step() -> None:
    w = normal(40, 100) * np.exp(3 * normal(40, 1))
    padded = np.zeros((40, 128), np.float32)
    padded[:, :100] = w
    amax = np.abs(padded.reshape(40, 4, 32)).max(2).repeat(32, 1)[:, :100]
    # Half a step of amax / 127, which bfloat16's rounding up makes at most 1/128 larger.
    assert np.all(np.abs(weights(kernels.QLinear(w)) - w) <= amax / 254 * (1 + 1 / 127))
    assert not np.array_equal(weights(kernels.QLinear(w)), w)


def test_bfloat16_weights_equal_the_same_values_in_float32() -> None:
    bits = (normal(20, 50).view(np.uint32) >> 16).astype(np.uint16)
    values = (bits.astype(np.uint32) << 16).view(np.float32)
    assert same(weights(kernels.QLinear(bits)), weights(kernels.QLinear(values)))


def test_a_row_does_not_depend_on_other_rows() -> None:
    linear, x = kernels.QLinear(normal(75, 200), normal(75)), normal(140, 200)
    alone = np.concatenate([forward(linear, x[i : i + 1]) for i in range(len(x))])
    for k in [*range(1, 34), 63, 64, 65, 128, 140]:
        rows = rng.permutation(len(x))[:k]
        assert same(forward(linear, x[rows]), alone[rows]), k


def test_every_instruction_set_and_thread_count_gives_the_same_bits() -> None:
    scale = np.exp(8 * normal(13, 1))
    for out, n in [(17, 33), (200, 96), (31, 321)]:
        linear, x = kernels.QLinear(normal(out, n), normal(out)), normal(13, n) * scale
        expected = forward(linear, x)
        for name in isas():
            kernels.set_isa(name)
            for threads in (1, 2, 3):
                kernels.set_threads(threads)
                for k in range(1, 14):
                    assert same(forward(linear, x[:k]), expected[:k]), (name, threads, k)


@pytest.mark.parametrize("magnitude", [0.0, 1e-42, 1e-30, 1e-6, 1e6, 1e18])
def test_extreme_magnitudes(magnitude: float) -> None:
    w, x = normal(20, 64), (normal(3, 64) * magnitude).astype(np.float32)
    y = forward(kernels.QLinear(w), x)
    exact = x.astype(np.float64) @ w.T.astype(np.float64)
    assert np.allclose(y, exact, rtol=0, atol=0.2 * magnitude + 1e-34)
    swapped = forward(kernels.QLinear(x), w)  # the same values as weights
    assert np.allclose(swapped, exact.T, rtol=0, atol=0.2 * magnitude + 1e-34)
    assert magnitude < 1e-36 or np.abs(y).max() > magnitude


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_row_with_nan_or_infinity_gives_nan_in_that_row_only(bad: float) -> None:
    linear, x = kernels.QLinear(normal(20, 70)), normal(5, 70)
    clean = forward(linear, x)
    x[2, 65] = bad
    for name in isas():
        kernels.set_isa(name)
        y = forward(linear, x)
        assert np.isnan(y[2]).all()
        assert same(np.delete(y, 2, 0), np.delete(clean, 2, 0))


@pytest.mark.parametrize("tiles", [[], [0], [3], [0, 2, 6], list(range(7))], ids=str)
def test_some_tiles_have_the_bits_of_the_whole_product(tiles: list[int]) -> None:
    some = np.array(tiles, np.int32)
    for linear in (kernels.QLinear(normal(200, 96), normal(200)), stored_floats(normal(200, 96))):
        x = normal(5, 96)
        whole, out = forward(linear, x), np.full((5, 200), 7, np.float32)
        for name in isas():
            kernels.set_isa(name)
            linear.forward_tiles(x, out, some)
            chosen = np.isin(np.arange(200) // kernels.TILE, tiles)
            assert same(out[:, chosen], whole[:, chosen])
            assert (out[:, ~chosen] == 7).all()


def stored_floats(weight: NDArray[np.float32]) -> kernels.QLinear:
    return kernels.QLinear.stored([(F32_KIND, weight.view(np.uint8))], weight.shape[1])


def test_invalid_input_raises_an_error_of_one_line() -> None:
    w = normal(4, 8)
    with pytest.raises(ValueError, match=r"^x has shape \(2, 7\): expected \(2, 8\)$"):
        kernels.QLinear(w).forward(normal(2, 7), normal(2, 4))
    with pytest.raises(ValueError, match=r"^out has shape \(3, 4\): expected \(2, 4\)$"):
        kernels.QLinear(w).forward(normal(2, 8), normal(3, 4))
    with pytest.raises(ValueError, match=r"^bias has shape \(5\): expected \(4\)$"):
        kernels.QLinear(w, normal(5))
    for tile in (-1, 1):
        with pytest.raises(ValueError, match=rf"^tile {tile}: must be 0 to 0$"):
            some = np.array([tile], np.int32)
            kernels.QLinear(w).forward_tiles(normal(2, 8), normal(2, 4), some)
    w[3, 1] = np.nan
    with pytest.raises(ValueError, match=r"^weight: output channel 3 holds NaN or infinity"):
        kernels.QLinear(w)
    with pytest.raises(TypeError):
        kernels.QLinear(normal(4, 8).astype(np.float64))
    with pytest.raises(ValueError, match=r"^threads 0: must be 1 or more"):
        kernels.set_threads(0)
    with pytest.raises(ValueError, match=r"^isa mmx: must be"):
        kernels.set_isa("mmx")


def test_concurrent_calls() -> None:
    linears = [kernels.QLinear(normal(160, 96)) for _ in range(3)]
    xs = [normal(k, 96) for k in (1, 7, 20)]
    expected = [forward(linear, x) for linear, x in zip(linears, xs, strict=True)]
    wrong: list[int] = []

    def work(i: int) -> None:
        wrong.extend(i for _ in range(50) if not same(forward(linears[i], xs[i]), expected[i]))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_threads_of_a_low_priority_write_the_same_bits() -> None:
    linear, x = kernels.QLinear(normal(100, 500)), normal(33, 500)
    expected, found = forward(linear, x), list[Any]()

    def run() -> None:
        kernels.lower_priority()
        for threads in (1, 3, 2):
            kernels.set_threads(threads)
            found.append(forward(linear, x))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert len(found) == 3 and all(same(one, expected) for one in found)


# --- norms and gates -------------------------------------------------------------------------


@pytest.mark.parametrize("k, n", [(1, 1), (3, 17), (5, 896), (70, 1000)])
def test_norms_and_gates_match_float64_and_treat_rows_alone(k: int, n: int) -> None:
    x, delta, weight, gate_up = normal(k, n), normal(k, n), normal(n), 20 * normal(k, 2 * n)

    def run(rows: slice) -> list[F32]:
        total = x[rows].copy()
        plain, added, gated = (np.full_like(total, np.nan) for _ in range(3))
        kernels.rms_norm(x[rows], weight, 1e-6, plain)
        kernels.add_rms_norm(total, delta[rows], weight, 1e-6, added)
        kernels.silu_mul(gate_up[rows], gated)
        return [plain, total, added, gated]

    results = run(slice(None))
    wide, gate = (x + delta).astype(np.float64), gate_up[:, :n].astype(np.float64)
    expected = [
        x / np.sqrt((x.astype(np.float64) ** 2).mean(1, keepdims=True) + 1e-6) * weight,
        x + delta,
        wide / np.sqrt((wide**2).mean(1, keepdims=True) + 1e-6) * weight,
        gate / (1 + np.exp(-gate)) * gate_up[:, n:],
    ]
    for result, right in zip(results, expected, strict=True):
        assert np.allclose(result, right, rtol=3e-6, atol=1e-6)
    for name in isas():
        kernels.set_isa(name)
        for i in range(k):
            one = run(slice(i, i + 1))
            assert all(same(a, b[i : i + 1]) for a, b in zip(one, results, strict=True)), (name, i)


def test_silu_of_extremes() -> None:
    gate_up = np.array([[-1e30, 1e30, -100, 0, np.nan, 1, 1, 1, 1, 1]], np.float32)
    out = np.empty((1, 5), np.float32)
    kernels.silu_mul(gate_up, out)
    assert out[0, :4].tolist() == [0, np.float32(1e30), 0, 0]
    assert np.isnan(out[0, 4])


def sigmoid(x: NDArray[np.float64]) -> NDArray[np.float64]:
    return 0.5 * (1 + np.tanh(x / 2))


def normed(x: NDArray[np.float64], weight: F32 | float = 1.0) -> NDArray[np.float64]:
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-6) * weight


def gates_of(gate_up: F32, x: F32, heads: F32, weight: F32) -> list[F32]:
    """Every kernel of gates; `heads` [rows, heads, d], and gates are columns of gate_up."""
    rows, n = len(gate_up), gate_up.shape[1] // 2
    gelu, clamped = (np.full((rows, n), np.nan, np.float32) for _ in range(2))
    kernels.gelu_mul(gate_up, gelu)
    kernels.clamped_swiglu(gate_up, 1.702, 7.0, clamped)
    scaled, capped = x.copy(), gate_up.copy()
    kernels.sigmoid_mul(gate_up[:, n:], scaled)
    kernels.softcap(capped, 30.0)
    out, (_, count, d) = np.full_like(heads, np.nan), heads.shape
    kernels.gated_norm(
        heads, gate_up[:, 1 : 1 + count * d].reshape(rows, count, d), weight, 1e-6, out
    )
    return [gelu, clamped, scaled, capped, out.reshape(rows, -1)]


@pytest.mark.parametrize("k, heads, d", [(1, 1, 1), (3, 2, 9), (5, 6, 128), (40, 3, 40)])
def test_gates_match_float64_and_treat_rows_alone(k: int, heads: int, d: int) -> None:
    n = heads * d + 3
    gate_up, x = 8 * normal(k, 2 * n), normal(k, n)
    parts, weight = normal(k, heads, d), normal(d)
    results = gates_of(gate_up, x, parts, weight)
    wide = gate_up.astype(np.float64)
    gate, up = wide[:, :n], wide[:, n:]
    gelu = 0.5 * gate * (1 + np.tanh(np.sqrt(2 / np.pi) * (gate + 0.044715 * gate**3)))
    least, between = np.minimum(gate, 7), np.clip(up, -7, 7)
    silu = gate * sigmoid(gate)
    expected = [
        gelu * up,
        (between + 1) * least * sigmoid(1.702 * least),
        x * sigmoid(up),
        30 * np.tanh(wide / 30),
        (normed(parts.astype(np.float64), weight).reshape(k, -1) * silu[:, 1 : 1 + heads * d]),
    ]
    for result, right in zip(results, expected, strict=True):
        assert np.allclose(result, right, rtol=3e-6, atol=1e-5)
    for name in isas():
        kernels.set_isa(name)
        for i in range(k):
            one = gates_of(*(a[i : i + 1] for a in (gate_up, x, parts)), weight)
            assert all(same(a, b[i : i + 1]) for a, b in zip(one, results, strict=True)), (name, i)


def test_gates_of_extremes() -> None:
    gates = [-1e30, 1e30, -100, 0, np.nan, np.inf]
    gate_up = np.array([[*gates, 1, 1, 1, 1, 1, 1]], np.float32)
    out = np.empty((1, 6), np.float32)
    kernels.gelu_mul(gate_up, out)
    assert out[0, :4].tolist() == [0, np.float32(1e30), 0, 0]
    assert np.isnan(out[0, 4]) and out[0, 5] == np.inf
    kernels.clamped_swiglu(gate_up, 1.702, 7.0, out)
    assert np.allclose(out[0, :4], [0, 14, 0, 0], atol=1e-3) and np.isnan(out[0, 4])
    assert np.isclose(out[0, 5], 14, atol=1e-3)
    x = np.array([[-1e30, -1e-6, 1e-6, 1e30, np.inf, np.nan]], np.float32)
    kernels.softcap(x, 30.0)
    assert np.allclose(x[0, :5], [-30, -1e-6, 1e-6, 30, 30], rtol=1e-6) and np.isnan(x[0, 5])


def test_gates_reject_invalid_input() -> None:
    x = normal(3, 4)
    with pytest.raises(ValueError, match=r"^gate_up has shape \(3, 4\): expected \(3, 8\)$"):
        kernels.gelu_mul(x, normal(3, 4))
    with pytest.raises(ValueError, match=r"^gate has gaps in its rows: give it in C order$"):
        kernels.sigmoid_mul(normal(3, 8)[:, ::2], x)
    with pytest.raises(ValueError, match=r"^gate has rows that overlap: give them in order$"):
        kernels.sigmoid_mul(normal(3, 4)[::-1], x)
    with pytest.raises(ValueError, match=r"^cap 0.0+: must be above 0$"):
        kernels.softcap(x, 0.0)


# --- split_heads -----------------------------------------------------------------------------


def split(qkv: F32, heads: int, kv: int, d: int, base: int, **options: Any) -> list[F32]:
    """q, then the caches' rows of the pass: [rows, ...] each. Other rows of the caches stay."""
    rows = len(qkv)
    q = np.full((rows, heads, d), np.nan, np.float32)
    caches = [np.full((kv, base + rows + 2, d), 5, np.float32) for _ in range(2 if kv else 0)]
    keys, values = caches or (None, None)
    kernels.split_heads(np.ascontiguousarray(qkv), q, keys, values, base, eps=1e-6, **options)
    for one in caches:
        assert np.all(one[:, :base] == 5) and np.all(one[:, base + rows :] == 5)
    return [q, *(one[:, base : base + rows].swapaxes(0, 1).copy() for one in caches)]


@pytest.mark.parametrize("heads, kv, d, pairs", [(4, 2, 64, 32), (3, 3, 40, 5), (5, 1, 17, 3),
                                                 (2, 2, 512, 256), (3, 0, 16, 8)])  # fmt: skip
@pytest.mark.parametrize("options", [set(), {"q_norm", "k_norm", "q_factor"}, {"k_norm"},
                                     {"norm_values", "values_of_keys", "q_norm"}])  # fmt: skip
def test_heads_are_normed_turned_and_stored(
    heads: int, kv: int, d: int, pairs: int, options: set[str]
) -> None:
    rows, base = 7, 3
    qkv = normal(rows, (heads + 2 * kv) * d + 5)
    angles = normal(rows, pairs) * 3
    turn = np.exp(1j * angles).astype(np.complex64)
    of_row = {"turn": turn, "q_factor": 1 + np.abs(normal(rows))}
    made: dict[str, Any] = {
        **of_row, "q_norm": normal(d), "k_norm": normal(d), "norm_values": True,
        "values_of_keys": True,
    }  # fmt: skip
    given = {name: value for name, value in made.items() if name in options | {"turn"}}

    wide = qkv.astype(np.float64)
    q = wide[:, : heads * d].reshape(rows, heads, d)
    k, v = np.split(wide[:, heads * d : (heads + 2 * kv) * d].reshape(rows, 2 * kv, d), 2, axis=1)
    if "values_of_keys" in given:
        v = k

    def turned(x: NDArray[np.float64], weight: F32 | None) -> NDArray[np.float64]:
        x = x.copy() if weight is None else normed(x, weight)
        complex_pairs = (x[..., : 2 * pairs : 2] + 1j * x[..., 1 : 2 * pairs : 2]) * turn[:, None]
        x[..., : 2 * pairs : 2], x[..., 1 : 2 * pairs : 2] = complex_pairs.real, complex_pairs.imag
        return x

    expected = [
        turned(q, given.get("q_norm")) * np.reshape(given.get("q_factor", 1), (-1, 1, 1)),
        turned(k, given.get("k_norm")),
        normed(v) if "norm_values" in given else v,
    ]
    results = split(qkv, heads, kv, d, base, **given)
    assert len(results) == (3 if kv else 1)
    for result, right in zip(results, expected, strict=False):
        assert np.allclose(result, right, rtol=1e-5, atol=1e-5)
    for name in isas():
        kernels.set_isa(name)
        for i in range(rows):
            alone = {key: one[i : i + 1] if key in of_row else one for key, one in given.items()}
            part = split(qkv[i : i + 1], heads, kv, d, base + i, **alone)
            assert all(same(a, b[i : i + 1]) for a, b in zip(part, results, strict=True)), (name, i)


def test_heads_without_a_turn_are_copied() -> None:
    qkv = normal(4, 6 * 16)
    q, k, v = split(qkv, 2, 2, 16, 0)
    assert same(np.concatenate([q, k, v], 1).reshape(4, -1), qkv)


def test_split_heads_rejects_invalid_input() -> None:
    with pytest.raises(ValueError, match=r"^qkv has shape \(2, 95\): expected \(2, 96\)$"):
        split(normal(2, 95), 2, 2, 16, 0)
    with pytest.raises(ValueError, match=r"^turn has 9 pairs: heads have 8$"):
        split(normal(2, 96), 2, 2, 16, 0, turn=np.ones((2, 9), np.complex64))
    with pytest.raises(ValueError, match=r"^q_factor has shape \(3\): expected \(2\)$"):
        split(normal(2, 96), 2, 2, 16, 0, q_factor=normal(3))
    keys = normal(2, 3, 16)
    with pytest.raises(ValueError, match=r"^keys and values: give both, or neither$"):
        kernels.split_heads(normal(2, 96), normal(2, 2, 16), keys, None, 0)
    with pytest.raises(ValueError, match=r"^base 2 and 2 rows: must fit the cache's 3$"):
        kernels.split_heads(normal(2, 96), normal(2, 2, 16), keys, keys, 2)
