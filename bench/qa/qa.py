"""How well questions about documents are served: is the passage that answers found, does the answer
hold it, is what is cited there, and how much sooner does it come than by plain decoding?

    python bench/qa/qa.py doc_qa.jsonl
    python bench/qa/qa.py doc_qa.jsonl --model qwen2.5-coder-0.5b [--repeats 5] [--summaries 3]

The public questions, and as many generated ones: sentences of the same documents, asked for by
their rarest words. With a model the public ones are answered, too (bench/qa/answers.py). Ends with
one JSON line. FILE is JSONL; a record has id, doc_id, source_path, document, question, answer and
answer_start.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import sqlite3
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

# A file beside this one is called index: its folder must not come before the package.
from bench.common import report
from bench.qa.retrieval import Asked, generated, load, measure, refusals
from index.documents.documents import Documents

ROOT = Path(__file__).resolve().parents[2]

# Of the last line, whatever was measured.
HEADS = (
    "hit@1",
    "hit@3",
    "hit@10",
    "answer_containment",
    "citation_precision",
    "citations",
    "ratio_to_plain",
)
PACKAGES = ("torch", "transformers")
Figures = dict[str, Any]


def main(argv: list[str] | None = None) -> int:
    options = read_options(argv)
    try:
        documents, asked = load(options.file)
    except (OSError, ValueError) as error:
        print(f"bench/qa/qa.py: {error}", file=sys.stderr)
        return 2
    record: Figures = {"bench": "qa", "machine": report.machine(), "commit": report.commit()}
    record |= {
        "versions": versions(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "load_before": round(os.getloadavg()[0], 2),
    }
    with Documents() as library:
        report.say(f"{len(asked)} questions about {len(documents)} documents")
        record |= measure(documents, asked, library)
        made = generated(documents, options.generated)
        record["generated"] = measure(documents, made, library)
        record["refusals"] = refusals(asked, library)
        show_found(record)
        if options.model:
            try:
                record |= answer(options, documents, asked, library)
            except (ValueError, OSError, RuntimeError) as error:
                print(f"bench/qa/qa.py: {options.model}: {error}", file=sys.stderr)
                return 1
            show_answers(record)
            write(options, record)
    report.last_line({name: record.get(name) for name in HEADS} | record)
    return 0


def read_options(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    add = parser.add_argument
    add("file", type=Path, help="the questions, as JSONL")
    add("--generated", type=int, default=200, help="how many more are made")
    add("--model", help="answer the questions, too: a built-in name, or a folder")
    add("--repeats", type=int, default=5, help="of each answer, with and without speculation")
    add("--summaries", type=int, default=0, help="documents that are summarized, too; once")
    add("--out", type=Path, help="with a model; bench/results/qa-MODEL-PROCESSOR.json")
    options = parser.parse_args(argv)
    for name in ("generated", "repeats"):
        if getattr(options, name) < 1:
            parser.error(f"--{name} {getattr(options, name)}: must be 1 or more")
    if options.summaries < 0:
        parser.error(f"--summaries {options.summaries}: must be 0 or more")
    if options.summaries and not options.model:
        parser.error("--summaries: needs a model; name one with --model")
    return options


def versions() -> dict[str, str | None]:
    """Of what the figures depend on."""
    found: dict[str, str | None] = {"python": platform.python_version()}
    found["sqlite"] = sqlite3.sqlite_version
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = None
    return found


def answer(
    options: argparse.Namespace,
    documents: dict[str, tuple[str, str]],
    asked: Sequence[Asked],
    library: Documents,
) -> Figures:
    """The public questions, and some summaries, with the model."""
    from bench.qa.answers import answers, summaries
    from engine import Config, Engine
    from engine.rag.summarize import Choices

    with Engine(Config(model=options.model)) as engine:
        found: Figures = {"model": Path(options.model).name, "repeats": options.repeats}
        found |= answers(documents, asked, library, engine, options.repeats)
        if options.summaries:
            some = library.list()[: options.summaries]
            found["summaries"] = summaries(some, engine, Choices("short"))
    return found


# -- what is said ----------------------------------------------------------------------------------


def show_found(record: Figures) -> None:
    heads = "questions number hit@1 hit@3 hit@10 search/ms"
    lines = [
        [name, *(str(one[key]) for key in ("questions", "hit@1", "hit@3", "hit@10", "search_ms"))]
        for name, one in (("public", record), ("generated", record["generated"]))
    ]
    _print("The passage is among the best chunks", heads, lines)
    known = record["refusals"]
    print(
        "questions that the documents answer, refused: {refused_wrongly} of {answerable}; that "
        "they do not, put to the model: {not_refused} of {unanswerable}".format(**known)
    )


def show_answers(record: Figures) -> None:
    heads = "text hold-the-passage citations precise covered ratio where-quoted lowest"
    heads += " with-prompt lowest"
    keys = ["answer_containment", "citations", "citation_precision", "covered"]
    keys += ["ratio_to_plain", "ratio_where_quoted", "lowest_ratio", "ratio_whole", "lowest_whole"]
    lines = [["answers", *(str(record[key]) for key in keys)]]
    if made := record.get("summaries"):
        lines.append([f"{made['summaries']} summaries", *(str(made.get(key, "")) for key in keys)])
    _print("What was written, and how much sooner than plainly", heads, lines)
    print(f"retrieval and prompt: {record['prepare_ms']} ms")


def _print(title: str, heads: str, lines: list[list[str]]) -> None:
    console = report.tables(120)
    console.print(report.table(title, heads, lines))


def write(options: argparse.Namespace, record: Figures) -> None:
    """The record as a file, named by what was measured, on what."""
    if options.out is None:
        short = re.sub(r"\W+", "-", record["machine"]["cpu"]).strip("-").lower()
        options.out = ROOT / "bench" / "results" / f"qa-{record['model']}-{short}.json"
    report.write(options, record)
