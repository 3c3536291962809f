"""The kernels that draw tokens give those of `verify.choose`: compiled on a card, else in Triton's
interpreter, where small parts make rows of many of them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.triton_interpreter import cases, needs_triton

needs_triton()

from engine.config import Config  # noqa: E402
from engine.model.torch.cuda import sampling, triton_ops  # noqa: E402
from engine.model.torch.cuda.static_pass import PassOutput  # noqa: E402
from engine.model.torch.cuda.torch_ops import top  # noqa: E402
from engine.model.torch.torch_target import TorchTarget  # noqa: E402
from engine.records import Draft, Request  # noqa: E402
from engine.sampling import batched  # noqa: E402
from engine.sampling.verify import CANDIDATES, choose  # noqa: E402
from tests.model.test_target import begin, some_tokens  # noqa: E402

CUDA = torch.cuda.is_available()
pytestmark = [
    *([pytest.mark.gpu] if CUDA else []),
    pytest.mark.filterwarnings("ignore:overflow encountered", "ignore:divide by zero"),
]
DEVICE = torch.device("cuda" if CUDA else "cpu")
UNSURE = batched.UNSURE
SMALL = {"LOGITS": 64, "GROUP": 4, "TILE": 128, "LIKELY": 64}
FEW = settings(
    max_examples=200 if CUDA else 40, deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)  # fmt: skip
TEMPERATURES = [1e-6, 0.01, 0.3, 0.8, 1, 2.5, 1e30]


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Constants of the kernels for rows of hundreds of tokens."""
    if not CUDA:  # where every size would be compiled
        for name, value in SMALL.items():
            monkeypatch.setattr(sampling, name, value)


def rows_of(count: int, vocab: int, seed: int, spread: float) -> torch.Tensor:
    """Random logits with some ties; the last row has equal ones only."""
    chance = torch.Generator().manual_seed(seed)
    logits = torch.randn(count, vocab, generator=chance) * spread
    ties = torch.rand(count, vocab, generator=chance) < 0.2
    logits = torch.where(ties, logits.round(), logits)
    logits[-1] = spread
    return logits


def drawn(logits: torch.Tensor, places: list[int], request: Request) -> list[int]:
    """By the kernels, whose rows are the first of a wider pass."""
    here = logits.to(DEVICE)
    padded = torch.cat([here, torch.zeros_like(here[:1])])
    positions = torch.tensor([*places, 0], device=DEVICE) - 1000
    found = sampling.drawn(padded[: len(here)], top(padded), positions, 1000, request)
    assert found.dtype == torch.int64
    return found.tolist()


def chosen(logits: torch.Tensor, places: list[int], request: Request) -> list[int]:
    """The truth, row by row; -1 for logits that are not finite."""

    def one(row: torch.Tensor, place: int) -> int:
        try:
            return choose(row.float(), place, request)
        except ValueError:
            return -1

    return [one(row, place) for row, place in zip(logits, places, strict=True)]


@FEW
@given(
    st.integers(1, 3),
    st.integers(1, 400),
    st.integers(-(2**70), 2**70),
    st.sampled_from(TEMPERATURES),
    st.sampled_from([0, 1, 3, 20, 89, 400]),
    st.sampled_from([1.0, 0.95, 0.6, 0.1, 1e-6]),
    st.sampled_from([0.1, 3.0, 30.0]),
    st.sampled_from([torch.float32, torch.bfloat16]),
)
def test_tokens_equal_those_chosen_one_row_at_a_time(
    small_parts: None,
    count: int,
    vocab: int,
    seed: int,
    temperature: float,
    top_k: int,
    top_p: float,
    spread: float,
    dtype: torch.dtype,
) -> None:
    request = Request("chat", temperature=temperature, top_k=top_k, top_p=top_p, seed=seed)
    logits = rows_of(count, vocab, seed % 1000, spread).to(dtype)
    places = [n * 7919 + 1 for n in range(count)]
    found, truth = drawn(logits, places, request), chosen(logits, places, request)
    if top_k == 0 and top_p == 1:
        assert found == truth
    if top_k == 0 and vocab <= sampling.STEPS:
        assert found == truth
    if 0 < top_k < vocab <= sampling.LIKELY:
        assert found == truth
    assert all(one in (its, UNSURE) for one, its in zip(found, truth, strict=True))


NUMBERS = st.one_of(
    st.sampled_from([0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, math.nan, 2.0**-140]),
    st.floats(-(2.0**99), 2.0**99, width=32),
)


@FEW
@given(
    st.lists(NUMBERS, min_size=1, max_size=12),
    st.sampled_from([{}, {"top_p": 0.5}, {"top_k": 2}, {"top_k": 3, "top_p": 0.9}]),
    st.sampled_from([0.8, 1.0, 50.0]),
)
def test_any_numbers(
    small_parts: None, row: list[float], options: dict[str, Any], temperature: float
) -> None:
    """Whatever is not finite, or ties by rounding. A NaN is the row's largest."""
    request = Request("chat", temperature=temperature, seed=3, **options)
    logits = torch.tensor([row])
    with np.errstate(all="ignore"):
        (found,), (truth,) = drawn(logits, [5], request), chosen(logits, [5], request)
    assert found in (truth, UNSURE)
    if not math.isfinite(max(row, key=lambda value: math.inf if math.isnan(value) else value)):
        assert found == -1


def test_different_logits_may_have_one_weight(small_parts: None) -> None:
    """The lower id then comes first, though its logit is not the largest."""
    logits = 15 + torch.tensor([[0, 1, 3, 2, 5, 4], [5, 4, 3, 0, 1, 2]]) * 2.0**-20
    assert [len({*row.tolist()}) for row in (logits, logits / 1.4) for row in row] == [6, 6, 5, 5]
    for seed in range(100 if CUDA else 3):
        for options in ({"top_p": 1e-6}, {"top_p": 0.5}, {"top_k": 1}, {"top_k": 1, "top_p": 0.4}):
            request = Request("chat", temperature=1.4, seed=seed, **options)  # type: ignore[arg-type]
            found, truth = (one(logits, [1, 2], request) for one in (drawn, chosen))
            assert all(mine in (its, UNSURE) for mine, its in zip(found, truth, strict=True))
            if "top_k" in options:
                assert found == truth


OPTIONS = [
    {}, {"top_p": 0.95}, {"top_p": 0.7}, {"top_k": 20}, {"top_k": 300},
    {"top_k": 50, "top_p": 0.8},
]  # fmt: skip


@pytest.mark.parametrize("options", cases([OPTIONS[0], *OPTIONS[2:]], [OPTIONS[0], OPTIONS[5]]))
def test_tokens_of_real_vocabularies_are_known(options: dict[str, Any]) -> None:
    """Of likely tokens in a long tail, and of flat logits as random weights give them."""
    count, vocab = (16, 151_936) if CUDA else (2, 30_000)
    tail = rows_of(count + 1, vocab, 1, 1.5)[:-1] * 2
    tail[:, 1000:1030] += 12
    for logits in (tail, rows_of(count + 1, vocab, 2, 1.0)[:-1]):
        for dtype in (torch.bfloat16, torch.float32):
            request = Request("chat", temperature=0.8, seed=2, **options)
            places, rows = [*range(count)], logits.to(dtype)
            found = drawn(rows, places, request)
            assert UNSURE not in found
            assert found == chosen(rows, places, request)


def test_a_row_does_not_depend_on_the_others(small_parts: None) -> None:
    logits, places = rows_of(5, 200, 4, 2.0), [*range(50, 55)]
    for options in ({}, {"top_p": 0.7}, {"top_k": 20, "top_p": 0.8}):
        request = Request("chat", temperature=0.9, seed=5, **options)  # type: ignore[arg-type]
        whole = drawn(logits, places, request)
        alone = [drawn(logits[n : n + 1], places[n : n + 1], request)[0] for n in range(5)]
        assert alone == whole
        assert len({*whole} - {UNSURE}) > 2


def test_requests_that_the_kernels_know() -> None:
    for top_k, known in ((0, True), (1, True), (CANDIDATES - 1, True), (CANDIDATES, False),
                         (4999, False), (5000, True), (9999, True)):  # fmt: skip
        assert sampling.draws(Request("chat", temperature=1, top_k=top_k), 5000) == known


def test_the_torch_form_is_the_same_on_this_device() -> None:
    """Which draws again what is unsure: a card must divide as a CPU does."""
    logits = rows_of(5, 3000, 6, 2.0)
    places = torch.arange(5, device=DEVICE)
    for options in OPTIONS:
        request = Request("chat", temperature=0.7, seed=9, **options)
        found = batched.drawn(logits.to(DEVICE), places, request).tolist()
        assert found == chosen(logits, places.tolist(), request)
        scaled = batched._scaled(logits.to(DEVICE), request).cpu().numpy()
        assert np.array_equal(scaled, logits.numpy() / np.float32(0.7))


def test_a_pass_draws_by_the_kernels_and_again_where_they_are_unsure(
    tiny: Any, small_parts: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = Config(device=DEVICE.type, dtype="f32", threads=1, graphs="static")
    target = TorchTarget(tiny("llama"), config)
    passes = target.static
    assert passes is not None
    passes.fused = triton_ops
    passes.draw_each_way(passes.step(5, Draft(), passes.scratch(), 0))
    prompt = some_tokens(40, target.vocab)
    begin(target, prompt)
    target.catch_up()
    target.forward(prompt[-1], Draft([5, 6], [-1, -1], [0.5, 0.5], ["test", "test"]))
    passes.ready = True
    rows = rows_of(4, 300, 7, 1.0).to(DEVICE)
    rows[1] = 0.5
    output = PassOutput(torch.empty(4, 1), rows, top(rows))
    drawn, requests = sampling.drawn, []

    def recorded(*given: Any) -> torch.Tensor:
        requests.append(given[-1])
        return drawn(*given)

    monkeypatch.setattr(sampling, "drawn", recorded)
    for options in ({}, {"top_p": 0.9}, {"top_p": 1e-6}, {"top_k": 7}, {"top_k": 7, "top_p": 0.5}):
        request = Request("chat", temperature=0.7, seed=3, **options)  # type: ignore[arg-type]
        expected = chosen(rows[:3].cpu(), [9, 10, 10], request)
        assert passes.choices(output, 3, request, 9) == expected
        assert requests.pop() == request
