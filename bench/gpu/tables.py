"""The record of `python -m bench gpu` and the tables that it prints."""

from __future__ import annotations

import argparse
from time import perf_counter
from typing import TYPE_CHECKING, Any

import torch

from bench.common.environment import cpu_name, run_record
from bench.common.report import console, table

if TYPE_CHECKING:
    from bench.gpu.run import GpuBench

Record = dict[str, Any]
AS_THEY_ARE = {  # sections whose lines are shown whole: titles
    "parts": "Where a step's milliseconds go",
    "host": "Between passes: microseconds of a step on a stub card",
    "law": "The law: texts that a model chooses freely, beside plain decoding",
    "logits": "Logits beside transformers' in f32",
    "loop": "A step of recorded edits, and the card's part of it",
    "prompts": "Milliseconds to the first token",
    "sampled": "Milliseconds of a step by how tokens are chosen",
    "peer": "Plain decoding in gpt-fast's style",
    "experts": "A mixture of experts",
    "memory": "Memory",
}


def card(device: torch.device) -> str:
    """Return the name of a CUDA device, or of the processor."""
    if device.type == "cuda":
        return str(torch.cuda.get_device_name(device))
    return cpu_name()


def record(options: argparse.Namespace, bench: GpuBench) -> Record:
    """Return the last line: the measurements first, then what a reader needs to judge them."""
    known = run_record(bench, options.repeats, perf_counter() - bench.began)
    known["versions"]["cuda"] = torch.version.cuda
    made: Record = {
        "card": bench.card,
        "copy_gb_s": round(bench.bandwidth["copy"], 1),
        "results": bench.found["results"],
        "edits": bench.found["edits"],
        "read_gb_s": round(bench.bandwidth["read"], 1),
        "floor": "bytes of weights and live cache over copy_gb_s (read and written bytes)",
    }
    if bench.device == "cuda":
        known["card_memory_gb"] = round(
            torch.cuda.get_device_properties(bench.at).total_memory / 1e9, 1
        )
    return made | {name: lines for name, lines in bench.found.items() if name not in made} | known


def show(made: Record) -> None:
    """Print the tables."""
    out = console(140)
    out.print(
        f"{made['card']}: copies {made['copy_gb_s']:.1f} GB/s, which the floor uses; reads "
        f"{made['read_gb_s']:.1f} GB/s; medians, {made['seconds']} s in all",
        highlight=False,
    )
    for shape in dict.fromkeys(one["shape"] for one in made["results"]):
        out.print(steps_table(shape, [r for r in made["results"] if r["shape"] == shape]))
    for section, title in AS_THEY_ARE.items():
        if lines := made[section]:
            heads = " ".join(name.replace(", ", "/") for name in lines[0])
            out.print(table(title, heads, [list(map(str, one.values())) for one in lines]))
    if made["products"]:
        out.print(products_table(made["products"]))
    if made["edits"]:
        lines = [
            [
                one["shape"],
                one["method"],
                f"{one['tokens_per_s']:.1f}",
                per_pass(made["runs"], one),
                "" if one["ratio_to_plain"] is None else f"{one['ratio_to_plain']:.2f}",
            ]
            for one in made["edits"]
        ]
        out.print(table("Edits", "shape method tokens/s tokens/pass ratio_to_plain", lines))
    if made["exact"]:
        heads = "shape bucket context fast_ms exact_ms ratio same_bits(fast/exact) flips"
        out.print(table("The exact mode", heads, [exact_line(one) for one in made["exact"]]))
    for one in made["left_out"]:
        out.print(f"left out: {one}", highlight=False, markup=False)


def steps_table(shape: str, lines: list[Record]) -> Any:
    """Milliseconds, and their ratio to the floor, by bucket and context."""
    contexts = list(dict.fromkeys(one["context"] for one in lines))
    by_place = {(one["bucket"], one["context"]): one for one in lines}
    rows = []
    for bucket in dict.fromkeys(one["bucket"] for one in lines):
        cells = [by_place.get((bucket, context)) for context in contexts]
        rows.append(
            [str(bucket)]
            + [
                "" if one is None else f"{one['ms']:.3f} ({one['floor_ratio']:.2f}x)"
                for one in cells
            ]
        )
    heads = " ".join(["bucket", *(f"context_{context}" for context in contexts)])
    return table(f"{shape}: ms (times the floor)", heads, rows)


def products_table(lines: list[Record]) -> Any:
    """Microseconds by matrix and rows, a column for each product."""
    names = list(dict.fromkeys(one["product"] for one in lines))
    cells: dict[tuple[str, str, int], dict[str, str]] = {}
    for one in lines:
        mark = "" if one["same_bits"] else "*"
        row = cells.setdefault((one["shape"], one["matrix"], one["rows"]), {})
        row[one["product"]] = f"{one['us']:.1f}{mark}"
    heads = " ".join(["shape", "matrix", "rows", *(name.replace(", ", "/") for name in names)])
    rows = [
        [shape, matrix, str(count), *(row.get(name, "") for name in names)]
        for (shape, matrix, count), row in cells.items()
    ]
    return table("Products: microseconds (* a row's bits depend on the other rows)", heads, rows)


def per_pass(runs: list[Record], line: Record) -> str:
    """Tokens per pass over the runs behind a line of `edits`."""
    hunks = line["method"].endswith("-hunk")
    method = line["method"].removesuffix("-hunk")
    mine = [
        one for one in runs
        if (one["shape"], one["method"], one["kind"] == "hunk") == (line["shape"], method, hunks)
    ]  # fmt: skip
    passes = sum(one["passes"] for one in mine)
    return f"{sum(one['tokens'] for one in mine) / passes:.2f}" if passes else ""


def exact_line(one: Record) -> list[str]:
    """Return the cells of one bucket."""
    fast, slow = one["fast"], one["exact"]
    return [
        one["shape"],
        str(one["bucket"]),
        str(one["context"]),
        f"{one['fast_ms']:.3f}",
        f"{one['exact_ms']:.3f}",
        f"{one['ratio']:.2f}",
        f"{fast['same_bits']}/{slow['same_bits']} of {fast['positions']}",
        f"{fast['flips']}/{slow['flips']}",
    ]
