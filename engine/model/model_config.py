"""The description of a model that a forward pass needs: its layers, as plain data.

`engine.model.families` makes one of a config.json or of the metadata of a GGUF file;
`engine.model.native.model` runs it on a CPU, `engine.model.torch.cuda.described_model` on a card.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

FULL, SLIDING, LINEAR = "full_attention", "sliding_attention", "linear_attention"  # types of layers
SILU, GELU, CLAMPED_SWIGLU = "silu", "gelu", "clamped_swiglu"  # names of the kernels


@dataclass(frozen=True, slots=True)
class Rope:
    """A rotary embedding: the first `2 * pairs` dimensions of each head are rotated."""

    rotary: int  # dimensions that are paired, each with the one `rotary / 2` behind it
    pairs: int  # pairs that are rotated, the first ones
    frequencies: tuple[float, ...]  # radians per position of each pair
    factor: float = 1.0  # factor by which rotated dimensions grow


@dataclass(frozen=True, slots=True)
class Attention:
    """Softmax attention over keys and values in the cache."""

    heads: int
    kv_heads: int
    head_dim: int
    scale: float  # factor of scores
    rope: str | None  # a name in `ModelConfig.ropes`; None: positions are not encoded
    window: int = 0  # tokens that a row sees, itself included; 0: all
    softcap: float = 0.0  # cap of scores; 0: none
    sinks: bool = False  # one more logit for each head in the softmax (gpt-oss)
    gated: bool = False  # the output is multiplied by the sigmoid of a projection
    qk_norm: Literal["", "head", "all"] = ""  # RMS norm of q and k, of each head or of all together
    value_norm: bool = False  # RMS norm of each head of values, without weights
    biased: tuple[str, ...] = ()  # projections that have a bias, among q, k, v and o
    keys_are_values: bool = False  # the projection of keys is that of values, too
    reads_from: int | None = None  # the layer whose keys and values are used; None: its own


@dataclass(frozen=True, slots=True)
class LinearAttention:
    """Gated DeltaNet (arXiv:2412.06464): a state for each head of values in place of a cache."""

    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    kernel: int  # inputs of the short convolution
    tiled: (
        bool  # value head h uses key head h mod key_heads, instead of h * key_heads / value_heads
    )

    @property
    def channels(self) -> int:
        """Channels of q, k and v together."""
        return 2 * self.key_heads * self.key_dim + self.value_heads * self.value_dim


@dataclass(frozen=True, slots=True)
class Dense:
    """A gated feed-forward block."""

    width: int
    activation: str = SILU
    biased: bool = False


@dataclass(frozen=True, slots=True)
class Experts:
    """A mixture of gated feed-forward blocks, of which each row takes a few."""

    count: int
    chosen: int
    width: int
    activation: str = SILU
    router: str = "mlp.gate"  # its tensor, without ".weight"
    normalised: bool = True  # weights of the chosen ones add up to 1
    biased: bool = False
    shared: int = 0  # width of an expert that every row takes, times a sigmoid of its own
    alpha: float = 0.0  # factor in the sigmoid of the clamped SwiGLU
    limit: float = 0.0


@dataclass(frozen=True, slots=True)
class Layer:
    """One decoder layer. Gemma 4's mixtures have a dense block next to the experts."""

    mixer: Attention | LinearAttention
    dense: Dense | None
    experts: Experts | None = None


@dataclass(frozen=True, slots=True)
class Norms:
    """Names of a layer's norms, before or after its two blocks; None: it has no such norm."""

    before_mixer: str | None = "input_layernorm"
    after_mixer: str | None = None
    before_feed_forward: str | None = "post_attention_layernorm"
    after_feed_forward: str | None = None

    @property
    def names(self) -> tuple[str | None, ...]:
        """All four, in the order of a pass."""
        return (
            self.before_mixer, self.after_mixer, self.before_feed_forward, self.after_feed_forward
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """A decoder-only language model."""

    family: str  # a transformers model type
    vocab: int
    width: int
    positions: int  # tokens of context
    eps: float
    layers: tuple[Layer, ...]
    norms: Norms
    ropes: dict[str, Rope] = field(hash=False)
    tied: bool
    embedding_scale: float = 1.0
    residual_scale: float = 1.0  # factor of what a block adds
    logit_divisor: float = 1.0
    logit_softcap: float = 0.0
    per_layer_width: int = 0  # width of each layer's inputs for a token (Gemma 3n and 4)
    norm_offset: float = (
        0.0  # published norms hold the weight less this; GGUF files hold the weight
    )
    query_scales: tuple[float, int] | None = None  # Llama 4's temperature: beta, trained positions

    @property
    def head_shapes(self) -> set[tuple[int, int, int]]:
        """Heads, heads of keys and values, and their dimensions, of all attention layers."""
        mixers = [layer.mixer for layer in self.layers]
        return {
            (mixer.heads, mixer.kv_heads, mixer.head_dim)
            for mixer in mixers
            if isinstance(mixer, Attention)
        }

    @property
    def recurrent(self) -> tuple[int, ...]:
        """The layers of linear attention."""
        return tuple(
            n for n, one in enumerate(self.layers) if isinstance(one.mixer, LinearAttention)
        )

    @property
    def cache_groups(self) -> list[tuple[int, int, list[int]]]:
        """Layers whose keys and values have one shape: heads, dimensions, and the layers."""
        groups: dict[tuple[int, int], list[int]] = {}
        for n, one in enumerate(self.layers):
            if isinstance(one.mixer, Attention) and one.mixer.reads_from is None:
                groups.setdefault((one.mixer.kv_heads, one.mixer.head_dim), []).append(n)
        return [(heads, d, layers) for (heads, d), layers in groups.items()]

    @property
    def cache_places(self) -> list[tuple[int, int]]:
        """The group of each layer with keys and values of its own, and its place there."""
        places = [(0, 0)] * len(self.layers)
        for group, (_, _, of) in enumerate(self.cache_groups):
            for place, n in enumerate(of):
                places[n] = group, place
        return places
