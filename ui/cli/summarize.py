"""`draftline summarize`: a whole document in a few sentences, part by part.

Ctrl-C keeps what is done: the parts that were finished are shown, and the next run goes on there.
How a summary is made is decided in `engine`.
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
    add_options,
    guarded,
    open_engine,
    sampling,
)

if TYPE_CHECKING:
    from engine import Engine
    from engine.rag.response_cache import Finished
    from engine.rag.summarize import Choices, Style, Summary
    from engine.records import Piece
    from index.documents.documents import Document
    from ui.cli.answer_view import Stop, Writer


def add_parser(commands: Any) -> None:
    """Add the `summarize` command. Its `run` default is this file's `run`."""
    parser = add_command(
        commands,
        "summarize",
        "summarize a whole document, whatever its length",
        "Summarize FILE (pdf, docx, html, md, rst, txt, code) part by part.\n"
        "Finished parts are kept in draftline's cache folder: a second run goes on where the\n"
        "first one was stopped.",
    )
    add = parser.add_argument
    add("file", type=Path, metavar="FILE", help="what to summarize")
    add(
        "--length",
        choices=["short", "medium", "long"],
        default="medium",
        help="some sentences, a paragraph (default), or one for each part",
    )
    add("--bullets", action="store_true", help="as a list of points")
    add("--fresh", action="store_true", help="keep nothing, and use nothing kept")
    add("--json", action="store_true", help="one JSON object: summary, parts, citations, figures")
    add_options(parser)
    parser.set_defaults(run=lambda args: guarded(run, args))


def run(args: argparse.Namespace) -> int:
    """Read the file, summarize it, show the summary and its sources; the exit code."""
    sampled = sampling(args)
    from engine import RequestError
    from engine.rag.response_cache import kept
    from engine.rag.summarize import Choices
    from index.documents.documents import DocumentError, Documents
    from ui.cli.answer_view import Stop, Writer

    style: Style = "bullets" if args.bullets else "prose"
    choices = Choices(length=args.length, style=style, sampling=sampled)
    with Writer(silent=True) as writer, closing(Documents()) as documents:
        writer.phase(f"reading {args.file.name}")
        try:
            document = documents.add(args.file, args.file.resolve().name)
        except DocumentError as error:
            raise Failure(USAGE, str(error)) from error
        with open_engine(args, writer.progress) as engine, Stop() as stop:
            known = None if args.fresh else kept(engine)
            try:
                summary, pieces = _followed(args, engine, document, choices, known, stop, writer)
            except RequestError as error:
                raise Failure(USAGE, str(error)) from error
            except RuntimeError as error:
                raise Failure(FAILED, f"{args.file}: the model failed: {error}") from error
        _show(args, document, summary, pieces, writer)
        if not summary.whole:
            how = "its parts are not kept" if args.fresh else "run it again to go on"
            say(f"stopped after {summary.done} of {summary.of} parts: {how}")
        return OK if summary.whole else INTERRUPTED


def _followed(
    args: argparse.Namespace,
    engine: Engine,
    document: Document,
    choices: Choices,
    known: Finished | None,
    stop: Stop,
    writer: Writer,
) -> tuple[Summary, list[Piece]]:
    """The summary, and its text by source; on a terminal one sees which part is read or written,
    and how long the rest takes."""
    from engine.rag.summarize import Grown, Said, Summary, Task, summarize
    from engine.records import Step
    from ui.eta import Pace

    pace = Pace()
    pieces: list[Piece] = []
    for event in summarize(
        engine, document, choices, known, stop, speculation=not args.no_speculation
    ):
        if isinstance(event, Summary):
            writer.rest()
            return event, pieces
        if isinstance(event, Task):
            pace.begin(event)
        elif isinstance(event, Step):
            pace.step(event)
            writer.tally.add(event)
        elif isinstance(event, Said):
            pace.end()
        elif isinstance(event, Grown):
            pieces += event.pieces
        writer.phase(str(pace))
    raise RuntimeError("the stream ended without a summary")


def _show(
    args: argparse.Namespace,
    document: Document,
    summary: Summary,
    pieces: list[Piece],
    writer: Writer,
) -> None:
    """The summary with its sources, or everything as JSON."""
    from ui.cli.answer_view import citations_as_json, sources
    from ui.terminal import SOURCES, rate

    texts = {document.id: document.text}
    tally = writer.tally
    speed = rate(tally.tokens, tally.seconds)
    if args.stats:
        say(f"{tally.tokens} tokens written in {tally.seconds:.1f} s, {speed:.1f} tokens/s")
    if args.json:
        result = {
            "name": document.name,
            "summary": summary.text,
            "whole": summary.whole,
            "parts_done": summary.done,
            "parts": summary.of,
            "sections": [one._asdict() for one in summary.parts],
            "citations": citations_as_json(summary.text, summary.citations, texts.__getitem__),
            "covered": summary.covered,
            "tokens": tally.tokens,
            "seconds": tally.seconds,
            "tokens_per_second": speed,
            "characters_by_source": dict(tally.sources),
        }
        writer.write(json.dumps(result) + "\n")
    elif summary.text:
        if args.verbose and "".join(piece.text for piece in pieces) == summary.text:
            writer.legend(SOURCES)
            for piece in pieces:
                writer.write(piece.text, SOURCES.get(piece.source, ""))
            writer.write("\n")
        else:
            writer.write(summary.text + "\n")
        below = sources(summary.text, summary.citations, summary.covered, texts.__getitem__)
        writer.write("\n" + below)
