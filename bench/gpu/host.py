"""The time between passes: what Python and launches take of a step, on a stub card.

The decoding loop, the drafter and the static passes are the product's; only the passes themselves
are replaced by ready results, as a card that costs nothing would give them. So what remains of a
step is what a card waits for. Small tensors are on the CPU, where copying one to the "device" takes
about as long as starting the copy to a card. The choices are those of recorded edits. Times are
those of the thread on its processor, so that other programs do not count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from statistics import median
from time import thread_time
from typing import Any

import torch

from bench.gpu.edits import RecordedAnswer, RecordedEdits, agreeing_rows
from bench.gpu.generation import EmptyLibrary
from engine.config import Config
from engine.drafting._drafting import Recycling
from engine.drafting.drafter_weights import load_weights
from engine.drafting.methods.token_recycling import WIDTH
from engine.drafting.next_token import NextTokenDrafter, NextTokenModel
from engine.generate import Generation, generate
from engine.model.cost_model import USUAL_GPU, CostModel
from engine.model.cuda.static_pass import BUCKETS, PassOutput, bucket_of
from engine.model.cuda.torch_ops import top
from engine.model.torch_target import TorchTarget
from engine.prompts.builder import Prompt
from engine.records import Draft, Request, Scores, Step

PARTS = ("propose", "inputs", "launch", "verify", "keep", "observe", "rest")
PASS_SECONDS = 1e-3  # of a pass over one row, by which drafts are sized
RUNS = 5
Times = dict[str, float]


class StubCard:
    """Captured passes that are not run: their results are made beforehand."""

    def __init__(self, target: TorchTarget) -> None:
        width, vocab, dtype = target.model.width, target.vocab, target.model.dtype
        chance = torch.Generator().manual_seed(0)
        logits = torch.randn(BUCKETS[-1], vocab, generator=chance).to(dtype)
        states = torch.zeros(BUCKETS[-1], width, dtype=dtype)
        self.outputs = {
            size: PassOutput(states[:size], logits[:size], top(logits[:size])) for size in BUCKETS
        }

    def use(self, static: Any, bucket: int) -> None:
        pass

    def replay(self, bucket: int) -> PassOutput:
        return self.outputs[bucket]

    def warm(self, static: Any) -> Iterator[tuple[int, int]]:
        yield 0, 0


class StubTarget:
    """A TorchTarget on a stub card that chooses the recorded tokens."""

    def __init__(self, target: TorchTarget, card: StubCard, answer: RecordedAnswer) -> None:
        self.target, self.card, self.answer = target, card, answer
        self.stub_seconds = 0.0  # of preparing results, which is no part of a step

    def __getattr__(self, name: str) -> Any:
        return getattr(self.target, name)

    def forward(self, last: int, draft: Draft, hidden: bool = False) -> Scores:
        start = thread_time()
        done = len(self.target.tokens) + 1 - len(self.answer.prompt)
        rows, tokens = agreeing_rows(draft, self.answer.output[done:])
        self.card.outputs[bucket_of(1 + len(draft))].top[rows] = torch.tensor(tokens).int()
        self.stub_seconds += thread_time() - start
        return self.target.forward(last, draft, hidden)


class Clock:
    """Adds up the seconds of calls by part."""

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(PARTS, 0.0)

    def timed(self, part: str, call: Callable[..., Any]) -> Callable[..., Any]:
        """`call`, whose time counts as that of `part`."""

        def run(*given: Any, **named: Any) -> Any:
            start = thread_time()
            found = call(*given, **named)
            self.seconds[part] += thread_time() - start
            return found

        return run


def stub_card(target: TorchTarget) -> StubCard:
    """Put a stub card under a target with passes of static shape."""
    assert target.static is not None
    card = StubCard(target)
    target.static.graphs = card
    return card


def host_us(target: TorchTarget, recorded: RecordedEdits, budget: int) -> dict[str, Any]:
    """Microseconds of a step by part: medians of RUNS runs over all recorded edits."""
    card = stub_card(target)
    model = NextTokenModel(recorded.vocabulary, EmptyLibrary(), load_weights())  # type: ignore[arg-type]
    runs: list[Times] = []
    steps = nodes = tokens = 0
    for _ in range(RUNS + 1):  # the first one warms up
        seconds, steps, nodes, tokens = dict.fromkeys(PARTS, 0.0), 0, 0, 0
        cost = CostModel([PASS_SECONDS * times for times in USUAL_GPU])
        table = Recycling(target.vocab, WIDTH)
        for answer in recorded.answers:
            drafter = NextTokenDrafter(model, cost, budget, None, table)
            written, clock = play(StubTarget(target, card, answer), recorded, answer, drafter)
            for part, took in clock.seconds.items():
                seconds[part] += took
            steps += written.usage.forwards
            nodes += written.usage.drafted
            tokens += len(written.output)
        runs.append({part: 1e6 * took / steps for part, took in seconds.items()})
    found = {part: round(median(run[part] for run in runs[1:]), 1) for part in PARTS}
    whole = round(sum(found.values()), 1)
    each = {"nodes_per_step": round(nodes / steps, 1), "tokens_per_step": round(tokens / steps, 1)}
    return {"budget": budget, "steps": steps, **each, **found, "host_us": whole}


def play(
    stub: StubTarget, recorded: RecordedEdits, answer: RecordedAnswer, drafter: NextTokenDrafter
) -> tuple[Generation, Clock]:
    """Decode an answer. RuntimeError if the text is not the recorded one."""
    clock, static, start = Clock(), stub.target.static, thread_time()
    prompt = Prompt(
        answer.prompt, answer.predictions, max_tokens=len(answer.output), whole=answer.whole
    )
    written = Generation(Request("complete"), prompt, recorded, stub.context)  # type: ignore[arg-type]
    drafter.propose = clock.timed("propose", drafter.propose)  # type: ignore[method-assign]
    drafter.observe = clock.timed("observe", drafter.observe)  # type: ignore[method-assign]
    written.verify = clock.timed("verify", written.verify)  # type: ignore[method-assign]
    forward = clock.timed("launch", stub.forward)
    stub.forward, stub.keep = forward, clock.timed("keep", stub.target.keep)  # type: ignore[method-assign]
    send = static.send  # type: ignore[union-attr]
    static.send = clock.timed("inputs", send)  # type: ignore[union-attr, method-assign]
    try:
        for event in generate(written, stub, drafter):
            if isinstance(event, Step) and event.prefill is not None:
                start = thread_time()
        whole = thread_time() - start
    finally:
        static.send = send  # type: ignore[union-attr, method-assign]
    if written.output != answer.output:
        raise RuntimeError(f"{answer.id}: the text differs from the recorded one")
    clock.seconds["launch"] -= clock.seconds["inputs"] + stub.stub_seconds
    clock.seconds["rest"] = whole - stub.stub_seconds - sum(clock.seconds.values())
    return written, clock


def config(nodes: int) -> Config:
    """Of the target that a stub card is put under, for drafts of up to `nodes` nodes."""
    return Config(device="cpu", dtype="f32", threads=1, graphs="static", budget=nodes)
