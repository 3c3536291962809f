"""`draftline index` on a small project, with a tokenizer for a model."""

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
from tests.support.command import Result, draftline, environment

TIMEOUT_S = 180.0


def make_model(folder: Path) -> Path:
    """A model of which only the tokenizer can be loaded."""
    byte_bpe(folder)
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(b"none")
    return folder


def make_project(folder: Path) -> Path:
    """A folder with three files that are indexed, and two that are not."""
    (folder / "sub").mkdir(parents=True)
    (folder / "a.py").write_text("def add(left, right):\n    return left + right\n")
    (folder / "sub" / "b.py").write_bytes(b"x = 1\r\n\r\ny = add(x, 2)\r\n")
    (folder / "c.txt").write_text("one\ntwo\n")
    (folder / "data").write_bytes(b"ab\0c")
    (folder / "id_rsa").write_text("secret\n")
    age(folder)
    return folder


def age(folder: Path) -> None:
    """Set old modification times, so that later changes show in the files' stamps."""
    for number, path in enumerate(sorted(folder.rglob("*")), 1):
        os.utime(path, (number, number), follow_symlinks=False)


def index(
    project: Path, model: Path, *arguments: str | Path | bytes, cwd: Path | None = None
) -> Result:
    """Run `draftline index` in the project, with the cache beside it."""
    command = ("index", "--model", model, *arguments)
    return draftline(cwd or project, *command, cache=project.parent)


def answer(project: Path, model: Path, *arguments: str) -> dict[str, Any]:
    """The JSON object of a successful run."""
    result = index(project, model, "--json", *arguments)
    assert result.returncode == 0, result.stderr.decode()
    (line,) = result.stdout.splitlines()
    loaded: dict[str, Any] = json.loads(line)
    return loaded


class Running:
    """A `draftline index` in a process of its own; its output is read as it comes."""

    def __init__(
        self,
        project: Path,
        model: Path,
        *arguments: str,
        terminal: bool = False,
        patch: str = "pass",
    ) -> None:
        """With `terminal`, stdout and stderr are one terminal; else stderr is kept apart. The code
        of `patch` runs before the command."""
        code = f"import sys\nfrom ui.cli.main import main\n{patch}\nsys.exit(main())"
        command = [sys.executable, "-c", code, "index", "--model", str(model), *arguments]
        self.text = ""
        self._changed = threading.Condition()
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
            except OSError:  # a closed terminal
                data = b""
            with self._changed:
                self.text += data.decode("utf-8", "replace")
                self._changed.notify_all()
        os.close(descriptor)

    def __enter__(self) -> Running:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        self._reader.join()
        if self.process.stderr:
            self.process.stderr.close()

    def until(self, words: str) -> None:
        """Wait for `words`; what was printed up to them is dropped."""
        with self._changed:
            found = self._changed.wait_for(lambda: words in self.text, TIMEOUT_S)
            assert found, f"no {words!r} in {self.text!r}"
            self.text = self.text.split(words, 1)[1]

    def interrupt(self) -> int:
        """Ctrl-C; the exit code."""
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(TIMEOUT_S)
