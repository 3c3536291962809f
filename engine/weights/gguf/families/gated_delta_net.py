"""Qwen3-Next, Qwen3.5 and its mixtures of experts: layers of linear attention by the gated delta
rule (arXiv:2412.06464), and every few layers one of full attention whose output is gated.

As stored: norms hold 1 + w, but for that of linear attention; `linear_attn.A` is -exp(A_log). Value
heads of Qwen3-Next are in transformers' order: head h uses key head h // (value heads / key heads).
Those of Qwen3.5 are tiled, which `linear_heads_tiled` says: head h uses key head h % key heads; so
are the rows of in_proj_qkv, in_proj_z, in_proj_a and in_proj_b, the values of A and dt_bias, the
channels of conv1d and the columns of out_proj. Rows of Qwen3-Next's in_proj_ba (and in older files
of in_proj_qkvz) are transformers' own: by key head, and those of b before those of a.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial

from engine.weights.gguf.families.family import (
    EXPERTS,
    FULL,
    Config,
    Family,
    Table,
    attention,
    ends,
    expert_matrices,
    experts,
    feed_forward,
    head_norms,
    layer,
    norms,
    same_in_all,
    sizes,
)
from engine.weights.gguf.families.rope import rope
from engine.weights.gguf.gguf_file import Gguf
from engine.weights.model_config import LIMITS

LINEAR = "linear_attention"
NEXT, DENSE, MIXTURE = "qwen3next", "qwen35", "qwen35moe"
MODELS = {  # GGUF's name: a transformers model type and its class
    NEXT: ("qwen3_next", "Qwen3NextForCausalLM"),
    DENSE: ("qwen3_5_text", "Qwen3_5ForCausalLM"),
    MIXTURE: ("qwen3_5_moe_text", "Qwen3_5MoeForCausalLM"),
}
FIELDS = frozenset({
    "ssm.conv_kernel", "ssm.inner_size", "ssm.state_size", "ssm.time_step_rank", "ssm.group_count",
    "full_attention_interval", "attention.recurrent_layers", "rope.dimension_sections",
    "nextn_predict_layers",
})  # fmt: skip
MAX_TAPS = 64  # of the convolution
SHARED_WIDTH = "expert_shared_feed_forward_length"
NORMS = {"attn_norm": "input_layernorm", "post_attention_norm": "post_attention_layernorm"}
NEXT_TOKENS = (  # tensors of a layer that predicts the token after the next, which nobody runs
    "eh_proj", "embed_tokens", "enorm", "hnorm", "shared_head_head", "shared_head_norm",
)  # fmt: skip


def _config(name: str, file: Gguf) -> Config:
    inner = None
    mixture = {} if name == DENSE else _experts(name, file)
    if mixture:  # newer files have no width of a dense block
        key = f"{name}.feed_forward_length"
        inner = same_in_all(
            file, key, LIMITS["intermediate_size"], mixture["moe_intermediate_size"]
        )
    config = sizes(file, name, *MODELS[name], inner)
    blocks = config["num_hidden_layers"]
    unread = file.integer(f"{name}.nextn_predict_layers", blocks - 1, 0, least=0)
    rotary = file.integer(
        f"{name}.rope.dimension_count", config["head_dim"], config["head_dim"], least=2
    )
    if rotary % 2:
        raise file.damaged(f"'{name}.rope.dimension_count' is {rotary}, expected an even number")
    context = config["max_position_embeddings"]
    turns = rope(file, name, rotary, context)
    turns["partial_rotary_factor"] = rotary / config["head_dim"]
    if name != NEXT:
        turns |= {"mrope_interleaved": True, "mrope_section": _sections(name, file, rotary)}
    return config | mixture | _linear_attention(name, file) | {
        "num_hidden_layers": blocks - unread,
        "mtp_num_hidden_layers": unread,
        "layer_types": _layer_types(name, file, blocks)[: blocks - unread],
        "attn_output_gate": True,
        "rope_parameters": turns,
    }  # fmt: skip


def _linear_attention(name: str, file: Gguf) -> Config:
    """Heads and sizes of linear attention."""
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


def _experts(name: str, file: Gguf) -> Config:
    """The experts of every layer, and the one that all rows share."""
    count, used, wide = experts(file, name)
    found: Config = {
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
    """Which layers are linear attention: those that the metadata list, else all but the last of
    every few."""
    key = f"{name}.attention.recurrent_layers"
    listed = file.field(key, False)
    if listed is not False:
        if (
            not isinstance(listed, list)
            or len(listed) != blocks
            or not all(type(one) is bool for one in listed)
        ):
            raise file.damaged(f"'{key}' is not an array of {blocks} times true or false")
        return [LINEAR if one else FULL for one in listed]
    period = file.integer(f"{name}.full_attention_interval", LIMITS["num_hidden_layers"], 4)
    return [LINEAR if (n + 1) % period else FULL for n in range(blocks)]


def _sections(name: str, file: Gguf, rotary: int) -> list[int]:
    """How many frequencies belong to time, height and width. A text has one position for all three,
    so that they change nothing, as long as none is left over."""
    key = f"{name}.rope.dimension_sections"
    found = file.entries(key, int)
    if len(found) != 4 or found[3] != 0 or min(found) < 0 or not any(found):
        raise file.damaged(f"'{key}' is {found}, expected three counts and a 0")
    if any(n % sum(found) // 3 >= found[n % sum(found) % 3] for n in range(rotary // 2)):
        raise file.unsupported(f"'{key}' {found}, which leaves frequencies out")
    return found[:3]


def _tensors(config: Config, names: Collection[str]) -> Table:
    table = ends(config)
    for number, kind in enumerate(config["layer_types"]):
        mixer = _full_attention(config)
        if kind == LINEAR:
            mixer = _delta_net(config, fused=f"blk.{number}.ssm_in.weight" in names)
        fused = f"blk.{number}.ffn_gate_up_exps.weight" in names
        one = mixer | norms(config, NORMS) | _feed_forward(config, fused)
        table |= layer(config, number, one)
    return table


def _full_attention(config: Config) -> Table:
    """The rows of q's projection are, head by head, the query's and its gate's."""
    table = attention(config) | head_norms(config)
    name, (rows, hidden), turned = table["attn_q.weight"]
    table["attn_q.weight"] = (name, (2 * rows, hidden), turned)
    return table


def _delta_net(config: Config, fused: bool) -> Table:
    """A layer of linear attention. `fused`: z's projection is one with that of q, k and v."""
    hidden, heads = config["hidden_size"], config["linear_num_value_heads"]
    keys = config["linear_num_key_heads"] * config["linear_key_head_dim"]
    values = heads * config["linear_value_head_dim"]
    channels = 2 * keys + values
    table: Table = {
        "attn_qkv.weight": ("in_proj_qkv.weight", (channels, hidden), 0),
        "attn_gate.weight": ("in_proj_z.weight", (values, hidden), 0),
        "ssm_conv1d.weight": ("conv1d.weight", (channels, config["linear_conv_kernel_dim"]), 0),
        "ssm_dt.bias": ("dt_bias", (heads,), 0),
        "ssm_a": ("A", (heads,), 0),
        "ssm_norm.weight": ("norm.weight", (config["linear_value_head_dim"],), 0),
        "ssm_out.weight": ("out_proj.weight", (hidden, values), 0),
    }
    if config["model_type"] == "qwen3_next":
        table["ssm_ba.weight"] = ("in_proj_ba.weight", (2 * heads, hidden), 0)
        if fused:
            del table["attn_qkv.weight"], table["attn_gate.weight"]
            table["ssm_in.weight"] = ("in_proj_qkvz.weight", (channels + values, hidden), 0)
    else:
        table["ssm_beta.weight"] = ("in_proj_b.weight", (heads, hidden), 0)
        table["ssm_alpha.weight"] = ("in_proj_a.weight", (heads, hidden), 0)
    return {name: (f"linear_attn.{target}", shape, 0) for name, (target, shape, _) in table.items()}


def _feed_forward(config: Config, fused: bool) -> Table:
    """A dense block, or experts and the one that all rows share. `fused`: the experts' gate and up
    are one."""
    if "num_experts" not in config:
        return feed_forward(config)
    hidden, count, wide = (
        config[key] for key in ("hidden_size", "num_experts", "moe_intermediate_size")
    )
    table = expert_matrices(config, count, wide)
    if fused:
        del table["ffn_gate_exps.weight"], table["ffn_up_exps.weight"]
        both = ("mlp.experts.gate_up_proj.weight", (count, 2 * wide, hidden), 0)
        table["ffn_gate_up_exps.weight"] = both
    shared = feed_forward(config, config["shared_expert_intermediate_size"])
    for name, (target, shape, turned) in shared.items():
        target = target.replace("mlp.", "mlp.shared_expert.")
        table[name.replace(".weight", "_shexp.weight")] = (target, shape, turned)
    return table | {
        "ffn_gate_inp.weight": ("mlp.gate.weight", (count, hidden), 0),
        "ffn_gate_inp_shexp.weight": ("mlp.shared_expert_gate.weight", (1, hidden), 0),
    }


def _others(config: Config) -> frozenset[str]:
    """The layers after the model's, which predict the token after the next."""
    first = config["num_hidden_layers"]
    table = _full_attention(config) | norms(config, NORMS)
    table |= _feed_forward(config, fused=False) | _feed_forward(config, fused=True)
    names = {*table, *(f"nextn.{name}.weight" for name in NEXT_TOKENS)}
    numbers = range(first, first + config["mtp_num_hidden_layers"])
    return frozenset(f"blk.{n}.{name}" for n in numbers for name in names)


def _family(name: str) -> Family:
    fields = FIELDS if name == DENSE else FIELDS | EXPERTS | {SHARED_WIDTH}
    config: Callable[[Gguf], Config] = partial(_config, name)
    return Family(name, MODELS[name][:1], fields, config, _tensors, _others)


FAMILIES = tuple(_family(name) for name in MODELS)
