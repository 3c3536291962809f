"""`draftline drafters`: list the drafting methods, those of plug-ins included.

None of them changes an answer.
"""

from __future__ import annotations

import argparse
from typing import Any

from ui.common.errors import OK, say
from ui.common.terminal import write_line


def add_parser(commands: Any) -> None:
    """Add the `drafters` command."""
    parser = commands.add_parser(
        "drafters",
        help="list the drafting methods",
        description="List the drafting methods that --drafter takes, one a line.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "-v", "--verbose", action="store_true", help="show their options as --drafter takes them"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the list."""
    from engine.drafting.registry import usable_drafters

    found = usable_drafters(say)
    width = max(map(len, found)) + 2
    for name, entry in found.items():
        write_line(f"{name:<{width}}{entry.summary}")
        if args.verbose and entry.options:
            options = ",".join(f"{key}={_written(value)}" for key, value in entry.options.items())
            write_line(f"{'':<{width}}{name}:{options}")
    return OK


def _written(value: object) -> str:
    """Write an option's default as a user would; `...` if there is none."""
    if value == "":
        return "..."
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)
