"""Triton's kernels where no card compiles them: in its interpreter."""

from __future__ import annotations

import os
import platform
import sys

import pytest
import torch

# Elsewhere PyPI has no wheel of it for every version of Python.
HAS_TRITON = (sys.platform, platform.machine()) == ("linux", "x86_64")


def interpret_kernels() -> None:
    """Choose the interpreter unless a card is here. To be called before kernels are imported, which
    read this choice."""
    if not torch.cuda.is_available():
        os.environ["TRITON_INTERPRET"] = "1"
    if not HAS_TRITON:
        pytest.importorskip("triton", reason="Triton has no wheel for this platform")
