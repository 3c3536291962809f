"""How a command ends: its exit codes, the error that ends it, and its lines on stderr."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from ui.common.terminal import one_line

OK = 0
FAILED = 1
USAGE = 2  # usage or bad input
NO_MODEL = 3
INTERRUPTED = 130  # 128 + SIGINT, as a shell reports it


class Failure(Exception):
    """An error that ends a command with an exit code and one line: input, problem, remedy."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


def say(message: str) -> None:
    """Print `draftline: message` on stderr: one line, with control characters made visible."""
    if sys.stderr:
        print("draftline:", one_line(" ".join(message.split())), file=sys.stderr, flush=True)


def reason(error: OSError | ValueError) -> str:
    """Name the cause of an error, without the number and the path that an OSError's `str` has."""
    return getattr(error, "strerror", None) or str(error)


@contextmanager
def warnings_on_stderr() -> Iterator[None]:
    """Print each warning that the index or the engine logs as one line on stderr."""
    handler = _SayHandler(logging.WARNING)
    loggers = [logging.getLogger(name) for name in ("index", "engine")]
    for logger in loggers:
        logger.addHandler(handler)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeHandler(handler)


class _SayHandler(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        say(record.getMessage())
