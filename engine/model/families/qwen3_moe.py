"""Qwen3's mixtures of experts: layers have them in place of a feed-forward block."""

from __future__ import annotations

from engine.model.families.family import (
    ATTENTION,
    EXPERTS,
    PRE_NORMS,
    Family,
    activation,
    chosen,
    dense,
    is_sparse,
)
from engine.model.families.llama import rope_factors
from engine.model.families.metadata import (
    EXPERT_FIELDS,
    Settings,
    experts,
    no_windows,
    rope,
    sizes,
    whole_heads_rotate,
)
from engine.model.model_config import Dense, Experts
from engine.weights.gguf.gguf_file import Gguf

NAME = "qwen3moe"


def _read_metadata(file: Gguf) -> Settings:
    settings = sizes(file, NAME, "qwen3_moe")
    head_dim, context = settings["head_dim"], settings["max_position_embeddings"]
    whole_heads_rotate(file, NAME, head_dim)
    no_windows(file, NAME, context)
    count, used, wide = experts(file, NAME)
    return settings | {
        "rope_parameters": rope(file, NAME, head_dim, context),
        "num_experts": count,
        "num_experts_per_tok": used,
        "moe_intermediate_size": wide,
        "norm_topk_prob": True,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
    }


def _blocks(family: Family, settings: Settings, n: int) -> tuple[Dense | None, Experts | None]:
    kernel = activation(family, settings)
    if not is_sparse(settings, n):
        return dense(family, settings, n)
    return None, Experts(
        *chosen(settings),
        settings["moe_intermediate_size"],
        kernel,
        normalised=bool(settings["norm_topk_prob"]),
    )


FAMILY = Family(
    "qwen3_moe",
    NAME,
    _read_metadata,
    ATTENTION | EXPERTS | PRE_NORMS,
    EXPERT_FIELDS | {"attention.sliding_window"},
    rope_factors,
    blocks=_blocks,
    qk_norm="head",
    window="use_sliding_window",
)
