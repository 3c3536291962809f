"""What a family of models is, and what most families share: sizes, windows and tables of tensors.

Values stay as a file stores them. Gemma 3's norms, for example, hold 1 + w there, where published
tensors hold w.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

from engine.weights.gguf.gguf_file import Gguf
from engine.weights.gguf.tokenizer import token_id
from engine.weights.model_config import LIMITS

FULL, SLIDING = "full_attention", "sliding_attention"
COMPARED_ROWS = 1024  # at a time
MAX_WINDOW = 1 << 31

TensorName = tuple[str, tuple[int, ...], int]  # in safetensors; shape; heads in GGML's rope order
Table = dict[str, TensorName]  # by the name in GGUF
Config = dict[str, Any]  # a config.json

# Metadata that every family reads here or in `rope`, or that change nothing.
COMMON = frozenset({
    "vocab_size", "tensor_data_layout", "pooling_type", "context_length", "embedding_length",
    "feed_forward_length", "block_count", "attention.head_count", "attention.head_count_kv",
    "attention.key_length", "attention.value_length", "attention.layer_norm_rms_epsilon",
    "attention.causal", "rope.dimension_count", "rope.freq_base", "rope.scale_linear",
    "rope.scaling.type", "rope.scaling.factor", "rope.scaling.attn_factor",
    "rope.scaling.original_context_length", "rope.scaling.finetuned",
    "rope.scaling.yarn_ext_factor", "rope.scaling.yarn_attn_factor",
    "rope.scaling.yarn_log_multiplier", "rope.scaling.yarn_beta_fast",
    "rope.scaling.yarn_beta_slow",
})  # fmt: skip
WINDOWED = frozenset({"attention.sliding_window", "attention.sliding_window_pattern"})
EXPERTS = frozenset({"expert_count", "expert_used_count", "expert_feed_forward_length"})


@dataclass(frozen=True)
class Family:
    """`architecture`: its name in GGUF. `model_types`: its names in transformers. `fields`: what it
    reads of its metadata beside COMMON, without the architecture's name. `config`: the config.json
    of a file. `tensors`: the weights of a model, by its config.json and the names that the file
    has, some of which may stand for others. `others`: tensors that a file may have beside them."""

    architecture: str
    model_types: tuple[str, ...]
    fields: frozenset[str]
    config: Callable[[Gguf], Config]
    tensors: Callable[[Config, Collection[str]], Table]
    others: Callable[[Config], frozenset[str]] = lambda config: frozenset()


def sizes(
    file: Gguf,
    name: str,
    model_type: str,
    model_class: str,
    inner: int | None = None,
    kv_heads: int | None = None,
) -> Config:
    """The fields of config.json that all families have. `inner` and `kv_heads`: those of a family
    whose layers differ in them."""
    hidden = file.integer(f"{name}.embedding_length", LIMITS["hidden_size"])
    layers = file.integer(f"{name}.block_count", LIMITS["num_hidden_layers"])
    if layers > len(file.tensors):
        raise file.damaged(f"'{name}.block_count' is {layers}: it has fewer tensors than layers")
    heads = same_in_all(file, f"{name}.attention.head_count", LIMITS["num_attention_heads"])
    if kv_heads is None:
        kv_heads = same_in_all(file, f"{name}.attention.head_count_kv", heads, heads)
    if inner is None:
        inner = same_in_all(file, f"{name}.feed_forward_length", LIMITS["intermediate_size"])
    head_dim = file.integer(
        f"{name}.attention.key_length", LIMITS["head_dim"], max(1, hidden // heads)
    )
    if heads % kv_heads:
        raise file.damaged(
            f"'{name}.attention.head_count' {heads} is not a multiple of head_count_kv {kv_heads}"
        )
    if head_dim % 2:
        raise file.damaged(f"'{name}.attention.key_length' is {head_dim}, expected an even number")
    if file.field(f"{name}.attention.value_length", head_dim) != head_dim:
        raise file.unsupported(f"'{name}.attention.value_length' unlike its key_length")
    if file.field(f"{name}.attention.causal", True) is not True:
        raise file.unsupported(f"attention in both directions ('{name}.attention.causal')")
    return {
        "architectures": [model_class],
        "model_type": model_type,
        "dtype": "bfloat16",
        "vocab_size": tensor_shape(file, "token_embd.weight")[0],
        "hidden_size": hidden,
        "intermediate_size": inner,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": head_dim,
        "hidden_act": "silu",
        "rms_norm_eps": short(file.number(f"{name}.attention.layer_norm_rms_epsilon", 1)),
        "max_position_embeddings": file.integer(
            f"{name}.context_length", LIMITS["max_position_embeddings"]
        ),
        "attention_bias": False,
        "tie_word_embeddings": tied(file),
        "bos_token_id": token_id(file, "bos"),
        "eos_token_id": file.integer("tokenizer.ggml.eos_token_id", LIMITS["vocab_size"], least=0),
    }


def by_layer(file: Gguf, key: str, most: int, layers: int, default: int | None = None) -> list[int]:
    """The integer of each layer at `key`, which may have one for all."""
    value = file.field(key, default)
    if not isinstance(value, list):
        return [file.integer(key, most, default)] * layers
    if len(value) != layers or not all(type(one) is int and 1 <= one <= most for one in value):
        raise file.damaged(f"'{key}' is not an array of {layers} integers from 1 to {most}")
    return value


def same_in_all(file: Gguf, key: str, most: int, default: int | None = None) -> int:
    """The integer at `key`, which may have it for each layer."""
    value = file.field(key, default)
    if isinstance(value, list):
        name = key.partition(".")[0]
        layers = file.integer(f"{name}.block_count", LIMITS["num_hidden_layers"])
        value = by_layer(file, key, most, layers)
        if len(set(value)) != 1:
            raise file.unsupported(f"layers that differ in '{key}'")
        return int(value[0])
    return file.integer(key, most, default)


def whole_heads_rotate(file: Gguf, name: str, head_dim: int) -> None:
    """Refuse a rotary embedding of a part of each head."""
    if file.integer(f"{name}.rope.dimension_count", LIMITS["head_dim"], head_dim) != head_dim:
        raise file.unsupported(f"a head that is rotary in part ('{name}.rope.dimension_count')")


def window(file: Gguf, name: str) -> int:
    """Tokens that a layer with a window sees, itself included; 0: no layer has one."""
    return file.integer(f"{name}.attention.sliding_window", MAX_WINDOW, 0, least=0)


def layer_types(file: Gguf, name: str, layers: int, period: int | None) -> list[str]:
    """Which layers have a window: all but the last of every `period`, where the metadata give no
    other number, nor an array of all layers. None: they must."""
    key = f"{name}.attention.sliding_window_pattern"
    pattern = file.field(key, period)
    if isinstance(pattern, list):
        if len(pattern) != layers or not all(type(one) is bool for one in pattern):
            raise file.damaged(f"'{key}' is not an array of {layers} times true or false")
        return [SLIDING if one else FULL for one in pattern]
    period = file.integer(key, LIMITS["num_hidden_layers"], period, least=0)
    return [SLIDING if not period or (n + 1) % period else FULL for n in range(layers)]


def experts(file: Gguf, name: str) -> tuple[int, int, int]:
    """How many experts there are, how many of them a row takes, and their width."""
    count = file.integer(f"{name}.expert_count", LIMITS["num_experts"])
    used = file.integer(f"{name}.expert_used_count", count)
    key = f"{name}.expert_feed_forward_length"
    return count, used, same_in_all(file, key, LIMITS["intermediate_size"])


def no_experts(file: Gguf, name: str) -> None:
    """Refuse experts."""
    if file.field(f"{name}.expert_count", 0):
        raise file.unsupported(f"experts of a {name} model ('{name}.expert_count')")


def biased(file: Gguf, names: tuple[str, ...]) -> bool:
    """Whether the first layer has biases of the named matrices, as all others must then."""
    there = [f"blk.0.{name}.bias" in file.tensors for name in names]
    if any(there) and not all(there):
        has, lacks = names[there.index(True)], names[there.index(False)]
        raise file.unsupported(f"a bias of {has} and none of {lacks}")
    return any(there)


def short(value: float) -> float:
    """The shortest decimal that is the same f32: 1e-06, not 9.99999997e-07."""
    import numpy as np

    return float(str(np.float32(value)))


def tensor_shape(file: Gguf, name: str) -> tuple[int, ...]:
    """Shape of a required tensor."""
    if name not in file.tensors:
        raise file.damaged(f"it has no tensor '{name}'")
    return file.tensors[name].shape


def tied(file: Gguf) -> bool:
    """Whether the head is the embedding: absent, or equal to it in every byte."""
    import numpy as np

    head, embedding = file.tensors.get("output.weight"), file.tensors.get("token_embd.weight")
    if head is None or embedding is None:
        return True
    if (head.shape, head.kind) != (embedding.shape, embedding.kind) or len(head.shape) != 2:
        return False
    rows = head.shape[0]
    pieces = ((first, min(COMPARED_ROWS, rows - first)) for first in range(0, rows, COMPARED_ROWS))
    return all(
        np.array_equal(file.raw("output.weight", *piece), file.raw("token_embd.weight", *piece))
        for piece in pieces
    )


def ends(config: Config) -> Table:
    """The embedding, the last norm and the head."""
    hidden, vocabulary = config["hidden_size"], config["vocab_size"]
    table: Table = {
        "token_embd.weight": ("model.embed_tokens.weight", (vocabulary, hidden), 0),
        "output_norm.weight": ("model.norm.weight", (hidden,), 0),
    }
    if not config["tie_word_embeddings"]:
        table["output.weight"] = ("lm_head.weight", (vocabulary, hidden), 0)
    return table


def layer(config: Config, number: int, tensors: Table) -> Table:
    """The tensors of one layer by their full names."""
    return {
        f"blk.{number}.{name}": (f"model.layers.{number}.{target}", shape, turned)
        for name, (target, shape, turned) in tensors.items()
    }


def layers(config: Config, tensors: Table) -> Table:
    """The tensors of all layers, which have the same."""
    numbers = range(config["num_hidden_layers"])
    return {name: one for n in numbers for name, one in layer(config, n, tensors).items()}


def attention(config: Config, turned: bool = False) -> Table:
    """The projections of a layer. `turned`: rows of q and k are in GGML's rope order."""
    hidden, head = config["hidden_size"], config["head_dim"]
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    q, k = turned * heads, turned * kv_heads
    return {
        "attn_q.weight": ("self_attn.q_proj.weight", (heads * head, hidden), q),
        "attn_k.weight": ("self_attn.k_proj.weight", (kv_heads * head, hidden), k),
        "attn_v.weight": ("self_attn.v_proj.weight", (kv_heads * head, hidden), 0),
        "attn_output.weight": ("self_attn.o_proj.weight", (hidden, heads * head), 0),
    }


def biases(tensors: Table) -> Table:
    """The biases of the weights in a table."""
    return {
        name.replace(".weight", ".bias"): (
            target.replace(".weight", ".bias"), (*shape[:-2], shape[-2]), turned,
        )
        for name, (target, shape, turned) in tensors.items()
    }  # fmt: skip


def head_norms(config: Config) -> Table:
    """Norms of each head of q and k."""
    return {
        "attn_q_norm.weight": ("self_attn.q_norm.weight", (config["head_dim"],), 0),
        "attn_k_norm.weight": ("self_attn.k_norm.weight", (config["head_dim"],), 0),
    }


def norms(config: Config, names: dict[str, str]) -> Table:
    """Norms of hidden states, by their names in GGUF and transformers, without ".weight"."""
    shape = (config["hidden_size"],)
    return {f"{name}.weight": (f"{target}.weight", shape, 0) for name, target in names.items()}


PRE_NORMS = {"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm"}
SANDWICH_NORMS = {  # before and after each half of a layer
    "attn_norm": "input_layernorm",
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}


def feed_forward(config: Config, inner: int | None = None) -> Table:
    """The matrices of a gated feed-forward block."""
    hidden, inner = config["hidden_size"], inner or config["intermediate_size"]
    return {
        "ffn_gate.weight": ("mlp.gate_proj.weight", (inner, hidden), 0),
        "ffn_up.weight": ("mlp.up_proj.weight", (inner, hidden), 0),
        "ffn_down.weight": ("mlp.down_proj.weight", (hidden, inner), 0),
    }


def expert_matrices(config: Config, count: int, wide: int, at: str = "mlp.experts") -> Table:
    """The matrices of all experts of a layer: [experts, out, in]."""
    hidden = config["hidden_size"]
    return {
        "ffn_gate_exps.weight": (f"{at}.gate_proj.weight", (count, wide, hidden), 0),
        "ffn_up_exps.weight": (f"{at}.up_proj.weight", (count, wide, hidden), 0),
        "ffn_down_exps.weight": (f"{at}.down_proj.weight", (count, hidden, wide), 0),
    }
