"""Measure how close a step comes to the memory bandwidth of a CUDA device, and the speed of edits.

    python -m bench gpu [--shapes qwen2.5-coder-7b,...] [--fast] [--compiled] [--built-in]
        [--nodes N] [--edits FILE]      # made by `python -m bench gpu-sample`
    python -m bench gpu --only products --shapes qwen2.5-coder-14b
    python -m bench gpu --only law,loop,prompts,sampled,peer,experts --fast
    python -m bench gpu --device cpu --shapes tiny      # the same code, in seconds

Needs no network, weights or tokenizer: models of real shapes get random weights, and the choices
after each pass are those of recorded edits (bench/gpu/edits.py). So every pass is real, and what is
accepted is what real edits accept. The run ends within --budget-s seconds: shapes share the time
that is left, and what was not measured or did not fit into memory is listed with the reason.

Steps: medians of 20 or more, each synchronized. `context` is the number of cached tokens; the floor
is the bytes of weights and live KV cache divided by the device's *copy* bandwidth, measured here;
its read bandwidth is printed as well (bench/gpu/steps.py).
Edits: the product's decoding loop, drafter and shipped weights on whole files and on selections
("-hunk"). `plain` and transformers' `hf` write PLAIN_TOKENS and HF_TOKENS from the middle of an
answer, since their speed hardly depends on the text; `hf-lookup` (prompt lookup) writes
LOOKUP_TOKENS, `draftline` the whole answer; `hf-compiled` uses a static cache under torch.compile
(reduce-overhead). Methods take turns in each repeat; ratios are medians of pairs and their
geometric mean over edits. Decoding excludes the prompt. transformers gets --slow-edits of the whole
files.
Products: microseconds of each matrix product by the format of its weights, ours beside torch's and,
where it is installed, gemlite's with 4-bit weights (bench/gpu/products.py); only where it is named.
Law: texts that random weights choose freely, plain and with drafts of several kinds, must be equal
in the exact mode, and logits beside transformers' in f32 (bench/gpu/law.py). Loop: wall time of a
step of recorded edits and the card's part of it (loop.py). Prompts: the time to the first token
(prompts.py). Sampled: a step by how its tokens are chosen (sampled.py). Peer: plain decoding in
gpt-fast's style (peer.py). Experts: a mixture of experts (experts.py). Each only where it is named;
`--only all` is everything.
Host: microseconds of a step between passes, on a stub card whose passes cost nothing, by part
(bench/gpu/host.py); always on the CPU, and alone with --only host.

Exit code 1: a case failed for another reason than memory or time, or the law was
broken; the rest is written all the same.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from pathlib import Path
from time import perf_counter
from typing import Any

import torch

from bench.common import report
from bench.common.cli import argument_parser, complain
from bench.common.environment import results_path
from bench.gpu import edits, tables
from bench.gpu.models import REAL, SHAPES, random_hf, random_target
from bench.gpu.run import GpuBench, between_passes, experts, measure
from engine.config import USUAL_BUDGET
from engine.model.torch.cuda.static_pass import BUCKETS, MAX_ROWS, USUAL_ROWS, bucket_of
from engine.model.torch.torch_target import TorchTarget

CONTEXTS = (512, 2048, 8192, 32768)
USUAL = ("steps", "parts", "edits", "host")
SECTIONS = (*USUAL, "products", "law", "loop", "prompts", "sampled", "peer", "experts")
OF_NO_SHAPE = {"host", "experts"}
BUILT_IN = ("qwen2.5-coder-0.5b", "qwen2.5-coder-1.5b")


def shapes(bench: GpuBench) -> Iterator[tuple[str, dict[str, Any], Any, Any]]:
    """(name, settings, make ours, make theirs) of each shape, random weights first."""
    for name in bench.options.shapes:
        settings = SHAPES[name]
        yield (
            name,
            settings,
            lambda config, name=name, settings=settings: random_target(name, settings, config),
            lambda dtype, settings=settings: random_hf(settings, bench.at, dtype),
        )
    for name in BUILT_IN if bench.options.built_in else ():
        from engine.model.families.gguf_tensors import settings_of
        from engine.weights import find

        folder = find(name)
        if folder is None:
            bench.leave_out(
                f"{name}, real weights", "not in the cache: fetch it with `draftline models pull`"
            )
            continue
        known = settings_of(folder)
        yield (
            f"{name}, real weights",
            known,
            lambda config, folder=folder: TorchTarget(folder, config),
            lambda dtype, folder=folder: real_hf(folder, bench, dtype),
        )


def real_hf(folder: Path, bench: GpuBench, dtype: torch.dtype) -> Any:
    """Load transformers' own model of a folder."""
    from bench.decode.methods import load_hf

    return load_hf(folder, bench.device, "bf16" if dtype == torch.bfloat16 else "f32")


def arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argument_parser("gpu", __doc__)
    add = parser.add_argument
    add("--device", default="cuda", help="cuda; cpu to try it")
    add("--dtype", default="auto", help="of the weights: auto, bf16, int8, fp8, int4, f32")
    add("--threads", type=int, default=0, help="on a CPU; 0: one per core")
    add("--shapes", type=names(SHAPES), default=list(REAL), help=", ".join(SHAPES))
    add("--buckets", type=numbers, help="rows per pass; default: all that --nodes needs")
    add("--contexts", type=numbers, default=list(CONTEXTS), help="tokens in the cache")
    add("--only", type=names((*SECTIONS, "all")), default=list(USUAL), help=", ".join(SECTIONS))
    add("--fast", action="store_true", help="also measure kernels that round by shape")
    add(
        "--compiled",
        action="store_true",
        help="also measure transformers under torch.compile; takes a minute",
    )
    add("--built-in", action="store_true", help="also measure the real models in the cache")
    add("--edits", type=Path, default=edits.SAMPLE, help="made by `python -m bench gpu-sample`")
    add("--slow-edits", type=int, default=2, help="edits for transformers; 0: none")
    add("--nodes", type=int, default=0, help="draft budget of a step; 0: the product's own")
    add("--repeats", type=int, default=5, help="of edits, as time allows")
    add("--budget-s", type=float, default=450.0, help="seconds in all")
    add("--out", type=Path, help="default: bench/results/gpu-CARD.json")
    options = parser.parse_args(argv)
    if "all" in options.only:
        options.only = list(SECTIONS)
    for name, least in (("slow_edits", 0), ("nodes", 0), ("repeats", 1), ("budget_s", 1)):
        if getattr(options, name) < least:
            parser.error(f"--{name.replace('_', '-')}: must be {least} or more")
    if options.nodes >= MAX_ROWS:
        parser.error(f"--nodes: must be {MAX_ROWS - 1} or less, as many as a pass takes")
    nodes = options.nodes or USUAL_BUDGET  # the product's, as its passes are exact
    widest = max(bucket_of(1 + nodes), USUAL_ROWS)
    options.buckets = options.buckets or [rows for rows in BUCKETS if rows <= widest]
    if max(options.buckets) > widest:
        parser.error(f"--buckets: passes of --nodes {nodes} have {widest} rows at most")
    if min(options.contexts) <= max(options.buckets):
        parser.error("--contexts: must be larger than every bucket")
    return options


def numbers(text: str) -> list[int]:
    """Parse numbers such as 1,2,4 or 512,2k."""
    found = []
    for one in text.split(","):
        digits = one.removesuffix("k")
        if not digits.isdigit() or not int(digits):
            raise argparse.ArgumentTypeError(f"{one!r}: write numbers above 0, such as 16 or 2k")
        found.append(int(digits) * (1024 if digits != one else 1))
    return found


def names(known: Any) -> Callable[[str], list[str]]:
    """Return a parser of comma-separated names out of `known`."""

    def read(text: str) -> list[str]:
        wrong = [one for one in text.split(",") if one not in known]
        if wrong:
            raise argparse.ArgumentTypeError(f"{', '.join(wrong)}: choose from {', '.join(known)}")
        return text.split(",")

    return read


def main(argv: list[str] | None = None) -> int:
    options = arguments(argv)
    try:
        bench = GpuBench(options)
    except (ValueError, OSError) as error:
        complain("gpu", error)
        return 2
    out = options.out or results_path("gpu", hardware=bench.card)
    if bench.wants("host"):
        between_passes(bench)
    left = len(options.shapes) + (len(BUILT_IN) if options.built_in else 0)
    for name, settings, ours, theirs in (
        () if OF_NO_SHAPE.issuperset(options.only) else shapes(bench)
    ):
        bench.allow(max(left, 1))
        left -= 1
        report.say(f"{name}: {bench.until - perf_counter():.0f} s")
        measure(bench, name, settings, ours, theirs)
        bench.free()
        report.write_json(out, tables.record(options, bench))  # a stopped run leaves what it has
    if bench.wants("experts"):
        experts(bench)
    record = tables.record(options, bench)
    report.write_json(out, record)
    tables.show(record)
    report.print_json_line(record)
    return 1 if bench.failed else 0
