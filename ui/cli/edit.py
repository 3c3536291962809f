"""`draftline edit`: edit a file, or lines of it, by an instruction.

What an edit is lives in `engine.editing`.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ui.cli.options import (
    OUTPUT,
    add_check,
    add_command,
    add_max_tokens,
    add_options,
    add_workspace,
    check_workspace,
    group,
    text_argument,
    trial,
)
from ui.common.consent import choose_model
from ui.common.errors import FAILED, OK, USAGE, Failure, say
from ui.common.loading import join_or_open
from ui.common.terminal import write, write_json

if TYPE_CHECKING:
    from engine.editing.outcome import Outcome
    from engine.records import Done, Request
    from ui.common.answer_view import AnswerView, Tally

EXIT_CODES = """exit codes:
  0    done, even if nothing had to change
  1    failed or refused; the file is unchanged
  2    usage or bad input; the file is unchanged
  3    the model is not available
  130  interrupted; the file is unchanged
"""


class Changed(Failure):
    """A failure to write a file that is no longer the one that was read."""


def add_parser(commands: Any) -> None:
    """Add the `edit` command."""
    from engine.editing.edits import WHOLE_FILE_LINES

    parser = add_command(
        commands,
        "edit",
        run,
        "edit a file, or lines of it, by an instruction",
        "Edit FILE by an instruction. Without --apply nothing is written.",
        EXIT_CODES,
    )
    add = parser.add_argument
    add("file", type=Path, metavar="FILE", help="a UTF-8 text file")
    add("-i", "--instruction", required=True, help="what to change; - reads it from stdin")
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--lines", metavar="10:40", help="edit only these lines (from 1, inclusive)")
    where.add_argument(
        "--whole-file",
        action="store_true",
        help=f"allow a small model to edit more than {WHOLE_FILE_LINES} lines at once",
    )
    add_output(parser)
    add_workspace(parser)
    add_check(parser)
    add_max_tokens(parser)
    add_options(parser, verbose="show the text as it is written, coloured by its source")


def add_output(parser: argparse.ArgumentParser) -> None:
    """Add the options of a command that edits a file."""
    output = group(parser, OUTPUT).add_mutually_exclusive_group()
    for name, text in {
        "diff": "print a unified diff, to read or for `git apply` (default)",
        "apply": "write the file, atomically",
        "json": "print one JSON object: text, diff, edits, figures",
    }.items():
        output.add_argument(
            f"--{name}", dest="output", action="store_const", const=name, default="diff", help=text
        )
    group(parser, OUTPUT).add_argument(
        "--force", action="store_true", help="with --apply: write what fails a check all the same"
    )


def run(args: argparse.Namespace) -> int:
    """Read the file, edit it by a rule or ask the model, and show or write the result.

    The model's answer is aligned with the file.
    """
    request = _request(args)
    from ui.common.answer_view import AnswerView, colour_of_source

    with ExitStack() as engine:  # closed last: it stores what it has read
        with AnswerView(colour_of_source, silent=not args.verbose, on_stderr=True) as view:
            done, outcome, refusal = _answer(args, request, view, engine)
        return finish(args, request, done, outcome, refusal, view.tally)


def finish(
    args: argparse.Namespace,
    request: Request,
    done: Done,
    outcome: Outcome,
    refusal: str,
    tally: Tally,
    more: dict[str, Any] | None = None,
) -> int:
    """Show or write the file's new text, as the options say, or raise Failure with the refusal.

    What fails a check is not written without --force, and a merged update that does is no success.
    Changed if the file is not what the request read. `more`: further fields of --json.
    """
    from engine.editing.diff import summary
    from engine.editing.outcome import why_unchanged
    from engine.editing.text_file import FileChanged, FileError, replace_text
    from ui.common import edit_view
    from ui.common.answer_view import print_stats

    new = outcome.text
    stopped = bool(outcome.failed) and new != request.text and not args.force
    if args.stats and not outcome.rule:
        print_stats(done, tally)
    if args.output == "json":
        if stopped and request.update:
            refusal = refusal or _why_stopped(request, outcome)
        record = edit_view.edit_as_json(args.file, request.text, outcome, done, refusal, tally)
        write_json(record | (more or {}))
    if refusal:
        raise Failure(FAILED, f"{args.file}: {refusal}")
    if outcome.rule:
        say("; ".join([f"{args.file}: made by rule: {outcome.rule}", *outcome.notes]))
    if stopped and (args.output == "apply" or request.update):
        _print_diff(request.text, new, args.file)
        raise Failure(FAILED, f"{args.file}: {_why_stopped(request, outcome)}")
    is_said = request.update or outcome.rule  # how it was made
    if new != request.text and (outcome.failed or outcome.checked or not is_said):
        say(f"{args.file}: {outcome.seen}")
    if new == request.text:
        if request.update:
            say(f"{args.file}: nothing changed: the file has the update already")
        elif not outcome.rule:
            say(f"{args.file}: nothing changed: {why_unchanged(request)}")
    elif args.output == "apply":
        args.interrupt.commit()
        try:
            replace_text(args.file, new, request.text)
        except FileChanged as error:
            raise Changed(FAILED, str(error)) from error
        except FileError as error:
            raise Failure(FAILED, str(error)) from error
        write(f"{args.file}: {summary(request.text, new)}\n")
    elif args.output == "diff":
        _print_diff(request.text, new, args.file)
    return OK


def _why_stopped(request: Request, outcome: Outcome) -> str:
    """Say why a text that fails checks is not written, with the remedy."""
    remedy = "say more precisely what to change"
    if request.update:
        remedy = "correct the update, or say with -i that it is intended"
    return f"not written: {outcome.warning}: {remedy}, or write it all the same with --force"


def _print_diff(old: str, new: str, file: Path) -> None:
    from engine.editing.diff import diff
    from ui.common import edit_view

    difference = diff(old, new, file)
    if sys.stdout and sys.stdout.isatty():
        edit_view.print_diff(difference)
    else:
        write(difference)


def _request(args: argparse.Namespace) -> Request:
    """Make the request, checked as far as possible without a model. Raises Failure."""
    from engine import Request, RequestError
    from engine.editing.text_file import FileError, read_text

    try:
        text = read_text(args.file)
        selection = _selection(args.lines, text, args.file)
        check_workspace(args.workspace)
        return Request(
            "edit",
            text,
            path=os.fsencode(args.file).decode("utf-8", "replace"),
            selection=selection,
            instruction=text_argument(args.instruction, "-i", "say what to change"),
            max_tokens=args.max_tokens,
            temperature=args.temperature,
            top_k=args.top_k,
            top_p=args.top_p,
            seed=args.seed,
        )
    except (FileError, RequestError) as error:
        raise Failure(USAGE, str(error)) from error


def _check_length(args: argparse.Namespace, request: Request, model: str = "") -> None:
    """Raise Failure if the model should not edit so much at once.

    An engine elsewhere tells its `model` once it is reached.
    """
    from engine import DEFAULT_MODEL
    from engine.editing.edits import too_long

    if args.engine and not model:
        return
    why = too_long(request, model or args.model or DEFAULT_MODEL)
    if why and not args.whole_file:
        message = f"{args.file}: {why}: select lines with --lines, or allow it by --whole-file"
        raise Failure(USAGE, message)


def _selection(lines: str | None, text: str, file: Path) -> tuple[int, int] | None:
    """Find the code points of the lines that `10:40`, `10:`, `:40` or `12` names."""
    if lines is None:
        return None
    from engine.editing.edits import line_count, line_span

    found = re.fullmatch(r"([0-9]{1,9})?(:([0-9]{1,9})?)?", lines)
    if not found or not (found[1] or found[3]):
        raise Failure(USAGE, f"--lines {lines}: not lines: write 10:40, 10:, :40 or 12")
    count = line_count(text)
    first = int(found[1]) if found[1] else 1
    last = int(found[3]) if found[3] else count if found[2] else first
    if first < 1 or last > count or first > count:
        raise Failure(USAGE, f"--lines {lines}: outside {file}: it has {count} lines, from 1")
    if first > last:
        raise Failure(USAGE, f"--lines {lines}: ends before it begins: write {last}:{first}")
    return line_span(text, first, last)


def _answer(
    args: argparse.Namespace, request: Request, view: AnswerView, engine: ExitStack
) -> tuple[Done, Outcome, str]:
    """Get the model's last answer, the outcome, and why the edit is refused, if it is.

    The model is not asked if a rule makes the edit; `engine` closes it. Raises Failure if there is
    no model or the request does not fit it.
    """
    from engine.editing.dialogue import Ask, advance, dialogue
    from engine.editing.edits import EditRefused
    from engine.editing.outcome import Outcome
    from engine.records import Done

    done = Done("stop")
    try:
        steps = dialogue(request, trial=trial(args, args.file, args.workspace))
        step = advance(steps)
        if isinstance(step, Outcome):
            return done, step, ""
        _check_length(args, request)  # before anything is fetched
        choose_model(args)
        _check_length(args, request)
        ask = engine.enter_context(
            model(args, view, lambda name: _check_length(args, request, name))
        )
        while isinstance(step, Ask):
            if step.first:
                say(f"{args.file}: asking again: {step.first.warning}")
            done = ask(step.request)
            step = advance(steps, done)
        return done, step, ""
    except EditRefused as error:
        return done, Outcome(request.text), str(error)


@contextmanager
def model(
    args: argparse.Namespace, view: AnswerView, check: Callable[[str], None] = lambda name: None
) -> Iterator[Callable[[Request], Done]]:
    """Open the engine, and make a function that asks the model and waits for its answer.

    Raises Failure if there is no model or a request does not fit it. `check` is called with the
    name of a model elsewhere.
    """
    from engine import RequestError

    view.phase("loading")
    with join_or_open(args, view.progress) as engine:
        if args.engine:
            check(engine.info.model)
        if args.verbose and sys.stderr and sys.stderr.isatty():
            view.legend()
        try:
            yield lambda one: view.follow(engine.submit(one, not args.no_speculation))
        except RequestError as error:
            raise Failure(USAGE, f"{args.file}: {error}") from error
