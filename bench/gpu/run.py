"""Run the sections of `python -m bench gpu` on each shape.

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
from bench.gpu import experts as gpu_experts
from bench.gpu import host as gpu_host
from bench.gpu import law as gpu_law
from bench.gpu import loop as gpu_loop
from bench.gpu import peer as gpu_peer
from bench.gpu import products as gpu_products
from bench.gpu import prompts as gpu_prompts
from bench.gpu import sampled as gpu_sampled
from bench.gpu import steps as gpu_steps
from bench.gpu import tables
from bench.gpu.edits import RecordedAnswer
from bench.gpu.generation import ForcedDraftline, ForcedRun, ForcedTransformers, Method
from bench.gpu.models import (
    SHAPES,
    WEIGHT_BYTES,
    cache_bytes,
    free_bytes,
    memory_shortage,
    random_hf,
    random_target,
    weight_bytes,
)
from engine import Config
from engine.model.families import read_config
from engine.model.torch.placement import choose_device, size_of
from engine.model.torch.torch_target import TorchTarget
from engine.model.unsupported import UnsupportedModel
from engine.records import RequestError

PROFILED_STEPS = ((1, 2048), (16, 2048))  # (bucket, context) to profile
PLAIN_TOKENS, HF_TOKENS, LOOKUP_TOKENS, WARM_UP_TOKENS = 128, 48, 512, 12
STATIC_CACHE_TOKENS = 4096  # tokens; transformers' cache
OF_A_TARGET = ("steps", "parts", "edits", "loop", "prompts", "sampled")  # sections
FOUND = (
    "results", "edits", "runs", "parts", "memory", "exact", "host", "products", "law", "logits",
    "loop", "prompts", "sampled", "peer", "experts",
)  # fmt: skip


class GpuBench:
    """The options, the results so far, and the time that is left."""

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
        self.until = self.began + options.budget_s  # deadline of the current shape
        self.found: dict[str, list[dict[str, Any]]] = {name: [] for name in FOUND}

    def wants(self, section: str) -> bool:
        return section in self.options.only

    def leave_out(self, what: str, why: str) -> None:
        """Record and print that something is not measured."""
        self.left_out.append(f"{what}: {why}")
        report.say(f"left out: {self.left_out[-1]}")

    def allow(self, shapes_left: int) -> None:
        """Give the next shape its share of the time that is left."""
        now = perf_counter()
        self.until = now + (self.began + self.options.budget_s - now) / shapes_left

    @property
    def late(self) -> bool:
        """Return whether the current shape has used up its share of the time."""
        return perf_counter() > self.until

    @property
    def over(self) -> bool:
        """Return whether all time is used up."""
        return perf_counter() > self.began + self.options.budget_s

    @contextmanager
    def case(self, what: str) -> Iterator[None]:
        """Run one measurement: a failure is recorded and the rest continues."""
        try:
            yield
            return
        except Exception as error:
            short = (
                torch.OutOfMemoryError,
                UnsupportedModel,
                RequestError,
            )  # their messages have the numbers
            if isinstance(error, short) or isinstance(error.__cause__, torch.OutOfMemoryError):
                why = str(error)
            else:
                self.failed, why = True, f"FAILED, {type(error).__name__}: {error}"
            self.leave_out(what, " ".join(why.split())[:400])
        self.free()

    def free(self) -> None:
        """Return cached memory to the device."""
        gc.collect()
        if self.device == "cuda":
            torch.cuda.empty_cache()


def between_passes(bench: GpuBench) -> None:
    """Measure what a step costs between two passes."""
    with bench.case("host"):
        target = random_target("tiny", SHAPES["tiny"], gpu_host.config(bench.options.nodes))
        recorded = gpu_edits.load(bench.recorded, target.vocab)
        bench.found["host"].append(gpu_host.host_us(target, recorded, bench.options.nodes))


def products(bench: GpuBench, name: str, settings: dict[str, Any]) -> None:
    """Measure a shape's products by the format of their weights."""
    for matrix, shape in gpu_products.matrices(settings).items():
        for product, make in gpu_products.makers(bench.at).items():
            what = f"{name}, {product} product of {matrix}"
            if bench.late:
                bench.leave_out(what, "no time was left")
                continue
            with bench.case(what):
                for line in gpu_products.measure(product, shape, make, bench.at):
                    bench.found["products"].append({"shape": name, "matrix": matrix} | line)
        report.say(f"{name}: products of {matrix}")


def experts(bench: GpuBench) -> None:
    """Measure a mixture of experts."""
    if bench.over:
        bench.leave_out("experts", "no time was left")
        return
    settings = gpu_experts.LARGE if bench.device == "cuda" else gpu_experts.SMALL
    with bench.case("experts"):
        target = gpu_experts.model(settings, bench.config)
        capture_graphs(bench, "experts", target)
        for line in gpu_experts.measure(target, settings, bench.bandwidth["copy"]):
            bench.found["experts"].append(line)
    bench.free()


# -- one shape -------------------------------------------------------------------------------------


def measure(
    bench: GpuBench,
    name: str,
    settings: dict[str, Any],
    ours: Callable[[Config], TorchTarget],
    theirs: Callable[[torch.dtype], Any],
) -> None:
    """Measure one shape, the most important sections first."""
    if bench.over:
        bench.leave_out(name, "no time was left")
        return
    if bench.device == "cuda":
        torch.cuda.reset_peak_memory_stats(bench.at)
    if bench.wants("products"):
        products(bench, name, settings)
        bench.free()
    if bench.wants("law") and name in SHAPES:
        law(bench, name, settings)
        bench.free()
    if bench.wants("peer"):
        peer(bench, name, settings)
        bench.free()
    if not (bench.options.fast or any(map(bench.wants, OF_A_TARGET))):
        return
    dtype = "bf16" if bench.options.dtype == "auto" else bench.options.dtype
    if why := memory_shortage(
        "weights take", size_of(read_config(settings), dtype).weights, free_bytes(bench.at)
    ):
        bench.leave_out(name, why)
        return
    start = perf_counter()
    with bench.case(name):
        target = ours(bench.config)
        bench.load_s[name] = perf_counter() - start
        with target.within():  # as the engine's thread is
            capture_graphs(bench, name, target)
            if bench.wants("steps"):
                steps(bench, name, settings, target)
            if bench.wants("parts"):
                parts(bench, name, target)
            if bench.wants("loop"):
                loop(bench, name, target)
            for section, lines in (("prompts", gpu_prompts.times), ("sampled", gpu_sampled.times)):
                if bench.wants(section):
                    timed(bench, name, section, lines(target))
        gpu_steps.clear(target)
        if bench.device == "cuda":
            peak = torch.cuda.max_memory_allocated(bench.at) / 1e9
            weights = size_of(read_config(settings), target.dtype_name).weights / 1e9
            line = {"shape": name, "weights_gb": round(weights, 2), "peak_gb": round(peak, 2)}
            bench.found["memory"].append(line)
        if bench.options.fast:
            exact(bench, name, target, ours)
            bench.free()
        if bench.wants("edits"):
            edits(bench, name, settings, target, theirs)


def capture_graphs(bench: GpuBench, name: str, target: TorchTarget) -> None:
    """Capture the CUDA graphs that the idle engine captures."""
    start = perf_counter()
    for done, of in target.warm():
        report.say(f"{name}: {done} of {of} graphs")
    bench.load_s[f"{name}, graphs"] = perf_counter() - start


def steps(bench: GpuBench, name: str, settings: dict[str, Any], target: TorchTarget) -> None:
    """Time a step by bucket and context, and compare it with the floor."""
    size = WEIGHT_BYTES["f32" if target.model.cache_dtype == torch.float32 else "bf16"]
    for context in bench.options.contexts:
        what = f"{name}, context {context}"
        if context > target.context:
            bench.leave_out(what, f"positions and memory allow {target.context}")
            continue
        gpu_steps.clear(target)
        if why := memory_shortage(
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


def parts(bench: GpuBench, name: str, target: TorchTarget) -> None:
    """Profile some steps."""
    for bucket, context in PROFILED_STEPS:
        if context > target.context:
            continue
        if bench.late:
            bench.leave_out(f"{name}, parts of bucket {bucket}", "no time was left")
            continue
        with bench.case(f"{name}, parts of bucket {bucket}"):
            ms = gpu_steps.step_ms(target, bucket, context)
            found = gpu_steps.profile_parts(target, bucket, context, ms)
            bench.found["parts"].append({"shape": name} | found)


def exact(
    bench: GpuBench, name: str, target: TorchTarget, ours: Callable[[Config], TorchTarget]
) -> None:
    """Compare the exact mode with the one whose kernels round by shape."""
    if bench.late:
        bench.leave_out(f"{name}, fast mode", "no time was left")
        return
    with bench.case(f"{name}, fast mode"):
        fast = ours(replace(bench.config, exact=False))
        capture_graphs(bench, f"{name}, fast mode", fast)
        for line in gpu_exact.compare(fast, target, bench.options.buckets):
            bench.found["exact"].append({"shape": name} | line)


def timed(bench: GpuBench, name: str, section: str, lines: Iterator[dict[str, Any]]) -> None:
    """Take the lines of a section one by one while there is time."""
    with bench.case(f"{name}, {section}"):
        while not bench.late:
            line = next(lines, None)
            if line is None:
                return
            bench.found[section].append({"shape": name} | line)
        bench.leave_out(f"{name}, the rest of {section}", "no time was left")


def loop(bench: GpuBench, name: str, target: TorchTarget) -> None:
    """Measure a decoding step and the card's part of it."""
    if bench.late:
        bench.leave_out(f"{name}, loop", "no time was left")
        return
    with bench.case(f"{name}, loop"):
        recorded = gpu_edits.load(bench.recorded, target.vocab)
        line = gpu_loop.measure(target, recorded)
        bench.found["loop"].append({"shape": name} | line)


def peer(bench: GpuBench, name: str, settings: dict[str, Any]) -> None:
    """Measure plain decoding in gpt-fast's style."""
    if bench.late:
        bench.leave_out(f"{name}, peer", "no time was left")
        return
    with bench.case(f"{name}, peer"):
        line = gpu_peer.measure(settings, bench.at)
        bench.found["peer"].append({"shape": name} | line)


def law(bench: GpuBench, name: str, settings: dict[str, Any]) -> None:
    """Check that drafts change no text, on random weights whose head is their own.

    Where the head is the embedding, a model repeats its last token.
    """
    untied = settings | {"tie_word_embeddings": False}
    for exact in (True, False) if bench.options.fast else (True,):
        mode = "exact" if exact else "fast"
        if bench.late:
            bench.leave_out(f"{name}, law, {mode}", "no time was left")
            continue
        with bench.case(f"{name}, law, {mode}"):
            target = random_target(name, untied, replace(bench.config, exact=exact))
            capture_graphs(bench, f"{name}, law, {mode}", target)
            for line in gpu_law.texts(target):
                bench.found["law"].append({"shape": name, "mode": mode} | line)
                if line["differs_at"] is not None and target.exact:
                    what = f"{name}, {line['request']}, {line['draft']}"
                    raise AssertionError(f"the law is broken: {what}: {line['differs_at']}")
            if exact:
                logits(bench, name, untied, target)
        bench.free()


def logits(bench: GpuBench, name: str, settings: dict[str, Any], target: TorchTarget) -> None:
    """Compare logits with transformers' in f32, where its weights fit beside ours."""
    need = weight_bytes(settings, WEIGHT_BYTES["f32"])
    if why := memory_shortage("transformers' weights in f32 take", need, free_bytes(bench.at)):
        bench.leave_out(f"{name}, logits beside transformers'", why)
        return
    theirs = random_hf(settings, bench.at, torch.float32)
    for line in gpu_law.compare_logits(target, theirs):
        bench.found["logits"].append({"shape": name} | line)


# -- edits -----------------------------------------------------------------------------------------


def edits(
    bench: GpuBench,
    name: str,
    settings: dict[str, Any],
    target: TorchTarget,
    theirs: Callable[[torch.dtype], Any],
) -> None:
    """Measure recorded edits by all methods in turns."""
    recorded = gpu_edits.load(bench.recorded, target.vocab)
    mine = ForcedDraftline(target, recorded)
    methods: dict[str, Method] = {
        "plain": lambda answer: mine.plain(answer.from_middle(PLAIN_TOKENS)),
        "draftline": mine.draftline,
    }
    dtype = torch.float32 if target.dtype_name == "f32" else torch.bfloat16
    need = weight_bytes(settings, dtype.itemsize)
    if why := memory_shortage("its weights, beside ours, take", need, free_bytes(bench.at)):
        bench.leave_out(f"{name}, transformers", why)
    elif bench.options.slow_edits:
        with bench.case(f"{name}, transformers"):
            model = theirs(dtype)
            plain, lookup = ForcedTransformers(model), ForcedTransformers(model, lookup=True)
            methods["hf"] = lambda answer: plain(answer.from_middle(HF_TOKENS))
            methods["hf-lookup"] = lambda answer: lookup(answer.from_middle(LOOKUP_TOKENS))
            if bench.options.compiled:
                compiled = ForcedTransformers(
                    model, capacity=min(STATIC_CACHE_TOKENS, target.context)
                )
                methods["hf-compiled"] = lambda answer: compiled(answer.from_middle(HF_TOKENS))
    able: dict[str, Method] = {}
    for method, run in methods.items():
        with bench.case(f"{name}, {method}"):
            run(recorded.answers[0].from_middle(WARM_UP_TOKENS))
            able[method] = run
    runs = run_edits(bench, name, able, recorded.answers)
    for kind, suffix in (("file", ""), ("hunk", "-hunk")):
        some = {key: one for key, one in runs.items() if key[1] == kind}
        for method in able:
            if line := speed_and_ratio(some, method):
                bench.found["edits"].append({"shape": name, "method": f"{method}{suffix}"} | line)


Runs = dict[tuple[str, str, str, int], ForcedRun]  # (method, kind, edit id, repeat) -> run


def run_edits(
    bench: GpuBench, name: str, methods: dict[str, Method], answers: list[RecordedAnswer]
) -> Runs:
    """Return all runs that time allows; methods take turns in each repeat."""
    slow = [one.id for one in answers if one.kind == "file"][: bench.options.slow_edits]
    runs: Runs = {}
    for repeat in range(bench.options.repeats):
        for place, answer in enumerate(answers):
            order = [m for m in methods if not m.startswith("hf") or answer.id in slow]
            turn = (repeat + place) % max(len(order), 1)
            for method in order[turn:] + order[:turn]:
                what = f"{name}, {method}, {answer.id}, repeat {repeat + 1}"
                if bench.over or (bench.late and repeat):
                    bench.leave_out(f"{name}, edits of repeat {repeat + 1} from {answer.id} on",
                                    "no time was left")  # fmt: skip
                    return runs
                with bench.case(what):
                    run = methods[method](answer)
                    runs[method, answer.kind, answer.id, repeat] = run
                    line = {"shape": name, "method": method, "edit": answer.id, "repeat": repeat}
                    line |= {"kind": answer.kind, "tokens": run.tokens, "passes": run.passes}
                    bench.found["runs"].append(line | {"seconds": round(run.seconds, 5)})
        report.say(f"{name}: edits, repeat {repeat + 1} of {bench.options.repeats}")
    return runs


def speed_and_ratio(runs: Runs, method: str) -> dict[str, float] | None:
    """Return a method's speed, and its ratio to plain decoding over the edits that both decoded."""
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
