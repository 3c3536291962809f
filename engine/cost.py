"""Cost: this machine's time of a forward pass over n tokens, measured and kept up to date."""

from __future__ import annotations

import json
import logging
import os
import tempfile
from bisect import bisect_right
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engine.target import Target

log = logging.getLogger(__name__)

GRID = (1, 2, 4, 8, 16, 32, 64)  # tokens a pass that are measured; between them, linear
WEIGHT = 0.1  # of one observed step against what is known


class Cost:
    """Seconds of a pass by its number of tokens; `cost(n)`. Never falls with n. `reading` is the
    seconds a token of a prompt takes."""

    def __init__(self, seconds: list[float], reading: float | None = None) -> None:
        """`seconds` by GRID."""
        self.seconds = list(seconds)
        self.reading = reading or self.seconds[-1] / GRID[-1]

    def __call__(self, rows: int) -> float:
        if rows >= GRID[-1]:
            return self.seconds[-1] * rows / GRID[-1]
        low = bisect_right(GRID, rows) - 1
        share = (rows - GRID[low]) / (GRID[low + 1] - GRID[low])
        below, above = self.seconds[low], max(self.seconds[low : low + 2])
        return below + share * (above - below)

    def saw(self, rows: int, seconds: float) -> None:
        """One step took `seconds`: all points move with the machine's pace (load, context), the
        nearest ones most. One slow step counts at most for twice its due."""
        off = min(max(seconds / self(rows), 0.5), 2.0) - 1.0
        for n, point in enumerate(GRID):
            near = 1.0 if point <= rows * 2 and rows <= point * 2 else 0.5
            self.seconds[n] *= 1.0 + WEIGHT * near * off

    def read(self, tokens: int, seconds: float) -> None:
        """So many tokens of a prompt were read in one pass; few say little about many. Slow passes
        count less than fast ones: a machine that is busy for a while is not a slow machine."""
        if tokens >= GRID[-1]:
            off = min(max(seconds / (tokens * self.reading), 0.5), 2.0) - 1.0
            self.reading *= 1.0 + (WEIGHT / 2 if off > 0 else 2 * WEIGHT) * off


def measure(target: Target, repeats: int = 3) -> Cost:
    """Time passes over 1 ... 64 tokens after a short prompt, head and draft's bookkeeping
    included; medians. The target's sequences are left as they were, but for one scratch one."""
    from engine.records import Draft

    target.begin([1] * 192, 2 * GRID[-1])
    for _ in target.prefill([1] * 192, 2 * GRID[-1]):
        pass
    times: dict[int, list[float]] = {rows: [] for rows in GRID}
    for _ in range(repeats + 1):  # the first round warms up
        for rows in GRID:
            draft = Draft()
            for n in range(rows - 1):
                draft.add(1, n - 1, 1.0, "measure")
            start = perf_counter()
            logits = target.forward(1, draft).logits
            logits[0].argmax().item()
            times[rows].append(perf_counter() - start)
    target.sequences.pop()
    return Cost([median(times[rows][1:]) for rows in GRID])


def remembered(file: Path, key: str, target: Target) -> Cost:
    """The cost kept in `file` (JSON) under `key`; measured where it is new or unreadable."""
    try:
        known = json.loads(file.read_text("utf-8"))[key]
        return Cost([float(known[n]) for n in range(len(GRID))], float(known[len(GRID)]))
    except (OSError, ValueError, KeyError, IndexError, TypeError):
        return measure(target)


def remember(file: Path, key: str, cost: Cost) -> None:
    """Keep a cost for the next start. A folder that cannot be written is only logged."""
    try:
        known = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError):
        known = {}
    known = known if isinstance(known, dict) else {}
    known[key] = [*cost.seconds, cost.reading]
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=file.parent, prefix=file.name)
        with os.fdopen(handle, "w", encoding="utf-8") as out:
            json.dump(known, out, indent=1)
        Path(name).replace(file)
    except OSError as error:
        log.warning("%s: cannot keep what a pass costs here: %s", file, error.strerror)
