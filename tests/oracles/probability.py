"""Exact distributions: enumerates every run of a program that makes random decisions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

import numpy as np


class Enumerated:
    """Follows a script of decisions, then takes the first possible outcome."""

    def __init__(self, script: list[int]) -> None:
        self.script, self.taken = script, 0
        self.weight = Fraction(1)
        self.open: list[list[int]] = []  # scripts of the alternatives

    def happens(self, probability: Any) -> bool:
        return bool(self.pick(np.array([1 - probability, probability])))

    def pick(self, weights: Any) -> int:
        total = sum(weights)
        possible = [n for n, weight in enumerate(weights) if weight > 0]
        if self.taken == len(self.script):
            self.open += [[*self.script, n] for n in possible[1:]]
            self.script = [*self.script, possible[0]]
        found = self.script[self.taken]
        self.taken += 1
        self.weight *= Fraction(weights[found]) / total
        return found


def runs(program: Callable[[Enumerated], Any]) -> Iterator[tuple[Any, Fraction]]:
    """The result and probability of every possible run of `program`."""
    scripts: list[list[int]] = [[]]
    while scripts:
        chance = Enumerated(scripts.pop())
        result = program(chance)
        scripts += chance.open
        yield result, chance.weight


def distribution(program: Callable[[Enumerated], Any]) -> dict[Any, Fraction]:
    """Result -> exact probability."""
    found: dict[Any, Fraction] = {}
    for result, weight in runs(program):
        found[result] = found.get(result, Fraction(0)) + weight
    assert sum(found.values()) == 1
    return found


def least_likely(counts: dict[Any, int], expected: dict[Any, float]) -> float:
    """Chi-square statistic of `counts` against expected probabilities, in standard deviations above
    its mean. Outcomes expected fewer than five times are pooled."""
    total = sum(counts.values())
    assert set(counts) <= {kind for kind, share in expected.items() if share > 0}
    common = [kind for kind, share in expected.items() if share * total >= 5]
    pairs = [(counts.get(kind, 0), expected[kind] * total) for kind in common]
    rest = total - sum(share for _, share in pairs)
    if rest >= 5:
        pairs.append((total - sum(count for count, _ in pairs), rest))
    square = sum((count - share) ** 2 / share for count, share in pairs)
    freedom = len(pairs) - 1
    return float((square - freedom) / (2 * freedom) ** 0.5)
