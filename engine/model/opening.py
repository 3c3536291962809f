"""Opening a model: on the CPU's own kernels, or on torch for everything else.

torch takes a second to import and 0.8 GB of disk or more. A GGUF file on a CPU needs none of it.
"""

from __future__ import annotations

import ctypes
import logging
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from engine.config import KV_FORMATS, Config, devices
from engine.model.families.gguf_tensors import OnRead
from engine.model.unsupported import UnsupportedModel
from engine.weights.resolve import gguf_of

if TYPE_CHECKING:
    from engine.model.native.native_target import NativeTarget
    from engine.model.torch.torch_target import TorchTarget

log = logging.getLogger(__name__)

NATIVE_DTYPES = ("auto", "q8", "q4")  # dtypes of a GGUF file on the CPU's own kernels
AMD_DRIVER = Path("/dev/kfd")
INSTALL = "pip install 'draftline[gpu]'"


def open_target(
    folder: Path,
    config: Config,
    on_read: OnRead = lambda done, total: None,
    tensors: bool = False,
) -> NativeTarget | TorchTarget:
    """Load a model.

    `on_read` is called with the bytes that were read of a GGUF file, and all of them. `tensors`:
    its logits and hidden states must be torch's. UnsupportedModel, WeightsError, ValueError or
    OSError with one line.
    """
    if config.kv not in KV_FORMATS:
        raise ValueError(f"kv {config.kv!r}: choose {' or '.join(KV_FORMATS)}")
    why = "what was chosen" if tensors else needs_torch(folder, config)
    if not why:
        from engine.model.native.native_target import NativeTarget

        return NativeTarget(folder, config, on_read)
    if config.kv != "auto":
        raise ValueError(
            f"kv {config.kv}: only a GGUF file on the CPU's own kernels has it, and {folder.name} "
            f"runs on torch for {why}: leave it at auto"
        )
    if find_spec("torch") is None or find_spec("transformers") is None:
        raise UnsupportedModel(
            f"{folder.name}: {why} needs torch, which is not installed: {INSTALL}, or run a GGUF "
            "file with --device cpu --dtype auto"
        )
    from engine.model.torch.torch_target import TorchTarget  # takes a second

    return TorchTarget(folder, config, on_read=on_read)


def needs_torch(folder: Path, config: Config) -> str:
    """Name what of a configuration only torch runs; "" for a GGUF file on the CPU's own kernels."""
    if (names := devices(config.device)) not in (["cpu"], ["auto"]):
        return f"device {config.device}"
    if config.graphs not in ("auto", "off"):
        return f"graphs {config.graphs}"
    if config.dtype not in NATIVE_DTYPES:
        return f"dtype {config.dtype}"
    if gguf_of(folder) is None:
        return "a model of safetensors files"
    if names == ["auto"] and has_card_driver():
        if find_spec("torch") is not None:
            return "a card"
        log.warning("no card is used, as torch is not installed: %s", INSTALL)
    return ""


def has_card_driver() -> bool:
    """Whether the driver of an NVIDIA or AMD card is installed, with which torch may see one."""
    if AMD_DRIVER.exists():
        return True
    try:
        ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
    except OSError:
        return False
    return True
