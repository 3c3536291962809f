"""Measure how updates with marks are merged into files: exactness and speed.

    python -m bench apply [FILE...] [--model NAME] [--tasks 8] [--lines 100:400] [--package NAME]
                          [--kv auto|q8]

FILE is JSONL of recorded edits (`python -m bench replay-collect`), by default those of this project
that `replay` takes too. An update shows each change with --context lines around it, and
`... existing code ...` for the others. First each update is merged
without a model, where there is one place for every change. Of those that need a model, --tasks are
written by it, with and without speculation, each first by turns. Plain decoding stops after --plain
tokens (0: never): it only gets slower from there, with every token that the model looks back at, so
the ratio is a lower bound. As far as it goes, both texts must be equal.

A file counts as exact if it is the recorded new one; refused, if the engine's checks found that
it is not what the update says; wrong, if they did not. "times plain" compares the seconds that all
answers take, without their prompts; "seconds" is a typical wait, with its prompt.

Exit code 1: a text differed with speculation, or a merge without a model was wrong; the results are
written all the same.
"""

from __future__ import annotations

import argparse
from collections import Counter
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

from bench.apply import tasks
from bench.apply.tasks import Task
from bench.common import report
from bench.common.cli import argument_parser, complain
from bench.common.engine_thread import in_engine_thread
from bench.common.environment import environment, results_path
from bench.common.stats import ratio_of_sums
from engine import DEFAULT_MODEL, Config, Engine, Request, RequestError
from engine.config import KV_FORMATS
from engine.editing.apply_answer import apply_answer, merged
from engine.editing.apply_snippet import merge
from engine.editing.edits import EditRefused
from engine.weights import WeightsError

SAMPLE = Path(__file__).parent.parent / "replay" / "sample_edits.jsonl"
PLAIN_TOKENS = 256
Row = dict[str, Any]


def without_model(task: Task) -> str:
    """Return how it ends: exact, wrong, model (it takes one) or refused."""
    try:
        found = merge(task.before, task.update, task.path)
        if found.text is None:
            return "model"
        request = Request("edit", task.before, path=task.path, update=task.update)
        new = apply_answer(request, merged(found.text))
    except EditRefused:
        return "refused"
    return "exact" if task.passes(new) else "wrong"


def with_model(engine: Engine, task: Task, plain_tokens: int, plain_first: bool) -> Row:
    """Measure the model's answer: whether it is exact, its speed, and that of plain decoding."""
    request = Request("edit", task.before, path=task.path, update=task.update)
    short = replace(request, max_tokens=plain_tokens or None)
    try:
        if plain_first:
            slow = engine.submit(short, False).result()
        in_engine_thread(engine, engine.forget)  # else the last answer would be copied
        fast = engine.submit(request).result()
        if not plain_first:
            slow = engine.submit(short, False).result()
    except RequestError as error:
        return {"outcome": "too long", "why": str(error).split(":")[0]}
    row: Row = {}
    if fast.usage.decode_seconds and slow.usage.decode_seconds:  # else nothing was to be chosen
        row = {
            "tokens": fast.usage.completion_tokens,
            "forwards": fast.usage.forwards,
            "tokens_per_s": fast.usage.completion_tokens / fast.usage.decode_seconds,
            "plain_tokens": slow.usage.completion_tokens,
            "plain_tokens_per_s": slow.usage.completion_tokens / slow.usage.decode_seconds,
            "prefill_s": max(fast.usage.prefill_seconds, slow.usage.prefill_seconds),
            "decode_s": fast.usage.decode_seconds,
            "draft_s": fast.usage.draft_seconds,
            "equal": fast.text.startswith(slow.text),
        }
    try:
        new = apply_answer(request, fast)
    except EditRefused as error:
        return row | {"outcome": "refused", "why": str(error)}
    return row | {"outcome": "exact" if task.passes(new) else "wrong"}


def summary(lines: str, rows: list[Row]) -> Row:
    """Return the figures of files of so many lines."""
    first, outcome = (Counter(row.get(key) for row in rows) for key in ("merge", "outcome"))
    timed = [row for row in rows if "tokens_per_s" in row]
    tokens = sum(row["tokens"] for row in timed)
    seconds = sum(row["decode_s"] for row in timed)
    plain = [(row["tokens"] / row["plain_tokens_per_s"], row["decode_s"]) for row in timed]
    times = ratio_of_sums(plain)._asdict() if plain else dict.fromkeys(("value", "low", "high"))
    return {
        "lines": lines,
        "tasks": len(rows),
        "merged": first["exact"] + first["wrong"],
        "merged_wrong": first["wrong"],
        "asked": sum(outcome.values()) - outcome[None],
        "exact": outcome["exact"],
        "wrong": outcome["wrong"],
        "refused": outcome["refused"],
        "too_long": outcome["too long"],
        "tokens_per_s": tokens / seconds if seconds else None,
        "seconds": median(row["prefill_s"] + row["decode_s"] for row in timed) if timed else None,
        "times_plain": times["value"],
        "low": times["low"],
        "high": times["high"],
        "different": sum(not row["equal"] for row in timed),
    }


def show(record: Row) -> None:
    """Print the table."""
    out = report.console_with_header(record, 120, "paired runs, prompts not counted")
    heads = "lines tasks merged asked exact wrong refused too_long tokens/s seconds times_plain"
    lines = [
        [
            group["lines"],
            *(str(group[key]) for key in ("tasks", "merged", "asked", "exact", "wrong")),
            *(str(group[key]) for key in ("refused", "too_long")),
            *(f"{group[key] or 0:.0f}" for key in ("tokens_per_s", "seconds")),
            report.interval(group, "times_plain", ""),
        ]
        for group in record["groups"]
    ]
    out.print(report.table("updates merged without a model, and by the model", heads, lines))


def read_options(argv: list[str] | None) -> argparse.Namespace:
    parser = argument_parser("apply", __doc__)
    add = parser.add_argument
    add("files", type=Path, nargs="*", metavar="FILE", help="JSONL of recorded edits")
    add("--model", default=DEFAULT_MODEL, help="a built-in name, a folder or a GGUF file")
    add("--lines", default="100:400,200:2000", help="sizes of files, groups with commas between")
    add("--tasks", type=int, default=8, help="edits of each group that the model is asked for")
    add("--package", action="append", default=[], metavar="NAME", help="edits of this one only")
    add("--context", type=int, default=3, help="lines around each change in an update")
    add("--plain", type=int, default=PLAIN_TOKENS, help="tokens that plain decoding is timed for")
    add("--no-model", action="store_true", help="only merge what needs no model")
    add("--kv", choices=KV_FORMATS, default="auto", help="the engine's setting of that name")
    add("--threads", type=int, default=0, help="0: one per core")
    add("--out", type=Path, help="results file; default: bench/results/apply-...json")
    options = parser.parse_args(argv)
    for name, least in {"tasks": 1, "context": 1, "plain": 0}.items():
        if getattr(options, name) < least:
            parser.error(f"--{name} {getattr(options, name)}: must be {least} or more")
    try:
        options.groups = {
            group: tasks.load(
                options.files or [SAMPLE],
                span(group),
                options.context,
                options.package,
            )
            for group in options.lines.split(",")
        }
    except (ValueError, OSError) as error:
        parser.error(str(error))
    if empty := [group for group, found in options.groups.items() if not found]:
        parser.error(f"--lines {empty[0]}: no recorded edit of a file of that size")
    return options


def span(group: str) -> tuple[int, int]:
    """Parse `100:400` to numbers. ValueError."""
    first, _, last = group.partition(":")
    if not (first.isdecimal() and last.isdecimal()):
        raise ValueError(f"--lines {group}: write 100:400")
    return int(first), int(last)


def main(argv: list[str] | None = None) -> int:
    options = read_options(argv)
    began = perf_counter()
    groups, rows = [], []
    try:
        with ExitStack() as stack:
            engine = None
            if not options.no_model:
                config = Config(model=options.model, threads=options.threads, kv=options.kv)
                engine = stack.enter_context(Engine(config))
            for group, found in options.groups.items():
                own = []
                asked = 0
                for task in found:
                    row = {"lines": group, "name": task.name, "merge": without_model(task)}
                    own.append(row)
                    if engine and row["merge"] == "model" and asked < options.tasks:
                        report.progress(f"{group} lines", asked, options.tasks, task.name, "apply")
                        row |= with_model(engine, task, options.plain, asked % 2 == 1)
                        asked += 1
                groups.append(summary(group, own))
                rows += own
    except (ValueError, OSError, RuntimeError, WeightsError) as error:
        complain("apply", error)
        return 2
    record = {
        **environment("cpu"),
        "bench": "apply",
        "model": "no model" if options.no_model else Path(options.model).name,
        "threads": options.threads,
        "kv": options.kv,
        "context": options.context,
        "packages": options.package,
        "seconds": round(perf_counter() - began),
        "groups": groups,
        "rows": rows,
    }
    show(record)
    kind = ["kv", options.kv] if options.kv != "auto" else []
    name = record["model"].replace(" ", "-")
    hardware = "any" if options.no_model else None
    out = options.out or results_path("apply", *kind, name, hardware=hardware)
    report.write_json(out, record)
    report.print_json_line(record)
    bad = sum(group["different"] + group["merged_wrong"] for group in groups)
    return 1 if bad else 0
