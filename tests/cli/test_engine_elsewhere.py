"""Commands whose engine is another machine's: the same text, and one line where it fails."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine import Config, Engine
from engine.remote.engine_url import EngineUrl
from engine.remote.http_engine import HttpEngine
from index.documents.documents import Documents
from tests.cli.test_mcp import call, connected, no_workspace
from tests.cli.test_server import COMMANDS
from tests.support.command import (
    EDITED,
    FENCE,
    chain_model,
    draftline,
    make_file,
    one_line,
    untouched,
)
from tests.support.server import LocalServer, serve_engine
from ui.api.security import AccessRules
from ui.common import loading
from ui.mcp.tools import Tools

KEY = "0123456789abcdef"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("elsewhere")
    chain_model(folder / "chain", "x=9", FENCE)
    make_file(folder)
    (folder / "notes.md").write_text("# Lease\n\nThe lease of the red house ends in May 2031.\n")
    return folder


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[LocalServer]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DRAFTLINE_HOME", str(folder / "home"))
        with (
            Engine(Config(model=str(folder / "chain"), threads=1, library=False)) as engine,
            serve_engine(engine, rules=AccessRules(key=KEY)) as server,
        ):
            yield server


@pytest.fixture
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRAFTLINE_ENGINE_KEY", KEY)


@pytest.mark.usefixtures("key")
@pytest.mark.parametrize("command", COMMANDS, ids=lambda one: " ".join(one[:1]))
def test_the_text_is_that_of_an_own_engine(
    server: LocalServer, folder: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    own = draftline(folder, *command, "--model", str(folder / "chain"), "--server", "own")
    monkeypatch.setattr(loading, "open_engine", None)
    there = draftline(folder, *command, "--engine", server.url)
    assert (there.returncode, there.stdout) == (own.returncode, own.stdout), there.stderr
    monkeypatch.setenv("DRAFTLINE_ENGINE", server.url)
    assert draftline(folder, *command).stdout == own.stdout


@pytest.mark.usefixtures("key")
def test_an_edit_is_drafted_from_a_workspace_and_written(
    server: LocalServer, tmp_path: Path
) -> None:
    file = make_file(tmp_path)
    options = ("--lines", "2", "--apply", "--engine", server.url, "--workspace", str(tmp_path))
    done = draftline(tmp_path, "edit", file, "-i", "do", *options)
    assert done.returncode == 0 and file.read_bytes() == EDITED, done.stderr
    (index,) = server.app.state.indexes._indexes.values()
    assert str(file) in index.workspace.paths


@pytest.mark.usefixtures("key")
def test_a_chat_keeps_its_turns(server: LocalServer, folder: Path) -> None:
    options = ("--engine", server.url, "--json", "--max-tokens", "4")
    done = draftline(folder, "chat", *options, stdin=b"hello\n!!regen\nagain\n")
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 0 and len(answers) == 3, done.stderr


@pytest.mark.parametrize(
    ("options", "code", "reason"),
    [
        (["--model", "m"], 2, "leave one of them out"),
        (["--server", "own"], 2, "leave one of them out"),
        ([], 3, "DRAFTLINE_ENGINE_KEY"),
        (["--engine", "box"], 2, "http://HOST:PORT"),
        (["--engine", "http://user:secret@box"], 2, "DRAFTLINE_ENGINE_KEY"),
        (["--engine", "http://127.0.0.1:9"], 3, "is the server running"),
    ],
)
def test_what_fails_is_one_line_and_changes_nothing(
    server: LocalServer, tmp_path: Path, options: list[str], code: int, reason: str
) -> None:
    file = make_file(tmp_path)
    command = ("edit", file, "-i", "do", "--apply", "--engine", server.url, *options)
    done = draftline(tmp_path, *command)
    assert done.returncode == code and reason in one_line(done) and untouched(file)
    assert "secret@" not in one_line(done)


@pytest.mark.asyncio
@pytest.mark.usefixtures("key")
async def test_a_tool_of_an_agent(server: LocalServer, tmp_path: Path) -> None:
    file = make_file(tmp_path)
    tools = Tools(lambda: HttpEngine(EngineUrl(server.url)), no_workspace, Documents())
    async with connected(tools, [tmp_path]) as client:
        fine, told = await call(
            client, "edit", path=str(file), instruction="do", first_line=2, last_line=2
        )
    assert fine and file.read_bytes() == EDITED, told


@pytest.mark.usefixtures("key")
def test_a_server_of_openais_protocol(server: LocalServer, tmp_path: Path) -> None:
    url = f"openai:{server.url}/v1"
    done = draftline(tmp_path, "chat", "--engine", url, "--json", stdin=b"hello\n")
    (answer,) = map(json.loads, done.stdout.splitlines())
    assert done.returncode == 0 and "without drafts" in done.stderr.decode(), answer
    wrong = draftline(tmp_path, "chat", "--engine", url, "--model", "m", stdin=b"hello\n")
    assert wrong.returncode == 2 and "has no model m" in one_line(wrong)
    file = make_file(tmp_path)
    done = draftline(tmp_path, "edit", file, "-i", "do", "--apply", "--engine", url)
    assert done.returncode == 1 and untouched(file), "the answer has no code block"
    served = draftline(tmp_path, "serve", "--port", "0", "--engine", server.url)
    assert served.returncode == 2 and "openai:" in one_line(served)
