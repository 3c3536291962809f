"""A vLLM server in a process of its own, with a drafting method or none, and what it counted."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from bench.common.environment import ROOT

PYTHON = ROOT / "build" / "vllm" / "bin" / "python"  # `make test-vllm` makes it
START_TIMEOUT_S, ANSWER_TIMEOUT_S = 600.0, 1800.0
LOG_TAIL_CHARS = 2000
# The V2 runner refuses classes of drafters; a cache of 1 GiB is enough here.
VARIABLES = {
    "VLLM_USE_V2_MODEL_RUNNER": "0",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
}
COUNTER = re.compile(
    r"^vllm:spec_decode_num_(drafts|draft_tokens|accepted_tokens)_total{.*} (\S+)$"
)
OURS = {"method": "custom_class", "model": "engine.drafting.hosts.vllm.Proposer"}
METHODS: dict[str, dict[str, Any]] = {  # name -> what vLLM gets, next to the number of tokens
    "plain": {},
    "ngram": {"method": "ngram", "prompt_lookup_max": 5, "prompt_lookup_min": 2},
    "suffix": {"method": "suffix"},
    "draftline": OURS,
    "draftline-gpu": OURS,
}
# Drafts as long as on a card, where they cost next to nothing.
METHOD_VARIABLES = {"draftline-gpu": {"DRAFTLINE_COSTS": "gpu"}}


@dataclass(frozen=True, slots=True)
class DraftCounts:
    """Sums over requests, as vLLM counts them: a step without a draft is no draft."""

    drafts: int = 0
    draft_tokens: int = 0
    accepted_tokens: int = 0

    def since(self, before: DraftCounts) -> DraftCounts:
        return DraftCounts(
            self.drafts - before.drafts,
            self.draft_tokens - before.draft_tokens,
            self.accepted_tokens - before.accepted_tokens,
        )

    @property
    def acceptance_length(self) -> float:
        """Tokens of a step that had a draft, the model's own token included."""
        return 1 + self.accepted_tokens / self.drafts if self.drafts else 1.0


def counts_of(metrics: str) -> DraftCounts:
    """Return the counters in the text of `/metrics`; a server without drafts has none."""
    found = [COUNTER.match(line) for line in metrics.splitlines()]
    return DraftCounts(**{one[1]: int(float(one[2])) for one in found if one})


@dataclass(frozen=True, slots=True)
class VllmAnswer:
    """The answer to one request."""

    text: str
    tokens: int
    seconds: float


class VllmServer:
    """A server that listens."""

    def __init__(self, url: str, model: str) -> None:
        self.url, self.model = url, model

    def counts(self) -> DraftCounts:
        """Count what was drafted since the start."""
        return counts_of(httpx.get(f"{self.url}/metrics", trust_env=False, timeout=60).text)

    def complete(self, prompt: list[int], max_tokens: int) -> VllmAnswer:
        """Return the greedy answer to a prompt of token ids. Raises httpx.HTTPError."""
        body = {"model": self.model, "prompt": prompt, "max_tokens": max_tokens, "temperature": 0}
        began = time.perf_counter()
        answer = httpx.post(
            f"{self.url}/v1/completions", json=body, trust_env=False, timeout=ANSWER_TIMEOUT_S
        )
        seconds = time.perf_counter() - began
        answer.raise_for_status()
        found = answer.json()
        return VllmAnswer(found["choices"][0]["text"], found["usage"]["completion_tokens"], seconds)


@contextmanager
def vllm_server(
    model: Path,
    method: str,
    tokens: int = 16,
    options: tuple[str, ...] = (),
    python: Path = PYTHON,
) -> Iterator[VllmServer]:
    """Start a server that drafts up to `tokens` tokens by a method of METHODS.

    It listens on loopback. RuntimeError with the end of its log if it does not start.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    # `vllm serve` of the package vllm-cpu asks for the version of the package vllm.
    command = [str(python), "-m", "vllm.entrypoints.openai.api_server", "--model", str(model)]
    command += ["--host", "127.0.0.1", "--port", str(port), "--served-model-name", "served"]
    command += [
        "--no-enable-prefix-caching",
        "--enforce-eager",
        *options,
    ]  # compiling takes minutes
    if METHODS[method]:
        asked = {**METHODS[method], "num_speculative_tokens": tokens}
        command += ["--speculative-config", json.dumps(asked)]
    environment = os.environ | VARIABLES | METHOD_VARIABLES.get(method, {})
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=environment, cwd="/")
        try:
            server = VllmServer(f"http://127.0.0.1:{port}", "served")
            _wait_until_ready(server, process)
            yield server
        except RuntimeError as error:
            log.seek(0)
            raise RuntimeError(f"{error}: {log.read()[-LOG_TAIL_CHARS:]}") from error
        finally:
            process.terminate()
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _wait_until_ready(server: VllmServer, process: subprocess.Popen[bytes]) -> None:
    """Wait until the server answers. RuntimeError if it ends or takes too long."""
    until = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < until:
        if process.poll() is not None:
            raise RuntimeError(f"vLLM ended with {process.returncode}")
        try:
            if httpx.get(f"{server.url}/health", trust_env=False, timeout=10).status_code == 200:
                return
        except httpx.TransportError:
            time.sleep(1)
    raise RuntimeError(f"vLLM does not answer after {START_TIMEOUT_S:.0f} s")
