"""Two causal models of transformers that share a tokenizer: found, checked, loaded.

`engine.research.two_models` writes with them; `engine.model.target` is how Draftline itself loads a model.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from engine.drafting.draft_model import check_pair
from engine.prompts.tokenizer import Tokenizer
from engine.weights.integrity import settings_of

DeviceMemory = dict[
    int | str, str
]  # of a device (a GPU's number, or "cpu") -> what may be used of it


@dataclass(frozen=True, slots=True)
class ModelPair:
    """Two causal models of transformers that share a tokenizer."""

    little: Any
    big: Any
    tokenizer: Tokenizer


def load(
    little: str,
    big: str,
    device: str = "cpu",
    dtype: str = "float32",
    memory: DeviceMemory | None = None,
    little_memory: DeviceMemory | None = None,
) -> ModelPair:
    """Two models by name or folder. Where `memory` is given, that model is spread over devices by
    accelerate. ValueError with one line where they do not fit each other, or the memory."""
    from transformers.utils import logging

    folders, tokenizer = locate_pair(little, big)
    logging.disable_progress_bar()
    first = _model(little, folders[0], device, dtype, little_memory)
    return ModelPair(first, _model(big, folders[1], device, dtype, memory), tokenizer)


def locate_pair(little: str, big: str) -> tuple[list[Path], Tokenizer]:
    """Where both models are, fetched first where they must be, and their tokenizer. Nothing is
    loaded. ValueError with one line where they cannot work together."""
    from transformers import AutoConfig

    from engine.weights import locate

    folders = [locate(name) for name in (little, big)]
    for name, folder in zip((little, big), folders, strict=True):
        settings_of(folder)
        config = AutoConfig.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
        if config.is_encoder_decoder:
            raise ValueError(
                f"{name}: {config.model_type} has an encoder beside its decoder, which is not "
                "supported: choose a causal model, such as a Llama or a Qwen"
            )
    first, second = (Tokenizer(folder) for folder in folders)
    check_pair(big, second, little, first)
    return folders, second


def _model(name: str, folder: Path, device: str, dtype: str, memory: DeviceMemory | None) -> Any:
    from transformers import AutoModelForCausalLM

    options: dict[str, Any] = {"dtype": getattr(torch, dtype), "trust_remote_code": False}
    options["local_files_only"] = True
    if memory is None:
        return AutoModelForCausalLM.from_pretrained(folder, **options).to(device).eval()
    if find_spec("accelerate") is None:
        raise ValueError(
            f"{name}: to spread it over devices needs accelerate: `pip install accelerate`"
        )
    gpus = torch.cuda.device_count()
    if missing := [one for one in memory if isinstance(one, int) and one >= gpus]:
        raise ValueError(f"{name}: no GPU {missing[0]}: this machine has {gpus}: name others")
    options |= {"device_map": "auto", "max_memory": memory}
    try:
        model = AutoModelForCausalLM.from_pretrained(folder, **options).eval()
    except ValueError as error:
        why = " ".join(str(error).split())
        raise ValueError(f"{name}: does not fit {memory} ({why}): allow more memory") from error
    if "disk" in getattr(model, "hf_device_map", {}).values():
        raise ValueError(f"{name}: does not fit {memory}: allow more memory, or name more devices")
    return model


def max_context(pair: ModelPair) -> int | None:
    """Tokens that both models can read; None where nothing limits them."""
    known = [
        getattr(one.config, "max_position_embeddings", None) for one in (pair.little, pair.big)
    ]
    return min((one for one in known if one), default=None)
