"""Load the methods that `python -m bench decode` compares, side by side."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from time import perf_counter, sleep
from typing import Any

from bench.common import report
from bench.decode.methods import DraftlineRunner, PeerRunner, TransformersRunner, load_hf
from bench.decode.peers import programs
from bench.decode.peers.peer import Peer
from engine import DEFAULT_MODEL, Config, Engine, Request
from engine.prompts.tokenizer import Tokenizer

OUR_METHODS = ("plain", "draftline", "lookup")
METHODS = (*OUR_METHODS, "hf", "hf-lookup", *programs.METHODS)
MAX_MEASURE_S = 60.0  # seconds for the engine to measure this machine's passes
LOOKUP_TOKENS = 10  # tokens; transformers' prompt_lookup_num_tokens
CONTEXT_TOKENS = 4096  # tokens, the peers' context
BYTES_PER_PARAMETER = {
    "stored": 1.2,
    "q8": 1.7,
    "q4": 1.3,
    "bf16": 2.2,
    "f32": 4.4,
}  # embedding and KV cache included


class Runners:
    """The loaded methods by name, each with `run(task, limit)`. A context manager."""

    def __init__(self, options: argparse.Namespace) -> None:
        """Load the methods of `options`.

        Raises WeightsError, UnsupportedModel, ValueError or OSError with a one-line message.
        """
        from engine.model.torch.placement import choose_device, choose_dtype
        from engine.weights import gguf, locate

        self.wanted = options.methods.split(",")
        self.model = options.model or DEFAULT_MODEL
        self.device = options.device
        self.threads = options.threads or os.cpu_count() or 1
        self.folder = locate(self.model)
        self.gguf = gguf(self.model)
        self.methods: dict[str, Any] = {}
        self.dtypes: dict[str, str] = {}  # method -> dtype
        self.engines: dict[str, Engine] = {}  # by the name of its plain method
        self.load_s: dict[str, float] = {}
        self.left_out: list[str] = []
        self.peers: list[Peer] = []
        self.versions: dict[str, str] = {}  # of the peers that are measured
        device = choose_device(options.device)
        floats = "bf16" if device.type == "cuda" or native_bf16() else "f32"
        asked = (options.dtypes or f"auto,{floats}").split(",")
        dtypes = list(dict.fromkeys(choose_dtype(one, device, self.folder) for one in asked))
        if len(dtypes) > 2:
            raise ValueError(f"--dtypes {options.dtypes}: name at most two")
        self.slow = dtypes[1] if len(dtypes) > 1 else "none"
        for dtype in dtypes:
            self._ours(dtype, f"-{dtype}" if dtype == self.slow else "")
        self._hf(
            next((one for one in reversed(dtypes) if one not in ("stored", "q8", "q4")), floats)
        )
        self._peers()
        if not self.methods:
            raise ValueError(f"nothing to run: {'; '.join(self.left_out)}")

    def __enter__(self) -> Runners:
        return self

    def __exit__(self, *exception: object) -> None:
        for engine in self.engines.values():
            engine.close()
        for peer in self.peers:
            peer.close()

    def _wants(self, *names: str) -> list[str]:
        return [name for name in names if name in self.wanted]

    def leave_out(self, names: list[str], why: str) -> None:
        """Record and print that `names` are not measured."""
        self.left_out.append(f"{', '.join(names)}: {why}")
        report.say(f"left out: {self.left_out[-1]}")

    def _fits(self, names: list[str], dtype: str) -> bool:
        import psutil

        if self.device == "cuda":
            return True
        need = parameters(self.folder) * BYTES_PER_PARAMETER[dtype]
        free = psutil.virtual_memory().available
        if need > free:
            self.leave_out(names, f"needs {need / 1e9:.1f} GB of memory, {free / 1e9:.1f} are free")
        return need <= free

    def _ours(self, dtype: str, suffix: str) -> None:
        names = self._wants(*OUR_METHODS)
        if not names or not self._fits([f"{name}{suffix}" for name in names], dtype):
            return
        start = perf_counter()
        asked = "auto" if dtype == "stored" else dtype
        config = Config(model=self.model, device=self.device, dtype=asked, threads=self.threads)
        engine = Engine(config)
        self.load_s[f"draftline {dtype}"] = perf_counter() - start
        # Start the engine's thread now: it takes over torch's current number of threads.
        engine.submit(Request("complete", text="x", max_tokens=2), False).result()
        self.engines[f"plain{suffix}"] = engine
        deadline = perf_counter() + MAX_MEASURE_S
        while not engine.worker.idle() and perf_counter() < deadline:
            sleep(0.05)
        if not engine.parts.cost.measured:
            report.say(
                f"{dtype}: the cost of a pass could not be measured well: is the machine busy?"
            )
        prefill: dict[str, float] = {}
        for name in names:
            self.methods[f"{name}{suffix}"] = DraftlineRunner(engine, name, prefill)
            self.dtypes[f"{name}{suffix}"] = dtype

    def _hf(self, dtype: str) -> None:
        names = self._wants("hf", "hf-lookup")
        if not names or not self._fits(names, dtype):
            return
        start = perf_counter()
        model = load_hf(self.folder, self.device, dtype)
        self.load_s[f"transformers {dtype}"] = perf_counter() - start
        tokenizer = Tokenizer(self.folder)
        for name in names:
            lookup = LOOKUP_TOKENS if name == "hf-lookup" else 0
            self.methods[name] = TransformersRunner(model, tokenizer, self.threads, lookup)
            self.dtypes[name] = dtype

    def _peers(self) -> None:
        names = [name for name in self.wanted if name not in (*OUR_METHODS, "hf", "hf-lookup")]
        if not names:
            return
        self.versions = programs.installed()
        if self.device != "cpu":
            self.leave_out(names, "compared on the CPU only")
        elif self.gguf is None:
            self.leave_out(names, f"{self.model} has no GGUF here")
        else:
            tokenizer = Tokenizer(self.folder)
            for name in names:
                self._peer(name, self.gguf, tokenizer)

    def _peer(self, name: str, gguf: Path, tokenizer: Tokenizer) -> None:
        if why := programs.missing(name, self.versions):
            self.leave_out([name], why)
            return
        start = perf_counter()
        try:
            peer = programs.start(name, gguf, self.threads, CONTEXT_TOKENS)
        except RuntimeError as error:
            self.leave_out([name], f"{error} (it may not read {gguf.name})")
            return
        self.peers.append(peer)
        self.load_s[name] = perf_counter() - start
        self.methods[name] = PeerRunner(peer, tokenizer)
        self.dtypes[name] = "gguf"


def parameters(folder: Path) -> int:
    """Return the number of a model's parameters."""
    from math import prod

    from engine.model.torch.gguf_weights import weights_of

    weights = weights_of(folder)
    return sum(prod(weights.shape(name)) for name in weights)


def native_bf16() -> bool:
    """Return whether the processor has bf16 instructions."""
    import torch

    native = getattr(torch.cpu, "_is_avx512_bf16_supported", None)
    return native is not None and bool(native())
