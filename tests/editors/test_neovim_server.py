"""Neovim while its server starts, runs and dies: no error, no hit-enter prompt, a bounded number of
restarts; and what `:checkhealth`, `:help` and the statusline show. The model is a chain, in which
each token has one successor, so that it loads at once."""

from __future__ import annotations

import contextlib
import re
import shutil
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]
import pytest

from lsp_server.settings import Settings, parse
from tests.editors.test_neovim_inline import ghost
from tests.support.command import EOS, chain_model
from tests.support.listeners import answering
from tests.support.neovim import PLUGIN, WITH_PLUGIN, Neovim, Terminal, lua_string
from tests.support.server import serve_model

pytestmark = pytest.mark.editors
WRITTEN = "xyz=1,abc"  # by the model, on an empty line
SECONDS = [1, 2, 4, 8]  # of delay, until the server is not started again
STATUSLINE = "vim.o.statusline = '%{v:lua.require(\"draftline\").statusline()}'"
TOLD = """
Sent = {}
local client = Probe.client(0)
local notify = client.notify
client.notify = function(self, method, params)
  if method == 'draftline/cursor' then
    table.insert(Sent, params.position.line)
  end
  return notify(self, method, params)
end
"""
NO_DELAY = """
local restart = require('draftline.restart')
local delay_ms = restart.delay_ms
restart.delay_ms = function(times) return delay_ms(times) and 1 end
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return chain_model(tmp_path_factory.mktemp("chain") / "model", WRITTEN, EOS)


def with_model(model: Path) -> str:
    settings = f"{{ draftline = {{ model = {lua_string(model)}, maxTimeMs = 60000 }} }}"
    return f"vim.lsp.config('draftline', {{ settings = {settings} }})\n" + WITH_PLUGIN


@pytest.fixture(scope="module")
def session(
    tmp_path_factory: pytest.TempPathFactory,
    program: Path,
    model: Path,
    server_command: list[str],
    server_environment: dict[str, str],
) -> Iterator[Neovim]:
    folder = tmp_path_factory.mktemp("server")
    init = with_model(model) + "\n" + STATUSLINE
    with Neovim(program, folder / "nvim", server_command, server_environment, init) as nvim:
        yield nvim


@pytest.fixture
def nvim(
    session: Neovim, tmp_path: Path, artefacts: Path, request: pytest.FixtureRequest
) -> Iterator[Neovim]:
    """The session with an empty file, and how often its server died forgotten."""
    session.lua("vim.cmd('silent! only! | silent! %bwipeout!')")
    session.lua("package.loaded['draftline.restart'].command()")
    (tmp_path / "a.py").write_text("a = 1\n\n", "utf-8")
    session.open(tmp_path / "a.py")
    session.until(lambda: len(servers(session)) == 1, "the one before is gone")
    session.lua("vim.cmd('messages clear')")
    yield session
    screen = "\n".join(session.screen()) + "\n\n" + session.messages() + "\n"
    name = re.sub(r"\W+", "_", request.node.name)
    (artefacts / f"neovim-{name}.txt").write_text(screen, "utf-8")
    session.keys("<C-\\><C-N>")


def servers(nvim: Neovim) -> list[psutil.Process]:
    """The servers that Neovim started, which run."""
    found = []
    for child in psutil.Process(nvim.process.pid).children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):  # it ended meanwhile
            if "lsp_server" in child.cmdline():
                found.append(child)
    return found


def kill_server(nvim: Neovim) -> int:
    """Kill the one server as the system does when memory runs out; its process id."""
    (server,) = servers(nvim)
    server.kill()
    nvim.until(lambda: not server.is_running(), "the server is dead")
    return int(server.pid)


def is_back(nvim: Neovim, pid: int) -> bool:
    """Whether another server than `pid` is ready."""
    running = [each.pid for each in servers(nvim)]
    ready = nvim.lua("return require('draftline').status() == 'ready'")
    return bool(ready and running and pid not in running)


def completes(nvim: Neovim) -> bool:
    """Ask for a completion in insert mode, as this version shows it, until it comes."""
    if nvim.lua("return vim.lsp.inline_completion ~= nil"):
        return ghost(nvim) == WRITTEN
    nvim.lua("vim.o.completeopt = 'menuone,noselect'\nvim.lsp.completion.get()")
    nvim.until_lua("return vim.fn.pumvisible() == 1")
    word = str(nvim.lua("return vim.fn.complete_info({ 'items' }).items[1].word"))
    return word != "" and WRITTEN.startswith(word)


def test_a_server_that_dies_while_one_types_comes_back(nvim: Neovim) -> None:
    with Terminal(nvim) as terminal:
        nvim.keys("Gi")
        assert completes(nvim)
        pid = kill_server(nvim)
        nvim.keys("<C-e>#")  # while there is none
        nvim.said("Draftline: the server ended (signal 9); it starts again in 1 s")
        assert "starting" in "\n".join(nvim.screen())
        nvim.until(lambda: is_back(nvim, pid), "another one")
        nvim.keys("<C-u>")
        assert completes(nvim)
        assert nvim.messages().count("\n") == 0  # nothing beside that line
        assert "Press ENTER" not in terminal.shown()
    nvim.keys("<Esc>:edit!<CR>")  # in 0.11 what is enabled for a client is enabled again
    nvim.until_lua("return not vim.bo.modified")
    assert nvim.messages().count("\n") == 0


def test_a_server_that_dies_while_it_answers_says_so_once(nvim: Neovim) -> None:
    (server,) = servers(nvim)
    with Terminal(nvim) as terminal:
        server.suspend()  # it does not answer
        nvim.keys(":DraftlineEdit add one<CR>")
        nvim.until_lua("return next(Probe.client(0).requests) ~= nil")
        kill_server(nvim)
        nvim.said("editing: the server ended")
        nvim.until(lambda: is_back(nvim, server.pid), "another one")
        assert sorted(nvim.messages().splitlines()) == [
            "Draftline: editing: the server ended",
            "Draftline: the server ended (signal 9); it starts again in 1 s",
        ]
        assert "Press ENTER" not in terminal.shown()


def test_the_delays_double_and_end(nvim: Neovim) -> None:
    delay = "return require('draftline.restart').delay_ms(...)"
    times: list[float] = []
    for seconds in SECONDS:
        times.append(1000.0 + len(times))
        assert nvim.lua(delay, times) == 1000 * seconds
    times.append(1000.0 + len(times))
    assert nvim.lua(delay, times) is None
    assert nvim.lua(delay, [*times, 2000.0]) == 1000  # those of long ago do not count
    assert nvim.lua(delay, [1000.0, 1179.0, 1180.0]) == 2000


def test_a_server_that_always_dies_stays_down(
    tmp_path: Path,
    program: Path,
    model: Path,
    server_command: list[str],
    server_environment: dict[str, str],
) -> None:
    """`:DraftlineRestart` starts it once it can run."""
    (tmp_path / "a.py").write_text("\n", "utf-8")
    flag, counted = tmp_path / "flag", tmp_path / "counted"
    script = tmp_path / "server"
    works = " ".join(map(lua_string, server_command))
    script.write_text(f"#!/bin/sh\necho >>{counted}\n[ -e {flag} ] || exit 3\nexec {works}\n")
    script.chmod(0o755)
    folder, init = tmp_path / "nvim", with_model(model) + NO_DELAY
    with (
        Neovim(program, folder, [str(script)], server_environment, init) as nvim,
        Terminal(nvim) as terminal,
    ):
        nvim.lua("vim.cmd.edit({ args = { ... } })", str(tmp_path / "a.py"))
        nvim.said("the server ended 5 times; see :checkhealth draftline")
        assert nvim.lua("return require('draftline').status()") == "stopped"
        assert len(counted.read_text().splitlines()) == len(SECONDS) + 1
        nvim.keys(":DraftlineEdit x<CR>")
        nvim.said("the server is not running; :DraftlineRestart starts it")
        flag.touch()
        nvim.keys(":DraftlineRestart<CR>")
        nvim.until_lua("return #vim.lsp.get_clients({ name = 'draftline' }) == 1")
        assert "Press ENTER" not in terminal.shown()


def test_an_address_of_another_program_is_one_message(
    tmp_path: Path, program: Path, server_command: list[str], server_environment: dict[str, str]
) -> None:
    """No traceback, no hit-enter prompt, no restarts."""
    folder = tmp_path / "nvim"
    (tmp_path / "a.py").write_text("a = 1\n", "utf-8")
    with answering(b"HTTP/1.0 400 Bad Request\r\n\r\n") as address:
        command = [*server_command, "--server", address]
        with (
            Neovim(program, folder, command, server_environment) as nvim,
            Terminal(nvim) as terminal,
        ):
            nvim.lua("vim.cmd.edit({ args = { ... } })", str(tmp_path / "a.py"))
            nvim.said(f"Draftline: {address}: another program answers there")
            assert "Draftline: " + address in "\n".join(nvim.screen())
            (server,) = servers(nvim)
            assert nvim.lua("return require('draftline').status()") == "error"
            assert server.is_running() and nvim.text() == "a = 1\n"
            assert "Press ENTER" not in terminal.shown()
            assert "traceback" not in nvim.messages()


def test_an_engine_on_another_machine_answers(
    tmp_path: Path,
    program: Path,
    server_command: list[str],
    server_environment: dict[str, str],
    model: Path,
) -> None:
    (tmp_path / "a.py").write_text("a = 1\n\n", "utf-8")
    with serve_model(model) as elsewhere:
        url = elsewhere.url
        init = f"vim.g.draftline = {{ engine = {lua_string(url)} }}\n{WITH_PLUGIN}"
        program_only = [one for one in server_command if one not in ("--server", "own")]
        command = [*program_only, "--engine", url]
        with Neovim(program, tmp_path / "nvim", command, server_environment, init) as nvim:
            options = nvim.lua("return dofile(...).cmd", str(PLUGIN / "lsp" / "draftline.lua"))
            assert options == ["draftline", "lsp", "--engine", url]
            nvim.open(tmp_path / "a.py")
            nvim.keys("Gi")
            assert completes(nvim)
            assert elsewhere.metric("draftline_answers_total") > 0


def test_the_server_is_told_where_the_cursor_is(nvim: Neovim) -> None:
    """After a move to another line, and not after one that typing makes."""
    nvim.lua(TOLD)
    nvim.keys("j")
    nvim.until(lambda: nvim.lua("return #Sent") == 1, "the second line is sent")
    nvim.keys("oxyz<CR>abc<Esc>")
    nvim.until_lua("return vim.fn.mode() == 'n' and vim.fn.line('.') == 4")
    nvim.keys("gg")
    nvim.until(lambda: nvim.lua("return #Sent") == 2, "the first line is sent")
    assert nvim.lua("return Sent") == [1, 0]


def test_restart_brings_another_server(nvim: Neovim) -> None:
    (before,) = servers(nvim)
    nvim.keys(":DraftlineRestart<CR>")
    nvim.until(lambda: is_back(nvim, before.pid), "another one")
    nvim.until(lambda: not before.is_running(), "the first one ends")
    assert nvim.messages() == "Draftline: starting the server"


def test_commands_say_that_the_server_is_starting(nvim: Neovim) -> None:
    pid = kill_server(nvim)
    nvim.until_lua("return require('draftline').status() == 'starting'")
    nvim.keys(":DraftlineStatus<CR>")
    nvim.said("the server is starting; try again in a moment")
    nvim.until(lambda: is_back(nvim, pid), "another one")
    nvim.until_lua("return require('draftline').statusline() == 'Draftline'")


def test_nothing_is_said_when_neovim_ends(
    tmp_path: Path,
    program: Path,
    model: Path,
    server_command: list[str],
    server_environment: dict[str, str],
) -> None:
    folder = tmp_path / "nvim"
    (tmp_path / "a.py").write_text("\n", "utf-8")
    with Neovim(program, folder, server_command, server_environment, with_model(model)) as nvim:
        nvim.open(tmp_path / "a.py")
    assert "the server" not in (folder / "stderr").read_text("utf-8")


def health(nvim: Neovim, artefacts: Path) -> str:
    nvim.keys(":checkhealth draftline<CR>")
    shown = "return table.concat(vim.api.nvim_buf_get_lines(0, 0, -1, true), '\\n')"
    report = str(nvim.until_lua(f"return vim.bo.filetype == 'checkhealth' and ({shown[7:]})"))
    nvim.keys(":bwipeout<CR>")
    return report


def test_checkhealth_finds_nothing_wrong(nvim: Neovim, artefacts: Path) -> None:
    report = health(nvim, artefacts)
    (artefacts / "neovim-health.txt").write_text(report, "utf-8")
    assert "ERROR" not in report and "WARNING" not in report, report
    for part in ("The server is enabled", "lsp_server --server own: draftline ", "ready ·"):
        assert part in report, report


def test_checkhealth_finds_what_is_wrong(
    tmp_path: Path, program: Path, server_environment: dict[str, str], artefacts: Path
) -> None:
    init = WITH_PLUGIN.split("\n")[0] + "\nvim.g.draftline = { inlin = true }"
    command = ["no-such-draftline", "lsp"]
    with Neovim(program, tmp_path / "nvim", command, server_environment, init) as nvim:
        report = health(nvim, artefacts)
    assert "ERROR There is no program no-such-draftline" in report, report
    assert "pipx install ." in report and "Call vim.lsp.enable('draftline')" in report
    assert "vim.g.draftline has no option inlin" in report


def test_help_builds_and_names_every_command_and_setting(nvim: Neovim, tmp_path: Path) -> None:
    shutil.copytree(PLUGIN, tmp_path / "plugin")
    doc = tmp_path / "plugin" / "doc"
    nvim.lua("vim.cmd.helptags({ args = { ... } })", str(doc))  # an error for a tag that is twice
    tags = {line.split("\t")[0] for line in (doc / "tags").read_text("utf-8").splitlines()}
    text = (doc / "draftline.txt").read_text("utf-8")
    commands = nvim.lua("return vim.tbl_keys(vim.api.nvim_get_commands({}))")
    ours = {f":{name}" for name in commands if name.startswith("Draftline")}
    assert {"draftline", "g:draftline"} | ours <= tags
    own = {*re.findall(r"\|(\S+)\|", text)} - {"gra", "i_CTRL-X_CTRL-O", "User"}
    assert own <= tags, own - tags
    assert all(len(line) <= 78 for line in text.splitlines())
    (block,) = re.findall(r">lua\n\n(    vim\.lsp\.config.*?)\n<", text, re.DOTALL)
    code = (
        f"local vim = {{ lsp = {{ config = function(_, config) Config = config end }} }}\n{block}"
    )
    found: dict[str, Any] = nvim.lua(code + "\nreturn Config.settings.draftline")
    assert {*found} == {*asdict(Settings())}
    lists = {name: value or [] for name, value in found.items() if value != ""}
    assert parse(lists | {"ghostText": True}) == (Settings(), [])
