"""Triton's kernels where no card compiles them: in its interpreter, rows multiplied one by one."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterable, Sequence
from functools import wraps
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
    if not torch.cuda.is_available():
        multiply_rows_alone()


def multiply_rows_alone() -> None:
    """Give a row of `tl.dot` bits that do not depend on the rows beside it, as on a card: numpy's
    product of two matrices rounds by their shape, and by the processor."""
    from triton.runtime.interpreter import InterpreterBuilder, TensorHandle

    dot = InterpreterBuilder.create_dot
    if hasattr(dot, "__wrapped__"):
        return

    @wraps(dot)
    def row_by_row(self: Any, a: Any, b: Any, d: Any, *options: Any) -> Any:
        left = TensorHandle(a.data[..., None, :], a.dtype)
        right = TensorHandle(b.data[..., None, :, :], b.dtype)
        sums = TensorHandle(d.data[..., None, :], d.dtype)
        found = dot(self, left, right, sums, *options)
        return TensorHandle(found.data[..., 0, :], found.dtype)

    InterpreterBuilder.create_dot = row_by_row


def cases(every: Iterable[Any], fast: Sequence[Any]) -> list[Any]:
    """The cases of a parametrized test. In the interpreter, which is slow, those that are not
    `fast` are for `make test-full`."""
    if torch.cuda.is_available():
        return [*every]

    def full(case: Any) -> Any:
        values = case if isinstance(case, tuple) else (case,)
        return pytest.param(*values, marks=pytest.mark.full)

    return [case if case in fast else full(case) for case in every]
