"""Checkpoints of trained heads: a folder with model.safetensors and config.json.

config.json records the kind of head, the model it was trained for and a checksum; heads for another
model are rejected.
"""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zlib import crc32

from engine.atomic_write import write_atomically

if TYPE_CHECKING:
    from torch import Tensor

CONFIG, WEIGHTS = "config.json", "model.safetensors"


class CheckpointError(ValueError):
    """A head that cannot be used. The message is one line: what is wrong and the remedy."""


def fingerprint(folder: Path) -> str:
    """Identify the model in `folder` by its norms and biases, which any training changes."""
    from engine.model.torch.gguf_weights import weights_of

    found, weights = sha256(), weights_of(folder)
    for name in sorted(weights):
        if len(weights.shape(name)) == 1:
            found.update(name.encode())
            found.update(weights[name].float().numpy().tobytes())
    return found.hexdigest()[:16]


def save_head(
    folder: Path, kind: str, about: dict[str, Any], weights: dict[str, Tensor], model: Path
) -> None:
    """Save a head for the model in the folder `model`.

    If interrupted, it leaves the old files, or a mismatch that the checksum detects. Raises
    OSError.
    """
    from safetensors.torch import save

    data = save({name: one.contiguous() for name, one in weights.items()}, {"format": "pt"})
    config = {
        "kind": kind,
        **about,
        "model": model.name,
        "model_fingerprint": fingerprint(model),
        "crc32": f"{crc32(data):08x}",
    }
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / WEIGHTS, data)
    write_atomically(folder / CONFIG, (json.dumps(config, indent=2) + "\n").encode())


def load_head(
    folder: Path, kind: str, model: Path, needed: tuple[str, ...] = ()
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Load config and weights, checking the kind of head and the model in the folder `model`.

    `needed`: integers that config.json must have. Raises CheckpointError. Published heads, whose
    config names neither kind nor model, are accepted.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load

    remedy = "train it again"
    try:
        config = json.loads((folder / CONFIG).read_text("utf-8"))
        data = (folder / WEIGHTS).read_bytes()
        weights = load(data)
        if not isinstance(config, dict):
            raise ValueError(f"{CONFIG} is not a JSON object")
    except FileNotFoundError as error:
        missing = Path(error.filename).name
        raise CheckpointError(
            f"{folder}: contains no {missing}: give the folder of a trained {kind}"
        ) from error
    except (OSError, ValueError, SafetensorError) as error:
        why = " ".join(str(error).split())
        raise CheckpointError(f"{folder}: cannot be read ({why}): {remedy}") from error
    if config.get("kind", kind) != kind:
        raise CheckpointError(
            f"{folder}: contains {config['kind']!r}, expected {kind!r}: give another folder"
        )
    if not all(type(config.get(name)) is int for name in needed):
        raise CheckpointError(f"{folder}: {CONFIG} lacks {', '.join(needed)}: {remedy}")
    if "crc32" in config and config["crc32"] != f"{crc32(data):08x}":
        raise CheckpointError(f"{folder}: {CONFIG} and {WEIGHTS} do not match: {remedy}")
    made_for = config.get("model_fingerprint")
    if made_for is not None and made_for != fingerprint(model):
        raise CheckpointError(
            f"{folder}: trained for {config.get('model')}, not for {model.name}: use it with that "
            f"model, or train one for {model.name}"
        )
    if not all(bool(weight.isfinite().all()) for weight in weights.values()):
        raise CheckpointError(f"{folder}: weights are not finite: {remedy}")
    return config, weights
