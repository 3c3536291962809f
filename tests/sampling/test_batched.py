"""Choosing tokens for all rows at once gives the tokens of `verify.choose` row by row."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.model.torch.cuda.torch_ops import top
from engine.records import Draft, Request
from engine.sampling.batched import (
    CANDIDATES,
    UNSURE,
    best,
    choose_on_device,
    drawn,
    drawn_early,
    has_candidates,
    noise,
)
from engine.sampling.verify import agreed, choose, gumbel


def rows_of(count: int, vocab: int, seed: int, spread: float) -> torch.Tensor:
    """Random logits with some ties."""
    chance = torch.Generator().manual_seed(seed)
    logits = torch.randn(count, vocab, generator=chance) * spread
    ties = torch.rand(count, vocab, generator=chance) < 0.2
    return torch.where(ties, logits.round(), logits)


def greedy(logits: torch.Tensor) -> torch.Tensor:
    """The greedy choice of every row, which every pass gives, too."""
    found = best(logits)
    assert torch.equal(top(logits)[: len(logits)].long(), found)
    return found


@settings(max_examples=60)
@given(
    st.integers(1, 40),
    st.integers(1, 90),
    st.integers(-(2**70), 2**70),
    st.sampled_from([0.0, 0.01, 0.3, 0.8, 1.0, 2.5]),
    st.sampled_from([0, 1, 3, 20, 89, 90, 500]),
    st.sampled_from([1.0, 0.95, 0.6, 0.1, 1e-6]),
    st.sampled_from([0.1, 3.0, 30.0]),
    st.sampled_from([torch.float32, torch.bfloat16]),
)
def test_tokens_equal_those_chosen_one_row_at_a_time(
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
    positions = torch.arange(count) * 7919 % 100_000
    found = greedy(logits) if temperature == 0 else drawn(logits, positions, request)
    expected = [
        choose(row.float(), int(place), request)
        for row, place in zip(logits, positions, strict=True)
    ]
    assert found.tolist() == expected


@settings(max_examples=60)
@given(
    st.sampled_from([50, CANDIDATES, CANDIDATES + 1, 3000]),
    st.integers(0, 2**40),
    st.sampled_from([0.3, 1.0, 2.5]),
    st.sampled_from([0, 1, 20, CANDIDATES - 1]),
    st.sampled_from([1.0, 0.95, 0.6, 1e-6]),
    st.sampled_from([0.1, 1.0, 4.0, 30.0]),
    st.sampled_from([torch.float32, torch.bfloat16]),
)
def test_candidates_give_the_token_of_the_whole_row_or_none(
    vocab: int,
    seed: int,
    temperature: float,
    top_k: int,
    top_p: float,
    spread: float,
    dtype: torch.dtype,
) -> None:
    """Whatever ties there are at the last candidate. Vocabularies of candidates only are always
    sure."""
    request = Request("chat", temperature=temperature, top_k=top_k, top_p=top_p, seed=seed)
    logits = rows_of(5, vocab, seed % 1000, spread).to(dtype)
    logits[3] = 0.25
    logits[4, 7] = float("nan")
    positions = torch.arange(5) * 7919
    if not has_candidates(request):
        assert top_k == 0 and top_p == 1
        return
    early, whole = (one(logits, positions, request).tolist() for one in (drawn_early, drawn))
    assert all(mine in (its, UNSURE) for mine, its in zip(early, whole, strict=True))
    for row, place, token in zip(logits[:4], positions.tolist(), whole, strict=False):
        assert choose(row.float(), place, request) == token
    assert early[4] == whole[4] == -1
    if vocab <= CANDIDATES:
        assert early == whole


def test_likely_tokens_are_known_from_the_candidates() -> None:
    """With logits as real models have them nothing is unsure; with equal ones all is."""
    logits = rows_of(40, 20_000, 1, 1.5) * 2
    logits[:, :30] += 12
    positions = torch.arange(40)
    for options in ({"top_p": 0.95}, {"top_k": 20}, {"top_k": 50, "top_p": 0.8}):
        request = Request("chat", temperature=0.8, seed=2, **options)  # type: ignore[arg-type]
        whole = drawn(logits, positions, request)
        assert torch.equal(drawn_early(logits, positions, request), whole)
        assert len(set(whole.tolist())) > 5
        flat = drawn_early(torch.zeros(3, 2000), positions[:3], request)
        assert flat.tolist() == [UNSURE] * 3


@pytest.mark.parametrize("vocab", [40, 3000])
@pytest.mark.parametrize("options", [{}, {"top_p": 0.9}, {"top_k": 5}])
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_one_token_and_its_probability(
    vocab: int, options: dict[str, float], temperature: float
) -> None:
    request = Request("chat", temperature=temperature, seed=8, **options)  # type: ignore[arg-type]
    for place, row in enumerate([*rows_of(10, vocab, 3, 3.0), torch.zeros(vocab)]):
        token, chance = choose_on_device(row, place, request)
        assert token == choose(row, place, request)
        assert chance == pytest.approx(float(row.softmax(0)[token]), rel=1e-5)
    with pytest.raises(ValueError, match="not numbers"):
        choose_on_device(torch.full((vocab,), float("nan")), 0, request)


def test_the_number_of_rows_does_not_matter() -> None:
    request = Request("chat", temperature=0.9, top_p=0.9, seed=5)
    logits, positions = rows_of(37, 500, 1, 3.0), torch.arange(37)
    whole = drawn(logits, positions, request)
    assert torch.equal(drawn(logits, positions, request, max_rows=1), whole)
    assert torch.equal(drawn(logits[5:9], positions[5:9], request), whole[5:9])
    assert len(set(whole.tolist())) > 10


@pytest.mark.parametrize("seed", [0, 1, -1, 2**63, 2**64 - 1, -(2**80)])
def test_noise_equals_that_of_a_single_position(seed: int) -> None:
    ids = torch.arange(1000)
    positions = torch.tensor([0, 1, 17, 131_071])
    found = noise(seed, positions, ids)
    for row, position in zip(found, positions.tolist(), strict=True):
        same = gumbel(seed, position, ids)  # but for the last bits of logarithms
        np.testing.assert_allclose(row.numpy(), same, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_nan_and_infinite_logits_fail_only_on_the_accepted_path(bad: float) -> None:
    logits = torch.zeros(3, 8)
    logits[0, 4] = 5
    logits[2] = bad
    tree = Draft([4, 3], [-1, -1], [1.0, 1.0], ["", ""])
    for rows in (greedy(logits), drawn(logits, torch.arange(3), Request("chat", temperature=0.01))):
        assert rows.tolist()[0] == 4
        assert rows.tolist()[2] == -1
        assert agreed(tree, rows.tolist()) == ([0], rows.tolist()[1])  # row 2 is not reached
    logits[0] = bad
    for rows in (greedy(logits), drawn(logits, torch.arange(3), Request("chat", temperature=1))):
        with pytest.raises(ValueError, match="not numbers"):
            agreed(tree, rows.tolist())
