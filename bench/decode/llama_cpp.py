"""llama.cpp, by the wheel `xllamacpp`, in a process of its own.

In one process its OpenMP threads would contend with torch's. A process that waits for a line on
stdin takes no processor time, so runs can still take turns. It runs the same GGUF on the same
prompt tokens, greedily. The prompt stays in its cache between runs, so that only the warm-up
measures prefill.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from bench.common.environment import ROOT

# Its speculation modes that copy n-grams, by our names.
NGRAMS = {"map": "NGRAM_MAP_K", "cache": "NGRAM_CACHE", "mod": "NGRAM_MOD"}


def version() -> str | None:
    """Return the installed version, or None."""
    try:
        return importlib.metadata.version("xllamacpp")
    except importlib.metadata.PackageNotFoundError:
        return None


class Llama:
    """One llama.cpp server. `mode`: a speculation type's name, "" for plain decoding."""

    def __init__(self, gguf: Path, mode: str, threads: int, context: int) -> None:
        """Start the server. Raises RuntimeError if it fails."""
        arguments = [str(gguf), mode, str(threads), str(context)]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "bench.decode.llama_cpp", *arguments],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._answer()

    def run(
        self, ids: list[int], limit: int, stop: tuple[str, ...], cached: bool = True
    ) -> dict[str, Any]:
        """Return the server's own answer: `choices`, `usage` and `timings`.

        `cached`: its cache of the last prompt may be used.
        """
        assert self.process.stdin is not None
        request = {
            "prompt": ids,
            "max_tokens": limit,
            "stop": list(stop),
            "temperature": 0.0,
            "repeat_penalty": 1.0,
            "cache_prompt": cached,
        }
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        return self._answer()

    def close(self) -> None:
        """End the process."""
        self.process.kill()
        self.process.wait()

    def _answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError("llama.cpp's process ended: leave out its methods with --methods")
        answer: dict[str, Any] = json.loads(line)
        return answer


def serve(gguf: str, mode: str, threads: str, context: str) -> None:
    """Serve as the child process: JSON requests on stdin, JSON responses on stdout, a line each."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # keep the library's output off stdout
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = gguf
    params.n_ctx = int(context)
    params.n_parallel = 1
    params.n_predict = -1
    params.port = 0
    params.cache_ram_mib = 0
    params.fit_params = False
    params.ui = False
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = int(threads)
    if mode:
        name = f"COMMON_SPECULATIVE_TYPE_{mode}"
        params.speculative.types = [getattr(xllamacpp.common_speculative_type, name)]
    server = xllamacpp.Server(params)
    out.write("{}\n")
    out.flush()
    for line in sys.stdin:
        answer = server.handle_completions(json.loads(line))
        if not isinstance(answer, dict):
            answer = json.loads(answer)
        out.write(json.dumps(answer) + "\n")
        out.flush()


if __name__ == "__main__":
    serve(*sys.argv[1:])
