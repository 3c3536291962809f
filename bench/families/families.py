"""The cost of a pass in each family of models, next to llama.cpp on the same file.

Models have random weights of real shapes in 4 bits, with a cut number of layers. One row against
reading the weights that it needs once, several rows against one row, the part of a pass that linear
attention takes, and one drafted token of the layer that predicts the token after the next (MTP).
Numbers of rows, and the two runtimes, take turns.

    python -m bench families qwen3.5-4b --repeats 9
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np

from bench.common import report
from bench.common.cli import argument_parser, complain
from bench.common.environment import environment, results_path
from bench.decode.methods import model_floor
from bench.families.gguf_metadata import HYBRIDS
from bench.families.llama_cpp_passes import Passes
from bench.families.random_gguf import write_random_gguf
from bench.families.shapes import SHAPES, config_of
from engine.drafting.reduced_head import reduced_head
from engine.model.native.forward_pass import PassRows

ROWS = (1, 8, 16)
CACHED_TOKENS = 128  # tokens before a pass


def arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argument_parser("families", __doc__)
    parser.add_argument("names", nargs="*", metavar="SHAPE", help=f"of {', '.join(SHAPES)}")
    parser.add_argument("--folder", type=Path, help="keep the files here (default: do not)")
    parser.add_argument("--repeats", type=int, default=9, help="rounds (default: 9)")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--no-llama", action="store_true", help="leave llama.cpp out")
    parser.add_argument("--out", type=Path, help="the results file")
    options = parser.parse_args(argv)
    if unknown := set(options.names) - SHAPES.keys():
        parser.error(f"unknown shape {min(unknown)!r}: choose of {', '.join(SHAPES)}")
    return options


class Timed:
    """A function of the kernels, and the seconds that its calls took."""

    def __init__(self, function: Any) -> None:
        self.function, self.seconds = function, 0.0

    def __call__(self, *given: Any) -> Any:
        begun = perf_counter()
        try:
            return self.function(*given)
        finally:
            self.seconds += perf_counter() - begun


class MtpStep:
    """One drafted token of a model's layer that predicts the token after the next."""

    def __init__(self, target: Any) -> None:
        """UnsupportedModel where there is no such layer."""
        self.layer = target.mtp_head()
        self.head = reduced_head(target.vocab, target.head_tile)
        self.state = np.zeros((1, self.layer.model.width), np.float32)
        self.cache = self.layer.new_cache(CACHED_TOKENS + 1)
        self.cache[...] = 0  # untouched memory pages would be read too fast
        self.rows = PassRows.of(CACHED_TOKENS, [-1])

    def seconds(self) -> float:
        begun = perf_counter()
        state = self.layer.run(np.array([7]), self.state, self.rows, self.cache)
        self.layer.head(state, None if self.head is None else self.head.tiles).argmax()
        return perf_counter() - begun


def measured(name: str, path: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Measure one shape. RuntimeError where llama.cpp cannot run it."""
    from engine.config import Config
    from engine.model import _kernels
    from engine.model.cost_model import scratch, timed
    from engine.model.native.native_target import NativeTarget
    from engine.weights import locate

    os.environ["DRAFTLINE_HOME"] = str(path.parent / "home")
    config = Config(device="cpu", dtype="auto", threads=options.threads)
    target = NativeTarget(locate(str(path)), config)
    probe = scratch(target, CACHED_TOKENS)
    step = MtpStep(target) if SHAPES[name][0] in HYBRIDS else None
    llama = None if options.no_llama else Passes(path, options.threads)
    ours: dict[int, list[float]] = {rows: [] for rows in ROWS}
    theirs: dict[int, list[float]] = {rows: [] for rows in ROWS}
    shares, floors, drafted = [], [], []
    try:
        for turn in range(options.repeats + 1):
            for rows in ROWS:
                _kernels.delta_rule = clock = Timed(_kernels.delta_rule)
                ours[rows].append(timed(probe, CACHED_TOKENS, rows))
                _kernels.delta_rule = clock.function
                if rows == ROWS[-1]:
                    shares.append(clock.seconds / ours[rows][-1])
                if llama is not None:
                    theirs[rows].append(llama.seconds(rows))
            if step is not None:
                drafted.append(step.seconds())
            floors.append(model_floor(target, options.threads))
            if not turn:  # the first passes warm up
                for found in (*ours.values(), *theirs.values(), shares, floors, drafted):
                    found.clear()
    finally:
        if llama is not None:
            llama.close()
    return {"shape": name, "exact": target.exact} | _figures(ours, theirs, shares, floors, drafted)


def _figures(
    ours: dict[int, list[float]],
    theirs: dict[int, list[float]],
    shares: list[float],
    floors: list[Any],
    drafted: list[float],
) -> dict[str, Any]:
    """Medians; ratios are medians of pairs of one round."""

    def ratio(above: list[float], below: list[float]) -> float | None:
        if not above or not below:
            return None
        return round(median(a / b for a, b in zip(above, below, strict=True)), 3)

    read = [one["ms"] / 1000 for one in floors]
    return {
        "read_mb": round(floors[0]["bytes"] / 1e6, 1),
        "gb_per_s": round(median(one["bytes_per_s"] for one in floors) / 1e9, 1),
        "ms": {rows: round(1000 * median(found), 2) for rows, found in ours.items()},
        "llama_ms": {
            rows: round(1000 * median(found), 2) for rows, found in theirs.items() if found
        },
        "step_over_reading": ratio(ours[1], read),
        "rows_8_over_1": ratio(ours[8], ours[1]),
        "linear_attention_share": round(median(shares), 3),
        "mtp_ms": round(1000 * median(drafted), 2) if drafted else None,
        "plain_over_llama": ratio(theirs[1], ours[1]),
        "rows_8_over_llama": ratio(theirs[8], ours[8]),
    }


def main(argv: list[str] | None = None) -> int:
    options = arguments(argv)
    began, results = perf_counter(), []
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.folder or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        names = options.names or list(SHAPES)
        for index, name in enumerate(names):
            path = folder / f"{name}.gguf"
            report.progress("writing and timing", index, len(names), name, "ours, llama.cpp")
            if not path.exists():
                further = {"mtp_num_hidden_layers": 1} if SHAPES[name][0] in HYBRIDS else {}
                write_random_gguf(config_of(name) | further, path)
            try:
                results.append(measured(name, path, options))
            except (RuntimeError, ValueError, OSError) as error:
                complain("families", f"{name}: {error}")
                return 2
            finally:
                if options.folder is None:
                    path.unlink()
    record = environment() | {
        "model": "random weights",
        "threads": options.threads,
        "repeats": options.repeats,
        "seconds": round(perf_counter() - began, 1),
        "results": results,
    }
    show(record)
    report.write_json(options.out or results_path("families"), record)
    report.print_json_line(record)
    return 0 if all(one["exact"] for one in results) else 1


def show(record: dict[str, Any]) -> None:
    """Show the table."""
    console = report.console_with_header(record, 132, f"{record['repeats']} rounds")

    def text(value: float | None) -> str:
        return "" if value is None else f"{value:.2f}"

    lines = [
        [
            one["shape"],
            str(one["read_mb"]),
            *(f"{one['ms'][rows]:.1f}" for rows in ROWS),
            text(one["step_over_reading"]),
            text(one["rows_8_over_1"]),
            f"{100 * one['linear_attention_share']:.0f} %",
            text(one["mtp_ms"]),
            text(one["plain_over_llama"]),
            text(one["rows_8_over_llama"]),
        ]
        for one in record["results"]
    ]
    heads = (
        "shape MB 1_row_ms 8_rows_ms 16_rows_ms step/read 8_rows/1 linear mtp_ms llama/1 llama/8"
    )
    console.print(report.table("Passes of families of models", heads, lines))


if __name__ == "__main__":
    sys.exit(main())
