"""A layer's attention over the cache, in plain torch or by a card's kernels."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from types import ModuleType

import torch
import torch.nn.functional as F
from torch import Tensor

from engine.model import _kernels
from engine.model.model_config import Attention, ModelConfig
from engine.model.native.attention import head_norm, head_order, projections
from engine.model.torch.cuda.static_pass import ADDRESSES, StaticPass
from engine.model.torch.cuda.weights import CardWeights
from engine.model.torch.ops import Rows, fused_attention, masked_attention


@dataclass
class TorchPass:
    """The data that all layers of a pass share.

    The rows of a static pass behind `rows.count` are padding.
    """

    rows: Rows | StaticPass
    cache: tuple[Tensor, ...]
    places: list[tuple[int, int]]  # tensor of the cache, and place there, by layer
    phases: dict[str, Tensor]  # rotations by the name of a rotary embedding: complex [rows, pairs]
    query_scales: Tensor | None  # f32 [rows]
    kernels: ModuleType | None = None  # `triton_ops`, for a static pass; None: plain torch
    _sees: dict[int, Tensor] = field(default_factory=dict)  # masks by window

    @cached_property
    def numbers(self) -> Tensor:
        """The numbers of the rows, int64 [rows]: those of their phases."""
        return torch.arange(len(self.rows.positions), device=self.rows.positions.device)

    @cached_property
    def still(self) -> Tensor:
        """A zero for each row, int64 [rows]."""
        return torch.zeros_like(self.rows.positions)

    def keys_and_values(self, layer: int) -> tuple[Tensor, Tensor]:
        """Return the keys and the values of a layer: [kv heads, capacity, head dim] each."""
        group, place = self.places[layer]
        keys, values = self.cache[group]
        return keys[place], values[place]

    def sees(self, window: int) -> Tensor:
        """Mark the keys that each row attends to: bool [rows, base + count].

        `window`: only those of so many tokens, its own included; 0: all.
        """
        if window not in self._sees:
            rows, here = self.rows, self.rows.positions.device
            if window:
                keys = torch.cat(
                    [torch.arange(rows.base, device=here), rows.positions[: rows.count]]
                )
                near = keys > rows.positions[:, None] - window
                self._sees[window] = self.sees(0) & near
            else:
                self._sees[0] = rows.mask(here)
        return self._sees[window]


class TorchAttentionBlock:
    """Attention over the cache."""

    def __init__(self, spec: Attention, weights: CardWeights, layer: int, d: ModelConfig) -> None:
        at = f"model.layers.{layer}.self_attn."
        self.spec, self.eps, self.dtype = spec, d.eps, weights.dtype
        self.heads, self.kv_heads = spec.heads, spec.kv_heads
        self.head_dim, self.scale = spec.head_dim, spec.scale
        self.source = layer if spec.reads_from is None else spec.reads_from
        self.own = spec.reads_from is None
        order = head_order(spec, d)
        self.qkv = weights.product_of(projections(spec, weights.files, at, order))
        self.out = weights.product(f"{at}o_proj")

        def norm(name: str, heads: int) -> Tensor | None:
            found = head_norm(spec, weights.files, f"{at}{name}.weight", order, heads)
            return None if found is None else torch.from_numpy(found).to(weights.device)

        self.q_norm = norm("q_norm", spec.heads)
        self.k_norm = norm("k_norm", spec.kv_heads) if self.own else None
        self.sinks = weights.vector(f"{at}sinks") if spec.sinks else None
        self.norms: Tensor | None = None  # of each head of q and of k
        if spec.qk_norm == "head" and self.q_norm is not None and self.k_norm is not None:
            self.norms = torch.stack([self.q_norm, self.k_norm])

    def run(self, h: Tensor, now: TorchPass) -> Tensor:
        """Attend with h [rows, width] -> the same; keys and values of real rows go to the cache."""
        if now.kernels is not None and isinstance(now.rows, StaticPass):
            return self._run_kernels(h, now, now.rows, now.kernels)
        spec, rows, d = self.spec, now.rows, self.spec.head_dim
        own = [spec.kv_heads * d] * 2 if self.own else []
        gates = [spec.heads * d] if spec.gated else []
        parts = torch.split(self.qkv(h).float(), [spec.heads * d, *own, *gates], -1)
        q = self._turned(parts[0], spec.heads, self.q_norm, now)
        if now.query_scales is not None:
            q = q * now.query_scales[:, None, None]
        keys, values = now.keys_and_values(self.source)
        if self.own:
            k = self._turned(parts[1], spec.kv_heads, self.k_norm, now)
            v = parts[2].reshape(-1, spec.kv_heads, d)
            if spec.value_norm:
                v = F.rms_norm(v, (d,), None, self.eps)
            new = slice(rows.base, rows.base + rows.count)
            keys[:, new] = k[: rows.count].transpose(0, 1)
            values[:, new] = v[: rows.count].transpose(0, 1)
        mixed = self._attend(q, keys, values, now)
        if spec.gated:
            mixed = mixed * parts[-1].sigmoid()
        return self.out(mixed.to(self.dtype))

    def _run_kernels(self, h: Tensor, now: TorchPass, rows: StaticPass, do: ModuleType) -> Tensor:
        """Do the same with kernels that read the cache's place and length from the device."""
        spec, qkv = self.spec, self.qkv(h)
        group, place = now.places[self.source]
        gates = None
        if spec.gated:
            inner = spec.heads * spec.head_dim
            qkv, gates = qkv[:, :-inner].contiguous(), qkv[:, -inner:]
        if self.own:
            if spec.rope is None:
                phases, turns = torch.ones(1, 1, dtype=torch.complex64, device=h.device), now.still
            else:
                phases, turns = now.phases[spec.rope], now.numbers
            q = do.turned(
                self, place, self.norms, self._normed(qkv), phases, turns, rows.meta,
                ADDRESSES[group],
            )  # fmt: skip
        else:
            q = self._turned(qkv.float(), spec.heads, self.q_norm, now).to(self.dtype)
        if now.query_scales is not None:
            q *= now.query_scales[:, None, None]
        mixed = do.attend(
            self, place, q, rows, spec.window, spec.softcap, self.sinks, ADDRESSES[group]
        )
        return self.out(mixed if gates is None else mixed * gates.sigmoid())

    def _normed(self, qkv: Tensor) -> Tensor:
        """Apply the norms that are not of single heads of q and k, in qkv's number format."""
        spec = self.spec
        if spec.qk_norm != "all" and not spec.value_norm:
            return qkv
        shared = spec.kv_heads * spec.head_dim
        q, k, v = torch.split(qkv.float(), [spec.heads * spec.head_dim, shared, shared], -1)
        if spec.qk_norm == "all":
            q = F.rms_norm(q, (q.shape[-1],), self.q_norm, self.eps)
            k = F.rms_norm(k, (k.shape[-1],), self.k_norm, self.eps)
        if spec.value_norm:
            heads = v.reshape(-1, spec.kv_heads, spec.head_dim)
            v = F.rms_norm(heads, (spec.head_dim,), None, self.eps).flatten(1)
        return torch.cat([q, k, v], -1).to(qkv.dtype)

    def _turned(self, x: Tensor, heads: int, norm: Tensor | None, now: TorchPass) -> Tensor:
        """Normalise and rotate q or k: [rows, heads, head dim]."""
        if self.spec.qk_norm == "all":
            x = F.rms_norm(x, (x.shape[-1],), norm, self.eps)
        x = x.reshape(-1, heads, self.spec.head_dim)
        if self.spec.qk_norm == "head":
            x = F.rms_norm(x, (self.spec.head_dim,), norm, self.eps)
        if self.spec.rope is None:
            return x
        phase = now.phases[self.spec.rope][:, None]
        rotated = 2 * phase.shape[-1]
        pairs = torch.view_as_complex(x[..., :rotated].reshape(len(x), heads, -1, 2))
        return torch.cat([torch.view_as_real(pairs * phase).flatten(-2), x[..., rotated:]], -1)

    def _attend(self, q: Tensor, keys: Tensor, values: Tensor, now: TorchPass) -> Tensor:
        """Mix the values, [rows, heads * head dim] in f32. Padding rows are zeros on a CPU."""
        spec, rows = self.spec, now.rows
        if q.device.type == "cpu" and keys.dtype == torch.float32:
            out = torch.zeros(len(q), spec.heads * spec.head_dim)
            _kernels.attend(
                q[: rows.count].contiguous().numpy(), keys.numpy(), values.numpy(), rows.base,
                rows.parents, spec.scale, out[: rows.count].numpy(), spec.window, spec.softcap,
                None if self.sinks is None else self.sinks.numpy(),
            )  # fmt: skip
            return out
        # No row sees a key before those that the first one sees.
        start = max(0, rows.base - spec.window + 1) if spec.window else 0
        seen = slice(start, rows.base + rows.count)
        keys, values, mask = keys[:, seen], values[:, seen], now.sees(spec.window)[:, start:]
        if spec.softcap or self.sinks is not None:
            return masked_attention(
                q, keys.float(), values.float(), mask, spec.scale, spec.softcap, self.sinks
            )
        return fused_attention(q.to(keys.dtype), keys, values, mask, spec.scale).float()
