"""Qwen3-Next, Qwen3.5 and its mixtures of experts.

Layers are linear attention by the gated delta rule (arXiv:2412.06464), and every few layers one of
full attention whose output is gated.

As stored: norms hold 1 + w, but for that of linear attention; `linear_attn.A` is -exp(A_log). Value
heads of Qwen3-Next are in transformers' order: head h uses key head h // (value heads / key heads).
Those of Qwen3.5 are tiled, which `linear_heads_tiled` says: head h uses key head h % key heads; so
are the rows of in_proj_qkv, in_proj_z, in_proj_a and in_proj_b, the values of A and dt_bias, the
channels of conv1d and the columns of out_proj. Rows of Qwen3-Next's in_proj_ba (and in older files
of in_proj_qkvz) are transformers' own: by key head, and those of b before those of a.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from engine.model.families.family import (
    ATTENTION,
    EXPERTS,
    FEED_FORWARD,
    MTP_TENSORS,
    Family,
    activation,
    attention,
    chosen,
    dense,
    is_sparse,
    layer_type,
    unlike,
)
from engine.model.families.metadata import (
    EXPERT_FIELDS,
    Settings,
    experts,
    rope,
    same_in_all,
    sizes,
)
from engine.model.model_config import (
    FULL,
    LINEAR,
    SILU,
    Attention,
    Dense,
    Experts,
    LinearAttention,
)
from engine.weights.config_json import LIMITS
from engine.weights.gguf.gguf_file import Gguf

NEXT, DENSE, MIXTURE = "qwen3next", "qwen35", "qwen35moe"
MODEL_TYPES = {NEXT: "qwen3_next", DENSE: "qwen3_5_text", MIXTURE: "qwen3_5_moe_text"}
FIELDS = frozenset({
    "ssm.conv_kernel", "ssm.inner_size", "ssm.state_size", "ssm.time_step_rank", "ssm.group_count",
    "full_attention_interval", "attention.recurrent_layers", "rope.dimension_sections",
    "nextn_predict_layers",
})  # fmt: skip
MAX_TAPS = 64  # inputs of the convolution that a file may say
STATE_DIMS = range(8, 257, 8)  # dimensions of a head that the kernel of linear attention takes
STATE_TAPS = range(2, 9)  # inputs of its convolution
SHARED_WIDTH = "expert_shared_feed_forward_length"


def _read_metadata(name: str, file: Gguf) -> Settings:
    inner = None
    mixture = {} if name == DENSE else _read_experts(name, file)
    if mixture:  # newer files have no width of a dense block
        key = f"{name}.feed_forward_length"
        inner = same_in_all(
            file, key, LIMITS["intermediate_size"], mixture["moe_intermediate_size"]
        )
    settings = sizes(file, name, MODEL_TYPES[name], inner)
    blocks = settings["num_hidden_layers"]
    unread = file.integer(f"{name}.nextn_predict_layers", blocks - 1, 0, least=0)
    rotary = file.integer(
        f"{name}.rope.dimension_count", settings["head_dim"], settings["head_dim"], least=2
    )
    if rotary % 2:
        raise file.damaged(f"'{name}.rope.dimension_count' is {rotary}, expected an even number")
    context = settings["max_position_embeddings"]
    rope_parameters = rope(file, name, rotary, context)
    rope_parameters["partial_rotary_factor"] = rotary / settings["head_dim"]
    if name != NEXT:
        rope_parameters |= {
            "mrope_interleaved": True,
            "mrope_section": _sections(name, file, rotary),
        }
    return settings | mixture | _read_linear_attention(name, file) | {
        "num_hidden_layers": blocks - unread,
        "mtp_num_hidden_layers": unread,
        "layer_types": _layer_types(name, file, blocks)[: blocks - unread],
        "attn_output_gate": True,
        "rope_parameters": rope_parameters,
    }  # fmt: skip


def _read_linear_attention(name: str, file: Gguf) -> Settings:
    """Read the heads and sizes of linear attention."""
    heads = file.integer(f"{name}.ssm.time_step_rank", LIMITS["num_attention_heads"])
    key_heads = file.integer(f"{name}.ssm.group_count", heads)
    most = heads * LIMITS["head_dim"]
    inner = file.integer(f"{name}.ssm.inner_size", most, least=heads)
    for key, whole, part in (("group_count", heads, key_heads), ("inner_size", inner, heads)):
        if whole % part:
            raise file.damaged(f"'{name}.ssm.{key}': {whole} is not a multiple of {part}")
    return {
        "linear_num_key_heads": key_heads,
        "linear_num_value_heads": heads,
        "linear_key_head_dim": file.integer(f"{name}.ssm.state_size", LIMITS["head_dim"]),
        "linear_value_head_dim": inner // heads,
        "linear_conv_kernel_dim": file.integer(f"{name}.ssm.conv_kernel", MAX_TAPS, least=2),
        "linear_heads_tiled": name != NEXT,
    }


def _read_experts(name: str, file: Gguf) -> Settings:
    """Read the experts of every layer, and the one that all rows share."""
    count, used, wide = experts(file, name)
    found: Settings = {
        "num_experts": count,
        "num_experts_per_tok": used,
        "moe_intermediate_size": wide,
        "shared_expert_intermediate_size": file.integer(
            f"{name}.{SHARED_WIDTH}", LIMITS["intermediate_size"]
        ),
    }
    if name == NEXT:
        found |= {"norm_topk_prob": True, "decoder_sparse_step": 1, "mlp_only_layers": []}
    return found


def _layer_types(name: str, file: Gguf, blocks: int) -> list[str]:
    """Find the layers of linear attention: those listed, else all but the last of every few."""
    key = f"{name}.attention.recurrent_layers"
    listed = file.field(key, False)
    if listed is not False:
        if (
            not isinstance(listed, list)
            or len(listed) != blocks
            or not all(type(flag) is bool for flag in listed)
        ):
            raise file.damaged(f"'{key}' is not an array of {blocks} times true or false")
        return [LINEAR if flag else FULL for flag in listed]
    period = file.integer(f"{name}.full_attention_interval", LIMITS["num_hidden_layers"], 4)
    return [LINEAR if (n + 1) % period else FULL for n in range(blocks)]


def _sections(name: str, file: Gguf, rotary: int) -> list[int]:
    """Count the frequencies that belong to time, height and width.

    A text has one position for all three, so that they change nothing, as long as none is left
    over."""
    key = f"{name}.rope.dimension_sections"
    found = file.entries(key, int)
    if len(found) != 4 or found[3] != 0 or min(found) < 0 or not any(found):
        raise file.damaged(f"'{key}' is {found}, expected three counts and a 0")
    if any(n % sum(found) // 3 >= found[n % sum(found) % 3] for n in range(rotary // 2)):
        raise file.unsupported(f"'{key}' {found}, which leaves frequencies out")
    return found[:3]


def _unread(name: str, settings: Settings) -> frozenset[str]:
    """Name the tensors of the layers that predict the token after the next (`MTP_TENSORS`)."""
    first = settings["num_hidden_layers"]
    stored = {*_names(name), *MTP_TENSORS.values()}
    numbers = range(first, first + settings["mtp_num_hidden_layers"])
    return frozenset(f"blk.{n}.{part}.weight" for n in numbers for part in stored)


# --- config.json ----------------------------------------------------------------------------------


def _mixer(family: Family, settings: Settings, n: int) -> Attention | LinearAttention:
    if layer_type(family, settings, n) == LINEAR:
        return _linear_attention(settings)
    return replace(attention(family, settings, n), gated=True)


def _linear_attention(settings: Settings) -> LinearAttention:
    found = LinearAttention(
        settings["linear_num_key_heads"],
        settings["linear_num_value_heads"],
        settings["linear_key_head_dim"],
        settings["linear_value_head_dim"],
        settings["linear_conv_kernel_dim"],
        tiled=bool(settings.get("linear_heads_tiled")),
    )
    for field, value, fits in (
        ("linear_num_value_heads", found.value_heads, found.value_heads % found.key_heads == 0),
        ("linear_key_head_dim", found.key_dim, found.key_dim in STATE_DIMS),
        ("linear_value_head_dim", found.value_dim, found.value_dim in STATE_DIMS),
        ("linear_conv_kernel_dim", found.kernel, found.kernel in STATE_TAPS),
    ):
        if not fits:
            raise unlike(settings, field, value)
    return found


def _experts(family: Family, settings: Settings, n: int) -> tuple[Dense | None, Experts | None]:
    kernel = activation(family, settings)
    if not is_sparse(settings, n):
        return dense(family, settings, n)
    always = family.architecture == MIXTURE
    return None, Experts(
        *chosen(settings),
        settings["moe_intermediate_size"],
        kernel,
        normalised=always or bool(settings["norm_topk_prob"]),
        shared=settings["shared_expert_intermediate_size"],
    )


def _names(name: str) -> dict[str, str]:
    """Name a layer's tensors. Those of some files hold several of the model's."""
    linear = {
        "attn_qkv": "in_proj_qkv",
        "attn_gate": "in_proj_z",
        "ssm_conv1d": "conv1d",
        "ssm_dt.bias": "dt_bias",
        "ssm_a": "A",
        "ssm_norm": "norm",
        "ssm_out": "out_proj",
    }
    if name == NEXT:
        linear |= {"ssm_ba": "in_proj_ba", "ssm_in": "in_proj_qkvz"}
    else:
        linear |= {"ssm_beta": "in_proj_b", "ssm_alpha": "in_proj_a"}
    found = ATTENTION | {source: f"linear_attn.{target}" for source, target in linear.items()}
    found |= {
        "attn_norm": "input_layernorm",
        "post_attention_norm": "post_attention_layernorm",
    }
    if name == DENSE:
        return found | FEED_FORWARD
    shared = {
        f"{source}_shexp": target.replace("mlp.", "mlp.shared_expert.")
        for source, target in FEED_FORWARD.items()
    }
    return found | EXPERTS | shared | {
        "ffn_gate_up_exps": "mlp.experts.gate_up_proj",
        "ffn_gate_inp_shexp": "mlp.shared_expert_gate",
    }  # fmt: skip


def _family(name: str, composites: tuple[str, ...] = ()) -> Family:
    return Family(
        MODEL_TYPES[name],
        name,
        partial(_read_metadata, name),
        _names(name),
        FIELDS if name == DENSE else FIELDS | EXPERT_FIELDS | {SHARED_WIDTH},
        partial(_unread, name),
        mixer=_mixer,
        blocks=dense if name == DENSE else _experts,
        composites=composites,
        norm_offset=1.0,
        qk_norm="head",
        activation=SILU,
        layer_types=(FULL, LINEAR),
        partly_rotary=True,
    )


FAMILIES = (
    _family(NEXT),
    _family(DENSE, ("qwen3_5",)),
    _family(MIXTURE, ("qwen3_5_moe",)),
)
