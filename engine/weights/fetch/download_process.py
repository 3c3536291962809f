"""Downloads in child processes, which Ctrl-C ends at once; progress is the bytes they wrote."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

SUPERVISED = Path(__file__).with_name("parent_death.py")
OFFLINE = "if this machine is offline: `draftline models add PATH` takes a file from anywhere"


def watch(
    program: list[str],
    work: Path,
    log: Path,
    report: Callable[[int], None],
    out: Path | None = None,
    **environment: str,
) -> int:
    """Run a Python module or file in `work`, its temporary files there too, and report the bytes
    it has written. Returns its exit status. Whatever ends us ends the child.
    """
    environ = os.environ | environment | {"TMPDIR": str(work), "TEMP": str(work)}
    with log.open("wb") as errors, (out or Path(os.devnull)).open("wb") as output:
        child = subprocess.Popen(
            [
                sys.executable,
                "-P",
                str(SUPERVISED),
                *program,
            ],  # -P: no imports from `work`
            cwd=work,
            env=environ,
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=errors,
        )
        try:
            while True:
                try:
                    return child.wait(timeout=0.1)
                except subprocess.TimeoutExpired:
                    report(_bytes_under(work))
        finally:
            if child.poll() is None:
                child.kill()
                child.wait()
            if child.stdin:
                child.stdin.close()


def _bytes_under(folder: Path) -> int:
    """Size of all files below a folder; files that vanish while it looks count nothing."""
    total = 0
    for root, _, names in os.walk(folder):
        for name in names:
            try:
                total += (Path(root) / name).stat().st_size
            except FileNotFoundError:
                continue
    return total


def reason(log: Path) -> str:
    """The last line of a child's stderr that gives the reason of its failure."""
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
    reason = (errors or lines or ["no reason given"])[-1]
    if any("connection broken" in line for line in lines):
        reason = f"no connection to the package index ({reason})"
    return reason.rstrip(".")
