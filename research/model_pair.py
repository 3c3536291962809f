"""Loading a pair of causal transformers models that share a tokenizer.

`research.two_models` decodes with them. Draftline itself loads models with `engine.model`.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from engine.drafting.draft_model import check_pair
from engine.model.families.gguf_tensors import settings_of
from engine.model.torch.hf_model import transformers_config, transformers_model
from engine.prompts.tokenizer import Tokenizer
from engine.weights.fetch.integrity import tensors_of

DeviceMemory = dict[int | str, str]  # GPU number or "cpu" -> maximum memory, such as "4GB"


@dataclass(frozen=True, slots=True)
class ModelPair:
    """Two causal models that share a tokenizer."""

    draft_model: Any
    target_model: Any
    tokenizer: Tokenizer


def load(
    draft_model: str,
    target_model: str,
    device: str = "cpu",
    dtype: str = "float32",
    memory: DeviceMemory | None = None,
    draft_memory: DeviceMemory | None = None,
) -> ModelPair:
    """Load two models by name or folder.

    With `memory` or `draft_memory`, accelerate splits the target or the draft model across devices.
    Raises ValueError if the models do not match each other, or do not fit into memory.
    """
    from transformers.utils import logging

    folders, tokenizer = locate_pair(draft_model, target_model)
    logging.disable_progress_bar()
    return ModelPair(
        _model(draft_model, folders[0], device, dtype, draft_memory),
        _model(target_model, folders[1], device, dtype, memory),
        tokenizer,
    )


def locate_pair(draft_model: str, target_model: str) -> tuple[list[Path], Tokenizer]:
    """Locate both models, downloading them if necessary, and load their tokenizer.

    Raises ValueError if they cannot be used together.
    """
    from engine.weights import locate

    names = (draft_model, target_model)
    folders = [locate(name) for name in names]
    for name, folder in zip(names, folders, strict=True):
        tensors_of(folder)
        settings_of(folder)
        config = transformers_config(folder)
        if config.is_encoder_decoder:
            raise ValueError(
                f"{name}: encoder-decoder models such as {config.model_type} are not supported: "
                "choose a causal model, such as a Llama or a Qwen"
            )
    draft_tokenizer, tokenizer = (Tokenizer(folder) for folder in folders)
    check_pair(target_model, tokenizer, draft_model, draft_tokenizer)
    return folders, tokenizer


def _model(name: str, folder: Path, device: str, dtype: str, memory: DeviceMemory | None) -> Any:
    options: dict[str, Any] = {"dtype": getattr(torch, dtype)}
    if memory is None:
        return transformers_model(folder, **options).to(device).eval()
    if find_spec("accelerate") is None:
        raise ValueError(
            f"{name}: splitting it across devices needs accelerate: `pip install accelerate`"
        )
    gpus = torch.cuda.device_count()
    if missing := [name for name in memory if isinstance(name, int) and name >= gpus]:
        raise ValueError(f"{name}: no GPU {missing[0]}: this machine has {gpus}: choose others")
    options |= {"device_map": "auto", "max_memory": memory}
    try:
        model = transformers_model(folder, **options).eval()
    except ValueError as error:
        why = " ".join(str(error).split())
        raise ValueError(f"{name}: does not fit {memory} ({why}): allow more memory") from error
    if "disk" in getattr(model, "hf_device_map", {}).values():
        raise ValueError(f"{name}: does not fit {memory}: allow more memory, or add devices")
    return model


def max_context(pair: ModelPair) -> int | None:
    """Return the context size that both models allow; None if it is unlimited."""
    models = (pair.draft_model, pair.target_model)
    sizes = [getattr(model.config, "max_position_embeddings", None) for model in models]
    return min((size for size in sizes if size), default=None)
