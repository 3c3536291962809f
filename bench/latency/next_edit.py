"""Time to the first token of a next edit by a model, and to its whole answer.

The first token is compared with one forward pass over the prompt's tokens that are not cached. In
this process: nothing but the engine is measured.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from bench.latency.places import sample_stretches
from engine import Config, Engine, Request
from engine.editing.edits import Change
from engine.prompts.builder import prompt_of
from engine.prompts.next_edit.context import EditContext, RecentChange
from engine.prompts.next_edit.formats import FORMATS, counter
from engine.records import Done, Event
from engine.worker import Job

FORMAT = FORMATS["sweep"]  # a format whose marks the Qwen2.5-Coder models have, too
PROMPT_TOKENS = 2048
RELATED_LINES = 40
ANSWER_TOKENS = 400


class WholeAnswer(NamedTuple):
    """The answer of a model after one more keystroke, whether it is an edit or not."""

    seconds: float  # from the request
    tokens: int
    passes: int


@dataclass(frozen=True)
class FirstTokens:
    """Seconds to the first token and of the one pass, and tokens that were not cached.

    They are of a whole prompt, and after one more keystroke.
    """

    cold: tuple[float, float, int]
    typed: tuple[float, float, int]
    whole: WholeAnswer

    @property
    def cold_ratio(self) -> float:
        return self.cold[0] / self.cold[1]

    @property
    def typed_ratio(self) -> float:
        return self.typed[0] / self.typed[1]


def next_edits(model: str, file: Path, repeats: int) -> Iterator[FirstTokens]:
    """Measure in turns, first one and then the other.

    Prompts differ in their first file, and then in the character at the cursor. The first repeat is
    to warm up, and left out.
    """
    text = file.read_text("utf-8")
    with Engine(Config(model=model, library=False)) as engine:
        while not engine.worker.idle():
            time.sleep(0.1)
        for number in range(repeats + 1):
            both = [first_token, one_pass][:: -1 if number % 2 else 1]
            cold = {
                how: how(engine, request(engine, text, 2 * number + turn, ""))
                for turn, how in enumerate(both)
            }
            typed = {
                how: how(engine, request(engine, text, 2 * number + turn, "xy"[turn]))
                for turn, how in enumerate(both)
            }
            whole = whole_answer(engine, request(engine, text, 2 * number, "xyz"))
            if number:
                yield FirstTokens(pair(cold), pair(typed), whole)


def pair(found: dict[Callable[..., Any], tuple[float, int]]) -> tuple[float, float, int]:
    (seconds, tokens), (alone, same) = found[first_token], found[one_pass]
    assert abs(tokens - same) <= tokens // 10 + 2, (tokens, same)
    return seconds, alone, tokens


def request(engine: Engine, text: str, number: int, typed: str) -> Request:
    """Make the request after `typed` at the start of a function's body.

    It has paths and a related file that only this number has.
    """
    (stretch,) = sample_stretches(text, 1, 60)
    at = stretch.start
    now = text[:at] + typed + text[at:]
    line = text.rfind("\n", 0, at) + 1
    end = text.find("\n", at)
    path = f"{number}.py"
    change = RecentChange(path, text[line:end], now[line : end + len(typed)], 1)
    related = "".join(f"def f{number}_{n}(x):\n    return x + {n}\n" for n in range(RELATED_LINES))
    context = EditContext(
        path,
        now,
        at + len(typed),
        (change,),
        ((f"related_{number}.py", related),),
        Change(line, end + len(typed), text[line:end]),
    )
    limit = min(PROMPT_TOKENS, engine.context - 16)
    made = FORMAT.build(context, limit, counter(engine.encoder))
    return made.request(path, number, max_tokens=1)


def first_token(engine: Engine, request: Request) -> tuple[float, int]:
    """Seconds from the request to its first token, and how many tokens were read."""
    began = time.perf_counter()
    job = engine.submit(request)
    seconds = next(time.perf_counter() - began for event in job if has_token(event))
    usage = job.result().usage
    return seconds, usage.prompt_tokens - usage.cached_tokens


def whole_answer(engine: Engine, request: Request) -> WholeAnswer:
    """Time a request to the end of its answer."""
    began = time.perf_counter()
    usage = engine.submit(replace(request, max_tokens=ANSWER_TOKENS)).result().usage
    return WholeAnswer(time.perf_counter() - began, usage.completion_tokens, usage.forwards)


def has_token(event: Event) -> bool:
    """Return whether a prompt is read, which events before this one are about."""
    return isinstance(event, Done) or event.prefill is None


def one_pass(engine: Engine, request: Request) -> tuple[float, int]:
    """Time one forward pass over the prompt's tokens that are not cached.

    Returns its seconds, and how many tokens they are.
    """
    found: list[tuple[float, int]] = []
    target = engine.parts.target
    ids = prompt_of(request, engine.encoder).ids

    def run(cancelled: Callable[[], bool]) -> Iterator[Event]:
        chunk, states = target.chunk, list[Any]()
        began = time.perf_counter()
        target.chunk = len(ids)
        cached = target.begin([*ids, 0], 2)
        for _ in target.prefill([*ids, 0], 2, lambda tokens, hidden: states.append(hidden)):
            pass
        target.logits(states[-1][-1:]).argmax()
        found.append((time.perf_counter() - began, len(ids) - cached))
        target.chunk = chunk
        assert len(states) == 1, "one pass"
        yield Done("stop")

    engine.worker.submit(Job(request, run)).result()
    return found[0]
