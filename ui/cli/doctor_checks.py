"""What Draftline needs of a machine, checked one by one, each with a remedy.

Nothing is changed, fetched or asked of the network. torch is asked in a process of its own, so that
an installation that crashes is reported too.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from engine.config import MODEL_VARIABLE
from index.os_calls import IS_WINDOWS
from ui.common.errors import reason
from ui.common.terminal import format_bytes

State = Literal["ok", "warn", "fail"]
OLDEST_PYTHON = (3, 11)
CHILD_TIMEOUT_S = 120
MIN_WATCHES = 65_536  # watched folders of all programs of a user
MIN_WATCH_INSTANCES = 64
MIN_FREE_BYTES = 1_000_000_000  # bytes next to the model: indexes, token ids
WATCH_LIMITS = Path("/proc/sys/fs/inotify")
FOLDER_REMEDY = "check its owner and permissions"
REINSTALL = "install Draftline again"
TORCH_CODE = """
import json, torch
from engine.model.torch.placement import choose_device
from engine.model.unsupported import UnsupportedModel
count, refused = torch.cuda.device_count() if torch.cuda.is_available() else 0, ""
try:
    count and choose_device("cuda")
except UnsupportedModel as error:
    refused = str(error)
about = {"version": torch.__version__, "cuda": torch.version.cuda, "cards": count}
print(json.dumps(about | {"refused": refused}))
"""
NVIDIA_QUERY = "name,driver_version,memory.total,memory.free"


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check found. `remedy`: what to do, unless all is well."""

    name: str
    state: State
    what: str
    remedy: str = ""


def checks(port: int) -> Iterator[Finding]:
    """Run all checks, in the order in which an installation is used.

    `port` is that of `draftline serve`.
    """
    yield python()
    yield native_code()
    yield compiler()
    cards = nvidia_cards()
    yield torch(bool(cards))
    yield card(cards)
    yield model()
    yield memory()
    yield disk()
    yield cache_folder()
    if not IS_WINDOWS:  # Windows has no shared server
        yield runtime_folder()
    yield watch_limits()
    yield edits()
    yield serve_port(port)


def python() -> Finding:
    """Check the interpreter's version and word size."""
    from index.version import version_and_commit

    found = f"{sys.version.split()[0]} at {sys.executable}, draftline {version_and_commit()}"
    if sys.version_info < OLDEST_PYTHON:
        return Finding("python", "fail", found, "install Draftline with Python 3.11 or newer")
    if sys.maxsize < 1 << 32:
        return Finding("python", "fail", f"{found}, 32 bits", "use a Python of 64 bits")
    return Finding("python", "ok", found)


def native_code() -> Finding:
    """Check that the three native modules load; name the instruction set that the kernels chose."""
    try:
        from engine.drafting import _drafting  # noqa: F401
        from engine.model import _kernels
        from index import _core  # noqa: F401
    except ImportError as error:
        return Finding("native code", "fail", str(error), f"{REINSTALL} with this Python")
    used = _kernels.isa()
    if used == "plain":
        why = "no AVX2: models run, but slowly"
        return Finding("native code", "warn", why, "choose the smallest model, or another machine")
    return Finding("native code", "ok", f"loads; the kernels use {used}")


def compiler() -> Finding:
    """Look for a C++ compiler, which only a build from source needs."""
    names = [name for name in (os.environ.get("CXX", ""), "c++", "g++", "clang++") if name]
    found = next((path for name in names if (path := shutil.which(name))), None)
    if found is None:
        return Finding("compiler", "ok", "none; only a build from source needs one")
    return Finding("compiler", "ok", found)


def nvidia_cards() -> list[list[str]]:
    """List name, driver, memory and free memory (MiB) of each NVIDIA card.

    The list is empty without a driver.
    """
    command = ["nvidia-smi", f"--query-gpu={NVIDIA_QUERY}", "--format=csv,noheader,nounits"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return []
    rows = [[cell.strip() for cell in line.split(",")] for line in answer.stdout.splitlines()]
    return [row for row in rows if answer.returncode == 0 and len(row) == 4]


def torch(has_card: bool) -> Finding:
    """Check that torch is installed where it is needed, and loads."""
    from engine.model.opening import INSTALL

    missing = [name for name in ("torch", "transformers") if find_spec(name) is None]
    if not missing:
        return torch_build(has_card)
    what = f"{missing[0]} is not installed"
    if has_card:
        return Finding("torch", "warn", f"{what}, so models cannot run on the card", INSTALL)
    return Finding("torch", "ok", f"{what}; GGUF models on a CPU do not need it")


def torch_build(has_card: bool, code: str = TORCH_CODE) -> Finding:
    """Check which torch is installed, and whether it can use the card."""
    try:
        ran = subprocess.run(
            [sys.executable, "-P", "-c", code],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=CHILD_TIMEOUT_S,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return Finding("torch", "fail", f"does not start: {error}", REINSTALL)
    if ran.returncode != 0:
        lines = ran.stderr.strip().splitlines() or [f"it ended with status {ran.returncode}"]
        return Finding("torch", "fail", f"cannot be loaded: {lines[-1]}", REINSTALL)
    about = json.loads(ran.stdout)
    build = f"CUDA {about['cuda']}" if about["cuda"] else "for the CPU"
    found = f"{about['version']}, {build}"
    if has_card and not about["cuda"]:
        remedy = f"{REINSTALL} with a CUDA build of torch (make TORCH=cuda) to use the card"
        return Finding("torch", "warn", f"{found}, next to an NVIDIA card", remedy)
    if has_card and not about["cards"]:
        remedy = "update NVIDIA's driver, or install a torch of an older CUDA"
        return Finding("torch", "warn", f"{found}, which finds no card", remedy)
    if about["refused"]:
        why, remedy = about["refused"].rsplit(": ", 1)
        return Finding("torch", "warn", f"{found}; {why}", remedy)
    return Finding("torch", "ok", found)


def card(cards: list[list[str]]) -> Finding:
    """Check the NVIDIA cards and their driver."""
    if not cards:
        if Path("/proc/driver/nvidia/version").exists():
            what = "a driver of NVIDIA is loaded, but nvidia-smi lists no card"
            return Finding("card", "warn", what, "run nvidia-smi and see what it says")
        return Finding("card", "ok", "no NVIDIA card: models run on the CPU")
    shown = [f"{name} ({free} of {total} MiB free)" for name, _, total, free in cards]
    return Finding("card", "ok", f"{'; '.join(shown)}; driver {cards[0][1]}")


def model() -> Finding:
    """Check that the usual model is here and undamaged, and that what is installed can run it."""
    from engine.model.opening import INSTALL
    from engine.weights import WeightsError, find, verify
    from engine.weights.fetch.download import download_of, usual_model
    from engine.weights.resolve import gguf_of

    try:
        name = usual_model()
        missing = download_of(name)
        folder = find(name)
        if missing is None:
            verify(name)
    except WeightsError as error:
        return _bad_model(str(error))
    except OSError as error:
        return _bad_model(f"{error.filename}: {reason(error)}: {FOLDER_REMEDY}")
    if missing is not None:
        what = f"{name} is not on this machine ({missing.described})"
        return Finding("model", "warn", what, f"`draftline models pull {name}`")
    if folder and gguf_of(folder) is None and find_spec("torch") is None:
        what = f"{name}: safetensors files need torch, which is not installed"
        return Finding("model", "fail", what, INSTALL)
    return Finding("model", "ok", f"{name}{f' in {folder}' if folder else ''}")


def _bad_model(why: str) -> Finding:
    """Make the finding of a model's error.

    `why` is one line that ends with the remedy, as all errors of models do.
    """
    what, _, remedy = why.rpartition(": ")
    named_by = f"{MODEL_VARIABLE}: " if os.environ.get(MODEL_VARIABLE) else ""
    return Finding("model", "fail", f"{named_by}{what}", remedy)


def memory() -> Finding:
    """Check whether that model fits the memory that is available now."""
    from engine.weights import WeightsError
    from engine.weights.fetch.download import usual_model
    from engine.weights.model_list import Machine, memory_of

    machine = Machine.this()
    available = format_bytes(machine.available_bytes)
    what = f"{available} of {format_bytes(machine.memory_bytes)} are available"
    try:
        name = usual_model()
        needed, on_card = memory_of(name, machine)
    except (WeightsError, OSError):  # `model` says why
        return Finding("memory", "ok", what)
    fits_now, fits_alone = machine.fits(needed, on_card)
    what = f"{what}, {name} takes {format_bytes(needed)}"
    if not fits_alone:
        return Finding("memory", "fail", what, "choose a smaller model: `draftline models`")
    if not fits_now:
        remedy = "close other programs, or choose a smaller model: `draftline models`"
        return Finding("memory", "warn", what, remedy)
    return Finding("memory", "ok", what)


def disk() -> Finding:
    """Check the free space for the model, if it must be fetched, and for indexes."""
    from engine.weights import WeightsError, home
    from engine.weights.fetch.download import download_of, free_where_the_cache_is, usual_model

    try:
        missing = download_of(usual_model())
    except (WeightsError, OSError):  # `model` says why
        missing = None
    free = free_where_the_cache_is()
    needed = (missing.size if missing else 0) + MIN_FREE_BYTES
    what = f"{format_bytes(free)} are free at {home()}"
    remedy = "free some space (`draftline storage` shows what is stored) or move DRAFTLINE_HOME"
    if missing and free < missing.size:
        why = f"{what}, {missing.model} takes {format_bytes(missing.size)}"
        return Finding("disk", "fail", why, remedy)
    return Finding("disk", "warn" if free < needed else "ok", what, remedy if free < needed else "")


def cache_folder() -> Finding:
    """Check whether the cache folder is this user's, and can be written."""
    from engine.weights import home
    from index.cache_folder import check_cache_folder

    return _writable("cache folder", home().resolve(), check_cache_folder)


def runtime_folder() -> Finding:
    """Check whether the folder of the shared server's socket is this user's alone."""
    from engine.remote.address import check_private, runtime_folder

    return _writable("runtime folder", runtime_folder(), check_private)


def _writable(name: str, folder: Path, check: Callable[[Path], None]) -> Finding:
    """Check whether a file can be made in the folder, or the folder itself.

    `check` raises OSError for what else is wrong with the folder.
    """
    existing = folder
    try:
        while not os.path.lexists(existing):
            existing = existing.parent
        if existing == folder:
            check(folder)
    except OSError as error:
        return Finding(name, "fail", f"{error.filename or folder}: {reason(error)}", FOLDER_REMEDY)
    try:
        with tempfile.TemporaryFile(dir=existing):
            pass
    except OSError as error:
        what = f"{existing} cannot be written: {reason(error)}"
        return Finding(name, "fail", what, FOLDER_REMEDY)
    return Finding(name, "ok", f"{folder}{'' if existing == folder else ' (made when needed)'}")


def edits() -> Finding:
    """Find out how edits can be tried here: by commands of the user, and by linters."""
    from engine.editing.running import sandbox
    from engine.editing.running.linters import LINTERS, program

    here = Path.cwd()
    found = [one.name for one in LINTERS if program(one, here, safe_only=False)]
    linters = f"linters for --check auto: {', '.join(found) or 'none'}"
    try:
        sandbox.ensure()
    except sandbox.SandboxError as error:
        what, _, remedy = str(error).partition(": ")
        return Finding("edits", "warn", f"{what}; {linters}", remedy)
    return Finding("edits", "ok", f"--check runs commands apart; {linters}")


def watch_limits(limits: Path = WATCH_LIMITS) -> Finding:
    """Check Linux's limits on watched folders: beyond them changed files are found by polling."""
    try:
        watches = int((limits / "max_user_watches").read_text())
        instances = int((limits / "max_user_instances").read_text())
    except (OSError, ValueError):
        return Finding("watches", "ok", "this system has no limits of inotify")
    what = f"{watches:,} folders, {instances:,} watchers a user"
    small = []
    if watches < MIN_WATCHES:
        small.append(f"fs.inotify.max_user_watches={8 * MIN_WATCHES}")
    if instances < MIN_WATCH_INSTANCES:
        small.append(f"fs.inotify.max_user_instances={8 * MIN_WATCH_INSTANCES}")
    if small:
        return Finding("watches", "warn", what, f"`sudo sysctl -w {' '.join(small)}`")
    return Finding("watches", "ok", what)


def serve_port(port: int) -> Finding:
    """Check whether `draftline serve` could listen there."""
    with socket.socket() as tried:
        if not IS_WINDOWS:  # there it would take a port that is in use
            tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind(("127.0.0.1", port))
        except OSError as error:
            what = f"{port}: {error.strerror}, by a running `draftline serve` or another program"
            return Finding("port", "warn", what, "`draftline serve --port 0` takes a free one")
    return Finding("port", "ok", f"{port} is free for `draftline serve`")
