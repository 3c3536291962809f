"""Run a program on changed files beside the workspace: it cannot change anything outside.

On Linux only, by its namespaces: the program finds every file at its usual path, sees the changed
ones, and what it writes is gone afterwards. Elsewhere a copy in another folder would test other
code than the edit wherever a path is absolute, as in Python's editable installs, so none is made.
"""

from __future__ import annotations

import json
import os
import selectors
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

from engine.editing.edits import EditRefused

Ended = Literal["exit", "time", "output"]
INSIDE = Path(__file__).with_name("inside.py")
NAMESPACES = ("--user", "--map-current-user", "--keep-caps", "--mount", "--net", "--ipc", "--pid")
WRITABLE = ("/tmp", "/var/tmp")  # beside the home folder and the workspace
MEMORY_BYTES = 4 << 30  # bytes that a process may allocate
DISK_BYTES = 1 << 30  # bytes, in memory, of all that a program writes
MAX_PROCESSES = 512  # with threads
MAX_OUTPUT_BYTES = 16 << 20  # bytes of output; the program is ended by more
PROBE_SECONDS = 10.0
TRIES = 3  # to make the namespaces, which rarely fails without a cause that stays
KEPT_BYTES = 64 << 10  # bytes of the end of the output that are kept
REMEDY = "leave out the check, or run the command yourself after the edit"


class SandboxError(EditRefused):
    """Why no program can be run apart on this machine, in one line with the remedy."""


@dataclass(frozen=True, slots=True)
class Finished:
    """How a program ended, and the end of what it printed."""

    ended: Ended  # by itself, or for lack of time or by much output
    code: int  # 0 only if it ended by itself and well
    output: str


@cache
def ensure() -> None:
    """Find out whether programs can be run apart on this machine. Raises SandboxError if not."""
    run(("true",), Path("/"), {}, PROBE_SECONDS)


def run(words: Sequence[str], folder: Path, files: Mapping[Path, str], seconds: float) -> Finished:
    """Run a program in a folder, where `files` have other texts, for some seconds at most.

    Raises SandboxError.
    """
    if sys.platform != "linux":
        raise SandboxError(f"programs are run apart on Linux only: {REMEDY}")
    unshare = shutil.which("unshare")
    if unshare is None:
        raise SandboxError(f"`unshare` of util-linux is not installed: install it, or {REMEDY}")
    plan = {
        "words": [*words],
        "folder": str(folder.resolve()),
        "folders": _overlaid([Path.home(), *map(Path, WRITABLE), folder]),
        "files": {str(path.resolve()): text for path, text in files.items()},
        "memory_bytes": MEMORY_BYTES,
        "disk_bytes": DISK_BYTES,
        "processes": MAX_PROCESSES,
    }
    for _ in range(TRIES):
        ended, output, result = _run_once(unshare, plan, seconds)
        if ended != "exit" or "error" not in result:
            break
    text = output.decode(errors="replace")
    if ended == "exit" and "exit" not in result:
        why = result.get("error") or " ".join(text.split()) or "it was ended"
        raise SandboxError(f"programs cannot be run apart here: {why}: {REMEDY}")
    return Finished(ended, result["exit"] if ended == "exit" else 1, text)


def _run_once(
    unshare: str, plan: dict[str, Any], seconds: float
) -> tuple[Ended, bytes, dict[str, Any]]:
    """Run a program once; return how it ended, the end of its output and what inside.py reports."""
    with tempfile.TemporaryDirectory(prefix="draftline-check-") as scratch:
        file = Path(scratch, "plan.json")
        file.write_text(json.dumps(plan))
        reader, writer = os.pipe()
        start = [unshare, *NAMESPACES, "--fork", "--kill-child", sys.executable, "-I", "-S"]
        with os.fdopen(reader, "rb") as status:
            try:
                process = subprocess.Popen(
                    [*start, str(INSIDE), str(file), str(writer)],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    pass_fds=(writer,),
                    start_new_session=True,
                )
            finally:
                os.close(writer)
            ended, output = _follow(process, seconds)
            return ended, output, json.loads(status.read() or b"{}")


def _overlaid(wanted: list[Path]) -> list[str]:
    """Choose the folders to overlay: those that exist and lie in no other one of their disk."""
    chosen: list[Path] = []
    for folder in sorted({one.resolve() for one in wanted if one.is_dir()} - {Path("/")}):
        within = (one for one in chosen if folder.is_relative_to(one))
        if not any(one.stat().st_dev == folder.stat().st_dev for one in within):
            chosen.append(folder)
    return [str(one) for one in chosen]


def _follow(process: subprocess.Popen[bytes], seconds: float) -> tuple[Ended, bytes]:
    """Wait until a program ends, or end it and all that it started; keep the end of its output."""
    assert process.stdout is not None
    output, count, deadline = bytearray(), 0, time.monotonic() + seconds
    ended: Ended = "exit"
    try:
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            while True:
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    ended = "time"
                    break
                if not (data := os.read(process.stdout.fileno(), KEPT_BYTES)):
                    break
                output += data
                del output[:-KEPT_BYTES]
                count += len(data)
                if count > MAX_OUTPUT_BYTES:
                    ended = "output"
                    break
            if ended == "exit":
                process.wait(max(0.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        ended = "time"
    finally:
        process.kill()  # the namespace's other processes end with it
        process.wait()
        process.stdout.close()
    return ended, bytes(output)
