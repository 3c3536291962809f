"""`draftline drafters`: the ways to draft, one line each; and the options that choose one.

What they do is in `engine.drafting`; none of them changes an answer.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from ui.cli.index import show


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the `drafters` command. Its `run` default is this file's `run`."""
    about = "the ways to draft that --drafter takes, one line each"
    parser = subparsers.add_parser(
        "drafters", help="list the ways to draft", description=f"List {about}.", allow_abbrev=False
    )
    parser.add_argument(
        "-v", "--verbose", action="store_true", help="their options, too, as --drafter takes them"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the list; the exit code."""
    from engine.drafting.registry import DRAFTERS

    width = max(map(len, DRAFTERS)) + 2
    for name, one in DRAFTERS.items():
        show(f"{name:<{width}}{one.line}")
        if args.verbose and one.options:
            given = ",".join(f"{key}={written(value)}" for key, value in one.options.items())
            show(f"{'':<{width}}{name}:{given}")
    return 0


def written(value: object) -> str:
    """An option's value as it is given; dots where there is no default."""
    if value == "":
        return "..."
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Which drafter, what it copies from, and how drafts are verified."""
    add = parser.add_argument
    add(
        "--drafter",
        type=_drafter,
        metavar="NAME",
        help="how answers are drafted (default: auto); `draftline drafters` lists the ways",
    )
    add("--corpus", type=Path, metavar="FILE", help="texts that sam, rest and others draft from")
    add(
        "--verification",
        choices=["match", "rejection"],
        help="of drafts where an answer is sampled; match (default): the text is the same with any "
        "drafter; rejection: Leviathan's and Chen's rule, texts are only distributed alike",
    )


def _drafter(text: str) -> str:
    """A drafter that there is. ArgumentTypeError, one line, for others."""
    from engine.drafting.registry import parse_choice

    try:
        parse_choice(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    return text
