"""The cost of a forward pass on this machine: how long it takes, by its rows and the cached tokens.

Two things are kept apart. The *shape*, how much longer a pass over n rows takes than one over a
single row, decides how much is drafted. It is measured in the background of every process and
corrected by observed passes. The *pace*, how fast the machine is right now, cancels out of every
comparison of two drafts. It is factored out of observations, so a busy minute is not learnt as a
property of long passes.
"""

from __future__ import annotations

import json
import logging
import platform
import re
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from functools import cache
from math import exp, log
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from engine.atomic_write import write_atomically
from engine.model import _kernels

if TYPE_CHECKING:
    from engine.model.native.native_target import NativeTarget
    from engine.model.torch.torch_target import TorchTarget

    Measured = NativeTarget | TorchTarget

logger = logging.getLogger(__name__)

GRID = (1, 2, 4, 8, 16, 32, 64)  # rows of the measured passes
WIDE_GRID = (128, 192, 256)  # rows; also measured where passes of static shape are so wide
POINTS = (*GRID, *WIDE_GRID)  # rows with a correction of their own; linear in between
NEAR_TOKENS, FAR_TOKENS = 256, 2048  # tokens cached while measuring
FAR_GRID = (1, 32)  # rows of the passes measured with FAR_TOKENS
SETTLED = 0.05  # share; measuring ends when no point gets faster by as much in a round
MAX_ROUND_SECONDS = 3.0  # seconds per try on a machine that does not settle
PAUSES_SECONDS = (0.0, 30.0, 120.0, 600.0)  # seconds before each try
CONTEXT_BUCKET = 256  # cached tokens that share a table
MIN_TABLE_ROWS = 256  # rows of a table, at least
REFRESH_PASSES = 16  # observed passes until tables are computed again
PACE_PASSES = 15  # passes whose median is the pace
WEIGHT = 0.1  # share of one observed pass in a correction
PREFILL_TOKENS = 2048  # tokens of prompts read last, whose fastest quarter is the speed of prefill
# logarithms of factors: the largest correction by one pass, and by all of them
MAX_STEP, MAX_BEND = 0.01, 0.5
# one-row passes' times, by POINTS; used until this machine has been measured
USUAL = (1.0, 1.02, 1.08, 1.25, 1.6, 2.6, 4.8)
USUAL_GPU = (1.0, 1.0, 1.0, 1.02, 1.05, 1.1, 1.2, 1.5, 2.2, 2.2)  # 192 rows are padded to 256
USUAL_GROWTH = (1.5e-4, 4e-5)  # one-row passes per cached token: of the pass, and of each row
USUAL_GROWTH_GPU = (1e-5, 1e-7)
Table = NDArray[np.float64]


class CostModel:
    """Expected seconds of a forward pass, by rows and cached tokens; they never fall with rows.

    `prefill`: seconds per token of prefill. One thread at a time.
    """

    def __init__(
        self,
        seconds: Sequence[float],
        prefill: float | None = None,
        growth: tuple[float, float] = (0.0, 0.0),
    ) -> None:
        """Start from `seconds` by POINTS with an empty cache.

        They are as many as are known, at least those of GRID; beyond them time grows with the rows.
        `growth`: seconds that a cached token adds to a pass, and to each of its rows.
        """
        self.measured = self.has_read = False
        self.learn(seconds, growth)
        last = float(self.seconds[len(GRID) - 1])
        self.prefill = last / GRID[-1] if prefill is None else prefill
        # (seconds per token, tokens) of the last passes that read prompts; the first is a guess
        self._reads: deque[tuple[float, int]] = deque([(self.prefill, GRID[-1])])

    def learn(self, seconds: Sequence[float], growth: tuple[float, float]) -> None:
        """Take new measurements and drop all corrections."""
        last, beyond = POINTS[len(seconds) - 1], POINTS[len(seconds) :]
        known = list(seconds) + [seconds[-1] * point / last for point in beyond]
        # Disturbances only make passes slower, so a time above that of a longer pass is wrong.
        self.seconds: Table = np.minimum.accumulate(np.array(known[::-1], np.float64))[::-1]
        self.growth = growth
        self._ratios: deque[float] = deque(maxlen=PACE_PASSES)
        self._seen = 0
        self._observed: list[tuple[int, int, float]] = []  # passes that are not learnt from yet
        self.correct([0.0] * len(POINTS))

    def correct(self, bend: list[float]) -> None:
        """Set the corrections by POINTS, as logarithms of factors."""
        self._bend = bend
        self._factors = np.exp(bend)
        self._tables: dict[int, Table] = {}

    @property
    def bend(self) -> list[float]:
        """The corrections by POINTS, as logarithms of factors."""
        self._learn_observed()
        return self._bend

    def __call__(self, rows: int, context: int = 0) -> float:
        """Return the seconds of a pass over `rows` rows."""
        return float(self._table(context, rows)[rows - 1])

    def table(self, context: int, most: int) -> Table:
        """Return the seconds [most] of passes over 1, 2, ... `most` rows; a read-only view."""
        return self._table(context, most)[:most]

    @property
    def pace(self) -> float:
        """How much longer than expected the last passes took, as a factor."""
        self._learn_observed()
        return exp(middle(self._ratios)) if self._ratios else 1.0

    def _table(self, context: int, most: int) -> Table:
        bucket = context // CONTEXT_BUCKET
        known = self._tables.get(bucket)
        if known is None or len(known) < most:
            known = self._computed((bucket + 0.5) * CONTEXT_BUCKET, max(most, MIN_TABLE_ROWS))
            self._tables[bucket] = known
        return known

    def _computed(self, context: float, most: int) -> Table:
        rows, shares = shares_of_points(most)
        points = self.seconds * self._factors
        base, factors = shares @ points, shares @ self._factors
        base[POINTS[-1] :] *= rows[POINTS[-1] :] / POINTS[-1]
        whole = base + factors * context * (self.growth[0] + self.growth[1] * rows)
        table: Table = np.maximum.accumulate(whole)
        table.flags.writeable = False
        return table

    def observe(self, rows: int, context: int, seconds: float) -> None:
        """Learn from a pass that took `seconds`.

        Its deviation from the pace corrects the nearest points by MAX_STEP at most, however slow it
        was; tables change after REFRESH_PASSES. They are made here, while a card computes.
        """
        self._observed.append((rows, context, seconds))
        self._seen += 1
        if self._seen % REFRESH_PASSES == 0:
            self._learn_observed()
            self.correct(self._bend)
        self._table(context + rows, rows)

    def _learn_observed(self) -> None:
        """Take the observed passes into account, in their order."""
        observed, self._observed = self._observed, []
        for rows, context, seconds in observed:
            ratio = log(max(seconds, 1e-9) / self(rows, context))
            self._ratios.append(ratio)
            off = min(max(WEIGHT * (ratio - middle(self._ratios)), -MAX_STEP), MAX_STEP)
            low = min(bisect_right(POINTS, rows), len(POINTS) - 1) - 1
            share = min((rows - POINTS[low]) / (POINTS[low + 1] - POINTS[low]), 1.0)
            for point, weight in ((low, 1.0 - share), (low + 1, share)):
                moved = self._bend[point] + weight * off
                self._bend[point] = min(max(moved, -MAX_BEND), MAX_BEND)

    def observe_prefill(self, tokens: int, seconds: float) -> None:
        """Learn from a prefill pass over `tokens` tokens that took `seconds`.

        The speed is that of the fastest quarter of the last PREFILL_TOKENS tokens: a busy moment is
        no slow machine, and nothing older counts, whatever it was. A short pass costs more for each
        token; it counts as the part of a longer one that it takes as long as.
        """
        share = self(GRID[-1]) / self(tokens) if tokens < GRID[-1] else GRID[-1] / tokens
        self._reads.append((seconds * share / GRID[-1], tokens))
        while sum(count for _, count in self._reads) - self._reads[0][1] >= PREFILL_TOKENS:
            self._reads.popleft()
        left = sum(count for _, count in self._reads) / 4
        for seconds_per_token, count in sorted(self._reads):
            if left > 0:
                self.prefill = seconds_per_token
            left -= count
        self.has_read = True


@cache
def shares_of_points(most: int) -> tuple[Table, Table]:
    """Return the numbers 1 to `most` and the shares of the values at POINTS that interpolate each.

    Their shapes are [most] and [most, points]. A number beyond the last point gets the last value.
    """
    rows = np.arange(1.0, most + 1)
    shares = np.stack([np.interp(rows, POINTS, unit) for unit in np.eye(len(POINTS))], axis=1)
    return rows, shares


def middle(values: Iterable[float]) -> float:
    """Find the median; the lower one of two. statistics.median takes several times as long."""
    ordered = sorted(values)
    return ordered[(len(ordered) - 1) // 2]


# -- measuring -----------------------------------------------------------------------------------


def guess(target: Measured) -> CostModel:
    """Scale the usual shape by the time of a one-row pass here; runs two passes."""
    on_card = (USUAL_GPU, USUAL_GROWTH_GPU)
    usual, growth = (USUAL, USUAL_GROWTH) if target.device_type == "cpu" else on_card
    probe = scratch(target, 1)
    one = min(timed(probe, 1, 1) for _ in range(2))
    return CostModel([one * times for times in usual], None, (one * growth[0], one * growth[1]))


def measure(target: Measured, cost: CostModel) -> Iterator[float]:
    """Time passes, one per step, until they get no faster, and teach `cost`.

    Yields the seconds to wait before the next step. Requests may run between two steps: the
    target's sequences are left alone, and only the fastest pass of each size counts.
    """
    near, far = (min(tokens, target.context // 4) for tokens in (NEAR_TOKENS, FAR_TOKENS))
    if near < GRID[-1]:
        logger.warning("a context of %d tokens is too short to measure pass times", target.context)
        return
    grid = grid_of(target, near)
    passes = [(near, rows) for rows in grid] + [(far, rows) for rows in FAR_GRID if far > near]
    best: dict[tuple[int, int], float] = {}
    settled = False
    for pause in PAUSES_SECONDS:
        yield pause
        probe, spent = scratch(target, far, grid[-1]), 0.0
        yield 0.0
        while not settled and spent < MAX_ROUND_SECONDS:
            settled = bool(best)
            for one in passes:
                seconds = timed(probe, *one)
                before = best.get(one, seconds)
                settled = settled and seconds > before * (1 - SETTLED)
                best[one] = min(before, seconds)
                spent += seconds
                yield 0.0
        del probe  # its cache
        if settled:
            break
    near_by = {rows: best[near, rows] for rows in grid}
    growth = growth_per_token(
        near_by, {rows: best.get((far, rows), 0.0) for rows in FAR_GRID}, far - near
    )
    cost.learn(
        [max(t - near * (growth[0] + growth[1] * n), 0.1 * t) for n, t in near_by.items()], growth
    )
    if not cost.has_read:
        cost.prefill = near_by[GRID[-1]] / GRID[-1]
    cost.measured = settled


def grid_of(target: Measured, cached: int) -> list[int]:
    """List the rows of the passes to measure behind `cached` tokens.

    They are GRID, and as much of WIDE_GRID as the target's passes of static shape take.
    """
    most = min(target.max_rows, target.context - cached) if target.static is not None else 0
    return [*GRID, *(rows for rows in WIDE_GRID if rows <= most)]


def growth_per_token(
    near: dict[int, float], far: dict[int, float], tokens: int
) -> tuple[float, float]:
    """Compute the seconds that each of `tokens` more cached tokens adds to a pass, and to a row."""
    if tokens <= 0:
        return 0.0, 0.0
    first, last = FAR_GRID[0], FAR_GRID[-1]
    added = {rows: max(far[rows] - near[rows], 0.0) / tokens for rows in FAR_GRID}
    row = max(added[last] - added[first], 0.0) / (last - first)
    return max(added[first] - row * first, 0.0), row


def scratch(target: Measured, context: int, rows: int = GRID[-1]) -> Measured:
    """Copy the target with a pool of its own, for the same model.

    The pool has one sequence of `context` tokens, with capacity for passes of `rows` rows.
    """
    probe = copy(target)
    probe.pool = probe.pool.empty()
    probe.begin([1] * (context + 1), rows)
    for part in probe.sequence.cache:
        part[...] = 0  # untouched memory pages would be read too fast
    return probe


def timed(probe: Measured, context: int, rows: int) -> float:
    """Time one pass over `rows` rows in seconds, with the model's choice as in a step."""
    from engine.records import Draft, Request

    draft = Draft()
    for n in range(rows - 1):  # different tokens, which choose different experts
        draft.add((n + 2) * 7919 % probe.vocab, n - 1, 1.0, "measure")
    probe.sequence.assume([1] * context)
    start = perf_counter()
    scores = probe.forward(1, draft)
    if scores.chosen is None:
        scores.logits[0].argmax().item()
    else:
        scores.chosen(Request("complete"), context + 1)
    return perf_counter() - start


# -- stored for the next start ---------------------------------------------------------------------


def processor() -> str:
    """Return the processor's name, as the system reports it."""
    info = Path("/proc/cpuinfo")
    found = re.search(r"model name\s*:\s*(.+)", info.read_text()) if info.is_file() else None
    return found.group(1) if found else platform.processor() or platform.machine()


def processor_key(model: str, dtype: str, threads: int) -> str:
    """Join all that the time of a pass of `model` on this processor depends on into one string."""
    return ", ".join((model, dtype, processor(), _kernels.isa(), f"{threads} threads"))


def remembered(file: Path, key: str) -> CostModel | None:
    """Load the cost model stored in `file` (JSON) under `key`; None if missing or invalid."""
    try:
        known: dict[str, Any] = json.loads(file.read_text("utf-8"))[key]
        seconds, growth, bend = (
            [float(x) for x in known[name]] for name in ("seconds", "growth", "bend")
        )
        cost = CostModel(seconds, float(known["prefill"]), (growth[0], growth[1]))
        values = [*seconds, cost.prefill]
        usable = len(seconds) == len(bend) == len(POINTS) and all(0 < x < 1e6 for x in values)
        usable = usable and all(0 <= x < 1e6 for x in growth)
        if not usable or not all(abs(x) <= MAX_BEND for x in bend):
            return None
        cost.correct(bend)
    except (OSError, ValueError, KeyError, IndexError, TypeError):
        return None
    return cost


def remember(file: Path, key: str, cost: CostModel) -> None:
    """Store a cost model for the next start. A failure to write is only logged."""
    try:
        known = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError):
        known = {}
    known = known if isinstance(known, dict) else {}
    known[key] = {
        "seconds": cost.seconds.tolist(),
        "growth": cost.growth,
        "bend": cost.bend,
        "prefill": cost.prefill,
    }
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(file, json.dumps(known, indent=1).encode(), 0o600)
    except OSError as error:
        logger.warning("%s: cannot store pass times: %s", file, error.strerror)
