"""A parallel map over processes that each load their own models.

The processes find each other through the environment variables that `launch`, torchrun or
`accelerate launch` sets; accelerate splits the list. Results are exchanged as JSON.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import Any, TypeVar

T = TypeVar("T")
R = TypeVar("R")
POLL_S = 0.05


def is_worker() -> bool:
    """Whether this process is one of several workers."""
    size = os.environ.get("WORLD_SIZE", "")
    return size.isdecimal() and int(size) > 1


def is_available() -> bool:
    """Whether accelerate is installed."""
    return find_spec("accelerate") is not None


def distributed_map(
    items: Sequence[T], make: Callable[[str], Callable[[T], R]], cpu: bool
) -> list[R] | None:
    """Apply a function to every item. Returns the results in order in the first process, None in
    the others. `make` receives this process's device and returns the function; results must be
    JSON."""
    import torch
    from accelerate import PartialState
    from accelerate.utils import gather, pad_across_processes

    state: Any = PartialState(cpu=cpu)
    work = make(str(state.device))
    with state.split_between_processes([*items]) as share:
        data = json.dumps([work(item) for item in share]).encode()
    row = torch.frombuffer(bytearray(data), dtype=torch.uint8)[None].to(state.device)
    rows = gather(pad_across_processes(row, dim=1)).cpu().numpy()  # padded with zeros
    results = [result for row in rows for result in json.loads(row.tobytes().rstrip(b"\0"))]
    state.destroy_process_group()
    return results if state.is_main_process else None


def launch(command: Sequence[str], count: int) -> int:
    """Run `count` copies of a command with the variables that `distributed_map` needs.

    Returns 0, or the first nonzero exit code; the remaining processes are then terminated."""
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
            if sys.platform == "linux":
                env.setdefault("GLOO_SOCKET_IFNAME", "lo")  # all processes run on this machine
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
