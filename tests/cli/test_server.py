"""Commands that join a server of this user: the same text, and their own engine if they must."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine import Config, Engine
from engine.remote.address import Address, serve_address
from tests.support.command import EDITED, FENCE, chain_model, draftline, make_file, one_line
from tests.support.server import serve_locally
from tests.support.shared_server import ThreadServer, private_runtime, shared_server
from ui.common import loading


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("server")
    chain_model(folder / "chain", "x=9", FENCE)
    make_file(folder)
    (folder / "notes.md").write_text("# Lease\n\nThe lease of the red house ends in May 2031.\n")
    return folder


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[ThreadServer]:
    with shared_server(folder / "home", str(folder / "chain")) as server:
        yield server


@pytest.fixture
def no_own_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise AssertionError("an engine of its own")

    monkeypatch.setattr(loading, "open_engine", refuse)


COMMANDS = [
    ("edit", "my file.py", "-i", "do"),
    ("edit", "my file.py", "-i", "do", "--lines", "2", "--no-speculation"),
    ("ask", "notes.md", "-q", "When does the lease end?", "--max-tokens", "8"),
    ("summarize", "notes.md", "--fresh"),
]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda one: " ".join(one[:1]))
def test_a_joined_server_gives_the_text_of_an_own_engine(
    server: ThreadServer, folder: Path, request: Any, command: tuple[str, ...]
) -> None:
    model = ("--model", str(folder / "chain"))
    own = draftline(folder, *command, *model, "--server", "own")
    request.getfixturevalue("no_own_engine")
    joined = draftline(folder, *command, *model)
    named = draftline(folder, *command, "--server", str(server.address))
    for one in (joined, named):
        assert (one.returncode, one.stdout) == (own.returncode, own.stdout), one.stderr
    assert own.returncode == 0 and (own.stdout or command[0] == "summarize")


def serve_address_of(engine: Engine) -> Address:
    address = serve_address(engine.folder)
    assert address is not None
    return address


def test_a_command_joins_draftline_serve_and_says_so(folder: Path, request: Any) -> None:
    command, model = COMMANDS[0], ("--model", str(folder / "chain"))
    with (
        private_runtime(folder / "home"),
        Engine(Config(model=model[1], threads=1, library=False)) as engine,
        serve_locally(engine, serve_address_of(engine)),
    ):
        own = draftline(folder, *command, *model, "--server", "own")
        request.getfixturevalue("no_own_engine")
        joined = draftline(folder, *command, *model)
    assert (joined.returncode, joined.stdout) == (own.returncode, own.stdout) and own.stdout
    assert f"process {os.getpid()}, which has loaded it" in joined.stderr.decode()
    assert "which has loaded it" not in own.stderr.decode()


@pytest.mark.usefixtures("no_own_engine")
def test_an_edit_is_written_by_a_joined_server(server: ThreadServer, tmp_path: Path) -> None:
    file = make_file(tmp_path)
    options = ("--lines", "2", "--apply", "--server", str(server.address))
    done = draftline(tmp_path, "edit", file, "-i", "do", *options)
    assert done.returncode == 0 and file.read_bytes() == EDITED


@pytest.mark.usefixtures("no_own_engine")
def test_a_chat_on_a_joined_server_keeps_its_turns(server: ThreadServer, folder: Path) -> None:
    options = ("--model", str(folder / "chain"), "--json", "--max-tokens", "4")
    done = draftline(folder, "chat", *options, stdin=b"hello\n!!regen\nagain\n")
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 0 and len(answers) == 3, done.stderr


@pytest.mark.usefixtures("no_own_engine")
@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--model", "smollm2-135m"], "leave --model out"),
        (["--device", "cpu"], "leave --device out"),
        (["--dtype", "f32"], "leave one of them out"),
    ],
)
def test_a_named_server_that_does_something_else_is_refused(
    server: ThreadServer, folder: Path, options: list[str], reason: str
) -> None:
    named = ("--server", str(server.address), *options)
    done = draftline(folder, "edit", "my file.py", "-i", "do", *named)
    assert done.returncode == 2 and reason in one_line(done)


@pytest.mark.usefixtures("no_own_engine")
@pytest.mark.parametrize("address", ["/no/such.sock", "127.0.0.1:9", "example.com:80", "x"])
def test_an_address_without_a_server_is_one_line(folder: Path, address: str) -> None:
    done = draftline(folder, "edit", "my file.py", "-i", "do", "--server", address)
    assert done.returncode == 2 and address.partition(":")[0] in one_line(done)


@pytest.mark.parametrize("options", [["--dtype", "f32"], ["--device", "cpu"], ["--server", "own"]])
def test_options_that_the_server_cannot_follow_take_an_own_engine(
    server: ThreadServer, folder: Path, options: list[str], no_own_engine: None
) -> None:
    model = ("--model", str(folder / "chain"))
    done = draftline(folder, "edit", "my file.py", "-i", "do", *model, *options)
    assert "an engine of its own" in done.stderr.decode()
