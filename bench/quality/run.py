"""Run untrusted code against its tests, in a process of its own.

Each program gets an empty temporary folder, ten seconds, limits on memory and processor time
(sandbox.py), no input, a small environment and no shell; then its process group is killed. Where
Linux allows unprivileged namespaces it has no network either, and no process outlives it. It can
still read and write this user's files: run the benchmark where that does not matter.
"""

from __future__ import annotations

import builtins
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import NamedTuple

from bench.common import report

CHILD = Path(__file__).with_name("sandbox.py")
TIME_LIMIT_S = 10.0
NAMESPACES = ("unshare", "--map-root-user", "--net", "--pid", "--fork", "--kill-child")


class Verdict(NamedTuple):
    """The result of a program: whether it passed, and why not.

    `why` is the kind of error: a built-in exception, or a word.
    """

    passed: bool
    why: str


@cache
def namespaces() -> tuple[str, ...]:
    """Return a command prefix that removes the network.

    It keeps processes from outliving the program, too. Empty, with a message, where namespaces are
    not available.
    """
    try:
        subprocess.run([*NAMESPACES, "true"], check=True, capture_output=True, timeout=30)
    except (OSError, subprocess.SubprocessError) as error:
        report.say(f"no namespaces here ({type(error).__name__}): the tests can use the network")
        return ()
    return NAMESPACES


def run(
    program: str, seconds: float = TIME_LIMIT_S, within: tuple[str, ...] | None = None
) -> Verdict:
    """Run a program for at most `seconds`, prefixed by `within` (default: `namespaces`)."""
    within = namespaces() if within is None else within
    with tempfile.TemporaryDirectory(prefix="quality-", ignore_cleanup_errors=True) as place:
        work = Path(place, "work")
        work.mkdir()
        script, errors = Path(place, "program.py"), Path(place, "errors")
        script.write_text(program, "utf-8", "replace")
        code = random.randint(64, 120)  # unknown to a program that exits early
        command = [*within, sys.executable, "-P", "-s", "-B", str(CHILD), str(script), str(code)]
        with errors.open("wb") as out:
            child = subprocess.Popen(
                command,
                cwd=work,
                env=_environment(work),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=out,
                start_new_session=True,
            )
            try:
                ended = child.wait(seconds)
            except subprocess.TimeoutExpired:
                return Verdict(False, "time")
            finally:
                _kill(child)
        if ended == code:
            return Verdict(True, "")
        return Verdict(False, _why(ended, errors))


def _environment(work: Path) -> dict[str, str]:
    one_thread = {f"{name}_NUM_THREADS": "1" for name in ("OMP", "OPENBLAS", "MKL")}
    home = {"HOME": str(work), "TMPDIR": str(work), "PATH": "/usr/bin:/bin"}
    return home | one_thread | {"LANG": "C.UTF-8", "PYTHONHASHSEED": "0"}


def _kill(child: subprocess.Popen[bytes]) -> None:
    """Kill the whole process group, including what the program started."""
    with suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()


def _why(ended: int, errors: Path) -> str:
    """Return the kind of error, never the program's own text."""
    if ended in (-signal.SIGKILL, -signal.SIGXCPU, 128 + signal.SIGKILL, 128 + signal.SIGXCPU):
        return "time"
    with errors.open("rb") as file:
        file.seek(max(0, errors.stat().st_size - 4000))
        text = file.read().decode("utf-8", "replace")
    for name in reversed(re.findall(r"^(\w+)(?=:|$)", text, re.MULTILINE)):
        kind = getattr(builtins, name, None)
        if isinstance(kind, type) and issubclass(kind, BaseException):
            return str(name)
    return "ended early" if ended == 0 else "other"
