"""The time of a step by how its tokens are chosen: greedily, or by sampling."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from bench.gpu.steps import GREEDY, clear, draft_of, place_at, seconds_of, step
from engine.model.torch.torch_target import TorchTarget
from engine.records import Request

CACHED = 1000  # tokens
ROWS = (1, 16, 49, 64)
REQUESTS = {
    "greedy": GREEDY,
    "temperature": Request("complete", temperature=0.8),
    "top-p": Request("complete", temperature=0.8, top_p=0.95),
    "top-k, top-p": Request("complete", temperature=0.8, top_k=20, top_p=0.95),
}


def times(target: TorchTarget) -> Iterator[dict[str, Any]]:
    """Milliseconds of a step by its rows, a column for each way to choose."""
    for rows in ROWS:
        draft = draft_of(rows)
        clear(target)
        place_at(target, CACHED, rows)
        line: dict[str, Any] = {"rows": rows}
        for name, request in REQUESTS.items():
            seconds = seconds_of(
                lambda draft=draft, request=request: step(target, draft, CACHED, request),
                target.device,
            )
            line[name] = round(1000 * seconds, 4)
        yield line
