"""Replay recorded edits through the engine's drafter protocol, without a model.

A drafter's `begin`, `propose` and `observe`, and `engine.sampling.verify.accept`, are called as
`engine.generate` calls them; the recorded output stands in for the model's. A step costs what a
pass over its rows does, and plain decoding 1 per token.
"""

from __future__ import annotations

import gc
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

import numpy as np

from engine.drafting import DraftContext, Drafter
from engine.drafting.answer_history import AnswerHistory
from engine.model.cost_model import CostModel
from engine.records import Scores
from engine.sampling.verify import accept
from index.workspace.workspace import Workspace
from research.train.edit_records import Replay, other_files

END_OF_ANSWER = -1  # the choice after an answer's end; never drafted


@dataclass(frozen=True, slots=True)
class ReplaySetup:
    """The parts from which a rule makes the drafter of one replay."""

    replay: Replay
    files: OtherFiles  # the other files; rules cache what they build from them in `files.made`
    prompt: tuple[int, ...]
    budget: int
    costs: CostModel
    made: dict[str, Any] = field(default_factory=dict)  # what rules built from the prediction

    @property
    def workspace(self) -> Workspace:
        return self.files.workspace


@dataclass(frozen=True, slots=True)
class Rule:
    """A named drafting rule. Rules of a family differ only in draft length."""

    name: str
    family: str
    make: Callable[[ReplaySetup], Drafter]
    adapts: bool = False  # whether it sizes its drafts by what passes cost
    needs_likely: bool = False  # whether it drafts from the model's recorded likely tokens


@dataclass(slots=True)
class Tally:
    """Sums over replays."""

    tokens: int = 0
    steps: int = 0
    nodes: int = 0
    accepted: int = 0
    cost: float = 0.0  # of all steps, where a token of plain decoding costs 1
    times: array[float] = field(default_factory=lambda: array("d"))  # seconds of each step

    def add(self, other: Tally) -> None:
        self.tokens += other.tokens
        self.steps += other.steps
        self.nodes += other.nodes
        self.accepted += other.accepted
        self.cost += other.cost
        self.times.extend(other.times)

    @property
    def tokens_per_step(self) -> float:
        return self.tokens / self.steps

    @property
    def precision(self) -> float:
        """The share of drafted nodes that were accepted; 1 if none were drafted."""
        return self.accepted / self.nodes if self.nodes else 1.0

    @property
    def speedup(self) -> float:
        """The time of plain decoding over that of all steps, without drafting's own."""
        return self.tokens / self.cost

    def microseconds(self, share: float) -> float:
        """Return this quantile of the time of propose and observe per step."""
        return float(np.quantile(self.times, share)) * 1e6


def play(
    replay: Replay,
    drafter: Drafter,
    prompt: Sequence[int],
    budget: int,
    costs: CostModel,
    memory: Sequence[list[int]] = (),
) -> tuple[Tally, list[int]]:
    """Replay one answer; returns its tally and the committed tokens. `memory`: earlier answers."""
    context = DraftContext(
        list(prompt),
        [replay.prediction],
        path=workspace_path(replay),
        whole=replay.whole,
        start=replay.start,
        history=list(memory),
    )
    tally, truth, table = Tally(), replay.output, costs.table(0, budget + 1)
    drafter.begin(context)
    while len(context.output) < len(truth):
        done = len(context.output)
        context.capacity = budget
        start = perf_counter()
        draft = drafter.propose(context, None).first(budget)
        seconds = perf_counter() - start

        def choice(row: int, depth: int, done: int = done) -> int:
            return truth[done + depth] if done + depth < len(truth) else END_OF_ANSWER

        path, token = accept(draft, choice)
        found = [draft.tokens[node] for node in path]
        if token != END_OF_ANSWER:
            found.append(token)
        context.output += found
        start = perf_counter()
        cost = float(table[len(draft)])
        drafter.observe(draft, path, found, Scores(None), cost)
        tally.times.append(seconds + perf_counter() - start)
        tally.steps += 1
        tally.cost += cost
        tally.nodes += len(draft)
        tally.accepted += len(path)
    tally.tokens = len(context.output)
    return tally, context.output


def workspace_path(replay: Replay) -> str:
    """Return the path of the replay's file in the workspace."""
    return f"/{replay.package}/{replay.path}"


class OtherFiles:
    """A workspace that holds the other files of the current replay."""

    def __init__(self, workspace: Workspace, replays: list[Replay]) -> None:
        self.workspace = workspace
        self.by_step: dict[str, dict[str, str]] = {}
        packages = {replay.step: replay.package for replay in replays}
        for step, files in other_files(replays).items():
            self.by_step[step] = {f"/{packages[step]}/{path}": text for path, text in files}
        self.shown: dict[str, str] = {}
        self.made: dict[str, Any] = {}  # what rules built from the current files
        ids = (row for replay in replays for row in (replay.output, *replay.likely))
        self.vocabulary = 1 + max(map(max, ids), default=0)  # of the tokens of all answers
        self.kept: dict[str, Any] = {}  # what rules keep from one answer to the next

    def show(self, replay: Replay) -> None:
        """Fill the workspace with the old texts of the replay's step, without the replay's file."""
        wanted = dict(self.by_step[replay.step])
        wanted.pop(workspace_path(replay), None)
        for path in self.shown.keys() - wanted.keys():
            self.workspace.update(path, None)
        for path, text in wanted.items():
            if self.shown.get(path) != text:
                self.workspace.update(path, text)
        if wanted != self.shown:
            self.shown, self.made = wanted, {}

    def ids(self) -> list[list[int]]:
        """Return the token ids of the current files."""
        texts = self.shown.values()
        return [self.workspace.token_cache.encode_buffer(text).ids.tolist() for text in texts]


Key = tuple[str, str, int]  # rule, package, budget


def run(
    replays: list[Replay],
    rules: list[Rule],
    budgets: list[int],
    costs: CostModel,
    workspace: Workspace,
    prompt: tuple[int, ...],
    tallies: dict[Key, Tally],
    session: bool = False,
) -> Iterator[None]:
    """Replay everything by every rule, adding to the tallies by package; yields after each replay.

    session: earlier answers in the same file may be copied, as in the engine.
    """
    files, memory = OtherFiles(workspace, replays), AnswerHistory()
    for replay in replays:
        files.show(replay)
        made: dict[str, Any] = {}
        file = f"{replay.step}: {replay.path}"
        with garbage_collection_paused():
            for rule in rules:
                for budget in budgets if replay.likely or not rule.needs_likely else []:
                    drafter = rule.make(ReplaySetup(replay, files, prompt, budget, costs, made))
                    tally, output = play(replay, drafter, prompt, budget, costs, memory.of(file))
                    if output != replay.output:
                        raise AssertionError(f"{rule.name} changed the answer of {replay.id}")
                    for package in ("all", replay.package):
                        tallies.setdefault((rule.name, package, budget), Tally()).add(tally)
        if session:
            memory.add(file, replay.path, replay.output)
        yield


@contextmanager
def garbage_collection_paused() -> Iterator[None]:
    """Pause garbage collection, which would be timed as part of some steps."""
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.collect(0)  # only young objects: the rest is frozen
        gc.unfreeze()
        gc.enable()
