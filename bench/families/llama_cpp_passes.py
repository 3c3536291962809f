"""llama.cpp's passes over several rows, timed in a process of its own.

It reads lines of a number of rows on stdin, and writes seconds to stdout. Between two lines it
takes
no processor time.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from time import perf_counter, sleep
from typing import Any

from bench.common.environment import ROOT
from bench.common.llama_cpp_api import batch, load

PROMPT_TOKENS = 128  # tokens before the passes
REST_S = 0.3  # seconds for its threads to stop spinning


class Passes:
    """A child process with a loaded file."""

    def __init__(self, path: Path, threads: int) -> None:
        """RuntimeError where llama.cpp cannot run it."""
        self.process = subprocess.Popen(
            [sys.executable, "-m", "bench.families.llama_cpp_passes", str(path), str(threads)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._line()

    def seconds(self, rows: int) -> float:
        """Time one pass, in seconds."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{rows}\n")
        self.process.stdin.flush()
        found = float(self._line())
        sleep(REST_S)
        return found

    def close(self) -> None:
        self.process.kill()
        self.process.wait()

    def _line(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line or line.startswith("error: "):
            raise RuntimeError(f"llama.cpp cannot run it: {line.strip() or 'its process ended'}")
        return line


def _serve(path: str, threads: int) -> None:
    def usual(model: Any, context: Any) -> None:
        context.n_ctx, context.n_batch, context.n_ubatch = 4096, 512, 512
        context.n_outputs_max = context.n_outputs_max_per_seq = 128
        context.n_threads = context.n_threads_batch = threads

    loaded = load(path, usual)
    if isinstance(loaded, str):
        print(f"error: {loaded or 'see its log'}", flush=True)
        return
    llama, _, context = loaded
    start, tokens = 0, [7 + n * 7919 % 1000 for n in range(PROMPT_TOKENS)]
    if llama.llama_decode(context, batch(tokens)):
        print("error: the prompt", flush=True)
        return
    start = PROMPT_TOKENS
    print("ready", flush=True)
    for line in sys.stdin:
        rows = int(line)
        made = batch([7 + (n + 2) * 7919 % 1000 for n in range(rows)], start)
        begun = perf_counter()
        failed = llama.llama_decode(context, made)
        llama.llama_synchronize(context)
        taken = perf_counter() - begun
        print("error: a pass" if failed else taken, flush=True)
        start += rows


if __name__ == "__main__":
    _serve(sys.argv[1], int(sys.argv[2]))
