"""What `python -m bench gpu` measures of each shape: steps, their parts, the exact mode, edits.

A case that fails, or that the device has no memory for, is listed with its reason, and the rest
continues. No results are printed here.
"""

from __future__ import annotations

import argparse
import gc
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from time import perf_counter
from typing import Any

import torch

from bench.common import report
from bench.common.stats import typical
from bench.gpu import edits as gpu_edits
from bench.gpu import exact as gpu_exact
from bench.gpu import steps as gpu_steps
from bench.gpu import tables
from bench.gpu.edits import Answer
from bench.gpu.generation import Ours, Played, Theirs, Way
from bench.gpu.models import SIZES, cache_bytes, free_bytes, lacking, weight_bytes
from engine import Config
from engine.model.hf_model import UnsupportedModel
from engine.model.placement import choose_device
from engine.model.torch_target import TorchTarget
from engine.records import RequestError

PROFILED = ((1, 2048), (16, 2048))  # (bucket, context) whose parts are told
PLAIN_TOKENS, HF_TOKENS, LOOKUP_TOKENS, WARM_UP = 128, 48, 512, 12
STATIC = 4096  # tokens of transformers' static cache


class Bench:
    """What was asked for, what was found, and the time that is left."""

    model = "random weights"

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.began = perf_counter()
        self.at = choose_device(options.device)
        self.device = self.at.type
        self.threads = options.threads or os.cpu_count() or 1
        self.config = Config(
            device=options.device,
            dtype=options.dtype,
            threads=options.threads,
            budget=options.nodes,
            graphs="auto" if self.device == "cuda" else "static",  # the card's own path
        )
        self.recorded = gpu_edits.read(options.edits)
        self.bandwidth = gpu_steps.bandwidth(self.at)
        self.card = tables.card(self.at)
        self.load_s: dict[str, float] = {}
        self.left_out: list[str] = []
        self.failed = False
        self.until = self.began + options.budget_s  # of the shape that is measured
        self.found: dict[str, list[dict[str, Any]]] = {
            name: [] for name in ("results", "edits", "runs", "parts", "memory", "exact")
        }

    def wants(self, section: str) -> bool:
        return section in self.options.only

    def leave_out(self, what: str, why: str) -> None:
        """Say that something is not measured, and why."""
        self.left_out.append(f"{what}: {why}")
        report.say(f"left out: {self.left_out[-1]}")

    def allow(self, shapes_left: int) -> None:
        """From now on a shape may take its share of the time that is left."""
        now = perf_counter()
        self.until = now + (self.began + self.options.budget_s - now) / shapes_left

    @property
    def late(self) -> bool:
        """Whether a shape has used up its share of the time."""
        return perf_counter() > self.until

    @property
    def over(self) -> bool:
        """Whether all time is used up."""
        return perf_counter() > self.began + self.options.budget_s

    @contextmanager
    def case(self, what: str) -> Iterator[None]:
        """Something that is measured. Where it fails that is told, and the rest goes on."""
        try:
            yield
            return
        except Exception as error:
            short = (torch.OutOfMemoryError, UnsupportedModel, RequestError)  # each tells numbers
            if isinstance(error, short) or isinstance(error.__cause__, torch.OutOfMemoryError):
                why = str(error)
            else:
                self.failed, why = True, f"FAILED, {type(error).__name__}: {error}"
            self.leave_out(what, " ".join(why.split())[:400])
        self.free()

    def free(self) -> None:
        """Give memory back to the card."""
        gc.collect()
        if self.device == "cuda":
            torch.cuda.empty_cache()


# -- one shape -------------------------------------------------------------------------------------


def measure(
    bench: Bench,
    name: str,
    settings: dict[str, Any],
    ours: Callable[[Config], TorchTarget],
    theirs: Callable[[torch.dtype], Any],
) -> None:
    """All that is wanted of one shape, in the order of importance."""
    if bench.over:
        bench.leave_out(name, "no time was left")
        return
    if bench.device == "cuda":
        torch.cuda.reset_peak_memory_stats(bench.at)
    if why := lacking("weights take", weight_bytes(settings, SIZES["bf16"]), free_bytes(bench.at)):
        bench.leave_out(name, why)
        return
    start = perf_counter()
    with bench.case(name):
        target = ours(bench.config)
        bench.load_s[name] = perf_counter() - start
        captured(bench, name, target)
        if bench.wants("steps"):
            steps(bench, name, settings, target)
        if bench.wants("parts"):
            parts(bench, name, target)
        gpu_steps.clear(target)
        if bench.device == "cuda":
            peak = torch.cuda.max_memory_allocated(bench.at) / 1e9
            size = SIZES.get(target.dtype_name, 1)
            weights = weight_bytes(settings, size) / 1e9
            line = {"shape": name, "weights_gb": round(weights, 2), "peak_gb": round(peak, 2)}
            bench.found["memory"].append(line)
        if bench.options.exact:
            exact(bench, name, target, ours)
            bench.free()
        if bench.wants("edits"):
            edits(bench, name, settings, target, theirs)


def captured(bench: Bench, name: str, target: TorchTarget) -> None:
    """The graphs made that the engine makes while nothing is asked."""
    start = perf_counter()
    for done, of in target.warm():
        report.say(f"{name}: {done} of {of} graphs")
    bench.load_s[f"{name}, graphs"] = perf_counter() - start


def steps(bench: Bench, name: str, settings: dict[str, Any], target: TorchTarget) -> None:
    """A step's time by bucket and context, beside its floor."""
    size = SIZES["f32" if target.model.cache_dtype == torch.float32 else "bf16"]
    for context in bench.options.contexts:
        what = f"{name}, context {context}"
        if context > target.context:
            bench.leave_out(what, f"positions and memory allow {target.context}")
            continue
        gpu_steps.clear(target)
        if why := lacking(
            "the cache takes", cache_bytes(settings, context, size), free_bytes(bench.at)
        ):
            bench.leave_out(what, why)
            continue
        ratios: list[str] = []
        for bucket in bench.options.buckets:
            if bench.late:
                bench.leave_out(f"{what}, from bucket {bucket} on", "no time was left")
                break
            with bench.case(f"{what}, bucket {bucket}"):
                ms = gpu_steps.step_ms(target, bucket, context)
                floor = gpu_steps.floor_ms(settings, target, context, bench.bandwidth["copy"])
                bench.found["results"].append(
                    {
                        "shape": name,
                        "bucket": bucket,
                        "context": context,
                        "ms": round(ms, 4),
                        "floor_ratio": round(ms / floor, 3),
                    }
                )
                ratios.append(f"{ms / floor:.2f}")
        report.say(f"{what}: {', '.join(ratios)} times the floor")


def parts(bench: Bench, name: str, target: TorchTarget) -> None:
    """Where the time of some steps goes."""
    for bucket, context in PROFILED:
        if context > target.context:
            continue
        if bench.late:
            bench.leave_out(f"{name}, parts of bucket {bucket}", "no time was left")
            continue
        with bench.case(f"{name}, parts of bucket {bucket}"):
            ms = gpu_steps.step_ms(target, bucket, context)
            found = gpu_steps.parts_of(target, bucket, context, ms)
            bench.found["parts"].append({"shape": name} | found)


def exact(
    bench: Bench, name: str, fast: TorchTarget, ours: Callable[[Config], TorchTarget]
) -> None:
    """The exact mode beside the fast one: its cost, and whose choices depend on the bucket."""
    if bench.late:
        bench.leave_out(f"{name}, exact mode", "no time was left")
        return
    with bench.case(f"{name}, exact mode"):
        other = ours(replace(bench.config, exact=True))
        captured(bench, f"{name}, exact mode", other)
        for line in gpu_exact.compared(fast, other, bench.options.buckets):
            bench.found["exact"].append({"shape": name} | line)


# -- edits -----------------------------------------------------------------------------------------


def edits(
    bench: Bench,
    name: str,
    settings: dict[str, Any],
    target: TorchTarget,
    theirs: Callable[[torch.dtype], Any],
) -> None:
    """Recorded edits by all methods, by turns."""
    recorded = gpu_edits.load(bench.recorded, target.vocab)
    mine = Ours(target, recorded, bench.config)
    ways: dict[str, Way] = {
        "plain": lambda answer: mine.plain(answer.from_middle(PLAIN_TOKENS)),
        "draftline": mine.draftline,
    }
    dtype = torch.float32 if target.dtype_name == "f32" else torch.bfloat16
    need = weight_bytes(settings, dtype.itemsize)
    if why := lacking("beside ours its weights take", need, free_bytes(bench.at)):
        bench.leave_out(f"{name}, transformers", why)
    elif bench.options.slow_edits:
        with bench.case(f"{name}, transformers"):
            model = theirs(dtype)
            plain, lookup = Theirs(model), Theirs(model, lookup=True)
            ways["hf"] = lambda answer: plain(answer.from_middle(HF_TOKENS))
            ways["hf-lookup"] = lambda answer: lookup(answer.from_middle(LOOKUP_TOKENS))
            if bench.options.compiled:
                compiled = Theirs(model, room=min(STATIC, target.context))
                ways["hf-compiled"] = lambda answer: compiled(answer.from_middle(HF_TOKENS))
    able: dict[str, Way] = {}
    for method, way in ways.items():
        with bench.case(f"{name}, {method}"):
            way(recorded.answers[0].from_middle(WARM_UP))
            able[method] = way
    runs = played(bench, name, able, recorded.answers)
    for kind, suffix in (("file", ""), ("hunk", "-hunk")):
        some = {key: one for key, one in runs.items() if key[1] == kind}
        for method in able:
            if line := summed(some, method):
                bench.found["edits"].append({"shape": name, "method": f"{method}{suffix}"} | line)


Runs = dict[tuple[str, str, str, int], Played]  # by method, and kind, id and repeat of the edit


def played(bench: Bench, name: str, ways: dict[str, Way], answers: list[Answer]) -> Runs:
    """All runs there is time for; every method's first ones come first."""
    slow = [one.id for one in answers if one.kind == "file"][: bench.options.slow_edits]
    runs: Runs = {}
    for repeat in range(bench.options.repeats):
        for place, answer in enumerate(answers):
            order = [m for m in ways if not m.startswith("hf") or answer.id in slow]
            turn = (repeat + place) % max(len(order), 1)
            for method in order[turn:] + order[:turn]:
                what = f"{name}, {method}, {answer.id}, repeat {repeat + 1}"
                if bench.over or (bench.late and repeat):
                    bench.leave_out(f"{name}, edits of repeat {repeat + 1} from {answer.id} on",
                                    "no time was left")  # fmt: skip
                    return runs
                with bench.case(what):
                    run = ways[method](answer)
                    runs[method, answer.kind, answer.id, repeat] = run
                    line = {"shape": name, "method": method, "edit": answer.id, "repeat": repeat}
                    line |= {"kind": answer.kind, "tokens": run.tokens, "passes": run.passes}
                    bench.found["runs"].append(line | {"seconds": round(run.seconds, 5)})
        report.say(f"{name}: edits, repeat {repeat + 1} of {bench.options.repeats}")
    return runs


def summed(runs: Runs, method: str) -> dict[str, float] | None:
    """A method's speed, and its ratio to plain decoding on the edits that both had."""
    mine = {key[1:]: one for key, one in runs.items() if key[0] == method}
    if not mine:
        return None
    speed = sum(one.tokens for one in mine.values()) / sum(one.seconds for one in mine.values())
    ratios: dict[str, list[float]] = {}
    for (kind, edit, repeat), one in mine.items():
        plain = runs.get(("plain", kind, edit, repeat))
        if plain is not None:
            ratios.setdefault(edit, []).append(one.tokens_per_s / plain.tokens_per_s)
    ratio = round(typical(list(ratios.values())), 3) if ratios else None
    return {"tokens_per_s": round(speed, 2), "ratio_to_plain": ratio}
