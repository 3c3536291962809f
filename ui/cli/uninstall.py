"""`draftline uninstall`: say what is stored on this machine, ask, and delete it.

The program itself is deleted by what installed it, which the last lines name.
"""

from __future__ import annotations

import argparse
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from ui.cli.options import add_command
from ui.common.errors import FAILED, OK, USAGE, Failure
from ui.common.terminal import format_bytes, write_line

EXIT_CODES = """exit codes:
  0    done
  1    not agreed, a server runs, or something could not be deleted
  2    usage; without a terminal: --yes was not given
  130  interrupted
"""
EXTENSION = "draftline.draftline"  # its storage has this name
ELSEWHERE = (
    "Not deleted: what you exported or trained into files of your own, keys of engines in the\n"
    "system's key ring (service `draftline`), models of other programs, and what the extension of\n"
    f"VS Code installed: the folder globalStorage/{EXTENSION} of VS Code's user data."
)


def add_parser(commands: Any) -> None:
    """Add the `uninstall` command."""
    parser = add_command(
        commands,
        "uninstall",
        run,
        "delete everything that Draftline stored",
        "List everything that Draftline stored on this machine, ask, and delete it.",
        EXIT_CODES,
    )
    parser.add_argument("--yes", action="store_true", help="delete without asking")


def run(args: argparse.Namespace) -> int:
    """List, ask, delete, and say how the program itself is removed."""
    from engine.remote.address import runtime_folders
    from engine.weights import home
    from ui.cli import storage

    try:
        stored = [(part, storage.paths_of(part)) for part in storage.PARTS]
        sockets = storage.sockets()
        if any(paths for _, paths in stored) or sockets:
            _list(stored, sockets)
            if running := storage.running_servers():
                why = f"{running[0]}: a server runs"
                raise Failure(
                    FAILED, f"{why}: close the editors and end `draftline serve`, then try again"
                )
            _ask(args.yes)
            freed = sum(storage.delete(part) for part, _ in stored)
            for path in sockets:
                storage.delete_path(path)
            for folder in dict.fromkeys([*runtime_folders(), home()]):
                with suppress(OSError):  # others' files are in it
                    folder.rmdir()
            write_line(f"Freed: {format_bytes(freed)}")
        else:
            write_line(f"Nothing is stored in {home()}.")
        has_others = home().is_dir() and any(home().iterdir())
    except OSError as error:
        raise storage.failure(error) from error
    if has_others:
        write_line(f"{home()} holds files that are not Draftline's, and stays.")
    for line in ELSEWHERE.splitlines():
        write_line(line)
    write_line(f"To remove the program: {remove_command(Path(sys.prefix))}")
    return OK


def _list(stored: list[tuple[Any, list[Path]]], sockets: list[Path]) -> None:
    from ui.cli import storage

    for part, paths in stored:
        if paths:
            size = format_bytes(storage.size_of(paths))
            write_line(f"{part.name:<11} {size:>10}  {part.about}, in {paths[0].parent}")
    if sockets:
        size = format_bytes(storage.size_of(sockets))
        write_line(f"{'sockets':<11} {size:>10}  and logs of servers, in {sockets[0].parent}")


def _ask(yes: bool) -> None:
    """Raises Failure unless the user agrees."""
    if yes:
        return
    if not (sys.stdin and sys.stdin.isatty() and sys.stderr and sys.stderr.isatty()):
        raise Failure(USAGE, "nothing was deleted: --yes agrees where there is no terminal to ask")
    print("delete all of this? y or n: ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise Failure(FAILED, "nothing was deleted: answer y to delete it")


def remove_command(environment: Path) -> str:
    """The command that removes an installation in this environment."""
    if (storage := environment.parent.parent).name == EXTENSION:
        return f"uninstall the extension of VS Code, then delete {storage}"
    if "pipx" in environment.parts:
        return "pipx uninstall draftline"
    if environment.parent.name == "tools" and (environment / "uv-receipt.toml").is_file():
        return "uv tool uninstall draftline"
    if (environment / "pyvenv.cfg").is_file():
        return f"delete {environment}, or run `{environment}/bin/python -m pip uninstall draftline`"
    return "python -m pip uninstall draftline"
