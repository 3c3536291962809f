"""The current CUDA device, where Triton's launches, captures of graphs and events go.

torch's own operations run where their tensors are. Everything else takes the current device of the
thread, which is the first card unless something changes it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import wraps
from typing import Concatenate, ParamSpec, Protocol, TypeVar

import torch

KERNELS_FROM = (8, 0)  # compute capability; older cards do not multiply in bf16

P = ParamSpec("P")
R = TypeVar("R")


class OnDevice(Protocol):
    """An object that is on one device."""

    device: torch.device


S = TypeVar("S", bound=OnDevice)


def runs_kernels(device: torch.device) -> bool:
    """Return whether a device is a card that the kernels of this folder are made for."""
    return device.type == "cuda" and torch.cuda.get_device_capability(device) >= KERNELS_FROM


def current(device: torch.device) -> AbstractContextManager[None]:
    """Make a context in which `device`, if it is a card, is the current one."""
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()


def on_its_card(method: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], R]:
    """Wrap a method so that it runs with its object's card as the current one.

    A device without a number is the current one; nothing is entered where the right one is current.
    """

    @wraps(method)
    def run(self: S, /, *args: P.args, **options: P.kwargs) -> R:
        device = self.device
        if device.type != "cuda" or device.index in (None, torch.cuda.current_device()):
            return method(self, *args, **options)
        with torch.cuda.device(device):
            return method(self, *args, **options)

    return run


def finish(device: torch.device) -> None:
    """Wait until a card has done what was launched on its current stream."""
    if device.type == "cuda":
        torch.cuda.current_stream(device).synchronize()
