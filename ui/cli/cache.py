"""`draftline cache`: show what is stored on this machine, and clear what can be made again."""

from __future__ import annotations

import argparse
from typing import Any

from ui.cli.options import add_command
from ui.common.errors import OK, USAGE, Failure
from ui.common.terminal import format_bytes, write_json, write_line

EXIT_CODES = """exit codes:
  0    done
  1    something could not be deleted
  2    usage
  130  interrupted
"""


def add_parser(commands: Any) -> None:
    """Add the `cache` command."""
    parser = add_command(
        commands,
        "cache",
        run,
        "show what is stored, and clear caches",
        "Show what Draftline stores on this machine. Without a verb: show.\n"
        "What `clear` deletes is made again when it is needed; models and documents stay.",
        EXIT_CODES,
    )
    parser.set_defaults(verb="show", names=[])
    verbs = parser.add_subparsers(dest="verb", metavar="VERB")
    showing = verbs.add_parser("show", help="every part: its size, its limit, where it is")
    clearing = verbs.add_parser("clear", help="delete caches")
    clearing.add_argument(
        "names", nargs="*", metavar="NAME", help="names that `show` lists; default: all caches"
    )
    for verb in (parser, showing, clearing):
        verb.add_argument(
            "--json", action="store_true", default=argparse.SUPPRESS, help="print JSON"
        )


def run(args: argparse.Namespace) -> int:
    """Run the verb."""
    return _clear(args) if args.verb == "clear" else _show(args)


def _show(args: argparse.Namespace) -> int:
    from engine.weights import home
    from ui.cli import storage

    rows: list[dict[str, Any]] = []
    try:
        for part in storage.PARTS:
            rows.append(
                {
                    "name": part.name,
                    "about": part.about,
                    "folder": str(home() / part.folder),
                    "bytes": storage.size_of(storage.paths_of(part)),
                    "limit": part.limit,
                    "deleted_by": part.deleted_by or f"draftline cache clear {part.name}",
                }
            )
    except OSError as error:
        raise storage.failure(error) from error
    if getattr(args, "json", False):
        write_json({"home": str(home()), "parts": rows})
        return OK
    for row in rows:
        size = format_bytes(row["bytes"])
        write_line(f"{row['name']:<11} {size:>10}  {row['about']} (limit: {row['limit']})")
    write_line(f"All of it is in {home()}: {format_bytes(sum(row['bytes'] for row in rows))}")
    write_line("`draftline cache clear [NAME ...]` deletes what can be made again;")
    write_line("`draftline models remove NAME` a model, `draftline uninstall` everything.")
    return OK


def _clear(args: argparse.Namespace) -> int:
    from ui.cli import storage

    caches = {part.name: part for part in storage.CACHES}
    for part in storage.KEPT:
        if part.name in args.names:
            raise Failure(USAGE, f"{part.name}: not a cache: deleted by {part.deleted_by}")
    for name in args.names:
        if name not in caches:
            raise Failure(USAGE, f"{name}: not a cache: choose from {', '.join(caches)}")
    freed = {}
    try:
        for name in args.names or caches:
            freed[name] = storage.delete(caches[name])
    except OSError as error:
        raise storage.failure(error) from error
    if getattr(args, "json", False):
        write_json({"freed": freed})
    else:
        write_line(f"Freed: {format_bytes(sum(freed.values()))} ({', '.join(freed)})")
    return OK
