"""Draft-length schedules, checked against values computed by hand and against their formulas."""

from __future__ import annotations

import itertools
import random
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.drafting.draft_length import (
    RETRY_ROUNDS,
    AdaptiveLength,
    ConfidenceStop,
    ConstantLength,
    HeuristicLength,
    OracleLength,
    best_length,
    expected_speedup,
    expected_tokens,
)
from tests.oracles.probability import Enumerated, distribution


def test_golden_vectors() -> None:
    """Values computed by hand from the formulas of Leviathan et al."""
    assert expected_tokens(0.8, 4) == pytest.approx(3.3616)
    assert expected_speedup(0.8, 4, 0.05) == pytest.approx(2.8013, abs=1e-4)
    assert expected_tokens(0.6, 5) == pytest.approx(2.3834, abs=1e-4)
    assert expected_speedup(0.6, 5, 0.1) == pytest.approx(1.5889, abs=1e-4)


@given(st.integers(0, 6), st.integers(0, 10))
def test_expected_tokens_match_exact_enumeration(length: int, tenths: int) -> None:
    alpha = Fraction(tenths, 10)

    def one_round(chance: Enumerated) -> int:
        accepted = 0
        while accepted < length and chance.happens(alpha):
            accepted += 1
        return accepted + 1

    mean = sum(tokens * prob for tokens, prob in distribution(one_round).items())
    assert expected_tokens(float(alpha), length) == pytest.approx(float(mean))


@given(st.floats(0, 1), st.floats(0, 2), st.integers(0, 20))
def test_best_length_maximizes_the_expected_speedup(
    alpha: float, cost: float, max_length: int
) -> None:
    best = best_length(alpha, cost, max_length)
    assert all(
        expected_speedup(alpha, best, cost) >= expected_speedup(alpha, n, cost)
        for n in range(max_length + 1)
    )
    if cost > alpha + 1e-6:  # even the first token costs more than it saves
        assert best == 0


def test_heuristic_length_grows_by_two_and_shrinks_by_one() -> None:
    lengths, seen = HeuristicLength(), []
    for drafted, accepted in [(5, 5), (7, 7), (9, 8), (8, 0), (0, 0), *[(7, 6)] * 9, (1, 1)]:
        lengths.record(drafted, accepted, 1.0, 1.0)
        seen.append(lengths.begin())
    assert seen == [7, 9, 8, 7, 7, 6, 5, 4, 3, 2, 1, 1, 1, 1, 3]


def test_oracle_length_gives_each_rounds_length() -> None:
    lengths = OracleLength([3, 0, 7])
    assert [lengths.begin() for _ in range(5)] == [3, 0, 7, 0, 0]


def round_length(lengths: ConstantLength, probs: list[float]) -> int:
    """The number of tokens drafted in one round, given the draft model's probability of each."""
    max_length = lengths.begin()
    for drafted in range(1, max_length + 1):
        if not lengths.should_continue(drafted, probs[drafted - 1], None):
            return drafted
    return max_length


def test_drafting_stops_when_a_rejection_is_likely() -> None:
    """SpecDec++'s rule, by hand: with the lag, the product leaves out the last token."""
    probs = [0.9, 0.8, 0.5, 0.9, 0.1, 0.9]
    # .9 * .8 * .5 < .5
    assert round_length(ConfidenceStop(threshold=0.5, bounds=(1, 6)), probs) == 3
    # with the lag, a probability is about the previous token: 1, .8, .5 -> below .5 at the third
    assert round_length(ConfidenceStop(threshold=0.5, bounds=(1, 6), lag=True), probs) == 3
    assert round_length(ConfidenceStop(threshold=0.7, bounds=(1, 6)), probs) == 5
    assert round_length(ConfidenceStop(threshold=0.1, bounds=(1, 6), lag=True), probs) == 2
    assert round_length(ConfidenceStop(threshold=0.1, bounds=(1, 6)), probs) == 2
    assert round_length(ConfidenceStop(threshold=0.05, bounds=(1, 6)), probs) == 1
    assert round_length(ConfidenceStop(threshold=0.05, bounds=(1, 6), lag=True), probs) == 2
    assert round_length(ConfidenceStop(threshold=0.05, bounds=(4, 6)), probs) == 4
    assert round_length(ConfidenceStop(threshold=1.0, bounds=(1, 6)), probs) == 6
    assert round_length(ConfidenceStop(threshold=0.0, bounds=(1, 6)), [1.0] * 6) == 6


@given(
    st.lists(st.floats(0, 1), min_size=12, max_size=12),
    st.floats(0, 1), st.integers(1, 12), st.integers(1, 12), st.booleans(),
)  # fmt: skip
def test_bounds_hold_and_a_larger_threshold_drafts_more(
    probs: list[float], threshold: float, bound: int, other_bound: int, lag: bool
) -> None:
    bounds = (min(bound, other_bound), max(bound, other_bound))
    found = [
        round_length(ConfidenceStop(threshold=each, bounds=bounds, lag=lag), probs)
        for each in (threshold, 1.0)
    ]
    assert bounds[0] <= found[0] <= found[1] == bounds[1]
    reused = ConfidenceStop(threshold=threshold, bounds=bounds, lag=lag)
    # rounds share no state
    assert [round_length(reused, probs) for _ in range(3)] == [found[0]] * 3


def test_adaptive_length_follows_measurements() -> None:
    """Accurate, cheap drafts grow long; wrong or expensive ones stop, and are retried later."""
    accurate, wrong, expensive = AdaptiveLength(), AdaptiveLength(), AdaptiveLength()
    for _ in range(200):
        count = accurate.begin()
        accurate.record(count, count, 0.01 * count, 1.0)
        count = wrong.begin()
        wrong.record(count, 0, 0.2 * count, 1.0)
        count = expensive.begin()
        expensive.record(count, count, 2.0 * count, 1.0)
    assert accurate.begin() == accurate.count == 12
    assert accurate.cost == pytest.approx(0.01) and accurate.alpha == pytest.approx(1)
    for lengths in (wrong, expensive):
        found = [lengths.begin() for _ in range(3 * RETRY_ROUNDS)]
        assert found.count(0) == len(found) - 3 and max(found) == 2
    for _ in range(60):  # a drafter that becomes accurate is used again
        for count in itertools.islice(iter(wrong.begin, -1), RETRY_ROUNDS):
            wrong.record(count, count, 0.01 * count, 1.0)
    assert wrong.begin() == 12


def seconds_per_token(lengths: ConstantLength, cost: float, trust: float, seed: int) -> float:
    """Average seconds per token over many rounds. Verification takes one second and a drafted token
    `cost`; a token with draft probability p is accepted with probability `trust` * p."""
    rng, committed, seconds = random.Random(seed), 0, 0.0
    for _ in range(4000):
        drafted, accepted, max_length = 0, 0, lengths.begin()
        while drafted < max_length:
            prob = rng.choice([1.0, 0.99, 0.9, 0.5])
            accepted += accepted == drafted and rng.random() < trust * prob
            drafted += 1
            if not lengths.should_continue(drafted, prob, None):
                break
        lengths.record(drafted, accepted, cost * drafted, 1.0)
        committed, seconds = committed + accepted + 1, seconds + cost * drafted + 1
    return seconds / committed


@pytest.mark.parametrize("cost", [0.05, 0.2, 0.4, 1.0])
@pytest.mark.parametrize("trust", [1.0, 0.8, 0.5])
def test_adaptive_is_as_fast_as_the_best_constant_length(cost: float, trust: float) -> None:
    """Including where the draft model is overconfident and where drafting never pays."""
    constant = min(seconds_per_token(ConstantLength(n), cost, trust, 1) for n in range(13))
    # the margin covers the first rounds, before anything is measured
    assert seconds_per_token(AdaptiveLength(), cost, trust, 1) <= constant * 1.04
    if trust == 1 and cost == 0.2:  # each token's probability is worth using
        assert seconds_per_token(AdaptiveLength(), cost, trust, 1) < constant * 0.95


def test_adaptive_stops_where_the_next_token_is_unlikely() -> None:
    lengths = AdaptiveLength()
    for _ in range(300):
        lengths.begin()
        for drafted in range(1, 5):
            lengths.should_continue(drafted, 0.8, None)
        lengths.record(4, 3, 4 * 0.3, 1.0)
    assert lengths.alpha == pytest.approx(0.75, rel=0.01)
    assert lengths.cost == pytest.approx(0.3)
    assert lengths.seconds_per_token == pytest.approx(2.2 / 4, rel=0.01)
    assert round_length(lengths, [0.2] * 12) == 1
    # 3 of 3.2 expected were accepted: .73 (so far) * .75 (next) * .55 s a token = the .3 s it costs
    assert round_length(lengths, [0.99, 0.9, 0.85, 0.99]) == 3
    assert round_length(lengths, [1.0, 0.99, 0.99, 0.2, 1.0]) < round_length(lengths, [1.0] * 12)


def test_a_bad_start_fades_while_another_drafter_is_used() -> None:
    lengths = AdaptiveLength()
    assert lengths.expected_seconds_per_token(0.5) == 0.5
    lengths.record(5, 0, 1.0, 1.0)  # two seconds per token
    assert lengths.expected_seconds_per_token(0.5) == pytest.approx((2 + 10 * 0.5) / (1 + 10))
    cost, found = lengths.cost, list[float]()
    for _ in range(300):
        lengths.skip_round()
        found.append(lengths.expected_seconds_per_token(0.5))
    assert found == sorted(found, reverse=True) and found[-1] == pytest.approx(0.5, rel=0.01)
    assert lengths.cost == pytest.approx(cost), "the measured cost is kept"


@pytest.mark.parametrize("kind", [ConstantLength, HeuristicLength, AdaptiveLength])
def test_forget_discards_all_measurements(kind: type[ConstantLength]) -> None:
    lengths = kind(6)
    for drafted in (6, 8, 3):
        lengths.record(drafted, drafted // 2, 1.0, 2.0)
        lengths.begin()
    assert vars(lengths) != vars(kind(6)) or kind is ConstantLength
    lengths.forget()
    assert vars(lengths) == vars(kind(6))


def test_invalid_arguments_raise_one_line_errors() -> None:
    with pytest.raises(ValueError, match="draft length -1: must be 0 or more"):
        ConstantLength(-1)
    with pytest.raises(ValueError, match="bounds 3 2"):
        ConfidenceStop(bounds=(3, 2))
    with pytest.raises(ValueError, match=r"stop threshold 1\.5: must be between 0 and 1"):
        ConfidenceStop(threshold=1.5)
