"""Runs the scenarios of a Playwright script in Node."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self


class Scenarios:
    """A running script, whose scenarios run in sequence in one window."""

    def __init__(
        self,
        node: Path,
        script: Path,
        parameters: dict[str, Any],
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """`node`: the folder that fetch_vscode.sh fills. `parameters`: passed to the
        script as JSON."""
        command: list[str | Path] = [
            node / "node24" / "bin" / "node",
            script,
            json.dumps(parameters),
        ]
        self.running = subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        self.ended: dict[str, str | None] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        """End the script and its browser."""
        end(self.running)

    def error(self, name: str) -> str | None:
        """Wait for a scenario; returns its error, or None."""
        assert self.running.stdout
        while name not in self.ended:
            line = self.running.stdout.readline()
            assert line, f"{name!r} did not run; these did: {list(self.ended)}"
            result = json.loads(line)
            self.ended[result["name"]] = result["error"]
        return self.ended[name]


def end(process: subprocess.Popen[Any]) -> None:
    """Terminate a process group, and kill it if it does not end in time."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(timeout=60)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
