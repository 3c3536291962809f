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
from tests.support.kernels import F32, forward, isas, normal, quantized, reseed, rng, same, weights

BEST = kernels.isa()
U8 = NDArray[np.uint8]


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


def test_invalid_input_raises_an_error_of_one_line() -> None:
    w = normal(4, 8)
    with pytest.raises(ValueError, match=r"^x has shape \(2, 7\): expected \(2, 8\)$"):
        kernels.QLinear(w).forward(normal(2, 7), normal(2, 4))
    with pytest.raises(ValueError, match=r"^out has shape \(3, 4\): expected \(2, 4\)$"):
        kernels.QLinear(w).forward(normal(2, 8), normal(3, 4))
    with pytest.raises(ValueError, match=r"^bias has shape \(5\): expected \(4\)$"):
        kernels.QLinear(w, normal(5))
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


# --- attend ----------------------------------------------------------------------------------


def path(parents: list[int], node: int) -> list[int]:
    """The ancestors of a node from the root down, then the node."""
    return [*(path(parents, parents[node]) if parents[node] >= 0 else []), node]


def random_tree(k: int) -> list[int]:
    return [int(rng.integers(-1, i)) for i in range(k)]


def attend(
    q: F32,
    keys: F32 | U8,
    values: F32 | U8,
    base: int,
    parents: list[int],
    window: int = 0,
    softcap: float = 0.0,
    sinks: F32 | None = None,
) -> F32:
    out = np.full((len(q), q.shape[1] * q.shape[2]), np.nan, np.float32)
    tree, scale = np.array(parents, np.int32), q.shape[2] ** -0.5
    q = np.ascontiguousarray(q)
    kernels.attend(q, keys, values, base, tree, scale, out, window, softcap, sinks)
    return out


def cache(kv: int, filled: int, d: int, capacity: int) -> tuple[F32, F32]:
    """Keys and values whose rows past `filled` are NaN."""
    keys, values = (np.full((kv, capacity, d), np.nan, np.float32) for _ in range(2))
    keys[:, :filled], values[:, :filled] = normal(kv, filled, d), normal(kv, filled, d)
    return keys, values


def oracle(
    q: F32,
    keys: F32,
    values: F32,
    base: int,
    parents: list[int],
    window: int = 0,
    softcap: float = 0.0,
    sinks: F32 | None = None,
) -> NDArray[np.float64]:
    k, heads, d = q.shape
    group = heads // len(keys)
    out = np.zeros((k, heads, d))
    for i in range(k):
        seen = [*range(base), *(base + node for node in path(parents, i))][-window:]
        for h in range(heads):
            s = keys[h // group, seen].astype(np.float64) @ q[i, h] * d**-0.5
            s = softcap * np.tanh(s / softcap) if softcap else s
            sink = -np.inf if sinks is None else sinks[h]
            p = np.exp(s - max(s.max(), sink))
            out[i, h] = p @ values[h // group, seen] / (p.sum() + np.exp(sink - max(s.max(), sink)))
    return out.reshape(k, -1)


def levels_of(rows: F32, kv: int, d: int) -> U8:
    """Keys or values [kv, capacity, d] as a cache in 8 bits has them: of `split_heads`."""
    capacity = rows.shape[1]
    qkv = np.zeros((capacity, (1 + 2 * kv) * d), np.float32)
    qkv[:, d : (1 + kv) * d] = rows.swapaxes(0, 1).reshape(capacity, -1)
    made, rest = (np.full((kv, capacity, d + 4 * -(-d // 32)), 0xFF, np.uint8) for _ in range(2))
    kernels.split_heads(qkv, np.empty((capacity, 1, d), np.float32), made, rest, 0)
    return made


def unpacked(made: U8, d: int) -> F32:
    scales = np.ascontiguousarray(made[..., d:]).view(np.float32).repeat(32, -1)[..., :d]
    found: F32 = made[..., :d].view(np.int8).astype(np.float32) * scales
    return found


@pytest.mark.parametrize("window", [0, 50])
@pytest.mark.parametrize("heads, kv, d", [(14, 2, 64), (4, 4, 80), (8, 1, 128), (2, 2, 8),
                                          (3, 1, 40), (4, 2, 512)])  # fmt: skip
def test_a_cache_in_8_bits_is_attended_to_as_its_values_in_float32(
    heads: int, kv: int, d: int, window: int
) -> None:
    for base, k in [(0, 1), (0, 5), (63, 3), (64, 9), (130, 1), (77, 30)]:
        rows = [normal(kv, base + k, d) * np.exp(normal(kv, base + k, 1)) for _ in range(2)]
        packed = [levels_of(one, kv, d) for one in rows]
        floats = [unpacked(one, d) for one in packed]
        for one, exact in zip(floats, rows, strict=True):
            assert np.abs(one - exact).max() <= np.abs(exact).max() / 253
        q, parents = normal(k, heads, d), random_tree(k)
        expected = attend(q, *floats, base, parents, window)
        for name in isas():
            kernels.set_isa(name)
            for one, exact in zip(packed, rows, strict=True):
                assert np.array_equal(levels_of(exact, kv, d), one)
            assert same(attend(q, *packed, base, parents, window), expected), name


def test_a_value_that_is_no_number_stays_so_in_8_bits() -> None:
    rows = normal(2, 3, 40)
    rows[1, 1, 3] = np.inf
    assert np.isnan(unpacked(levels_of(rows, 2, 40), 40)[1, 1, :32]).all()


SHAPES = [(14, 2, 64), (9, 3, 64), (4, 4, 80), (8, 1, 128), (2, 2, 8), (3, 1, 40), (2, 1, 256),
          (4, 2, 512)]  # fmt: skip


@pytest.mark.parametrize("heads, kv, d", SHAPES)
def test_attention_is_softmax_over_committed_rows_and_path(heads: int, kv: int, d: int) -> None:
    for base, k in [(0, 1), (0, 5), (1, 3), (15, 9), (63, 2), (64, 1), (130, 1), (77, 30)]:
        keys, values = cache(kv, base + k, d, base + k + int(rng.integers(3)))
        q, parents = normal(k, heads, d) * 3, random_tree(k)
        expected = oracle(q, keys, values, base, parents)
        results = []
        for name in isas():
            kernels.set_isa(name)
            results.append(attend(q, keys, values, base, parents))
            assert np.abs(results[-1] - expected).max() < 1e-5
        assert all(same(r, results[0]) for r in results)


@pytest.mark.parametrize("heads, kv, d", SHAPES)
def test_a_node_equals_one_token_with_its_path_committed(heads: int, kv: int, d: int) -> None:
    base, k = int(rng.integers(0, 90)), 24
    keys, values = cache(kv, base + k, d, base + k + 4)
    q, parents = normal(k, heads, d), random_tree(k)
    tree = attend(q, keys, values, base, parents)
    for node in range(k):
        rows = [*range(base), *(base + i for i in path(parents, node))]
        alone = [
            np.full_like(x, np.nan) for x in (keys, values)
        ]  # at other rows, without the rest of the tree
        for kept, old in zip(alone, (keys, values), strict=True):
            kept[:, : len(rows)] = old[:, rows]
        one = attend(q[node : node + 1], alone[0], alone[1], len(rows) - 1, [-1])
        assert same(one, tree[node : node + 1]), node
        branch = path(parents, node)
        chain = attend(q[branch], alone[0], alone[1], base, [*range(-1, len(branch) - 1)])
        assert same(chain, tree[branch]), node


@pytest.mark.parametrize("window", [1, 5, 40, 1000])
@pytest.mark.parametrize("softcap, sunk", [(0, False), (2, True), (50, False)])
def test_windows_caps_and_sinks_match_float64_on_every_instruction_set(
    window: int, softcap: float, sunk: bool
) -> None:
    for base, k in [(0, 7), (3, 9), (130, 1), (77, 30)]:
        keys, values = cache(2, base + k, 64, base + k + 1)
        keys[:, : max(0, base - window + 1)] = np.nan  # which no row sees
        q, parents = normal(k, 8, 64) * 3, random_tree(k)
        sinks = normal(8) * 4 if sunk else None
        options = (window, softcap, sinks)
        expected = oracle(q, keys, values, base, parents, *options)
        results = []
        for name in isas():
            kernels.set_isa(name)
            results.append(attend(q, keys, values, base, parents, *options))
            assert np.abs(results[-1] - expected).max() < 1e-5
        assert all(same(r, results[0]) for r in results)


@pytest.mark.parametrize("window", [1, 4, 16, 37, 70, 500])
@pytest.mark.parametrize("sunk", [False, True])
def test_in_a_window_a_node_equals_one_token_with_its_path_committed(
    window: int, sunk: bool
) -> None:
    base, k = 61, 40
    keys, values = cache(2, base + k, 32, base + k)
    sinks = normal(6) if sunk else None
    options = (window, 5.0 if sunk else 0.0, sinks)
    parents = [i - 1 if i < 12 else int(rng.integers(-1, i)) for i in range(k)]  # of some depth
    q = normal(k, 6, 32)
    tree = attend(q, keys, values, base, parents, *options)
    for node in range(k):
        rows = [*range(base), *(base + i for i in path(parents, node))]
        unseen = max(0, len(rows) - window)
        alone = [np.full_like(x, np.nan) for x in (keys, values)]
        for kept, old in zip(alone, (keys, values), strict=True):
            kept[:, unseen : len(rows)] = old[:, rows[unseen:]]
        one = attend(q[node : node + 1], *alone, len(rows) - 1, [-1], *options)
        assert same(one, tree[node : node + 1]), node
        for kept, old in zip(alone, (keys, values), strict=True):
            kept[:, : len(rows)] = old[:, rows]
        branch = path(parents, node)
        chain = attend(q[branch], *alone, base, [*range(-1, len(branch) - 1)], *options)
        assert same(chain, tree[branch]), node


@pytest.mark.parametrize("window", [0, 20, 100])
def test_prefill_in_any_chunks_gives_the_same_bits(window: int) -> None:
    tokens = 150
    q, (keys, values) = normal(tokens, 14, 64), cache(2, tokens, 64, tokens + 10)
    expected = [attend(q[i : i + 1], keys, values, i, [-1], window) for i in range(tokens)]
    for chunk in (7, 64, 128, 150):
        for threads in (1, 2, 3):
            kernels.set_threads(threads)
            for i in range(0, tokens, chunk):
                n = min(chunk, tokens - i)
                y = attend(q[i : i + n], keys, values, i, [*range(-1, n - 1)], window)
                assert same(y, np.concatenate(expected[i : i + n])), (chunk, threads, i)


def test_splitting_a_long_context_into_tasks_changes_no_bit() -> None:
    base, k = 3000, 20
    keys, values = cache(1, base + k, 64, base + k)
    q, parents = normal(k, 7, 64), random_tree(k)
    tree = attend(q, keys, values, base, parents)
    assert np.abs(tree - oracle(q, keys, values, base, parents)).max() < 1e-5
    kernels.set_threads(1)
    assert same(attend(q, keys, values, base, parents), tree)
    roots = [i for i in range(k) if parents[i] == -1]
    assert same(attend(q[:1], keys, values, base, [-1]), tree[roots[:1]])


def test_nan_in_a_sibling_does_not_leak() -> None:
    keys, values = cache(2, 44, 64, 50)
    q, parents = normal(4, 4, 64), [-1, -1, 0, 0]
    clean = attend(q, keys, values, 40, parents)
    keys[:, 41], values[:, 41] = np.nan, np.inf
    dirty = attend(q, keys, values, 40, parents)
    assert same(dirty[[0, 2, 3]], clean[[0, 2, 3]])
    assert np.isnan(dirty[1]).all()


def test_one_dominating_key_gives_its_value_exactly() -> None:
    keys, values = cache(1, 20, 16, 20)
    keys[0, 3] = 100  # dominates the softmax
    y = attend(np.full((1, 2, 16), 5, np.float32), keys, values, 19, [-1])
    assert same(y, np.concatenate([values[0, 3], values[0, 3]])[None])


def test_attention_rejects_invalid_input() -> None:
    q, (keys, values) = normal(3, 4, 16), cache(2, 20, 16, 20)
    with pytest.raises(ValueError, match=r"^parents\[1\] is 1: must be -1 or an earlier row$"):
        attend(q, keys, values, 5, [-1, 1, 0])
    with pytest.raises(ValueError, match=r"^base 18 and 3 rows: must fit the cache's 20$"):
        attend(q, keys, values, 18, [-1, 0, 1])
    with pytest.raises(ValueError, match=r"^parents has shape"):
        attend(q, keys, values, 5, [-1, 0])
    with pytest.raises(ValueError, match=r"^heads 3: must be a multiple of the key heads, 2$"):
        attend(normal(1, 3, 16), keys, values, 5, [-1])
    with pytest.raises(ValueError, match=r"^window -1: must be 0 \(none\) or more$"):
        attend(q, keys, values, 5, [-1, 0, 1], window=-1)
    with pytest.raises(ValueError, match=r"^softcap nan: must be 0 \(none\) or more$"):
        attend(q, keys, values, 5, [-1, 0, 1], softcap=np.nan)
    packed = np.zeros((2, 20, 20), np.uint8)
    with pytest.raises(ValueError, match=r"^keys and values: give both in f32, or both in 8 bits$"):
        attend(q, keys, packed, 5, [-1, 1, 0])
    with pytest.raises(ValueError, match=r"^keys has shape \(2, 20, 19\): expected \(2, 20, 20\)$"):
        attend(q, packed[..., :19].copy(), packed, 5, [-1, 1, 0])
    with pytest.raises(TypeError):
        attend(q, packed.view(np.int8), packed.view(np.int8), 5, [-1, 1, 0])
    with pytest.raises(ValueError, match=r"^sinks has shape \(3\): expected \(4\)$"):
        attend(q, keys, values, 5, [-1, 0, 1], sinks=normal(3))
    with pytest.raises(ValueError, match=r"^head size 520: must be a multiple of 8, at most 512"):
        attend(normal(1, 4, 520), normal(2, 9, 520), normal(2, 9, 520), 5, [-1])
    with pytest.raises(ValueError, match=r"^head size 12: must be a multiple of 8"):
        attend(normal(1, 4, 12), normal(2, 9, 12), normal(2, 9, 12), 5, [-1])


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
