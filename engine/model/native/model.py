"""The forward pass of every `ModelConfig` on the CPU: native kernels on plain arrays.

A one-token pass reads every active weight once, in tens of milliseconds, so everything between the
matrix products must cost next to nothing: no tensors, no dispatch, one thread pool.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from engine.model import _kernels
from engine.model.model_config import Attention, ModelConfig, Rope
from engine.model.native.attention import AttentionBlock
from engine.model.native.embedding import embedding_of
from engine.model.native.feed_forward import DenseBlock, ExpertsBlock
from engine.model.native.forward_pass import Array, Pass, PassRows
from engine.model.native.gemma4 import Gemma4Experts, PerLayerEmbedding, PerLayerInput
from engine.model.native.linear_attention import LinearAttentionBlock
from engine.model.native.product import NativeProduct
from engine.model.native.recurrent_state import RecurrentState
from engine.model.native.weights import NativeWeights

# positions; fixed blocks keep a rotation from depending on the order of requests
BLOCK_POSITIONS = 1024


class NativeLayer:
    """One decoder layer: its blocks, and the weights of the norms around them."""

    def __init__(self, d: ModelConfig, n: int, weights: NativeWeights) -> None:
        at, spec = f"model.layers.{n}.", d.layers[n]
        self.mixer: AttentionBlock | LinearAttentionBlock
        if isinstance(spec.mixer, Attention):
            self.mixer = AttentionBlock(spec.mixer, weights, n, d)
        else:
            self.mixer = LinearAttentionBlock(spec.mixer, weights, n, d)
        self.mlp: DenseBlock | ExpertsBlock | Gemma4Experts
        if spec.dense and spec.experts:
            self.mlp = Gemma4Experts(spec, weights, at, d)
        elif spec.experts:
            router = f"{at}{spec.experts.router}"
            self.mlp = ExpertsBlock(spec.experts, weights, f"{at}mlp.", router)
        else:
            assert spec.dense is not None
            self.mlp = DenseBlock(spec.dense, weights, f"{at}mlp.")
        self.before_mixer, self.after_mixer, self.before_mlp, self.after_mlp = (
            weights.vector(f"{at}{name}.weight") if name else None for name in d.norms.names
        )
        self.inputs = PerLayerInput(weights, at, d) if d.per_layer_width else None
        self.scalar = 1.0
        if d.family == "gemma4_text":
            self.scalar = float(weights.vector(f"{at}layer_scalar")[0])
        self.nbytes = self.mixer.nbytes + self.mlp.nbytes
        self.nbytes += self.inputs.nbytes if self.inputs else 0


class NativeModel:
    """Weights and forward pass: `run` returns hidden states, `head` logits. It owns no cache."""

    def __init__(self, description: ModelConfig, weights: NativeWeights, kv: str = "auto") -> None:
        d = self.description = description
        self.kv = kv  # one of engine.config.KV_FORMATS
        self.layers, self.width, self.vocab = len(d.layers), d.width, d.vocab
        self.max_positions, self.eps = d.positions, d.eps
        self.embedding = embedding_of(weights, "model.embed_tokens")
        own = weights.has_head
        if isinstance(self.embedding.table, NativeProduct) and not own:
            self._head = self.embedding.table
        else:  # 8 bits at least
            name = "lm_head" if own else "model.embed_tokens"
            self._head = weights.product([(name, None)], bits=8)
        self.per_layer = PerLayerEmbedding(weights, d) if d.per_layer_width else None
        self.blocks = [NativeLayer(d, n, weights) for n in range(self.layers)]
        self.norm = weights.vector("model.norm.weight")
        self.phases = {name: RotaryTable(rope) for name, rope in d.ropes.items()}
        # layers, kv heads and dimensions of each head of the arrays of a cache
        self.cache_shapes = [(len(of), heads, size) for heads, size, of in d.cache_groups]
        self._places = d.cache_places
        self._states = {n: place for place, n in enumerate(d.recurrent)}
        # The first layers that have every kind of block, which a check must run.
        kinds = [(type(block.mixer), type(block.mlp)) for block in self.blocks]
        self.checked_layers = 1 + max(kinds.index(kind) for kind in kinds)

    @property
    def nbytes(self) -> int:
        """Bytes of the matrices that a pass of one row reads, of experts only the chosen ones."""
        inputs = 0 if self.per_layer is None else self.per_layer.projection.nbytes
        return sum(block.nbytes for block in self.blocks) + self._head.nbytes + inputs

    def recurrent_state(self) -> RecurrentState | None:
        """Make the states of a new sequence; None for a model that has none."""
        return RecurrentState.empty(self.description) if self._states else None

    def new_cache(self, capacity: int) -> tuple[Array, ...]:
        """Allocate the keys and values of a sequence.

        They are f32 [2, layers, kv heads, capacity, head dim] for each of `cache_shapes`; in q8
        uint8, with the bytes of a row for the head dim. MemoryError where there is no memory left.
        """
        return tuple(
            np.empty((2, layers, heads, capacity, size), np.float32)
            if self.kv == "auto"
            else np.empty((2, layers, heads, capacity, q8_bytes(size)), np.uint8)
            for layers, heads, size in self.cache_shapes
        )

    def embedded(self, ids: Array) -> Array:
        """Compute the first layer's input f32 [rows, width] of tokens `ids` [rows]."""
        x, scale = self.embedding[ids], self.description.embedding_scale
        return x if scale == 1 else x * np.float32(scale)

    def run(
        self,
        ids: Array,
        rows: PassRows,
        cache: tuple[Array, ...],
        layers: int | None = None,
        recurrent: RecurrentState | None = None,
        committed: bool = False,
    ) -> Array:
        """Compute the final hidden states f32 [rows, width] of token `ids`, int64 [rows].

        Keys and values are written to rows `rows.base ...` of `cache`, as `new_cache` makes it.
        `layers`: run only the first ones. `recurrent`: the sequence's states, of a model that has
        any; `committed`: the rows are a chain that stays.
        """
        x = self.embedded(ids)
        if not self._states:
            return self._run(ids, x, rows, cache, layers, None, committed)
        assert recurrent is not None
        assert recurrent.tokens == rows.base and not recurrent.broken
        recurrent.begin_pass(len(ids), committed)
        states = self._run(ids, x, rows, cache, layers, recurrent, committed)
        recurrent.end_pass(len(ids), committed)
        return states

    def _run(
        self,
        ids: Array,
        x: Array,
        rows: PassRows,
        cache: tuple[Array, ...],
        layers: int | None,
        recurrent: RecurrentState | None,
        committed: bool,
    ) -> Array:
        positions = rows.positions
        phases = {name: table.at(positions) for name, table in self.phases.items()}
        now = Pass(rows, cache, self._places, phases, self._query_scales(positions))
        inputs = None if self.per_layer is None else self.per_layer.inputs(ids, x)
        blocks = self.blocks[:layers]
        h, delta = np.empty_like(x), np.empty_like(x)
        self._normed(x, blocks[0].before_mixer, h)
        for n, layer in enumerate(blocks):
            if isinstance(layer.mixer, AttentionBlock):
                layer.mixer.run(h, delta, now)
            else:
                assert recurrent is not None
                state = recurrent.layers[self._states[n]]
                layer.mixer.run_states(h, delta, now, state, recurrent.pending, committed)
            self._add(x, delta, layer.after_mixer, layer.before_mlp, h)
            if isinstance(layer.mlp, Gemma4Experts):
                layer.mlp.run_parallel(h, x, delta)
            else:
                layer.mlp.run(h, delta)
            after = self.norm if n + 1 == len(blocks) else blocks[n + 1].before_mixer
            if layer.inputs is None and layer.scalar == 1:
                self._add(x, delta, layer.after_mlp, after, h)
                continue
            self._add(x, delta, layer.after_mlp, None, h)
            if layer.inputs is not None and inputs is not None:
                layer.inputs.add_to(x, np.ascontiguousarray(inputs[:, n]))
            if layer.scalar != 1:
                x *= np.float32(layer.scalar)
            self._normed(x, after, h)
        return h

    def _normed(self, x: Array, norm: Array | None, h: Array) -> None:
        """Write the input h of a block that reads x."""
        if norm is None:
            h[:] = x
        else:
            _kernels.rms_norm(x, norm, self.eps, h)

    def _add(
        self, x: Array, delta: Array, after: Array | None, before: Array | None, h: Array
    ) -> None:
        """Add a block's output to x, and make the next block's input h.

        `after`: the norm of the output; `before`: the norm of the next input.
        """
        if after is not None:
            _kernels.rms_norm(delta, after, self.eps, delta)
        if self.description.residual_scale != 1:
            delta *= np.float32(self.description.residual_scale)
        if before is not None:
            _kernels.add_rms_norm(x, delta, before, self.eps, h)
        else:
            x += delta
            h[:] = x

    def _query_scales(self, positions: Array) -> Array | None:
        if self.description.query_scales is None:
            return None
        beta, trained = self.description.query_scales
        scales: Array = 1 + np.float32(beta) * np.log1p(
            np.floor(positions.astype(np.float32) / np.float32(trained))
        )
        return scales.astype(np.float32)

    def head(self, hidden: Array, tiles: Array | None = None) -> Array:
        """Compute the logits f32 [rows, vocabulary] of hidden states f32 [rows, width].

        `tiles`: only those of the tokens in these tiles, int32 [n]; the others are impossible.
        """
        if tiles is not None and not self.description.logit_softcap:
            logits = self._head.some(hidden, tiles)
        else:
            logits = self._head(hidden)
        if self.description.logit_divisor != 1:
            logits /= np.float32(self.description.logit_divisor)
        if self.description.logit_softcap:
            _kernels.softcap(logits, self.description.logit_softcap)
        return logits


def q8_bytes(size: int) -> int:
    """Return the bytes of `size` numbers in a cache in q8: levels, and an f32 for each 32."""
    return size + 4 * -(-size // 32)


class RotaryTable:
    """The rotations a e^(i p w) of every position p and frequency w; a is the embedding's factor.

    Angles are f32, as in transformers; their sines are taken in f64 and rounded once, so that every
    processor gives the same bits.
    """

    def __init__(self, rope: Rope) -> None:
        self._frequencies = np.array(rope.frequencies[: rope.pairs], np.float32)
        self._factor = rope.factor
        self._table: NDArray[np.complex64] = np.empty((0, rope.pairs), np.complex64)

    def at(self, positions: NDArray[np.int64]) -> NDArray[np.complex64]:
        """Look up the rotations of positions [rows] -> complex64 [rows, pairs]."""
        while int(positions.max(initial=0)) >= len(self._table):
            self._table = np.concatenate([self._table, self._block(len(self._table))])
        rows: NDArray[np.complex64] = self._table[positions]
        return rows

    def _block(self, start: int) -> NDArray[np.complex64]:
        positions = np.arange(start, start + BLOCK_POSITIONS, dtype=np.float32)
        angles = (positions[:, None] * self._frequencies).astype(np.float64)
        found: NDArray[np.complex64] = (self._factor * np.exp(1j * angles)).astype(np.complex64)
        return found
