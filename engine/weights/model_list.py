"""The models that there are for this machine, the memory that they take, and whether it suffices.

They are built-in ones, those of the cache, those that other programs have downloaded, and larger
ones to name by hub id. Nothing is loaded or fetched.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path

from engine.config import DEFAULT_MODEL
from engine.weights.bandwidth import bandwidth
from engine.weights.catalogue.builtins import BUILTINS, LARGER, NEXT_EDITS, HubModel
from engine.weights.catalogue.local_models import LocalModel, Program, details_of, local_models
from engine.weights.errors import WeightsError, one_line, shown
from engine.weights.gguf.parts import size_of
from engine.weights.memory import LIBRARIES_BYTES, folder_memory, gguf_memory, in_gb
from engine.weights.resolve import ResolvedModel, find, folder_bytes, gguf, gguf_of, installed

LEAST_SPEED = 8  # tokens a second, predicted; slower models are not offered
OFFERED_LICENCE = "Apache-2.0"  # some of the others bar commercial use


@dataclass(frozen=True, slots=True)
class Machine:
    """The hardware that decides which models fit."""

    available_bytes: int  # available memory, without swapping
    memory_bytes: int
    gpu_bytes: int  # memory of the largest NVIDIA GPU; 0 without one
    native_bf16: bool  # the CPU computes in bf16; else models of 16 bits run there in f32
    bandwidth: float = 0  # bytes per second that the CPU reads from memory; 0: not measured

    @classmethod
    def this(cls, measured: bool = False) -> Machine:
        """Look at this machine. `measured`: measure its bandwidth too, once and briefly."""
        import psutil  # type: ignore[import-untyped]

        memory = psutil.virtual_memory()
        speed = bandwidth() if measured else 0
        return cls(memory.available, memory.total, _gpu_bytes(), _has_native_bf16(), speed)

    def fits(self, needed_bytes: int, gpu_bytes: int = 0) -> tuple[bool, bool]:
        """Return whether a model fits now, and whether it would if no other program used memory.

        It takes `needed_bytes` on a CPU, or `gpu_bytes` on a GPU (0: not known).
        """
        on_gpu = 0 < gpu_bytes <= self.gpu_bytes
        return (
            on_gpu or needed_bytes <= self.available_bytes,
            on_gpu or needed_bytes <= self.memory_bytes,
        )


def _gpu_bytes() -> int:
    """Return the memory of the largest NVIDIA GPU; 0 without one.

    Calling nvidia-smi spares importing torch.
    """
    command = ["nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return 0
    sizes = [int(line) for line in answer.stdout.split() if line.isdigit()]
    return max(sizes, default=0) << 20


def _has_native_bf16() -> bool:
    """Return whether the CPU computes in bf16, as torch decides it.

    This does not import torch; it is False where there is no /proc/cpuinfo.
    """
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
    fits: bool  # whether the memory that this machine has available now suffices
    fits_alone: bool  # whether it would if no other program used memory
    licence: str
    speed: float = 0  # tokens a second without drafts, predicted, on a CPU; 0: not known

    @property
    def bytes(self) -> int:
        """The bytes on disk, or those to download."""
        return self.download_bytes or self.folder_bytes + self.gguf_bytes

    @property
    def fits_in_words(self) -> str:
        """Whether it fits now, or would if no other program used memory."""
        return "yes" if self.fits else "not now" if self.fits_alone else "no"


def rows(machine: Machine) -> list[Row]:
    """List built-in models, others in the cache, and larger ones on the hub."""
    cached = {model.name: model for model in installed()}
    found = []
    for name, builtin in BUILTINS.items():
        model = cached.pop(name, None) or ResolvedModel(name, None, None)
        needed = gguf_memory(builtin.size)
        fits = machine.fits(needed, folder_memory(builtin.bf16_bytes))
        row = _row(model, builtin.size, needed, fits, builtin.licence)
        speed = machine.bandwidth / builtin.size
        found.append(replace(row, quantization=builtin.quantization, speed=speed))
    for model in cached.values():
        if model.gguf:
            needed = gguf_memory(model.gguf_bytes)
            fits = machine.fits(needed)
        else:
            needed = folder_memory(model.folder_bytes, widened=not machine.native_bf16)
            fits = machine.fits(needed, folder_memory(model.folder_bytes))
        found.append(_row(model, 0, needed, fits, ""))
    for name, known in (LARGER | NEXT_EDITS).items():
        if name not in cached:
            needed, on_gpu = _hub_memory(known, machine)
            row = _row(
                ResolvedModel(name, None, None),
                known.size,
                needed,
                machine.fits(needed, on_gpu),
                known.licence,
                "by hub id",
            )
            kind = "next edits" if name in NEXT_EDITS else "Q4_K_M" if known.is_gguf else "BF16"
            found.append(replace(row, quantization=kind, speed=_speed(known, machine)))
    return found


def larger(machine: Machine) -> list[Row]:
    """List the larger models to offer here, the largest last.

    They are those that fit the card, if it has memory for one; its speed is not measured. Else they
    are those that leave the machine memory for other programs, and write fast enough.
    """
    free = [row for row in rows(machine) if row.fits and row.licence == OFFERED_LICENCE]
    known = [(row, LARGER[row.name]) for row in free if row.name in LARGER]
    has_torch = find_spec("torch") is not None
    on_card = [
        replace(row, speed=0)
        for row, model in known
        if has_torch and 0 < _hub_memory(model, machine)[1] <= machine.gpu_bytes
    ]
    return on_card or [
        row
        for row, model in known
        if 0 < model.least_memory <= machine.memory_bytes and row.speed >= LEAST_SPEED
    ]


def _hub_memory(known: HubModel, machine: Machine) -> tuple[int, int]:
    """Estimate the memory that a model of the hub takes on a CPU, and on a GPU.

    The latter is 0 where it does not run on one.
    """
    if known.is_gguf:
        return gguf_memory(known.size), 0
    return folder_memory(known.size, widened=not machine.native_bf16), folder_memory(known.size)


def _speed(known: HubModel, machine: Machine) -> float:
    """Predict the tokens a second that a model of the hub writes on a CPU without drafts."""
    widened = not known.is_gguf and not machine.native_bf16
    return machine.bandwidth / ((2 if widened else 1) * (known.active_bytes or known.size))


def memory_of(name: str, machine: Machine) -> tuple[int, int]:
    """Estimate the memory that a model takes on a CPU, and on a GPU.

    The latter is 0 where it does not run on one; both are 0 for a model that is not here and not
    known. WeightsError for a name that no model can have.
    """
    folder = find(name)
    if path := gguf(name) or (gguf_of(folder) if folder else None):
        return gguf_memory(size_of(path)), 0
    if folder is not None:
        size = folder_bytes(folder)
        return folder_memory(size, widened=not machine.native_bf16), folder_memory(size)
    if name in BUILTINS:
        return gguf_memory(BUILTINS[name].size), 0
    known = NEXT_EDITS.get(name) or LARGER.get(name)
    return _hub_memory(known, machine) if known else (0, 0)


def check_both_fit(
    name: str, other: str, machine: Machine, instead: Mapping[str, HubModel] = NEXT_EDITS
) -> None:
    """Check that a model fits into memory next to another one, which is loaded.

    WeightsError where it does not, with the largest `instead` of it that would.
    """
    needed, on_gpu = memory_of(name, machine)
    needed -= min(needed, LIBRARIES_BYTES)  # the other one has loaded them
    if machine.fits(needed, on_gpu and on_gpu + memory_of(other, machine)[1])[0]:
        return
    sizes = {name: _hub_memory(one, machine)[0] - LIBRARIES_BYTES for name, one in instead.items()}
    smaller = [one for one, size in sizes.items() if size <= machine.available_bytes]
    remedy = f"choose {smaller[-1]} ({in_gb(sizes[smaller[-1]])})" if smaller else "choose none"
    raise WeightsError(
        f"needs {in_gb(needed)} of memory next to {other} ({in_gb(memory_of(other, machine)[0])}), "
        f"and {in_gb(machine.available_bytes)} are available: {remedy}, or a smaller main model"
    )


def _row(
    model: ResolvedModel,
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
        default=model.name == DEFAULT_MODEL,
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
    """List the models of other programs, and a line for each entry that cannot be run."""
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
    """Make the row of another program's model; None if it is no language model.

    WeightsError for one that cannot run here, as far as the start of its file says it.
    """
    from engine.model.families import knows_architecture  # above this package: it knows them

    facts = details_of(model.path)
    if facts is None:
        return None
    folder = model.path.is_dir()
    if not folder and not knows_architecture(facts.architecture):
        raise WeightsError(f"not supported: {shown(facts.architecture)[1:-1]}")
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


def all_rows(machine: Machine) -> tuple[list[Row], list[str]]:
    """List all models, each once, and a line for each entry that cannot be run.

    Such entries are those of other programs.
    """
    local, problems = local_rows(machine)
    there = {row.name.removeprefix("hub:") for row in local}
    theirs = {Path(row.gguf).resolve() for row in local if row.gguf}
    own = [row for row in rows(machine) if not (row.gguf and Path(row.gguf).resolve() in theirs)]
    hub_ids = [row for row in own if row.state == "by hub id" and row.name not in there]
    return [row for row in own if row.state != "by hub id"] + local + hub_ids, problems
