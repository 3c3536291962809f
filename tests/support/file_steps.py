"""File operations of this process: counted, and killed or interrupted at one of them."""

from __future__ import annotations

import importlib
import os
import signal
import threading
from collections.abc import Callable
from typing import Any

STEPS = (
    "open", "write", "fsync", "close", "replace", "unlink", "mkdir", "chmod", "stat", "lstat",
    "fstat", "fchmod", "scandir", "listxattr",
)  # fmt: skip


def each_step(before: Callable[[str, tuple[Any, ...]], None]) -> None:
    """Call `before` before each file operation of this process from now on."""

    def wrapped(name: str) -> Callable[..., Any]:
        real = getattr(os, name)

        def step(*args: Any, **options: Any) -> Any:
            before(name, args)
            return real(*args, **options)

        return step

    for name in STEPS:
        if hasattr(os, name):
            setattr(os, name, wrapped(name))


def kill_at(number: int) -> None:
    """Kill this process before its file operation `number`; of a write, half is done."""
    left, write = iter(range(number + 1)), os.write

    def before(name: str, args: tuple[Any, ...]) -> None:
        if next(left, None) == number:
            if name == "write":
                write(args[0], args[1][: len(args[1]) // 2])
            os.kill(os.getpid(), signal.SIGKILL)

    each_step(before)


def when_called(place: str, act: Callable[[], object]) -> None:
    """Call `act` when the function at a place, such as `package.module:Class.method`, is called for
    the first time from now on."""
    module, _, path = place.partition(":")
    owner: Any = importlib.import_module(module)
    *outer, name = path.split(".")
    for each in outer:
        owner = getattr(owner, each)
    real = getattr(owner, name)
    called = []

    def run(*args: Any, **options: Any) -> Any:
        if not called:
            called.append(True)
            act()
        return real(*args, **options)

    setattr(owner, name, run)


def kill_in(place: str, number: int, seconds: float) -> None:
    """Kill this process when the function at that place has done `number` file operations, or
    after `seconds` if it does fewer."""

    def act() -> None:
        kill_at(number)
        timer = threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGKILL))
        timer.daemon = True
        timer.start()

    when_called(place, act)


def interrupt_in(place: str, hold: bool) -> None:
    """Send Ctrl-C to this process when the function at that place is called. `hold`: in another
    thread than the main one, never go on after that."""

    def act() -> None:
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        if hold and threading.current_thread() is not threading.main_thread():
            threading.Event().wait()

    when_called(place, act)
