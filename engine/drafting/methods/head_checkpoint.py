"""Trained heads on disk: a folder with model.safetensors and config.json, checked and saved whole.

config.json says what kind of head it is and for which model it was trained; a head for another
model is refused. What a head computes is not known here.
"""

from __future__ import annotations

import json
import os
import tempfile
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zlib import crc32

if TYPE_CHECKING:
    from torch import Tensor

CONFIG, WEIGHTS = "config.json", "model.safetensors"


class CheckpointError(ValueError):
    """A head that cannot be used; the message is one line: what is wrong and the remedy."""


def fingerprint(folder: Path) -> str:
    """Of the model in `folder`: its norms and biases, which no training leaves as they are."""
    import torch
    from safetensors import safe_open

    found = sha256()
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, framework="pt") as file:
            for name in sorted(file.keys()):
                if len(file.get_slice(name).get_shape()) == 1:
                    found.update(name.encode())
                    found.update(file.get_tensor(name).to(torch.float32).numpy().tobytes())
    return found.hexdigest()[:16]


def save_head(
    folder: Path, kind: str, about: dict[str, Any], weights: dict[str, Tensor], model: Path
) -> None:
    """Write a head of the model in the folder `model`. Interrupted, it leaves what was there, or
    two files that do not fit and are refused. OSError where it cannot be written."""
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
    """Config and weights of a head of that kind for the model in the folder `model`.
    CheckpointError otherwise. A published head, whose config says neither, is taken as it is."""
    from safetensors import SafetensorError
    from safetensors.torch import load

    remedy = "train it again"
    try:
        config = json.loads((folder / CONFIG).read_text("utf-8"))
        data = (folder / WEIGHTS).read_bytes()
        weights = load(data)
        if not isinstance(config, dict):
            raise ValueError(f"{CONFIG} holds no object")
    except FileNotFoundError as error:
        missing = Path(error.filename).name
        raise CheckpointError(
            f"{folder}: no {missing} in it: name the folder of a trained {kind}"
        ) from error
    except (OSError, ValueError, SafetensorError) as error:
        why = " ".join(str(error).split())
        raise CheckpointError(f"{folder}: cannot be read ({why}): {remedy}") from error
    if config.get("kind", kind) != kind:
        raise CheckpointError(
            f"{folder}: holds {config['kind']!r}, not {kind!r}: name another folder"
        )
    if not all(type(config.get(name)) is int for name in needed):
        raise CheckpointError(f"{folder}: {CONFIG} lacks {', '.join(needed)}: {remedy}")
    if "crc32" in config and config["crc32"] != f"{crc32(data):08x}":
        raise CheckpointError(f"{folder}: {CONFIG} and {WEIGHTS} do not fit each other: {remedy}")
    made_for = config.get("model_fingerprint")
    if made_for is not None and made_for != fingerprint(model):
        raise CheckpointError(
            f"{folder}: trained for {config.get('model')}, not for {model.name}: use it with that "
            f"model, or train one for {model.name}"
        )
    if not all(bool(one.isfinite().all()) for one in weights.values()):
        raise CheckpointError(f"{folder}: weights that are not numbers: {remedy}")
    return config, weights


def write_atomically(file: Path, data: bytes) -> None:
    """Write a file whole or not at all; it survives the machine's end."""
    handle, name = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name[:100]}.")
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as out:
            out.write(data)
            out.flush()
            os.fchmod(out.fileno(), 0o644)  # mkstemp's own mode would hide it from other users
            os.fsync(out.fileno())
        temporary.replace(file)
    finally:
        temporary.unlink(missing_ok=True)
