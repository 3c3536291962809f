"""`draftline ask`: a question about files, answered in their own words, with the places.

What is shown to the model and what is cited is decided in `engine`; the files are kept nowhere.
"""

from __future__ import annotations

import argparse
import json
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ui.cli.index import Failure, say
from ui.cli.interrupt import INTERRUPTED
from ui.cli.options import (
    FAILED,
    OK,
    USAGE,
    add_command,
    add_embed,
    add_max_tokens,
    add_options,
    embedding,
    given,
    guarded,
    open_engine,
    sampling,
)

if TYPE_CHECKING:
    from engine import Done
    from engine.rag.answer import Prepared
    from index.documents.documents import Document, Documents
    from ui.cli.answer_view import Writer


def add_parser(commands: Any) -> None:
    """Add the `ask` command. Its `run` default is this file's `run`."""
    parser = add_command(
        commands,
        "ask",
        "ask about documents; the answer names its sources",
        "Answer a question about FILES (pdf, docx, html, md, rst, txt, code) from what they say.\n"
        "Which passages of the answer are copied, and from where, is told below it.",
    )
    add = parser.add_argument
    add("files", nargs="*", type=Path, metavar="FILE", help="searched for what answers it")
    add("-q", "--question", required=True, help="what to answer; - reads it from stdin")
    add(
        "--whole",
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        help="a file to be read whole, where it fits; can be repeated",
    )
    add("--json", action="store_true", help="one JSON object: answer, citations, figures")
    add_embed(parser)
    add_max_tokens(parser)
    add_options(parser)
    parser.set_defaults(run=lambda args: guarded(run, args))


def run(args: argparse.Namespace) -> int:
    """Read the files, ask, show the answer and its sources; the exit code."""
    question = given(args.question, "-q")
    choices = sampling(args)
    if args.max_tokens:
        choices["max_tokens"] = args.max_tokens
    if not args.files and not args.whole:
        raise Failure(USAGE, "no files: name those to ask about")
    from engine import RequestError
    from engine.rag.answer import prepare
    from index.documents.documents import Documents
    from ui.cli.answer_view import Stop, Writer, by_source, plainly
    from ui.terminal import SOURCES

    embed = embedding(args.embed)
    paint = by_source if args.verbose else plainly
    with Writer(paint, silent=args.json) as writer, closing(Documents(embed=embed)) as documents:
        found = read(documents, [*args.files, *args.whole], writer)
        ids = [one.id for one in found.values()]
        whole = {found[path].id for path in args.whole if path in found}
        with open_engine(args, writer.progress) as engine:
            writer.phase("searching")
            try:
                prepared = prepare(
                    question,
                    documents,
                    ids,
                    engine,
                    engine.context,
                    whole=whole,
                    **choices,
                )
            except RequestError as error:
                raise Failure(USAGE, str(error)) from error
            for note in prepared.notes:
                say(note)
            request = prepared.request
            if request is None:
                return _nothing(args, prepared, found, writer)
            if args.verbose and not args.json:
                writer.legend(SOURCES)
            with Stop() as stop:
                job = engine.submit(request, speculation=not args.no_speculation)
                done = writer.follow(job, stop)
        _show(args, prepared, done, found, writer)
        if done.reason == "length":
            say(f"cut off at {done.usage.completion_tokens} tokens: allow more with --max-tokens")
        return INTERRUPTED if done.reason == "cancelled" else OK


def read(documents: Documents, paths: list[Path], writer: Writer) -> dict[Path, Document]:
    """The files that can be read; each of the others is one line on stderr. Failure for none."""
    from index.documents.documents import DocumentError

    found: dict[Path, Document] = {}
    for number, path in enumerate(dict.fromkeys(paths), 1):
        writer.phase(f"reading file {number} of {len(paths)}: {path.name}")
        try:
            found[path] = documents.add(path, path.resolve().name)
        except DocumentError as error:
            say(str(error))
    if not found:
        raise Failure(USAGE, "no file could be read: name one that holds text")
    return found


def _nothing(
    args: argparse.Namespace, prepared: Prepared, found: dict[Path, Document], writer: Writer
) -> int:
    """The documents say nothing about it, and the model was not asked."""
    from ui.cli.answer_view import documents_as_json

    if args.json:
        result = {
            "question": prepared.question,
            "found": False,
            "answer": prepared.said,
            "citations": [],
            "covered": 0.0,
            "documents": documents_as_json([*found.values()]),
            "notes": list(prepared.notes),
        }
        writer.write(json.dumps(result) + "\n")
    else:
        writer.write(prepared.said + "\n")
    return FAILED


def _show(
    args: argparse.Namespace,
    prepared: Prepared,
    done: Done,
    found: dict[Path, Document],
    writer: Writer,
) -> None:
    """Sources below the answer, or everything as JSON."""
    from engine.rag.answer import answered
    from ui.cli.answer_view import citations_as_json, documents_as_json, figures, sources
    from ui.terminal import print_stats

    texts = {one.id: one.text for one in found.values()}
    answer = answered(prepared, done.text)
    if args.stats:
        print_stats(done, writer.tally)
    if args.json:
        result = {
            "question": prepared.question,
            "found": True,
            "answer": answer.text,
            "reason": done.reason,
            "citations": citations_as_json(answer.text, answer.citations, texts.__getitem__),
            "covered": answer.covered,
            "documents": documents_as_json([*found.values()]),
            "notes": list(prepared.notes),
        }
        writer.write(json.dumps(result | figures(done, writer.tally)) + "\n")
    else:
        below = sources(answer.text, answer.citations, answer.covered, texts.__getitem__)
        writer.write("\n" + below)
