"""Medians of paired runs and their bootstrap confidence intervals.

A pair is one repeat of one prompt, run by two methods one after the other: what slows the machine
down for a while slows both, so the ratio of a pair is steadier than the ratio of two averages.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

RESAMPLES = 2000
SEED = 20261121


class Ratio(NamedTuple):
    """A ratio of speeds and its 95 % confidence interval."""

    value: float
    low: float
    high: float


def pairs(fast: Sequence[float], slow: Sequence[float]) -> list[float]:
    """Ratios of two methods' speeds by repeat. Raises ValueError if they do not pair."""
    if len(fast) != len(slow) or not fast:
        raise ValueError(f"{len(fast)} and {len(slow)} runs: every repeat needs one of each")
    return [one / other for one, other in zip(fast, slow, strict=True)]


def typical(prompts: Sequence[Sequence[float]]) -> float:
    """Return the geometric mean over prompts of the median over a prompt's pairs."""
    return math.exp(sum(math.log(median(prompt)) for prompt in prompts) / len(prompts))


def bootstrap(prompts: Sequence[Sequence[float]], sampled: bool = False) -> Ratio:
    """`typical` and its percentile bootstrap interval, resampling pairs within each prompt.

    sampled: the prompts are themselves a sample, so they are resampled as well; otherwise the
    interval is for exactly these prompts.
    """
    chance = random.Random(SEED)
    drawn = []
    for _ in range(RESAMPLES):
        chosen = chance.choices(prompts, k=len(prompts)) if sampled else prompts
        drawn.append(typical([chance.choices(prompt, k=len(prompt)) for prompt in chosen]))
    drawn.sort()
    low, high = drawn[round(0.025 * (RESAMPLES - 1))], drawn[round(0.975 * (RESAMPLES - 1))]
    return Ratio(typical(prompts), low, high)


def over_tasks(ratios: Sequence[float]) -> Ratio:
    """Return the median over tasks and its percentile bootstrap interval, resampling tasks."""
    chance = random.Random(SEED)
    drawn = sorted(median(chance.choices(ratios, k=len(ratios))) for _ in range(RESAMPLES))
    low, high = drawn[round(0.025 * (RESAMPLES - 1))], drawn[round(0.975 * (RESAMPLES - 1))]
    return Ratio(median(ratios), low, high)


def ratio_of_sums(pairs: Sequence[tuple[float, float]]) -> Ratio:
    """Return the sum of the first numbers over that of the second, with its interval.

    The percentile interval resamples pairs. Raises ValueError if the divisor is 0.
    """
    below = sum(second for _, second in pairs)
    if not below:
        raise ValueError(f"{len(pairs)} pairs whose second numbers sum to 0: no ratio")
    chance = random.Random(SEED)
    drawn = []
    for _ in range(RESAMPLES):
        again = chance.choices(pairs, k=len(pairs))
        if divisor := sum(second for _, second in again):
            drawn.append(sum(first for first, _ in again) / divisor)
    drawn.sort()
    low, high = (drawn[round(share * (len(drawn) - 1))] for share in (0.025, 0.975))
    return Ratio(sum(first for first, _ in pairs) / below, low, high)
