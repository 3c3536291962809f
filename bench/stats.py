"""Medians of paired runs and what chance leaves of them. Numbers in, numbers out.

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
    """How many times as fast, and the 95 % interval of it."""

    value: float
    low: float
    high: float


def pairs(fast: Sequence[float], slow: Sequence[float]) -> list[float]:
    """Ratios of two methods' speeds, repeat by repeat. ValueError where they do not pair."""
    if len(fast) != len(slow) or not fast:
        raise ValueError(f"{len(fast)} and {len(slow)} runs: every repeat needs one of each")
    return [one / other for one, other in zip(fast, slow, strict=True)]


def typical(prompts: Sequence[Sequence[float]]) -> float:
    """The geometric mean over prompts of the median over a prompt's pairs."""
    return math.exp(sum(math.log(median(prompt)) for prompt in prompts) / len(prompts))


def bootstrap(prompts: Sequence[Sequence[float]], sampled: bool = False) -> Ratio:
    """`typical` and its percentile interval: pairs are drawn again within each prompt.

    `sampled`: the prompts are a sample of others like them, so they are drawn again too. Without it
    the interval speaks of these prompts only.
    """
    chance = random.Random(SEED)
    drawn = []
    for _ in range(RESAMPLES):
        chosen = chance.choices(prompts, k=len(prompts)) if sampled else prompts
        drawn.append(typical([chance.choices(prompt, k=len(prompt)) for prompt in chosen]))
    drawn.sort()
    low, high = drawn[round(0.025 * (RESAMPLES - 1))], drawn[round(0.975 * (RESAMPLES - 1))]
    return Ratio(typical(prompts), low, high)
