"""The forward pass of Llama's family: Llama, Qwen2, Qwen3, and Mistral without a sliding window.

q, k, v are one matrix product, and so are gate and up; rotation is one complex multiplication; keys
and values are written into the cache in place. Weights come straight from safetensors, so
transformers need not be imported, which would take most of the start-up time. Other architectures
go through `engine.model.hf_model`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from safetensors import SafetensorError, safe_open
from torch import Tensor

from engine.model.ops import Product, Rows, attend, joined, product
from engine.weights.integrity import damaged

FAMILY = {"llama", "qwen2", "qwen3", "mistral"}


def supports(config: dict[str, Any]) -> bool:
    """Whether this forward pass can run a model, given its parsed config.json."""
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    return (
        config.get("model_type") in FAMILY
        and config.get("hidden_act", "silu") == "silu"
        and rope.get("rope_type", rope.get("type", "default")) == "default"
        and not config.get("quantization_config")
    )


class TensorSource(Protocol):
    """Tensors by their safetensors names; a dict is one."""

    def __contains__(self, name: object, /) -> bool: ...
    def __getitem__(self, name: str, /) -> Tensor: ...
    def get(self, name: str, /) -> Tensor | None:
        """None where there is no such tensor."""
        ...


class Weights:
    """Tensors of a folder's safetensors files by name, memory-mapped and read one at a time."""

    def __init__(self, folder: Path) -> None:
        self.files: dict[str, Any] = {}
        for path in sorted(folder.glob("*.safetensors")):
            try:
                handle = safe_open(path, framework="pt")
            except SafetensorError as error:
                raise damaged(path, str(error)) from error
            self.files |= dict.fromkeys(list(handle.keys()), handle)  # type: ignore[no-untyped-call]

    def __contains__(self, name: object) -> bool:
        return name in self.files

    def __iter__(self) -> Iterator[str]:
        return iter(self.files)

    def __getitem__(self, name: str) -> Tensor:
        tensor: Tensor = self.files[name].get_tensor(name)
        return tensor

    def get(self, name: str) -> Tensor | None:
        return self[name] if name in self else None  # noqa: SIM401

    def shape(self, name: str) -> tuple[int, ...]:
        return tuple(self.files[name].get_slice(name).get_shape())


@dataclass(slots=True)
class Layer:
    """One decoder layer: the weights of its norms and its four fused products."""

    norm_in: Tensor
    qkv: Product
    qk_norm: tuple[Tensor, Tensor] | None  # Qwen3 normalises each head of q and k
    out: Product
    norm_mlp: Tensor
    gate_up: Product
    down: Product


class Llama:
    """Weights and forward pass: `run` returns hidden states, `head` logits. It owns no cache."""

    stops_early = True  # `run` may stop after the first layers

    def __init__(
        self,
        folder: Path,
        device: torch.device,
        dtype: torch.dtype,
        exact: bool = False,
        weights: TensorSource | None = None,
        int8: bool = False,
        places: list[tuple[torch.device, int]] | None = None,
    ) -> None:
        """`exact`: products that do not round by shape on a GPU; `int8`: 8-bit weights there (the
        embedding keeps `dtype`). `weights`: used instead of the folder's files, of which only
        config.json is read then. `places`: devices in the order of the layers, and how many layers
        each has; the first also has the embedding, the last (`device`) the norm and the head.
        None: everything is on `device`."""
        config = json.loads((folder / "config.json").read_text("utf-8"))
        named: TensorSource = Weights(folder) if weights is None else weights
        heads = config["num_attention_heads"]
        self.device, self.dtype, self.exact = device, dtype, exact
        self.int8 = int8
        self.cache_dtype = torch.float32 if device.type == "cpu" else dtype
        self.layers: int = config["num_hidden_layers"]
        self.places = places or [(device, self.layers)]
        self.heads: int = heads
        self.kv_heads: int = config.get("num_key_value_heads") or heads
        self.head_dim: int = config.get("head_dim") or config["hidden_size"] // heads
        self.width: int = config["hidden_size"]
        self.vocab: int = config["vocab_size"]
        self.max_positions: int = config["max_position_embeddings"]
        self.eps: float = config["rms_norm_eps"]
        self.scale = self.head_dim**-0.5
        rope = config.get("rope_parameters") or {}
        theta = rope.get("rope_theta") or config.get("rope_theta") or 10000.0
        first = self.places[0][0]
        self.turns = rotations(theta, self.head_dim, self.max_positions).to(first)
        self._set_words(named, bool(config.get("tie_word_embeddings")), first)
        layer_devices = [place for place, count in self.places for _ in range(count)]
        self.blocks = [self._layer(named, n, place) for n, place in enumerate(layer_devices)]
        self.norm = self._norm(named["model.norm.weight"], device)

    def _set_words(self, named: TensorSource, tied: bool, first: torch.device) -> None:
        """The embedding on the first device and the head on the last."""
        embedding = named["model.embed_tokens.weight"]
        self.embedding = embedding.to(first, self.dtype)
        head = None if tied else named.get("lm_head.weight")
        if head is None or torch.equal(head, embedding):
            head = self.embedding  # tied or equal: one copy, unless the product packs it
        self._head: Product = self._product(self.device, [head])

    def _norm(self, weight: Tensor, device: torch.device) -> Tensor:
        return weight.to(device, torch.float32)

    def _matrix(self, named: TensorSource, name: str, paired: bool = False) -> Any:
        """A matrix as `_product` takes it; `paired`: of q or k, see `_paired`."""
        return self._paired(named[name]) if paired else named[name]

    def _product(
        self, device: torch.device, parts: list[Any], bias: Tensor | None = None
    ) -> Product:
        """The product with matrices of `_matrix`, whose output channels follow each other."""
        placed = None if bias is None else bias.to(device, self.dtype)
        weight = joined(parts).to(device, self.dtype)
        return product(weight, placed, exact=self.exact, int8=self.int8)

    def _paired(self, weight: Tensor) -> Tensor:
        """Reorder the rows of a q or k weight (or bias or norm) within each head from (first half,
        second half) to pairs, so that rotation is a complex product. q and k are permuted alike,
        so their dot products stay the same."""
        shape = weight.shape
        halves = weight.reshape(-1, 2, self.head_dim // 2, *shape[1:])
        return halves.transpose(1, 2).reshape(shape)

    def _layer(self, weights: TensorSource, n: int, place: torch.device) -> Layer:
        at, mlp = f"model.layers.{n}.self_attn.", f"model.layers.{n}.mlp."
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
        gate_up = [self._matrix(weights, f"{mlp}{name}_proj.weight") for name in ("gate", "up")]
        out, down = f"{at}o_proj.weight", f"{mlp}down_proj.weight"
        return Layer(
            self._norm(weights[f"model.layers.{n}.input_layernorm.weight"], place),
            self._product(place, qkv, bias),
            qk_norm,
            self._product(place, [self._matrix(weights, out)], weights.get(f"{at}o_proj.bias")),
            self._norm(weights[f"model.layers.{n}.post_attention_layernorm.weight"], place),
            self._product(place, gate_up),
            self._product(place, [self._matrix(weights, down)]),
        )

    def _normed(self, x: Tensor, weight: Tensor) -> Tensor:
        return F.rms_norm(x.float(), (x.shape[-1],), weight, self.eps).to(self.dtype)

    def run(
        self, ids: Tensor, rows: Rows, cache: tuple[Tensor, ...], layers: int | None = None
    ) -> Tensor:
        """Final hidden states [rows, width], on `device`, of token `ids` [rows] on the embedding's
        device. Keys and values are written to rows `rows.base ...` of `cache`, one tensor
        [2, layers, kv heads, capacity, head_dim] for each of `places`. `layers`: run only the first
        ones."""
        turn = self.turns[rows.positions, None]  # [rows, 1, head_dim / 2]
        x, done = self.embedding[ids].to(self.dtype), 0
        for (place, count), (keys, values) in zip(self.places, cache, strict=True):
            if done:
                x, turn = x.to(place), turn.to(place)
            some = self.blocks[:layers][done : done + count]
            for layer, layer_keys, layer_values in zip(some, keys, values, strict=False):
                x = self._through(layer, x, turn, rows, layer_keys, layer_values)
            done += count
        return self._normed(x, self.norm)

    def _through(
        self, layer: Layer, x: Tensor, turn: Tensor, rows: Rows, keys: Tensor, values: Tensor
    ) -> Tensor:
        """x [rows, width] after one layer, whose keys and values [kv heads, capacity, head_dim] are
        written."""
        count, heads, both = len(x), self.heads, self.heads + self.kv_heads
        qkv = layer.qkv(self._normed(x, layer.norm_in)).float()
        split = qkv.view(count, both + self.kv_heads, self.head_dim)
        qk = split[:, :both]
        if layer.qk_norm is not None:
            q_norm, k_norm = layer.qk_norm
            q = F.rms_norm(qk[:, :heads], (self.head_dim,), q_norm, self.eps)
            k = F.rms_norm(qk[:, heads:], (self.head_dim,), k_norm, self.eps)
            qk = torch.cat([q, k], 1)
        pairs = torch.view_as_complex(qk.reshape(count, both, -1, 2))
        qk = torch.view_as_real(pairs * turn).flatten(-2)
        new = slice(rows.base, rows.base + count)
        keys[:, new] = qk[:, heads:].transpose(0, 1)
        values[:, new] = split[:, both:].transpose(0, 1)
        mixed = attend(qk[:, :heads], keys, values, rows, self.scale)
        x = x + layer.out(mixed.to(self.dtype))
        gate, up = layer.gate_up(self._normed(x, layer.norm_mlp)).chunk(2, -1)
        return x + layer.down(F.silu(gate) * up)

    def extend(self, rows: Tensor) -> None:
        """Give the embedding rows [tokens, width] for more tokens, which the head does not have."""
        rows = rows.to(self.embedding.device, self.embedding.dtype)
        self.embedding = torch.cat([self.embedding, rows])

    def head(self, hidden: Tensor) -> Tensor:
        """Logits [rows, vocabulary] in f32 of hidden states [rows, width]."""
        return self._head(hidden).float()

    def words(self, hidden: Tensor) -> Tensor:
        """Logits in the model's own dtype."""
        return self._head(hidden)


def rotations(theta: float, head_dim: int, positions: int) -> Tensor:
    """e^(i p w) for every position p and frequency w: complex [positions, head_dim / 2]."""
    powers = torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim
    angles = torch.arange(positions, dtype=torch.float32)[:, None] / theta**powers
    return torch.polar(torch.ones_like(angles), angles)
