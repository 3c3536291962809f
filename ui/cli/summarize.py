"""`draftline summarize`: an overall statement, and every chapter in a few sentences.

Ctrl-C shows the summary without the overall statement. How a summary is made is decided in
`engine.rag`.
"""

from __future__ import annotations

import argparse
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from index.documents.formats import FORMATS
from ui.cli.options import OUTPUT, add_command, add_options, group, sampling
from ui.common.consent import choose_model
from ui.common.errors import FAILED, INTERRUPTED, OK, USAGE, Failure, say
from ui.common.interrupt import AnswerInterrupt
from ui.common.loading import join_or_open
from ui.common.terminal import write_json

if TYPE_CHECKING:
    from engine.rag.response_cache import ResponseCache
    from engine.rag.summarize import Summary
    from engine.rag.summary_plan import SummaryOptions, SummaryStyle
    from engine.remote.any_engine import AnyEngine
    from index.documents.documents import Document
    from ui.common.answer_view import AnswerView


def add_parser(commands: Any) -> None:
    """Add the `summarize` command."""
    parser = add_command(
        commands,
        "summarize",
        run,
        "summarize a whole document, whatever its length",
        "Summarize FILE: an overall statement, and every chapter in a few of its own sentences.\n\n"
        f"Formats: {FORMATS}.",
    )
    add = parser.add_argument
    add("file", type=Path, metavar="FILE", help="what to summarize")
    add(
        "--length",
        choices=["short", "medium", "long"],
        default="medium",
        help="how much is said about each chapter (default: medium)",
    )
    add("--bullets", action="store_true", help="write a list of points")
    add("--fresh", action="store_true", help="neither use nor keep what the model wrote before")
    group(parser, OUTPUT).add_argument(
        "--json",
        action="store_true",
        help="one JSON object: summary, chapters, citations, speed",
    )
    add_options(parser)


def run(args: argparse.Namespace) -> int:
    """Read the file, summarize it, and show the summary with its sources."""
    sampled = sampling(args)
    from engine import RequestError
    from engine.rag.response_cache import response_cache
    from engine.rag.summary_plan import SummaryOptions
    from index.documents.documents import DocumentError, Documents
    from ui.common.answer_view import AnswerView

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
                summary = _follow(args, engine, document, choices, known, interrupt, view)
            except RequestError as error:
                raise Failure(USAGE, str(error)) from error
            except RuntimeError as error:
                raise Failure(FAILED, f"{args.file}: the model failed: {error}") from error
        _show(args, document, summary, view)
        if not summary.whole:
            say("stopped before the overall statement: run it again to have it")
        return OK if summary.whole else INTERRUPTED


def _follow(
    args: argparse.Namespace,
    engine: AnyEngine,
    document: Document,
    choices: SummaryOptions,
    known: ResponseCache | None,
    interrupt: AnswerInterrupt,
    view: AnswerView,
) -> Summary:
    """Make the summary, and show what the model does for the overall statement."""
    from engine.rag.summarize import Summary, summarize
    from engine.records import Step

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
            return event
        if isinstance(event, Step):
            view.tally.add(event)
            view.phase("reading the outline" if event.prefill else "writing")
    raise RuntimeError("the stream ended without a summary")


def _show(
    args: argparse.Namespace,
    document: Document,
    summary: Summary,
    view: AnswerView,
) -> None:
    """Show the summary with its sources, or everything as JSON."""
    from ui.common.sources import citations_as_json, sources

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
                "chapters": [
                    {
                        "title": section.title,
                        "start": section.start,
                        "stop": section.stop,
                        "text": section.text,
                    }
                    for section in summary.sections
                ],
                "citations": citations_as_json(summary.text, summary.citations, texts.__getitem__),
                "covered": summary.covered,
                "tokens": tally.tokens,
                "seconds": tally.seconds,
                "tokens_per_second": speed,
                "characters_by_source": dict(tally.sources),
            }
        )
    elif summary.text:
        view.write(summary.text + "\n")
        view.write(
            "\n" + sources(summary.text, summary.citations, summary.covered, texts.__getitem__)
        )
