"""`draftline storage`: show what is stored on this machine, clear caches, or remove all of it.

The program itself is removed by what installed it, which the last line of `remove` names.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ui.cli.options import add_command
from ui.common.errors import FAILED, OK, USAGE, Failure
from ui.common.terminal import format_bytes, write_json, write_line

if TYPE_CHECKING:
    from ui.cli.stored import StoredPart

EXIT_CODES = """exit codes:
  0    done
  1    not agreed, a server runs, or something could not be deleted
  2    usage; without a terminal: `remove` without --yes
  130  interrupted
"""
EXTENSION = "draftline.draftline"  # its storage has this name
ELSEWHERE = (
    "Not deleted: what you exported or trained into files of your own, keys of engines in the\n"
    "system's key ring (service `draftline`), models of other programs, and what the extension of\n"
    f"VS Code installed: the folder globalStorage/{EXTENSION} of VS Code's user data."
)


def add_parser(commands: Any) -> None:
    """Add the `storage` command."""
    parser = add_command(
        commands,
        "storage",
        run,
        "show what is stored, clear caches, or remove everything",
        "Show what Draftline stores on this machine. Without a verb: show.\n"
        "What `clear` deletes is made again when it is needed; models and documents stay.",
        EXIT_CODES,
    )
    parser.set_defaults(act=show)
    verbs = parser.add_subparsers(metavar="VERB")
    showing = verbs.add_parser("show", help="every part: its size, its limit, where it is")
    showing.set_defaults(act=show)
    clearing = verbs.add_parser("clear", help="delete caches")
    clearing.set_defaults(act=clear)
    clearing.add_argument(
        "names", nargs="*", metavar="NAME", help="names that `show` lists; default: all caches"
    )
    for verb in (parser, showing, clearing):
        verb.add_argument(
            "--json", action="store_true", default=argparse.SUPPRESS, help="print JSON"
        )
    removing = verbs.add_parser("remove", help="list everything that is stored, ask, delete it")
    removing.set_defaults(act=remove)
    removing.add_argument("--yes", action="store_true", help="delete without asking")


def run(args: argparse.Namespace) -> int:
    """Run the verb."""
    from ui.cli import stored

    try:
        code: int = args.act(args)
        return code
    except BrokenPipeError:  # of stdout: no file is at fault
        raise
    except OSError as error:
        raise stored.failure(error) from error


def show(args: argparse.Namespace) -> int:
    """List every part with its size, its limit and its place."""
    from engine.weights import home
    from ui.cli import stored

    if not getattr(args, "json", False):
        _list(stored.PARTS)
        write_line("`draftline storage clear [NAME ...]` deletes what can be made again;")
        write_line("`draftline models remove NAME` a model, `draftline storage remove` everything.")
        return OK
    rows = [
        {
            "name": part.name,
            "about": part.about,
            "folder": str(home() / part.folder),
            "bytes": stored.size_of(stored.paths_of(part)),
            "limit": part.limit,
            "deleted_by": part.deleted_by or f"draftline storage clear {part.name}",
        }
        for part in stored.PARTS
    ]
    write_json({"home": str(home()), "parts": rows})
    return OK


def _list(parts: Sequence[StoredPart]) -> None:
    """Print a line for each part, and their total."""
    from engine.weights import home
    from ui.cli import stored

    total = 0
    for part in parts:
        total += (size := stored.size_of(stored.paths_of(part)))
        write_line(f"{part.name:<11} {format_bytes(size):>10}  {part.about} (limit: {part.limit})")
    write_line(f"All of it is in {home()}: {format_bytes(total)}")


def clear(args: argparse.Namespace) -> int:
    """Delete the caches that are named, or all."""
    from ui.cli import stored

    caches = {part.name: part for part in stored.CACHES}
    for part in stored.KEPT:
        if part.name in args.names:
            raise Failure(USAGE, f"{part.name}: not a cache: deleted by {part.deleted_by}")
    for name in args.names:
        if name not in caches:
            raise Failure(USAGE, f"{name}: not a cache: choose from {', '.join(caches)}")
    freed = {name: stored.delete(caches[name]) for name in args.names or caches}
    if getattr(args, "json", False):
        write_json({"freed": freed})
    else:
        write_line(f"Freed: {format_bytes(sum(freed.values()))} ({', '.join(freed)})")
    return OK


def remove(args: argparse.Namespace) -> int:
    """List what is stored, ask, delete it, and say how the program itself is removed."""
    from engine.remote.address import runtime_folders
    from engine.weights import home
    from ui.cli import stored

    parts = [part for part in stored.PARTS if stored.paths_of(part)]
    sockets = stored.sockets()
    if parts or sockets:
        _list(parts)
        if sockets:
            size = format_bytes(stored.size_of(sockets))
            write_line(f"{'sockets':<11} {size:>10}  and logs of servers, in {sockets[0].parent}")
        if running := stored.running_servers():
            why = f"{running[0]}: a server runs"
            raise Failure(
                FAILED, f"{why}: close the editors and end `draftline serve`, then try again"
            )
        _ask(args.yes)
        freed = sum(map(stored.delete, parts))
        for path in sockets:
            stored.delete_path(path)
        for folder in dict.fromkeys([*runtime_folders(), home()]):
            with suppress(OSError):  # others' files are in it
                folder.rmdir()
        write_line(f"Freed: {format_bytes(freed)}")
    else:
        write_line(f"Nothing is stored in {home()}.")
    if home().is_dir() and any(home().iterdir()):
        write_line(f"{home()} holds files that are not Draftline's, and stays.")
    for line in ELSEWHERE.splitlines():
        write_line(line)
    write_line(f"To remove the program: {remove_command(Path(sys.prefix))}")
    return OK


def _ask(yes: bool) -> None:
    """Raise Failure unless the user agrees."""
    if yes:
        return
    if not (sys.stdin and sys.stdin.isatty() and sys.stderr and sys.stderr.isatty()):
        raise Failure(USAGE, "nothing was deleted: --yes agrees where there is no terminal to ask")
    print("delete all of this? y or n: ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise Failure(FAILED, "nothing was deleted: answer y to delete it")


def remove_command(environment: Path) -> str:
    """Find the command that removes an installation in this environment."""
    if (storage := environment.parent.parent).name == EXTENSION:
        return f"uninstall the extension of VS Code, then delete {storage}"
    if "pipx" in environment.parts:
        return "pipx uninstall draftline"
    if environment.parent.name == "tools" and (environment / "uv-receipt.toml").is_file():
        return "uv tool uninstall draftline"
    if (environment / "pyvenv.cfg").is_file():
        return f"delete {environment}, or run `{environment}/bin/python -m pip uninstall draftline`"
    return "python -m pip uninstall draftline"
