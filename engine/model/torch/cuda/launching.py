"""How Triton's kernels are launched on the card that is current."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
import triton
from triton import knobs

ASSEMBLY = not knobs.runtime.interpret  # Triton's interpreter knows no machine code
OVERLAPPING = 90  # compute capability from which a kernel may start before the one before it ends
SHARED_BYTES = 99 * 1024  # bytes of shared memory that a block has on every card with bf16


@cache
def overlap() -> dict[str, Any]:
    """Return the options of a kernel that is launched while the one before it still runs.

    Such a kernel waits (`gdc_wait`) before it reads or writes what others write or read.
    """
    if knobs.runtime.interpret:
        return {"OVERLAP": False}
    able = triton.runtime.driver.active.get_current_target().arch >= OVERLAPPING
    return {"OVERLAP": able, "launch_pdl": able}


@cache
def shared_bytes(device: torch.device) -> int:
    """Return the bytes of shared memory that a block may have."""
    if knobs.runtime.interpret:
        return SHARED_BYTES
    utils = triton.runtime.driver.active.utils
    found: int = utils.get_device_properties(device.index or 0)["max_shared_mem"]
    return found
