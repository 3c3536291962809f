"""How fast the index is built, changed and asked, and what memory it takes, beside other indexes.

    python bench/index/index.py [--tokenizer tokenizer.json] [--tokens 1000000,5000000] [--growth]

Real source: Python files of this Python's standard library and site-packages, in an order drawn
once. Without --tokenizer a token is a word, a run of blanks or a sign, by its checksum, so nothing
is downloaded. Compared, each in a process of its own, by turns, medians of --repeats:

draftline     ours: Frozen and Segments of index._core, and by the workspace what is marked so
arctic        the suffix tree of arctic-inference, which holds strings of at most 64 tokens
python        a suffix automaton with dicts, as SAM-Decoding's: at most 1M tokens, built less often
suffix-array  pydivsufsort, the floor for an index that never changes

Where a library is missing, one line says so and the rest goes on. Both install without CUDA, into
the environment that runs this. It must be active, for arctic-inference's CMake to find its Python,
and have torch, which setup.py asks for a folder:

    . .venv/bin/activate
    pip install pydivsufsort setuptools wheel cmake ninja nanobind
    pip install --no-deps --no-build-isolation --no-binary arctic-inference arctic-inference==0.3.0

Every tail has 64 tokens, half of them seen and half from files that no index holds. Then a folder:
cold start against the tokenizer alone, warm start, a git checkout. --growth measures sizes from
0.1M to 10M tokens instead and draws them. Ends with one JSON line, which is also in a file that is
written again after each part, so that a stopped run leaves what it has.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np

# This file is called index too: its folder must not come before the package.
from bench.common import report
from bench.index import corpus as index_corpus
from bench.index import plot
from bench.index.compare import Amounts, Row, by_folder, by_workspace, compare, targets
from bench.index.folder import load_encoder

ROOT = Path(__file__).resolve().parents[2]

SIZES, GROWTH = "1000000,5000000", "100000,300000,1000000,3000000,10000000"
QUICK = Amounts(repeats=2, tails=20, changes=3, unseen=10_000, folder=100_000, checkout=20)
LITTLE = Amounts(repeats=3, tails=500)  # for --growth
PACKAGES = ("arctic_inference", "pydivsufsort", "tokenizers")
COLUMNS = (  # of the table: heading, key, unit, digits
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
    """Fills the record; yields after each part."""
    report.say("tokenising")
    stream = index_corpus.texts(options.source)
    encoder = load_encoder(options.tokenizer)
    first = index_corpus.collect(stream, encoder, amounts.unseen)
    documents = index_corpus.collect(stream, encoder, max(options.tokens))
    real = sum(map(len, documents))
    if real < min(options.tokens):
        need = min(options.tokens) + amounts.unseen
        sys.exit(f"--source: {real:,} tokens left of {need:,} needed: name more, or fewer --tokens")
    if real < max(options.tokens):
        record["repeated"] = f"tokens above {real:,} are the same again, with other ids"
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
    """The indexes, ours against each, ours by segments, and what was asked for."""
    console = report.tables(160)
    console.print(record["title"] + f"; {record['seconds']} s in all")
    for why in [*record["left_out"], *filter(None, [record.get("repeated")])]:
        console.print(why, markup=False)
    rows = record["results"]
    lines = []
    for row in rows:
        cells = ((row.get(key), unit, digits) for _, key, unit, digits in COLUMNS)
        found = ["" if one is None else f"{one / unit:.{digits}f}" for one, unit, digits in cells]
        lines.append([row["index"], *found])
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
    lines = [
        [one["what"], f"{one['measured']:.2f}", f"{one['target']:g}", "yes" if one["met"] else "NO"]
        for one in record["targets"]
    ]
    if lines:
        console.print(report.table("Asked for, at the largest size", "what ours asked met", lines))


def write(out: Path, record: Row) -> None:
    """The record as a file, and a drawing of growth beside it."""
    out.parent.mkdir(parents=True, exist_ok=True)
    _replace(out, json.dumps(record, indent=1) + "\n")
    if record["growth"]:
        _replace(out.with_suffix(".svg"), plot.draw(record["results"], record["title"]))


def _replace(path: Path, text: str) -> None:
    temporary = path.with_name(f"{path.name}.{os.getpid()}")
    temporary.write_text(text, "utf-8")
    temporary.replace(path)


def _interval(ratio: list[float]) -> str:
    return "{:.2f} [{:.2f}, {:.2f}]".format(*ratio)


def _versions() -> dict[str, str | None]:
    found: dict[str, str | None] = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = None
    return found


def read_options(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--tokens", help=f"sizes; {SIZES}, with --growth {GROWTH}")
    parser.add_argument("--tokenizer", type=Path, help="a tokenizer.json")
    parser.add_argument("--source", type=Path, action="append", help="folders, for Python's own")
    parser.add_argument("--repeats", type=int, help="rounds; 5, with --growth 3")
    parser.add_argument("--growth", action="store_true", help="sizes up to 10M tokens, and a plot")
    parser.add_argument("--quick", action="store_true", help="a trial: little of everything")
    parser.add_argument("--out", type=Path, help="the results; bench/results/index-...json")
    options = parser.parse_args(argv)
    sizes = options.tokens or ("20000" if options.quick else GROWTH if options.growth else SIZES)
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
    paths = sysconfig.get_paths()
    options.source = options.source or [Path(paths["stdlib"]), Path(paths["purelib"])]
    for folder in options.source:
        if not folder.is_dir():
            parser.error(f"--source {folder}: not a folder")
    return options


def main(argv: list[str] | None = None) -> int:
    options = read_options(argv)
    amounts = QUICK if options.quick else LITTLE if options.growth else Amounts()
    if options.repeats:
        amounts = replace(amounts, repeats=options.repeats)
    began = time.perf_counter()
    machine = report.machine()
    tokenizer = options.tokenizer.parent.name if options.tokenizer else "words by checksum"
    record: Row = {
        "title": f"{machine['cpu']}, {machine['cores']} cores; tokens: {tokenizer}",
        "machine": machine,
        "growth": options.growth,
        "versions": _versions(),
        "commit": report.commit(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "repeats": amounts.repeats,
        "left_out": [],
        "results": [],
    }
    if options.out is None:
        name = re.sub(r"\W+", "-", machine["cpu"]).strip("-").lower()
        kind = "index-growth" if options.growth else "index"
        options.out = ROOT / "bench" / "results" / f"{kind}-{name}.json"
    with tempfile.TemporaryDirectory(prefix="bench-index-") as work:
        for _ in measure(options, amounts, record, Path(work)):
            record["targets"] = targets(record)
            record["seconds"] = round(time.perf_counter() - began)
            write(options.out, record)
    report.say(f"written: {options.out}")
    show(record)
    print(json.dumps(record), flush=True)
    return 0
