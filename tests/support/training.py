"""A folder for training the drafter's weights: a tokenizer, edits, and a small n-gram."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from engine.drafting.stdlib_ngram import StdlibNgram
from engine.prompts.tokenizer import Tokenizer
from index.workspace.array_file import write
from tests.conftest import CORPUS
from tests.support.index_command import make_model

CODE = "".join(CORPUS[:6])
STEP = {"old_version": "1", "new_version": "2"}


def record(package: str, path: str, before: str, after: str) -> dict[str, str]:
    """One line of a file of edits."""
    return {"package": package, "path": path, "before": before, "after": after} | STEP


def records() -> list[dict[str, str]]:
    """Renames and insertions in two packages of two files."""
    found = []
    for package, name in (("one", "first"), ("two", "second")):
        for n in range(2):
            before = CODE + f"def use_{n}(left):\n    return add(left, {n})\n"
            after = before.replace("left", name).replace("class", f"# {name}\nclass")
            found.append(record(package, f"{n}.py", before, after))
    return found


def save_small_library(folder: Path, model: Path) -> None:
    """Save an n-gram of one file in `sources` as that of the standard library in `home`."""
    (folder / "sources").mkdir()
    (folder / "sources" / "a.py").write_text(CODE * 9)
    tokenizer = Tokenizer(model)
    small, library = (
        StdlibNgram(folder / "home", tokenizer, at) for at in (folder / "sources", None)
    )
    for _ in small.build():
        pass
    write(library.file, library.fingerprint, {}, {"table": np.array(small.ngram.table)})


def make_place(folder: Path, make: Callable[[Path], Any] = make_model) -> Path:
    """`model` is a tokenizer's folder; `home` a cache whose n-gram is built from one file in
    `sources`, since counting the whole standard library takes a minute."""
    (folder / "model").mkdir()
    make(folder / "model")
    save_small_library(folder, folder / "model")
    lines = [json.dumps(one) for one in records()]
    (folder / "edits.jsonl").write_text("\n".join(lines) + "\n")
    return folder
