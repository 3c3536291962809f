"""A model's folder with safetensors, which vLLM reads on a CPU: built-in models are GGUF files."""

from __future__ import annotations

import shutil
from pathlib import Path

from bench.common.environment import ROOT

MODELS = ROOT / "build" / "vllm-models"  # git-ignored, next to vLLM's environment


def safetensors_folder(folder: Path, models: Path = MODELS) -> Path:
    """Return the folder itself if it has safetensors, else one in `models`.

    That has the same model in bf16.
    """
    from safetensors.torch import save_file

    from engine.model.torch.gguf_weights import weights_of

    if any(folder.glob("*.safetensors")):
        return folder
    made = models / folder.name
    if (made / "model.safetensors").exists():
        return made
    made.mkdir(parents=True, exist_ok=True)
    weights = weights_of(folder)
    tensors = {name: weights[name].bfloat16() for name in weights}
    for file in folder.glob("*.json"):
        shutil.copy(file, made)
    for file in folder.glob("*.jinja"):
        shutil.copy(file, made)
    part = made / "model.safetensors.part"
    save_file(tensors, part, {"format": "pt"})
    part.rename(made / "model.safetensors")
    return made
