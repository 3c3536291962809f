"""Models of real shapes with random weights: ours and transformers'.

The time of a step does not depend on the weights' values, so nothing is downloaded. Both models of
a shape have the same weights, seeded by name.
"""

from __future__ import annotations

import json
import tempfile
from math import prod
from pathlib import Path
from typing import Any

import torch

from engine import Config
from engine.model import speed
from engine.model.torch.placement import choose_device
from engine.model.torch.random_weights import RandomWeights
from engine.model.torch.torch_target import TorchTarget

RESERVED_SHARE = 0.06  # share of the device's memory, never allocated
WEIGHT_BYTES = {"f32": 4, "bf16": 2}


def _shape(kind: str, width: int, mlp: int, layers: int, heads: tuple[int, int], vocab: int,
           positions: int, theta: float, tied: bool) -> dict[str, Any]:  # fmt: skip
    return {
        "model_type": kind,
        "hidden_size": width,
        "intermediate_size": mlp,
        "num_hidden_layers": layers,
        "num_attention_heads": heads[0],
        "num_key_value_heads": heads[1],
        "vocab_size": vocab,
        "max_position_embeddings": positions,
        "rope_parameters": {"rope_type": "default", "rope_theta": theta},
        "rms_norm_eps": 1e-6,
        "tie_word_embeddings": tied,
        "bos_token_id": None,
        "eos_token_id": None,
        "pad_token_id": None,
    }


SHAPES: dict[str, dict[str, Any]] = {  # as in the publishers' config.json
    "qwen2.5-coder-7b":
        _shape("qwen2", 3584, 18944, 28, (28, 4), 152064, 32768, 1e6, False),
    "qwen2.5-coder-0.5b":
        _shape("qwen2", 896, 4864, 24, (14, 2), 151936, 32768, 1e6, True),
    "llama-2-7b":
        _shape("llama", 4096, 11008, 32, (32, 32), 32000, 4096, 1e4, False),
    "qwen2.5-coder-1.5b":
        _shape("qwen2", 1536, 8960, 28, (12, 2), 151936, 32768, 1e6, True),
    "qwen2.5-coder-14b":
        _shape("qwen2", 5120, 13824, 48, (40, 8), 152064, 32768, 1e6, False),
    "qwen2.5-coder-32b":
        _shape("qwen2", 5120, 27648, 64, (40, 8), 152064, 32768, 1e6, False),
    "tiny":
        _shape("qwen2", 64, 128, 2, (4, 2), 4096, 4096, 1e4, True),
}  # fmt: skip
REAL = tuple(SHAPES)[:4]  # models that are measured where none is named


def shapes(settings: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """Return the shape of every weight, by transformers' names."""
    return RandomWeights(settings, torch.device("meta"), torch.bfloat16).shapes


# -- bytes -----------------------------------------------------------------------------------------


def weight_bytes(settings: dict[str, Any], size: int) -> int:
    """Bytes of all weights, `size` bytes per number."""
    return size * sum(prod(shape) for shape in shapes(settings).values())


def read_bytes(settings: dict[str, Any], dtype: str) -> int:
    """Bytes of weights read per step: all of them, but of an untied embedding only a few rows."""
    sizes = {
        name: int(prod(shape) * speed.WEIGHT_BYTES[speed.storage_format(name, dtype)])
        for name, shape in shapes(settings).items()
    }
    return speed.read_bytes(sizes, settings)


def cache_bytes(settings: dict[str, Any], rows: int, size: int) -> int:
    """Bytes of keys and values of `rows` tokens."""
    head = settings["hidden_size"] // settings["num_attention_heads"]
    return 2 * size * rows * settings["num_hidden_layers"] * settings["num_key_value_heads"] * head


def free_bytes(device: torch.device) -> int | None:
    """Bytes that may still be allocated on a GPU; None on a CPU."""
    if device.type != "cuda":
        return None
    torch.cuda.empty_cache()
    free, total = torch.cuda.mem_get_info(device)
    return int(free - RESERVED_SHARE * total)


def memory_shortage(what: str, need: int, free: int | None) -> str | None:
    """Return a message with the numbers if `need` bytes do not fit, else None."""
    if free is None or need <= free:
        return None
    return f"{what} {need / 1e9:.1f} GB, {max(free, 0) / 1e9:.1f} GB are free"


# -- models ----------------------------------------------------------------------------------------


def random_target(name: str, settings: dict[str, Any], config: Config) -> TorchTarget:
    """Our model of a shape; `name` is for messages."""
    weights = RandomWeights(settings, choose_device(config.device), torch.bfloat16)
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made) / name
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps(settings), "utf-8")
        return TorchTarget(folder, config, weights)


def random_hf(settings: dict[str, Any], device: torch.device, dtype: torch.dtype) -> Any:
    """Make transformers' own model of a shape, with the same weights."""
    from transformers import CONFIG_MAPPING, AutoModelForCausalLM, GenerationConfig

    config = CONFIG_MAPPING[settings["model_type"]](**settings)
    with torch.device(device):
        model = AutoModelForCausalLM.from_config(config, dtype=dtype)
    weights = RandomWeights(settings, device, torch.bfloat16)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(weights[name])
    model.generation_config = GenerationConfig()
    return model.eval().requires_grad_(False)
