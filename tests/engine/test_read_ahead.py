"""Prompts that are read ahead: what the cache has of them, what they give way to, and the law."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine import Config, Done, Engine, Request
from engine.records import Event, Step
from engine.worker import Job
from tests.conftest import tiny_model
from tests.support.held_model import held, held_at_step

CODE = "".join(f"def part_{n}(left, right):\n    return left + right * {n}\n" for n in range(24))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("ahead") / "llama", context=4096)


@pytest.fixture
def engine(model: Path, home: Path) -> Iterator[Engine]:
    with Engine(Config(model=str(model), threads=2)) as engine:
        yield engine


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Job, Event]]:
    """All events, in the order in which the model's thread made them."""
    made: list[tuple[Job, Event]] = []
    put = Job.put

    def note(job: Job, event: Event) -> None:
        made.append((job, event))
        put(job, event)

    monkeypatch.setattr(Job, "put", note)
    return made


def completion(text: str = CODE, **options: Any) -> Request:
    return Request("complete", text, suffix="\n", path="a.py", **({"max_tokens": 8} | options))


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_the_answer_is_the_same_and_its_prompt_is_cached(model: Path, temperature: float) -> None:
    request, answers = completion(temperature=temperature, seed=3), list[Done]()
    for reads_ahead in (False, True):
        with Engine(Config(model=str(model), threads=2)) as engine:
            if reads_ahead:
                engine.read_ahead(request).result()
            answers.append(engine.submit(request).result())
    plain, ahead = answers
    assert (plain.text, plain.reason) == (ahead.text, ahead.reason)
    assert plain.usage.cached_tokens == 0
    assert ahead.usage.cached_tokens == ahead.usage.prompt_tokens - 1


def test_it_writes_nothing_and_is_not_remembered(
    engine: Engine, events: list[tuple[Job, Event]]
) -> None:
    assert engine.read_ahead(completion()).result().text == ""
    steps = [event for _, event in events if isinstance(event, Step)]
    assert steps and all(step.prefill for step in steps)
    assert not engine.parts.history.of("")


def test_a_request_that_comes_meanwhile_is_served_first(
    engine: Engine, events: list[tuple[Job, Event]]
) -> None:
    """It waits for the rest of one pass, and finds its rows."""
    with held_at_step(1):
        ahead = engine.read_ahead(completion())
        next(iter(ahead))  # it is running
        job = engine.submit(completion())
    done = job.result()
    assert ahead.cancelled() and 0 < done.usage.cached_tokens < done.usage.prompt_tokens - 1
    assert sum(isinstance(event, Step) for one, event in events if one is ahead) == 1


def test_nothing_is_read_ahead_while_the_engine_has_other_jobs(
    engine: Engine, events: list[tuple[Job, Event]]
) -> None:
    with held(engine):
        ahead = engine.read_ahead(completion())
        assert ahead.cancelled()
    ahead.result()
    assert [type(event) for one, event in events if one is ahead] == [Done]


def test_a_newer_place_replaces_an_older_one(engine: Engine) -> None:
    with held_at_step(1):
        older = engine.read_ahead(completion())
        next(iter(older))
        newer = engine.read_ahead(completion(CODE[: len(CODE) // 2]))
    newer.result()
    assert older.cancelled() and not newer.cancelled()


def test_what_was_asked_for_stays_cached(engine: Engine) -> None:
    """However many other places are read ahead."""
    asked = completion()
    engine.submit(asked).result()
    for number in range(2 * engine.config.cached_sequences):
        engine.read_ahead(completion(f"# {number}\n" * 60)).result()
    usage = engine.submit(asked).result().usage
    assert usage.cached_tokens == usage.prompt_tokens - 1
