"""torch's inference mode, entered once for a thread instead of once for every call."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

import torch

P = ParamSpec("P")
R = TypeVar("R")


def inference(function: Callable[P, R]) -> Callable[P, R]:
    """Wrap `function` to run in inference mode.

    To ask whether it is on takes a twentieth of entering it, and in the model's thread it is on.
    """

    @wraps(function)
    def run(*args: P.args, **options: P.kwargs) -> R:
        if torch.is_inference_mode_enabled():
            return function(*args, **options)
        with torch.inference_mode():
            return function(*args, **options)

    return run
