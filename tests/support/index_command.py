"""Running `draftline index` in a process, on a small project, with a tokenizer for a model."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from tests.conftest import byte_bpe
from tests.support.command import environment

PATIENCE = 180.0  # seconds until a line that must come


def make_model(folder: Path) -> Path:
    """What a tokenizer is taken from; its weights can be loaded by nobody."""
    byte_bpe(folder)
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(b"none")
    return folder


def make_project(folder: Path) -> Path:
    """A folder with three files that count."""
    (folder / "sub").mkdir(parents=True)
    (folder / "a.py").write_text("def add(left, right):\n    return left + right\n")
    (folder / "sub" / "b.py").write_bytes(b"x = 1\r\n\r\ny = add(x, 2)\r\n")
    (folder / "c.txt").write_text("one\ntwo\n")
    (folder / "data").write_bytes(b"ab\0c")
    (folder / "id_rsa").write_text("secret\n")
    age(folder)
    return folder


def age(folder: Path) -> None:
    """Its files are not just written: their stamps tell a later change."""
    for number, path in enumerate(sorted(folder.rglob("*")), 1):
        os.utime(path, (number, number), follow_symlinks=False)


def index(
    project: Path, model: Path, *arguments: str | Path | bytes, **options: Any
) -> subprocess.CompletedProcess[bytes]:
    """Run `draftline index` in the project; the cache lies beside it."""
    command = [sys.executable, "-m", "ui.cli", "index", "--model", model, *arguments]
    given = {"capture_output": True, "timeout": PATIENCE} | options
    return subprocess.run(command, cwd=project, **{"env": environment(project.parent)} | given)


def answer(project: Path, model: Path, *arguments: str) -> dict[str, Any]:
    """The one JSON object of a run that went well."""
    result = index(project, model, "--json", *arguments)
    assert result.returncode == 0, result.stderr.decode()
    (line,) = result.stdout.splitlines()
    loaded: dict[str, Any] = json.loads(line)
    return loaded


class Running:
    """A `draftline index` that goes on; what it says is read as it comes."""

    def __init__(self, project: Path, model: Path, *arguments: str, terminal: bool = False) -> None:
        """`terminal`: it writes to one; else it writes lines, and stderr is kept apart."""
        command = [sys.executable, "-m", "ui.cli", "index", "--model", str(model), *arguments]
        self.text = ""
        self._news = threading.Condition()
        main, side = os.openpty() if terminal else os.pipe()
        errors = side if terminal else subprocess.PIPE
        self.process = subprocess.Popen(
            command, cwd=project, env=environment(project.parent), stdout=side, stderr=errors
        )
        os.close(side)
        self._reader = threading.Thread(target=self._read, args=[main])
        self._reader.start()

    def _read(self, descriptor: int) -> None:
        data = b"?"
        while data:
            try:
                data = os.read(descriptor, 1 << 16)
            except OSError:  # how a terminal ends
                data = b""
            with self._news:
                self.text += data.decode("utf-8", "replace")
                self._news.notify_all()
        os.close(descriptor)

    def __enter__(self) -> Running:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        self._reader.join()

    def until(self, words: str) -> None:
        """Until it has said this; what it said before is forgotten."""
        with self._news:
            heard = self._news.wait_for(lambda: words in self.text, PATIENCE)
            assert heard, f"not said: {words!r} but: {self.text!r}"
            self.text = self.text.split(words, 1)[1]

    def lines(self, number: int) -> list[dict[str, Any]]:
        """The next JSON lines."""
        found = []
        for _ in range(number):
            with self._news:
                assert self._news.wait_for(lambda: "\n" in self.text, PATIENCE), self.text
                line, self.text = self.text.split("\n", 1)
            found.append(json.loads(line))
        return found

    def interrupt(self) -> int:
        """Ctrl-C; the exit code."""
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(PATIENCE)
