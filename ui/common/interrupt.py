"""Ctrl-C, which ends a command at once with exit code 130, or only the answer being written."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from types import FrameType
from typing import Any, Self

from ui.common.errors import INTERRUPTED

CLEANUP_TIMEOUT_S = 2.0


class Interrupt:
    """A handler of Ctrl-C that prints its line at once and leaves `CLEANUP_TIMEOUT_S` to clean up.

    Model loads may swallow KeyboardInterrupt or print a traceback: so stderr is redirected to
    /dev/null and a timer ends the process in any case. In an import the process ends at once: the
    initialisation of an extension module, such as torch's, aborts on an exception. No file is
    written after the line has been printed.
    """

    def __init__(self) -> None:
        self.received = False
        self.ignored = False

    def listen(self) -> None:
        """Handle SIGINT from now on. Does nothing outside the main thread."""
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, self._handle)

    def commit(self) -> None:
        """Ignore Ctrl-C from now on: a file is about to be replaced and the command to end."""
        if self.received:
            raise KeyboardInterrupt
        self.ignored = True

    def _handle(self, _: int, frame: FrameType | None) -> None:
        if self.ignored:
            return
        if self.received:
            os._exit(INTERRUPTED)
        self.received = True
        clear = b"\r\x1b[K\x1b[?25h" if os.isatty(2) else b""  # the live line; show the cursor
        with contextlib.suppress(OSError):
            os.write(2, clear + b"draftline: interrupted: no file was changed\n")
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        if _is_importing(frame):
            os._exit(INTERRUPTED)
        timer = threading.Timer(CLEANUP_TIMEOUT_S, os._exit, (INTERRUPTED,))
        timer.daemon = True
        timer.start()
        raise KeyboardInterrupt


def _is_importing(frame: FrameType | None) -> bool:
    """Return whether this frame, or one that called it, is in an import."""
    while frame is not None:
        if frame.f_code.co_filename == "<frozen importlib._bootstrap>":
            return True
        frame = frame.f_back
    return False


class AnswerInterrupt:
    """A context in which the first Ctrl-C only sets `received`.

    So the answer written so far can be kept. A second Ctrl-C ends the command.
    """

    def __init__(self) -> None:
        self.received = False
        self._previous: Any = None

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._previous = signal.signal(signal.SIGINT, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        if self._previous is not None:
            signal.signal(signal.SIGINT, self._previous)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.received and callable(self._previous):
            self._previous(number, frame)
        self.received = True
