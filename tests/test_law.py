"""The law: speculation never changes the answer. Here on a model that is only a hash, and from
outside, over HTTP, with the requests of `draftline verify`."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import engine.generate as loop
from engine import Config, Engine
from engine.drafting import DraftContext, NullDrafter
from engine.generate import Generation, generate
from engine.prompts.builder import Prompt
from engine.prompts.tokenizer import Tokenizer
from engine.records import Done, Request, RequestError
from engine.remote.engine_url import EngineUrl
from index import Workspace
from tests.conftest import HashTarget, tiny_model
from tests.support import law
from tests.support.drafters import CHEAP, DEAR, KINDS_OF_WEIGHTS, drafters, real
from tests.support.encoders import Bytes
from tests.support.gguf_of_model import VOCABULARY, write_gguf_of
from tests.support.law import SAMPLED, answer, plain, run
from tests.support.server import TIMEOUT_S, serve_engine
from ui.verify.opening import idle, open_modes
from ui.verify.run import VerifyRun, comparisons, measure
from ui.verify.server import VerifiedServer
from ui.verify.tasks import TASKS, tasks

VOCAB = 11
tokenizer, endless = law.tokenizer, law.endless  # fixtures
OTHERS = st.integers(0, 12) | st.sampled_from([-1, 127, 299, 300, 10**6, 2**31 - 1])


@settings(max_examples=20)
@given(
    st.integers(0, 99),
    st.booleans(),
    st.integers(0, 40),
    st.lists(st.integers(0, 10), min_size=1, max_size=9),
)
def test_no_drafter_changes_the_answer(
    tokenizer: Tokenizer, seed: int, sampled: bool, room: int, ids: list[int]
) -> None:
    options = {"seed": seed, **(SAMPLED if sampled else {})}
    target = HashTarget(VOCAB, seed=seed)
    prompt = Prompt(ids, max_tokens=room)
    expected, truth = plain(target, tokenizer, prompt, **options)
    prompt.predictions = [truth[3:30]]
    for name, drafter in drafters(truth, VOCAB).items():
        _, done = run(target, tokenizer, prompt, drafter, **options)
        assert answer(done) == answer(expected), name


def spoilt(text: list[int], chance: random.Random) -> list[int]:
    """A text with tokens in it that no text has, cut anywhere."""
    odd = [-1, 0, 1, 127, 299, 300, 10**6, 2**31 - 1]
    out = [chance.choice(odd) if chance.random() < 0.1 else token for token in text]
    return out[chance.randrange(10) :]


@settings(max_examples=60)
@given(
    st.integers(0, 999),
    st.sampled_from(KINDS_OF_WEIGHTS),
    st.lists(st.lists(OTHERS, max_size=30), max_size=3),
    st.lists(st.lists(OTHERS, max_size=20), max_size=3),
    st.booleans(),
)
def test_no_text_and_no_weights_change_the_answer(
    tokenizer: Tokenizer,
    seed: int,
    kind: str,
    texts: list[list[int]],
    memory: list[list[int]],
    sampled: bool,
) -> None:
    """Predictions that are empty, longer than the context, of control tokens, with borders and
    tokens that there are not; memory; files; and weights that are broken."""
    chance = random.Random(seed)
    options = {"seed": seed, **(SAMPLED if sampled else {})}
    target = HashTarget(VOCAB, context=90, seed=seed)
    prompt = Prompt(chance.choices(range(VOCAB), k=5), max_tokens=60)
    expected, truth = plain(target, tokenizer, prompt, **options)
    files = [spoilt(truth, chance) for _ in range(2)]
    prompt.predictions = chance.choice(
        [texts, [truth, *texts], [[]], [[0] * 500], [spoilt(truth, chance), *texts], [truth * 5]]
    )
    prompt.whole = chance.random() < 0.5
    memory = [*memory, spoilt(truth, chance)]
    with Workspace(None, Bytes()) as workspace:
        for number, file in enumerate([truth, *files]):
            text = bytes(token for token in file if 0 <= token < 128).decode()
            workspace.update(f"{number}.txt", text)
        costs = chance.choice([CHEAP, DEAR])
        drafter = real(kind, costs, workspace, words=chance.choice([0, 5, 300]), seed=seed)
        _, done = run(target, tokenizer, prompt, drafter, memory, **options)
    assert answer(done) == answer(expected)


def test_such_texts_are_drafted_from(endless: Tokenizer) -> None:
    """Else the test above would say nothing: each source alone makes the answer take few passes."""
    target = HashTarget(120, seed=4)
    prompt = Prompt([40, 41], max_tokens=100)
    done, truth = plain(target, endless, prompt)
    assert done.usage.forwards == 100
    with Workspace(None, Bytes()) as workspace:
        workspace.update("a.txt", bytes(truth).decode())
        _, done = run(target, endless, prompt, real(workspace=workspace))
    assert done.usage.forwards < 60
    _, done = run(target, endless, prompt, real(), history=[[40, 41, *truth]])
    assert done.usage.forwards < 60


def test_every_place_of_an_end_token(tokenizer: Tokenizer) -> None:
    target, ids = HashTarget(VOCAB, seed=5), [3, 1, 2]
    prompt = Prompt(ids, max_tokens=40)
    _, truth = plain(target, tokenizer, prompt)
    places = 0
    kept = tokenizer.eos
    try:
        for token in range(VOCAB):
            tokenizer.eos = frozenset({token})
            _, expected = run(target, tokenizer, prompt, NullDrafter())
            if token in truth[:40]:
                assert expected.usage.completion_tokens == truth.index(token)
                assert expected.reason == "stop"
                places += 1
            for name, drafter in drafters(truth, VOCAB).items():
                _, done = run(target, tokenizer, prompt, drafter)
                assert answer(done) == answer(expected), (name, token)
    finally:
        tokenizer.eos = kept
    assert places >= 4


def test_every_length(endless: Tokenizer) -> None:
    target = HashTarget(VOCAB, seed=2)
    _, truth = plain(target, endless, Prompt([1], max_tokens=30))
    for room in range(31):
        for name, drafter in drafters(truth, VOCAB).items():
            _, done = run(target, endless, Prompt([1], max_tokens=room), drafter)
            assert (done.reason, done.usage.completion_tokens) == ("length", room), name


def test_every_stop_string(endless: Tokenizer) -> None:
    target = HashTarget(120, seed=9)  # ids up to 120 are printable bytes here
    whole, truth = plain(target, endless, Prompt([40, 41], max_tokens=30))
    places = [(start, width) for start in range(len(whole.text) - 2) for width in (1, 2, 3)]
    for stop in dict.fromkeys(whole.text[start : start + width] for start, width in places):
        prompt = Prompt([40, 41], max_tokens=30, stop=(stop,))
        _, expected = run(target, endless, prompt, NullDrafter())
        assert expected.text == whole.text[: whole.text.index(stop)]
        assert expected.matched == stop
        for name, drafter in drafters(truth, 120).items():
            _, done = run(target, endless, prompt, drafter)
            assert answer(done) == answer(expected), (name, stop)


def test_the_context_ends_the_answer(endless: Tokenizer) -> None:
    target = HashTarget(VOCAB, context=20)
    _, truth = plain(HashTarget(VOCAB), endless, Prompt([1, 2], max_tokens=30))
    for name, drafter in drafters(truth, VOCAB).items():
        _, done = run(target, endless, Prompt([1, 2], max_tokens=100), drafter)
        assert (done.reason, done.usage.completion_tokens) == ("length", 18), name
    with pytest.raises(RequestError, match="21 tokens"):
        run(target, endless, Prompt([1] * 21), NullDrafter())


@pytest.mark.parametrize("room", [1, 2, 7])
def test_a_cache_that_grows_with_the_answer_does_not_change_it(
    endless: Tokenizer, monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    target = HashTarget(VOCAB, seed=3)
    expected, truth = plain(target, endless, Prompt([1, 2], max_tokens=40))
    monkeypatch.setattr(loop, "RESERVED_TOKENS", room)
    for name, drafter in drafters(truth, VOCAB).items():
        _, done = run(target, endless, Prompt([1, 2], max_tokens=40), drafter)
        assert answer(done) == answer(expected), name


def test_cancelling_keeps_a_prefix_of_the_answer(endless: Tokenizer) -> None:
    target = HashTarget(VOCAB, seed=1)
    prompt = Prompt([1, 2, 3, 4, 5, 6, 7], max_tokens=30)
    expected, truth = plain(target, endless, prompt)
    for after in range(20):
        asked = iter(range(100))
        *_, done = generate(
            Generation(Request("complete"), prompt, endless, target.context),
            target,
            drafters(truth, VOCAB)["trees"],
            lambda asked=asked, after=after: next(asked) >= after,
        )
        assert isinstance(done, Done)
        assert done.reason == "cancelled" or answer(done) == answer(expected)
        assert expected.text.startswith(done.text)


def test_an_exact_prediction_needs_few_passes(endless: Tokenizer) -> None:
    target = HashTarget(VOCAB, seed=3)
    prompt = Prompt([4, 5], max_tokens=100)
    _, truth = plain(target, endless, prompt)
    prompt.predictions = [truth]
    _, done = run(target, endless, prompt, real())
    assert done.usage.forwards <= 100 / 8
    assert done.usage.accepted >= 80


def test_observed_tokens_are_the_committed_ones(endless: Tokenizer) -> None:
    """What drafters learn from is exactly the answer, cut where it ends."""
    seen: list[int] = []

    class Watching(NullDrafter):
        def begin(self, context: DraftContext) -> None:
            self.context = context

        def observe(self, draft: Any, path: Any, committed: list[int], *_: Any) -> None:
            seen.extend(committed)
            assert self.context.output == seen

    target = HashTarget(VOCAB, seed=3)
    _, done = run(target, endless, Prompt([4, 5], max_tokens=25), Watching())
    assert len(seen) == done.usage.completion_tokens == 25


# -- over HTTP ---------------------------------------------------------------------------------


def verified(model: Path, count: int, threads: int = 1, chunk: int = 0) -> VerifyRun:
    """What a server of this model answers to the requests of `draftline verify`. `chunk`: prompt
    tokens of a pass."""
    with (
        Engine(Config(model=str(model), threads=threads, library=False)) as engine,
        serve_engine(engine) as served,
    ):
        engine.parts.target.chunk = chunk or engine.parts.target.chunk
        server = VerifiedServer(EngineUrl(f"{served.url}/v1"), "", TIMEOUT_S)
        found = VerifyRun(1, tasks(1, count))
        assert open_modes(found, server, None, "") == ""
        measure(found)
        server.close()
    return found


def assert_lawful(found: VerifyRun) -> None:
    """Every request was answered, drafts were accepted, and no text differs from another."""
    assert not found.failed and found.seeded and idle(found) == ""
    assert sum(reply.accepted or 0 for each in found.replies.values() for reply in each.values())
    table = comparisons(found)
    assert [(row.mode, row.name) for row in table if row.mode == "both"] == [
        ("both", "alone, cached prompt"),
        ("both", "four at once"),
        ("both", "sampled, fixed seed"),
    ]
    assert {row.name: row.differing for row in table if row.differing} == {}
    assert all(row.of == len(found.tasks) for row in table if row.name == "four at once")


@pytest.fixture(params=["safetensors", "gguf"])
def stored_model(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A random model that reads the requests, for each of the two runtimes."""
    if request.param == "safetensors":
        return tiny_model(tmp_path / "model", context=1024)
    folder = tiny_model(tmp_path / "weights", context=1024, vocab_size=VOCABULARY)
    write_gguf_of(folder, tmp_path / "model.gguf")
    return tmp_path / "model.gguf"


def test_the_law_holds_over_http(stored_model: Path) -> None:
    assert_lawful(verified(stored_model, 3))


@pytest.mark.full
def test_the_law_holds_over_http_for_all_requests(stored_model: Path) -> None:
    """And no text depends on the number of threads or on the pieces in which prompts are read."""
    ways: list[dict[str, int]] = [{}, {"threads": 2}, {"chunk": 7}]
    found = [verified(stored_model, TASKS, **way) for way in ways]
    for each in found:
        assert_lawful(each)
        for condition in ("warm", "four", "sampled"):
            for mode in each.modes:
                assert each.texts(mode, condition) == found[0].texts(mode, condition)
