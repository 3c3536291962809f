"""`draftline summarize`: a whole document in a few sentences, part by part.

Ctrl-C shows the parts that are finished, and the next run resumes there. How a summary is made is
decided in `engine.rag`.
"""

from __future__ import annotations

import argparse
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ui.cli.consent import choose_model
from ui.cli.interrupt import AnswerInterrupt
from ui.cli.loading import join_or_open
from ui.cli.options import add_command, add_options, sampling
from ui.errors import FAILED, INTERRUPTED, OK, USAGE, Failure, say
from ui.terminal import write_json

if TYPE_CHECKING:
    from engine.rag.response_cache import ResponseCache
    from engine.rag.summarize import Summary
    from engine.rag.summary_plan import SummaryOptions, SummaryStyle
    from engine.records import Piece
    from index.documents.documents import Document
    from ui.cli.answer_view import AnswerView
    from ui.cli.loading import AnyEngine


def add_parser(commands: Any) -> None:
    """Add the `summarize` command."""
    parser = add_command(
        commands,
        "summarize",
        run,
        "summarize a whole document, whatever its length",
        "Summarize FILE (pdf, docx, html, md, rst, txt, code) part by part.\n"
        "Finished parts are kept in Draftline's cache: a second run resumes where the first one\n"
        "was stopped.",
    )
    add = parser.add_argument
    add("file", type=Path, metavar="FILE", help="what to summarize")
    add(
        "--length",
        choices=["short", "medium", "long"],
        default="medium",
        help="a few sentences, a paragraph (default), or a paragraph for each part",
    )
    add("--bullets", action="store_true", help="write a list of points")
    add("--fresh", action="store_true", help="neither use nor keep finished parts")
    add("--json", action="store_true", help="one JSON object: summary, parts, citations, figures")
    add_options(parser)


def run(args: argparse.Namespace) -> int:
    """Read the file, summarize it, and show the summary with its sources."""
    sampled = sampling(args)
    from engine import RequestError
    from engine.rag.response_cache import response_cache
    from engine.rag.summary_plan import SummaryOptions
    from index.documents.documents import DocumentError, Documents
    from ui.cli.answer_view import AnswerView

    style: SummaryStyle = "bullets" if args.bullets else "prose"
    choices = SummaryOptions(length=args.length, style=style, sampling=sampled)
    with AnswerView(silent=True) as view, closing(Documents()) as documents:
        view.phase(f"reading {args.file.name}")
        try:
            document = documents.add(args.file, args.file.resolve().name)
        except DocumentError as error:
            raise Failure(USAGE, str(error)) from error
        view.end_line()
        choose_model(args)
        view.phase("loading")
        with join_or_open(args, view.progress) as engine, AnswerInterrupt() as interrupt:
            known = None if args.fresh else response_cache(engine)
            try:
                summary, pieces = _follow(args, engine, document, choices, known, interrupt, view)
            except RequestError as error:
                raise Failure(USAGE, str(error)) from error
            except RuntimeError as error:
                raise Failure(FAILED, f"{args.file}: the model failed: {error}") from error
        _show(args, document, summary, pieces, view)
        if not summary.whole:
            how = "--fresh keeps no parts" if args.fresh else "run it again to go on"
            say(f"stopped after {summary.done} of {summary.total} parts: {how}")
        return OK if summary.whole else INTERRUPTED


def _follow(
    args: argparse.Namespace,
    engine: AnyEngine,
    document: Document,
    choices: SummaryOptions,
    known: ResponseCache | None,
    interrupt: AnswerInterrupt,
    view: AnswerView,
) -> tuple[Summary, list[Piece]]:
    """The summary and its pieces; shows which part is read or written, and the time left."""
    from engine.rag.summarize import Summary, SummaryDelta, SummaryTask, TaskResult, summarize
    from engine.records import Step
    from ui.eta import Eta

    eta = Eta()
    pieces: list[Piece] = []
    for event in summarize(
        engine,
        document,
        choices,
        known,
        lambda: interrupt.received,
        speculation=not args.no_speculation,
    ):
        if isinstance(event, Summary):
            view.end_line()
            return event, pieces
        if isinstance(event, SummaryTask):
            eta.begin(event)
        elif isinstance(event, Step):
            eta.step(event)
            view.tally.add(event)
        elif isinstance(event, TaskResult):
            eta.end()
        elif isinstance(event, SummaryDelta):
            pieces += event.pieces
        view.phase(str(eta))
    raise RuntimeError("the stream ended without a summary")


def _show(
    args: argparse.Namespace,
    document: Document,
    summary: Summary,
    pieces: list[Piece],
    view: AnswerView,
) -> None:
    """Show the summary with its sources, or everything as JSON."""
    from ui.cli.answer_view import SOURCE_COLOURS, citations_as_json, sources

    texts = {document.id: document.text}
    tally = view.tally
    speed = tally.tokens_per_second
    if args.stats:
        say(f"{tally.tokens} tokens written in {tally.seconds:.1f} s, {speed:.1f} tokens/s")
    if args.json:
        write_json(
            {
                "name": document.name,
                "summary": summary.text,
                "whole": summary.whole,
                "parts_done": summary.done,
                "parts": summary.total,
                "sections": [one._asdict() for one in summary.sections],
                "citations": citations_as_json(summary.text, summary.citations, texts.__getitem__),
                "covered": summary.covered,
                "tokens": tally.tokens,
                "seconds": tally.seconds,
                "tokens_per_second": speed,
                "characters_by_source": dict(tally.sources),
            }
        )
    elif summary.text:
        if args.verbose and "".join(piece.text for piece in pieces) == summary.text:
            view.legend()
            for piece in pieces:
                view.write(piece.text, SOURCE_COLOURS.get(piece.source, ""))
            view.write("\n")
        else:
            view.write(summary.text + "\n")
        view.write(
            "\n" + sources(summary.text, summary.citations, summary.covered, texts.__getitem__)
        )
