"""The `draftline` command. Results go to stdout, everything else to stderr.

Every failure is one line, `draftline: what: remedy`, and one of the exit codes below. Imports are
lazy: torch is loaded only when a model runs. What an edit is lives in `engine`, not here.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from ui.cli.index import Failure
from ui.cli.interrupt import INTERRUPTED, Interrupt
from ui.cli.options import add_max_tokens, add_options, open_engine

if TYPE_CHECKING:
    from engine.records import Done, Request
    from ui.terminal import View

OK, FAILED, USAGE, NO_MODEL = 0, 1, 2, 3
EXIT_CODES = """exit codes:
  0    done, also when nothing had to change
  1    failed or refused; the file is untouched
  2    usage or bad input; the file is untouched
  3    the model of an edit could not be had
  130  interrupted; the file is untouched
"""


def main(argv: list[str] | None = None) -> int:
    """Run the command and return its exit code. Never raises."""
    interrupt = Interrupt()
    try:
        interrupt.listen()
        return _main(argv, interrupt)
    finally:
        interrupt.too_late = True
        if interrupt.said:
            os._exit(INTERRUPTED)  # threads and torch are not waited for


def _main(argv: list[str] | None, interrupt: Interrupt) -> int:
    try:
        try:
            args = _parser().parse_args(argv)
            args.interrupt, args.given = interrupt, sys.argv[1:] if argv is None else argv
            code: int = args.run(args)
        except SystemExit as end:  # argparse, after --help and --version
            code = end.code if isinstance(end.code, int) else FAILED
        if sys.stdout:
            sys.stdout.flush()
        return code
    except Failure as failure:
        _complain(str(failure))
        return failure.code
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what stdout still holds has nowhere to go
        if isinstance(error, BrokenPipeError):  # the reader has seen enough, as `| head` does
            return OK
        _complain(f"{error}: check the disk and where the output goes")
        return FAILED
    except Exception as error:
        if os.environ.get("DRAFTLINE_TRACEBACK"):
            raise
        what = f"{type(error).__name__}: {error}"
        _complain(f"{what}: a fault of draftline; DRAFTLINE_TRACEBACK=1 shows where")
        return FAILED


def _complain(message: str) -> None:
    """One line on stderr, whatever the message holds."""
    if sys.stderr:
        text = " ".join(message.split())
        print("draftline:", re.sub(r"[\x00-\x1f\x7f-\x9f]", "?", text), file=sys.stderr, flush=True)


# -- edit --------------------------------------------------------------------------------------


def _edit(args: argparse.Namespace) -> int:
    """`draftline edit`: read, ask the model, align, show or write."""
    request = _request(args)
    from engine.editing.edits import EditRefused, apply
    from engine.editing.text_file import FileError, write_atomically
    from ui import terminal

    with terminal.View(args.verbose) as view:
        done = _answer(args, request, view)
    new, refusal = request.text, ""
    try:
        new = apply(request, done)
    except EditRefused as error:
        refusal = str(error)
    if args.stats:
        terminal.print_stats(done, view.tally)
    if args.output == "json":
        _print(terminal.as_json(args.file, request.text, new, done, refusal, view.tally))
    if refusal:
        raise Failure(FAILED, f"{args.file}: {refusal}")
    if new == request.text:
        _complain(f"{args.file}: nothing changed: the model repeated the text as it is")
    elif args.output == "apply":
        args.interrupt.commit()
        try:
            write_atomically(args.file, new, request.text)
        except FileError as error:
            raise Failure(FAILED, str(error)) from error
        _print(f"{args.file}: {terminal.summary(request.text, new)}\n")
    elif args.output == "diff":
        difference = terminal.diff(request.text, new, args.file)
        if sys.stdout and sys.stdout.isatty():
            terminal.print_diff(difference)
        else:
            _print(difference)
    return OK


def _request(args: argparse.Namespace) -> Request:
    """What is asked, checked as far as it can be without a model. Raises Failure."""
    from engine import DEFAULT_MODEL, Request, RequestError
    from engine.editing.edits import line_count, too_long
    from engine.editing.text_file import FileError, read_text

    try:
        text = read_text(args.file)
        selection = _selection(args.lines, text, args.file)
        why = too_long(args.model or DEFAULT_MODEL, line_count(text))
        if why and selection is None and not args.whole_file:
            message = f"{args.file}: {why}: select with --lines, or insist with --whole-file"
            raise Failure(USAGE, message)
        if args.workspace and not args.workspace.is_dir():
            raise Failure(USAGE, f"{args.workspace}: not a folder: name the workspace's folder")
        return Request(
            "edit",
            text,
            path=os.fsencode(args.file).decode("utf-8", "replace"),
            selection=selection,
            instruction=_instruction(args.instruction),
            max_tokens=args.max_tokens,
            temperature=args.temperature,
            top_k=args.top_k,
            top_p=args.top_p,
            seed=args.seed,
        )
    except (FileError, RequestError) as error:
        raise Failure(USAGE, str(error)) from error


def _selection(lines: str | None, text: str, file: Path) -> tuple[int, int] | None:
    """Code points of the lines that `10:40`, `10:`, `:40` or `12` names."""
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


def _instruction(given: str) -> str:
    """The instruction, from stdin where it is `-`."""
    if given == "-":
        if not sys.stdin:
            raise Failure(USAGE, "-i -: stdin is closed: pipe the instruction in")
        try:
            given = sys.stdin.buffer.read().decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise Failure(USAGE, f"-i -: not UTF-8 (byte {error.start}): convert it") from error
    if not given.strip():
        raise Failure(USAGE, "the instruction is empty: say what to change with -i")
    if not given.isprintable() and re.search(r"[\0\ud800-\udfff]", given):
        raise Failure(USAGE, "the instruction is not text (NUL or broken UTF-8): write it again")
    return given


def _answer(args: argparse.Namespace, request: Request, view: View) -> Done:
    """The model's answer. Raises Failure where there is no model or the request does not fit it."""
    from engine import Done, RequestError

    with open_engine(args, view.progress) as engine:
        try:
            job = engine.submit(request, speculation=not args.no_speculation)
        except RequestError as error:
            raise Failure(USAGE, f"{args.file}: {error}") from error
        for event in job:
            if isinstance(event, Done):
                return event
            view.step(event)
    raise RuntimeError("the stream ended without a Done")


def _print(text: str) -> None:
    """Exact text on stdout, whatever the locale."""
    if sys.stdout:
        sys.stdout.buffer.write(text.encode("utf-8", "surrogateescape"))
        sys.stdout.buffer.flush()


# -- the command line --------------------------------------------------------------------------


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are one line."""

    def error(self, message: str) -> NoReturn:
        raise Failure(USAGE, f"{message}: see `{self.prog} --help`")


def _parser() -> Parser:
    """Every subcommand sets `run`, a function of the parsed arguments that gives the exit code."""
    from lsp_server import cli as lsp
    from ui import demo
    from ui.cli import ask, chat, drafters, index, models, serve, summarize, train, two_models

    parser = Parser(
        prog="draftline",
        description="A local code-editing assistant: text that already exists drafts, "
        "the model verifies, the answer never changes.",
        epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action=Version, nargs=0, help="show the version and exit")
    commands: Any = parser.add_subparsers(metavar="COMMAND", required=True)
    _add_edit(commands)
    ask.add_parser(commands)
    summarize.add_parser(commands)
    chat.add_parser(commands)
    serve.add_parser(commands)
    lsp.add_parser(commands)
    index.add_parser(commands)
    models.add_parser(commands)
    drafters.add_parser(commands)
    train.add_parser(commands)
    two_models.add_parser(commands)
    demo.add_parser(commands)
    return parser


def _add_edit(commands: Any) -> None:
    from engine.editing.edits import WHOLE_FILE_LINES

    parser = commands.add_parser(
        "edit",
        help="edit a file, or lines of it, by an instruction",
        description="Edit FILE by an instruction. Without --apply nothing is written.",
        epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("file", type=Path, metavar="FILE", help="a UTF-8 text file")
    add("-i", "--instruction", required=True, help="what to change; - reads it from stdin")
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--lines", metavar="10:40", help="edit only these lines (from 1, inclusive)")
    where.add_argument(
        "--whole-file",
        action="store_true",
        help=f"edit more than {WHOLE_FILE_LINES} lines at once with a small model too",
    )
    output = parser.add_mutually_exclusive_group()
    for name, text in {
        "diff": "print a unified diff, for a look or for `git apply` (default)",
        "apply": "write the file, atomically",
        "json": "print one JSON object: text, diff, edits, figures",
    }.items():
        output.add_argument(
            f"--{name}", dest="output", action="store_const", const=name, default="diff", help=text
        )
    add("--workspace", type=Path, metavar="DIR", help="draft from the files of this folder too")
    add_max_tokens(parser)
    add_options(parser, verbose="show the text as it comes, by its source")
    parser.set_defaults(run=_edit)


class Version(argparse.Action):
    """`--version`, looked up only when asked for."""

    def __call__(self, *_: object) -> None:
        from importlib.metadata import PackageNotFoundError, version

        try:
            print("draftline", version("draftline"))
        except PackageNotFoundError as error:
            raise Failure(FAILED, "not installed: run `pip install .` first") from error
        raise SystemExit(OK)


if __name__ == "__main__":
    sys.exit(main())
