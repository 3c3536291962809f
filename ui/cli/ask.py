"""`draftline ask`: a question about files, answered from their text, with sources.

What is shown to the model and what is cited is decided in `engine.rag`; the files are not kept.
"""

from __future__ import annotations

import argparse
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from index.documents.formats import FORMATS
from ui.cli.options import (
    OUTPUT,
    add_command,
    add_embed,
    add_max_tokens,
    add_options,
    embedding,
    group,
    sampling,
    text_argument,
)
from ui.common.consent import choose_model
from ui.common.errors import FAILED, INTERRUPTED, OK, USAGE, Failure, say
from ui.common.interrupt import AnswerInterrupt
from ui.common.loading import join_or_open
from ui.common.terminal import write_json

if TYPE_CHECKING:
    from engine import Done
    from engine.rag.answer import CitedAnswer, PreparedQuestion
    from index.documents.documents import Document, Documents
    from ui.common.answer_view import AnswerView


def add_parser(commands: Any) -> None:
    """Add the `ask` command."""
    parser = add_command(
        commands,
        "ask",
        run,
        "ask about documents; the answer names its sources",
        "Answer a question about FILES by their text.\n"
        "Below the answer are the passages that it copied, and their sources.\n\n"
        f"Formats: {FORMATS}.",
    )
    add = parser.add_argument
    add("files", nargs="*", type=Path, metavar="FILE", help="searched for relevant passages")
    add("-q", "--question", required=True, help="the question; - reads it from stdin")
    add(
        "--whole",
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        help="a file to read whole, if it fits; can be repeated",
    )
    group(parser, OUTPUT).add_argument(
        "--json", action="store_true", help="one JSON object: answer, citations, figures"
    )
    add_embed(parser)
    add_max_tokens(parser)
    add_options(parser)


def run(args: argparse.Namespace) -> int:
    """Read the files, ask, and show the answer with its sources."""
    question = text_argument(args.question, "-q")
    choices = sampling(args)
    if args.max_tokens:
        choices["max_tokens"] = args.max_tokens
    if not args.files and not args.whole:
        raise Failure(USAGE, "no files: name those to ask about")
    from engine import RequestError
    from engine.rag.answer import cite_answer, prepare, second_question, with_verdict
    from index.documents.documents import Documents
    from ui.common.answer_view import AnswerView, colour_of_source, no_colour

    embed = embedding(args.embed)
    colour_of = colour_of_source if args.verbose else no_colour
    with (
        AnswerView(colour_of, silent=args.json) as view,
        closing(Documents(embed=embed)) as documents,
    ):
        found = read(documents, [*args.files, *args.whole], view)
        ids = [document.id for document in found.values()]
        whole = {found[path].id for path in args.whole if path in found}
        view.end_line()
        choose_model(args)
        view.phase("loading")
        with join_or_open(args, view.progress) as engine:
            view.phase("searching")
            try:
                prepared = prepare(
                    question, documents, ids, engine, engine.context, whole=whole, **choices
                )
            except RequestError as error:
                raise Failure(USAGE, str(error)) from error
            for note in prepared.notes:
                say(note)
            if prepared.request is None:  # the documents say nothing about the question
                _show(args, prepared, None, None, found, view)
                return FAILED
            if args.verbose and not args.json:
                view.legend()
            with AnswerInterrupt() as interrupt:
                job = engine.submit(prepared.request, speculation=not args.no_speculation)
                done = view.follow(job, interrupt)
            answer = cite_answer(prepared, done.text)
            if done.reason == "stop" and (
                second := second_question(prepared, answer, engine.folder)
            ):
                answer = with_verdict(answer, engine.submit(second).result().text)
        if done.reason != "failed" or done.text:
            _show(args, prepared, done, answer, found, view)
        if done.reason == "failed":
            raise Failure(FAILED, f"the model failed, ask again: {done.error}")
        if done.reason == "length":
            say(f"cut off at {done.usage.completion_tokens} tokens: allow more with --max-tokens")
        return INTERRUPTED if done.reason == "cancelled" else OK


def read(documents: Documents, paths: list[Path], view: AnswerView) -> dict[Path, Document]:
    """Read the files; one that cannot be read is a line on stderr. Raises Failure if none can."""
    from index.documents.documents import DocumentError

    found: dict[Path, Document] = {}
    for number, path in enumerate(dict.fromkeys(paths), 1):
        view.phase(f"reading file {number} of {len(paths)}: {path.name}")
        try:
            found[path] = documents.add(path, path.resolve().name)
        except DocumentError as error:
            say(str(error))
    if not found:
        raise Failure(USAGE, "no file could be read: name one that contains text")
    return found


def _show(
    args: argparse.Namespace,
    prepared: PreparedQuestion,
    done: Done | None,
    answer: CitedAnswer | None,
    found: dict[Path, Document],
    view: AnswerView,
) -> None:
    """Show the sources below the answer, or everything as JSON.

    `done` and `answer` are None if the model was not asked.
    """
    from ui.common.answer_view import figures, print_stats
    from ui.common.sources import citations_as_json, documents_as_json, evidence_as_json, support

    texts = {document.id: document.text for document in found.values()}
    if done and args.stats:
        print_stats(done, view.tally)
    if args.json:
        text, citations = (answer.text, answer.citations) if answer else (prepared.not_found, ())
        result: dict[str, Any] = {
            "question": prepared.question,
            "found": answer is not None,
            "answer": text,
            "citations": citations_as_json(text, citations, texts.__getitem__),
            "covered": answer.covered if answer else 0.0,
            "supported": answer.supported if answer else False,
            "doubts": list(answer.doubts if answer else ()),
            "evidence": evidence_as_json(answer.evidence if answer else (), texts.__getitem__),
            "documents": documents_as_json([*found.values()]),
            "notes": list(prepared.notes),
        }
        if done:
            result |= {"reason": done.reason} | figures(done, view.tally)
        write_json(result)
    elif answer:
        view.write("\n" + support(answer, texts.__getitem__))
    else:
        view.write(prepared.not_found + "\n")
