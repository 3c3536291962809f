"""The Speed tab without a browser: the order of runs, the comparison, and that no run is
remembered in the next."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator

import pytest

from engine import Config, Engine, Request, RequestError
from engine.records import Done, Piece, Step, Usage
from tests.support.command import EOS, chain_model
from ui.api.jobs import Jobs
from ui.web import comparison, speed
from ui.web.comparison import Benchmark, BenchmarkRun
from ui.web.speed_examples import EXAMPLES, MAX_ANSWER_TOKENS, make_request
from ui.web.state import PageState

WORD = "abcdefghij"


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    folder = tmp_path_factory.mktemp("chain") / "model"
    chain_model(folder, f" {WORD}", EOS, context=16384)
    with Engine(Config(model=str(folder), dtype="f32", threads=1, library=False)) as engine:
        yield engine


def make_chat(max_tokens: int = 64) -> Request:
    return Request("chat", messages=({"role": "user", "content": "hello"},), max_tokens=max_tokens)


def finished(text: str, seconds: float, speculation: bool) -> BenchmarkRun:
    """A complete run with two characters per pass."""
    run = BenchmarkRun(speculation=speculation)
    for at in range(0, len(text), 2):
        piece = Piece(text[at : at + 2], "context" if at % 4 else "model")
        run.add(Step((piece,), 1, 1, seconds * 2 / len(text)))
    usage = Usage(9, 4, len(text), len(text) // 2, decode_seconds=seconds, prefill_seconds=0.5)
    run.finish(Done("stop", text, usage=usage))
    return run


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("repeats", [1, 3, 5])
def test_pairs_alternate_which_run_is_first(first: bool, repeats: int) -> None:
    order = comparison.run_order(first, repeats)
    assert order[0] is first
    assert order.count(True) == order.count(False) == repeats
    pairs = list(zip(order[::2], order[1::2], strict=True))
    assert all(a is not b for a, b in pairs)
    assert all(a == b[::-1] for a, b in itertools.pairwise(pairs))


@pytest.mark.parametrize("repeats", [1, 3])
def test_runs_have_the_same_text_and_leave_no_history(engine: Engine, repeats: int) -> None:
    async def run() -> tuple[Benchmark, list[int]]:
        page = PageState(engine, Jobs(engine, 1))
        seen = []
        async for one in comparison.run_benchmark(page, make_chat(), True, repeats, "session"):
            seen.append(len(one.speculative) + len(one.plain))
        assert page.running == {}
        (name,) = page.jobs._client_names.values()
        assert engine.parts.history.of(name) == []
        page.jobs.close()
        return one, seen

    ended, seen = asyncio.run(run())
    assert sorted(set(seen)) == list(range(1, 2 * repeats + 1))
    assert len(ended.pairs) == repeats
    assert ended.equal
    assert not ended.stopped
    assert {run.text for run in ended.speculative} == {WORD}
    assert all(run.drafted == 0 for run in ended.plain)
    assert ended.speedup > 0
    assert "equal, letter for letter" in speed.render(ended)[0]


def test_other_requests_are_remembered(engine: Engine) -> None:
    async def run() -> int:
        jobs = Jobs(engine, 1)
        answer = jobs.submit(make_chat, "somebody")
        await answer.result()
        jobs.close()
        return len(engine.parts.history.of(answer.client))

    assert asyncio.run(run()) == 1


def test_stop_ends_the_benchmark(engine: Engine) -> None:
    async def run() -> Benchmark:
        page = PageState(engine, Jobs(engine, 1))
        async for one in comparison.run_benchmark(page, make_chat(), True, 5, "session"):
            if one.plain:
                page.stop("session-speed")
        page.jobs.close()
        return one

    ended = asyncio.run(run())
    assert ended.stopped
    assert (len(ended.speculative), len(ended.plain)) == (1, 1)


def test_the_speedup_is_of_the_medians() -> None:
    one = Benchmark(3)
    for ours, theirs in ((1.0, 2.0), (4.0, 8.0), (2.0, 9.0)):
        one.speculative.append(finished("ab" * 8, ours, True))
        one.plain.append(finished("ab" * 8, theirs, False))
    assert one.speedup == pytest.approx(8.0 / 2.0)
    assert comparison.table_html(one.pairs).count("<tr>") == 4
    head, left, right = speed.render(one)
    assert "4.00\u00d7" in head
    assert "medians of 3" in head
    assert "5 of 9 tokens read in 0.50 s, not counted" in left
    assert "plain" in right


def test_different_texts_are_reported() -> None:
    one = Benchmark(1, [finished("abab", 1.0, True)], [finished("abac", 2.0, False)])
    assert not one.equal
    assert "The texts differ" in speed.render(one)[0]


def test_the_state_of_a_run_at_a_time() -> None:
    run = finished("abcdefgh", 4.0, True)
    for seconds, text in ((0.0, ""), (0.9, ""), (1.1, "ab"), (3.5, "abcdef"), (9.0, "abcdefgh")):
        then = run.at(seconds)
        assert "".join(piece.text for piece in then.pieces) == text
        assert sum(then.tokens_per_pass) == len(text)
    assert run.at(4.1) is run


def test_a_replay_runs_in_real_time_until_it_is_stopped(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = itertools.count(step=0.1)  # seconds; each call takes 0.1
    monkeypatch.setattr(speed, "perf_counter", lambda: next(clock))

    async def run(stop: bool) -> int:
        page = PageState(engine, Jobs(engine, 1))
        sides = Benchmark(1, [finished("abcd", 0.1, True)], [finished("abcd", 0.3, False)])
        count = 0
        async for _ in speed.replay(page, sides, "session"):
            count += 1
            if stop:
                page.stop("session-speed")
        assert page.running == {}
        page.jobs.close()
        return count

    assert asyncio.run(run(stop=False)) == 3
    assert asyncio.run(run(stop=True)) == 2


@pytest.mark.parametrize("kind", EXAMPLES)
def test_every_example_is_a_valid_request(kind: str, engine: Engine) -> None:
    one = EXAMPLES[kind]
    request = make_request(kind, one.text, one.prompt, one.lines, 10**9)
    assert (request.kind == "edit") == (kind == "edit")
    assert request.max_tokens in (None, MAX_ANSWER_TOKENS)
    assert engine.submit(request).result().reason == "stop"


@pytest.mark.parametrize("kind", EXAMPLES)
def test_an_empty_field_is_refused(kind: str) -> None:
    one = EXAMPLES[kind]
    if one.text:
        with pytest.raises(RequestError, match="the text is empty"):
            make_request(kind, " ", one.prompt, "", 64)
    if one.prompt_label:
        with pytest.raises(RequestError, match=f"the {one.prompt_label.lower()} is empty"):
            make_request(kind, one.text, "", "", 64)


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(RequestError, match="no such example"):
        make_request("<script>", "text", "question", "", 64)
