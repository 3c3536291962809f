"""Run one program with limited resources: python sandbox.py PROGRAM CODE

bench/quality/run.py starts this file by path, in a new process. The process exits with CODE if the
program runs to its end; any earlier exit, also by sys.exit(0), has another code. Memory, processor
time and the size of a written file are limited, the rest of the disk is not. This file imports
nothing of the project, and the program cannot either.
"""

from __future__ import annotations

import os
import resource
import runpy
import sys
from pathlib import Path

MAX_MEMORY_BYTES = 4 << 30  # bytes of address space
MAX_FILE_BYTES = 16 << 20
MAX_CPU_S = 10
ROOT = str(Path(__file__).resolve().parents[2])


def main() -> None:
    program, code = sys.argv[1], int(sys.argv[2])
    limits = (
        (resource.RLIMIT_AS, MAX_MEMORY_BYTES),
        (resource.RLIMIT_CPU, MAX_CPU_S),
        (resource.RLIMIT_FSIZE, MAX_FILE_BYTES),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_NOFILE, 128),
    )
    for what, limit in limits:
        hard = resource.getrlimit(what)[1]
        limit = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
        resource.setrlimit(what, (limit, limit))
    # An editable install makes this project's packages importable everywhere.
    sys.path[:] = [path for path in sys.path if path != ROOT]
    sys.meta_path[:] = [one for one in sys.meta_path if "editable" not in type(one).__module__]
    sys.argv[:] = [program]
    runpy.run_path(program, run_name="__main__")
    os._exit(code)  # without waiting for its threads


if __name__ == "__main__":
    main()
