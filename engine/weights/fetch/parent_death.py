"""A script that runs a module as a child process, which ends with its parent; never imported.

Its parent holds the other end of its stdin. When the parent ends, by whatever death, stdin closes
and this process ends too: no download goes on for nobody, or writes where the next one works.
"""

from __future__ import annotations

import os
import runpy
import sys
import threading


def end_with_stdin() -> None:
    """End the process when stdin closes.

    Reads the raw descriptor: sys.stdin would be locked.
    """
    while os.read(0, 1):
        pass
    os._exit(1)


if __name__ == "__main__":
    threading.Thread(target=end_with_stdin, daemon=True).start()
    sys.argv = sys.argv[1:]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
