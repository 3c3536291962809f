"""Ghost text by a second model, next to the one that answers everything else: small real models,
through the protocol."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.engine import Engine
from engine.records import Request
from engine.weights.model_list import Machine
from engine.worker import Job
from tests.support.command import EOS, FENCE, chain_model
from tests.support.lsp_editor import Editor, LocalServer, asking, local_server, ready
from tests.support.server import occupied, renamed, wait_until
from tests.support.tiny_gguf import write_gguf

URI = "file:///project/app.py"
QUICK = {"debounceMs": 0, "maxTimeMs": 60_000}
LARGE, SMALL = "x=9\n``", "yz=1"  # what the two models write at the start of a line


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


@pytest.fixture(scope="module")
def large(folder: Path) -> str:
    return str(chain_model(folder / "large", LARGE.removesuffix("\n``"), FENCE))


@pytest.fixture(scope="module")
def small(folder: Path) -> str:
    return str(chain_model(folder / "small", SMALL, EOS))


@pytest.fixture(scope="module")
def foreign(folder: Path, small: str) -> str:
    """The small model with another tokenizer."""
    return str(renamed(Path(small), folder / "foreign", {"À": "<|mark|>"}))


@pytest.fixture
def server(tmp_path: Path) -> Iterator[LocalServer]:
    with local_server(tmp_path) as server:
        yield server


def editor(server: LocalServer, model: str, **own: Any) -> AbstractAsyncContextManager[Editor]:
    return ready(server.port, settings={"model": model, **QUICK, **own})


async def written(one: Editor, text: str = "a = 1\n", place: int | None = None) -> list[str]:
    """What is offered at the end of a new document, or at a place of it."""
    uri = one.open(f"untitled:{len(one.texts)}", text)
    at = one.at(uri, len(text) if place is None else place)
    where = {"textDocument": {"uri": uri}, "position": at, "context": {"triggerKind": 2}}
    answer = await one.ask("textDocument/inlineCompletion", where)
    return [item["insertText"] for item in answer["items"]]


async def loaded(one: Editor, server: LocalServer) -> None:
    """Ask for a completion, whereupon the second model is loaded or refused, and wait for that."""
    await written(one)
    second = server.shared_engine.for_completions
    await one.until(lambda: second.state != "loading")


def messages(one: Editor) -> list[str]:
    return [message.message for message in one.messages]


@pytest.mark.asyncio
async def test_the_second_model_completes_and_the_first_edits(
    server: LocalServer, large: str, small: str
) -> None:
    async with editor(server, large, completionModel=small) as one:
        assert server.shared_engine.for_completions.state == "idle"
        with server.shared_engine._next_is_loading:
            assert await written(one) == [LARGE]  # the first answers until the second is loaded
        await loaded(one, server)
        assert await written(one) == [SMALL]
        one.open(URI, "y=1\n")
        edited = await one.ask("draftline/edit", asking(one, URI, "y=1"))
        one.apply(edited["edit"])
        assert one.texts[URI] == "x=9\n"
        one.configure(completionModel="")
        assert await written(one) == [LARGE] and messages(one) == []
        second = server.shared_engine.for_completions
        await one.until(lambda: second.engine is None)
        one.configure(completionModel=large)
        assert await written(one) == [LARGE] and second.state == "idle"


@pytest.mark.asyncio
async def test_a_completion_does_not_wait_for_a_chat(
    server: LocalServer, large: str, small: str
) -> None:
    async with editor(server, large, completionModel=small) as one:
        await loaded(one, server)
        main = server.shared_engine.engine
        assert isinstance(main, Engine)
        with occupied(main):
            assert await written(one) == [SMALL]


@pytest.mark.asyncio
async def test_the_second_model_reads_ahead(
    server: LocalServer, large: str, small: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is loaded for that as soon as a document is opened."""
    read_ahead, reading = Engine.read_ahead, list[str]()

    def noted(engine: Engine, request: Request) -> Job:
        reading.append(engine.config.model)
        return read_ahead(engine, request)

    monkeypatch.setattr(Engine, "read_ahead", noted)
    monkeypatch.setattr("lsp_server.completion.read_ahead.PAUSE_S", 0.01)
    async with editor(server, large, completionModel=small) as one:
        one.open(URI, "a = 1\n")
        await one.until(lambda: reading)
        assert reading == [small]


# -- the law -----------------------------------------------------------------------------------

TEXT = st.text("ab1 =(,)\n", max_size=60)


@pytest.fixture(scope="module")
def random_models(folder: Path) -> tuple[str, str]:
    """Two models of random weights with one tokenizer."""
    paths = folder / "first.gguf", folder / "second.gguf"
    for seed, path in enumerate(paths):
        write_gguf(path, seed=seed)
    return str(paths[0]), str(paths[1])


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[LocalServer, LocalServer]]:
    root = tmp_path_factory.mktemp("law")
    with local_server(root / "both") as both, local_server(root / "alone") as alone:
        yield both, alone


@settings(max_examples=8, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.tuples(TEXT, TEXT), min_size=1, max_size=8), st.text("ab1 =(,)\n"))
def test_completions_are_those_of_the_small_model_alone(
    servers: tuple[LocalServer, LocalServer],
    random_models: tuple[str, str],
    tmp_path_factory: pytest.TempPathFactory,
    places: list[tuple[str, str]],
    indexed: str,
) -> None:
    """With and without drafts, from an index of the first model, too."""
    first, second = random_models
    root = tmp_path_factory.mktemp("root")
    (root / "other.py").write_text(indexed * 9, "utf-8")

    async def offered(server: LocalServer, **own: Any) -> list[list[str]]:
        given = {**QUICK, "maxTokens": 12, "checks": False, **own}
        async with ready(server.port, root, settings=given) as one:
            if "completionModel" in own:
                await loaded(one, server)
            return [await written(one, before + after, len(before)) for before, after in places]

    async def compare() -> None:
        both, alone = servers
        expected = await offered(alone, model=second, speculation=False)
        for speculation in (True, False):
            own = {"model": first, "completionModel": second, "speculation": speculation}
            assert await offered(both, **own) == expected

    asyncio.run(compare())


@pytest.mark.asyncio
async def test_the_two_random_models_do_not_write_the_same(
    server: LocalServer, random_models: tuple[str, str]
) -> None:
    found = []
    for model in random_models:
        async with ready(server.port, settings={**QUICK, "model": model, "checks": False}) as one:
            found.append([await written(one, text) for text in ("a", "b = ", "a\n1", "(,")])
    assert found[0] != found[1]


# -- models that cannot be used ----------------------------------------------------------------


@pytest.mark.asyncio
async def test_a_model_with_another_tokenizer_is_refused_once(
    server: LocalServer, large: str, small: str, foreign: str
) -> None:
    refused = (
        f"Draftline: draftline.completionModel: {foreign} has another tokenizer than {large}, "
        "whose index it would use: name a smaller model of the same family, or none"
    )
    second = server.shared_engine.for_completions
    async with editor(server, large, completionModel=foreign) as one:
        await loaded(one, server)
        for _ in range(2):
            assert await written(one) == [LARGE]
            assert messages(one) == [refused] and second.engine is None
        one.configure(completionModel=small)
        await loaded(one, server)
        assert await written(one) == [SMALL] and messages(one) == [refused]


@pytest.mark.asyncio
async def test_another_main_model_decides_again(
    server: LocalServer, large: str, small: str, foreign: str
) -> None:
    shared = server.shared_engine
    async with editor(server, large, completionModel=small) as one:
        await loaded(one, server)
        for model in (foreign, large):
            one.configure(model=model)
            await one.until(lambda model=model: shared.model == model and shared.loaded)
            await loaded(one, server)
            assert await written(one) == [SMALL]  # which `foreign` writes, too
            assert (shared.for_completions.engine is None) == (model == foreign)
        (shown,) = messages(one)
        assert f"{small} has another tokenizer than {foreign}" in shown


@pytest.mark.asyncio
async def test_a_model_that_does_not_fit_beside_the_first_is_named_in_one_line(
    server: LocalServer, large: str, small: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine(300_000_000, 8 << 30, 0, native_bf16=True)
    monkeypatch.setattr(Machine, "this", lambda: machine)
    monkeypatch.setattr("engine.weights.model_list.memory_of", lambda name, _: (
        1_500_000_000 if name == small else 6_000_000_000, 0
    ))  # fmt: skip
    async with editor(server, large, completionModel=small) as one:
        await loaded(one, server)
        await one.until(lambda: messages(one))
        assert await written(one) == [LARGE]
        assert messages(one) == [
            f"Draftline: {small}: needs 1.0 GB of memory next to {large} (6.0 GB), and 0.3 GB are "
            "available: choose none, or a smaller main model"
        ]
        machine = Machine(9 << 30, 9 << 30, 0, native_bf16=True)
        one.configure(debounceMs=1)  # the user has closed something, and settings are sent again
        await loaded(one, server)
        assert await written(one) == [SMALL]


@pytest.mark.asyncio
async def test_windows_share_the_second_model_and_the_last_one_unloads_it(
    server: LocalServer, large: str, small: str, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    other.symlink_to(small)
    second = server.shared_engine.for_completions
    async with editor(server, large, completionModel=small) as one:
        await loaded(one, server)
        async with editor(server, large, completionModel=str(other)) as two:
            assert await written(two) == [LARGE]
            (shown,) = messages(two)
            assert f"{small} completes in other windows" in shown
    wait_until(lambda: second.engine is None and second.state == "idle")
