"""An editor whose engine is another machine's: it completes and edits as with one of its own, its
files are drafted from there, and a lost connection is made again."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from engine import Config, Engine
from engine.remote import sent_workspace
from engine.remote.engine_url import EngineUrl
from lsp_server import shared_engine
from lsp_server.cli import main
from tests.support.command import EOS, chain_model
from tests.support.held_model import unfinished
from tests.support.lsp_editor import Editor, connected, local_server, refused
from tests.support.server import endless, serve_app, wait_until
from ui.api import app as api

pytestmark = pytest.mark.asyncio
URI = "file:///project/app.py"
WRITTEN = "xyz=1,abc+de"  # each character occurs once, so its successor is unique


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    root = tmp_path_factory.mktemp("elsewhere")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DRAFTLINE_HOME", str(root / "home"))
        patch.setattr(shared_engine, "MIN_PAUSE_S", 0.01)
        patch.setattr(shared_engine, "MAX_PAUSE_S", 0.01)
        patch.setattr(sent_workspace, "SETTLE_S", 0.01)
        model = chain_model(root / "model", WRITTEN, EOS)
        with Engine(Config(model=str(model), threads=1, library=False)) as engine:
            yield engine


@asynccontextmanager
async def editor(folder: Path, port: int, *roots: Path) -> AsyncIterator[Editor]:
    url = EngineUrl(f"http://127.0.0.1:{port}")
    with local_server(folder, elsewhere=url) as server:
        async with connected(server.port) as one:
            await one.hello(*roots, settings={"debounceMs": 0, "maxTimeMs": 60_000})
            yield one


async def completed(one: Editor) -> str:
    one.open(URI, "x = 0\n\n")
    where = {"textDocument": one.doc(URI), "position": {"line": 1, "character": 0}}
    made = await one.ask("textDocument/inlineCompletion", where | {"context": {"triggerKind": 1}})
    one.close(URI)
    return "".join(item["insertText"] for item in made["items"])


async def status_with(one: Editor, state: str) -> dict[str, Any]:
    """The status, once it has this state and a message."""
    while True:
        status: dict[str, Any] = await one.command("status")
        if status["state"] == state and status["message"]:
            return status
        await asyncio.sleep(0.02)


async def test_completions_and_files(engine: Engine, tmp_path: Path) -> None:
    root = tmp_path / "work"
    root.mkdir()
    (root / "a.py").write_text(WRITTEN)
    app = api.app(engine)
    with serve_app(app) as port:
        async with editor(tmp_path, port, root) as one:
            status = await one.ready()
            assert status["model"] == engine.info.model
            assert status["device"].endswith(f" of 127.0.0.1:{port}")
            assert await completed(one) == WRITTEN
            wait_until(lambda: app.state.indexes._indexes)
            (index,) = app.state.indexes._indexes.values()
            await one.until(lambda: index.workspace.paths == [str(root / "a.py")])
            uri = one.open((root / "b.py").as_uri(), "b = 2\n")  # not on any disk
            await one.until(lambda: str(root / "b.py") in index.workspace.paths)
            one.close(uri)
            await one.until(lambda: index.workspace.paths == [str(root / "a.py")])


async def test_a_lost_connection_is_made_again(engine: Engine, tmp_path: Path) -> None:
    with serve_app(api.app(engine)) as port:
        pass
    async with editor(tmp_path, port) as one:  # nothing answers there yet
        while "is the server running" not in (await status_with(one, "loading"))["message"]:
            pass
        with serve_app(api.app(engine), port):
            await one.ready()
            assert await completed(one) == WRITTEN
        assert await completed(one) == ""
        await status_with(one, "loading")
        with serve_app(api.app(engine), port):
            await one.ready()
            assert await completed(one) == WRITTEN


async def test_an_edit_whose_connection_is_lost_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DRAFTLINE_HOME", str(tmp_path / "home"))
    config = Config(model=str(endless(tmp_path / "model")), threads=1, library=False)
    file = tmp_path / "a.py"
    file.write_text("x = 0\n\n")
    with Engine(config) as engine, serve_app(app := api.app(engine)) as port:
        async with editor(tmp_path, port) as one:
            await one.ready()
            uri = one.open(file.as_uri(), file.read_text())
            edit = {"textDocument": one.doc(uri), "instruction": "do", "partialResultToken": "e"}
            with unfinished(engine):
                begun = one.begin("draftline/edit", edit)
                await one.until(lambda: app.state.jobs.open)
                app.state.jobs.cancel()  # as when the server is ended
                code, message = await refused(begun)
            assert "the server ends" in message and "\n" not in message and code != 0
            assert one.applied == [] and file.read_text() == one.texts[uri] == "x = 0\n\n"


async def test_a_wrong_key_is_an_error(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rules = api.AccessRules(key="0123456789abcdef")
    monkeypatch.setenv("DRAFTLINE_ENGINE_KEY", "another-key")
    with serve_app(api.app(engine, rules)) as port:
        async with editor(tmp_path, port) as one:
            assert "DRAFTLINE_ENGINE_KEY" in (await status_with(one, "error"))["message"]


async def test_check(engine: Engine, capsys: Any) -> None:
    with serve_app(api.app(engine)) as port:
        url = f"http://127.0.0.1:{port}"
        assert main(["--check", "--engine", url]) == 0
        assert engine.info.model in capsys.readouterr().out
        assert main(["--check", "--engine", f"openai:{url}/v1"]) == 0
        (speed,) = re.findall(r"([\d.]+) tokens/s", capsys.readouterr().out)
        assert 0 < float(speed) < 1e6  # that server does not say how long it took
    assert main(["--check", "--engine", url]) == 3
    assert "is the server running" in capsys.readouterr().err
    for wrong in (["--engine", "box"], ["--engine", url, "--model", "m"]):
        assert main(wrong) == 2
        assert "--engine" in capsys.readouterr().err


async def test_a_server_of_openais_protocol(engine: Engine, tmp_path: Path) -> None:
    root = tmp_path / "work"
    root.mkdir()
    (root / "a.py").write_text(WRITTEN)
    with serve_app(api.app(engine)) as port:
        url = EngineUrl(f"http://127.0.0.1:{port}/v1", is_openai=True)
        with local_server(tmp_path, elsewhere=url) as server:
            async with connected(server.port) as one:
                await one.hello(root, settings={"debounceMs": 0, "maxTimeMs": 60_000})
                status = await one.ready()
                assert "without drafts" in status["device"] and status["files"] == 1
                assert status["model"] == Path(engine.info.model).name
                assert await completed(one) == WRITTEN
    assert main(["--check", "--engine", str(url)]) == 3
