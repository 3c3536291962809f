"""Acceptance at several temperatures, and whether the text equals that without speculation.

These are counts, not times: one run of each is enough.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import Any

from bench.common import report
from bench.common.tasks import Task
from bench.decode.methods import DraftlineRunner

SEED = 7


def acceptance(
    plain: DraftlineRunner,
    ours: DraftlineRunner,
    todo: list[Task],
    temperatures: list[float],
    limit: int,
) -> list[dict[str, Any]]:
    """Tokens per pass and the number of equal texts, by kind of task and temperature."""
    sums: dict[tuple[str, float], list[int]] = defaultdict(lambda: [0, 0, 0, 0, 0, 0])
    for place, task in enumerate(todo):
        for temperature in temperatures:
            report.progress(f"temperature {temperature}", place, len(todo), task.name, "both")
            asked = replace(task, request=replace(task.request, temperature=temperature, seed=SEED))
            slow, fast = plain.run(asked, limit), ours.run(asked, limit)
            drafted = sum(count for count, _ in fast.steps)
            accepted = sum(gained - 1 for _, gained in fast.steps)
            new = (1, slow.text == fast.text, fast.tokens, fast.forwards, drafted, accepted)
            row = sums[task.kind, temperature]
            sums[task.kind, temperature] = [a + b for a, b in zip(row, new, strict=True)]
    return [
        {
            "kind": kind,
            "temperature": temperature,
            "prompts": prompts,
            "equal": equal,
            "tokens": tokens,
            "tokens_per_forward": round(tokens / max(forwards, 1), 3),
            "accepted_share": round(accepted / drafted, 3) if drafted else None,
        }
        for (kind, temperature), (
            prompts, equal, tokens, forwards, drafted, accepted,
        ) in sums.items()
    ]  # fmt: skip
