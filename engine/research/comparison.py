"""Decoding with two models by different methods, side by side and timed.

The comparison of github.com/feifeibear/LLMSpeculativeSampling: each model alone, the rules of
Leviathan et al. (2022, arXiv 2211.17192) and Chen et al. (2023, arXiv 2302.01318), and ours. The
two published rules are the same (`engine.sampling.rejection_sampling`); as there, the first is run
with KV caches and the second without.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any, NamedTuple

from engine.drafting.draft_length import best_length, expected_speedup
from engine.research.two_models import BatchResult, ModelPair, Round, speculative_decoding

MAX_DRAFT_TOKENS = 16  # considered for the best draft length


class Method(NamedTuple):
    """A decoding method. Without `speculates`: the big model (`little`: the little one) alone."""

    summary: str
    speculates: bool = True
    little: bool = False
    options: Mapping[str, Any] = {}


METHODS = {
    "target": Method("the target alone", False),
    "draft": Method("the draft model alone", False, True),
    "leviathan": Method("accept/resample, with caches", options={"verification": "rejection"}),
    "chen": Method(
        "accept/resample, without caches", options={"verification": "rejection", "cached": False}
    ),
    "ours": Method("sample-and-match: the target's own text"),
}


class TimedRun(NamedTuple):
    """A timed run."""

    written: BatchResult
    seconds: float

    @property
    def rate(self) -> float:
        """New tokens per second."""
        return sum(map(len, self.written.tokens)) / self.seconds


class Counters(NamedTuple):
    """Token counts as LLMSpeculativeSampling reports them."""

    generated: int
    drafted: int
    accepted: int
    corrected: int  # target tokens after a rejected token
    own: int  # target tokens after a fully accepted or empty draft


class ExpectedGain(NamedTuple):
    """Expected gain of drafting by the formulas of Leviathan et al."""

    alpha: float  # share of the tested tokens that were accepted
    cost: float  # time of a draft token relative to a target token
    gain: float  # expected speedup over plain decoding
    best: int  # draft length with the largest gain; 0: plain decoding is best
    best_gain: float


def write(
    pair: ModelPair, way: str, prompts: Sequence[str], most: int, gamma: int, **sampling: Any
) -> TimedRun:
    """Decode with the method `way`, drafting `gamma` tokens per round."""
    method = METHODS[way]
    used = replace(pair, big=pair.little) if method.little else pair
    ahead = gamma if method.speculates else 0
    start = perf_counter()
    written = speculative_decoding(used, prompts, most, ahead, **method.options, **sampling)
    return TimedRun(written, perf_counter() - start)


def benchmark(
    run: Callable[[str], TimedRun],
    ways: Sequence[str],
    runs: int,
    report: Callable[[str], None] = lambda line: None,
) -> dict[str, list[TimedRun]]:
    """Run each method `runs` times in turn, after one warm-up run each."""
    found: dict[str, list[TimedRun]] = {way: [] for way in ways}
    for number in range(runs + 1):
        report(f"run {number} of {runs}" if number else "warming up")
        for way in ways:
            one = run(way)
            if number:
                found[way].append(one)
    return found


def median_rate(found: Sequence[TimedRun]) -> float:
    """Tokens per second of the median run."""
    return median(one.rate for one in found)


def counters(rounds: Sequence[Round]) -> Counters:
    """Counters of one text."""
    own = [one for one in rounds if len(one.tokens) > one.accepted]
    return Counters(
        sum(len(one.tokens) for one in rounds),
        sum(one.drafted for one in rounds),
        sum(one.accepted for one in rounds),
        sum(one.accepted < one.drafted for one in own),
        sum(one.accepted == one.drafted for one in own),
    )


def expected_gain(
    rounds: Sequence[Round], draft_rate: float, target_rate: float, gamma: int
) -> ExpectedGain:
    """From the acceptance in `rounds` and the speeds of both models in tokens per second."""
    accepted = sum(one.accepted for one in rounds)
    tested = sum(min(one.accepted + 1, one.drafted) for one in rounds)
    alpha = accepted / tested if tested else 0.0
    cost = target_rate / draft_rate if draft_rate else 0.0
    best = best_length(alpha, cost, MAX_DRAFT_TOKENS)
    return ExpectedGain(
        alpha, cost, expected_speedup(alpha, gamma, cost), best, expected_speedup(alpha, best, cost)
    )


@contextmanager
def profiled(file: Path) -> Iterator[None]:
    """Record a torch profiler trace, readable by TensorBoard, Perfetto and Chrome."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    activities = [ProfilerActivity.CPU]
    if torch.cuda.is_available():
        activities.append(ProfilerActivity.CUDA)
    with profile(activities=activities) as recorded:
        yield
    recorded.export_chrome_trace(str(file))
