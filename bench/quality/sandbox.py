"""Runs one program with little of the machine: python quality_child.py PROGRAM CODE

The child of bench/quality/run.py. The process ends with CODE where the program came to its end by
itself; what leaves earlier, also by sys.exit(0), ends with another. Limits memory and processor
time, and what can be written into one file; not the rest of the disk. Imports nothing of the
project, and nor can the program.
"""

from __future__ import annotations

import os
import resource
import runpy
import sys
from pathlib import Path

MEMORY, WRITTEN, SECONDS = 4 << 30, 16 << 20, 10  # bytes of addresses, bytes of a file, processor
ROOT = str(Path(__file__).resolve().parents[2])


def main() -> None:
    program, code = sys.argv[1], int(sys.argv[2])
    limits = (
        (resource.RLIMIT_AS, MEMORY),
        (resource.RLIMIT_CPU, SECONDS),
        (resource.RLIMIT_FSIZE, WRITTEN),
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
    os._exit(code)  # its threads do not hold it up


if __name__ == "__main__":
    main()
