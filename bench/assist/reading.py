"""Fresh tasks through the editor, written down to be read, and what the readers found.

An answer's record shows the instruction, the change and what the product said of it, or what was
offered at the cursor and what its author wrote there. A reader labels each in a file, one line a
task, of which to-label.txt is the beginning: its name, and `right` or `wrong` for an edit,
`useful`, `wrong` or `harmful` for a completion. An edit is right where a reviewer would merge it as
it is.
"""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Iterator
from contextlib import closing
from difflib import unified_diff
from itertools import groupby
from pathlib import Path
from statistics import median
from typing import Any

from bench.assist.editor import Answer, Editor
from bench.assist.fresh import FreshTask, read_tasks
from bench.common import report
from bench.common.environment import RESULTS
from bench.common.stats import ratio_of_sums
from bench.latency.lsp_client import ServerProcess

Row = dict[str, Any]
LABELS = {"edits": ("right", "wrong"), "completions": ("useful", "wrong", "harmful")}
ROWS = "rows.jsonl"  # in the folder of the records
TO_LABEL = "to-label.txt"  # a file of labels, which its reader completes
NONE = "none"  # nothing was changed or offered, so there is nothing to label
CONTEXT_LINES = 12  # lines around a change
BEFORE_LINES, AFTER_LINES = 30, 12  # lines around a cursor


def run(model: str, options: Namespace, settings: Row) -> list[Row]:
    """Do the tasks of --tasks, and write a record of each; --resume leaves out what is done."""
    options.records.mkdir(parents=True, exist_ok=True)
    rows = read_rows(options.records) if options.resume else []
    done = {row["task"] for row in rows}
    tasks = [task for task in read_tasks(options.fresh) if task.part in options.only]
    left = [task for task in tasks if task.name not in done]
    with (options.records / ROWS).open("a" if done else "w", encoding="utf-8") as file:
        for task, answer in answers(model, left, options.fresh.with_suffix(""), settings):
            rows.append(row_of(task, answer))
            (options.records / f"{task.name}.txt").write_text(record(task, answer), "utf-8")
            print(json.dumps(rows[-1]), file=file, flush=True)
            report.say(f"{len(rows)}/{len(tasks)} {task.name}: {rows[-1]['said']}")
    unread = [row for row in sorted(rows, key=lambda row: str(row["task"])) if row["said"] != NONE]
    lines = (f"{row['task']}   # {row['kind']}, {row['said']}\n" for row in unread)
    report.write_text(options.records / TO_LABEL, "".join(lines))
    return rows


def answers(
    model: str, tasks: list[FreshTask], sources: Path, settings: Row
) -> Iterator[tuple[FreshTask, Answer]]:
    """Ask for each task in the workspace of its package, with a server of its own."""

    def package(task: FreshTask) -> str:
        return task.folder

    for folder, group in groupby(sorted(tasks, key=package), package):
        workspace = (sources / folder).resolve()
        if not workspace.is_dir():
            raise ValueError(f"{workspace}: no folder of sources: assist-fresh writes it")
        with closing(ServerProcess(model)) as served:
            client = served.client()
            client.start(workspace, settings)
            editor = Editor(client, workspace)
            for task in group:
                yield task, (editor.edit if task.part == "edits" else editor.complete)(task)


def row_of(task: FreshTask, answer: Answer) -> Row:
    edit = task.part == "edits"
    nothing = not answer.text or (edit and answer.text == task.text)
    warned = "warned" if answer.warnings else "not warned"
    said = NONE if nothing else "by rule" if answer.by_rule else warned if edit else "offered"
    return {
        "task": task.name,
        "part": task.part,
        "kind": task.kind,
        "package": task.package,
        "lines": task.lines,
        "said": said,
        "warned": bool(answer.warnings),
        "by_rule": answer.by_rule,
        "seconds": round(answer.seconds, 2),
    }


def record(task: FreshTask, answer: Answer) -> str:
    """Write down a task and its answer, to be read."""
    start, stop = task.selection
    lines = task.text.count("\n", 0, start) + 1, task.text.count("\n", 0, stop) + 1
    head = [
        f"{task.name}: {task.kind}",
        f"{task.package} {task.version} ({task.date}, {task.licence}), {task.file}, "
        + (f"lines {lines[0]} to {lines[1]}" if start < stop else f"line {lines[0]}"),
        f"{answer.seconds:.1f} s",
    ]
    if task.part == "edits":
        head += [f"instruction: {task.instruction}", f"by rule: {answer.by_rule}"]
        head += [f"warning: {warning}" for warning in answer.warnings]
        head += [f"said: {answer.reason}"] if answer.reason else []
        sides = [text.splitlines() for text in (task.text, answer.text or task.text)]
        shown = [*unified_diff(*sides, "before", "after", n=CONTEXT_LINES, lineterm="")]
        return "\n".join([*head, "", *(shown or ["nothing is changed", task.text[start:stop]]), ""])
    before = "\n".join(task.before.split("\n")[-BEFORE_LINES:])
    after = "\n".join(task.after.split("\n")[:AFTER_LINES])
    offered = answer.text or f"nothing: {answer.reason}"
    parts = {
        "what is offered at ¦": offered,
        "what its author wrote": task.follows,
        "the file": f"{before}¦{after}",
    }
    return "\n".join(head) + "".join(f"\n\n== {name}\n{text}" for name, text in parts.items())


# -- labels ------------------------------------------------------------------------------------


def read_rows(folder: Path) -> list[Row]:
    """Read the rows of a run. OSError where there are none."""
    return [json.loads(line) for line in (folder / ROWS).read_text("utf-8").splitlines()]


def labelled(rows: list[Row], path: Path) -> list[Row]:
    """Give each row its label; one with nothing to label gets `none`.

    ValueError names a label that is unknown, and the first task without one.
    """
    parts = {row["task"]: row["part"] for row in rows}
    labels: dict[str, str] = {}
    for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
        if not (words := line.split("#")[0].split()):
            continue
        known = LABELS.get(parts.get(words[0], ""), ())
        if len(words) != 2 or words[1] not in known:
            raise ValueError(
                f"{path}, line {number}: {line!r}: a task's name and one of {', '.join(known)}"
                if known
                else f"{path}, line {number}: {line!r}: no task has this name"
            )
        labels[words[0]] = words[1]
    rows = [row | {"label": labels.get(row["task"], NONE)} for row in rows]
    for row in rows:
        if row["label"] == NONE and row["said"] != NONE:
            raise ValueError(f"{path}: {row['task']} has no label")
    return rows


def figures(rows: list[Row]) -> list[Row]:
    """Return each outcome's count and share, with its 95 % bootstrap interval over the tasks."""
    lines = []
    for part in LABELS:
        own = [row for row in rows if row["part"] == part]
        for what, hits in outcomes(part, own).items() if own else ():
            share = ratio_of_sums([(float(hit), 1.0) for hit in hits])
            counts = {"part": part, "outcome": what, "count": sum(hits), "of": len(own)}
            lines.append(counts | share._asdict())
    return lines


def outcomes(part: str, rows: list[Row]) -> dict[str, list[bool]]:
    """Tell for each outcome which rows have it."""
    found = {name: [row["label"] == name for row in rows] for name in (*LABELS[part], NONE)}
    if part == "edits":
        for name in LABELS[part]:
            for said, warned in (("without a warning", False), ("with a warning", True)):
                found[f"{name}, {said}"] = [
                    row["label"] == name and row["warned"] == warned for row in rows
                ]
        found["made by rule"] = [row["by_rule"] for row in rows]
    return found


def known(model: str, sizes: dict[str, int]) -> list[Row]:
    """Return the rows of the newest result of the tasks that the checks know; [] without one.

    `sizes`: the lines of each task's text.
    """
    paths = RESULTS.glob(f"assist-{model}-*.json")
    results = [json.loads(path.read_text("utf-8")) for path in paths]
    newest = max(results, key=lambda one: str(one["date"]), default={"rows": []})
    rows = [row for row in newest["rows"] if row["task"] in sizes]
    return [row | {"label": _label(row), "lines": sizes[row["task"]]} for row in rows]


def _label(row: Row) -> str:
    """Translate the outcome that the rules found into a reader's label; partly done is wrong."""
    outcome, edit = row["outcome"], row["part"] == "edits"
    if outcome == "right" and not edit:
        return "useful"
    if outcome == "partly" or (outcome == "harmful" and edit):
        return "wrong"
    return str(outcome)


def show(sets: dict[str, list[Row]]) -> None:
    """Print the figures of the sets of tasks next to each other, and the sizes of their texts."""
    console = report.console(100)
    shares = {
        name: {(one["part"], one["outcome"]): one for one in figures(rows)}
        for name, rows in sets.items()
    }
    for part in LABELS:
        keys = dict.fromkeys(key for one in shares.values() for key in one if key[0] == part)
        lines = [
            [key[1], *(cell(one[key]) if key in one else "" for one in shares.values())]
            for key in keys
        ]
        for name, pick in (("least", min), ("median", median), ("most", max)):
            found = ([r["lines"] for r in rows if r["part"] == part] for rows in sets.values())
            cells = [f"{pick(sizes):.0f}" if sizes else "" for sizes in found]
            lines.append([f"lines, {name}", *cells])
        console.print(report.table(part.capitalize(), " ".join(["outcome", *sets]), lines))


def cell(figure: Row) -> str:
    """Write a count and its share with the interval: 6 of 20, 30 % [10, 50]."""
    low, high = 100 * figure["low"], 100 * figure["high"]
    share = f"{100 * figure['value']:.0f} % [{low:.0f}, {high:.0f}]"
    return f"{figure['count']} of {figure['of']}, {share}"
