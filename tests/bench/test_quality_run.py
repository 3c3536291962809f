"""Untrusted programs are judged by their exit, limited while they run, and killed afterwards."""

from __future__ import annotations

import random
import time
from pathlib import Path

import psutil
import pytest

from bench.quality import run

ROOT = Path(__file__).resolve().parents[2]

WITHIN = [(), run.NAMESPACES] if run.namespaces() else [()]


@pytest.mark.parametrize(
    ("program", "why"),
    [
        ("assert __name__ == '__main__'", ""),
        ("assert 1 == 2, 'text of a record'", "AssertionError"),
        ("x = (", "SyntaxError"),
        ("import sys; sys.exit(0)", "ended early"),
        ("import os; os._exit(0)", "ended early"),
        ("raise type('Mine', (Exception,), {})('text of a record')", "other"),
        ("bytearray(5 << 30)", "MemoryError"),
        ("input()", "EOFError"),
        ("import os; assert not os.listdir('.') and 'SECRET_OF_TESTS' not in os.environ", ""),
        ("import bench", "ModuleNotFoundError"),
        ("import engine.prompts.builder", "ModuleNotFoundError"),
        ("while True: pass", "time"),
        ("import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\nwhile True: pass", "time"),
        ("import threading, time\nthreading.Thread(target=time.sleep, args=(99,)).start()", ""),
    ],
)
def test_a_program_is_judged(program: str, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_OF_TESTS", "1")
    seconds = 0.3 if why == "time" else 120.0
    assert run.run(program, seconds, WITHIN[-1]) == (not why, why)


@pytest.mark.parametrize("within", WITHIN, ids=["plain", "apart"][: len(WITHIN)])
def test_processes_that_it_started_are_killed(within: tuple[str, ...]) -> None:
    length = f"{random.randint(10**5, 10**6)}.25"
    program = f"import subprocess\nsubprocess.Popen(['sleep', '{length}'])\n"
    assert run.run(program, 120, within).passed
    assert ends(length)


def ends(length: str) -> bool:
    """Whether `sleep LENGTH` is killed; it would run for a day or longer."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and asleep(length):
        time.sleep(0.02)
    return not asleep(length)


def asleep(length: str) -> bool:
    return any(length in (one.info["cmdline"] or []) for one in psutil.process_iter(["cmdline"]))


@pytest.mark.skipif(not run.namespaces(), reason="no namespaces for this user here")
def test_in_a_namespace_there_is_no_network_and_no_escape_from_the_group() -> None:
    length = f"{random.randint(10**5, 10**6)}.25"
    escape = f"import subprocess\nsubprocess.Popen(['setsid', 'sleep', '{length}'])\n"
    assert run.run(escape, 120).passed and ends(length)

    code = "import socket; assert [name for _, name in socket.if_nameindex()] == ['lo']"
    assert run.run(code, 120) == (True, "")
