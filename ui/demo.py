"""`draftline demo`: a real edit of a sample file, with and without speculation.

The same request runs twice on one engine, which forgets the first answer before it gives the
second, so the two speeds differ by speculation alone.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from engine import Done, Engine, Request

SAMPLE = Path(__file__).with_name("sample.py")
LINES = (21, 65)
INSTRUCTION = "Rename the parameter `path` to `source` in all methods."


def add_parser(commands: Any) -> None:
    """`draftline demo [--model M] [--device D] [--dtype T]`."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "demo", help="edit a sample file with and without speculation, and compare"
    )
    for name in ("--model", "--device", "--dtype"):
        parser.add_argument(name, help="as in `draftline edit`")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print diff, speeds, their ratio, and whether both texts are equal: 1 if they are not."""
    from engine import Config, Engine, Request
    from engine.editing.edits import EditRefused, apply, line_span
    from engine.model.hf_model import UnsupportedModel
    from engine.weights import WeightsError
    from ui import terminal
    from ui.cli import models

    text = SAMPLE.read_text("utf-8")
    selection = line_span(text, *LINES)
    request = Request("edit", text, path=SAMPLE.name, selection=selection, instruction=INSTRUCTION)
    chosen = {name: getattr(args, name) for name in ("model", "device", "dtype")}
    config = Config(**{name: value for name, value in chosen.items() if value is not None})
    try:
        with models.progress_bars() as progress:
            engine = Engine(config, progress=progress)
    except (WeightsError, UnsupportedModel, OSError, ValueError) as error:
        print(f"draftline: {error}", file=sys.stderr)
        return 3
    with engine:
        print(f"{config.model}, {engine.info.dtype}, {engine.info.device}")
        print(f"{SAMPLE.name}, lines {LINES[0]} to {LINES[1]}: {INSTRUCTION}\n")
        plain, _ = answer(engine, request, speculation=False)
        drafted, tally = answer(engine, request, speculation=True)
    try:
        terminal.print_diff(terminal.diff(text, apply(request, drafted), Path(SAMPLE.name)))
    except EditRefused as error:
        print(f"the edit was refused: {error}")
    terminal.print_comparison(plain, drafted, tally)
    return 0 if plain.text == drafted.text else 1


def answer(engine: Engine, request: Request, speculation: bool) -> tuple[Done, Any]:
    """One run, shown while it goes; nothing of an earlier one is copied."""
    from engine import Done
    from ui import terminal

    engine.forget()
    with terminal.View(verbose=False) as view:
        for event in engine.submit(request, speculation=speculation):
            if isinstance(event, Done):
                return event, view.tally
            view.step(event)
    raise RuntimeError("the stream ended without a Done")
