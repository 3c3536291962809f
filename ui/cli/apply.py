"""`draftline apply`: merge an update into a file.

An update has the changed lines, and `... existing code ...` for the others. How they are merged
lives in `engine.editing.apply_snippet`.
"""

from __future__ import annotations

import argparse
import os
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ui.cli.edit import EXIT_CODES, Changed, add_output, finish, model
from ui.cli.options import (
    add_command,
    add_max_tokens,
    add_options,
    add_workspace,
    check_workspace,
    text_argument,
)
from ui.common.consent import choose_model
from ui.common.errors import FAILED, USAGE, Failure, say

if TYPE_CHECKING:
    from engine.editing.apply_snippet import Merge
    from engine.records import Done, Request
    from ui.common.answer_view import Tally


def add_parser(commands: Any) -> None:
    """Add the `apply` command."""
    parser = add_command(
        commands,
        "apply",
        run,
        "merge changed lines, as an agent or a chat wrote them, into a file",
        "Merge an update into FILE: the changed lines, a line of FILE before and after each, and "
        "`... existing code ...` in a comment for the lines that stay as they are. Without "
        "--apply nothing is written. Where every change has one place, no model is needed. What "
        "loses a definition or a comment, or breaks the syntax, is refused unless INSTRUCTION "
        "names it.",
        EXIT_CODES,
    )
    add = parser.add_argument
    add("file", type=Path, metavar="FILE", help="a UTF-8 text file")
    add(
        "--update",
        required=True,
        metavar="SNIPPET",
        help="the update's file; - reads it from stdin",
    )
    add("-i", "--instruction", default="", help="what the update is for; helps the model")
    add_output(parser)
    add_workspace(parser)
    add_max_tokens(parser)
    add_options(parser, verbose="show the text as it is written, coloured by its source")


def run(args: argparse.Namespace) -> int:
    """Read both files, merge them or let the model do it, and show or write the result.

    What others write meanwhile stays: the update is merged into that, if it needs no model.
    """
    from engine.editing.apply_answer import MAX_MERGES

    request, merge = _request(args)
    if merge.text is None:
        return _by_model(args, request, merge)
    say(f"{args.file}: merged without a model: check the changes")
    text, left = merge.text, MAX_MERGES
    while True:
        try:
            return _without_model(args, request, text)
        except Changed:
            left -= 1
            request, again = _again(args, request)
            if not left or again.text is None:
                raise
            text = again.text


def _without_model(args: argparse.Namespace, request: Request, text: str) -> int:
    from engine.editing.apply_answer import merged
    from ui.common.answer_view import Tally

    return _finish(args, request, merged(text), Tally(), {"method": "merge", "doubt": None})


def _by_model(args: argparse.Namespace, request: Request, merge: Merge) -> int:
    from ui.common.answer_view import AnswerView, colour_of_source

    say(f"{args.file}: the model merges: {merge.doubt}: check the changes")
    choose_model(args)
    with ExitStack() as engine:  # closed last: it stores what it has read
        with AnswerView(colour_of_source, silent=not args.verbose, on_stderr=True) as view:
            done = engine.enter_context(model(args, view))(request)
        method = {"method": "model", "doubt": merge.doubt or None}
        return _finish(args, request, done, view.tally, method)


def _finish(
    args: argparse.Namespace, request: Request, done: Done, tally: Tally, method: dict[str, Any]
) -> int:
    """Check a merge, and show or write it. Changed if the file has another text by now."""
    from engine.editing.apply_answer import apply_outcome
    from engine.editing.edits import EditRefused
    from engine.editing.outcome import Outcome

    outcome, refusal = Outcome(request.text), ""
    try:
        outcome = apply_outcome(request, done)
    except EditRefused as error:
        refusal = str(error)
    return finish(args, request, done, outcome, refusal, tally, method)


def _request(args: argparse.Namespace) -> tuple[Request, Merge]:
    """Make the request, and merge the update without a model, if possible. Raises Failure."""
    from engine import Request, RequestError
    from engine.editing.apply_snippet import merge
    from engine.editing.edits import EditRefused
    from engine.editing.text_file import FileError, read_text

    try:
        text = read_text(args.file)
        if args.update == "-":
            update = text_argument("-", "--update", "write the changed lines")
        else:
            update = read_text(Path(args.update))
        check_workspace(args.workspace)
        request = Request(
            "edit",
            text,
            path=os.fsencode(args.file).decode("utf-8", "replace"),
            instruction=args.instruction,
            update=update,
            max_tokens=args.max_tokens,
            temperature=args.temperature,
            top_k=args.top_k,
            top_p=args.top_p,
            seed=args.seed,
        )
        return request, merge(text, update, request.path)
    except (FileError, RequestError) as error:
        raise Failure(USAGE, str(error)) from error
    except EditRefused as error:
        raise Failure(USAGE, f"{args.file}: {error}") from error


def _again(args: argparse.Namespace, request: Request) -> tuple[Request, Merge]:
    """Make the request and the merge for the file as it is by now. Raises Failure."""
    from engine.editing.apply_snippet import merge
    from engine.editing.edits import EditRefused
    from engine.editing.text_file import FileError, read_text
    from engine.records import RequestError

    try:
        request = replace(request, text=read_text(args.file))
        return request, merge(request.text, request.update, request.path)
    except (FileError, RequestError) as error:
        raise Failure(FAILED, str(error)) from error
    except EditRefused as error:
        raise Failure(FAILED, f"{args.file}: {error}") from error
