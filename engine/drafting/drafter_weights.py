"""Loading and saving the default drafter's weights, which `draftline train drafter` makes."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from engine.atomic_write import write_atomically
from engine.drafting._drafting import Weights, layout, weight_count

if TYPE_CHECKING:
    from engine.drafting.next_token import WeightKind

log = logging.getLogger(__name__)

SHIPPED = Path(__file__).with_name("drafter_weights.safetensors")
WEIGHT_KINDS: tuple[WeightKind, ...] = ("file", "hunk")
INITIAL_SQUARES = (
    10.0,
    100.0,
)  # AdaGrad sums that stand for the training: of plain features, of hashed ones


def load_weights(file: Path = SHIPPED) -> dict[WeightKind, Weights]:
    """Weights by kind of answer. Raises ValueError if the file is damaged or of another version."""
    from safetensors import SafetensorError, safe_open

    arrays: dict[WeightKind, NDArray[Any]] = {}
    try:
        with safe_open(str(file), "numpy") as opened:
            about = json.loads((opened.metadata() or {}).get("draftline", "{}"))
            if not isinstance(about, dict) or about.get("layout") != layout():
                raise ValueError(
                    f"{file}: made for another version of the drafter: train the weights again"
                )
            for kind in WEIGHT_KINDS:
                arrays[kind] = opened.get_tensor(kind)
    except (OSError, SafetensorError, TypeError, json.JSONDecodeError) as error:
        # TypeError: a data type that numpy does not have
        why = " ".join(str(error).split())
        raise ValueError(f"{file}: cannot read weights ({why}): train them again") from error
    for kind, values in arrays.items():
        shaped = values.dtype == np.float16 and values.shape == (weight_count(),)
        if not shaped or not np.isfinite(values).all():
            raise ValueError(f"{file}: {kind!r} is damaged: train the weights again")
    if about.get("crc32") != checksum(arrays):
        raise ValueError(f"{file}: damaged (checksum mismatch): train the weights again")
    found = {kind: Weights(values.astype(np.float32)) for kind, values in arrays.items()}
    for weights in found.values():
        weights.reset(*INITIAL_SQUARES)
    return found


def load_weights_or_default(file: Path = SHIPPED) -> dict[WeightKind, Weights]:
    """Load the weights; if they cannot be read, warn, and return untrained ones."""
    try:
        return load_weights(file)
    except ValueError as error:
        log.warning("%s; drafting starts with untrained weights", error)
        return {kind: Weights() for kind in WEIGHT_KINDS}


def save_weights(weights: dict[WeightKind, Weights], file: Path, notes: dict[str, str]) -> None:
    """Write the weights atomically in half precision.

    Raises OSError, or ValueError if they are not finite.
    """
    from safetensors.numpy import save

    arrays: dict[WeightKind, NDArray[Any]] = {}
    for kind in WEIGHT_KINDS:
        with np.errstate(over="ignore"):  # overflow is reported below
            arrays[kind] = np.asarray(weights[kind].values, np.float16)
    for kind, values in arrays.items():
        if not np.isfinite(values).all():
            raise ValueError(
                f"{file}: not written: {kind!r} weights are not finite: train them again"
            )
    about = {"layout": layout(), "crc32": checksum(arrays), **notes}
    # a single metadata entry: the order of several is not deterministic
    named: dict[str, NDArray[Any]] = {kind: arrays[kind] for kind in WEIGHT_KINDS}
    data = save(named, {"draftline": json.dumps(about, sort_keys=True)})
    file = file.resolve()  # write through a symbolic link
    write_atomically(file, data)


def checksum(arrays: dict[WeightKind, NDArray[Any]]) -> str:
    """CRC-32 of the stored weights of both kinds."""
    return f"{crc32(b''.join(arrays[kind].tobytes() for kind in WEIGHT_KINDS)):08x}"
