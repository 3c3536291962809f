"""Readers of what the metadata of GGUF files say in the same way in most families.

They translate into the fields of transformers' config.json. Names and meanings are those of
llama.cpp's converter and its `gguf` package.
"""

from __future__ import annotations

from typing import Any

from engine.model.model_config import FULL, SLIDING
from engine.weights.config_json import LIMITS, MAX_ROPE_THETA, MAX_SCALE
from engine.weights.errors import shown
from engine.weights.gguf.gguf_file import Gguf
from engine.weights.gguf.tokenizer import token_id

COMPARED_ROWS = 1024  # rows of the head and the embedding at a time
MAX_WINDOW = 1 << 31  # tokens
ROPE_FACTORS = "rope_freqs.weight"  # divisors of Llama 3's frequencies

Settings = dict[str, Any]  # the fields of a config.json

# Metadata that every family reads, or that change nothing.
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
WINDOW_FIELDS = frozenset({"attention.sliding_window", "attention.sliding_window_pattern"})
EXPERT_FIELDS = frozenset({"expert_count", "expert_used_count", "expert_feed_forward_length"})


def sizes(
    file: Gguf,
    name: str,
    model_type: str,
    inner: int | None = None,
    kv_heads: int | None = None,
) -> Settings:
    """Read the fields of config.json that all families have.

    `inner` and `kv_heads`: those of a family whose layers differ in them."""
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
    file.field("tokenizer.ggml.eos_token_id")  # may be outside of the vocabulary, but not missing
    return {
        "model_type": model_type,
        "vocab_size": file.shape("token_embd.weight")[0],
        "hidden_size": hidden,
        "intermediate_size": inner,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": head_dim,
        "rms_norm_eps": short(file.number(f"{name}.attention.layer_norm_rms_epsilon", 1)),
        "max_position_embeddings": file.integer(
            f"{name}.context_length", LIMITS["max_position_embeddings"]
        ),
        "attention_bias": False,
        "tie_word_embeddings": tied(file),
        "bos_token_id": token_id(file, "bos"),
        "eos_token_id": token_id(file, "eos"),
    }


def by_layer(file: Gguf, key: str, most: int, layers: int) -> list[int]:
    """Read the integer of each layer at `key`, which may have one for all."""
    value = file.field(key)
    if not isinstance(value, list):
        return [file.integer(key, most)] * layers
    if len(value) != layers or not all(
        type(number) is int and 1 <= number <= most for number in value
    ):
        raise file.damaged(f"'{key}' is not an array of {layers} integers from 1 to {most}")
    return value


def same_in_all(file: Gguf, key: str, most: int, default: int | None = None) -> int:
    """Read the integer at `key`, which may have it for each layer."""
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
    """Count the tokens that a layer with a window sees, itself included; 0: no layer has one."""
    return file.integer(f"{name}.attention.sliding_window", MAX_WINDOW, 0, least=0)


def no_windows(file: Gguf, name: str, context: int) -> None:
    """Refuse windows."""
    if 0 < window(file, name) < context:
        raise file.unsupported(f"a sliding window ('{name}.attention.sliding_window')")


def layer_types(file: Gguf, name: str, layers: int, period: int | None) -> list[str]:
    """Read which layers have a window: all but the last of every `period`, or those of an array.

    The metadata may give another period; they must, where it is None."""
    key = f"{name}.attention.sliding_window_pattern"
    pattern = file.field(key, period)
    if isinstance(pattern, list):
        if len(pattern) != layers or not all(type(flag) is bool for flag in pattern):
            raise file.damaged(f"'{key}' is not an array of {layers} times true or false")
        return [SLIDING if flag else FULL for flag in pattern]
    period = file.integer(key, LIMITS["num_hidden_layers"], period, least=0)
    return [SLIDING if not period or (n + 1) % period else FULL for n in range(layers)]


def experts(file: Gguf, name: str) -> tuple[int, int, int]:
    """Read how many experts there are, how many of them a row takes, and their width."""
    count = file.integer(f"{name}.expert_count", LIMITS["num_experts"])
    used = file.integer(f"{name}.expert_used_count", count)
    key = f"{name}.expert_feed_forward_length"
    return count, used, same_in_all(file, key, LIMITS["intermediate_size"])


def no_experts(file: Gguf, name: str) -> None:
    """Refuse experts."""
    if file.field(f"{name}.expert_count", 0):
        raise file.unsupported(f"experts of a {name} model ('{name}.expert_count')")


def biased(file: Gguf, names: tuple[str, ...]) -> bool:
    """Tell whether the first layer has biases of the named matrices, as all others must then."""
    there = [f"blk.0.{name}.bias" in file.tensors for name in names]
    if any(there) and not all(there):
        has, lacks = names[there.index(True)], names[there.index(False)]
        raise file.unsupported(f"a bias of {has} and none of {lacks}")
    return any(there)


def short(value: float) -> float:
    """Round to the shortest decimal that is the same f32: 1e-06, not 9.99999997e-07."""
    import numpy as np

    return float(str(np.float32(value)))


def tied(file: Gguf) -> bool:
    """Tell whether the head is the embedding: absent, or equal to it in every byte."""
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


# --- rotary embeddings, as transformers' `rope_parameters` --------------------------------------


def rope(
    file: Gguf, name: str, head_dim: int, context: int, factor_is_yarns: bool = False
) -> dict[str, Any]:
    """Read the parameters of the rotary embedding of whole heads.

    `factor_is_yarns`: `attn_factor` is YaRN's whole factor of attention, not one more."""
    key = f"{name}.rope.scaling"
    theta = base(file, f"{name}.rope.freq_base")
    older = file.number(f"{name}.rope.scale_linear", MAX_SCALE, 1.0)
    factor = short(file.number(f"{key}.factor", MAX_SCALE, older))
    kind = file.text(f"{key}.type", "linear")
    if kind == "linear" and factor == 1:
        kind = "none"
    is_whole = factor_is_yarns and kind == "yarn" and f"{key}.attn_factor" in file.fields
    if not is_whole and file.field(f"{key}.attn_factor", 1.0) != 1:
        raise file.unsupported(f"'{key}.attn_factor'")
    if ROPE_FACTORS in file.tensors:
        if kind != "none":
            raise file.unsupported(f"both rope factors and rope scaling {shown(kind)}")
        divisors = factors(file, ROPE_FACTORS, head_dim)
        lengths = {"factor": 1.0, "original_max_position_embeddings": context}
        return {"rope_type": "longrope", "rope_theta": theta, "attention_factor": 1.0,
                "short_factor": divisors, "long_factor": divisors, **lengths}  # fmt: skip
    if kind == "none":
        return {"rope_type": "default", "rope_theta": theta}
    if kind == "linear":
        return {"rope_type": "linear", "rope_theta": theta, "factor": factor}
    if kind != "yarn" or file.field(f"{key}.yarn_ext_factor", 1.0) != 1:
        raise file.unsupported(f"rope scaling {shown(kind)}")
    found = {"rope_type": "yarn", "rope_theta": theta, "factor": factor}
    found |= _yarn(file, key, context)
    if is_whole:
        found["attention_factor"] = short(file.number(f"{key}.attn_factor", MAX_SCALE))
    return found


def base(file: Gguf, key: str, default: float = 10000.0) -> float:
    """Read the base of the rotary embedding's frequencies."""
    return short(file.number(key, MAX_ROPE_THETA, default))


def _yarn(file: Gguf, key: str, context: int) -> dict[str, Any]:
    """Read YaRN's parameters but for its factor (arXiv:2309.00071)."""
    found: dict[str, Any] = {
        "original_max_position_embeddings": original_context(file, key, context),
        "beta_fast": short(file.number(f"{key}.yarn_beta_fast", MAX_SCALE, 32.0)),
        "beta_slow": short(file.number(f"{key}.yarn_beta_slow", MAX_SCALE, 1.0)),
    }
    if file.field(f"{key}.yarn_attn_factor", 0):  # llama.cpp writes it, but does not read it
        found["attention_factor"] = short(file.number(f"{key}.yarn_attn_factor", MAX_SCALE))
    elif file.field(f"{key}.yarn_log_multiplier", 0):
        multiplier = short(file.number(f"{key}.yarn_log_multiplier", MAX_SCALE))
        found |= {"mscale": 1.0, "mscale_all_dim": multiplier}
    return found


def original_context(file: Gguf, key: str, context: int) -> int:
    """Read the context that the model was first trained with."""
    most = LIMITS["max_position_embeddings"]
    return file.integer(f"{key}.original_context_length", most, context)


def factors(file: Gguf, name: str, rotary: int) -> list[float]:
    """Read from a tensor what each frequency of `rotary` dimensions is divided by."""
    divisors = numbers(file, name, rotary // 2)
    if not all(0 < divisor <= MAX_SCALE for divisor in divisors):
        raise file.damaged(f"tensor '{name}' has a factor that is not above 0")
    return divisors


def numbers(file: Gguf, name: str, count: int) -> list[float]:
    """Read the values of a vector."""
    if file.shape(name) != (count,):
        found = list(file.shape(name))
        raise file.damaged(f"tensor '{name}' is {found}, expected [{count}]")
    return [short(float(factor)) for factor in file.rows(name, 0, 1).flatten()]
