"""Llama and its relatives: full attention, gated feed-forward blocks, norms before both."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial

from engine.weights.gguf.families.family import (
    PRE_NORMS,
    Config,
    Family,
    Table,
    attention,
    biased,
    biases,
    ends,
    feed_forward,
    head_norms,
    layers,
    no_experts,
    norms,
    short,
    sizes,
    whole_heads_rotate,
    window,
)
from engine.weights.gguf.families.rope import ROPE_FACTORS, rope
from engine.weights.gguf.gguf_file import Gguf
from engine.weights.model_config import ATTENTION_BIASES, MAX_SCALE, MLP_BIASES

CLASSES = {
    "llama": "LlamaForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "granite": "GraniteForCausalLM",
    "smollm3": "SmolLM3ForCausalLM",
    "mistral": "MistralForCausalLM",
    "ministral3": "Ministral3ForCausalLM",
}
# Model types whose rows of q and k llama.cpp stores in GGML's rope order.
INTERLEAVED = ("llama", "granite", "smollm3", "ministral3", "mistral")
NO_ROPE_INTERVAL = 4  # of SmolLM3: a constant of llama.cpp that its files do not have
TEMPERATURE = "mistral3.attention.temperature_scale"  # of Ministral 3's queries


def _config(name: str, file: Gguf) -> Config:
    """config.json of a file of architecture `name`."""
    no_experts(file, name)
    scaled = name == "mistral3" and file.field(TEMPERATURE, 0)
    kind = name if name != "mistral3" else "ministral3" if scaled else "mistral"
    config = sizes(file, name, kind, CLASSES[kind])
    head_dim, context = config["head_dim"], config["max_position_embeddings"]
    whole_heads_rotate(file, name, head_dim)
    full_attention(file, name, context)
    if name == "granite" and not file.field("granite.rope.scaling.finetuned", True):  # its switch
        raise file.unsupported("no rotary embedding ('granite.rope.scaling.finetuned')")
    config["rope_parameters"] = rope(file, name, head_dim, context)
    config["attention_bias"] = kind in ATTENTION_BIASES and biased(
        file, ("attn_q", "attn_k", "attn_v", "attn_output")
    )
    if kind in MLP_BIASES:
        config["mlp_bias"] = biased(file, ("ffn_gate", "ffn_up", "ffn_down"))
    if kind in ("mistral", "ministral3"):
        config["sliding_window"] = None  # its default is a window
    if kind == "ministral3":
        if config["rope_parameters"]["rope_type"] != "yarn":
            raise file.unsupported(f"'{TEMPERATURE}' without YaRN")
        config["rope_parameters"]["llama_4_scaling_beta"] = short(
            file.number(TEMPERATURE, MAX_SCALE)
        )
    if kind == "granite":
        config |= _scalars(file, head_dim)
    if kind == "smollm3":
        count = config["num_hidden_layers"]
        config["no_rope_layers"] = [int((n + 1) % NO_ROPE_INTERVAL != 0) for n in range(count)]
    return config


def full_attention(file: Gguf, name: str, context: int) -> None:
    """Refuse windows."""
    if 0 < window(file, name) < context:
        raise file.unsupported(f"a sliding window ('{name}.attention.sliding_window')")


def rope_factors(config: Config) -> frozenset[str]:
    """Of Llama 3's rotary embedding: they are in config.json."""
    return frozenset({ROPE_FACTORS})


def _scalars(file: Gguf, head_dim: int) -> dict[str, float]:
    """Granite's multipliers."""
    return {
        "embedding_multiplier": short(file.number("granite.embedding_scale", MAX_SCALE, 1.0)),
        "residual_multiplier": short(file.number("granite.residual_scale", MAX_SCALE, 1.0)),
        "logits_scaling": short(file.number("granite.logit_scale", MAX_SCALE)),
        "attention_multiplier": short(
            file.number("granite.attention.scale", MAX_SCALE, head_dim**-0.5)
        ),
    }


def _tensors(config: Config, names: Collection[str]) -> Table:
    kind = config["model_type"]
    projections, inner = attention(config, kind in INTERLEAVED), feed_forward(config)
    table = projections | inner | norms(config, PRE_NORMS)
    if config["attention_bias"]:
        table |= biases(projections)
    elif kind == "qwen2":  # always, but for the output
        table |= biases({name: one for name, one in projections.items() if "output" not in name})
    if config.get("mlp_bias"):
        table |= biases(inner)
    if kind == "qwen3":
        table |= head_norms(config)
    return ends(config) | layers(config, table)


def _family(name: str, kinds: tuple[str, ...], fields: tuple[str, ...] = ()) -> Family:
    known = frozenset({*fields, "attention.sliding_window", "expert_count", "expert_used_count"})
    return Family(name, kinds, known, partial(_config, name), _tensors, rope_factors)


FAMILIES = (
    _family("llama", ("llama",)),
    _family("qwen2", ("qwen2",)),
    _family("qwen3", ("qwen3",)),
    _family(
        "granite",
        ("granite",),
        ("attention.scale", "embedding_scale", "residual_scale", "logit_scale"),
    ),
    _family("smollm3", ("smollm3",)),
    _family("mistral3", ("mistral", "ministral3"), ("attention.temperature_scale",)),
)
