"""The `draftline` command in children of a process that has imported it once, so that hundreds of
runs can be killed or interrupted."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from tests.support.command import environment


@dataclass(frozen=True)
class End:
    """How a run ended."""

    code: int  # or -signal
    stdout: bytes
    stderr: bytes
    max_rss_mb: float


class ForkServer:
    """Runs one command at a time; the cache is `home` in `folder`. A context manager."""

    def __init__(self, folder: Path, *modules: str) -> None:
        """`modules` are imported once, before any command runs."""
        code = "import sys; from tests.support.fork_server import serve; serve(sys.argv[1:])"
        self._folder = folder
        self._process = subprocess.Popen(
            [sys.executable, "-c", code, "ui.cli.main", *modules],
            env=environment(folder, OMP_NUM_THREADS="1"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        assert self._process.stdin and self._process.stdout
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()

    def start(self, cwd: Path, *arguments: str | Path, patch: str = "") -> int:
        """Start a command; its process id, which is valid until `end`. The code of `patch` runs
        before it."""
        request = {
            "cwd": str(cwd),
            "arguments": [str(argument) for argument in arguments],
            "patch": patch,
            "streams": [str(self._folder / name) for name in ("stdout", "stderr")],
        }
        return int(self._ask(json.dumps(request)))

    def end(self) -> End:
        """Wait for the command."""
        code, max_rss = json.loads(self._ask("end"))
        out, err = (self._folder / name for name in ("stdout", "stderr"))
        return End(code, out.read_bytes(), err.read_bytes(), max_rss / 1024)

    def run(self, cwd: Path, *arguments: str | Path, patch: str = "") -> End:
        """Start a command, and wait for it."""
        self.start(cwd, *arguments, patch=patch)
        return self.end()

    def _ask(self, request: str) -> bytes:
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write(request.encode() + b"\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, "the server ended"
        return line


def serve(modules: list[str]) -> None:
    """The server: for each line on stdin one on stdout. To a command its process id, and to "end"
    how it ended, as (exit code, maximum resident KiB)."""
    for name in modules:
        importlib.import_module(name)
    child = 0
    for line in sys.stdin:
        if line == "end\n":
            _, status, usage = os.wait4(child, 0)
            print(json.dumps([os.waitstatus_to_exitcode(status), usage.ru_maxrss]), flush=True)
            continue
        child = os.fork()
        if child == 0:
            _become(json.loads(line))
        print(child, flush=True)


def _become(request: dict[str, Any]) -> None:
    """Run the command, and end this process as usual."""
    from ui.cli.main import main

    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for descriptor, path in enumerate(request["streams"], 1):
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        os.dup2(os.open(path, flags, 0o600), descriptor)
    os.chdir(request["cwd"])
    exec(request["patch"], {})
    sys.exit(main(request["arguments"]))
