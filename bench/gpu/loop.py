"""Wall time of a decoding step of recorded edits, and the card's part of it.

What the card did not compute it waited for: Python, launches, transfers. The edits are decoded
twice: freely, and with two events around every replayed graph, which cost some microseconds.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median
from typing import Any

import torch

from bench.gpu.edits import RecordedEdits
from bench.gpu.generation import ForcedDraftline
from bench.gpu.steps import synchronize
from engine.model.torch.torch_target import TorchTarget

EDITS = 9  # edits decoded each time
WARM_UP_TOKENS = 40
Spans = list[tuple[int, Any, Any]]  # (bucket, event before, event after)


def measure(target: TorchTarget, recorded: RecordedEdits) -> dict[str, Any]:
    """Microseconds of a step, whole and of the card, and the costs by which drafts were sized."""
    mine = ForcedDraftline(target, recorded)
    mine.draftline(recorded.answers[0].from_middle(WARM_UP_TOKENS))
    found = {"budget": target.budget} | decoded(mine, recorded)
    with watched(target) as spans:
        again = decoded(mine, recorded)
    synchronize(target.device)
    if spans:
        by_bucket: dict[int, list[float]] = {}
        for bucket, before, after in spans:
            by_bucket.setdefault(bucket, []).append(before.elapsed_time(after))
        card = 1000 * sum(map(sum, by_bucket.values())) / len(spans)
        found |= {
            "watched_us_per_step": again["us_per_step"],
            "card_us_per_step": round(card, 1),
            "card_ms": {rows: round(median(ms), 4) for rows, ms in sorted(by_bucket.items())},
        }
    return found | {"costs_ms": [round(1000 * one, 4) for one in mine.cost.seconds.tolist()]}


def decoded(mine: ForcedDraftline, recorded: RecordedEdits) -> dict[str, Any]:
    """Decode the edits once."""
    runs = [mine.draftline(answer) for answer in recorded.answers[:EDITS]]
    seconds, passes = sum(run.seconds for run in runs), sum(run.passes for run in runs)
    tokens = sum(run.tokens for run in runs)
    return {
        "us_per_step": round(1e6 * seconds / passes, 1),
        "tokens_per_step": round(tokens / passes, 2),
        "tokens_per_s": round(tokens / seconds, 1),
    }


@contextmanager
def watched(target: TorchTarget) -> Iterator[Spans]:
    """Put an event before and after every replayed graph."""
    spans: Spans = []
    graphs: Any = target.static.graphs if target.static is not None else None
    if graphs is None or target.device.type != "cuda":
        yield spans
        return
    replay = graphs.replay

    def between_events(bucket: int) -> Any:
        events = [torch.cuda.Event(enable_timing=True) for _ in range(2)]  # type: ignore[no-untyped-call]
        events[0].record()
        said = replay(bucket)
        events[1].record()
        spans.append((bucket, *events))
        return said

    graphs.replay = between_events
    try:
        yield spans
    finally:
        del graphs.replay  # the method again
