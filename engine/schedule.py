"""The order of jobs: owners get equal time, and the most urgent job of an owner runs first.

An owner is a key of a server, or a client where there are no keys. Owners take turns in slices of
time, in which more urgent jobs have a lead. Within an owner equally urgent jobs run one after the
other, clients in turns; a job that has waited long for more urgent ones gets a slice between them.
So no number of jobs, of any kind, keeps another owner's job or a chat waiting for long.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from time import monotonic
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engine.worker import Job

SLICE_S = 0.25  # of a job's time, while others wait
LEAD_S = (0.5, 0.25)  # of an owner's time by urgency, by which more urgent jobs may be ahead
MAX_WAIT_S = 1.0  # of a job, for more urgent ones of its owner
MIN_PROGRESS = 2.0  # of a slice, in times of its first step, which may read the prompt again
MAX_CLIENTS = 256  # whose last turns, and owners whose times, are remembered


class Schedule:
    """The jobs that run or wait. Not thread-safe."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._rested: dict[Job, float] = {}  # since when a job has waited, in order of arrival
        self._begun: set[Job] = set()
        self._used: dict[str, float] = {}  # owner -> seconds, the latest to come last
        self._turns: dict[str, int] = {}  # client -> number of its last turn, the latest last
        self._turn = 0
        self._floor = 0.0  # seconds with which an owner that comes now begins
        self._current: Job | None = None
        self._ran = self._least = (
            0.0  # seconds of the current slice, and those that it has at least
        )
        self._is_late = False  # the current job has waited long for more urgent ones, which wait

    def __len__(self) -> int:
        return len(self._rested)

    @property
    def waiting(self) -> list[Job]:
        """The jobs that have not begun, in order of arrival."""
        return [job for job in self._rested if job not in self._begun]

    def add(self, job: Job) -> None:
        """Take in a job."""
        if all(job.owner != other.owner for other in self._rested):
            used = max(self._used.pop(job.owner, 0.0), self._floor)
            self._used[job.owner] = used
            _forget_first(self._used, {one.owner for one in self._rested} | {job.owner})
        self._rested[job] = self._clock()

    def remove(self, job: Job) -> None:
        """Drop a job that has ended."""
        self._rested.pop(job, None)
        self._begun.discard(job)
        if self._current is job:
            self._current = None

    def clear_waiting(self) -> list[Job]:
        """Drop the jobs that have not begun; returns them."""
        dropped = self.waiting
        for job in dropped:
            self.remove(job)
        return dropped

    def ran(self, seconds: float) -> None:
        """Count a step of the current job."""
        assert self._current is not None
        if not self._least:
            self._least = MIN_PROGRESS * seconds
        self._ran += seconds
        self._used[self._current.owner] += seconds
        self._rested[self._current] = self._clock()

    def next(self) -> Job | None:
        """The job whose step is next; None if there are none. Cancelled ones end at once."""
        if not self._rested:
            return None
        chosen = next((job for job in self._rested if job.cancelled()), None) or self._chosen()
        if chosen is not self._current:
            self._current, self._ran, self._least = chosen, 0.0, 0.0
            self._is_late = any(
                job.owner == chosen.owner and job.urgency < chosen.urgency for job in self._rested
            )
        if chosen not in self._begun:
            self._begun.add(chosen)
            self._turn += 1
            self._turns.pop(chosen.client, None)
            self._turns[chosen.client] = self._turn
            _forget_first(self._turns, {chosen.client})
        return chosen

    def _chosen(self) -> Job:
        by_owner: dict[str, list[Job]] = {}
        for job in self._rested:
            by_owner.setdefault(job.owner, []).append(job)
        self._floor = max(self._floor, min(self._used[owner] for owner in by_owner))
        heads = [self._head(jobs) for jobs in by_owner.values()]
        first, current = min(heads, key=self._place), self._current
        if current is None or current not in heads:
            return first
        makes_progress = self._ran < self._least and first.urgency >= current.urgency
        stays = makes_progress or self._place(current) <= self._place(first) + SLICE_S
        return current if stays else first

    def _place(self, job: Job) -> float:
        """The seconds that count against a job among those of other owners."""
        lead = LEAD_S[job.urgency] if job.urgency < len(LEAD_S) else 0.0
        return self._used[job.owner] - lead

    def _head(self, jobs: list[Job]) -> Job:
        """Of one owner's jobs the one that is next."""
        levels: dict[int, list[Job]] = {}
        for job in jobs:
            levels.setdefault(job.urgency, []).append(job)
        urgent, *others = (self._first(levels[urgency]) for urgency in sorted(levels))
        current = self._current
        if current in others and self._is_late and self._ran < max(SLICE_S, self._least):
            return current
        waited = min(others, key=self._rested.__getitem__, default=urgent)
        return waited if self._clock() - self._rested[waited] >= MAX_WAIT_S else urgent

    def _first(self, jobs: list[Job]) -> Job:
        """Of equally urgent jobs the one that has begun, or else that of the client whose last turn
        is longest ago."""
        begun = next((job for job in jobs if job in self._begun), None)
        return begun or min(jobs, key=lambda job: self._turns.get(job.client, 0))


def _forget_first(known: dict[str, int] | dict[str, float], kept: Iterable[str]) -> None:
    """Keep MAX_CLIENTS names, the latest ones and those that are `kept`."""
    if len(known) > MAX_CLIENTS and (old := next((one for one in known if one not in kept), None)):
        del known[old]
