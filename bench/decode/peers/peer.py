"""Another program in a process of its own, which answers a JSON request a line.

In one process its threads would contend with ours. A process that waits for a line on stdin takes
no processor time, so runs can still take turns. All peers read the same GGUF file and the same
prompt tokens, and decode greedily. The prompt stays in a peer's cache between runs where it has
one: only a task's first run reads it.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from bench.common.environment import ROOT

FOLDER = ROOT / "build" / "peers"  # the environment that `make peers` makes
FLAGS = FOLDER / "flags.txt"  # CMake's, of the peers that were built


def python() -> Path:
    """Return the interpreter of the peers' environment, which may be missing."""
    return FOLDER / "bin" / "python"


def installed() -> dict[str, str]:
    """Return the versions of the peers' packages, and the flags they were built with."""
    if not python().is_file():
        return {}
    listed = [str(python()), "-m", "pip", "list", "--format", "json", "--disable-pip-version-check"]
    found = json.loads(subprocess.run(listed, capture_output=True, text=True, check=True).stdout)
    versions = {one["name"]: one["version"] for one in found}
    flags = {"flags": FLAGS.read_text("utf-8").strip()} if FLAGS.is_file() else {}
    return versions | flags


class Peer:
    """A child process: `module` of this folder, run by `interpreter`."""

    def __init__(self, module: str, arguments: list[str], interpreter: Path | None = None) -> None:
        """Start it and wait until its model is loaded. Raises RuntimeError if that fails."""
        self.module = module
        self.process = subprocess.Popen(
            [interpreter or sys.executable, "-m", f"bench.decode.peers.{module}", *arguments],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._answer()

    def run(
        self, ids: list[int], limit: int, stop: tuple[str, ...], cached: bool = True
    ) -> dict[str, Any]:
        """Return an answer of at most `limit` tokens, as `child.serve` describes it.

        `cached`: its cache of the last prompt may be used.
        """
        return self.ask({"prompt": ids, "limit": limit, "stop": list(stop), "cached": cached})

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """Return the child's answer to a request."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        return self._answer()

    def close(self) -> None:
        """End the process."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()

    def _answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.module} ended: leave out its methods with --methods")
        answer: dict[str, Any] = json.loads(line)
        return answer
