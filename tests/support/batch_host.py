"""A host that batches requests as vLLM does, without a model: what each request writes is given.

Rows are reordered, prompts arrive in parts, requests wait, are preempted and return, and end with
or without an end token. Drafts are verified against what is to be written.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.int32]
Propose = Callable[[list[list[int]], NDArray[np.int32], Ids], list[list[int]]]


@dataclass(slots=True, eq=False)
class HostedRequest:
    """A request, what it will write, and how far it is."""

    prompt: list[int]
    output: list[int]
    written: int = 0
    read: int = 0  # tokens in the cache
    away: int = 0  # steps for which it stays preempted
    new: list[int] = field(default_factory=list)  # what the last pass added
    draft: list[int] = field(default_factory=list)

    @property
    def tokens(self) -> list[int]:
        return self.prompt + self.output[: self.written]

    @property
    def done(self) -> bool:
        return self.written == len(self.output)


@dataclass(slots=True)
class BatchHost:
    """`run` serves all requests."""

    propose: Propose
    chance: random.Random
    context: int = 4096
    rows: int = 8
    chunk: int = 64  # tokens of a prompt read in a step
    preempting: float = 0.1  # how likely a running request is preempted in a step
    filler: int = 7  # in the rows where no token is

    def run(self, requests: list[HostedRequest]) -> Iterator[list[HostedRequest]]:
        """Serve all requests; yields the rows of each step after their drafts were made."""
        waiting, running = list(requests), list[HostedRequest]()
        while waiting or running:
            for one in waiting:
                one.away = max(0, one.away - 1)
            while len(running) < self.rows and (ready := [one for one in waiting if not one.away]):
                waiting.remove(ready[0])
                running.append(ready[0])
            self.chance.shuffle(running)
            for one in running:
                one.new = self.step(one)
            self.ask(running)
            yield list(running)
            running = [one for one in running if not one.done]
            for one in [one for one in running if self.chance.random() < self.preempting]:
                running.remove(one)
                one.read, one.draft, one.away = 0, [], self.chance.randrange(1, 12)
                waiting.append(one)

    def step(self, one: HostedRequest) -> list[int]:
        """What one pass adds to a request: nothing while its tokens are read."""
        size = len(one.prompt) + one.written
        one.read += self.chunk
        if one.read < size:
            return []
        one.read = size
        left = one.output[one.written :]
        count = 1
        while count <= len(one.draft) < len(left) + 1 and one.draft[count - 1] == left[count - 1]:
            count += 1
        count = min(count, len(left))
        one.written += count
        return left[:count]

    def ask(self, running: list[HostedRequest]) -> None:
        """Get the next drafts, from rows as large as the context."""
        rows = np.full((max(self.rows, len(running)), self.context), self.filler, np.int32)
        sizes = np.zeros(len(rows), np.int32)
        for place, one in enumerate(running):
            rows[place, : len(one.tokens)] = one.tokens
            sizes[place] = len(one.tokens)
        drafts = self.propose([one.new for one in running], sizes, rows)
        for one, draft in zip(running, drafts, strict=True):
            one.draft = draft
