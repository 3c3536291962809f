"""How far a long summary is, and how long it still takes. It shows nothing."""

from __future__ import annotations

from dataclasses import dataclass, field
from time import perf_counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engine.rag.summarize import SummaryTask
    from engine.records import Step

SURE = 0.02  # share of the work, after which the time left is told


@dataclass
class Pace:
    """Told of each task and step. What was known before took no time and tells nothing."""

    task: SummaryTask | None = None
    share: float = 0.0  # of the work that is done
    skipped: float = 0.0  # of it, what was known before
    began: float = field(default_factory=perf_counter)

    def begin(self, task: SummaryTask) -> None:
        self.task, self.share = task, task.start
        if task.cached:
            self.skipped += task.stop - task.start
            self.share = task.stop

    def step(self, step: Step) -> None:
        """Most of a task is to read: its writing counts as the end of that."""
        if self.task and step.prefill:
            read, of = step.prefill
            self.share = self.task.start + (self.task.stop - self.task.start) * read / max(1, of)

    def end(self) -> None:
        """The task is done."""
        if self.task:
            self.share = self.task.stop

    @property
    def left(self) -> float | None:
        """Seconds, as estimated from those it took; None where that says too little."""
        worked = self.share - self.skipped
        if worked < SURE:
            return None
        return (perf_counter() - self.began) / worked * (1 - self.share)

    def __str__(self) -> str:
        """Which part of how many, what it is about, and the time left."""
        if self.task is None:
            return "waiting"
        told = f"part {self.task.number} of {self.task.total}"
        if self.task.prompt.merges:
            told += ": putting parts together"
        elif self.task.title:
            told += f": {self.task.title}"
        return told if self.left is None else f"{told}; about {duration(self.left)} left"


def duration(seconds: float) -> str:
    """A time for a person: no more exact than it is known."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    return f"{round(seconds / 60)} min"
