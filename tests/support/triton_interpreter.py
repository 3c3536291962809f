"""Triton's kernels where no card compiles them: in its interpreter."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterable, Sequence
from typing import Any

import pytest
import torch

# Elsewhere PyPI has no wheel of it for every version of Python.
HAS_TRITON = (sys.platform, platform.machine()) == ("linux", "x86_64")


if not torch.cuda.is_available():  # read when Triton is imported, by whatever needs it first
    os.environ["TRITON_INTERPRET"] = "1"


def needs_triton() -> None:
    """Skip a module of tests where Triton cannot be installed."""
    if not HAS_TRITON:
        pytest.importorskip("triton", reason="Triton has no wheel for this platform")


def cases(every: Iterable[Any], fast: Sequence[Any]) -> list[Any]:
    """The cases of a parametrized test. In the interpreter, which is slow, those that are not
    `fast` are for `make test-full`."""
    if torch.cuda.is_available():
        return [*every]

    def full(case: Any) -> Any:
        values = case if isinstance(case, tuple) else (case,)
        return pytest.param(*values, marks=pytest.mark.full)

    return [case if case in fast else full(case) for case in every]
