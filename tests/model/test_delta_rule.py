"""Linear attention by the gated delta rule: a row gets the same bits in a tree, a chain or alone,
and in whatever calls the rows before it were committed; transformers is the oracle of values."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from transformers.models.qwen3_next.modeling_qwen3_next import (
    causal_conv1d_fn,
    torch_recurrent_gated_delta_rule,
)

from engine.model import _kernels as kernels
from tests.support.kernels import F32, isas, normal, reseed, rng, same

BEST = kernels.isa()
FIRST = 5  # rows that every sequence begins with; the rows after them are a tree


@pytest.fixture(autouse=True)
def two_threads() -> Iterator[None]:
    reseed()
    kernels.set_threads(2)
    yield
    kernels.set_isa(BEST)
    kernels.set_threads(1)


@dataclass
class Layer:
    """Weights of a layer and rows to run, as the products before it give them."""

    rows: int
    key_heads: int = 2
    value_heads: int = 4
    key_dim: int = 16
    value_dim: int = 24
    taps: int = 4
    tiled: bool = False

    def __post_init__(self) -> None:
        values = self.value_heads * self.value_dim
        self.channels = 2 * self.key_heads * self.key_dim + values
        self.mixed = normal(self.rows, self.channels)
        self.a, self.b = normal(self.rows, self.value_heads), normal(self.rows, self.value_heads)
        self.conv = normal(self.channels, self.taps)
        self.A, self.dt_bias = -np.exp(normal(self.value_heads)), normal(self.value_heads)
        heads = np.arange(self.value_heads, dtype=np.int32)
        group = self.value_heads // self.key_heads
        self.key_head_of = heads % self.key_heads if self.tiled else heads // group

    def begin(self) -> tuple[F32, F32]:
        """(tail, state) before the first row."""
        tail = np.zeros((self.taps - 1, self.channels), np.float32)
        return tail, np.zeros((self.value_heads, self.key_dim, self.value_dim), np.float32)

    def run(
        self, rows: list[int], committed: int, first: int, parents: list[int], tail: F32, state: F32
    ) -> F32:
        out = np.full((len(rows) - first, self.value_heads * self.value_dim), np.nan, np.float32)
        kernels.delta_rule(
            self.mixed[rows], self.a[rows], self.b[rows], self.conv, self.A, self.dt_bias,
            self.key_heads, self.key_head_of, committed, first, np.array(parents, np.int32),
            tail, state, out,
        )  # fmt: skip
        return out

    def alone(self, rows: list[int]) -> tuple[F32, F32, F32]:
        """(outputs, tail, state) of a chain from the beginning, one row a call."""
        tail, state = self.begin()
        out = [self.run([row], 1, 0, [], tail, state) for row in rows]
        return np.concatenate(out), tail, state

    def oracle(self, rows: list[int]) -> tuple[F32, F32]:
        """(outputs, state) of a chain from the beginning, by transformers."""
        mixed, a, b, conv, A, dt_bias = (
            torch.from_numpy(x)
            for x in (self.mixed[rows], self.a[rows], self.b[rows], self.conv, self.A, self.dt_bias)
        )
        mixed = causal_conv1d_fn(mixed.T[None], conv, None, activation="silu")[0].T
        keys = self.key_heads * self.key_dim
        q, k, v = mixed.split([keys, keys, mixed.shape[1] - 2 * keys], dim=1)
        of = torch.from_numpy(self.key_head_of).long()
        out, state = torch_recurrent_gated_delta_rule(
            q.reshape(1, len(rows), -1, self.key_dim)[:, :, of],
            k.reshape(1, len(rows), -1, self.key_dim)[:, :, of],
            v.reshape(1, len(rows), -1, self.value_dim),
            g=(A * torch.nn.functional.softplus(a + dt_bias))[None],
            beta=b.sigmoid()[None],
            output_final_state=True,
            use_qk_l2norm_in_kernel=True,
        )
        return out.reshape(len(rows), -1).numpy(), state[0].numpy()


def path(parents: list[int], node: int) -> list[int]:
    """The ancestors of a node from the root down, then the node."""
    return [*(path(parents, parents[node]) if parents[node] >= 0 else []), node]


def trees(k: int) -> dict[str, list[int]]:
    """Trees of k nodes, by name."""
    return {
        "chain": list(range(-1, k - 1)),
        "siblings": [-1] * k,
        "binary": [(i - 1) // 2 for i in range(k)],
        "comb": [-1 if i < 2 else i - 1 - i % 2 for i in range(k)],
        "random": [int(rng.integers(-1, i)) for i in range(k)],
    }


SHAPES = [
    {"key_heads": 1, "value_heads": 1, "key_dim": 8, "value_dim": 8, "taps": 2},
    {"key_heads": 2, "value_heads": 4, "key_dim": 16, "value_dim": 24, "taps": 4},
    {"key_heads": 3, "value_heads": 6, "key_dim": 40, "value_dim": 72, "taps": 8, "tiled": True},
    {"key_heads": 2, "value_heads": 2, "key_dim": 256, "value_dim": 128, "taps": 3},
]


@pytest.mark.parametrize("shape", SHAPES)
def test_a_chain_has_the_values_of_transformers(shape: dict[str, int]) -> None:
    layer = Layer(30, **shape)
    rows = list(range(30))
    tail, state = layer.begin()
    out = layer.run(rows, 30, 0, [], tail, state)
    expected, last = layer.oracle(rows)
    assert np.allclose(out, expected, rtol=2e-5, atol=2e-5)
    assert np.allclose(state, last, rtol=2e-5, atol=2e-5)
    assert same(tail, layer.mixed[30 - len(tail) :])


@pytest.mark.parametrize("magnitude", [0.0, 1e-20, 30.0, 1e4])
def test_gates_and_inputs_of_any_magnitude(magnitude: float) -> None:
    layer = Layer(12)
    layer.mixed *= np.float32(min(magnitude, 1e3))
    layer.a *= np.float32(magnitude)
    layer.b *= np.float32(magnitude)
    tail, state = layer.begin()
    out = layer.run(list(range(12)), 12, 0, [], tail, state)
    expected, _ = layer.oracle(list(range(12)))
    assert np.allclose(out, expected, rtol=1e-4, atol=1e-5 * np.abs(expected).max())


@pytest.mark.parametrize(("nodes", "shape"), [(100, SHAPES[0]), *((13, one) for one in SHAPES)])
def test_a_node_of_a_tree_has_the_bits_of_its_path_alone(nodes: int, shape: dict[str, int]) -> None:
    layer = Layer(FIRST + nodes, **shape)
    for name, parents in trees(nodes).items():
        tail, state = layer.begin()
        out = layer.run(list(range(FIRST + nodes)), FIRST, 2, parents, tail, state)
        _, kept_tail, kept_state = layer.alone(list(range(FIRST)))
        assert same(tail, kept_tail) and same(state, kept_state), name
        for node in range(nodes):
            rows = [*range(FIRST), *(FIRST + i for i in path(parents, node))]
            expected, _, _ = layer.alone(rows)
            assert same(out[: FIRST - 2], expected[2:FIRST]), (name, node)
            assert same(out[FIRST - 2 + node], expected[-1]), (name, node)


def test_rows_committed_in_any_split_leave_the_same_bits() -> None:
    layer = Layer(21, tiled=True)
    expected, kept_tail, kept_state = layer.alone(list(range(21)))
    for _ in range(8):
        cuts = [0, *sorted(rng.integers(0, 22, size=3).tolist()), 21]
        tail, state = layer.begin()
        for start, stop in itertools.pairwise(cuts):
            first = int(rng.integers(0, stop - start + 1))
            out = layer.run(list(range(start, stop)), stop - start, first, [], tail, state)
            assert same(out, expected[start + first : stop])
        assert same(tail, kept_tail) and same(state, kept_state), cuts


def test_a_draft_then_its_kept_path_is_plain_decoding() -> None:
    """Passes as a decoder makes them: the path kept of one is committed by the next."""
    layer = Layer(60)
    tail, state = layer.begin()
    sequence: list[int] = []
    pending: list[int] = []
    for turn in range(5):
        fresh = list(range(12 * turn, 12 * turn + 12))
        parents = trees(12)["random"]
        rows, n = [*pending, *fresh], len(pending)
        out = layer.run(rows, n, n, parents, tail, state)
        sequence += pending
        kept = path(parents, int(rng.integers(12)))
        expected, _, _ = layer.alone([*sequence, *(fresh[i] for i in kept)])
        assert same(out[kept], expected[len(sequence) :])
        pending = [fresh[i] for i in kept]


@pytest.mark.parametrize("shape", SHAPES)
def test_every_instruction_set_and_thread_count_gives_the_same_bits(shape: dict[str, int]) -> None:
    layer = Layer(20, **shape)
    parents = trees(14)["random"]

    def run() -> list[F32]:
        tail, state = layer.begin()
        return [layer.run(list(range(20)), 6, 3, parents, tail, state), tail, state]

    expected = run()
    for name in isas():
        kernels.set_isa(name)
        for threads in (1, 2, 3):
            kernels.set_threads(threads)
            assert all(map(same, run(), expected)), (name, threads)


def test_nan_in_a_row_stays_in_its_descendants() -> None:
    layer = Layer(10)
    parents = [-1, 0, 0, 1, 1, 2]
    tail, state = layer.begin()
    clean = layer.run(list(range(10)), 4, 4, parents, tail, state)
    for bad in (layer.mixed, layer.a, layer.b):
        kept = bad[5].copy()
        bad[5] = np.nan  # node 1, the parent of 3 and 4
        tail, state = layer.begin()
        out = layer.run(list(range(10)), 4, 4, parents, tail, state)
        bad[5] = kept
        assert np.isnan(out[[1, 3, 4]]).all()
        assert same(out[[0, 2, 5]], clean[[0, 2, 5]])
        assert np.isfinite(state).all()


def test_no_rows_change_nothing() -> None:
    layer = Layer(1)
    tail, state = normal(3, layer.channels), normal(4, 16, 24)
    before = tail.copy(), state.copy()
    assert layer.run([], 0, 0, [], tail, state).shape == (0, 96)
    assert same(tail, before[0]) and same(state, before[1])


def test_invalid_input_raises_an_error_of_one_line_and_changes_nothing() -> None:
    layer = Layer(4)
    tail, state = normal(3, layer.channels), normal(4, 16, 24)
    before = tail.copy(), state.copy()
    rows = [0, 1, 2, 3]
    key_head_of, A = layer.key_head_of, layer.A

    def refused(match: str, committed: int = 2, first: int = 0, parents: tuple[int, ...] = (-1, 0)):
        with pytest.raises(ValueError, match=match):
            layer.run(rows, committed, first, list(parents), tail, state)
        assert same(tail, before[0]) and same(state, before[1])

    refused(r"^committed 5: must be 0 to 4$", 5)
    refused(r"^first 3: must be 0 to 2$", first=3)
    refused(r"^parents has shape \(3\): expected \(2\)$", parents=(-1, 0, 1))
    refused(r"^parents\[1\] is 1: must be -1 or an earlier row of the tree$", parents=(-1, 1))
    refused(r"^parents\[0\] is -2: must be -1", parents=(-2, 0))
    layer.key_head_of = np.array([0, 0, 1, 2], np.int32)
    refused(r"^key_head_of\[3\] is 2: must be 0 to 1$")
    layer.key_head_of, layer.A = key_head_of, np.array([-1, 0, np.nan, -1], np.float32)
    refused(r"^A\[2\] is nan: must be at most 0$")
    layer.A, layer.key_heads = A, 3
    refused(r"^mixed has shape \(4, 160\): expected \(4, 192\)$")
    layer.key_heads = 0
    refused(r"^key_heads 0: must be 1 to 160$")
    for shape, match in [
        ({"key_dim": 20}, r"^head size of keys 20: must be a multiple of 8, at most 256$"),
        ({"value_dim": 264}, r"^head size of values 264: must be a multiple of 8"),
        ({"taps": 9}, r"^conv has 9 taps: must be 2 to 8$"),
        ({"taps": 1}, r"^conv has 1 taps: must be 2 to 8$"),
    ]:
        layer = Layer(4, **shape)
        tail, state = layer.begin()
        before = tail.copy(), state.copy()
        refused(match)
