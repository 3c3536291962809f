"""The time between passes: what Python and launches take of a step, on a stub card.

The decoding loop, the drafter and the static passes are the product's; only the passes themselves
are replaced by ready results, as a card that costs nothing would give them. So what remains of a
step is what a card waits for. What is done between a launch and the wait for its result (the text
of the last step, what the drafter learns) is no part of it: a card computes meanwhile. Small
tensors are on the CPU, where copying one to the "device" takes about as long as launching a graph
on a card. The choices are those of recorded edits. Times are those of the thread on its processor,
so that other programs do not count. A step's is that of runs without further clocks; its parts are
those of other runs, whose clocks take some microseconds.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from copy import copy
from statistics import median
from time import thread_time
from typing import Any

import torch

from bench.gpu.edits import RecordedAnswer, RecordedEdits, agreeing_rows
from bench.gpu.generation import EmptyLibrary
from engine.config import Config
from engine.drafting._drafting import Recycling
from engine.drafting.drafter_weights import load_weights
from engine.drafting.next_token import NextTokenDrafter, NextTokenModel
from engine.drafting.recycling import WIDTH
from engine.generate import Generation, generate
from engine.model.cost_model import USUAL_GPU, CostModel
from engine.model.torch.cuda.cuda_graphs import buckets_of
from engine.model.torch.cuda.static_pass import BUCKETS, PassOutput, bucket_of
from engine.model.torch.cuda.torch_ops import top
from engine.model.torch.torch_target import TorchTarget
from engine.prompts.builder import Prompt
from engine.records import Draft, Request, Scores, Step

MEANWHILE = "meanwhile"  # the part that a pass overlaps
PARTS = ("propose", "inputs", "launch", MEANWHILE, "verify", "keep", "observe", "rest")
PASS_SECONDS = 1e-3  # seconds of a pass over one row, by which drafts are sized
RUNS = 5
Times = dict[str, float]


class StubCard:
    """Captured passes that are not run: their results are made beforehand."""

    def __init__(self, target: TorchTarget) -> None:
        assert target.static is not None
        self.static = target.static
        width, vocab, dtype = target.model.width, target.vocab, target.model.dtype
        chance = torch.Generator().manual_seed(0)
        logits = torch.randn(BUCKETS[-1], vocab, generator=chance).to(dtype)
        states = torch.zeros(BUCKETS[-1], width, dtype=dtype)
        self.outputs = {
            size: PassOutput(states[:size], logits[:size], top(logits[:size]))
            for size in buckets_of(self.static)
        }

    def use(self, static: Any, bucket: int) -> None:
        pass

    def replay(self, bucket: int) -> PassOutput:
        output = self.outputs[bucket]
        self.static.deliver(output)
        return output

    def use_read(self, static: Any, rows: int) -> None:
        pass

    def replay_read(self, rows: int) -> None:
        """Prompts are read before the clock starts."""

    def warm(self, static: Any) -> Iterator[tuple[int, int]]:
        yield 0, 0


class StubTarget:
    """A TorchTarget on a stub card that chooses the recorded tokens."""

    def __init__(self, target: TorchTarget, card: StubCard, answer: RecordedAnswer) -> None:
        self.target, self.card, self.answer = copy(target), card, answer
        self.stub_seconds = 0.0  # seconds of preparing results, which is no part of a step

    def forward(self, last: int, draft: Draft, hidden: bool = False) -> Scores:
        """Stand for the target's own pass."""
        start = thread_time()
        self.target.catch_up()
        done = len(self.target.tokens) + 1 - len(self.answer.prompt)
        rows, tokens = agreeing_rows(draft, self.answer.output[done:])
        self.card.outputs[bucket_of(1 + len(draft))].top[rows] = torch.tensor(tokens).int()
        self.stub_seconds += thread_time() - start
        return TorchTarget.forward(self.target, last, draft, hidden)


class Clock:
    """Adds up the seconds of calls by part, and those between a launch and its verification."""

    def __init__(self, parts: tuple[str, ...]) -> None:
        """Start at zero. `parts`: those that are measured."""
        self.seconds = dict.fromkeys(parts, 0.0)
        self._launched = 0.0  # when the last pass was launched

    def timed(self, part: str, call: Callable[..., Any]) -> Callable[..., Any]:
        """`call`, whose time counts as that of `part`, if that is measured."""

        def run(*given: Any, **named: Any) -> Any:
            start = thread_time()
            if part == "verify":
                self.seconds[MEANWHILE] += start - self._launched
            found = call(*given, **named)
            end = thread_time()
            if part == "launch":
                self._launched = end
            if part in self.seconds:
                self.seconds[part] += end - start
            return found

        return run


def stub_card(target: TorchTarget) -> StubCard:
    """Put a stub card under a target with passes of static shape."""
    card = StubCard(target)
    card.static.graphs = card
    return card


def host_us(target: TorchTarget, recorded: RecordedEdits, budget: int) -> dict[str, Any]:
    """Microseconds of a step, whole and by part: medians of RUNS runs over all recorded edits."""
    card = stub_card(target)
    model = NextTokenModel(recorded.vocabulary, EmptyLibrary(), load_weights())  # type: ignore[arg-type]
    runs: list[Times] = []
    gc.collect()
    gc.freeze()  # as `serve` does
    for _ in range(RUNS + 1):  # the first one warms up
        run: Times = {}
        for parts in ((MEANWHILE,), PARTS):  # without further clocks, and with them
            took = dict.fromkeys((*parts, "host_us"), 0.0)
            steps = nodes = tokens = 0
            cost = CostModel([PASS_SECONDS * times for times in USUAL_GPU])
            table = Recycling(target.vocab, WIDTH)
            for answer in recorded.answers:
                drafter, clock = NextTokenDrafter(model, cost, budget, None, table), Clock(parts)
                stub = StubTarget(target, card, answer)
                written, whole = play(stub, recorded, answer, drafter, clock)
                took["host_us"] += whole
                for part, seconds in clock.seconds.items():
                    took[part] += seconds
                steps += written.usage.forwards
                nodes += written.usage.drafted
                tokens += len(written.output)
            run = {part: 1e6 * seconds / steps for part, seconds in took.items()} | run
        runs.append(run)
    found = {part: round(median(run[part] for run in runs[1:]), 1) for part in (*PARTS, "host_us")}
    each = {"nodes_per_step": round(nodes / steps, 1), "tokens_per_step": round(tokens / steps, 1)}
    return {"budget": budget, "steps": steps, **each, **found}


def play(
    stub: StubTarget,
    recorded: RecordedEdits,
    answer: RecordedAnswer,
    drafter: NextTokenDrafter,
    clock: Clock,
) -> tuple[Generation, float]:
    """Decode an answer; return its text, and the seconds that a card waits for.

    RuntimeError if the text is not the recorded one.
    """
    target, start = stub.target, thread_time()
    prompt = Prompt(
        answer.prompt, answer.predictions, max_tokens=len(answer.output), whole=answer.whole
    )
    written = Generation(Request("complete"), prompt, recorded, target.context)  # type: ignore[arg-type]
    for part in ("propose", "observe"):
        setattr(drafter, part, clock.timed(part, getattr(drafter, part)))
    written.verify = clock.timed("verify", written.verify)  # type: ignore[method-assign]
    target.forward = clock.timed("launch", stub.forward)  # type: ignore[method-assign]
    target.keep = clock.timed("keep", target.keep)  # type: ignore[method-assign]
    static: Any = target.static
    send = static.send
    static.send = clock.timed("inputs", send)
    try:
        with target.within():
            for event in generate(written, target, drafter):
                if isinstance(event, Step) and event.prefill is not None:
                    start = thread_time()
        whole = thread_time() - start - stub.stub_seconds
    finally:
        static.send = send
    if written.output != answer.output:
        raise RuntimeError(f"{answer.id}: the text differs from the recorded one")
    if "launch" in clock.seconds:
        clock.seconds["launch"] -= clock.seconds["inputs"] + stub.stub_seconds
        clock.seconds["rest"] = whole - sum(clock.seconds.values())
    return written, whole - clock.seconds[MEANWHILE]


def config(nodes: int) -> Config:
    """Make the config of the target that a stub card is put under.

    It is for drafts of up to `nodes` nodes.
    """
    return Config(device="cpu", dtype="f32", threads=1, graphs="static", budget=nodes)
