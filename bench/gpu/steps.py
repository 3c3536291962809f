"""How long a step takes, beside what the card's memory allows: bandwidth, steps, their parts.

A step is as the engine makes it, but for drafting and text: the last token and the draft go to the
card, a pass runs, the model's own token is chosen after the rows, the cache keeps what was accepted
(nothing: weights are random), and the choice is waited for. `context` is what is in the cache
behind the pass, so the draft's own rows are in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from statistics import median
from time import perf_counter
from typing import Any

import torch

from bench.gpu.models import SIZES, read_bytes
from engine.drafting import chain
from engine.model.torch_target import TorchTarget
from engine.records import Draft, Request
from engine.sampling.verify import agreed, matching

GREEDY = Request("complete")
WARM_UP, LEAST, MOST = 3, 20, 60  # steps
PATIENCE = 0.6  # seconds of steps, once there are LEAST of them
BUFFER = {"cuda": 2 << 30, "cpu": 32 << 20}  # bytes that are copied and read
PROFILED = 8  # steps
# A kernel belongs to the first part one of whose marks its name has.
PARTS = {
    "attention": ("attend", "_combine", "flash", "fmha", "attention", "softmax", "bmm"),
    "matmuls": ("gemm", "gemv", "cutlass", "nvjet", "splitk", "cublas", "dot_kernel", "_product",
                "aten::mm", "aten::addmm", "aten::linear", "mkldnn", "matmul"),
    "norms_turns_gates": ("_add_norm", "_turn", "_gate", "rms_norm", "silu"),
    "choices": ("argmax", "topk", "sort", "radix", "isfinite", "gather", "reduce_kernel"),
    "transfers": ("memcpy", "memset", "copy_device", "aten::copy_", "aten::_local_scalar"),
}  # fmt: skip


def wait(device: torch.device) -> None:
    """Until the device has done what it was asked."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def seconds_of(run: Callable[[], object], device: torch.device) -> float:
    """Median of LEAST runs or more, warmed up, each waited for."""
    for _ in range(WARM_UP):
        run()
    wait(device)
    times: list[float] = []
    while len(times) < LEAST or (len(times) < MOST and sum(times) < PATIENCE):
        start = perf_counter()
        run()
        wait(device)
        times.append(perf_counter() - start)
    return median(times)


# -- the floor -------------------------------------------------------------------------------------


def bandwidth(device: torch.device) -> dict[str, float]:
    """GB/s. "copy": bytes read and bytes written; "read": a product with one column, which reads a
    matrix and writes next to nothing."""
    size = BUFFER[device.type]
    if device.type == "cuda":
        size = min(size, torch.cuda.mem_get_info(device)[0] // 4)
    count = size // 2 // 8192 * 8192
    source = torch.empty(count, dtype=torch.bfloat16, device=device).normal_()
    matrix, row = source.view(-1, 8192), source[:8192].clone()
    read = seconds_of(lambda: torch.mv(matrix, row), device)
    target = torch.empty_like(source)
    copy = seconds_of(lambda: target.copy_(source), device)
    return {"copy": 4 * count / copy / 1e9, "read": 2 * count / read / 1e9}


def floor_ms(settings: dict[str, Any], target: TorchTarget, context: int, gb_s: float) -> float:
    """Milliseconds of reading the weights and the live cache once."""
    size = SIZES.get(target.dtype_name, 1)
    return (read_bytes(settings, size) + live_bytes(target, context)) / gb_s / 1e6


def live_bytes(target: TorchTarget, context: int) -> int:
    model = target.model
    element = torch.empty(0, dtype=model.cache_dtype).element_size()
    return 2 * context * model.layers * model.kv_heads * model.head_dim * element


# -- steps -----------------------------------------------------------------------------------------


def draft_of(bucket: int) -> Draft:
    """A chain that fills a bucket: the last token is one of its rows."""
    return chain([5 + n % 7 for n in range(bucket - 1)], "bench")


def place_at(target: TorchTarget, cached: int, room: int) -> None:
    """Make a sequence current that has `cached` tokens, whatever they are, and `room` more rows."""
    target.begin([1] * (cached + 1), room)
    current = target.sequence
    for part in current.cache:
        part.normal_()  # memory that was never written, or is all zeros, is read too fast
    current.tokens[:] = [1] * cached


def step(target: TorchTarget, draft: Draft, cached: int) -> None:
    """One of them; the cache is then as before."""
    scores = target.forward(3, draft)
    if len(scores.logits) != 1 + len(draft):
        ran = len(scores.logits)
        raise torch.OutOfMemoryError(f"memory was short: {ran} of {1 + len(draft)} rows were run")
    if scores.chosen is None:
        matching(GREEDY)(draft, scores.logits, cached + 1)
    else:
        agreed(draft, scores.chosen(GREEDY, cached + 1))
    target.keep([])
    del target.tokens[cached:]


def step_ms(target: TorchTarget, bucket: int, context: int) -> float:
    """Milliseconds of a step that fills `bucket`, with `context` tokens in the cache behind it."""
    cached, draft = context - bucket, draft_of(bucket)
    if len(target.pool.sequences) == 0 or len(target.tokens) != cached:
        place_at(target, cached, bucket)
    return 1000 * seconds_of(lambda: step(target, draft, cached), target.device)


def clear(target: TorchTarget) -> None:
    """Forget all sequences; their memory is free again."""
    target.pool.sequences.clear()
    if target.device.type == "cuda":
        torch.cuda.empty_cache()


# -- where the time goes ---------------------------------------------------------------------------


def parts_of(target: TorchTarget, bucket: int, context: int, ms: float) -> dict[str, Any]:
    """Milliseconds of a step by part, as the profiler saw the device. What of `ms`, the step's
    unprofiled time, the device had nothing to do is "waiting": Python, launches, the way back."""
    from torch.profiler import ProfilerActivity, profile

    cuda = target.device.type == "cuda"
    cached, draft = context - bucket, draft_of(bucket)
    place_at(target, cached, bucket)
    for _ in range(WARM_UP):
        step(target, draft, cached)
    wait(target.device)
    activities = [ProfilerActivity.CUDA] if cuda else [ProfilerActivity.CPU]
    with profile(activities=activities) as seen:
        for _ in range(PROFILED):
            step(target, draft, cached)
        wait(target.device)
    found = dict.fromkeys([*PARTS, "other"], 0.0)
    spans = []
    for event in seen.events():
        start, stop = event.time_range.start, event.time_range.end  # microseconds
        if cuda and "CUDA" not in str(event.device_type):
            continue
        took = float(stop - start) if cuda else float(event.self_cpu_time_total)
        found[part_of(event.name)] += took
        spans.append((start, stop))
    busy = covered(spans) / PROFILED / 1000
    per_step = {name: round(us / PROFILED / 1000, 4) for name, us in found.items()}
    waiting = max(ms - busy, 0.0)
    return {
        "bucket": bucket,
        "context": context,
        "ms": round(ms, 4),
        **per_step,
        "waiting": round(waiting, 4),
        "waiting_share": round(waiting / ms, 4),
    }


def part_of(name: str) -> str:
    """The part that a kernel, or on a CPU an operation, belongs to."""
    low = name.lower()
    return next((part for part, marks in PARTS.items() if any(m in low for m in marks)), "other")


def covered(spans: Iterable[tuple[float, float]]) -> float:
    """How much of the time line the spans cover together."""
    total, reached = 0.0, float("-inf")
    for start, stop in sorted(spans):
        total += max(0.0, stop - max(start, reached))
        reached = max(reached, stop)
    return total
