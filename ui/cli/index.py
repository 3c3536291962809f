"""`draftline index`: build, search, copy and clear the index of folders. Loads no model.

Results go to stdout, progress and problems to stderr. An interrupted build leaves the saved index
as it is, or with a part of what was read.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ui.cli.options import MODEL_HELP, add_command
from ui.common.errors import FAILED, OK, USAGE, Failure, reason, say
from ui.common.find import Match, matches
from ui.common.loading import load_tokenizer
from ui.common.terminal import (
    format_bytes,
    one_line,
    plural,
    ratio,
    relative_to_cwd,
    write_json,
    write_line,
)

if TYPE_CHECKING:
    from index.records import Stats
    from index.workspace.workspace import Workspace
    from ui.cli.index_build import Build

EXIT_CODES = """exit codes:
  0    done
  1    nothing found, refused, or the index could not be saved
  2    usage or bad input
  3    the tokenizer of the model is not available
  130  interrupted; the saved index is intact
"""
DEFAULT_MAX_MATCHES = 20
MAX_SKIP_REASONS = 5  # reasons in the table
MAX_LISTED_PATHS = 20  # paths that are not indexed


def add_parser(commands: Any) -> None:
    """Add the `index` command."""
    parser = add_command(
        commands,
        "index",
        run,
        "build and search the index of a folder",
        "Index the text files of folders, so that answers may copy from them.\n"
        "The index is saved: a second run reads only the files that changed.",
        EXIT_CODES,
    )
    add = parser.add_argument
    add("paths", nargs="*", type=Path, metavar="PATH", help="folders of one index; default: this")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--stats", action="store_true", help="print a table of what the index holds")
    what.add_argument("--find", metavar="TEXT", help="find this text, newest file first")
    what.add_argument(
        "--clear",
        action="store_true",
        help="delete the saved index of these folders, and the model's token ids of all folders",
    )
    what.add_argument(
        "--export", type=Path, metavar="FILE", help="write the index, with all text, to a new file"
    )
    what.add_argument(
        "--import",
        type=Path,
        metavar="FILE",
        dest="archive",
        help="start from such a file, made elsewhere, and read only the files that differ",
    )
    add(
        "--most",
        type=int,
        metavar="N",
        help=f"matches that --find shows; default: {DEFAULT_MAX_MATCHES}",
    )
    add("--json", action="store_true", help="print one JSON object")
    add("--model", metavar="M", help=f"whose tokenizer: {MODEL_HELP}")
    add("--no-save", action="store_true", help="neither use nor save an index on disk")


def run(args: argparse.Namespace) -> int:
    """Build the index, then do what the options say."""
    _check(args)
    workspace = _workspace(args)
    if args.clear:
        return _clear(args, workspace)
    from ui.cli.index_build import build

    try:
        if args.find is not None:
            build(workspace)
            return _find(args, workspace)
        if args.archive:
            _import(args, workspace)
        built = build(workspace, workspace.compact)
        if args.export:
            _export(args, workspace)
        workspace.close()
        _print_build(args, built, workspace)
    except NotADirectoryError as error:  # removed since _check
        raise Failure(USAGE, str(error)) from error
    if workspace.save_failed:
        from engine.weights import home

        remedy = "free space or choose another DRAFTLINE_HOME, or index with --no-save"
        raise Failure(FAILED, f"{home() / 'index'}: the index is not saved: {remedy}")
    return OK


def _check(args: argparse.Namespace) -> None:
    """Raise Failure for arguments that are wrong whatever the index holds."""
    if args.most is not None and (args.find is None or args.most < 1):
        raise Failure(USAGE, f"--most {args.most}: limits --find: give both, with N above 0")
    if args.find == "":
        raise Failure(USAGE, "--find: the text is empty: give the text to find")
    if args.clear and args.no_save:
        raise Failure(USAGE, "--clear --no-save: nothing to do: leave one out")
    if args.no_save and (args.export or args.archive):
        raise Failure(USAGE, "--no-save: --export and --import need the saved index: leave it out")
    if args.export and args.export.exists():
        raise Failure(USAGE, f"{args.export}: exists: choose another name, or delete it")
    if args.export and not args.export.absolute().parent.is_dir():
        raise Failure(USAGE, f"--export {args.export}: no such folder: make it first")
    args.paths = args.paths or [Path()]
    for path in [] if args.clear else args.paths:  # a removed folder's index can be cleared
        try:
            next(path.iterdir(), None)
        except FileNotFoundError as error:
            raise Failure(USAGE, f"{path}: no such folder: check the name") from error
        except NotADirectoryError as error:
            raise Failure(USAGE, f"{path}: not a folder: name the folder it is in") from error
        except OSError as error:
            why = f"{path}: unreadable: {reason(error)}: check its permissions"
            raise Failure(USAGE, why) from error


def _workspace(args: argparse.Namespace) -> Workspace:
    """Make the workspace of the folders, whatever their order. Reads no files."""
    from engine.weights import DEFAULT_MODEL, home
    from index.workspace.workspace import Workspace

    args.model = args.model or DEFAULT_MODEL
    tokenizer = load_tokenizer(args.model, fetch=not args.clear)
    roots = sorted(Path(os.path.realpath(path)) for path in args.paths)
    return Workspace(roots, tokenizer, None if args.no_save else home())


# -- the result of a build ---------------------------------------------------------------------


def _print_build(args: argparse.Namespace, built: Build, workspace: Workspace) -> None:
    stats, skipped = built.stats, workspace.skipped
    if args.json:
        write_json(_as_json(built, workspace))
        return
    new = stats.hits + stats.misses
    changes = f", {new:,} of them new" if new else ", none new"
    write_line(
        f"{plural(stats.files, 'file')}{changes if built.loaded else ''}, "
        f"{plural(stats.tokens, 'token')}, {format_bytes(stats.nbytes)} "
        f"({ratio(stats.nbytes, stats.tokens):.1f} bytes a token), "
        f"{plural(stats.segments, 'segment')}; {len(skipped):,} skipped; {built.seconds:.1f} s"
    )
    write_line(_where_saved(args, stats, workspace.save_failed))
    if args.stats:
        _print_table(built, skipped)
        _print_skipped(skipped)


def _where_saved(args: argparse.Namespace, stats: Stats, failed: bool) -> str:
    from engine.weights import home

    if args.no_save or failed:
        return "Not saved on disk."
    if not stats.disk:
        return f"Not saved yet; it will be in {home() / 'index'}"
    return f"Saved in {home() / 'index'}"


def _as_json(built: Build, workspace: Workspace) -> dict[str, Any]:
    return {
        "roots": [str(root) for root in workspace.roots],
        **asdict(built.stats),
        "seconds": built.seconds,
        "warm": built.loaded > 0,
        "loaded": built.loaded,
        "skipped": workspace.skipped,
    }


def _print_table(built: Build, skipped: dict[str, str]) -> None:
    from rich.console import Console
    from rich.table import Table

    stats, per_token = built.stats, ratio(built.stats.nbytes, built.stats.tokens)
    reasons_in_short = Counter(reason.partition(":")[0] for reason in skipped.values())
    frequent = reasons_in_short.most_common(MAX_SKIP_REASONS)
    reasons = [f"{number:,} {reason}" for reason, number in frequent]
    if others := len(skipped) - sum(number for _, number in frequent):
        reasons.append(f"{others:,} other")
    rows = {
        "files": f"{stats.files:,}",
        "tokens": f"{stats.tokens:,}",
        "segments": f"{stats.segments:,}",
        "memory": f"{format_bytes(stats.nbytes)}, {per_token:.1f} bytes a token",
        "dead": f"{stats.dead:.1%} of the tokens held",
        "on disk": f"{format_bytes(stats.disk)}, and {format_bytes(stats.cache)} of token ids "
        "for all folders",
        "loaded warm": f"{built.loaded:,} of {plural(stats.files, 'file')}",
        "token cache": f"{plural(stats.hits, 'hit')}, {plural(stats.misses, 'miss', 'misses')}",
        "skipped": f"{len(skipped):,}" + (f": {', '.join(reasons)}" if reasons else ""),
    }
    table = Table.grid(padding=(0, 2))
    for name, value in rows.items():
        table.add_row(name, one_line(value))
    is_terminal = sys.stdout and sys.stdout.isatty()
    Console(highlight=False, width=None if is_terminal else 100).print(table)


def _print_skipped(skipped: dict[str, str]) -> None:
    """List the files and folders that are not indexed and why, those with secrets first."""
    from index.workspace.file_filter import EXEMPTIONS, SECRET

    def order(path: str) -> tuple[bool, str]:
        return SECRET not in skipped[path], path

    listed = sorted(skipped, key=order)[:MAX_LISTED_PATHS]
    more = len(listed) < len(skipped)
    if listed:
        which = f", {len(listed)} of {len(skipped):,} (--json lists all)" if more else ""
        write_line(f"Not indexed{which}:")
    for path in listed:
        write_line("  " + one_line(f"{relative_to_cwd(path)}: {skipped[path]}"))
    if any(SECRET in reason for reason in skipped.values()):
        write_line(f"To index a file that holds no secrets, name it in {EXEMPTIONS} in the folder.")


# -- find --------------------------------------------------------------------------------------


def _find(args: argparse.Namespace, workspace: Workspace) -> int:
    """Show the matches of --find, newest file first, and close the workspace.

    The exit code is FAILED if there are none.
    """
    found, more = matches(workspace, args.find, args.most or DEFAULT_MAX_MATCHES)
    workspace.close()
    if args.json:
        write_json({"places": [asdict(match) for match, _ in found], "more": more})
    else:
        for match, line in found:
            _print_match(match, line)
        say(plural(len(found), "place") + "; there are more: --most shows them" * more)
    return OK if found else FAILED


def _print_match(match: Match, line: str) -> None:
    """Print `path:line:column  the line`; on a terminal a long line is cut around the match."""
    head = f"{relative_to_cwd(match.path)}:{match.line}:{match.column}"
    if not sys.stdout or not sys.stdout.isatty():
        write_line(f"{head}  {line}")
        return
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False)
    width = max(console.width - len(head) - 2, 40)
    at, length = match.column - 1, match.stop - match.start
    first = min(max(at - width // 4, 0), max(len(line) - width, 0))
    shown = Text(one_line(line[first : first + width]))
    shown.stylize("bold red", at - first, at - first + length)
    head_text = Text(one_line(head), "magenta")
    console.print(Text.assemble(head_text, "  ", shown), soft_wrap=True)


# -- archives ----------------------------------------------------------------------------------


def _export(args: argparse.Namespace, workspace: Workspace) -> None:
    try:
        info = workspace.export(args.export, Path(args.model).name)
    except FileExistsError as error:
        raise Failure(USAGE, str(error)) from error
    except OSError as error:
        raise Failure(FAILED, f"--export {args.export}: {reason(error)}") from error
    size = format_bytes(args.export.stat().st_size)
    say(f"exported to {args.export}, {size}, identity {info.identity}")


def _import(args: argparse.Namespace, workspace: Workspace) -> None:
    """Replace the saved index by the archive. What differs from the files is read by the build."""
    from index.workspace.archive import BadArchive

    try:
        info = workspace.load_from(args.archive, Path(args.model).name)
    except BadArchive as error:
        raise Failure(FAILED, str(error)) from error
    except OSError as error:
        raise Failure(
            FAILED, f"--import {args.archive}: {reason(error)}: check the name"
        ) from error
    say(f"imported {args.archive}, identity {info.identity}")


# -- clear -------------------------------------------------------------------------------------


def _clear(args: argparse.Namespace, workspace: Workspace) -> int:
    """Delete what is saved, and close the workspace."""
    before = workspace.stats()
    try:
        workspace.clear()
        after = workspace.stats()
    except PermissionError as error:
        raise Failure(FAILED, str(error)) from error
    finally:
        workspace.close()
    freed = {"index": before.disk - after.disk, "token_ids": before.cache - after.cache}
    roots = [str(root) for root in workspace.roots]
    if args.json:
        write_json({"roots": roots, "freed": freed})
    elif not any(freed.values()):
        write_line(f"Nothing was saved for {', '.join(roots)} by {args.model}.")
    else:
        index, ids = format_bytes(freed["index"]), format_bytes(freed["token_ids"])
        write_line(
            f"Freed: {index}, the index of {', '.join(roots)}; {ids} of token ids of {args.model}."
        )
    return OK
