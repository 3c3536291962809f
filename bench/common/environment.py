"""The repository, the machine, versions, the commit, and where results are written."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import subprocess
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "bench" / "results"
PACKAGES = ("torch", "transformers", "xllamacpp")


class Setup(Protocol):
    """The objects to compare, once they are loaded."""

    model: str
    device: str
    threads: int
    load_s: dict[str, float]  # seconds to load each method
    left_out: list[str]  # methods that are not measured, and why


def machine() -> dict[str, Any]:
    """Return the processor, its cores and the memory; never the host name."""
    import psutil

    from engine.model import _kernels

    return {
        "cpu": cpu_name(),
        "cores": os.cpu_count(),
        "instructions": _kernels.isa(),
        "memory_gb": round(psutil.virtual_memory().total / 1e9, 1),
        "system": platform.system(),
    }


def cpu_name() -> str:
    """Return the processor's model name."""
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists() and (
        found := re.search(r"model name\s*:\s*(.+)", cpuinfo.read_text("utf-8"))
    ):
        return found.group(1)
    return platform.processor() or platform.machine()


def gpu_name() -> str:
    """Return the name of the current CUDA device."""
    import torch

    return torch.cuda.get_device_name()


def commit() -> str | None:
    """Return the checkout's commit; None outside one.

    "+" is appended if tracked files have changed.
    """
    try:
        head = ["git", "rev-parse", "--short=12", "HEAD"]
        name = subprocess.run(head, cwd=ROOT, capture_output=True, text=True, check=True).stdout
        dirty = ["git", "status", "--porcelain", "--untracked-files=no"]
        changed = subprocess.run(dirty, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return None
    return name.strip() + ("+" if changed.strip() else "")


def versions(packages: Iterable[str] = PACKAGES) -> dict[str, str | None]:
    """Return the versions of Python and of some packages; None for those that are not installed."""
    found: dict[str, str | None] = {"python": platform.python_version()}
    for name in packages:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = None
    return found


def environment(device: str = "cpu", packages: Iterable[str] = PACKAGES) -> dict[str, Any]:
    """Return the machine, versions, commit and date of a result."""
    known = machine()
    if device.startswith("cuda"):
        known["gpu"] = gpu_name()
    return {
        "machine": known,
        "versions": versions(packages),
        "commit": commit(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def run_record(setup: Setup, repeats: int, seconds: float) -> dict[str, Any]:
    """Record what a reader needs to judge or repeat a run that took `seconds`."""
    return {
        **environment(setup.device),
        "model": Path(setup.model).name,
        "device": setup.device,
        "threads": setup.threads,
        "repeats": repeats,
        "seconds": round(seconds),
        "load_s": {name: round(took, 2) for name, took in setup.load_s.items()},
        "left_out": setup.left_out,
    }


def results_path(*parts: str, hardware: str | None = None) -> Path:
    """`bench/results/PARTS-HARDWARE.json`; the hardware defaults to the processor."""
    slug = re.sub(r"\W+", "-", hardware or cpu_name()).strip("-").lower()
    return RESULTS / f"{'-'.join([*parts, slug])}.json"
