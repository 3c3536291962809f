"""EAGLE's draft head: one decoder layer that predicts the model's own hidden states.

Li et al., "EAGLE: Speculative Sampling Requires Rethinking Feature Uncertainty" (2024, arXiv
2401.15077). Row i reads the model's hidden state at token i (after the final norm) and the
embedding of token i + 1, and predicts the hidden state at token i + 1, from which the model's own
LM head computes logits. The layer has the model's shape, without a norm before its attention (and
without Qwen3's norms of q and k); tensors have the published names. Embedding and LM head belong to
the model and are not stored.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from research.methods.head_checkpoint import CheckpointError, load_head, save_head

KIND = "eagle head"


@dataclass(frozen=True, slots=True)
class HeadShape:
    """Dimensions of the decoder layer, the same as the model's own layers."""

    hidden_size: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate_size: int
    rms_norm_eps: float
    rope_theta: float
    qkv_bias: bool
    bias: bool = True  # whether `fc`, which combines hidden state and embedding, has one


def shape_of(settings: dict[str, Any]) -> HeadShape:
    """Read the shape from the contents of a model's config.json."""
    heads = settings["num_attention_heads"]
    rope = settings.get("rope_parameters") or {}
    return HeadShape(
        settings["hidden_size"],
        heads,
        settings.get("num_key_value_heads") or heads,
        settings.get("head_dim") or settings["hidden_size"] // heads,
        settings["intermediate_size"],
        settings["rms_norm_eps"],
        rope.get("rope_theta") or settings.get("rope_theta") or 10000.0,
        bool(settings.get("attention_bias", settings["model_type"] == "qwen2")),
    )


class HeadAttention(nn.Module):
    def __init__(self, shape: HeadShape) -> None:
        super().__init__()
        self.shape = shape
        width, d, bias = shape.hidden_size, shape.head_dim, shape.qkv_bias
        self.q_proj = nn.Linear(width, shape.heads * d, bias=bias)
        self.k_proj = nn.Linear(width, shape.kv_heads * d, bias=bias)
        self.v_proj = nn.Linear(width, shape.kv_heads * d, bias=bias)
        self.o_proj = nn.Linear(shape.heads * d, width, bias=False)

    def forward(
        self, x: Tensor, positions: Tensor, past: tuple[Tensor, Tensor], mask: Tensor
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        shape, count = self.shape, len(x)
        q = self._rotated(self.q_proj(x).view(count, shape.heads, -1), positions)
        k = self._rotated(self.k_proj(x).view(count, shape.kv_heads, -1), positions)
        v = self.v_proj(x).view(count, shape.kv_heads, -1).transpose(0, 1)
        keys, values = torch.cat([past[0], k], 1), torch.cat([past[1], v], 1)
        group = shape.heads // shape.kv_heads
        mixed = F.scaled_dot_product_attention(
            q, keys.repeat_interleave(group, 0), values.repeat_interleave(group, 0), mask
        )
        out: Tensor = self.o_proj(mixed.transpose(0, 1).reshape(count, -1))
        return out, (keys, values)

    def _rotated(self, heads: Tensor, positions: Tensor) -> Tensor:
        """Apply rotary position embeddings: [rows, heads, d] -> [heads, rows, d]."""
        d = self.shape.head_dim
        powers = torch.arange(0, d, 2, dtype=torch.float32, device=heads.device) / d
        angles = positions[:, None].float() / self.shape.rope_theta**powers
        cos, sin = angles.cos().repeat(1, 2), angles.sin().repeat(1, 2)
        x = heads.transpose(0, 1)
        left, right = x.chunk(2, -1)
        return x * cos + torch.cat([-right, left], -1) * sin


class Mlp(nn.Module):
    def __init__(self, shape: HeadShape) -> None:
        super().__init__()
        width, inner = shape.hidden_size, shape.intermediate_size
        self.gate_proj = nn.Linear(width, inner, bias=False)
        self.up_proj = nn.Linear(width, inner, bias=False)
        self.down_proj = nn.Linear(inner, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))
        return out


class DecoderLayer(nn.Module):
    def __init__(self, shape: HeadShape) -> None:
        super().__init__()
        self.self_attn, self.mlp = HeadAttention(shape), Mlp(shape)
        width, eps = shape.hidden_size, shape.rms_norm_eps
        self.post_attention_layernorm = nn.RMSNorm(width, eps)


class EagleHead(nn.Module):
    """The trainable part of EAGLE.

    `forward` is pure: it returns an extended copy of the cache.
    """

    def __init__(self, shape: HeadShape) -> None:
        super().__init__()
        self.shape = shape
        self.fc = nn.Linear(2 * shape.hidden_size, shape.hidden_size, bias=shape.bias)
        self.layers = nn.ModuleList([DecoderLayer(shape)])

    def empty(self) -> tuple[Tensor, Tensor]:
        """Make an empty cache: keys and values [kv heads, rows, d]."""
        none = self.fc.weight.new_empty(self.shape.kv_heads, 0, self.shape.head_dim)
        return none, none

    def forward(
        self,
        embedded: Tensor,
        states: Tensor,
        positions: Tensor,
        past: tuple[Tensor, Tensor],
        mask: Tensor,
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """Predict the hidden states [rows, width] one token later.

        Also returns the cache with these rows. `embedded`, `states`: [rows, width]. `mask` [rows,
        past + rows]: True where a row may attend.
        """
        layer: Any = self.layers[0]
        x = self.fc(torch.cat([embedded, states], -1))
        mixed, cache = layer.self_attn(x, positions, past, mask)
        x = x + mixed
        return x + layer.mlp(layer.post_attention_layernorm(x)), cache

    def save(self, folder: Path, model: Path) -> None:
        """Save for the model in the folder `model`."""
        save_head(folder, KIND, asdict(self.shape), self.state_dict(), model)

    @classmethod
    def load(cls, folder: Path, model: Path, settings: dict[str, Any]) -> EagleHead:
        """Load a head for the model in the folder `model` with the config `settings`.

        Raises CheckpointError. Other tensors of published checkpoints are ignored.
        """
        config, weights = load_head(folder, KIND, model)
        shape = shape_of(settings)
        shape = HeadShape(**(asdict(shape) | {"bias": config.get("bias", True)}))
        head = cls(shape)
        try:
            head.load_state_dict({name: weights[name].float() for name in head.state_dict()})
        except (KeyError, RuntimeError) as error:
            why = " ".join(str(error).split())[:200]
            raise CheckpointError(
                f"{folder}: does not fit {model.name} ({why}): train a head for {model.name}"
            ) from error
        return head.eval()


def untrained_head(shape: HeadShape, seed: int) -> EagleHead:
    """Make a randomly initialised head; equal seeds give equal heads."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return EagleHead(shape).eval()
