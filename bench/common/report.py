"""What bench/decode/decode.py says: progress on stderr, tables and one JSON line on stdout, a file."""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

    from bench.decode.runners import Runners
    from bench.specbench.run import Methods

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("torch", "transformers", "xllamacpp")


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def progress(what: str, place: int, places: int, task: str, method: str) -> None:
    """What is being done: one line that is written over on a terminal, lines elsewhere."""
    line = f"{place + 1}/{places} {task}, {method}, {what}"
    if sys.stderr.isatty():
        print(f"\r\x1b[K{line}", end="", file=sys.stderr, flush=True)
    else:
        say(line)


def machine() -> dict[str, Any]:
    """The processor, its cores and the memory; no name of the machine."""
    name = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        found = re.search(r"model name\s*:\s*(.+)", cpuinfo.read_text())
        name = found.group(1) if found else name
    import psutil

    from engine.model import _kernels

    return {
        "cpu": name,
        "cores": os.cpu_count(),
        "instructions": _kernels.isa(),
        "memory_gb": round(psutil.virtual_memory().total / 1e9, 1),
        "system": platform.system(),
    }


def gpu() -> str:
    """Its name."""
    import torch

    return torch.cuda.get_device_name()


def commit() -> str | None:
    """The checkout's commit, "+" where files were changed; None outside a checkout."""
    try:
        head = ["git", "rev-parse", "--short=12", "HEAD"]
        name = subprocess.run(head, cwd=ROOT, capture_output=True, text=True, check=True).stdout
        dirty = ["git", "status", "--porcelain", "--untracked-files=no"]
        changed = subprocess.run(dirty, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return None
    return name.strip() + ("+" if changed.strip() else "")


def where(device: str) -> dict[str, Any]:
    """The machine, versions, commit and date of a result."""
    versions: dict[str, str | None] = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            versions[name] = None
    known = machine()
    if device.startswith("cuda"):
        known["gpu"] = gpu()
    date = datetime.now(UTC).isoformat(timespec="seconds")
    return {"machine": known, "versions": versions, "commit": commit(), "date": date}


def about(
    options: argparse.Namespace, runners: Runners | Methods, seconds: float
) -> dict[str, Any]:
    """What a reader needs to judge or repeat the figures."""
    return {
        **where(runners.device),
        "model": Path(runners.model).name,
        "device": runners.device,
        "threads": runners.threads,
        "repeats": options.repeats,
        "seconds": round(seconds),
        "load_s": {name: round(took, 2) for name, took in runners.load_s.items()},
        "left_out": runners.left_out,
    }


def tables(width: int) -> Console:
    """For stdout, `width` characters wide in a file."""
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else width)


def begun(record: dict[str, Any], width: int, how: str) -> Console:
    """For the tables: progress is wiped off, and the first line says what was measured, where and
    how."""
    if sys.stderr.isatty():
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)
    console = tables(width)
    known = record["machine"]
    console.print(
        f"{record['model']} on {known.get('gpu') or known['cpu']}, {record['threads']} threads, "
        f"{known['instructions']}; {how}"
    )
    return console


def show(record: dict[str, Any]) -> None:
    """Three tables: every prompt, kinds of prompts, the floor."""
    console = begun(record, 140, f"medians of {record['repeats']}; {record['seconds']} s in all")
    console.print("load: " + ", ".join(f"{k} {v:.1f} s" for k, v in record["load_s"].items()))
    lines = []
    for one in record["results"]:
        equal = {True: "equal", False: "DIFFERENT", None: ""}[one.get("equal")]
        right = {True: "right", False: "wrong", None: ""}[one.get("passes")]
        lines.append(
            [
                one["prompt"],
                one["method"],
                one["dtype"],
                f"{one['tokens']}",
                f"{one['tokens_per_s']:.1f}",
                f"{one['end_to_end_tokens_per_s']:.1f}",
                f"{one['drafted_per_forward']:.1f}",
                f"{one['tokens_per_forward']:.2f}",
                f"{one['ms_per_step']:.1f}",
                interval(one, "ratio_to_plain", "ratio_"),
                f"{equal} {right}".strip(),
            ]
        )
    heads = (
        "prompt method dtype tokens tokens/s end-to-end drafted/pass tokens/pass ms/pass ratio text"
    )
    console.print(table("Decoding", heads, lines))
    heads = "kind prompts method against ratio cost"
    lines = [
        [
            one["kind"] + (" (by path)" if one["sampled"] else ""),
            str(one["prompts"]),
            one["method"],
            one["against"],
            interval(one, "ratio", ""),
            "" if one["cost"] is None else f"{one['cost']:.3f}",
        ]
        for one in record["groups"]
    ]
    console.print(table("How many times as fast", heads, lines))
    heads = "method MB/step GB/s floor/ms step/ms step/floor"
    lines = [
        [
            name,
            f"{one['weight_bytes'] / 1e6:.0f}",
            f"{one['bandwidth_gb_per_s']:.1f}",
            f"{one['floor_ms']:.1f}",
            f"{one['step_ms']:.1f}",
            f"{one['step_over_floor']:.2f}",
        ]
        for name, one in record["floor"].items()
    ]
    console.print(table("One-token steps against reading the weights once", heads, lines))
    if record["acceptance"]:
        heads = "kind temperature prompts equal tokens tokens/pass accepted"
        lines = [[str(value) for value in one.values()] for one in record["acceptance"]]
        console.print(table("What is accepted", heads, lines))
    if record["second_edit"]:
        heads = "case first/tokens second/tokens first/s second/s ratio"
        lines = [[str(value) for value in one.values()] for one in record["second_edit"]]
        console.print(table("Reading the prompt of a second edit", heads, lines))


def interval(line: dict[str, Any], value: str, prefix: str) -> str:
    if line[value] is None:
        return ""
    return f"{line[value]:.2f} [{line[prefix + 'low']:.2f}, {line[prefix + 'high']:.2f}]"


def table(title: str, heads: str, lines: list[list[str]]) -> Any:
    from rich.markup import escape
    from rich.table import Table

    made = Table(title=title, title_justify="left")
    for name in heads.split():
        made.add_column(name, overflow="fold")
    for line in lines:
        made.add_row(*map(escape, line))
    return made


def place(options: argparse.Namespace, runners: Runners) -> Path:
    """Where the results are written: named by what was measured, on what."""
    known = machine()
    short = re.sub(r"\W+", "-", gpu() if runners.device == "cuda" else known["cpu"]).strip("-")
    what = "" if options.kinds == ["file", "edit", "summary"] else "-".join(["", *options.kinds])
    name = f"decode{what}-{Path(runners.model).name}-{short.lower()}.json"
    return options.out or ROOT / "bench" / "results" / name


def write(options: argparse.Namespace, record: dict[str, Any]) -> None:
    """The record as the file `options.out`, whole or not at all."""
    path: Path = options.out
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name)
    with os.fdopen(handle, "w", encoding="utf-8") as out:
        json.dump(record, out, indent=1)
        out.write("\n")
    Path(temporary).chmod(0o644)
    Path(temporary).replace(path)
    say(f"written: {path}")


def last_line(record: dict[str, Any]) -> None:
    print(json.dumps(record), flush=True)
