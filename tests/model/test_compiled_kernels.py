"""Triton's kernels compiled ahead of time, for cards that are not here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from typing import Any

import pytest

# Not imported here, where other tests want its interpreter.
pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(
        find_spec("triton") is None, reason="Triton is not here: it comes with torch for CUDA"
    ),
]

SHARED_BYTES = {90: 232_448, 89: 101_376, 86: 101_376}  # that a program can have
MAX_SPILLED_BYTES = 256  # of a thread: a few numbers, once


@pytest.fixture(scope="module")
def kernels() -> list[dict[str, Any]]:
    """What each takes."""
    usual = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    said = subprocess.run(
        [sys.executable, "-m", "tests.support.compiled_kernels"],
        env=usual, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    return [json.loads(line) for line in said.splitlines()]


def test_kernels_fit_the_cards(kernels: list[dict[str, Any]]) -> None:
    """Their shared memory, and their registers but for a few."""
    assert {one["card"] for one in kernels} == set(SHARED_BYTES)
    for one in kernels:
        assert one["shared"] <= SHARED_BYTES[one["card"]], one
        assert one["spilled"] <= MAX_SPILLED_BYTES, one


def test_products_load_ahead(kernels: list[dict[str, Any]]) -> None:
    """Their shared memory holds the weights and inputs of all stages but one."""
    products = [one for one in kernels if "stages" in one]
    assert products
    for one in products:
        assert one["shared"] >= (one["stages"] - 1) * one["stage_bytes"], one
