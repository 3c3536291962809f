"""The `draftline` command: results go to stdout, everything else to stderr.

Every failure is one line, `draftline: what: remedy`, and an exit code of `ui.common.errors`.
Imports are lazy, so that `--help` is fast: torch is loaded only when a model runs.
"""

from __future__ import annotations

import argparse
import os
import sys
from contextlib import nullcontext
from typing import Any

from ui.cli.edit import EXIT_CODES
from ui.cli.parser import Parser
from ui.common.errors import FAILED, INTERRUPTED, OK, Failure, say, warnings_on_stderr
from ui.common.interrupt import Interrupt

SERVERS = {"serve", "lsp", "mcp"}  # commands that set up logging themselves


def main(argv: list[str] | None = None) -> int:
    """Run the command and return its exit code. Never raises."""
    interrupt = Interrupt()
    try:
        interrupt.listen()
        return _main(sys.argv[1:] if argv is None else argv, interrupt)
    finally:
        interrupt.ignored = True
        if interrupt.received:
            os._exit(INTERRUPTED)  # do not wait for threads and torch


def _main(argv: list[str], interrupt: Interrupt) -> int:
    try:
        code = _run(argv, interrupt)
        if sys.stdout:
            sys.stdout.flush()
        return code
    except Failure as failure:
        say(str(failure))
        return failure.code
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # for the rest of stdout's buffer
        if isinstance(error, BrokenPipeError):  # the reader has seen enough, as `| head` does
            return OK
        say(f"{error}: check the disk and where the output goes")
        return FAILED
    except Exception as error:
        if os.environ.get("DRAFTLINE_TRACEBACK"):
            raise
        what = f"{type(error).__name__}: {error}"
        say(f"{what}: a bug in draftline; DRAFTLINE_TRACEBACK=1 shows the traceback")
        return FAILED


def _run(argv: list[str], interrupt: Interrupt) -> int:
    try:
        args = make_parser(argv).parse_args(argv or ["--help"])
        args.interrupt, args.argv = interrupt, argv
        with nullcontext() if args.command in SERVERS else warnings_on_stderr():
            code: int = args.run(args)
            return code
    except SystemExit as end:  # argparse, after --help and --version
        return end.code if isinstance(end.code, int) else FAILED


def make_parser(argv: list[str]) -> Parser:
    """Build the parser of the command line.

    Each command sets `run`, which takes the parsed arguments and returns the exit code. `draftline
    lsp`, a small process next to every window, imports no other command.
    """
    from lsp_server import cli as lsp

    parser = Parser(
        prog="draftline",
        description="A local code-editing assistant: text that already exists is the draft, "
        "the model verifies it, and the answer never changes.",
        epilog=EXIT_CODES,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="show the version and exit")
    commands: Any = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    if argv[:1] == ["lsp"]:
        lsp.add_parser(commands)
        return parser
    from ui import demo
    from ui.cli import (
        apply,
        ask,
        chat,
        doctor,
        drafters,
        edit,
        index,
        mcp,
        models,
        plugins,
        serve,
        storage,
        summarize,
        verify,
    )

    for command in (
        edit, apply, ask, summarize, chat, serve, lsp, mcp, index, models, storage,
        doctor, drafters, verify, demo,
    ):  # fmt: skip
        command.add_parser(commands)
    plugins.add_commands(commands, argv)
    return parser


class _Version(argparse.Action):
    """`--version`, with the commit; looked up only when needed."""

    def __call__(self, *_: object) -> None:
        from index.version import NOT_INSTALLED, own_version, version_and_commit

        if own_version() == NOT_INSTALLED:
            raise Failure(FAILED, "not installed: run `pip install .` first")
        print("draftline", version_and_commit())
        raise SystemExit(OK)
