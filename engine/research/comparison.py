"""Ways to write with two models, side by side: each model alone, Leviathan's, Chen's and ours.

The comparison that LLMSpeculativeSampling draws. Leviathan's and Chen's rules are the same one
(`engine.sampling.rejection_sampling`); as there, the first keeps caches and the second reads all anew at each step.
What a way took is measured and profiled here, not shown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any, NamedTuple

from engine.drafting.draft_length import best_length, gain
from engine.research.two_models import BatchResult, ModelPair, Round, speculative_decoding

LONGEST = 16  # a draft, when the best length is looked for


class Way(NamedTuple):
    """How a text comes about. `speculates` False: the big model (`little`: the other one) alone."""

    line: str
    speculates: bool = True
    little: bool = False
    options: Mapping[str, Any] = {}


WAYS = {
    "target": Way("the target alone", False),
    "draft": Way("the draft model alone", False, True),
    "leviathan": Way("accept/resample, with caches", options={"verification": "rejection"}),
    "chen": Way(
        "accept/resample, without caches", options={"verification": "rejection", "cached": False}
    ),
    "ours": Way("sample-and-match: the target's own text"),
}


class Timed(NamedTuple):
    """A text and what it took."""

    written: BatchResult
    seconds: float

    @property
    def rate(self) -> float:
        """Tokens a second; the prompt's do not count."""
        return sum(map(len, self.written.tokens)) / self.seconds


class Counters(NamedTuple):
    """LLMSpeculativeSampling's counters."""

    generated: int
    drafted: int
    accepted: int
    corrected: int  # the target's tokens where a draft was refused
    own: int  # the target's tokens behind a whole draft, or none


class Worth(NamedTuple):
    """What drafting is worth, by Leviathan's formulas."""

    alpha: float  # share of the tested tokens that were accepted
    cost: float  # a token's time of the draft model, beside one of the target's
    gain: float  # expected, times plain decoding
    best: int  # the draft length of the largest gain; 0: none gains
    best_gain: float


def write(
    pair: ModelPair, way: str, prompts: Sequence[str], most: int, gamma: int, **sampling: Any
) -> Timed:
    """Texts written in that way."""
    chosen = WAYS[way]
    used = replace(pair, big=pair.little) if chosen.little else pair
    ahead = gamma if chosen.speculates else 0
    began = perf_counter()
    written = speculative_decoding(used, prompts, most, ahead, **chosen.options, **sampling)
    return Timed(written, perf_counter() - began)


def benchmark(
    run: Callable[[str], Timed],
    ways: Sequence[str],
    runs: int,
    report: Callable[[str], None] = lambda line: None,
) -> dict[str, list[Timed]]:
    """Each way `runs` times, by turns, after one run of each that does not count."""
    found: dict[str, list[Timed]] = {way: [] for way in ways}
    for number in range(runs + 1):
        report(f"run {number} of {runs}" if number else "warming up")
        for way in ways:
            one = run(way)
            if number:
                found[way].append(one)
    return found


def rate(found: Sequence[Timed]) -> float:
    """Tokens a second of the median run."""
    return median(one.rate for one in found)


def counters(rounds: Sequence[Round]) -> Counters:
    """Of one text."""
    own = [one for one in rounds if len(one.tokens) > one.accepted]
    return Counters(
        sum(len(one.tokens) for one in rounds),
        sum(one.drafted for one in rounds),
        sum(one.accepted for one in rounds),
        sum(one.accepted < one.drafted for one in own),
        sum(one.accepted == one.drafted for one in own),
    )


def worth(rounds: Sequence[Round], draft_rate: float, target_rate: float, gamma: int) -> Worth:
    """By what was accepted in `rounds` and the two models' own speeds, in tokens a second."""
    accepted = sum(one.accepted for one in rounds)
    tested = sum(min(one.accepted + 1, one.drafted) for one in rounds)
    alpha = accepted / tested if tested else 0.0
    cost = target_rate / draft_rate if draft_rate else 0.0
    best = best_length(alpha, cost, LONGEST)
    return Worth(alpha, cost, gain(alpha, gamma, cost), best, gain(alpha, best, cost))


@contextmanager
def profiled(file: Path) -> Iterator[None]:
    """Write what torch did meanwhile: a trace that TensorBoard, Perfetto and Chrome read."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    activities = [ProfilerActivity.CPU]
    if torch.cuda.is_available():
        activities.append(ProfilerActivity.CUDA)
    with profile(activities=activities) as recorded:
        yield
    recorded.export_chrome_trace(str(file))
