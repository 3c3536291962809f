"""The methods that `python -m bench specbench` compares, loaded once, and one answer of each.

Draftline's methods share one engine; the request chooses the drafter. The KV cache is empty at
each turn, so that every time includes the whole prompt. The answer history is cleared before each
question.
"""

from __future__ import annotations

import argparse
import os
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from time import perf_counter, sleep
from typing import Any, Protocol

import numpy as np

from bench.common import report
from bench.common.engine_thread import in_engine_thread
from bench.common.questions import Question
from bench.common.tasks import Task
from bench.decode.methods import TransformersRunner, load_hf, synchronize, truncated_gains
from bench.decode.runners import (
    BYTES_PER_PARAMETER,
    LOOKUP_TOKENS,
    MAX_MEASURE_S,
    native_bf16,
    parameters,
)
from engine import DEFAULT_MODEL, Config, Done, Engine, Request, Step
from engine.drafting.registry import drafter_names, parse_choice
from engine.model.kv_cache import common_prefix
from engine.model.torch.placement import choose_device, choose_dtype
from engine.prompts.builder import prompt_of
from engine.sampling.verify import values_of
from engine.weights import locate
from research.train.teacher_forcing import forced_rows

PLAIN = "plain"
TRANSFORMERS = ("hf", "hf-lookup")
Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Turn:
    """One answer. An end token counts as one of its tokens."""

    text: str
    ids: list[int]  # without the end token
    seconds: float  # prompt included
    decoding: float  # seconds, prompt excluded
    decoded: int  # tokens in that time (transformers' first come with the prompt's pass)
    passes: int  # passes of the model, prompt excluded
    gains: list[int]  # tokens of each step

    @property
    def tokens(self) -> int:
        return sum(self.gains)


class Method(Protocol):
    """One method of answering."""

    def run(self, request: Request) -> Turn:
        """Answer. Raises RuntimeError with a one-line message."""
        ...


class EngineMethod:
    """The engine, plain or with one of its drafters; each has an answer history of its own."""

    def __init__(self, engine: Engine, label: str, drafter: str) -> None:
        self.engine, self.label, self.drafter = engine, label, drafter

    def run(self, request: Request) -> Turn:
        engine, steps, done = self.engine, list[int](), Done("failed")
        device = engine.parts.target.device_type
        in_engine_thread(engine, engine.parts.target.pool.sequences.clear)
        synchronize(device)
        began = perf_counter()
        plain = self.drafter == PLAIN
        drafter = "" if plain else self.drafter
        for event in engine.submit(request, not plain, client=self.label, drafter=drafter):
            if isinstance(event, Done):
                done = event
            elif isinstance(event, Step) and event.prefill is None:
                steps.append(event.accepted + 1)
        synchronize(device)
        seconds, usage = perf_counter() - began, done.usage
        if done.reason not in ("stop", "length"):
            raise RuntimeError(done.error or done.reason)
        assert not usage.cached_tokens, "the time has the whole prompt in it"
        ended = done.reason == "stop" and done.matched is None
        history = in_engine_thread(engine, partial(engine.parts.history.of, self.label))
        ids = history[-1] if usage.completion_tokens else []
        counted = truncated_gains(steps, usage.completion_tokens + ended)
        return Turn(
            done.text, ids, seconds, usage.decode_seconds, sum(counted), usage.forwards, counted
        )


class TransformersMethod:
    """transformers' `generate`."""

    def __init__(self, hf: TransformersRunner) -> None:
        self.hf = hf

    def run(self, request: Request) -> Turn:
        began = perf_counter()
        run = self.hf.run(Task("", "", request), None)
        seconds = perf_counter() - began
        passes = 1 + run.forwards  # the prompt's pass yields a token, too
        counted = list(run.gains)
        behind = sum(counted[1:])
        return Turn(run.text, list(run.ids), seconds, run.seconds, behind, passes, counted)


# -- names -----------------------------------------------------------------------------------------


def parse_methods(text: str) -> dict[str, str]:
    """Parse `--methods` into label -> method, plain first.

    Commas separate methods and also the options of a drafter. A label is the name alone if no other
    method has it; paths are shortened to their last part. Raises ValueError for unknown methods.
    """
    given: list[str] = []
    for part in filter(None, text.split(",")):
        if given and "=" in part and ":" not in part.partition("=")[0]:
            given[-1] += f",{part}"
        else:
            given.append(part)
    for one in given:
        name = one.partition(":")[0]
        if one not in (PLAIN, *TRANSFORMERS):
            if name not in drafter_names():
                known = ", ".join((PLAIN, *TRANSFORMERS, *drafter_names()))
                raise ValueError(f"--methods {one}: unknown: choose from {known}")
            parse_choice(one)
    given = list(dict.fromkeys([PLAIN, *given]))
    names = [one.partition(":")[0] for one in given]
    return {
        name if names.count(name) == 1 else short_name(one): one
        for name, one in zip(names, given, strict=True)
    }


def short_name(method: str) -> str:
    """Return a method with its paths shortened to their last part."""
    name, _, rest = method.partition(":")
    options = [part.partition("=") for part in rest.split(",") if part]
    return ":".join(
        filter(None, [name, ",".join(f"{key}={Path(value).name}" for key, _, value in options)])
    )


# -- all of them -----------------------------------------------------------------------------------


class Methods:
    """The compared methods by label. A context manager."""

    def __init__(self, options: argparse.Namespace) -> None:
        """Load the methods.

        Raises WeightsError, UnsupportedModel, ValueError or OSError with a one-line message.
        """
        self.named = parse_methods(options.methods)
        self.model = options.model or DEFAULT_MODEL
        self.device, self.threads = options.device, options.threads or os.cpu_count() or 1
        self.folder = locate(self.model)
        self.load_s: dict[str, float] = {}
        self.left_out: list[str] = []
        self.methods: dict[str, Method] = {}
        started = perf_counter()
        self.engine = Engine(
            Config(
                model=self.model,
                device=self.device,
                dtype=options.dtype,
                threads=self.threads,
                drafter="sam" if options.corpus else "auto",  # one that uses a corpus
                corpus=options.corpus,
                library=not options.no_library,
            )
        )
        self.load_s["draftline"] = perf_counter() - started
        self.dtypes = dict.fromkeys(self.named, self.engine.parts.target.dtype_name)
        try:
            self._load(options)
        except BaseException:
            self.engine.close()
            raise

    def __enter__(self) -> Methods:
        return self

    def __exit__(self, *exception: object) -> None:
        self.engine.close()

    def _load(self, options: argparse.Namespace) -> None:
        tiny = Request("complete", text="x", max_tokens=2)
        for label, method in self.named.items():
            if method not in TRANSFORMERS:
                self.methods[label] = EngineMethod(self.engine, label, method)
                # Load the drafter now, and start the engine's thread, which takes over torch's
                # current number of threads.
                started = perf_counter()
                drafter = "" if method == PLAIN else method
                done = self.engine.submit(tiny, method != PLAIN, drafter=drafter).result()
                if done.reason == "failed":
                    raise ValueError(done.error)
                self.load_s[label] = perf_counter() - started
        deadline = perf_counter() + MAX_MEASURE_S
        while not self.engine.worker.idle() and perf_counter() < deadline:
            sleep(0.05)
        if not self.engine.parts.cost.measured:
            report.say("the cost of a pass could not be measured well: is the machine busy?")
        if theirs := [label for label, method in self.named.items() if method in TRANSFORMERS]:
            self._transformers(theirs, options.hf_dtype)

    def _transformers(self, labels: list[str], dtype: str) -> None:
        import psutil

        if dtype == "auto":
            dtype = choose_dtype("auto", choose_device(self.device), self.folder)
            if dtype in ("stored", "q8", "q4"):
                dtype = "bf16" if native_bf16() else "f32"
        need, free = (
            parameters(self.folder) * BYTES_PER_PARAMETER[dtype],
            psutil.virtual_memory().available,
        )
        if self.device == "cpu" and need > free:
            why = f"needs {need / 1e9:.1f} GB of memory, {free / 1e9:.1f} are free"
            self.left_out.append(f"{', '.join(labels)}: {why}")
            report.say(f"left out: {self.left_out[-1]}")
            return
        started = perf_counter()
        model, tokenizer = load_hf(self.folder, self.device, dtype), self.engine.parts.tokenizer
        self.load_s[f"transformers {dtype}"] = perf_counter() - started
        for label in labels:
            lookup = LOOKUP_TOKENS if label == "hf-lookup" else 0
            self.methods[label] = TransformersMethod(
                TransformersRunner(model, tokenizer, self.threads, lookup)
            )
            self.dtypes[label] = dtype

    @cached_property
    def counter(self) -> Any:
        """The tokenizer as transformers calls it, which may prepend a token to a text."""
        from tokenizers import Tokenizer as Backend

        return Backend.from_file(str(self.folder / "tokenizer.json"))

    def answer(self, label: str, question: Question, limit: int) -> Row:
        """Return a line of Spec-Bench's answer files, with more fields."""
        turns: list[Turn] = []
        error = ""
        try:
            for _ in question.turns:
                request = question.request_after([one.text for one in turns], limit)
                turns.append(self.methods[label].run(request))
        except (RuntimeError, ValueError) as problem:  # reported; none of its turns count
            error, turns = " ".join(str(problem).split()) or type(problem).__name__, []
        return {
            "question_id": question.id,
            "category": question.category,
            "model_id": f"{Path(self.model).name}-{label}",
            "choices": [
                {
                    "index": 0,
                    "turns": [one.text for one in turns] or ["ERROR"],
                    "decoding_steps": [len(one.gains) for one in turns],
                    "new_tokens": [one.tokens for one in turns],
                    "wall_time": [one.seconds for one in turns],
                    "accept_lengths": [gain for one in turns for gain in one.gains],
                    "decode_time": [one.decoding for one in turns],
                    "decoded": [one.decoded for one in turns],
                    "passes": [one.passes for one in turns],
                    "recounted": [max(0, len(self.counter.encode(one.text)) - 1) for one in turns],
                    "ids": [one.ids for one in turns],
                }
            ],
            "error": error,
        }


def parting_gap(engine: Engine, question: Question, plain: Row, other: Row) -> float:
    """Return the gap between the two best logits where an answer leaves the plain one.

    Infinite if the texts differ but their tokens do not.
    """
    one, two = plain["choices"][0], other["choices"][0]
    said: list[str] = []
    for text, differing, ids, others in zip(
        one["turns"], two["turns"], one["ids"], two["ids"], strict=False
    ):
        if text == differing:
            said.append(text)
            continue
        same = common_prefix(ids, others)
        if same == len(ids) == len(others):
            break
        prompt = prompt_of(question.request_after(said, 1), engine.parts.tokenizer)
        return in_engine_thread(
            engine, partial(top_logit_gap, engine.parts.target, [*prompt.ids, *ids[:same]])
        )
    return float("inf")


def top_logit_gap(target: Any, text: list[int]) -> float:
    """Return the gap between the two best logits after `text`."""
    *_, (_, logits, _) = forced_rows(target, text, len(text) - 1)
    second, first = np.sort(values_of(logits[-1]))[-2:].tolist()
    return float(first - second)
