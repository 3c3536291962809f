"""A parallel map over processes that each load their own models.

The processes find each other through the environment variables that `launch`, torchrun or
`accelerate launch` sets. Results are exchanged as JSON through torch's key-value store, without a
process group: a thread of gloo may still release a tensor, for which it needs the interpreter, when
the process ends, and aborts it.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")
POLL_S = 0.05
PATIENCE = timedelta(days=7)  # the first process waits for the slowest


def is_worker() -> bool:
    """Return whether this process is one of several workers."""
    size = os.environ.get("WORLD_SIZE", "")
    return size.isdecimal() and int(size) > 1


def distributed_map(
    items: Sequence[T], make: Callable[[str], Callable[[T], R]], device: str
) -> list[R] | None:
    """Apply a function to every item.

    Returns the results in order in the first process, None in the others. `make` receives this
    process's device and returns the function; results must be JSON. With `device` "cuda" each
    process has a card of its own, where there are enough.
    """
    from torch.distributed.rendezvous import rendezvous

    store, rank, size = next(rendezvous("env://", timeout=PATIENCE))
    work = make(_own_device(device))
    own = {index: work(items[index]) for index in range(rank, len(items), size)}
    if rank:
        for index, result in own.items():
            store.set(_key(index), json.dumps(result))
        return None
    return [
        own[index] if index in own else json.loads(store.get(_key(index)))
        for index in range(len(items))
    ]


def _own_device(device: str) -> str:
    import torch

    if device != "cuda":
        return device
    return f"cuda:{int(os.environ.get('LOCAL_RANK', 0)) % torch.cuda.device_count()}"


def _key(index: int) -> str:
    return f"draftline/{index}"


def launch(command: Sequence[str], count: int) -> int:
    """Run `count` copies of a command with the variables that `distributed_map` needs.

    Returns 0, or the first nonzero exit code; the remaining processes are then terminated.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shared = {"WORLD_SIZE": count, "LOCAL_WORLD_SIZE": count}
    shared["MASTER_PORT"] = port
    shared["OMP_NUM_THREADS"] = max(1, (os.cpu_count() or 1) // count)
    workers = []
    try:
        for rank in range(count):
            variables = shared | {"RANK": rank, "LOCAL_RANK": rank}
            env = os.environ | {name: str(value) for name, value in variables.items()}
            env["MASTER_ADDR"] = "127.0.0.1"
            workers.append(subprocess.Popen(command, env=env))
        while True:
            codes = [worker.poll() for worker in workers]
            failed = next((code for code in codes if code), 0)
            if failed or None not in codes:
                return failed
            time.sleep(POLL_S)
    finally:
        for worker in workers:
            worker.terminate()
        for worker in workers:
            worker.wait()
