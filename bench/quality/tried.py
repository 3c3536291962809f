"""Edits that are tried by a command: the record's own tests choose among the model's answers."""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.common.engine_thread import in_engine_thread
from bench.quality import run as quality_run
from bench.quality import tasks
from bench.quality.tasks import PLACE, Record
from engine import Engine, RequestError
from engine.editing.dialogue import Ask, advance, judge, tried_dialogue
from engine.editing.edits import EditRefused, too_long
from engine.editing.running.trial import Trial
from engine.records import Done, Request

Row = dict[str, Any]
CHECK = """import pathlib
code = pathlib.Path("task.py").read_text()
tests = pathlib.Path("tests.txt").read_text()
exec(compile(tests.replace({place!r}, code), "program", "exec"), {{"__name__": "__main__"}})
"""


def edit(engine: Engine, record: Record, kind: str, mode: str) -> tuple[Row, str]:
    """Return the row of one edit, and the new text ("" if it was refused).

    `greedy` tells whether the first answer alone passes, `greedy_seconds` what it took.
    """
    asked = tasks.request(record, kind, mode)
    in_engine_thread(engine, engine.forget)
    with tempfile.TemporaryDirectory(prefix="quality-tried-") as place:
        folder = Path(place)
        file = folder / "task.py"
        file.write_text(record.before, "utf-8")
        (folder / "tests.txt").write_text(record.tests, "utf-8")
        (folder / "check.py").write_text(CHECK.format(place=PLACE), "utf-8")
        words = (sys.executable, "-B", "check.py")
        trial = Trial(words, file, folder, seconds=quality_run.TIME_LIMIT_S)
        row: Row = {"equal": True, "tokens": 0, "forwards": 0, "candidates": 0, "greedy": False}
        began = time.perf_counter()
        try:
            if why := too_long(asked, engine.config.model):
                raise EditRefused(f"the whole file is too long for the model: {why}")
            steps = tried_dialogue(asked, trial)
            step = advance(steps)
            while isinstance(step, Ask):
                done = engine.submit(step.request).result()
                _count(row, record, asked, done, time.perf_counter() - began)
                step = advance(steps, done)
        except (EditRefused, RequestError) as error:
            why = str(error).split(":")[0]
            seconds = time.perf_counter() - began
            return row | {"outcome": "refused", "why": why, "seconds": seconds}, ""
    row["seconds"] = time.perf_counter() - began
    verdict = quality_run.run(record.program(step.text))
    must, kept = tasks.untouched(record.before, record.after, step.text)
    row |= {"outcome": "passed" if verdict.passed else "failed", "why": verdict.why}
    row |= {"seen": step.seen, "checked": bool(step.checked), "warned": bool(step.failed)}
    unchanged = step.text == record.before
    return row | {"unchanged": unchanged, "must_stay": must, "stayed": kept}, step.text


def _count(row: Row, record: Record, asked: Request, done: Done, seconds: float) -> None:
    """Count an answer; of the first one, note whether it is right."""
    row["candidates"] += 1
    row["tokens"] += done.usage.completion_tokens
    row["forwards"] += done.usage.forwards
    if row["candidates"] == 1:
        row["greedy_seconds"] = seconds
        try:
            text = judge(asked, done).text
        except EditRefused:
            return
        row["greedy"] = quality_run.run(record.program(text)).passed


def figures(rows: list[Row]) -> Row:
    """Return the shares of right edits with and without the command, and the time it takes."""
    timed = [row for row in rows if "greedy_seconds" in row]
    greedy_s = sum(row["greedy_seconds"] for row in timed)
    return {
        "greedy_passed": round(sum(row["greedy"] for row in rows) / len(rows), 4),
        "checked": sum(row.get("checked", False) for row in rows),
        "checked_but_wrong": sum(
            row.get("checked", False) and row["outcome"] != "passed" for row in rows
        ),
        "times_greedy": round(sum(r["seconds"] for r in timed) / greedy_s, 2) if greedy_s else None,
    }
