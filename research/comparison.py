"""Decoding with two models by different methods, side by side and timed.

The comparison of github.com/feifeibear/LLMSpeculativeSampling: each model alone, the methods of
Leviathan et al. (2022, arXiv 2211.17192) and Chen et al. (2023, arXiv 2302.01318), and ours. The
two papers' acceptance rules are the same (`engine.sampling.rejection_sampling`); as in that
repository, the first runs with KV caches and the second without.
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
from research.two_models import BatchResult, ModelPair, Round, speculative_decoding

MAX_DRAFT_TOKENS = 16  # tokens; longer drafts are not considered for the best length


class Method(NamedTuple):
    """A decoding method.

    Without `speculates`, one model decodes alone: the target model, or with `draft_only` the draft
    model.
    """

    summary: str
    speculates: bool = True
    draft_only: bool = False
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

    result: BatchResult
    seconds: float

    @property
    def rate(self) -> float:
        """New tokens per second."""
        return sum(map(len, self.result.tokens)) / self.seconds


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


def decode(
    pair: ModelPair,
    name: str,
    prompts: Sequence[str],
    max_new_tokens: int,
    gamma: int,
    **sampling: Any,
) -> TimedRun:
    """Decode with the method `name`, drafting `gamma` tokens per round."""
    method = METHODS[name]
    models = replace(pair, target_model=pair.draft_model) if method.draft_only else pair
    draft_tokens = gamma if method.speculates else 0
    start = perf_counter()
    result = speculative_decoding(
        models, prompts, max_new_tokens, draft_tokens, **method.options, **sampling
    )
    return TimedRun(result, perf_counter() - start)


def benchmark(
    run: Callable[[str], TimedRun],
    methods: Sequence[str],
    runs: int,
    report: Callable[[str], None] = lambda line: None,
) -> dict[str, list[TimedRun]]:
    """Run each method `runs` times in turn, after one warm-up run each."""
    timed: dict[str, list[TimedRun]] = {method: [] for method in methods}
    for number in range(runs + 1):
        report(f"run {number} of {runs}" if number else "warming up")
        for method in methods:
            measured = run(method)
            if number:
                timed[method].append(measured)
    return timed


def median_rate(runs: Sequence[TimedRun]) -> float:
    """Return the tokens per second of the median run."""
    return median(run.rate for run in runs)


def counters(rounds: Sequence[Round]) -> Counters:
    """Count the tokens of one text."""
    own = [step for step in rounds if len(step.tokens) > step.accepted]
    return Counters(
        sum(len(step.tokens) for step in rounds),
        sum(step.drafted for step in rounds),
        sum(step.accepted for step in rounds),
        sum(step.accepted < step.drafted for step in own),
        sum(step.accepted == step.drafted for step in own),
    )


def expected_gain(
    rounds: Sequence[Round], draft_rate: float, target_rate: float, gamma: int
) -> ExpectedGain:
    """Predict the gain from the acceptance in `rounds` and both models' tokens per second."""
    accepted = sum(step.accepted for step in rounds)
    tested = sum(min(step.accepted + 1, step.drafted) for step in rounds)
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
