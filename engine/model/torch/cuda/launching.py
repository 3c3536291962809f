"""How Triton's kernels are launched on the card that is current."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
import triton
import triton.language as tl
from triton import knobs

ASSEMBLY = not knobs.runtime.interpret  # Triton's interpreter knows no machine code
OVERLAPPING = 90  # compute capability from which a kernel may start before the one before it ends
SHARED_BYTES = 99 * 1024  # bytes of shared memory that a block has on every card with bf16


@triton.jit
def wait_for_inputs(OVERLAP: tl.constexpr):
    """Wait for the kernel before this one, and let the next one be launched."""
    if OVERLAP:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()


@cache
def overlap() -> dict[str, Any]:
    """Return the options of a kernel that is launched while the one before it still runs.

    It begins with `wait_for_inputs`, before it reads or writes what others write or read.
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
