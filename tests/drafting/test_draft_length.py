"""How long drafts are: the schedules, by hand and by their formulas."""

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
def test_expected_tokens_are_what_chance_gives(length: int, tenths: int) -> None:
    alpha = Fraction(tenths, 10)

    def one_round(chance: Enumerated) -> int:
        accepted = 0
        while accepted < length and chance.happens(alpha):
            accepted += 1
        return accepted + 1

    mean = sum(tokens * share for tokens, share in distribution(one_round).items())
    assert expected_tokens(float(alpha), length) == pytest.approx(float(mean))


@given(st.floats(0, 1), st.floats(0, 2), st.integers(0, 20))
def test_no_length_gains_more_than_the_best(alpha: float, cost: float, most: int) -> None:
    best = best_length(alpha, cost, most)
    assert all(
        expected_speedup(alpha, best, cost) >= expected_speedup(alpha, n, cost)
        for n in range(most + 1)
    )
    if cost > alpha + 1e-6:  # the first token already costs what it brings
        assert best == 0


def test_heuristic_goes_up_by_two_and_down_by_one() -> None:
    lengths, seen = HeuristicLength(), []
    for drafted, accepted in [(5, 5), (7, 7), (9, 8), (8, 0), (0, 0), *[(7, 6)] * 9, (1, 1)]:
        lengths.record(drafted, accepted, 1.0, 1.0)
        seen.append(lengths.begin())
    assert seen == [7, 9, 8, 7, 7, 6, 5, 4, 3, 2, 1, 1, 1, 1, 3]


def test_an_oracle_says_each_rounds_length() -> None:
    lengths = OracleLength([3, 0, 7])
    assert [lengths.begin() for _ in range(5)] == [3, 0, 7, 0, 0]


def rounds(lengths: ConstantLength, probs: list[float]) -> int:
    """Tokens that are drafted where the draft model gives each of them these probabilities."""
    most = lengths.begin()
    for drafted in range(1, most + 1):
        if not lengths.should_continue(drafted, probs[drafted - 1], None):
            return drafted
    return most


def test_it_stops_when_a_refusal_is_likely() -> None:
    """SpecDec++'s rule, by hand: with the lag the product covers the tokens before the last."""
    probs = [0.9, 0.8, 0.5, 0.9, 0.1, 0.9]
    assert rounds(ConfidenceStop(threshold=0.5, bounds=(1, 6)), probs) == 3  # .9 * .8 * .5 < .5
    # the belief that comes with a token is about the one before it: 1, .8, .5 -> below .5 at third
    assert rounds(ConfidenceStop(threshold=0.5, bounds=(1, 6), lag=True), probs) == 3
    assert rounds(ConfidenceStop(threshold=0.7, bounds=(1, 6)), probs) == 5
    assert rounds(ConfidenceStop(threshold=0.1, bounds=(1, 6), lag=True), probs) == 2
    assert rounds(ConfidenceStop(threshold=0.1, bounds=(1, 6)), probs) == 2
    assert rounds(ConfidenceStop(threshold=0.05, bounds=(1, 6)), probs) == 1
    assert rounds(ConfidenceStop(threshold=0.05, bounds=(1, 6), lag=True), probs) == 2
    assert rounds(ConfidenceStop(threshold=0.05, bounds=(4, 6)), probs) == 4
    assert rounds(ConfidenceStop(threshold=1.0, bounds=(1, 6)), probs) == 6
    assert rounds(ConfidenceStop(threshold=0.0, bounds=(1, 6)), [1.0] * 6) == 6


@given(
    st.lists(st.floats(0, 1), min_size=12, max_size=12),
    st.floats(0, 1), st.integers(1, 12), st.integers(1, 12), st.booleans(),
)  # fmt: skip
def test_bounds_hold_and_a_larger_threshold_drafts_more(
    probs: list[float], threshold: float, one: int, other: int, lag: bool
) -> None:
    bounds = (min(one, other), max(one, other))
    found = [
        rounds(ConfidenceStop(threshold=each, bounds=bounds, lag=lag), probs)
        for each in (threshold, 1.0)
    ]
    assert bounds[0] <= found[0] <= found[1] == bounds[1]
    again = ConfidenceStop(threshold=threshold, bounds=bounds, lag=lag)
    assert [rounds(again, probs) for _ in range(3)] == [found[0]] * 3  # nothing stays of a round


def test_adaptive_takes_what_was_measured() -> None:
    """Right and cheap drafts get long, wrong ones stop; later they are tried again."""
    right, wrong, dear = AdaptiveLength(), AdaptiveLength(), AdaptiveLength()
    for _ in range(200):
        count = right.begin()
        right.record(count, count, 0.01 * count, 1.0)
        count = wrong.begin()
        wrong.record(count, 0, 0.2 * count, 1.0)
        count = dear.begin()
        dear.record(count, count, 2.0 * count, 1.0)
    assert right.begin() == right.count == 12
    assert right.cost == pytest.approx(0.01) and right.alpha == pytest.approx(1)
    for lengths in (wrong, dear):
        found = [lengths.begin() for _ in range(3 * RETRY_ROUNDS)]
        assert found.count(0) == len(found) - 3 and max(found) == 2
    for _ in range(60):  # what has become right is found again
        for count in itertools.islice(iter(wrong.begin, -1), RETRY_ROUNDS):
            wrong.record(count, count, 0.01 * count, 1.0)
    assert wrong.begin() == 12


def paced(lengths: ConstantLength, cost: float, trust: float, seed: int) -> float:
    """Seconds a token of many rounds, where a verification takes one second, a drafted token `cost`
    and a token to which the draft model gives p is accepted with `trust` * p."""
    chance, written, seconds = random.Random(seed), 0, 0.0
    for _ in range(4000):
        drafted, accepted, most = 0, 0, lengths.begin()
        while drafted < most:
            prob = chance.choice([1.0, 0.99, 0.9, 0.5])
            accepted += accepted == drafted and chance.random() < trust * prob
            drafted += 1
            if not lengths.should_continue(drafted, prob, None):
                break
        lengths.record(drafted, accepted, cost * drafted, 1.0)
        written, seconds = written + accepted + 1, seconds + cost * drafted + 1
    return seconds / written


@pytest.mark.parametrize("cost", [0.05, 0.2, 0.4, 1.0])
@pytest.mark.parametrize("trust", [1.0, 0.8, 0.5])
def test_adaptive_is_as_fast_as_the_best_constant_length(cost: float, trust: float) -> None:
    """Also where the draft model believes too much in itself, and where no length pays."""
    constant = min(paced(ConstantLength(n), cost, trust, 1) for n in range(13))
    assert (
        paced(AdaptiveLength(), cost, trust, 1) <= constant * 1.04
    )  # it cannot know before it has seen
    if trust == 1 and cost == 0.2:  # what it knows of each token is worth something
        assert paced(AdaptiveLength(), cost, trust, 1) < constant * 0.95


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
    assert rounds(lengths, [0.2] * 12) == 1
    # 3 of 3.2 came true; .73 (so far) * .75 (the next one) * .55 s a token is the .3 s it takes
    assert rounds(lengths, [0.99, 0.9, 0.85, 0.99]) == 3
    assert rounds(lengths, [1.0, 0.99, 0.99, 0.2, 1.0]) < rounds(lengths, [1.0] * 12)


def test_a_bad_start_counts_less_while_something_else_drafts() -> None:
    lengths = AdaptiveLength()
    assert lengths.expected_seconds_per_token(0.5) == 0.5
    lengths.record(5, 0, 1.0, 1.0)  # two seconds for a token
    assert lengths.expected_seconds_per_token(0.5) == pytest.approx((2 + 10 * 0.5) / (1 + 10))
    cost, found = lengths.cost, list[float]()
    for _ in range(300):
        lengths.skip_round()
        found.append(lengths.expected_seconds_per_token(0.5))
    assert found == sorted(found, reverse=True) and found[-1] == pytest.approx(0.5, rel=0.01)
    assert lengths.cost == pytest.approx(cost), "what a token costs stays known"


@pytest.mark.parametrize("kind", [ConstantLength, HeuristicLength, AdaptiveLength])
def test_what_was_seen_is_forgotten(kind: type[ConstantLength]) -> None:
    lengths = kind(6)
    for drafted in (6, 8, 3):
        lengths.record(drafted, drafted // 2, 1.0, 2.0)
        lengths.begin()
    assert vars(lengths) != vars(kind(6)) or kind is ConstantLength
    lengths.forget()
    assert vars(lengths) == vars(kind(6))


def test_bad_numbers_are_one_line() -> None:
    with pytest.raises(ValueError, match="draft length -1: must be 0 or more"):
        ConstantLength(-1)
    with pytest.raises(ValueError, match="bounds 3 2"):
        ConfidenceStop(bounds=(3, 2))
    with pytest.raises(ValueError, match=r"stop threshold 1\.5: must be between 0 and 1"):
        ConfidenceStop(threshold=1.5)
