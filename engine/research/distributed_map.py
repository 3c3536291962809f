"""A list worked on by several processes, each with models of its own; results in the list's order.

The processes find each other by the environment that `start`, torchrun or `accelerate launch`
sets; accelerate shares the list out. Results travel as JSON.
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
POLL = 0.05  # seconds


def inside() -> bool:
    """Whether this process is one of several."""
    size = os.environ.get("WORLD_SIZE", "")
    return size.isdecimal() and int(size) > 1


def possible() -> bool:
    """Whether accelerate is installed."""
    return find_spec("accelerate") is not None


def spread(
    items: Sequence[T], make: Callable[[str], Callable[[T], R]], cpu: bool
) -> list[R] | None:
    """What work makes of each item, in order; None in all processes but the first. `make` is given
    this process's device and returns the work, whose results JSON can hold."""
    import torch
    from accelerate import PartialState
    from accelerate.utils import gather, pad_across_processes

    state: Any = PartialState(cpu=cpu)
    work = make(str(state.device))
    with state.split_between_processes([*items]) as mine:
        data = json.dumps([work(one) for one in mine]).encode()
    row = torch.frombuffer(bytearray(data), dtype=torch.uint8)[None].to(state.device)
    rows = gather(pad_across_processes(row, dim=1)).cpu().numpy()  # padded with zeros
    found = [one for each in rows for one in json.loads(each.tobytes().rstrip(b"\0"))]
    state.destroy_process_group()
    return found if state.is_main_process else None


def start(command: Sequence[str], count: int) -> int:
    """Run a command `count` times at once, each told its place. The exit code: the first that is
    not 0, at which the others are ended."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shared = {"WORLD_SIZE": count, "LOCAL_WORLD_SIZE": count}
    shared["MASTER_PORT"] = port
    shared["OMP_NUM_THREADS"] = max(1, (os.cpu_count() or 1) // count)
    group = []
    try:
        for place in range(count):
            told = shared | {"RANK": place, "LOCAL_RANK": place}
            env = os.environ | {name: str(value) for name, value in told.items()}
            env["MASTER_ADDR"] = "127.0.0.1"
            if sys.platform == "linux":
                env.setdefault("GLOO_SOCKET_IFNAME", "lo")  # no other machine takes part
            group.append(subprocess.Popen(command, env=env))
        while True:
            codes = [one.poll() for one in group]
            bad = next((code for code in codes if code), 0)
            if bad or None not in codes:
                return bad
            time.sleep(POLL)
    finally:
        for one in group:
            one.terminate()
        for one in group:
            one.wait()
