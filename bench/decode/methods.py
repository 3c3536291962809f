"""The decoding methods that `python -m bench decode` compares, each behind `run(task, limit)`.

Decoding is timed without the prompt: tokens divided by the time since the prompt is in the KV
cache. For Draftline this is the engine's own count of what it decodes after the prompt. In the
other programs the prompt's own pass yields the first token, so it counts neither as a token nor as
time. A pass is a forward that produced tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, takewhile
from pathlib import Path
from time import perf_counter
from typing import Any

from bench.common.engine_thread import in_engine_thread
from bench.common.tasks import Task
from bench.decode.peers.peer import Peer
from engine import Done, Engine, Request, Step
from engine.model.cost_model import CostModel
from engine.prompts.builder import Prompt, prompt_of
from engine.prompts.tokenizer import Tokenizer
from engine.worker import Job

# Like transformers and llama.cpp, it also matches where fewer tokens follow than it drafts.
LOOKUP = "prompt-lookup:whole=no"


@dataclass(frozen=True)
class Run:
    """One answer: `tokens` in `forwards` passes took `seconds`, after `prefill` seconds."""

    text: str
    tokens: int
    forwards: int
    seconds: float
    prefill: float
    prompt: int = 0  # prompt tokens, read in `prefill` seconds
    steps: tuple[tuple[int, int], ...] = ()  # (drafted, gained) tokens of each pass (ours only)
    ids: tuple[int, ...] = ()  # token ids of the answer (transformers only)
    gains: tuple[int, ...] = ()  # tokens of each pass, prompt and end token included (ditto)

    @property
    def tokens_per_s(self) -> float:
        return self.tokens / self.seconds

    @property
    def end_to_end_tokens_per_s(self) -> float:
        return self.tokens / (self.prefill + self.seconds)

    @property
    def reading_tokens_per_s(self) -> float:
        return self.prompt / self.prefill


def synchronize(device: str) -> None:
    """Wait until all work on the device is done."""
    if device == "cuda":
        import torch

        torch.cuda.synchronize()


class DraftlineRunner:
    """Draftline in mode "plain", "draftline" or "lookup" (prompt lookup); modes share one engine.

    The first run of a task prefills its whole prompt; `prefill` holds that time for all modes.
    """

    def __init__(self, engine: Engine, mode: str, prefill: dict[str, float]) -> None:
        self.engine, self.mode, self.prefill = engine, mode, prefill

    def run(self, task: Task, limit: int | None) -> Run:
        """Answer a task in at most `limit` tokens. Raises RuntimeError if the job failed."""
        if task.name not in self.prefill:
            self.engine.parts.target.pool.sequences.clear()
        in_engine_thread(self.engine, self.engine.forget)  # else the last answer would be copied
        request = task.request
        if limit is not None:
            request = replace(request, max_tokens=min(limit, request.max_tokens or limit))
        synchronize(self.engine.parts.target.device_type)
        steps: list[tuple[int, int]] = []
        done = Done("failed")
        for event in self._begin(request):
            if isinstance(event, Done):
                done = event
            elif isinstance(event, Step) and event.prefill is None:
                steps.append((event.drafted, event.accepted + 1))
        if done.reason not in ("stop", "length"):
            raise RuntimeError(f"{task.name}: {done.error or done.reason}")
        usage = done.usage
        return Run(
            done.text,
            usage.completion_tokens,
            usage.forwards,
            usage.decode_seconds,
            self.prefill.setdefault(task.name, usage.prefill_seconds),
            usage.prompt_tokens,
            tuple(steps),
        )

    def _begin(self, request: Request) -> Job:
        if self.mode == "lookup":
            return self.engine.submit(request, drafter=LOOKUP)
        return self.engine.submit(request, self.mode == "draftline")


def relative_cost(cost: CostModel, runs: list[Run]) -> float | None:
    """Return the cost of the passes of `runs` by this machine's measured table.

    It is relative to one-token passes for the same text; None if there are none.
    """
    taken = plain = 0.0
    for run in runs:
        context = run.prompt
        for drafted, gained in run.steps:
            taken += cost(1 + drafted, context)
            plain += sum(cost(1, context + n) for n in range(gained))
            context += gained
    return taken / plain if plain else None


class PassClock:
    """A stopping criterion of transformers that records time and length after every pass.

    It stops at the prompt's stop strings as the engine does.
    """

    def __init__(self, start: int, prompt: Prompt, tokenizer: Tokenizer, device: str) -> None:
        self.start, self.prompt, self.tokenizer, self.device = start, prompt, tokenizer, device
        self.times: list[float] = []
        self.lengths: list[int] = []

    def __call__(self, ids: Any, scores: Any, **_: Any) -> Any:
        synchronize(self.device)
        fresh = ids.shape[1] - self.lengths[-1] if self.lengths else ids.shape[1] - self.start
        tail = ids[0, -(fresh + 8) :].tolist() if ids.shape[1] - self.start > fresh + 8 else None
        text = self.tokenizer.decode(tail if tail is not None else ids[0, self.start :].tolist())
        self.times.append(perf_counter())
        self.lengths.append(ids.shape[1])
        stop = any(mark in text for mark in self.prompt.stop)
        return ids.new_full((ids.shape[0],), stop, dtype=_bool())


def _bool() -> Any:
    import torch

    return torch.bool


class TransformersRunner:
    """transformers' `generate`, greedy, with `lookup` prompt lookup tokens per pass (0: none)."""

    def __init__(self, model: Any, tokenizer: Tokenizer, threads: int, lookup: int) -> None:
        self.model, self.tokenizer = model, tokenizer
        self.threads, self.lookup = threads, lookup

    def run(self, task: Task, limit: int | None) -> Run:
        import torch
        from transformers import GenerationConfig

        if self.model.device.type == "cpu":
            torch.set_num_threads(self.threads)
        prompt = prompt_of(task.request, self.tokenizer)
        ids = torch.tensor([prompt.ids], device=self.model.device)
        config = GenerationConfig(
            do_sample=False,
            max_new_tokens=min(limit or prompt.max_tokens, prompt.max_tokens),
            eos_token_id=sorted(self.tokenizer.eos),
            pad_token_id=min(self.tokenizer.eos, default=0),
            prompt_lookup_num_tokens=self.lookup or None,
        )
        clock = PassClock(len(prompt.ids), prompt, self.tokenizer, self.model.device.type)
        synchronize(self.model.device.type)
        began = perf_counter()
        with torch.inference_mode():
            out = self.model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                generation_config=config,
                stopping_criteria=[clock],
            )
        written = out[0, len(prompt.ids) :].tolist()
        answer, text = truncate_answer(written, prompt.stop, self.tokenizer)
        ended = written[len(answer) : len(answer) + 1]  # an end token, perhaps
        counted = len(answer) + (bool(ended) and ended[0] in self.tokenizer.eos)
        lengths = [len(prompt.ids), *clock.lengths]
        first = clock.lengths[0] - len(prompt.ids)
        return Run(
            text,
            len(answer) - first,
            len(clock.times) - 1,
            clock.times[-1] - clock.times[0],
            clock.times[0] - began,
            len(prompt.ids),
            ids=tuple(answer),
            gains=tuple(truncated_gains([b - a for a, b in pairwise(lengths)], counted)),
        )


def truncated_gains(steps: Sequence[int], tokens: int) -> list[int]:
    """Return the tokens gained by each pass, truncated to `tokens` in all."""
    found: list[int] = []
    for one in steps:
        if tokens <= 0:
            break
        found.append(min(one, tokens))
        tokens -= found[-1]
    return found


def truncate_answer(
    ids: list[int], stop: tuple[str, ...], tokenizer: Tokenizer
) -> tuple[list[int], str]:
    """Return the answer's tokens before its end, and its text.

    The end is an end token, or the token that completes a stop string; the text has neither.
    """
    ids = list(takewhile(lambda one: one not in tokenizer.eos, ids))
    text = tokenizer.decode(ids)
    for mark in stop:
        if mark in text:
            count = next(n for n in range(len(ids) + 1) if mark in tokenizer.decode(ids[:n]))
            ids, text = ids[:count], text[: text.index(mark)]
    return ids, text


class PeerRunner:
    """Another program. It may cache a task's prompt, so what is read is that of the first run."""

    def __init__(self, peer: Peer, tokenizer: Tokenizer) -> None:
        self.peer, self.tokenizer = peer, tokenizer
        self.read: dict[str, tuple[float, int]] = {}  # task -> seconds, tokens

    def run(self, task: Task, limit: int | None) -> Run:
        prompt = prompt_of(task.request, self.tokenizer)
        most = min(limit or prompt.max_tokens, prompt.max_tokens)
        answer = self.peer.run(prompt.ids, most, prompt.stop, cached=task.name in self.read)
        first = (answer["read_seconds"], answer["read"])
        seconds, read = self.read.setdefault(task.name, first)
        return Run(
            answer["text"], answer["tokens"], answer["forwards"], answer["seconds"], seconds, read
        )


def load_hf(folder: Path, device: str, dtype: str) -> Any:
    """Load transformers' own model of a folder."""
    import torch
    from transformers import GenerationConfig
    from transformers.utils import logging

    from engine.model.torch.hf_model import transformers_model

    logging.disable_progress_bar()
    model = transformers_model(folder, dtype=torch.bfloat16 if dtype == "bf16" else torch.float32)
    model.generation_config = GenerationConfig()  # the model's own may penalise repetitions
    return model.to(device).eval()


def floor_of(engine: Engine, threads: int) -> dict[str, float] | None:
    """Return the bytes of weights read per step, and the head's bandwidth on one row.

    The bandwidth is the median of 15 products. None for a model that does not use our kernels.
    """
    return model_floor(engine.parts.target, threads)


def model_floor(target: Any, threads: int) -> dict[str, float] | None:
    """Return what `floor_of` does, of a target."""
    import numpy as np
    import torch

    from engine.model.native.model import NativeModel
    from engine.model.torch.llama import Llama

    model = getattr(target.model, "native", target.model)
    head: Any = getattr(model, "_head", None)
    native = isinstance(model, NativeModel)
    row: Any
    if isinstance(model, NativeModel):
        total = model.nbytes
        row = np.random.default_rng(0).standard_normal((1, model.width), np.float32)
    elif isinstance(model, Llama):
        products: Any = [
            one for b in model.blocks for one in (b.qkv, b.out, b.mlp.gate_up, b.mlp.down)
        ]
        total = sum(one.nbytes for one in products) + head.nbytes
        row = torch.randn(1, model.width, device=target.device).to(model.dtype)
    else:
        return None
    torch.set_num_threads(1 if native else threads)
    times = []
    with torch.inference_mode():
        for _ in range(15):
            synchronize(target.device_type)
            start = perf_counter()
            head(row)
            synchronize(target.device_type)
            times.append(perf_counter() - start)
    bandwidth = head.nbytes / sorted(times)[len(times) // 2]
    return {"bytes": total, "bytes_per_s": bandwidth, "ms": 1000 * total / bandwidth}
