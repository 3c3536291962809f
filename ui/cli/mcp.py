"""`draftline mcp`: tools for agents over stdio (ui/mcp). The model is loaded when first needed."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Sequence
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ui.cli.options import (
    add_check,
    add_command,
    add_drafting,
    add_engine,
    add_model,
    add_server,
    add_yes,
    trial,
)
from ui.common.consent import choose_model
from ui.common.errors import OK, USAGE, Failure, say
from ui.common.loading import join_or_open, load_tokenizer

if TYPE_CHECKING:
    from engine.remote.any_engine import AnyEngine
    from index.workspace.workspace import Workspace

EXIT_CODES = """exit codes:
  0    the client has ended
  2    usage or bad input
  130  interrupted
"""


def add_parser(commands: Any) -> None:
    """Add the `mcp` command."""
    parser = add_command(
        commands,
        "mcp",
        run,
        "serve tools to agents: apply_edit, edit, find, ask_documents",
        "Serve tools by the Model Context Protocol over stdin and stdout. They read and write only "
        "in the roots that the client names; with FOLDER, only where these are in a FOLDER. A "
        "client that names none works in FOLDER, or in the current folder, unless that is the home "
        "folder or above it. Files from which git, editors or shells run commands are refused.",
        EXIT_CODES,
    )
    parser.add_argument("folders", nargs="*", type=Path, metavar="FOLDER", help="where to work")
    add_check(parser)
    add_model(parser)
    add_server(parser)
    add_engine(parser)
    add_yes(parser)
    add_drafting(parser)


def run(args: argparse.Namespace) -> int:
    """Serve until the client closes stdin."""
    try:
        from ui.mcp.server import make_server
        from ui.mcp.stdio import serve
    except ImportError as error:
        why = f"draftline mcp needs the package mcp ({error})"
        raise Failure(USAGE, f"{why}: pip install 'draftline[mcp]', or pip install mcp") from error
    for folder in args.folders:
        if not folder.is_dir():
            raise Failure(USAGE, f"{folder}: not a folder: name one to work in")
    if not (sys.stdin and sys.stdout):
        raise Failure(USAGE, "mcp: stdin or stdout is closed: an agent starts this with both")
    if sys.stdin.isatty():
        say("an agent starts this and speaks to it; Ctrl-C ends it")
    from index.documents.documents import Documents
    from ui.mcp.tools import Tools

    @cache
    def open_engine() -> AnyEngine:
        choose_model(args)
        return join_or_open(args, lambda *_: None)

    def open_workspace(folders: Sequence[Path]) -> Workspace:
        from engine.weights import home
        from engine.weights.fetch.download import usual_model
        from index.workspace.workspace import Workspace

        if args.engine:
            tokenizer = open_engine().encoder
        else:
            tokenizer = load_tokenizer(args.model or usual_model(), fetch=False)
        workspace = Workspace(sorted(folders), tokenizer, home())
        workspace.watch()
        workspace.build()
        return workspace

    trial(args, Path("any"))  # a command that cannot be run is known at once
    tools = Tools(open_engine, open_workspace, Documents(), partial(trial, args))
    try:
        asyncio.run(serve(make_server(tools, args.folders)))
    finally:
        tools.close()
    return OK
