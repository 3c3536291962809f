"""Steps of a mixture of experts: a few layers in the shape of Qwen3-30B-A3B.

The floor of a step counts the experts that its rows choose by chance. Steps of an answer that grows
show whether anything depends on the cache's length.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from time import perf_counter
from typing import Any

from bench.gpu.models import random_target
from bench.gpu.steps import advance, clear, place_at, seconds_of, step, synchronize
from engine.config import Config
from engine.drafting import chain
from engine.model.families import read_config
from engine.model.families.tensors import shapes_of
from engine.model.torch.torch_target import TorchTarget
from engine.records import Draft

CACHED, GROWN = 1000, 24  # tokens
ROWS = (1, 4, 8, 16, 64)
LARGE: dict[str, Any] = {  # 4 of its 48 layers
    "model_type": "qwen3_moe", "hidden_size": 2048, "intermediate_size": 6144,
    "num_hidden_layers": 4, "num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128,
    "vocab_size": 151936, "max_position_embeddings": 40960,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1e6}, "rms_norm_eps": 1e-6,
    "tie_word_embeddings": True, "num_experts": 128, "num_experts_per_tok": 8,
    "moe_intermediate_size": 768, "decoder_sparse_step": 1, "norm_topk_prob": True,
    "mlp_only_layers": [], "hidden_act": "silu", "attention_bias": False, "sliding_window": None,
    "use_sliding_window": False, "bos_token_id": None, "eos_token_id": None, "pad_token_id": None,
}  # fmt: skip
SMALL = LARGE | {
    "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 500, "max_position_embeddings": 2048,
    "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 48,
}  # fmt: skip


def model(settings: dict[str, Any], config: Config) -> TorchTarget:
    """Return a model of these settings with random weights."""
    return random_target("experts", settings, config)


def measure(target: TorchTarget, settings: dict[str, Any], gb_s: float) -> Iterator[dict[str, Any]]:
    """Milliseconds of a step by its rows, and of one row while the cache grows, token by token."""
    line: dict[str, Any] = {"layers": len(target.model.blocks)}
    for rows in ROWS:
        clear(target)
        place_at(target, CACHED, rows)
        draft = chain([(7919 * n + 5) % target.vocab for n in range(rows - 1)], "bench")
        ms = 1000 * seconds_of(lambda draft=draft: step(target, draft, CACHED), target.device)
        floor = read_bytes(settings, rows) / gb_s / 1e6
        line |= {f"rows_{rows}_ms": round(ms, 4), f"floor_{rows}_ms": round(floor, 4)}
    yield line | {"growing_ms": growing(target)}


def read_bytes(settings: dict[str, Any], rows: int) -> int:
    """Bytes of weights that a step reads in bf16, if each row chose its experts by chance."""
    config, numbers = read_config(settings), 0.0
    for name, shape in shapes_of(config).items():
        share = 1.0
        if ".experts." in name:
            share = 1 - (1 - settings["num_experts_per_tok"] / settings["num_experts"]) ** rows
        numbers += share * prod(shape)
    return int(2 * numbers)


def growing(target: TorchTarget) -> list[float]:
    """Milliseconds of each step while the cache grows by one row a step."""
    clear(target)
    place_at(target, CACHED, GROWN)
    times = []
    for n in range(GROWN):
        begin = perf_counter()
        advance(target, Draft(), CACHED + n)
        synchronize(target.device)
        times.append(round(1000 * (perf_counter() - begin), 3))
    return times
