"""Measure how fast the index is built, updated and queried, and its memory, beside other indexes.

    python -m bench index [--tokenizer tokenizer.json] [--tokens 1000000,5000000] [--growth]

The corpus is real source: the Python files of this Python's standard library and site-packages, in
a fixed random order. Without --tokenizer a token is a word, a run of blanks or a sign, numbered by
its checksum, so that nothing is downloaded. Each index runs in a process of its own, they take
turns, and figures are medians of --repeats:

draftline     Frozen and Segments of index._core, and where marked the workspace
arctic        the suffix tree of arctic-inference, which holds strings of at most 64 tokens
python        a suffix automaton of dicts as in SAM-Decoding (arXiv 2411.10666): at most 1M tokens
suffix-array  pydivsufsort, the lower bound of an index that never changes

An index whose library is missing is left out with a line that says so. Both install without CUDA,
into the active environment, which must have torch; arctic-inference's CMake finds its Python there:

    . .venv/bin/activate
    pip install pydivsufsort setuptools wheel cmake ninja nanobind
    pip install --no-deps --no-build-isolation --no-binary arctic-inference arctic-inference==0.3.0

Every tail has 64 tokens; half of them occur in the index, half come from files that no index holds.
Then a folder is measured: cold start against the tokenizer alone, warm start, a git checkout.
--growth measures sizes from 0.1M to 10M tokens instead and draws a chart. --scale measures only the
workspace, with 10M and 200M tokens: memory, disk, start, matches, changes. The run ends with one
JSON line; the same record is written to a file after each part, so that a stopped run leaves it.
"""

from __future__ import annotations

import argparse
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
from rich.console import Console

from bench.common import report
from bench.common.charts import save
from bench.common.cli import argument_parser
from bench.common.environment import environment, results_path
from bench.index import corpus as index_corpus
from bench.index import plot, scale
from bench.index.compare import Amounts, Row, by_folder, by_workspace, compare, targets
from bench.index.folder import load_encoder

SIZES, GROWTH_SIZES = "1000000,5000000", "100000,300000,1000000,3000000,10000000"
SCALE_SIZES = "10000000,200000000"
QUICK = Amounts(repeats=2, tails=20, changes=3, unseen=10_000, folder=100_000, checkout=20)
GROWTH_AMOUNTS = Amounts(repeats=3, tails=500)
Columns = tuple[tuple[str, str, float, int], ...]
PACKAGES = ("arctic_inference", "pydivsufsort", "tokenizers")
COLUMNS = (  # column title, key, unit, digits
    ("tokens/M", "tokens", 1e6, 2),
    ("build_M/s", "build_tokens_per_s", 1e6, 2),
    ("bytes/token", "bytes_per_token", 1, 1),
    ("resident", "resident_bytes_per_token", 1, 1),
    ("disk", "disk_bytes_per_token", 1, 1),
    ("update_ms", "update_ms", 1, 2),
    ("most", "update_ms_max", 1, 1),
    ("match_us", "match_us_p50", 1, 1),
    ("p99", "match_us_p99", 1, 1),
    ("seen", "match_seen_us_p50", 1, 1),
    ("new", "match_new_us_p50", 1, 1),
    ("as_long", "same_length", 1, 3),
    ("cold_s", "cold_start_s", 1, 2),
    ("warm_s", "warm_start_s", 1, 3),
)


def measure(
    options: argparse.Namespace, amounts: Amounts, record: Row, work: Path
) -> Iterator[None]:
    """Fill the record; yields after each part."""
    if options.scale:
        for row in scale.measure(options.tokens, amounts, options.source, options.tokenizer, work):
            record["results"].append(row)
            yield
        return
    report.say("tokenising")
    stream = index_corpus.texts(options.source)
    encoder = load_encoder(options.tokenizer)
    first = index_corpus.collect(stream, encoder, amounts.unseen)
    documents = index_corpus.collect(stream, encoder, max(options.tokens))
    real = sum(map(len, documents))
    if real < min(options.tokens):
        need = min(options.tokens) + amounts.unseen
        sys.exit(
            f"--source: {real:,} tokens, {need:,} needed: name more folders, or smaller --tokens"
        )
    if real < max(options.tokens):
        record["repeated"] = f"tokens beyond {real:,} repeat the same text with other ids"
        report.say(record["repeated"])
    for tokens in options.tokens:
        corpus, place = work / f"{tokens}.npz", work / str(tokens)
        chosen = index_corpus.cut(documents, tokens)
        index_corpus.write(corpus, chosen, np.concatenate(first), amounts.tails, amounts.changes)
        place.mkdir()
        rows = compare(corpus, tokens, place, amounts, record["left_out"], options.growth)
        record["results"] += rows
        yield
        if not options.growth and rows and rows[0]["index"] == "draftline":
            report.say(f"{tokens:,} tokens: the workspace")
            by_workspace(rows[0], corpus, place)
            yield
    if not options.growth:
        texts = index_corpus.texts(options.source)
        record["folder"] = by_folder(texts, amounts, options.tokenizer, work)
        for row in record["results"]:
            if row["index"] == "draftline" and row["tokens"] == max(options.tokens):
                row |= {key: record["folder"][key] for key in ("cold_start_s", "warm_start_s")}
        yield


def show(record: Row) -> None:
    """Show the indexes, draftline against each, draftline by segments, and the targets."""
    console = report.console(160)
    console.print(record["title"] + f"; {record['seconds']} s in all")
    for why in [*record["left_out"], *filter(None, [record.get("repeated")])]:
        console.print(why, markup=False)
    rows = record["results"]
    if record["scale"]:
        heads = " ".join(column[0] for column in scale.COLUMNS)
        lines = [_cells(row, scale.COLUMNS) for row in rows]
        console.print(report.table("A workspace by size", heads, lines))
        _show_targets(console, record)
        return
    lines = [[row["index"], *_cells(row, COLUMNS)] for row in rows]
    heads = " ".join(["index", *(column[0] for column in COLUMNS)])
    console.print(report.table("Indexes", heads, lines))
    lines = [
        [f"{row['tokens']:,}", row["index"], _interval(row["ratio_build"]),
         _interval(row["ratio_match"])]
        for row in rows
        if row["ratio_build"]
    ]  # fmt: skip
    console.print(report.table("Ours is so many times as fast", "tokens than build match", lines))
    lines = [
        [f"{row['tokens']:,}", str(form["frozen"]), f"{form['young_tokens']:,}",
         f"{form['match_us_p50']:.1f}", f"{form['match_us_p99']:.1f}"]
        for row in rows
        for form in row.get("forms", [])
    ]  # fmt: skip
    if lines:
        heads = "tokens frozen_segments young_tokens match_us p99"
        console.print(report.table("Our match by segments", heads, lines))
    _show_targets(console, record)


def _cells(row: Row, columns: Columns) -> list[str]:
    """Return a row's cells; "" for what was not measured."""
    cells = ((row.get(key), unit, digits) for _, key, unit, digits in columns)
    return ["" if one is None else f"{one / unit:.{digits}f}" for one, unit, digits in cells]


def _show_targets(console: Console, record: Row) -> None:
    lines = [
        [one["what"], f"{one['measured']:.2f}", f"{one['target']:g}", "yes" if one["met"] else "NO"]
        for one in record["targets"]
    ]
    if lines:
        console.print(report.table("Asked for, at the largest size", "what ours asked met", lines))


def write(out: Path, record: Row) -> None:
    """Write the record, and a chart of growth beside it."""
    report.write_json(out, record)
    if record["growth"]:
        save(plot.draw(record["results"], record["title"]), out.with_suffix(".svg"))


def _interval(ratio: list[float]) -> str:
    return "{:.2f} [{:.2f}, {:.2f}]".format(*ratio)


def read_options(argv: list[str] | None) -> argparse.Namespace:
    parser = argument_parser("index", __doc__)
    parser.add_argument(
        "--tokens",
        help=f"sizes; {SIZES}, with --growth {GROWTH_SIZES}, with --scale {SCALE_SIZES}",
    )
    parser.add_argument("--tokenizer", type=Path, help="a tokenizer.json")
    parser.add_argument(
        "--source", type=Path, action="append", help="folders in place of Python's own"
    )
    parser.add_argument("--repeats", type=int, help="rounds; 5, with --growth 3")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--growth", action="store_true", help="sizes up to 10M tokens, and a chart")
    which.add_argument("--scale", action="store_true", help="only the workspace, up to 200M tokens")
    parser.add_argument(
        "--work", type=Path, help="folder for the run's files, 30 bytes a token with --scale; /tmp"
    )
    parser.add_argument("--quick", action="store_true", help="a trial run: little of everything")
    parser.add_argument("--out", type=Path, help="the results; bench/results/index-...json")
    options = parser.parse_args(argv)
    usual = GROWTH_SIZES if options.growth else SCALE_SIZES if options.scale else SIZES
    sizes = options.tokens or ("20000" if options.quick else usual)
    try:
        options.tokens = sorted(int(size) for size in sizes.split(","))
    except ValueError:
        parser.error(f"--tokens {sizes}: whole numbers, with commas between them")
    if options.tokens[0] < 1000:
        parser.error(f"--tokens {options.tokens[0]}: must be 1000 or more")
    if options.repeats is not None and options.repeats < 1:
        parser.error(f"--repeats {options.repeats}: must be 1 or more")
    if options.tokenizer and not (
        options.tokenizer.name == "tokenizer.json" and options.tokenizer.is_file()
    ):
        parser.error(f"--tokenizer {options.tokenizer}: no such file; name a tokenizer.json")
    if options.work and not options.work.is_dir():
        parser.error(f"--work {options.work}: not a folder")
    paths = sysconfig.get_paths()
    options.source = options.source or [Path(paths["stdlib"]), Path(paths["purelib"])]
    for folder in options.source:
        if not folder.is_dir():
            parser.error(f"--source {folder}: not a folder")
    return options


def main(argv: list[str] | None = None) -> int:
    options = read_options(argv)
    amounts = QUICK if options.quick else GROWTH_AMOUNTS if options.growth else Amounts()
    if options.repeats:
        amounts = replace(amounts, repeats=options.repeats)
    began = time.perf_counter()
    known = environment(packages=PACKAGES)
    machine = known["machine"]
    tokenizer = options.tokenizer.parent.name if options.tokenizer else "words by checksum"
    record: Row = {
        "title": f"{machine['cpu']}, {machine['cores']} cores; tokens: {tokenizer}",
        **known,
        "growth": options.growth,
        "scale": options.scale,
        "repeats": amounts.repeats,
        "left_out": [],
        "results": [],
    }
    kind = "index-growth" if options.growth else "index-scale" if options.scale else "index"
    out = options.out or results_path(kind)
    with tempfile.TemporaryDirectory(prefix="bench-index-", dir=options.work) as work:
        for _ in measure(options, amounts, record, Path(work)):
            rows = record["results"]
            record["targets"] = scale.targets(rows) if options.scale else targets(record)
            record["seconds"] = round(time.perf_counter() - began)
            write(out, record)
    show(record)
    report.print_json_line(record)
    return 0
