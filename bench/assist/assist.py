"""Measure what a user of an editor is shown: instructions and completions, scored by rules.

    python -m bench assist [--model NAME ...] [--only edits,completions] [--checks on|off]

A real server process with a real model gets sample files in Python, TypeScript, Go, Rust and
Markdown (bench/assist/samples), as an editor sends them, with the default settings, except that a
completion gets a minute: 55 instructions for 10 to 60 lines each, and 123 places to complete. As
for a user who types, what is written after 0.6 s is offered up to its last whole line, so the
machine should do nothing else meanwhile. What it answers is applied and scored right, partly,
wrong, harmful or none (bench/assist/score.py says by which rules); programs that decide about
Python run in a sandbox (bench/quality/run.py).

    python -m bench assist --tasks FILE --records FOLDER [--labels FILE]

asks for the tasks that `assist-fresh` made of packages that nobody here has seen, and writes each
answer to FOLDER, for a reader; with --labels, the reader's file (bench/assist/reading.py), nothing
is asked, and the shares are printed beside those of the newest result of the tasks above.

--checks off switches the checks and rules of edits and completions off. Each answer is saved as it
is scored; --resume continues a stopped run; --answers appends them to a file, for reading. --quick
takes every eighth task.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

from bench.assist import reading
from bench.assist.editor import Editor, write_samples
from bench.assist.score import Score, score_completion, score_edit
from bench.assist.tables import PARTS, Row, show, summary
from bench.assist.task import SAMPLES, CompletionTask, EditTask, sample
from bench.assist.tasks import go, markdown, python, rust, typescript
from bench.assist.tokens import language_of
from bench.common import report
from bench.common.cli import argument_parser, complain
from bench.common.environment import environment, results_path
from bench.latency.lsp_client import ServerError, ServerProcess
from bench.quality import run as sandbox
from bench.quality.quality import resumed
from engine.config import DEFAULT_MODEL

PACKAGES = ("torch", "transformers", "tree-sitter")
QUICK_STEP = 8
MAX_TIME_MS = 60_000  # milliseconds: a completion's quality must not depend on speed
CHECKS_SETTING = "checks"  # the server's setting
LANGUAGES = (python, typescript, go, rust, markdown)
EDITS = [task for language in LANGUAGES for task in language.EDITS]
COMPLETIONS = [task for language in LANGUAGES for task in language.COMPLETIONS]
Task = EditTask | CompletionTask


def tasks(only: list[str], quick: bool) -> list[tuple[str, Task]]:
    """Return the tasks to do, each with its part."""
    sets: dict[str, list[Task]] = {"edits": [*EDITS], "completions": [*COMPLETIONS]}
    step = QUICK_STEP if quick else 1
    return [(part, task) for part in PARTS if part in only for task in sets[part][::step]]


def identity(task: Task) -> str:
    """Return a task's name, which no other task has."""
    return f"{task.file}:{task.name}" if isinstance(task, EditTask) else task.name


def perform(editor: Editor, part: str, task: Task) -> tuple[Row, str | None]:
    """Do one task: its row, and the answer."""
    if isinstance(task, EditTask):
        answer = editor.edit(task)
        score, kind = score_edit(task, answer.text), task.kind
    else:
        answer = editor.complete(task)
        score, kind = score_completion(task, answer.text), "completion"
    row = {
        "part": part,
        "task": identity(task),
        "kind": kind,
        "language": language_of(task.file),
        "outcome": score.outcome,
        "why": reason(score, answer.reason),
        "warned": bool(answer.warnings),
        "by_rule": answer.by_rule,
        "seconds": round(answer.seconds, 2),
    }
    return row, answer.text


def reason(score: Score, refusal: str) -> str:
    return f"{score.why}: {refusal}" if refusal else score.why


def measure(model: str, options: argparse.Namespace, done: list[Row]) -> Iterator[tuple[Row, Any]]:
    """Do every task that is not in `done`."""
    known = {row["task"] for row in done}
    left = [(part, task) for part, task in options.tasks if identity(task) not in known]
    if not left:
        return
    with tempfile.TemporaryDirectory(prefix="assist-") as place:
        folder = Path(place).resolve()
        write_samples(folder)
        with closing(ServerProcess(model)) as served:
            client = served.client()
            client.start(folder, server_settings(options.checks))
            editor = Editor(client, folder)
            for part, task in left:
                yield perform(editor, part, task)


def server_settings(checks: str) -> Row:
    """Return the settings that the server starts with."""
    settings: Row = {"maxTimeMs": MAX_TIME_MS}
    return settings | ({CHECKS_SETTING: False} if checks == "off" else {})


def run(model: str, options: argparse.Namespace) -> Row:
    """Run one model, and return its record, also written to its file.

    A stopped run leaves its rows there.
    """
    began = time.perf_counter()
    names = ["assist", Path(model).name]
    if options.checks == "off":
        names.insert(1, "unchecked")
    out: Path = options.out or results_path(*names)
    part_file = out.with_suffix(".part.jsonl")
    head: Row = {"model": Path(model).name, "checks": options.checks, "quick": options.quick}
    head["tasks"] = tasks_digest()
    rows = resumed(part_file, head) if options.resume else []
    spent = sum(row["seconds"] for row in rows)
    part_file.parent.mkdir(parents=True, exist_ok=True)
    if not rows:
        part_file.write_text(json.dumps(head) + "\n", "utf-8")
    with part_file.open("a", encoding="utf-8") as partial:
        for row, answer in measure(model, options, rows):
            rows.append(row)
            partial.write(json.dumps(row) + "\n")
            partial.flush()
            note(options, row, answer)
            why = f", {row['why']}" if row["why"] else ""
            report.say(f"{len(rows)}/{len(options.tasks)} {row['task']}: {row['outcome']}{why}")
    record = head | {
        **environment(packages=PACKAGES),
        "seconds": round(spent + time.perf_counter() - began),
        "resumed": options.resume,
        "no_network": bool(sandbox.namespaces()),
        "results": summary(rows),
        "rows": rows,
    }
    report.write_json(out, record)
    with suppress(FileNotFoundError):
        part_file.unlink()
    return record


def tasks_digest() -> str:
    """Hash tasks, samples and rules: results with the same digest are comparable."""
    paths = [*Path(__file__).parent.rglob("*.py"), *SAMPLES.rglob("*")]
    files = sorted(path for path in set(paths) if path.is_file())
    return sha256(b"".join(path.read_bytes() for path in files)).hexdigest()[:12]


def note(options: argparse.Namespace, row: Row, answer: str | None) -> None:
    """Append the answer to the file of --answers."""
    if options.answers:
        with options.answers.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row | {"answer": answer}, ensure_ascii=False) + "\n")


def read_options(argv: list[str] | None) -> argparse.Namespace:
    parser = argument_parser("assist", __doc__)
    add = parser.add_argument
    add("--model", action="append", help="a built-in name or a folder; repeatable")
    add("--only", default=",".join(PARTS), help=f"of {','.join(PARTS)}")
    add("--checks", choices=("on", "off"), default="on", help="off: the model's own answers")
    add("--quick", action="store_true", help="every eighth task")
    add("--resume", action="store_true", help="continue a stopped run")
    add("--answers", type=Path, help="a JSONL file to append the answers to")
    add(
        "--tasks",
        dest="fresh",
        type=Path,
        metavar="FILE",
        help="a file of assist-fresh, in place of the tasks here",
    )
    add(
        "--records",
        type=Path,
        metavar="FOLDER",
        help="the folder of its answers, written to be read",
    )
    add(
        "--labels",
        type=Path,
        metavar="FILE",
        help="the reader's file: report it, and ask for nothing",
    )
    add("--out", type=Path, help="results of a single model; bench/results/assist-...json")
    options = parser.parse_args(argv)
    options.model = options.model or [DEFAULT_MODEL]
    options.only = options.only.split(",")
    if wrong := [part for part in options.only if part not in PARTS]:
        parser.error(f"--only {wrong[0]}: choose from {','.join(PARTS)}")
    if options.out and len(options.model) > 1:
        parser.error("--out: takes a single model; without it each model gets its own file")
    if bool(options.fresh) != bool(options.records) or (options.labels and not options.records):
        parser.error("--tasks and --records go together, and --labels needs them")
    if options.fresh and len(options.model) > 1:
        parser.error("--tasks: takes a single model")
    options.tasks = tasks(options.only, options.quick)
    return options


def run_fresh(model: str, options: argparse.Namespace) -> Row:
    """Ask for fresh tasks, or report what a reader found in their answers."""
    if not options.labels:
        rows = reading.run(model, options, server_settings(options.checks))
        return {"model": Path(model).name, "rows": rows}
    sets = {"fresh": reading.labelled(reading.read_rows(options.records), options.labels)}
    texts = {identity(task): task.before for task in EDITS}
    texts |= {identity(task): sample(task.file) for task in COMPLETIONS}
    sizes = {name: len(text.split("\n")) for name, text in texts.items()}
    if known := reading.known(Path(model).name, sizes):
        sets["known"] = known
    reading.show(sets)
    found = {name: reading.figures(rows) for name, rows in sets.items()}
    return {"model": Path(model).name, "results": found}


def main(argv: list[str] | None = None) -> int:
    options = read_options(argv)
    records = []
    for model in dict.fromkeys(options.model):
        try:
            records.append((run_fresh if options.fresh else run)(model, options))
        except (ServerError, ValueError, OSError) as error:
            complain("assist", f"{model}: {error}")
            return 2
        except KeyboardInterrupt:
            complain("assist", "stopped: continue with --resume")
            return 130
        if not options.fresh:
            show(records[-1])
    report.print_json_line({"bench": "assist", "models": records})
    return 0
