"""Ctrl-C: one line at once, the exit code 130, and no file changed, whatever is going on."""

from __future__ import annotations

import contextlib
import os
import signal
import threading

INTERRUPTED = 130
PATIENCE = 2.0  # seconds that cleaning up may take


class Interrupt:
    """Ctrl-C says its line at once, then gets at most `PATIENCE` seconds to clean up.

    Imports and model loads may swallow KeyboardInterrupt or print about it: stderr is closed to
    them, and a timer ends the process in any case. No file is written after the line.
    """

    def __init__(self) -> None:
        self.said = self.too_late = False

    def listen(self) -> None:
        """From here on Ctrl-C is this."""
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, self._caught)

    def commit(self) -> None:
        """From here on the command ends by itself, in a moment: a file is being replaced."""
        if self.said:
            raise KeyboardInterrupt
        self.too_late = True

    def _caught(self, *_: object) -> None:
        if self.too_late:
            return
        if self.said:
            os._exit(INTERRUPTED)
        self.said = True
        clean = b"\r\x1b[K\x1b[?25h" if os.isatty(2) else b""  # the live line, the hidden cursor
        with contextlib.suppress(OSError):
            os.write(2, clean + b"draftline: interrupted: no file was changed\n")
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        timer = threading.Timer(PATIENCE, os._exit, (INTERRUPTED,))
        timer.daemon = True
        timer.start()
        raise KeyboardInterrupt
