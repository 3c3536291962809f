"""Measure an installation: its size, and how long it takes from nothing to a model's first token.

    python -m bench install WHEEL [--model NAME] [--repeats 5] [--beside PYTHON]

Each repeat makes an empty environment and lets pip install WHEEL into it, with pip's own cache;
then the demo's request is put to the model from an empty cache folder. The model's download is not
part of it. --beside is the Python of another environment with a Draftline in it, such as an older
one: it gets the same request, by turns. "bytecode" is what pip compiles, part of the size.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from time import perf_counter, time
from typing import Any

from bench.common import report
from bench.common.cli import argument_parser, complain
from bench.common.environment import environment, results_path
from engine.config import SMALL_MODEL
from engine.weights import WeightsError, locate
from engine.weights.resolve import gguf_of

CHILD = Path(__file__).with_name("first_token.py")
PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--python")
Row = dict[str, float]


def installed(wheel: Path, folder: Path) -> tuple[Path, Row]:
    """Make a new environment in `folder` with a wheel in it: its Python, seconds, and bytes."""
    began = perf_counter()
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    python = folder / "bin" / "python"
    pip = [*PIP, str(python), "install", "-qq", str(wheel)]
    subprocess.run(pip, check=True, capture_output=True, text=True)
    seconds = perf_counter() - began
    files = [path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]
    sizes = {path: path.stat().st_size for path in files}
    bytecode = sum(size for path, size in sizes.items() if path.suffix == ".pyc")
    return python, {"install_s": seconds, "bytes": sum(sizes.values()), "bytecode": bytecode}


def first_token(python: Path, model: Path, folder: Path) -> Row:
    """Return what `first_token.py` prints, run by this Python in a new folder."""
    home = folder / "home"
    home.mkdir(parents=True)
    done = subprocess.run(
        [python, "-P", CHILD, str(time()), model],
        cwd=folder, env={**os.environ, "DRAFTLINE_HOME": str(home)},
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    found: Row = json.loads(done.stdout.splitlines()[-1])
    return found


def measured(options: argparse.Namespace, model: Path) -> dict[str, list[Row]]:
    """Return the rows of each environment, a row a repeat."""
    rows: dict[str, list[Row]] = {"installed": [], "beside": []}
    for number in range(options.repeats):
        report.progress("installing", number, options.repeats, options.wheel.name, "pip")
        with tempfile.TemporaryDirectory() as name:
            root = Path(name)
            python, row = installed(options.wheel, root / "environment")
            others = [("installed", python)]
            if options.beside:
                others.append(("beside", options.beside))
            for which, each in others if number % 2 else reversed(others):
                (folder := root / which).mkdir()
                rows[which].append(
                    (row if which == "installed" else {}) | first_token(each, model, folder)
                )
    return {name: found for name, found in rows.items() if found}


def main(argv: list[str] | None = None) -> int:
    """Run the benchmark; returns the exit code."""
    parser = argument_parser("install", __doc__)
    parser.add_argument("wheel", type=Path, help="as `make wheel` builds it")
    parser.add_argument("--model", default=SMALL_MODEL, help=f"a GGUF model; {SMALL_MODEL}")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--beside", type=Path, help="the Python of another environment")
    parser.add_argument(
        "--out", type=Path, help="results file; default: bench/results/install-...json"
    )
    options = parser.parse_args(argv)
    if options.repeats < 1:
        parser.error(f"--repeats {options.repeats}: must be 1 or more")
    try:
        model = gguf_of(locate(options.model))
    except WeightsError as error:
        complain("install", error)
        return 2
    if model is None or not options.wheel.is_file():
        wrong = options.model if model is None else options.wheel
        complain("install", f"{wrong}: name a wheel that `make wheel` built, and a GGUF model")
        return 2
    options.wheel = options.wheel.absolute()
    began = perf_counter()
    try:
        rows = measured(options, model)
    except subprocess.CalledProcessError as error:
        complain("install", f"{error.cmd[0]} failed: {(error.stderr or '').strip()[-500:]}")
        return 1
    record: dict[str, Any] = {
        **environment(packages=("pip",)),
        "model": options.model,
        "wheel": options.wheel.name,
        "repeats": options.repeats,
        "seconds": round(perf_counter() - began),
        "results": {
            name: {key: median(row[key] for row in found) for key in found[0]}
            for name, found in rows.items()
        },
        "runs": rows,
    }
    show(record)
    report.write_json(options.out or results_path("install", options.model), record)
    report.print_json_line({key: value for key, value in record.items() if key != "runs"})
    return 0


def show(record: dict[str, Any]) -> None:
    """Print the medians."""
    report.clear_progress()
    lines = []
    for name, row in record["results"].items():
        size, seconds = row.get("bytes"), row.get("install_s")
        lines.append(
            [
                name,
                f"{seconds:.1f}" if seconds else "",
                f"{size / 1e6:.0f}" if size else "",
                f"{row['bytecode'] / 1e6:.0f}" if size else "",
                f"{row['import_s']:.2f}",
                f"{row['import_bytes'] / 1e6:.0f}",
                f"{row['token_s']:.2f}",
                f"{row['token_bytes'] / 1e6:.0f}",
                f"{seconds + row['token_s']:.1f}" if seconds else "",
            ]
        )
    heads = "environment install_s MB bytecode import_s import_MB token_s token_MB all_s"
    report.console(110).print(report.table("From nothing to the first token", heads, lines))
