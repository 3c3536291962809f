"""`python -m bench apply`: tasks from recorded edits, and a whole run."""

from __future__ import annotations

import difflib
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from bench.apply import apply, tasks
from bench.apply.tasks import MARK
from tests.bench.conftest import RunBench
from tests.conftest import tiny_model

EVERY = tasks.load([apply.SAMPLE], (1, 10**6), 3)


def test_an_update_has_every_changed_line_and_marks_for_the_others() -> None:
    for task in EVERY:
        old, new, update = (
            text.strip("\n").split("\n") for text in (task.before, task.after, task.update)
        )
        shown = [line for line in update if MARK not in line]
        added = [line for line in difflib.ndiff(new, shown) if line.startswith("+ ")]
        assert not added, f"{task.name}: not in the file"
        assert Counter(new) - Counter(old) <= Counter(shown), task.name
        assert task.passes(task.after) and not task.passes(task.before), task.name


def test_what_is_merged_without_a_model_is_exact() -> None:
    """With less context, an update may not show a deletion: only blank lines are around it."""
    for context in (3, 4):
        found = tasks.load([apply.SAMPLE], (1, 10**6), context)
        ended = Counter(apply.without_model(task) for task in found)
        assert not ended["wrong"] and ended["exact"] > len(found) // 4


def test_the_order_is_fixed_and_by_size_and_package() -> None:
    some = tasks.load([apply.SAMPLE], (100, 400), 3)
    assert some == tasks.load([apply.SAMPLE], (100, 400), 3, ["draftline"])
    assert some and all(100 <= task.before.count("\n") <= 400 for task in some)
    assert not tasks.load([apply.SAMPLE], (100, 400), 3, ["other"])


def small_edit(folder: Path) -> Path:
    """A file with one recorded edit, of 12 short lines. Its last lines may stay beside the new."""
    lines = [f"x{n} = {n}" for n in range(12)]
    record: dict[str, Any] = {
        "package": "p", "old_version": "1", "new_version": "2", "path": "p.py",
        "before": "\n".join(lines) + "\n", "after": "\n".join([*lines[:10], "y"]) + "\n",
    }  # fmt: skip
    file = folder / "edits.jsonl"
    file.write_text(json.dumps(record) + "\n", "utf-8")
    return file


def test_a_whole_run(tmp_path: Path, run_bench: RunBench) -> None:
    """A model of random weights chooses by chance: the same with and without speculation."""
    model, out = tiny_model(tmp_path / "tiny", context=4096), tmp_path / "out.json"
    options = ["--model", model, "--lines", "1:50", "--plain", 20, "--context", 2, "--out", out]
    ran = run_bench(apply.main, small_edit(tmp_path), *options)
    assert ran.code == 0, ran.err
    record = json.loads(ran.out.splitlines()[-1])
    assert record == json.loads(out.read_text("utf-8"))
    (group,), (row,) = record["groups"], record["rows"]
    assert (group["tasks"], group["merged"], group["asked"], group["different"]) == (1, 0, 1, 0)
    assert row["equal"] and row["plain_tokens"] == 20 and row["outcome"] in ("exact", "wrong")
    ran = run_bench(apply.main, small_edit(tmp_path), *options, "--kv", "q8")
    assert ran.code == 2 and "kv q8: only a GGUF file" in ran.err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--lines", "100"], "write 100:400"),
        (["--lines", "100000:200000"], "no recorded edit of a file of that size"),
        (["--tasks", "0"], "must be 1 or more"),
        (["missing.jsonl"], "missing.jsonl"),
    ],
)
def test_bad_options(options: list[str], message: str, run_bench: RunBench) -> None:
    ran = run_bench(apply.main, *options)
    assert ran.code == 2 and message in ran.err
