"""The engine's API on a tiny model, with its worker thread."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import engine.generate as loop
from engine import Config, Done, Engine, Request, RequestError, Step
from engine.drafting import NullDrafter
from engine.drafting.next_token import NextTokenDrafter
from engine.generate import Generation, generate
from engine.model import kv_cache
from engine.model.unsupported import UnsupportedModel
from engine.prompts.builder import prompt_of
from engine.records import Event
from engine.weights import WeightsError
from engine.worker import Job
from tests.support.command import EOS, FENCE, chain_model
from tests.support.held_model import held, held_at_step, unfinished

TEXT = "def add(left, right):\n    return left + right\n"


@pytest.fixture(scope="module")
def engine(tiny: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    patch = pytest.MonkeyPatch()
    patch.setenv("DRAFTLINE_HOME", str(tmp_path_factory.mktemp("home")))
    with Engine(Config(model=str(tiny("llama")), threads=2)) as engine:
        yield engine
    patch.undo()


def same(one: Done, other: Done) -> bool:
    """Whether answers are equal, times and cache use aside."""
    return (one.reason, one.text, one.usage.completion_tokens) == (
        other.reason,
        other.text,
        other.usage.completion_tokens,
    )


@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_a_cache_that_grows_with_the_answer_does_not_change_it(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, temperature: float
) -> None:
    """Also where a grammar forces more tokens than the cache has rows for, at once or by and by."""
    chat = Request("chat", messages=({"role": "user", "content": TEXT},), temperature=temperature)
    forced = 'start: /[a-z]/ "' + "x-" * 120 + '" /[a-z]/'
    often = "start: " + " ".join(['/[a-z]/ "' + "x-" * 12 + '"'] * 24)
    requests = [
        replace(chat, max_tokens=200),
        replace(chat, grammar=forced),
        replace(chat, grammar=often),
    ]
    expected = [engine.submit(request, speculation=False).result() for request in requests]
    assert "x-" * 120 in expected[1].text
    monkeypatch.setattr(loop, "RESERVED_TOKENS", 32)
    monkeypatch.setattr(kv_cache, "ALLOCATION_ROWS", 16)
    for speculation in (True, False):
        for request, done in zip(requests, expected, strict=True):
            engine.parts.target.pool.sequences.clear()  # those of before have room for all
            assert same(engine.submit(request, speculation).result(), done)


def test_a_chat_without_a_limit_may_fill_the_context(engine: Engine) -> None:
    """The grammar does not let it end before."""
    grammar = 'start: "' + "x-" * 999 + '"'
    request = Request("chat", messages=({"role": "user", "content": TEXT},), grammar=grammar)
    usage = engine.submit(request).result().usage
    assert usage.prompt_tokens + usage.completion_tokens == engine.context


@pytest.mark.parametrize("temperature", [0.0, 0.7])
@pytest.mark.parametrize("kind", ["complete", "chat", "edit"])
def test_speculation_never_changes_the_answer(
    engine: Engine, kind: Any, temperature: float
) -> None:
    request = Request(
        kind,
        TEXT,
        path="a.py",
        instruction="rename add to plus",
        messages=({"role": "user", "content": TEXT},),
        predictions=(TEXT,),
        temperature=temperature,
        seed=5,
        max_tokens=60,
    )
    plain = engine.submit(request, speculation=False).result()
    for _ in range(2):
        assert same(engine.submit(request).result(), plain)
    assert plain.usage.drafted == 0


def test_a_stream_is_steps_and_exactly_one_done(engine: Engine) -> None:
    job = engine.submit(Request("complete", TEXT * 3, max_tokens=20))
    *steps, done = job
    assert isinstance(done, Done) and all(isinstance(step, Step) for step in steps)
    assert "".join(step.text for step in steps if isinstance(step, Step)) == done.text
    assert list(job) == [] and job.result() is done
    usage = done.usage
    writing = [step for step in steps if isinstance(step, Step) and step.prefill is None]
    assert usage.forwards == len(writing)
    assert usage.drafted == sum(step.drafted for step in writing)
    assert usage.accepted == sum(step.accepted for step in writing)
    assert 0 < usage.draft_seconds < usage.decode_seconds


def test_max_tokens_of_zero_gives_no_tokens(engine: Engine) -> None:
    done = engine.submit(Request("complete", TEXT, max_tokens=0)).result()
    assert (done.reason, done.text, done.usage.forwards) == ("length", "", 0)


def test_a_cancelled_job_keeps_the_text_so_far(engine: Engine) -> None:
    request = Request("complete", TEXT, max_tokens=400, temperature=1.0, seed=1)
    whole = engine.submit(request, speculation=False).result()
    with held_at_step(8):
        job = engine.submit(request, speculation=False)
        for seen, _ in enumerate(job):
            if seen == 5:
                job.cancel()
                break
    done = job.result()
    assert done.reason == "cancelled" and whole.text.startswith(done.text)
    assert done.usage.completion_tokens < whole.usage.completion_tokens
    with held(engine):
        waiting = [engine.submit(request) for _ in range(3)]
        waiting[2].cancel()
    assert waiting[2].result().reason == "cancelled"
    assert same(waiting[0].result(), whole) and same(waiting[1].result(), whole)


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch) -> list[Job]:
    """Jobs in the order of their ends; threads waiting for them may wake in another."""
    found: list[Job] = []
    put = Job.put

    def noted(job: Job, event: Event) -> None:
        if isinstance(event, Done):
            found.append(job)
        put(job, event)

    monkeypatch.setattr(Job, "put", noted)
    return found


def test_an_urgent_request_runs_first_and_changes_nothing(
    engine: Engine, ended: list[Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.worker.MAX_WAIT_S", 600.0)
    slow = Request("chat", messages=({"role": "user", "content": TEXT * 6},), max_tokens=150)
    alone = engine.submit(slow).result()
    with held_at_step(1):
        first = engine.submit(slow, speculation=False)
        next(iter(first))  # it is running
        urgent = engine.submit(Request("complete", TEXT, max_tokens=5))
    urgent.result()
    assert same(first.result(), alone)
    assert ended[1:] == [urgent, first]


def test_clients_take_turns(
    engine: Engine, ended: list[Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Requests of a busy client do not block others', which run in between, in order."""
    ran = engine.worker._schedule.ran
    monkeypatch.setattr(engine.worker._schedule, "ran", lambda _: ran(1.0))  # steps are alike
    jobs: dict[Job, tuple[str, int]] = {}
    with held_at_step(1):
        running = engine.submit(Request("complete", TEXT, max_tokens=40), client="busy")
        next(iter(running))
        for number in range(4):
            for client in ("busy", "calm") if number < 2 else ("busy",):
                job = engine.submit(Request("complete", TEXT, max_tokens=2), client=client)
                jobs[job] = (client, number)
        running.cancel()
    for job in jobs:
        job.result()
    order = [jobs[job] for job in ended if job in jobs]
    places = {one: place for place, one in enumerate(order)}
    assert max(places["calm", 0], places["calm", 1]) < places["busy", 2]
    for client, last in (("busy", 3), ("calm", 1)):
        assert [number for name, number in order if name == client] == list(range(last + 1))


def test_a_request_brings_its_own_workspace(
    engine: Engine, workspaces: Any, tmp_path: Path
) -> None:
    """It replaces the engine's own workspace for drafting, and the text does not change."""
    request = Request("complete", TEXT, max_tokens=30)
    (tmp_path / "own.py").write_text(TEXT * 3, "utf-8")
    own = workspaces(tmp_path, engine.parts.tokenizer)
    own.build()
    assert same(engine.submit(request, workspace=own).result(), engine.submit(request).result())
    drafter = engine._drafter("auto", own, "")
    assert isinstance(drafter, NextTokenDrafter) and drafter.workspace is own


def test_invalid_requests_are_refused_on_submission(engine: Engine) -> None:
    with pytest.raises(RequestError, match="select fewer lines"):
        engine.submit(Request("complete", "word " * 4000))
    with pytest.raises(RequestError, match="instruction is empty"):
        engine.submit(Request("edit", TEXT))


def test_a_failing_request_does_not_end_the_worker(engine: Engine) -> None:
    job = engine.submit(Request("complete", ""))  # an empty prompt: found by the target
    done = job.result()
    assert done.reason == "failed" and done.error and "\n" not in done.error
    assert engine.submit(Request("complete", TEXT, max_tokens=3)).result().reason != "failed"


def test_closing_cancels_all_jobs(tiny: Any, home: Path) -> None:
    engine = Engine(Config(model=str(tiny("llama"))))
    with unfinished(engine):
        jobs = [engine.submit(Request("complete", TEXT, max_tokens=400)) for _ in range(3)]
        engine.close()
    assert [job.result().reason for job in jobs] == ["cancelled"] * 3
    with pytest.raises(RuntimeError, match="closed"):
        engine.submit(Request("complete", TEXT))
    assert (home / "costs.json").is_file()


def test_pieces_copied_from_the_workspace_have_their_span(home: Path, tmp_path: Path) -> None:
    """The answer occurs only in one file of the workspace."""
    head, answer = "# THE HEAD OF A FILE\n", "abcdefghijklmnopqrstuvwxyz"
    model = chain_model(tmp_path / "model", answer, EOS)
    folder = tmp_path / "work"
    folder.mkdir()
    source = f"\u00e9\U0001f60b first line\n{head}{answer}\n"
    (folder / "answer.py").write_bytes(source.encode())
    with Engine(Config(model=str(model), workspace=folder)) as engine:
        *steps, done = engine.submit(Request("complete", head))
    assert isinstance(done, Done) and done.text == answer
    pieces = [piece for step in steps for piece in step.pieces if piece.source == "workspace"]
    assert sum(len(piece.text) for piece in pieces) > 13
    for piece in pieces:
        assert piece.span is not None and piece.span.path == str(folder / "answer.py")
        assert source[piece.span.start : piece.span.stop] == piece.text


def test_pieces_copied_from_the_edited_text_have_their_span(home: Path, tmp_path: Path) -> None:
    """The answer is the text with one change."""
    kept = "abcdefghijklmnopqrstuvwxyz"
    model = chain_model(tmp_path / "model", f"{kept}0123", FENCE)
    text = f"\U0001f60b first line\n\n{kept}\n"
    start = text.index(kept)
    with Engine(Config(model=str(model))) as engine:
        request = Request(
            "edit", text, "a.py", 3, (start, start + len(kept)), "add digits", max_tokens=40
        )
        *steps, done = engine.submit(request)
        plain = engine.submit(request, speculation=False).result()
    assert isinstance(done, Done) and same(done, plain) and done.text == f"{kept}0123"
    pieces = [piece for step in steps for piece in step.pieces if piece.source == "prediction"]
    assert sum(len(piece.text) for piece in pieces) > 13
    for piece in pieces:
        if piece.span is not None:  # the closing fence has none
            assert (piece.span.path, piece.span.version) == ("a.py", 3)
            assert text[piece.span.start : piece.span.stop] == piece.text
    assert sum(len(piece.text) for piece in pieces if piece.span is not None) > 13


def test_the_answer_history_is_separate_for_each_client(home: Path, tmp_path: Path) -> None:
    """Another client, or one whose history was dropped, has nothing to copy."""
    answer = "QZ7X3KJ9VW1BH5GMP2C8D4"  # not in the standard library
    model = chain_model(tmp_path / "model", answer, EOS)
    with Engine(Config(model=str(model))) as engine:
        request = Request("complete", "x\n", path="/a.py")

        def drafted_right(client: str) -> int:
            done = engine.submit(request, client=client).result()
            assert done.text == answer
            return done.usage.accepted

        assert drafted_right("one") < 5
        assert engine.parts.history.of("one") and not engine.parts.history.of("two")
        assert drafted_right("one") > 13
        assert drafted_right("two") < 5
        engine.parts.history.forget(client="one")
        assert not engine.parts.history.of("one") and engine.parts.history.of("two")
        assert drafted_right("one") < 5
        engine.parts.history.forget(path="/a.py")
        assert not engine.parts.history.of("one") and not engine.parts.history.of("two")
        with held_at_step(1):
            cut = engine.submit(request, client="one")
            cut.cancel()
        cut.result()
        assert not engine.parts.history.of("one"), "cancelled answers are not recorded"


def test_models_that_cannot_be_loaded_are_errors_of_one_line(home: Path, tmp_path: Path) -> None:
    for model, reason in (("qwen2.5-coder-0.6b", "qwen2.5-coder-0.5b"), (str(tmp_path), "config")):
        with pytest.raises((WeightsError, UnsupportedModel, OSError), match=reason) as caught:
            Engine(Config(model=model))
        assert "\n" not in str(caught.value)
    with pytest.raises(TypeError):
        Config(modle="x")  # type: ignore[call-arg]


def test_cached_prompt_tokens_do_not_count_as_read(engine: Engine) -> None:
    """They would make prefill look faster than it is."""
    seen: list[int] = []
    request = Request("complete", "x" + TEXT * 5, max_tokens=1)
    prompt = prompt_of(request, engine.parts.tokenizer)

    target = engine.parts.target
    for _ in range(2):
        answer = Generation(request, prompt, engine.parts.tokenizer, target.context)
        for event in generate(answer, target, NullDrafter()):
            if isinstance(event, Step) and event.prefill:
                seen.append(answer.chunk_tokens)
    assert sum(seen) == len(prompt.ids) - 1
