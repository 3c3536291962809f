"""`draftline demo`: an edit of a sample file, with and without speculation.

The same request runs twice on one engine. The engine forgets the first answer before the second, so
that speculation alone makes the difference in speed.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.config import DEFAULT_MODEL, SMALL_MODEL
from ui.common.consent import agreed
from ui.common.errors import FAILED, OK, say
from ui.common.loading import open_engine, progress_bars
from ui.common.terminal import ratio

if TYPE_CHECKING:
    from engine import Done, Engine, Request
    from ui.common.answer_view import Tally

SAMPLE = Path(__file__).with_name("sample.py")
LINES = (21, 65)
INSTRUCTION = "Rename the parameter `path` to `source` in all methods."


def add_parser(commands: Any) -> None:
    """Add the `demo` command."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "demo", help="edit a sample file with and without speculation, and compare the speeds"
    )
    parser.add_argument("--model", default=SMALL_MODEL, help=f"default: {SMALL_MODEL}")
    for name in ("--device", "--dtype"):
        parser.add_argument(name, help="as in `draftline edit`")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Show the edit, both speeds and their ratio; the exit code is FAILED if the texts differ."""
    from engine import Request
    from engine.editing.diff import diff
    from engine.editing.edits import EditRefused, apply, line_span
    from ui.common import edit_view

    text = SAMPLE.read_text("utf-8")
    selection = line_span(text, *LINES)
    request = Request("edit", text, path=SAMPLE.name, selection=selection, instruction=INSTRUCTION)
    agreed(args.model, yes=True)  # says what it fetches
    with progress_bars() as progress:
        engine = open_engine(args, progress)
    with engine:
        print(f"{engine.info.model}, {engine.info.dtype}, {engine.info.device}")
        print(f"{SAMPLE.name}, lines {LINES[0]} to {LINES[1]}: {INSTRUCTION}\n")
        plain, _ = answer(engine, request, speculation=False)
        drafted, tally = answer(engine, request, speculation=True)
    try:
        edit_view.print_diff(diff(text, apply(request, drafted), Path(SAMPLE.name)))
    except EditRefused as error:
        say(f"the edit was refused: {error}")
    print_comparison(plain, drafted, tally)
    if args.model == SMALL_MODEL != DEFAULT_MODEL:
        print(f"edits that are more often right: `draftline models pull {DEFAULT_MODEL}`")
    return OK if plain.text == drafted.text else FAILED


def answer(engine: Engine, request: Request, speculation: bool) -> tuple[Done, Tally]:
    """Run the request with its progress, on an engine that has forgotten all earlier answers."""
    from ui.common.answer_view import AnswerView

    engine.forget()
    with AnswerView(silent=True) as view:
        return view.follow(engine.submit(request, speculation=speculation)), view.tally


def print_comparison(plain: Done, drafted: Done, tally: Tally) -> None:
    """Print two runs of one request, without and with speculation, side by side."""
    from rich.console import Console
    from rich.table import Table

    table = Table("", "tokens/s", "forward passes", "tokens a pass", "seconds", box=None)
    for name, done in (("plain", plain), ("with speculation", drafted)):
        usage = done.usage
        table.add_row(
            name,
            f"{ratio(usage.completion_tokens, usage.decode_seconds):.1f}",
            str(usage.forwards),
            f"{ratio(usage.completion_tokens, usage.forwards):.2f}",
            f"{usage.decode_seconds:.2f}",
        )
    Console(highlight=False).print(table)
    speedup = ratio(plain.usage.decode_seconds, drafted.usage.decode_seconds)
    sources = ", ".join(
        f"{count / tally.sources.total():.0%} {source}"
        for source, count in tally.sources.most_common()
    )
    print(f"\n{speedup:.1f} times as fast; the text came from: {sources}")
    same = plain.text == drafted.text
    print("both texts are equal" if same else "THE TEXTS DIFFER: this is a bug in draftline")
