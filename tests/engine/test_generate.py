"""The decoding loop: which methods of the target it calls, for one request and for several."""

from __future__ import annotations

import inspect
from dataclasses import replace
from itertools import count
from typing import Any

import pytest

from engine.drafting import NullDrafter
from engine.generate import Generation, generate
from engine.model.target import Target
from engine.model.torch.torch_target import TorchTarget
from engine.prompts.builder import Prompt
from engine.prompts.tokenizer import Tokenizer
from engine.records import Done, Draft, Event, Request, Scores, Step, Usage
from tests.conftest import HashTarget
from tests.support.drafters import Right, Scripted, Wrong

PROMPTS = ([3, 1, 2, 5, 4, 1, 7], [2, 2, 9])  # the first is read in two chunks


class CountingTarget(HashTarget):
    """Counts what changes or reads the current sequence."""

    def __init__(self) -> None:
        super().__init__(seed=3)
        self.calls = {"begin": 0, "prefill": 0, "resume": 0}

    def begin(self, *arguments: Any) -> int:
        self.calls["begin"] += 1
        return super().begin(*arguments)

    def prefill(self, *arguments: Any) -> Any:
        self.calls["prefill"] += 1
        return super().prefill(*arguments)

    def resume(self, *arguments: Any) -> None:
        self.calls["resume"] += 1
        super().resume(*arguments)


@pytest.fixture(scope="module")
def tokenizer(tiny: Any) -> Tokenizer:
    tokenizer = Tokenizer(tiny("llama"))
    tokenizer.eos = frozenset()
    return tokenizer


def generation(tokenizer: Tokenizer, target: HashTarget, ids: list[int]) -> Generation:
    return Generation(Request("complete"), Prompt(ids, max_tokens=12), tokenizer, target.context)


def text_of(events: list[Event]) -> str:
    assert isinstance(events[-1], Done)
    return events[-1].text


@pytest.mark.parametrize("drafted", [False, True])
def test_an_uninterrupted_answer_is_never_resumed(tokenizer: Tokenizer, drafted: bool) -> None:
    """Resuming would compare the whole context at every step."""
    target = CountingTarget()
    truth = generation(tokenizer, target, PROMPTS[0])
    expected = text_of(list(generate(truth, HashTarget(seed=3), NullDrafter())))
    drafter = Right(truth.output, target.vocab) if drafted else NullDrafter()
    answer = generation(tokenizer, target, PROMPTS[0])
    assert text_of(list(generate(answer, target, drafter))) == expected
    assert answer.usage.forwards == (2 if drafted else 12)
    assert target.calls == {"begin": 1, "prefill": 1, "resume": 0}


def test_interleaved_answers_resume_when_the_other_ran(tokenizer: Tokenizer) -> None:
    expected = [
        text_of(list(generate(generation(tokenizer, target, ids), target, NullDrafter())))
        for target, ids in zip((HashTarget(seed=3), HashTarget(seed=3)), PROMPTS, strict=True)
    ]
    target = CountingTarget()
    running = [
        generate(generation(tokenizer, target, ids), target, NullDrafter()) for ids in PROMPTS
    ]
    events: list[list[Event]] = [[], []]
    schedule = [0, 0, 0, 1, 1] + [0, 0, 1, 1, 1] * 3  # prompts of two chunks and one, then steps
    for position, number in enumerate(schedule):
        before = target.calls["resume"]
        events[number].append(next(running[number]))
        switched = position > 4 and schedule[position - 1] != number
        assert target.calls["resume"] - before == switched, position
    for number in (0, 1):
        events[number] += running[number]
    assert [text_of(one) for one in events] == expected
    assert target.calls == {"begin": 2, "prefill": 2, "resume": 8}


class LaunchingTarget(HashTarget):
    """Computes by itself, as a card does: its scores are waited for on first use, and those of a
    pass that another request overtook are lost."""

    def __init__(self) -> None:
        super().__init__(seed=3)
        self.log: list[str] = []

    def forward(self, last: int, draft: Draft, hidden: bool = False) -> Scores:
        logits, epoch = super().forward(last, draft, hidden).logits, self.epoch
        self.log.append("launch")

        def wait() -> Any:
            assert self.epoch == epoch, "another request ran"
            self.log.append("wait")
            return logits

        return Scores(wait, rows=len(logits), launched=True)


def test_a_step_is_told_while_the_next_pass_computes(tokenizer: Tokenizer) -> None:
    target = LaunchingTarget()
    for event in generate(generation(tokenizer, target, PROMPTS[1]), target, NullDrafter()):
        target.log.append(type(event).__name__)
    assert target.log == [
        "Step", "launch", *["wait", "launch", "Step"] * 11, "wait", "Step", "Done"
    ]  # fmt: skip


def untimed(event: Event) -> Event:
    """The event without what it says of time."""
    if isinstance(event, Done):
        usage = event.usage
        counts = (usage.prompt_tokens, usage.cached_tokens, usage.completion_tokens, usage.forwards)
        return replace(event, usage=Usage(*counts, usage.drafted, usage.accepted))
    return replace(event, seconds=0.0)


@pytest.mark.parametrize("kind", [None, Right, Wrong])
def test_launching_ahead_changes_no_event(
    tokenizer: Tokenizer, kind: type[Scripted] | None
) -> None:
    """Whether the answer ends by its length, a stop string or its user, and whoever runs between
    two of its steps."""
    truth = generation(tokenizer, HashTarget(seed=3), PROMPTS[0])
    text = text_of(list(generate(truth, HashTarget(seed=3), NullDrafter())))

    def events(target: HashTarget, stop: str, cancelled_at: int, shared: bool) -> list[Any]:
        prompt = Prompt(PROMPTS[0], max_tokens=12, stop=(stop,))
        answer = Generation(Request("complete"), prompt, tokenizer, target.context)
        drafter = kind(truth.output, target.vocab) if kind else NullDrafter()
        asked, found = count(1), []
        for event in generate(answer, target, drafter, lambda: next(asked) >= cancelled_at):
            found.append(untimed(event))
            if shared and isinstance(event, Step) and event.prefill is None:
                target.begin([1, 2], 9)
        return [*found, answer.output]

    for stop in ("", "never", *text, *(text[n : n + 3] for n in range(len(text)))):
        for cancelled_at in (4, 7, 99):
            expected = events(HashTarget(seed=3), stop, cancelled_at, False)
            for shared in (False, True):
                assert events(LaunchingTarget(), stop, cancelled_at, shared) == expected


@pytest.mark.parametrize("passes", range(5))
def test_what_was_committed_before_a_failure_is_told(tokenizer: Tokenizer, passes: int) -> None:
    """Although the next pass, which fails, is launched first."""
    told = []
    for target in (HashTarget(seed=3), LaunchingTarget()):
        forward, left, found = target.forward, count(-passes), []

        def fail(*given: Any, forward: Any = forward, left: Any = left) -> Scores:
            if next(left) == 0:
                raise MemoryError("full")
            return forward(*given)

        target.forward = fail  # type: ignore[method-assign]
        with pytest.raises(MemoryError, match="full"):
            for event in generate(generation(tokenizer, target, PROMPTS[1]), target, NullDrafter()):
                found.append(untimed(event))
        told.append(found)
    assert told[0] == told[1] and len(told[0]) == 1 + passes


@pytest.mark.parametrize("kind", [HashTarget, TorchTarget])
def test_targets_have_the_methods_and_parameters_of_the_protocol(kind: type, tiny: Any) -> None:
    """mypy checks TorchTarget only; a target written for these tests must satisfy it as well."""
    from engine.config import Config

    methods = {name for name, one in vars(Target).items() if inspect.isfunction(one)}
    methods = {name for name in methods if not name.startswith("_")}
    assert methods == {"begin", "prefill", "resume", "capacity", "forward", "keep", "logits"}
    for name in methods:
        expected = inspect.signature(getattr(Target, name)).parameters.values()
        found = inspect.signature(getattr(kind, name)).parameters.values()
        assert [(one.name, one.default) for one in found] == [
            (one.name, one.default) for one in expected
        ], name
    target = HashTarget() if kind is HashTarget else kind(tiny("llama"), Config(threads=1))
    assert Target.__annotations__.keys() == {"vocab", "context", "epoch"}
    assert all(isinstance(getattr(target, name), int) for name in Target.__annotations__)
    target.begin([1, 2], 4)
    assert target.tokens == []
