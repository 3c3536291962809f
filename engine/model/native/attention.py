"""A layer's attention over the cache."""

from __future__ import annotations

import numpy as np

from engine.model import _kernels
from engine.model.model_config import Attention, ModelConfig
from engine.model.native.forward_pass import Array, Pass
from engine.model.native.weights import NativeWeights


class AttentionBlock:
    """Attention over the cache."""

    def __init__(self, spec: Attention, weights: NativeWeights, layer: int, d: ModelConfig) -> None:
        at = f"model.layers.{layer}.self_attn."
        self.spec, self.layer, self.eps = spec, layer, d.eps
        self.source = layer if spec.reads_from is None else spec.reads_from
        self.own = spec.reads_from is None
        order = head_order(spec, d)
        self.qkv = weights.product(projections(spec, weights, at, order))
        self.out = weights.product([(f"{at}o_proj", None)])
        self.q_norm = head_norm(spec, weights, f"{at}q_norm.weight", order, spec.heads)
        self.k_norm = None
        if self.own:
            self.k_norm = head_norm(spec, weights, f"{at}k_norm.weight", order, spec.kv_heads)
        self.sinks = weights.vector(f"{at}sinks") if spec.sinks else None
        self.nbytes = self.qkv.nbytes + self.out.nbytes

    def run(self, h: Array, out: Array, now: Pass) -> None:
        spec, count, d, heads = self.spec, now.count, self.spec.head_dim, self.spec.heads
        both = np.empty((count, self.qkv.out), np.float32)
        self.qkv.native.forward(h, both)
        if spec.qk_norm == "all":
            self._norm_whole(both)
        keys, values = now.keys_and_values(self.source)
        q = np.empty((count, heads, d), np.float32)
        by_head = spec.qk_norm == "head"
        _kernels.split_heads(
            both, q, keys if self.own else None, values if self.own else None, now.base,
            turn=None if spec.rope is None else now.phases[spec.rope],
            q_norm=self.q_norm if by_head else None,
            k_norm=self.k_norm if by_head else None,
            norm_values=spec.value_norm, eps=self.eps, q_factor=now.query_scales,
        )  # fmt: skip
        mixed = np.empty((count, heads * d), np.float32)
        _kernels.attend(
            q, keys, values, now.base, now.parents, spec.scale, mixed, spec.window, spec.softcap,
            self.sinks,
        )  # fmt: skip
        if spec.gated:
            stop = (heads + 2 * spec.kv_heads) * d
            _kernels.sigmoid_mul(np.ascontiguousarray(both[:, stop:]), mixed)
        self.out.native.forward(mixed, out)

    def _norm_whole(self, both: Array) -> None:
        """Apply the norms of q and of k over all heads, in place."""
        start = 0
        for norm in (self.q_norm, self.k_norm):
            if norm is not None:
                part = np.ascontiguousarray(both[:, start : start + len(norm)])
                _kernels.rms_norm(part, norm, self.eps, part)
                both[:, start : start + len(norm)] = part
                start += len(norm)


def head_order(spec: Attention, d: ModelConfig) -> Array:
    """Return the order in which a head's dimensions are projected."""
    if spec.rope is None:
        return np.arange(spec.head_dim)
    return paired(spec.head_dim, d.ropes[spec.rope].rotary)


def projections(
    spec: Attention, weights: NativeWeights, at: str, order: Array
) -> list[tuple[str, Array | None]]:
    """List the rows of q, k and v, and of the gate if there is one, for `NativeWeights.parts`.

    k and v are only those of the layer's own.
    """
    q, gate = weights.query_rows(spec, order)
    names: list[tuple[str, Array | None]] = [(f"{at}q_proj", q)]
    if spec.reads_from is None:
        values = "k_proj" if spec.keys_are_values else "v_proj"
        names += [(f"{at}k_proj", each_head(order, spec.kv_heads)), (f"{at}{values}", None)]
    if spec.gated:
        names.append((f"{at}q_proj", gate))
    return names


def head_norm(
    spec: Attention, weights: NativeWeights, name: str, order: Array, heads: int
) -> Array | None:
    """Read the weight of a norm of q or k, in their order; None where there is no norm."""
    if not spec.qk_norm:
        return None
    whole = spec.qk_norm == "all"
    return np.ascontiguousarray(weights.vector(name)[each_head(order, heads if whole else 1)])


def paired(d: int, rotary: int) -> Array:
    """Order a head's dimensions so that those that are rotated together are next to each other.

    Each of the first `rotary` is rotated with the one `rotary / 2` behind it; next to each other,
    the rotation is a complex product. q and k are permuted alike, so their dot products stay the
    same.
    """
    halves = np.arange(rotary).reshape(2, rotary // 2)
    return np.concatenate([halves.T.reshape(-1), np.arange(rotary, d)])


def each_head(order: Array, heads: int) -> Array:
    """Repeat an order of dimensions for each of several heads."""
    return (np.arange(heads)[:, None] * len(order) + order).reshape(-1)
