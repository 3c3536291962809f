"""The config.json of the transformers model that a GGUF file's metadata describe, and the names of
its tensors.

Names and meanings are those of llama.cpp's converter and its `gguf` package. Not supported:
architectures and rope scalings that are not listed here; such a file is refused, never read
approximately.
"""

from __future__ import annotations

from typing import Any

from engine.weights.errors import WeightsError, shown
from engine.weights.gguf_file import Gguf
from engine.weights.model_config import (
    ATTENTION_BIASES,
    LIMITS,
    MAX_ROPE_THETA,
    MAX_SCALE,
    MLP_BIASES,
    check_config,
)
from engine.weights.tokenizer import token_id

TensorName = tuple[str, tuple[int, ...], int]  # in safetensors; shape; heads in rope order

DENSE = ("ffn_gate.", "ffn_up.", "ffn_down.")  # feed-forward matrices that experts replace
COMPARED_ROWS = 1024  # at a time
FORMATS = {  # of tensors that can be read
    "F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K",
    "Q6_K", "IQ4_NL", "IQ4_XS", "MXFP4",
}  # fmt: skip
ARCHITECTURES = {  # GGUF's name: a transformers model type and its class
    "llama": ("llama", "LlamaForCausalLM"),
    "qwen2": ("qwen2", "Qwen2ForCausalLM"),
    "qwen3": ("qwen3", "Qwen3ForCausalLM"),
    "qwen3moe": ("qwen3_moe", "Qwen3MoeForCausalLM"),
    "granite": ("granite", "GraniteForCausalLM"),
    "smollm3": ("smollm3", "SmolLM3ForCausalLM"),
    "mistral3": ("ministral3", "Ministral3ForCausalLM"),
}
MISTRAL = ("mistral", "MistralForCausalLM")  # "mistral3" without Ministral 3's scaling of q
# Model types whose rows of q and k llama.cpp stores in GGML's rope order.
INTERLEAVED = ("llama", "granite", "smollm3", "ministral3", "mistral")
NO_ROPE_INTERVAL = 4  # of SmolLM3: a constant of llama.cpp that its files do not have
ROPE_FACTORS = "rope_freqs.weight"  # by which Llama 3 divides its frequencies


def model_config(file: Gguf) -> dict[str, Any]:
    """config.json of the transformers model that the file's metadata describes."""
    name = file.text("general.architecture")
    if name not in ARCHITECTURES:
        known = ", ".join(ARCHITECTURES)
        raise file.unsupported(f"architecture {shown(name)} (not one of {known})")
    if name != "qwen3moe" and file.field(f"{name}.expert_count", 0):
        raise file.unsupported(f"experts of a {name} model")
    hidden = file.integer(f"{name}.embedding_length", LIMITS["hidden_size"])
    heads = file.integer(f"{name}.attention.head_count", LIMITS["num_attention_heads"])
    kv_heads = file.integer(f"{name}.attention.head_count_kv", heads, heads)
    head_dim = file.integer(
        f"{name}.attention.key_length", LIMITS["head_dim"], max(1, hidden // heads)
    )
    if heads % kv_heads:
        raise file.damaged(
            f"'{name}.attention.head_count' {heads} is not a multiple of head_count_kv {kv_heads}"
        )
    if head_dim % 2:
        raise file.damaged(f"'{name}.attention.key_length' is {head_dim}, expected an even number")
    rotary = file.integer(f"{name}.rope.dimension_count", LIMITS["head_dim"], head_dim)
    if rotary != head_dim:
        raise file.unsupported("a head that is rotary in part")
    layers = file.integer(f"{name}.block_count", LIMITS["num_hidden_layers"])
    if layers > len(file.tensors):
        raise file.damaged(f"'{name}.block_count' is {layers}: it has fewer tensors than layers")
    context = file.integer(f"{name}.context_length", LIMITS["max_position_embeddings"])
    window = file.integer(f"{name}.attention.sliding_window", 1 << 31, context, least=0)
    if 0 < window < context:
        raise file.unsupported("a sliding window")
    rope = _rope(file, name, head_dim, context)
    plain = name == "mistral3" and "llama_4_scaling_beta" not in rope
    kind, model_class = MISTRAL if plain else ARCHITECTURES[name]
    config = {
        "architectures": [model_class],
        "model_type": kind,
        "dtype": "bfloat16",
        "vocab_size": _tensor_shape(file, "token_embd.weight")[0],
        "hidden_size": hidden,
        "intermediate_size": file.integer(
            f"{name}.feed_forward_length", LIMITS["intermediate_size"]
        ),
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": head_dim,
        "hidden_act": "silu",
        "rms_norm_eps": _short(file.number(f"{name}.attention.layer_norm_rms_epsilon", 1)),
        "rope_parameters": rope,
        "max_position_embeddings": context,
        "attention_bias": kind in ATTENTION_BIASES
        and _biased(file, ("attn_q", "attn_k", "attn_v", "attn_output")),
        "tie_word_embeddings": _tied(file),
        "bos_token_id": token_id(file, "bos"),
        "eos_token_id": file.integer("tokenizer.ggml.eos_token_id", LIMITS["vocab_size"], least=0),
    }
    if kind in MLP_BIASES:
        config["mlp_bias"] = _biased(file, ("ffn_gate", "ffn_up", "ffn_down"))
    if kind in ("mistral", "ministral3"):
        config["sliding_window"] = None  # its default is a window
    if kind == "granite":
        config |= _scalars(file, head_dim)
    if kind == "qwen3_moe":
        config |= _experts(file)
    if kind == "smollm3":
        config["no_rope_layers"] = [int((n + 1) % NO_ROPE_INTERVAL != 0) for n in range(layers)]
    check_config(file.path, config)
    return config


def _rope(file: Gguf, name: str, head_dim: int, context: int) -> dict[str, Any]:
    """The parameters of the rotary embedding."""
    key = f"{name}.rope.scaling"
    theta = _short(file.number(f"{name}.rope.freq_base", MAX_ROPE_THETA, 10000.0))
    older = file.number(f"{name}.rope.scale_linear", MAX_SCALE, 1.0)
    factor = _short(file.number(f"{key}.factor", MAX_SCALE, older))
    kind = file.text(f"{key}.type", "linear")
    if kind == "linear" and factor == 1:
        kind = "none"
    if file.field(f"{key}.attn_factor", 1.0) != 1:
        raise file.unsupported(f"'{key}.attn_factor'")
    if name == "granite" and not file.field(f"{key}.finetuned", True):  # Granite's switch
        raise file.unsupported("no rotary embedding")
    if ROPE_FACTORS in file.tensors:
        if kind != "none":
            raise file.unsupported(f"both rope factors and rope scaling {shown(kind)}")
        factors = _factors(file, head_dim)
        lengths = {"factor": 1.0, "original_max_position_embeddings": context}
        return {"rope_type": "longrope", "rope_theta": theta, "attention_factor": 1.0,
                "short_factor": factors, "long_factor": factors, **lengths}  # fmt: skip
    if kind == "none":
        return {"rope_type": "default", "rope_theta": theta}
    if kind == "linear":
        return {"rope_type": "linear", "rope_theta": theta, "factor": factor}
    if kind != "yarn" or file.field(f"{key}.yarn_ext_factor", 1.0) != 1:
        raise file.unsupported(f"rope scaling {shown(kind)}")
    return {
        "rope_type": "yarn",
        "rope_theta": theta,
        "factor": factor,
        **_yarn(file, name, context),
    }


def _yarn(file: Gguf, name: str, context: int) -> dict[str, Any]:
    """YaRN's parameters beside its factor."""
    key = f"{name}.rope.scaling"
    found: dict[str, Any] = {
        "original_max_position_embeddings": file.integer(
            f"{key}.original_context_length", LIMITS["max_position_embeddings"], context
        ),
        "beta_fast": _short(file.number(f"{key}.yarn_beta_fast", MAX_SCALE, 32.0)),
        "beta_slow": _short(file.number(f"{key}.yarn_beta_slow", MAX_SCALE, 1.0)),
    }
    if file.field(f"{key}.yarn_attn_factor", 0):  # llama.cpp writes it, but does not read it
        found["attention_factor"] = _short(file.number(f"{key}.yarn_attn_factor", MAX_SCALE))
    elif file.field(f"{key}.yarn_log_multiplier", 0):
        multiplier = _short(file.number(f"{key}.yarn_log_multiplier", MAX_SCALE))
        found |= {"mscale": 1.0, "mscale_all_dim": multiplier}
    if file.field(f"{name}.attention.temperature_scale", 0):
        beta = _short(file.number(f"{name}.attention.temperature_scale", MAX_SCALE))
        found["llama_4_scaling_beta"] = beta
    return found


def _factors(file: Gguf, head_dim: int) -> list[float]:
    """What each frequency of the rotary embedding is divided by."""
    if _tensor_shape(file, ROPE_FACTORS) != (head_dim // 2,):
        found = list(_tensor_shape(file, ROPE_FACTORS))
        raise file.damaged(f"tensor '{ROPE_FACTORS}' is {found}, expected [{head_dim // 2}]")
    factors = [_short(float(one)) for one in file.rows(ROPE_FACTORS, 0, 1).flatten()]
    if not all(0 < one <= MAX_SCALE for one in factors):
        raise file.damaged(f"tensor '{ROPE_FACTORS}' has a factor that is not above 0")
    return factors


def _scalars(file: Gguf, head_dim: int) -> dict[str, float]:
    """Granite's multipliers."""
    return {
        "embedding_multiplier": _short(file.number("granite.embedding_scale", MAX_SCALE, 1.0)),
        "residual_multiplier": _short(file.number("granite.residual_scale", MAX_SCALE, 1.0)),
        "logits_scaling": _short(file.number("granite.logit_scale", MAX_SCALE)),
        "attention_multiplier": _short(
            file.number("granite.attention.scale", MAX_SCALE, head_dim**-0.5)
        ),
    }


def _experts(file: Gguf) -> dict[str, Any]:
    """The experts of Qwen3's mixtures: every layer has them."""
    count = file.integer("qwen3moe.expert_count", LIMITS["num_experts"])
    return {
        "num_experts": count,
        "num_experts_per_tok": file.integer("qwen3moe.expert_used_count", count),
        "moe_intermediate_size": file.integer(
            "qwen3moe.expert_feed_forward_length", LIMITS["intermediate_size"]
        ),
        "norm_topk_prob": True,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
    }


def _biased(file: Gguf, names: tuple[str, ...]) -> bool:
    """Whether the first layer has biases of the named matrices, as all others must then."""
    there = [f"blk.0.{name}.bias" in file.tensors for name in names]
    if any(there) and not all(there):
        has, lacks = names[there.index(True)], names[there.index(False)]
        raise file.unsupported(f"a bias of {has} and none of {lacks}")
    return any(there)


def _short(value: float) -> float:
    """The shortest decimal that is the same f32: 1e-06, not 9.99999997e-07."""
    import numpy as np

    return float(str(np.float32(value)))


def _tensor_shape(file: Gguf, name: str) -> tuple[int, ...]:
    """Shape of a required tensor."""
    if name not in file.tensors:
        raise file.damaged(f"it has no tensor '{name}'")
    return file.tensors[name].shape


def _tied(file: Gguf) -> bool:
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


def tensor_names(config: dict[str, Any]) -> dict[str, TensorName]:
    """Every tensor of a model by its name in GGUF: its name in safetensors, its shape there, and
    the heads whose rows GGUF has in GGML's rope order (0: in the same order)."""
    kind = config["model_type"]
    hidden, inner, head = config["hidden_size"], config["intermediate_size"], config["head_dim"]
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    vocabulary = config["vocab_size"]
    turn = int(kind in INTERLEAVED)
    table: dict[str, TensorName] = {
        "token_embd.weight": ("model.embed_tokens.weight", (vocabulary, hidden), 0),
        "output_norm.weight": ("model.norm.weight", (hidden,), 0),
    }
    if not config["tie_word_embeddings"]:
        table["output.weight"] = ("lm_head.weight", (vocabulary, hidden), 0)
    layer: dict[str, TensorName] = {
        "attn_norm.weight": ("input_layernorm.weight", (hidden,), 0),
        "attn_q.weight": ("self_attn.q_proj.weight", (heads * head, hidden), turn * heads),
        "attn_k.weight": ("self_attn.k_proj.weight", (kv_heads * head, hidden), turn * kv_heads),
        "attn_v.weight": ("self_attn.v_proj.weight", (kv_heads * head, hidden), 0),
        "attn_output.weight": ("self_attn.o_proj.weight", (hidden, heads * head), 0),
        "ffn_norm.weight": ("post_attention_layernorm.weight", (hidden,), 0),
        "ffn_gate.weight": ("mlp.gate_proj.weight", (inner, hidden), 0),
        "ffn_up.weight": ("mlp.up_proj.weight", (inner, hidden), 0),
        "ffn_down.weight": ("mlp.down_proj.weight", (hidden, inner), 0),
    }
    if kind == "qwen2" or config.get("attention_bias"):
        layer |= {
            "attn_q.bias": ("self_attn.q_proj.bias", (heads * head,), turn * heads),
            "attn_k.bias": ("self_attn.k_proj.bias", (kv_heads * head,), turn * kv_heads),
            "attn_v.bias": ("self_attn.v_proj.bias", (kv_heads * head,), 0),
        }
    if config.get("attention_bias"):
        layer["attn_output.bias"] = ("self_attn.o_proj.bias", (hidden,), 0)
    if config.get("mlp_bias"):
        layer |= {
            "ffn_gate.bias": ("mlp.gate_proj.bias", (inner,), 0),
            "ffn_up.bias": ("mlp.up_proj.bias", (inner,), 0),
            "ffn_down.bias": ("mlp.down_proj.bias", (hidden,), 0),
        }
    if kind == "qwen3_moe":
        experts, wide = config["num_experts"], config["moe_intermediate_size"]
        layer = {name: one for name, one in layer.items() if not name.startswith(DENSE)} | {
            "ffn_gate_inp.weight": ("mlp.gate.weight", (experts, hidden), 0),
            "ffn_gate_exps.weight": ("mlp.experts.gate_proj.weight", (experts, wide, hidden), 0),
            "ffn_up_exps.weight": ("mlp.experts.up_proj.weight", (experts, wide, hidden), 0),
            "ffn_down_exps.weight": ("mlp.experts.down_proj.weight", (experts, hidden, wide), 0),
        }
    if kind in ("qwen3", "qwen3_moe"):
        layer |= {
            "attn_q_norm.weight": ("self_attn.q_norm.weight", (head,), 0),
            "attn_k_norm.weight": ("self_attn.k_norm.weight", (head,), 0),
        }
    for number in range(config["num_hidden_layers"]):
        for name, (target, shape, turned) in layer.items():
            table[f"blk.{number}.{name}"] = (f"model.layers.{number}.{target}", shape, turned)
    return table


def checked_tensors(file: Gguf, config: dict[str, Any]) -> dict[str, TensorName]:
    """`tensor_names`, where the file has all of these tensors in these shapes and no others, in
    formats that can be read. WeightsError otherwise."""
    from gguf.constants import GGMLQuantizationType

    table = tensor_names(config)
    unknown = file.tensors.keys() - table.keys() - {"output.weight", ROPE_FACTORS}
    if unknown:
        raise file.unsupported(f"tensor {shown(min(unknown))} in a {config['model_type']} model")
    for name, (_, shape, _) in table.items():
        if _tensor_shape(file, name) != shape:
            found = list(file.tensors[name].shape)
            raise file.damaged(f"tensor '{name}' is {found}, the metadata say {list(shape)}")
        kind = GGMLQuantizationType(file.tensors[name].kind).name
        if kind not in FORMATS:
            raise WeightsError(
                f"{file.path}: tensor '{name}' is stored as {kind}, which cannot be read here: "
                "choose another quantization of the model, such as Q4_K_M"
            )
    return table
