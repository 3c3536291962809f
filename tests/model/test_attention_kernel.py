"""Attention over a cache in f32 or 8 bits: a float64 oracle agrees, and a row's bits are those of
its own sequence, on all instruction sets of this processor."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from engine.model import _kernels as kernels
from tests.support.kernels import F32, isas, normal, reseed, rng, same

BEST = kernels.isa()
U8 = NDArray[np.uint8]


@pytest.fixture(autouse=True)
def two_threads() -> Iterator[None]:
    reseed()
    kernels.set_threads(2)
    yield
    kernels.set_isa(BEST)
    kernels.set_threads(1)


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


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_a_row_has_the_bits_of_its_own_sequence_alone(data: st.DataObject) -> None:
    """Chains and trees in any places, with any window, in f32 and in 8 bits."""
    reseed()
    kernels.set_isa(BEST)
    heads, kv = data.draw(st.sampled_from([(7, 1), (6, 2), (2, 2)]))
    d = data.draw(st.sampled_from([8, 40, 64]))
    base, k = data.draw(st.integers(0, 140)), data.draw(st.integers(1, 100))
    reach = data.draw(st.sampled_from([1, 4, 100]))  # 1: a chain
    parents = [int(rng.integers(max(-1, i - reach), i)) for i in range(k)]
    q, rows = normal(k, heads, d), [normal(kv, base + k, d) for _ in range(2)]
    packed = [levels_of(one, kv, d) for one in rows]
    in_8_bits = data.draw(st.booleans())
    cached: list[Any] = packed if in_8_bits else rows
    floats = [unpacked(one, d) for one in packed] if in_8_bits else rows
    window = data.draw(st.sampled_from([0, 1, 30, 64, 65, 100]))
    sinks = data.draw(st.sampled_from([None, normal(heads)]))
    options = (window, data.draw(st.sampled_from([0.0, 2.0])), sinks)
    expected = oracle(q, *floats, base, parents, *options)
    node = data.draw(st.integers(0, k - 1))
    sequence = [*range(base), *(base + one for one in path(parents, node))]
    alone = [np.ascontiguousarray(one[:, sequence]) for one in cached]
    kernels.set_threads(data.draw(st.integers(1, 3)))
    first = attend(q, *cached, base, parents, *options)
    assert np.abs(first - expected).max() < 1e-5
    for name in isas():
        kernels.set_isa(name)
        assert same(attend(q, *cached, base, parents, *options), first), name
        one = attend(q[node : node + 1], *alone, len(sequence) - 1, [-1], *options)
        assert same(one, first[node : node + 1]), name


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
