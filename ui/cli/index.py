"""`draftline index`: build, follow, search and clear the index of some folders. Loads no model.

Results go to stdout, progress and trouble to stderr. What the index is lives in `index`. An
interrupted build leaves what was kept before as it is.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from engine.prompts.tokenizer import Tokenizer
    from index.records import Stats
    from index.workspace.workspace import Workspace
    from ui.cli.index_watch import Built

OK, FAILED, USAGE, NO_MODEL = 0, 1, 2, 3
EXIT_CODES = """exit codes:
  0    done
  1    nothing found, or refused
  2    usage or bad input
  3    the tokenizer of the model could not be had
  130  interrupted; what was kept before is still good
"""
REASONS = 5  # of skipped files, in the table
MOST = 20  # places that --find shows


class Failure(Exception):
    """The end of the command: an exit code and one line."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the `index` command. Its `run` default is this file's `run`."""
    parser = subparsers.add_parser(
        "index",
        help="build, follow and search the index of a folder",
        description="Index the text files of folders, so that answers may copy from them.\n"
        "What is kept is brought up to date: a second run reads only what changed.",
        epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("paths", nargs="*", type=Path, metavar="PATH", help="folders of one index; default: this")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--stats", action="store_true", help="a table of what the index holds")
    what.add_argument("--watch", action="store_true", help="follow every change until Ctrl-C")
    what.add_argument("--find", metavar="TEXT", help="where this text stands, newest file first")
    what.add_argument(
        "--clear",
        action="store_true",
        help="delete what is kept: the index of these folders, and the model's token ids of all",
    )
    add("--most", type=int, metavar="N", help=f"places that --find shows; default: {MOST}")
    add("--json", action="store_true", help="one JSON object; with --watch also one a change")
    add("--model", metavar="M", help="whose tokenizer: a built-in name, a folder, a GGUF file")
    add("--no-save", action="store_true", help="keep nothing on disk, and use nothing kept")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Do what the parsed arguments say; the exit code."""
    trouble = Trouble()
    logging.getLogger("index").addHandler(trouble)
    try:
        _check(args)
        workspace = _workspace(args)
        if args.clear:
            return _clear(args, workspace)
        return _built(args, workspace)
    except Failure as failure:
        say(str(failure))
        return failure.code
    finally:
        logging.getLogger("index").removeHandler(trouble)


def _built(args: argparse.Namespace, workspace: Workspace) -> int:
    """What begins with a build."""
    from ui.cli.index_watch import build, follow

    try:
        if args.watch:
            follow(workspace, lambda built: _print_built(args, built, workspace), args.json)
        if args.find is not None:
            from ui.cli.index_find import find

            build(workspace)
            return OK if find(workspace, args.find, args.most or MOST, args.json) else FAILED
        # What changed little is kept when it is closed: the figures are taken after that.
        _print_built(args, build(workspace, workspace.close), workspace)
    except NotADirectoryError as error:  # it went meanwhile
        raise Failure(USAGE, str(error)) from error
    return OK


def say(message: str) -> None:
    """One line on stderr, whatever the message holds."""
    if sys.stderr:
        print("draftline:", one_line(" ".join(message.split())), file=sys.stderr, flush=True)


def one_line(text: str) -> str:
    """As a terminal may show it: control characters, line ends and broken UTF-8 as pictures."""
    from ui.terminal import visible

    plain = text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    return visible(plain).replace("\n", "\u240a").replace("\t", " ")


def named(path: str) -> str:
    """A path from the current folder, where it is inside."""
    here = f"{Path.cwd()}".rstrip("/")
    return path.removeprefix(f"{here}/")


def show_json(what: dict[str, Any]) -> None:
    """One object in one line on stdout."""
    if sys.stdout:
        print(json.dumps(what), flush=True)


def show(text: str) -> None:
    """One line on stdout, exact where that is no terminal."""
    if sys.stdout and sys.stdout.isatty():
        from rich.console import Console
        from rich.text import Text

        Console(highlight=False).print(Text(one_line(text)))
    elif sys.stdout:
        sys.stdout.buffer.write(f"{text}\n".encode("utf-8", "surrogateescape"))
        sys.stdout.buffer.flush()


class Trouble(logging.Handler):
    """What is logged, each as one line."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)

    def emit(self, record: logging.LogRecord) -> None:
        say(record.getMessage())


# -- the workspace -----------------------------------------------------------------------------


def _check(args: argparse.Namespace) -> None:
    """Raises Failure for what needs no index to be refused."""
    if args.most is not None and (args.find is None or args.most < 1):
        raise Failure(USAGE, f"--most {args.most}: how many places --find shows: give both, N > 0")
    if args.find == "":
        raise Failure(USAGE, "--find: the text is empty: say what to look for")
    if args.clear and args.no_save:
        raise Failure(USAGE, "--clear --no-save: nothing would be done: leave one out")
    args.paths = args.paths or [Path()]
    for path in [] if args.clear else args.paths:  # the index of a folder that is gone, too
        try:
            next(path.iterdir(), None)
        except FileNotFoundError as error:
            raise Failure(USAGE, f"{path}: no such folder: check the name") from error
        except NotADirectoryError as error:
            raise Failure(USAGE, f"{path}: not a folder: name the folder it is in") from error
        except OSError as error:
            why = error.strerror or str(error)
            raise Failure(USAGE, f"{path}: unreadable: {why}: check its permissions") from error


def _workspace(args: argparse.Namespace) -> Workspace:
    """Of these folders, in any order; nothing is read yet."""
    from engine.weights import DEFAULT_MODEL, home
    from index.workspace.workspace import Workspace

    args.model = args.model or DEFAULT_MODEL
    tokenizer = tokenizer_of(args.model, fetch=not args.clear)
    roots = sorted(Path(os.path.realpath(path)) for path in args.paths)
    return Workspace(roots, tokenizer, None if args.no_save else home())


def tokenizer_of(model: str, fetch: bool) -> Tokenizer:
    """Of a model, which is fetched first where it must be and may. Raises Failure."""
    from engine import weights
    from engine.prompts.tokenizer import Tokenizer
    from ui.cli.models import progress_bars

    try:
        folder = weights.find(model)
        if folder is None and fetch:
            with progress_bars() as progress:
                folder = weights.locate(model, progress=progress)
    except (weights.WeightsError, OSError) as error:
        raise Failure(NO_MODEL, str(error)) from error
    if folder is None:
        where = f"{weights.home()}: what is kept there for {model} is not known without it"
        raise Failure(NO_MODEL, f"{where}: run `draftline models pull {model}`")
    try:
        return Tokenizer(folder)
    except Exception as error:  # `tokenizers` raises plain ones
        what = f"{folder}: its tokenizer cannot be read: {type(error).__name__}: {error}"
        raise Failure(NO_MODEL, f"{what}: name another model") from error


# -- figures -----------------------------------------------------------------------------------


def _print_built(args: argparse.Namespace, built: Built, workspace: Workspace) -> None:
    skipped = workspace.skipped
    if args.json:
        show_json(_as_json(built, workspace))
        return
    stats, new = built.stats, built.stats.hits + built.stats.misses
    news = f", {new:,} of them new" if built.loaded and new else ", none new" * bool(built.loaded)
    a_token = stats.nbytes / stats.tokens if stats.tokens else 0.0
    show(
        f"{count(stats.files, 'file')}{news}, {count(stats.tokens, 'token')}, "
        f"{size(stats.nbytes)} ({a_token:.1f} bytes a token), {count(stats.segments, 'segment')}; "
        f"{len(skipped):,} skipped; {built.seconds:.1f} s"
    )
    show(_where_kept(args, stats))
    if args.stats:
        _print_table(built, skipped)


def _where_kept(args: argparse.Namespace, stats: Stats) -> str:
    from engine.weights import home

    if args.no_save:
        return "Not kept on disk."
    if not stats.disk:
        return f"Not kept yet; it will be in {home() / 'index'}"
    return f"Kept in {home() / 'index'}"


def _as_json(built: Built, workspace: Workspace) -> dict[str, Any]:
    return {
        "roots": [str(root) for root in workspace.disk.roots],
        **asdict(built.stats),
        "seconds": built.seconds,
        "warm": built.loaded > 0,
        "loaded": built.loaded,
        "skipped": workspace.skipped,
    }


def _print_table(built: Built, skipped: dict[str, str]) -> None:
    from rich.console import Console
    from rich.table import Table

    stats, reasons = built.stats, Counter(skipped.values())
    several = reasons.most_common(REASONS)
    others = len(skipped) - sum(number for _, number in several)
    why = [f"{number:,} {reason}" for reason, number in several] + [f"{others:,} other"] * bool(
        others
    )
    rows = {
        "files": f"{stats.files:,}",
        "tokens": f"{stats.tokens:,}",
        "segments": f"{stats.segments:,}",
        "memory": f"{size(stats.nbytes)}, {stats.nbytes / max(stats.tokens, 1):.1f} bytes a token",
        "dead": f"{stats.dead:.1%} of the tokens held",
        "on disk": f"{size(stats.disk)}, and {size(stats.cache)} of token ids for all folders",
        "loaded warm": f"{built.loaded:,} of {count(stats.files, 'file')}",
        "token cache": f"{count(stats.hits, 'hit')}, {count(stats.misses, 'miss', 'misses')}",
        "skipped": f"{len(skipped):,}" + (f": {', '.join(why)}" if why else ""),
    }
    table = Table.grid(padding=(0, 2))
    for name, value in rows.items():
        table.add_row(name, one_line(value))
    Console(highlight=False, width=None if sys.stdout.isatty() else 100).print(table)


def count(number: int, one: str, more: str = "") -> str:
    """`3 files`."""
    return f"{number:,} {one if number == 1 else more or one + 's'}"


def size(number: int) -> str:
    """Bytes for people, in powers of 1000."""
    for unit, name in ((10**9, "GB"), (10**6, "MB"), (10**3, "kB")):
        if number >= unit:
            return f"{number / unit:.{0 if number >= 10 * unit else 1}f} {name}"
    return f"{number} bytes"


def _clear(args: argparse.Namespace, workspace: Workspace) -> int:
    """Delete what is kept. The workspace is not closed: that would save it, empty as it is."""
    before = workspace.stats()
    try:
        workspace.clear()
    except PermissionError as error:
        raise Failure(FAILED, str(error)) from error
    after = workspace.stats()
    freed = {"index": before.disk - after.disk, "token_ids": before.cache - after.cache}
    roots = ", ".join(map(str, workspace.disk.roots))
    if args.json:
        show_json({"roots": list(map(str, workspace.disk.roots)), "freed": freed})
    elif not any(freed.values()):
        show(f"Nothing was kept for {roots} by {args.model}.")
    else:
        ids = f"{size(freed['token_ids'])} of token ids of {args.model}"
        show(f"Freed: {size(freed['index'])}, the index of {roots}; {ids}.")
    return OK
