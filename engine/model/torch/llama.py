"""The forward pass of Llama's family.

That is Llama, Qwen2, Qwen3, Granite, SmolLM3, Ministral 3, and Mistral without a sliding window. q,
k, v are one matrix product, and so are gate and up; rotation is one complex multiplication; keys
and values are written into the cache in place. Weights come straight from safetensors, so
transformers need not be imported, which would take most of the start-up time. Other architectures
go through `engine.model.torch.hf_model`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from safetensors import SafetensorError, safe_open
from torch import Tensor

from engine.model.families.tensors import text_name
from engine.model.model_config import Attention, ModelConfig, Rope
from engine.model.torch.cuda.weight_formats import head_format
from engine.model.torch.ops import Product, Rows, attend, joined, product
from engine.weights.fetch.integrity import damaged


class TensorSource(Protocol):
    """Tensors by their safetensors names; a dict is one."""

    def __contains__(self, name: object, /) -> bool: ...
    def __getitem__(self, name: str, /) -> Tensor: ...
    def get(self, name: str, /) -> Tensor | None:
        """Read a tensor; None where there is none of this name."""
        ...


class Weights:
    """Tensors of a folder's safetensors files by name, memory-mapped and read one at a time.

    For a composite model, they are those of its text part.
    """

    def __init__(self, folder: Path) -> None:
        self.files: dict[str, tuple[Any, str]] = {}  # file and name there, by a tensor's name
        for path in sorted(folder.glob("*.safetensors")):
            try:
                handle = safe_open(path, framework="pt")
            except SafetensorError as error:
                raise damaged(path, str(error)) from error
            names: list[str] = list(handle.keys())  # type: ignore[no-untyped-call]
            for name in names:
                self.files[text_name(name)] = handle, name

    def __contains__(self, name: object) -> bool:
        return name in self.files

    def __iter__(self) -> Iterator[str]:
        return iter(self.files)

    def __getitem__(self, name: str) -> Tensor:
        file, stored = self.files[name]
        tensor: Tensor = file.get_tensor(stored)
        return tensor

    def get(self, name: str) -> Tensor | None:
        return self[name] if name in self else None  # noqa: SIM401

    def shape(self, name: str) -> tuple[int, ...]:
        file, stored = self.files[name]
        return tuple(file.get_slice(stored).get_shape())


@dataclass(slots=True)
class FeedForward:
    """The products of gates and ups together, and of down."""

    gate_up: Product
    down: Product


@dataclass(slots=True)
class LlamaLayer:
    """One decoder layer: the weights of its norms, its fused products and its feed-forward part."""

    norm_in: Tensor
    qkv: Product
    qk_norm: tuple[Tensor, Tensor] | None  # Qwen3 normalises each head of q and k
    out: Product
    norm_mlp: Tensor
    mlp: FeedForward


class Llama:
    """Weights and forward pass: `run` returns hidden states, `head` logits. It owns no cache."""

    checked_layers = 1  # the first ones that have every kind of block

    def __init__(
        self,
        config: ModelConfig,
        named: TensorSource,
        device: torch.device,
        dtype: torch.dtype,
        exact: bool = False,
        narrow: str = "",
        places: list[tuple[torch.device, int]] | None = None,
    ) -> None:
        """Load the weights of a model.

        `exact`: products that do not round by shape on a GPU; `narrow`: the format of weights
        there, of `engine.model.torch.cuda.weight_formats` (the embedding keeps `dtype`). `places`:
        devices in the order of the layers, and how many layers each has; the first also has the
        embedding, the last (`device`) the norm and the head. None: everything is on `device`.
        """
        self.device, self.dtype, self.exact = device, dtype, exact
        self.narrow = narrow
        self.cache_dtype = torch.float32 if device.type == "cpu" else dtype
        mixers = [layer.mixer for layer in config.layers if isinstance(layer.mixer, Attention)]
        first, usual = (places or [(device, 0)])[0][0], mixers[0]
        self.layers = len(config.layers)
        self.places = places or [(device, self.layers)]
        self.heads, self.kv_heads = usual.heads, usual.kv_heads
        self.head_dim, self.scale = usual.head_dim, usual.scale
        self.width, self.vocab = config.width, config.vocab
        self.max_positions, self.eps = config.positions, config.eps
        self.embedding_scale, self.residual_scale = config.embedding_scale, config.residual_scale
        self.logit_divisor = config.logit_divisor
        self.rotary = [mixer.rope is not None for mixer in mixers]  # whether each layer rotates
        still = Rope(usual.head_dim, usual.head_dim // 2, (0.0,) * (usual.head_dim // 2))
        rope = next(iter(config.ropes.values()), still)
        self.phases = rotations(rope, config.positions).to(first)
        self.query_scales = None
        if config.query_scales is not None:
            self.query_scales = query_scales(*config.query_scales, config.positions).to(first)
        self._set_words(named, config.tied, first)
        layer_devices = [place for place, count in self.places for _ in range(count)]
        self.cache_shapes = [
            (place, count, self.kv_heads, self.head_dim) for place, count in self.places
        ]
        self.blocks = [self._layer(named, n, place) for n, place in enumerate(layer_devices)]
        self.norm = self._norm(named["model.norm.weight"], device)

    def _set_words(self, named: TensorSource, tied: bool, first: torch.device) -> None:
        """Place the embedding on the first device and the head on the last."""
        embedding = named["model.embed_tokens.weight"]
        self.embedding = embedding.to(first, self.dtype)
        head = None if tied else named.get("lm_head.weight")
        if head is None or torch.equal(head, embedding):
            head = self.embedding  # tied or equal: one copy, unless the product packs it
        weight = head.to(self.device, self.dtype)
        self._head: Product = product(weight, None, self.exact, head_format(self.narrow))

    def _norm(self, weight: Tensor, device: torch.device) -> Tensor:
        return weight.to(device, torch.float32)

    def _matrix(self, named: TensorSource, name: str, paired: bool = False) -> Any:
        """Read a matrix for `_product`; `paired`: one of q or k, see `_paired`."""
        return self._paired(named[name]) if paired else named[name]

    def _product(
        self, device: torch.device, parts: list[Any], bias: Tensor | None = None
    ) -> Product:
        """Make the product with matrices of `_matrix`, whose output channels follow each other."""
        placed = None if bias is None else bias.to(device, self.dtype)
        weight = joined(parts).to(device, self.dtype)
        return product(weight, placed, self.exact, self.narrow)

    def _paired(self, weight: Tensor) -> Tensor:
        """Reorder the rows of a q or k weight (or bias or norm) within each head to pairs.

        They come as (first half, second half); in pairs, rotation is a complex product. q and k are
        permuted alike, so their dot products stay the same.
        """
        shape = weight.shape
        halves = weight.reshape(-1, 2, self.head_dim // 2, *shape[1:])
        return halves.transpose(1, 2).reshape(shape)

    def _layer(self, weights: TensorSource, n: int, place: torch.device) -> LlamaLayer:
        at = f"model.layers.{n}.self_attn."
        qkv = [
            self._matrix(weights, f"{at}{name}_proj.weight", paired=name != "v") for name in "qkv"
        ]
        biases = [weights.get(f"{at}{name}_proj.bias") for name in "qkv"]
        bias = None
        if biases[0] is not None and biases[1] is not None and biases[2] is not None:
            bias = torch.cat([self._paired(biases[0]), self._paired(biases[1]), biases[2]])
        qk_norm = None
        if f"{at}q_norm.weight" in weights:
            q_norm, k_norm = (self._paired(weights[f"{at}{name}_norm.weight"]) for name in "qk")
            qk_norm = (self._norm(q_norm, place), self._norm(k_norm, place))
        out = self._matrix(weights, f"{at}o_proj.weight")
        return LlamaLayer(
            self._norm(weights[f"model.layers.{n}.input_layernorm.weight"], place),
            self._product(place, qkv, bias),
            qk_norm,
            self._product(place, [out], weights.get(f"{at}o_proj.bias")),
            self._norm(weights[f"model.layers.{n}.post_attention_layernorm.weight"], place),
            self._feed_forward(weights, n, place),
        )

    def _feed_forward(self, weights: TensorSource, n: int, place: torch.device) -> Any:
        """Make a layer's `mlp`."""
        mlp = f"model.layers.{n}.mlp."
        gate_up = [self._matrix(weights, f"{mlp}{name}_proj.weight") for name in ("gate", "up")]
        gate_bias, up_bias = (weights.get(f"{mlp}{name}_proj.bias") for name in ("gate", "up"))
        bias = None
        if gate_bias is not None and up_bias is not None:
            bias = torch.cat([gate_bias, up_bias])
        down = self._matrix(weights, f"{mlp}down_proj.weight")
        return FeedForward(
            self._product(place, gate_up, bias),
            self._product(place, [down], weights.get(f"{mlp}down_proj.bias")),
        )

    def _normed(self, x: Tensor, weight: Tensor) -> Tensor:
        return F.rms_norm(x.float(), (x.shape[-1],), weight, self.eps).to(self.dtype)

    def embedded(self, ids: Tensor) -> Tensor:
        """Compute the first layer's input [rows, width] of tokens `ids` [rows]."""
        x = self.embedding[ids].to(self.dtype)
        return x if self.embedding_scale == 1 else x * self.embedding_scale

    def scaled(self, delta: Tensor) -> Tensor:
        """Scale what an attention or MLP block adds to its input [rows, width]."""
        return delta if self.residual_scale == 1 else delta * self.residual_scale

    def turning(self, positions: Tensor) -> Tensor:
        """Look up the rotation of q and k at `positions` [rows].

        It is complex [rows, 1, head_dim / 2], or one for each head of q and of k where q is scaled,
        too.
        """
        phase = self.phases[positions, None]
        if self.query_scales is None:
            return phase
        scales = phase.new_ones(len(positions), self.heads + self.kv_heads, 1, dtype=torch.float32)
        scales[:, : self.heads] = self.query_scales[positions, None, None]
        return phase * scales

    def run(
        self, ids: Tensor, rows: Rows, cache: tuple[Tensor, ...], layers: int | None = None
    ) -> Tensor:
        """Compute the final hidden states [rows, width], on `device`, of token `ids` [rows].

        The ids are on the embedding's device. Keys and values are written to rows `rows.base ...`
        of `cache`, one tensor [2, layers, kv heads, capacity, head_dim] for each of `places`.
        `layers`: run only the first ones.
        """
        phase = self.turning(rows.positions)
        x, done = self.embedded(ids), 0
        for (place, count), (keys, values) in zip(self.places, cache, strict=True):
            if done:
                x, phase = x.to(place), phase.to(place)
            some = range(len(self.blocks))[:layers][done : done + count]
            for n, layer_keys, layer_values in zip(some, keys, values, strict=False):
                rotation = phase if self.rotary[n] else None
                x = self._through(self.blocks[n], x, rotation, rows, layer_keys, layer_values)
            done += count
        return self._normed(x, self.norm)

    def _through(
        self,
        layer: LlamaLayer,
        x: Tensor,
        phase: Tensor | None,
        rows: Rows,
        keys: Tensor,
        values: Tensor,
    ) -> Tensor:
        """Run x [rows, width] through one layer.

        Its keys and values [kv heads, capacity, head_dim] are written. `phase`: the rotation of q
        and k, if the layer has one.
        """
        count, heads, both = len(x), self.heads, self.heads + self.kv_heads
        qkv = layer.qkv(self._normed(x, layer.norm_in)).float()
        split = qkv.view(count, both + self.kv_heads, self.head_dim)
        qk = split[:, :both]
        if layer.qk_norm is not None:
            q_norm, k_norm = layer.qk_norm
            q = F.rms_norm(qk[:, :heads], (self.head_dim,), q_norm, self.eps)
            k = F.rms_norm(qk[:, heads:], (self.head_dim,), k_norm, self.eps)
            qk = torch.cat([q, k], 1)
        if phase is not None:
            pairs = torch.view_as_complex(qk.reshape(count, both, -1, 2))
            qk = torch.view_as_real(pairs * phase).flatten(-2)
        new = slice(rows.base, rows.base + count)
        keys[:, new] = qk[:, heads:].transpose(0, 1)
        values[:, new] = split[:, both:].transpose(0, 1)
        mixed = attend(qk[:, :heads], keys, values, rows, self.scale)
        x = x + self.scaled(layer.out(mixed.to(self.dtype)))
        gate, up = layer.mlp.gate_up(self._normed(x, layer.norm_mlp)).chunk(2, -1)
        return x + self.scaled(layer.mlp.down(F.silu(gate) * up))

    def extend(self, rows: Tensor) -> None:
        """Give the embedding rows [tokens, width] for more tokens, which the head does not have."""
        rows = rows.to(self.embedding.device, self.embedding.dtype)
        self.embedding = torch.cat([self.embedding, rows])

    def head(self, hidden: Tensor) -> Tensor:
        """Compute the logits [rows, vocabulary] in f32 of hidden states [rows, width]."""
        return self.words(hidden).float()

    def words(self, hidden: Tensor) -> Tensor:
        """Compute the logits in the model's own dtype."""
        logits = self._head(hidden)
        return logits if self.logit_divisor == 1 else logits / self.logit_divisor


def rotations(rope: Rope, positions: int) -> Tensor:
    """Compute a e^(i p w) for every position p and frequency w: complex [positions, pairs].

    a is the factor of attention.
    """
    steps = torch.arange(positions, dtype=torch.float32)
    angles = steps[:, None] * torch.tensor(rope.frequencies, dtype=torch.float32)
    return torch.polar(torch.full_like(angles, rope.factor), angles)


def query_scales(beta: float, trained: int, positions: int) -> Tensor:
    """Compute the factor of q at every position, f32 [positions].

    Llama 4's temperature scaling keeps attention sharp in long texts; Ministral 3 has it, too.
    `trained`: positions without it.
    """
    periods = torch.floor(torch.arange(positions) / trained)
    scales: Tensor = 1 + beta * torch.log(1 + periods)
    return scales
