"""Triton's kernels compiled ahead of time, for cards that are not here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from tests.support.triton_interpreter import HAS_TRITON

pytestmark = pytest.mark.skipif(not HAS_TRITON, reason="Triton has no wheel for this platform")

SHARED_BYTES = {90: 232_448, 89: 101_376, 86: 101_376}  # that a program can have
MAX_SPILLED_BYTES = 256  # of a thread: a few numbers, once


def compiled(*arguments: str) -> list[dict[str, Any]]:
    """What each takes on a card. In a process of its own: here, tests want the interpreter."""
    usual = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    said = subprocess.run(
        [sys.executable, "-m", "tests.support.compiled_kernels", *arguments],
        env=usual, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    return [json.loads(line) for line in said.splitlines()]


@pytest.fixture(
    scope="module", params=[pytest.param(n, marks=pytest.mark.full) for n in SHARED_BYTES]
)
def kernels(request: pytest.FixtureRequest) -> list[dict[str, Any]]:
    return compiled(str(request.param))


def test_one_kernel_of_each_kind_compiles() -> None:
    found = compiled("--first", "90")
    assert len(found) == 6
    assert all(one["shared"] <= SHARED_BYTES[90] for one in found), found


def test_kernels_fit_the_cards(kernels: list[dict[str, Any]]) -> None:
    """Their shared memory, and their registers but for a few."""
    assert kernels
    for one in kernels:
        assert one["shared"] <= SHARED_BYTES[one["card"]], one
        assert one["spilled"] <= MAX_SPILLED_BYTES, one


def test_exact_attention_rounds_after_every_operation(kernels: list[dict[str, Any]]) -> None:
    """A compiler that fused some in one loop would give a key other bits than in another loop."""
    attention = [one for one in kernels if "attention of" in one["kernel"] and one["fused"]]
    assert not [one for one in attention if "exact" in one["kernel"]]
    assert bool(attention) == (kernels[0]["card"] > 86), "the others are fused: it is visible here"


def test_sums_of_exact_passes_have_one_order(kernels: list[dict[str, Any]]) -> None:
    """Whether a row stands in a draft, alone or in a prompt. Where the compiler finds loads of one
    byte behind an operand, for one, its matrix instructions take the terms in another order."""
    for kind in ("exact attention", *(f"weights in {name}" for name in ("bf16", "int8", "int4"))):
        some = [one for one in kernels if kind in one["kernel"] and "4 bytes" not in one["kernel"]]
        assert len(some) > 1 or kernels[0]["card"] == 86  # for which attention is not compiled
        assert all(one["orders"] for one in some)
        found = {order for one in some for order in one["orders"]}
        assert len(found) == len({order.split()[0] for order in found}), (kind, found)


def test_products_load_ahead(kernels: list[dict[str, Any]]) -> None:
    """Their shared memory holds the weights and inputs of all stages but one."""
    products = [one for one in kernels if "stages" in one]
    assert products
    for one in products:
        assert one["shared"] >= (one["stages"] - 1) * one["stage_bytes"], one


def test_levels_are_widened_two_at_a_time(kernels: list[dict[str, Any]]) -> None:
    """Without the slow conversions between formats of 16 bits."""
    for one in kernels:
        if one["kernel"].startswith("product"):
            drafted = "1024 rows" not in one["kernel"] and "in bf16" not in one["kernel"]
            assert bool(one["paired"]) == drafted, one
