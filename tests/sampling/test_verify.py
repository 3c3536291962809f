"""Choosing tokens and verifying drafts."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from engine.records import MIN_TEMPERATURE, Draft, Request, RequestError
from engine.sampling.verify import accept, choose, cut, gumbel, mix, warp

# Equal or well apart: values that differ only in float64 would tie in float32.
logits_of = st.lists(st.integers(-1280, 1280).map(lambda n: n / 64), min_size=1, max_size=40)


def noise(seed: int, position: int, token: int) -> float:
    """The Gumbel noise, computed with Python integers."""
    key = mix(mix(seed + 0x9E3779B97F4A7C15) + position * 0x9E3779B97F4A7C15)
    hashed = mix(token * 0x9E3779B97F4A7C15 + key)
    return -math.log(-math.log(((hashed >> 11) + 0.5) * 2.0**-53))


@given(st.integers(-(2**63), 2**64), st.integers(0, 10**6), st.lists(st.integers(0, 2**31 - 1)))
def test_noise_equals_the_reference(seed: int, position: int, tokens: list[int]) -> None:
    found = gumbel(seed, position, torch.tensor(tokens, dtype=torch.int64)).tolist()
    assert found == pytest.approx([noise(seed, position, token) for token in tokens], rel=1e-12)


def test_noise_differs_by_seed_position_and_token() -> None:
    ids = torch.arange(50)
    rows = [gumbel(seed, position, ids) for seed in range(5) for position in range(5)]
    assert len({value for row in rows for value in row.tolist()}) == 25 * 50


def reference_probabilities(logits: list[float], request: Request) -> dict[int, float]:
    """Probabilities after temperature, top-k and top-p, without torch."""
    scaled = np.asarray(logits, np.float32) / np.float32(request.temperature)
    alive = list(range(len(scaled)))
    if 0 < request.top_k < len(alive):
        least = sorted(scaled, reverse=True)[request.top_k - 1]
        alive = [n for n in alive if scaled[n] >= least]
    exps = {n: math.exp(float(scaled[n]) - float(scaled.max())) for n in alive}
    order = sorted(alive, key=lambda n: -exps[n])
    total, before, kept = sum(exps.values()), 0.0, []
    for n in order:
        if not kept or before / total <= request.top_p:
            kept.append(n)
        before += exps[n]
    share = sum(exps[n] for n in kept)
    return {n: exps[n] / share for n in kept}


@given(logits_of, st.floats(0.1, 3), st.integers(0, 10), st.sampled_from([0.3, 0.7, 0.95, 1.0]))
def test_warping_is_temperature_then_top_k_then_top_p(
    logits: list[float], temperature: float, top_k: int, top_p: float
) -> None:
    request = Request("complete", temperature=temperature, top_k=top_k, top_p=top_p)
    ids, weights = warp(torch.tensor(logits), request)
    found = dict(zip(ids.tolist(), (np.exp(weights) / np.exp(weights).sum()).tolist(), strict=True))
    expected = reference_probabilities(logits, request)
    edge = {n for n, p in expected.items() if p < 1e-6}  # below f32, or at top-p's very edge
    if set(found) != set(expected):  # a cumulative sum within rounding of top_p may fall either way
        odd = set(found) ^ set(expected)
        assert all(abs(cumulative(logits, request, n) - top_p) < 1e-5 or n in edge for n in odd)
    else:
        for n, p in expected.items():
            assert found[n] == pytest.approx(p, abs=1e-5)


def cumulative(logits: list[float], request: Request, token: int) -> float:
    """Probability before `token` when sorted, after temperature and top-k."""
    full = reference_probabilities(
        logits, Request("complete", temperature=request.temperature, top_k=request.top_k)
    )
    return sum(p for n, p in full.items() if p > full.get(token, 0.0))


@pytest.mark.parametrize("options", [{}, {"top_k": 4}, {"top_p": 0.7}])
def test_sampled_tokens_have_the_model_s_distribution(options: dict[str, float]) -> None:
    """Chi-square over positions, whose noise is independent."""
    logits = [0.3, 1.2, -0.5, 2.0, 0.0, 1.1]
    request = Request("complete", temperature=0.9, seed=3, **options)  # type: ignore[arg-type]
    expected = reference_probabilities(logits, request)
    draws = 6000
    seen = Counter(choose(torch.tensor(logits), n, request) for n in range(draws))
    assert set(seen) <= set(expected)
    chi = sum((seen[n] - draws * p) ** 2 / (draws * p) for n, p in expected.items())
    assert chi < {5: 25.7, 3: 21.1, 2: 18.4, 1: 15.1}[len(expected) - 1]  # p about 1e-4


@given(logits_of)
def test_greedy_is_the_largest_logit_and_the_lowest_id_on_ties(logits: list[float]) -> None:
    assert choose(torch.tensor(logits), 0, Request("complete")) == logits.index(max(logits))


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_nan_logits_are_an_error(temperature: float) -> None:
    with pytest.raises(ValueError, match="not numbers"):
        choose(torch.full((5,), float("nan")), 0, Request("complete", temperature=temperature))


trees = st.lists(st.tuples(st.integers(-1, 30), st.integers(0, 3)), max_size=25)


@given(trees, st.lists(st.integers(0, 3), min_size=30, max_size=30))
def test_accept_follows_the_text_as_far_as_the_tree_does(
    nodes: list[tuple[int, int]], text: list[int]
) -> None:
    draft = Draft()
    for at, token in nodes:
        parent = min(at, len(draft.tokens) - 1)
        if (token, parent) not in zip(draft.tokens, draft.parents, strict=True):  # siblings differ
            draft.add(token, parent, 0.5, "test")
    prefixes = [()]
    for token, parent in zip(draft.tokens, draft.parents, strict=True):
        prefixes.append((*prefixes[parent + 1], token))  # type: ignore[arg-type]
    path, token = accept(draft, lambda row, depth: text[depth])
    found = tuple(draft.tokens[node] for node in path)
    assert found == tuple(text[: len(found)]) and token == text[len(found)]
    assert (*found, token) not in prefixes  # the path is maximal
    for node, parent in zip(path, [-1, *path], strict=False):
        assert draft.parents[node] == parent


@given(st.lists(st.integers(0, 5), max_size=12), st.sets(st.integers(0, 5)), st.integers(1, 12))
def test_cut_stops_at_the_first_end(tokens: list[int], eos: set[int], room: int) -> None:
    kept, why = cut(tokens, frozenset(eos), room)
    assert kept == tokens[: len(kept)] and len(kept) <= room
    assert not set(kept) & eos
    if why == "eos":
        assert tokens[len(kept)] in eos
    elif why == "length":
        assert len(kept) == room
    else:
        assert kept == tokens


@given(logits_of, st.integers(0, 2**40))
def test_the_lowest_temperature_is_greedy(logits: list[float], seed: int) -> None:
    said = choose(
        torch.tensor(logits), 3, Request("complete", temperature=MIN_TEMPERATURE, seed=seed)
    )
    assert logits[said] == max(logits)


@pytest.mark.parametrize("temperature", [-1, 1e-300, MIN_TEMPERATURE / 2, math.inf, math.nan])
def test_invalid_temperatures_are_refused(temperature: float) -> None:
    with pytest.raises(RequestError, match=r"must be 0 \(greedy\), or 1e-06 and more"):
        Request("complete", temperature=temperature)


@pytest.mark.parametrize("bad", [{"top_k": -1}, {"top_p": 0}, {"top_p": 1.5}, {"max_tokens": -1}])
def test_invalid_sampling_parameters_are_refused(bad: dict[str, float]) -> None:
    with pytest.raises(RequestError, match=next(iter(bad))):
        Request("complete", **bad)  # type: ignore[arg-type]
