"""Measure question answering over documents: retrieval, answers, citations and speed.

    python -m bench qa doc_qa.jsonl
    python -m bench qa doc_qa.jsonl --model qwen2.5-coder-0.5b [--repeats 5] [--summaries 3]

The questions are the public ones of FILE and as many generated ones: sentences of the same
documents, queried by their rarest words. With --model the public ones are answered as well
(bench/qa/answers.py): does the answer contain the passage, is what it cites in the document, and
how much faster is it than plain decoding? The run ends with one JSON line. FILE is JSONL; a record
has id, doc_id, source_path, document, question, answer and answer_start.
"""

from __future__ import annotations

import argparse
import os
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.common import report
from bench.common.cli import argument_parser, complain
from bench.common.environment import environment, results_path
from bench.qa.retrieval import PassageQuestion, generated, load, measure, refusals
from index.documents.documents import Documents

# First keys of the last line, whatever was measured.
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
        complain("qa", error)
        return 2
    record: Figures = {"bench": "qa"} | environment(packages=PACKAGES)
    record["versions"]["sqlite"] = sqlite3.sqlite_version
    record |= {
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
                complain("qa", f"{options.model}: {error}")
                return 1
            show_answers(record)
            report.write_json(options.out or results_path("qa", record["model"]), record)
    report.print_json_line({name: record.get(name) for name in HEADS} | record)
    return 0


def read_options(argv: list[str] | None) -> argparse.Namespace:
    parser = argument_parser("qa", __doc__)
    add = parser.add_argument
    add("file", type=Path, help="the questions, as JSONL")
    add("--generated", type=int, default=200, help="how many questions to generate")
    add("--model", help="answer the questions with this model: a built-in name or a folder")
    add("--repeats", type=int, default=5, help="answers per question, with and without speculation")
    add("--summaries", type=int, default=0, help="how many documents to summarize")
    add("--out", type=Path, help="results of --model; default: bench/results/qa-MODEL-CPU.json")
    options = parser.parse_args(argv)
    for name in ("generated", "repeats"):
        if getattr(options, name) < 1:
            parser.error(f"--{name} {getattr(options, name)}: must be 1 or more")
    if options.summaries < 0:
        parser.error(f"--summaries {options.summaries}: must be 0 or more")
    if options.summaries and not options.model:
        parser.error("--summaries: needs a model: name one with --model")
    return options


def answer(
    options: argparse.Namespace,
    documents: dict[str, tuple[str, str]],
    asked: Sequence[PassageQuestion],
    library: Documents,
) -> Figures:
    """Answer the public questions and summarize some documents with the model."""
    from bench.qa.answers import answers, summaries
    from engine import Config, Engine
    from engine.rag.summary_plan import SummaryOptions

    with Engine(Config(model=options.model)) as engine:
        found: Figures = {"model": Path(options.model).name, "repeats": options.repeats}
        found |= answers(documents, asked, library, engine, options.repeats)
        if options.summaries:
            some = library.list()[: options.summaries]
            found["summaries"] = summaries(some, engine, SummaryOptions("short"))
    return found


# -- tables ----------------------------------------------------------------------------------------


def show_found(record: Figures) -> None:
    heads = "questions number hit@1 hit@3 hit@10 search/ms"
    lines = [
        [name, *(str(one[key]) for key in ("questions", "hit@1", "hit@3", "hit@10", "search_ms"))]
        for name, one in (("public", record), ("generated", record["generated"]))
    ]
    _print("The passage is among the best chunks", heads, lines)
    known = record["refusals"]
    print(
        "answerable questions refused: {refused_wrongly} of {answerable}; "
        "unanswerable ones not refused: {not_refused} of {unanswerable}".format(**known)
    )


def show_answers(record: Figures) -> None:
    heads = "text hold-the-passage citations precise covered ratio where-quoted lowest"
    heads += " with-prompt lowest"
    keys = ["answer_containment", "citations", "citation_precision", "covered"]
    keys += ["ratio_to_plain", "ratio_where_quoted", "lowest_ratio", "ratio_whole", "lowest_whole"]
    lines = [["answers", *(str(record[key]) for key in keys)]]
    if made := record.get("summaries"):
        lines.append([f"{made['summaries']} summaries", *(str(made.get(key, "")) for key in keys)])
    _print("Answers, and their speed relative to plain decoding", heads, lines)
    print(f"retrieval and prompt: {record['prepare_ms']} ms")


def _print(title: str, heads: str, lines: list[list[str]]) -> None:
    report.console(120).print(report.table(title, heads, lines))
