"""Step times relative to memory bandwidth, and where the time of a step goes.

A step is the engine's without drafting and text: the last token and the draft go to the device, a
pass runs, the model's token is chosen after each row, the KV cache keeps what was accepted
(nothing, as weights are random), and the result is awaited. `context` is the cache length after the
pass, so it includes the draft's rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from statistics import median
from time import perf_counter
from typing import Any

import torch

from bench.gpu.models import read_bytes
from engine.drafting import chain
from engine.model.torch.torch_target import TorchTarget
from engine.records import Draft, Request
from engine.sampling.verify import agreed, matching

GREEDY = Request("complete")
WARM_UP_STEPS, MIN_STEPS, MAX_STEPS = 3, 20, 60  # steps
MAX_SECONDS = 0.6  # seconds of steps, once there are MIN_STEPS of them
BUFFER_BYTES = {"cuda": 2 << 30, "cpu": 32 << 20}  # bytes copied and read
PROFILE_STEPS = 8  # steps
# A kernel belongs to the first part with a mark that occurs in its name.
PARTS = {
    "attention": ("attend", "_combine", "flash", "fmha", "attention", "softmax", "bmm"),
    "matmuls": ("gemm", "gemv", "cutlass", "nvjet", "splitk", "cublas", "dot_kernel", "_product",
                "aten::mm", "aten::addmm", "aten::linear", "mkldnn", "matmul"),
    "norms_turns_gates": ("_add_norm", "_turn", "_gate", "rms_norm", "silu"),
    "choices": ("_top_", "_score_parts", "_mass_parts", "_choose", "_group_maxima",
                "argmax", "topk", "sort", "radix", "isfinite", "reduce_kernel"),
    "lookups": ("index", "gather", "embedding"),
    "transfers": ("memcpy", "memset", "copy_device", "aten::copy_", "aten::_local_scalar"),
}  # fmt: skip


def synchronize(device: torch.device) -> None:
    """Wait until all work on the device is done."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def seconds_of(run: Callable[[], object], device: torch.device, least: int = MIN_STEPS) -> float:
    """Median time of at least `least` synchronized runs after a warm-up."""
    for _ in range(WARM_UP_STEPS):
        run()
    synchronize(device)
    times: list[float] = []
    while len(times) < least or (len(times) < MAX_STEPS and sum(times) < MAX_SECONDS):
        start = perf_counter()
        run()
        synchronize(device)
        times.append(perf_counter() - start)
    return median(times)


# -- the floor -------------------------------------------------------------------------------------


def bandwidth(device: torch.device) -> dict[str, float]:
    """GB/s of a copy (bytes read plus bytes written) and of reading (a matrix-vector product)."""
    size = BUFFER_BYTES[device.type]
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
    """Milliseconds to read the weights and the live KV cache once."""
    return (read_bytes(settings, target.dtype_name) + live_bytes(target, context)) / gb_s / 1e6


def live_bytes(target: TorchTarget, context: int) -> int:
    """Bytes of the keys and values of `context` tokens."""
    model = target.model
    element = torch.empty(0, dtype=model.cache_dtype).element_size()
    return 2 * context * model.layers * model.kv_heads * model.head_dim * element


# -- steps -----------------------------------------------------------------------------------------


def draft_of(bucket: int) -> Draft:
    """Return a chain that fills a bucket together with the last token."""
    return chain([5 + n % 7 for n in range(bucket - 1)], "bench")


def place_at(target: TorchTarget, cached: int, capacity: int) -> None:
    """Make current a sequence of `cached` arbitrary tokens with room for `capacity` more rows."""
    target.begin([1] * (cached + 1), capacity)
    current = target.sequence
    for part in current.cache:
        part.normal_()  # unwritten or zero memory is read too fast
    current.tokens[:] = [1] * cached


def advance(target: TorchTarget, draft: Draft, cached: int, request: Request = GREEDY) -> None:
    """Run one step, which adds the last token's row to the `cached` ones."""
    scores = target.forward(3, draft)
    if scores.rows != 1 + len(draft):
        ran = scores.rows
        raise torch.OutOfMemoryError(f"out of memory: {ran} of {1 + len(draft)} rows were run")
    if scores.chosen is None:
        matching(request)(draft, scores.logits, cached + 1)
    else:
        agreed(draft, scores.chosen(request, cached + 1))
    target.keep([])


def step(target: TorchTarget, draft: Draft, cached: int, request: Request = GREEDY) -> None:
    """Run one step; the cache is unchanged afterwards."""
    advance(target, draft, cached, request)
    del target.tokens[cached:]


def step_ms(target: TorchTarget, bucket: int, context: int) -> float:
    """Milliseconds of a step that fills `bucket`, with `context` tokens cached after it."""
    cached, draft = context - bucket, draft_of(bucket)
    if len(target.pool.sequences) == 0 or len(target.tokens) != cached:
        place_at(target, cached, bucket)
    return 1000 * seconds_of(lambda: step(target, draft, cached), target.device)


def clear(target: TorchTarget) -> None:
    """Drop all sequences and free their memory."""
    target.pool.sequences.clear()
    if target.device.type == "cuda":
        torch.cuda.empty_cache()


# -- where the time goes ---------------------------------------------------------------------------


def profile_parts(target: TorchTarget, bucket: int, context: int, ms: float) -> dict[str, Any]:
    """Milliseconds of a step by part, from the profiler.

    "waiting" is the part of `ms`, the unprofiled time of the step, in which the device was idle:
    Python, kernel launches, and the gaps between the kernels of a graph.
    """
    from torch.profiler import ProfilerActivity, profile

    cuda = target.device.type == "cuda"
    cached, draft = context - bucket, draft_of(bucket)
    place_at(target, cached, bucket)
    for _ in range(WARM_UP_STEPS):
        step(target, draft, cached)
    synchronize(target.device)
    activities = [ProfilerActivity.CUDA] if cuda else [ProfilerActivity.CPU]
    with profile(activities=activities) as seen:
        for _ in range(PROFILE_STEPS):
            step(target, draft, cached)
        synchronize(target.device)
    found = dict.fromkeys([*PARTS, "other"], 0.0)
    spans = []
    for event in seen.events():
        start, stop = event.time_range.start, event.time_range.end  # microseconds
        if cuda and "CUDA" not in str(event.device_type):
            continue
        took = float(stop - start) if cuda else float(event.self_cpu_time_total)
        found[part_of(event.name)] += took
        spans.append((start, stop))
    busy = union_length(spans) / PROFILE_STEPS / 1000
    per_step = {name: round(us / PROFILE_STEPS / 1000, 4) for name, us in found.items()}
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
    """Return the part of a kernel, or of an operation on a CPU."""
    low = name.lower()
    return next((part for part, marks in PARTS.items() if any(m in low for m in marks)), "other")


def union_length(spans: Iterable[tuple[float, float]]) -> float:
    """Return the length of the union of the spans."""
    total, reached = 0.0, float("-inf")
    for start, stop in sorted(spans):
        total += max(0.0, stop - max(start, reached))
        reached = max(reached, stop)
    return total
