"""The end of the server's process: normally, on a signal, or because the client's process is dead.

Threads may still be computing by then, and Python would wait for some of them; this does not. That
includes saving the index of a client that has just left: an editor that quits must not wait for a
disk. Saves are atomic and also happen in the background, so what is cut short costs the next start
the reading of the files that changed last, or of all files if nothing had been saved yet.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading
from collections.abc import Callable, Coroutine
from typing import Any

from lsp_server.protocol.client_process import find_process, wait_for_end
from lsp_server.protocol.protocol import Server

EXIT_TIMEOUT_S = 0.8  # seconds from the end of a server to the end of its process
CLIENTS_TIMEOUT_S = 0.4  # seconds of EXIT_TIMEOUT_S, to close the clients' connections
START_INTERVAL_S = 0.1  # seconds between two checks whether the client has said who it is
EXIT_CODES = {signal.SIGTERM: 143, signal.SIGINT: 130}


def run(work: Coroutine[Any, Any, int], code: Callable[[], int]) -> int:
    """Run `work` until it ends or a signal comes; return the exit code.

    The caller must then end the process by `os._exit`, which waits for no thread; else a timer
    does.
    """
    loop = asyncio.new_event_loop()
    main = loop.create_task(work)
    caught: list[int] = []

    def catch(number: int, _: Any) -> None:
        caught.append(EXIT_CODES[signal.Signals(number)])
        exit_soon(lambda: caught[0])
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(main.cancel)

    for each in EXIT_CODES:
        signal.signal(each, catch)
    with contextlib.suppress(asyncio.CancelledError):
        loop.run_until_complete(main)
    exit_soon(lambda: caught[0] if caught else code())
    others = asyncio.all_tasks(loop)  # the connections of clients
    for task in others:
        task.cancel()
    if others:
        loop.run_until_complete(asyncio.wait(others, timeout=CLIENTS_TIMEOUT_S))
    return caught[0] if caught else main.result()


def exit_soon(code: Callable[[], int]) -> None:
    """End the process in EXIT_TIMEOUT_S seconds, whatever still runs in it."""
    timer = threading.Timer(EXIT_TIMEOUT_S, lambda: os._exit(code()))
    timer.daemon = True
    timer.start()


async def client_gone(server: Server, pid: int | None) -> None:
    """Return when the client's process is dead, even if its pipes are still open."""
    while pid is None:
        if server.protocol.stage == "running":
            pid = server.process_id or 0
        else:
            await asyncio.sleep(START_INTERVAL_S)
    loop, gone = asyncio.get_running_loop(), asyncio.Event()
    process = find_process(pid)

    def watch() -> None:
        wait_for_end(process)
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(gone.set)

    if process is not None:
        threading.Thread(target=watch, name="watch", daemon=True).start()
    await gone.wait()
