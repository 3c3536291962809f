"""How a server's process ends: by itself, by a signal, or because its client's process is dead.

Threads may still compute then, and Python would wait for some of them: nothing here does.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import psutil  # type: ignore[import-untyped]

from lsp_server.protocol.protocol import Server

log = logging.getLogger(__name__)

HURRY = 0.8  # seconds from the end of a server to the end of its process at the latest
GRACE = 0.4  # seconds of those for the clients' last messages
WATCH = 1.0  # seconds between two looks at the client's process
SIGNALS = {signal.SIGTERM: 143, signal.SIGINT: 130}  # and their exit codes


def run(work: Coroutine[Any, Any, int], code: Callable[[], int]) -> int:
    """Run to its end or to a signal; the exit code. Threads are not waited for: the caller ends
    the process by `os._exit`, or the timer does."""
    loop = asyncio.new_event_loop()
    main = loop.create_task(work)
    caught: list[int] = []

    def catch(number: int, _: Any) -> None:
        caught.append(SIGNALS[signal.Signals(number)])
        hurry(lambda: caught[0])
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(main.cancel)

    for each in SIGNALS:
        signal.signal(each, catch)
    with contextlib.suppress(asyncio.CancelledError):
        loop.run_until_complete(main)
    hurry(lambda: caught[0] if caught else code())
    others = asyncio.all_tasks(loop)  # the connections of a server that was told to end
    for task in others:
        task.cancel()
    if others:
        loop.run_until_complete(asyncio.wait(others, timeout=GRACE))
    return caught[0] if caught else main.result()


def hurry(code: Callable[[], int]) -> None:
    """End the process in HURRY seconds, whatever still works in it."""
    timer = threading.Timer(HURRY, lambda: os._exit(code()))
    timer.daemon = True
    timer.start()


async def client_gone(server: Server, pid: int | None) -> None:
    """Returns when the client's process is dead, though its pipes may still be open."""
    while pid is None:
        if server.protocol.stage == "running":
            pid = server.process_id or 0
        else:
            await asyncio.sleep(WATCH / 10)
    try:
        process = psutil.Process(pid) if pid else None  # it knows when that was created
    except (psutil.Error, ValueError, OverflowError):
        log.warning("the client's process %d is not seen from here: it is not watched", pid)
        process = None
    if process is None:
        await asyncio.Event().wait()  # for ever
    while process and _alive(process):
        await asyncio.sleep(WATCH)


def _alive(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running()) and bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False
