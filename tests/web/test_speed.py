"""The Speed tab without a browser: the order of the runs, the comparison, and that no run leaves
history for the next."""

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
    """A finished run with two characters per pass."""
    run = BenchmarkRun(speculation=speculation)
    for start in range(0, len(text), 2):
        piece = Piece(text[start : start + 2], "context" if start % 4 else "model")
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
        counts = []
        async for benchmark in comparison.run_benchmark(
            page, make_chat(), True, repeats, "session"
        ):
            counts.append(len(benchmark.speculative) + len(benchmark.plain))
        assert page.running == {}
        (name,) = page.jobs._client_names.values()
        assert engine.parts.history.of(name) == []
        page.jobs.close()
        return benchmark, counts

    benchmark, counts = asyncio.run(run())
    assert sorted(set(counts)) == list(range(1, 2 * repeats + 1))
    assert len(benchmark.pairs) == repeats
    assert benchmark.equal
    assert not benchmark.stopped
    assert {run.text for run in benchmark.speculative} == {WORD}
    assert all(run.drafted == 0 for run in benchmark.plain)
    assert benchmark.speedup > 0
    assert "equal, letter for letter" in speed.render(benchmark)[0]


def test_other_requests_leave_history(engine: Engine) -> None:
    async def run() -> int:
        jobs = Jobs(engine, 1)
        answer = jobs.submit(make_chat, "a client")
        await answer.result()
        jobs.close()
        return len(engine.parts.history.of(answer.client))

    assert asyncio.run(run()) == 1


def test_stop_ends_the_benchmark(engine: Engine) -> None:
    async def run() -> Benchmark:
        page = PageState(engine, Jobs(engine, 1))
        async for benchmark in comparison.run_benchmark(page, make_chat(), True, 5, "session"):
            if benchmark.plain:
                page.stop("session-speed")
        page.jobs.close()
        return benchmark

    benchmark = asyncio.run(run())
    assert benchmark.stopped
    assert (len(benchmark.speculative), len(benchmark.plain)) == (1, 1)


def test_the_speedup_compares_the_medians() -> None:
    benchmark = Benchmark(3)
    for speculative_s, plain_s in ((1.0, 2.0), (4.0, 8.0), (2.0, 9.0)):
        benchmark.speculative.append(finished("ab" * 8, speculative_s, True))
        benchmark.plain.append(finished("ab" * 8, plain_s, False))
    assert benchmark.speedup == pytest.approx(8.0 / 2.0)
    assert comparison.table_html(benchmark.pairs).count("<tr>") == 4
    head, left, right = speed.render(benchmark)
    assert "4.00\u00d7" in head
    assert "medians of 3" in head
    assert "5 of 9 tokens read in 0.50 s, not counted" in left
    assert "plain" in right


def test_different_texts_are_reported() -> None:
    benchmark = Benchmark(1, [finished("abab", 1.0, True)], [finished("abac", 2.0, False)])
    assert not benchmark.equal
    assert "The texts differ" in speed.render(benchmark)[0]


def test_the_state_of_a_run_at_a_given_time() -> None:
    run = finished("abcdefgh", 4.0, True)
    for seconds, text in ((0.0, ""), (0.9, ""), (1.1, "ab"), (3.5, "abcdef"), (9.0, "abcdefgh")):
        state = run.at(seconds)
        assert "".join(piece.text for piece in state.pieces) == text
        assert sum(state.tokens_per_pass) == len(text)
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
    sample = EXAMPLES[kind]
    request = make_request(kind, sample.text, sample.prompt, sample.lines, 10**9)
    assert (request.kind == "edit") == (kind == "edit")
    assert request.max_tokens in (None, MAX_ANSWER_TOKENS)
    assert engine.submit(request).result().reason == "stop"


@pytest.mark.parametrize("kind", EXAMPLES)
def test_an_empty_field_is_refused(kind: str) -> None:
    sample = EXAMPLES[kind]
    if sample.text:
        with pytest.raises(RequestError, match="the text is empty"):
            make_request(kind, " ", sample.prompt, "", 64)
    if sample.prompt_label:
        with pytest.raises(RequestError, match=f"the {sample.prompt_label.lower()} is empty"):
            make_request(kind, sample.text, "", "", 64)


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(RequestError, match="no such example"):
        make_request("<script>", "text", "question", "", 64)
