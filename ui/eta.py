"""The progress of a long summary, and the estimated time left."""

from __future__ import annotations

from dataclasses import dataclass, field
from time import perf_counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engine.rag.summarize import SummaryTask
    from engine.records import Step

MIN_FRACTION = 0.02  # of the work that must be done for an estimate


@dataclass
class Eta:
    """Estimates the time left from the events of a summary. Cached tasks, which took no time, are
    left out of the estimate."""

    task: SummaryTask | None = None
    fraction: float = 0.0  # of the work that is done
    cached: float = 0.0  # fraction of the work that was cached
    started: float = field(default_factory=perf_counter)

    def begin(self, task: SummaryTask) -> None:
        """A task has begun."""
        self.task, self.fraction = task, task.start
        if task.cached:
            self.cached += task.stop - task.start
            self.fraction = task.stop

    def step(self, step: Step) -> None:
        """One forward pass. Prefill is most of a task, so only prefill advances the fraction."""
        if self.task and step.prefill:
            read, total = step.prefill
            share = read / max(1, total)
            self.fraction = self.task.start + (self.task.stop - self.task.start) * share

    def end(self) -> None:
        """The task is done."""
        if self.task:
            self.fraction = self.task.stop

    @property
    def remaining_s(self) -> float | None:
        """The estimated time left; None before MIN_FRACTION of the work is done."""
        worked = self.fraction - self.cached
        if worked < MIN_FRACTION:
            return None
        return (perf_counter() - self.started) / worked * (1 - self.fraction)

    def __str__(self) -> str:
        """The number and the title of the task, and the time left."""
        if self.task is None:
            return "waiting"
        text = f"part {self.task.number} of {self.task.total}"
        if self.task.prompt.merges:
            text += ": putting parts together"
        elif self.task.title:
            text += f": {self.task.title}"
        left = self.remaining_s
        return text if left is None else f"{text}; about {format_duration(left)} left"


def format_duration(seconds: float) -> str:
    """A rough duration: `1 s`, `89 s`, `2 min`."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    return f"{round(seconds / 60)} min"
