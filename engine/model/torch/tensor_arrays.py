"""Weights as torch's tensors and as the arrays of the CPU's kernels, which share their memory."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from engine.model.native.product import Array

SHARED = (torch.float64, torch.float32, torch.float16)  # types of numbers that both have


def array_of(tensor: Tensor) -> Array:
    """Convert a tensor of weights for `engine.model.native.product`; integers stay integers."""
    tensor = tensor.detach().cpu()
    if tensor.dtype == torch.bfloat16:
        tensor = tensor.contiguous().view(torch.uint16)
    elif tensor.dtype == torch.uint16:  # integers, and not bfloat16
        tensor = tensor.int()
    elif tensor.is_floating_point() and tensor.dtype not in SHARED:
        tensor = tensor.float()
    found: Array = tensor.numpy()
    return found


def tensor_of(values: Array) -> Tensor:
    """Convert an array of weights to a tensor."""
    found = torch.from_numpy(np.ascontiguousarray(values))
    return found.view(torch.bfloat16) if values.dtype == np.uint16 else found
