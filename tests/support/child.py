"""Functions in child processes, which can be killed.

The children come from a server process of one thread: a child of this process would inherit locks
that threads of other tests held, and wait for them forever.
"""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable
from multiprocessing.process import BaseProcess

import cloudpickle

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["tests.support.faults"])


def start(work: Callable[[], object]) -> BaseProcess:
    """Start a child that calls `work`, which may be a closure, and exits with 1 on an exception. It
    shares nothing with this process but files: patches of modules are not in force there."""
    child = CONTEXT.Process(target=_run, args=(cloudpickle.dumps(work),), daemon=True)
    child.start()
    return child


def _run(work: bytes) -> None:
    cloudpickle.loads(work)()


def end_of(child: BaseProcess) -> int:
    """Wait for a child; its exit status, or -signal if it was killed."""
    child.join()
    assert child.exitcode is not None
    return child.exitcode


def kill(child: BaseProcess) -> None:
    """Kill a running child, and wait for it."""
    child.kill()
    assert end_of(child) == -signal.SIGKILL
