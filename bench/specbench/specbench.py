"""Compare all drafting methods on Spec-Bench's questions, HumanEval and CanItEdit.

    python -m bench specbench --questions spec_bench.jsonl [--sample 10] [--max-tokens 256]
        [--methods plain,hf,hf-lookup,sam,recycling,eagle2:head=FOLDER,auto] [--runs 3 [--best 3]]

One engine runs every method that `draftline drafters` lists, with its options; `hf` and `hf-lookup`
are transformers. On each question the methods take turns in a rotating order; each answers the
turns of a conversation from an empty cache, after three short answers to warm up. The figures are
Spec-Bench's (arXiv 2401.07851; bench/specbench/metrics.py), a table per category, with 95 %
confidence intervals over questions. Texts must equal plain decoding's; where one does not, the
gap between the model's two best logits there shows whether it was a near tie (--tie), which 16-bit
arithmetic may decide either way.

Every answer is saved as it is made, beside OUT, in the form of Spec-Bench's answer files; --resume
continues a stopped run, also with more --runs. --answers FOLDER gets a file per method and run that
Spec-Bench's own scripts read. With --best N, runs after the first measure only plain decoding and
the N fastest methods of the first. What a question taught is forgotten before the next one; --hot
keeps it, as in the paper on Token Recycling (arXiv 2408.08696).

The run prints tables and one JSON line, and draws charts beside OUT. Whether answers are right is
not measured. Exit code 1: one of our texts differs, and not by a near tie.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from time import perf_counter
from typing import Any

from bench.common import questions, report
from bench.common.cli import argument_parser, complain
from bench.common.engine_thread import in_engine_thread
from bench.common.environment import results_path, run_record
from bench.specbench import metrics, tables
from bench.specbench.run import PLAIN, Methods, Row, parse_methods, parting_gap, short_name
from engine.weights import WeightsError

METHODS = "plain,hf,hf-lookup,prompt-lookup,sam,recycling,sam+recycling,auto"
WARM_UP_ANSWERS, WARM_UP_TOKENS = 3, 32  # answers to the first question, tokens of each
TIE_LOGITS = 0.25  # logits: two steps of bf16 between 16 and 32
MAX_ANSWER_TOKENS = 2048  # tokens; the answer history holds no more


def measure(
    options: argparse.Namespace, methods: Methods, lines: list[Row], write: Callable[[Row], None]
) -> None:
    """Make every answer that is not in `lines` yet; append it there and write it at once."""
    done = {(one["run"], one["method"], one["category"], one["question_id"]) for one in lines}
    warmed = False
    for run in range(options.runs):
        labels = chosen(options, methods, lines, run)
        for place, question in enumerate(options.asked):
            turn = (place + run) % len(labels)
            order = labels[turn:] + labels[:turn]
            for label in order:
                if (run, label, question.category, question.id) in done:
                    continue
                if not warmed:
                    warm_up(options, methods)
                    warmed = True
                if not options.hot or (place == 0 and label == order[0]):
                    in_engine_thread(methods.engine, methods.engine.forget)
                what = f"run {run + 1} of {options.runs}"
                name = f"{question.category} {question.id}"
                report.progress(what, place, len(options.asked), name, label)
                line = {"run": run, "method": label}
                line |= methods.answer(label, question, options.max_tokens)
                lines.append(line | {"tstamp": datetime.now(UTC).timestamp()})
                write(lines[-1])


def chosen(options: argparse.Namespace, methods: Methods, lines: list[Row], run: int) -> list[str]:
    """Return the labels of the methods of a run."""
    if run == 0 or not options.best:
        return list(methods.methods)
    best = metrics.fastest(metrics.group_lines(lines), options.asked, options.best)
    return [label for label in methods.methods if label in (PLAIN, *best)]


def warm_up(options: argparse.Namespace, methods: Methods) -> None:
    for label in methods.methods:
        for count in range(WARM_UP_ANSWERS):
            report.progress("warm-up", count, WARM_UP_ANSWERS, "the first question", label)
            methods.answer(label, options.asked[0], min(WARM_UP_TOKENS, options.max_tokens))


# -- resuming --------------------------------------------------------------------------------------


def settings(options: argparse.Namespace, methods: Methods) -> Row:
    """Return what a resumed run must share with the stopped one."""
    asked = sha256(repr(options.asked).encode()).hexdigest()[:12]
    return {
        "model": Path(methods.model).name,
        "device": methods.engine.parts.target.device_name,
        "dtypes": methods.dtypes,
        "threads": methods.threads,
        "methods": {label: short_name(given) for label, given in methods.named.items()},
        "questions": asked,
        "max_tokens": options.max_tokens,
        "corpus": options.corpus.name if options.corpus else None,
        "hot": options.hot,
    }


def resumed(path: Path, head: Row) -> list[Row]:
    """Return the lines of a stopped run, without an incomplete last one.

    Raises ValueError if the file belongs to another run.
    """
    if not path.exists():
        return []
    whole, _, rest = path.read_bytes().rpartition(b"\n")
    lines = [json.loads(line) for line in whole.decode().split("\n") if line]
    if rest:
        path.write_bytes(whole + b"\n" if whole else b"")
    for key, value in head.items():
        if lines and lines[0].get(key) != value:
            raise ValueError(
                f"--resume: {path.name} was made with {key} {lines[0].get(key)}, not {value}: "
                "name another --out, or remove it"
            )
    return lines[1:]


def open_notes(options: argparse.Namespace, head: Row) -> list[Row]:
    """Open the saved answers, creating their file if needed.

    Raises ValueError if the file exists and --resume was not given.
    """
    path = notes_path(options)
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists() and not options.resume:
        raise ValueError(f"{path}: already exists: continue with --resume, or remove it")
    lines = resumed(path, head)
    if not path.exists() or not path.stat().st_size:
        path.write_text(json.dumps(head) + "\n", "utf-8")
    return lines


def notes_path(options: argparse.Namespace) -> Path:
    path: Path = options.out
    return path.with_suffix(".runs.jsonl")


def answer_files(folder: Path, lines: list[Row]) -> None:
    """Write Spec-Bench's answer files: one per method and run, each question once and in order."""
    folder.mkdir(parents=True, exist_ok=True)
    for (run, method), answers in metrics.group_lines(lines).items():
        rows = sorted(
            answers.values(),
            key=lambda one: (isinstance(one["question_id"], str), one["question_id"]),
        )
        name = "".join(letter if letter.isalnum() or letter in "+-." else "-" for letter in method)
        text = "".join(
            json.dumps(row | {"answer_id": f"{method}-{run}-{row['question_id']}"}) + "\n"
            for row in rows
        )
        (folder / f"{name}-{run}.jsonl").write_text(text, "utf-8")


# -- the run ---------------------------------------------------------------------------------------


def gaps(options: argparse.Namespace, methods: Methods, rows: metrics.Rows) -> dict[Any, float]:
    """Return the logit gap where each of our texts parts from plain decoding's."""
    of = {(one.category, one.id): one for one in options.asked}
    found = {}
    for run, method, key in metrics.different(rows):
        plain, other = rows[run, PLAIN][key], rows[run, method][key]
        found[run, method, key] = parting_gap(methods.engine, of[key], plain, other)
    return found


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Run everything, and return the record.

    Raises ValueError, OSError, RuntimeError or WeightsError with a one-line message.
    """
    began = perf_counter()
    with Methods(options) as methods:
        head = settings(options, methods)
        options.out = options.out or results_path("specbench", head["model"])
        lines = open_notes(options, head)
        with notes_path(options).open("a", encoding="utf-8") as file:

            def write(line: Row) -> None:
                file.write(json.dumps(line) + "\n")
                file.flush()

            measure(options, methods, lines, write)
        rows = metrics.group_lines(lines)
        near = gaps(options, methods, rows)
        labels = list(methods.methods)
        found = metrics.results(rows, labels, options.asked, near, options.tie)
        record = run_record(methods, options.runs, perf_counter() - began) | head
    if options.answers:
        answer_files(options.answers, lines)
    return record | {
        "tie": options.tie,
        "resumed": options.resume,
        "auto": metrics.auto(rows, labels, options.asked, found),
        "errors": metrics.errors(rows),
        "different": [
            {"run": run, "method": method, "category": key[0], "question_id": key[1],
             "gap": near[run, method, key] if near[run, method, key] < float("inf") else None}
            for run, method, key in near
        ],
        "results": found,
    }  # fmt: skip


def parse_arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argument_parser("specbench", __doc__)
    add = parser.add_argument
    add("--questions", type=Path, help="JSONL: question_id, category, turns")
    add("--human-eval", type=Path, help="JSONL: task_id, prompt")
    add("--can-it-edit", type=Path, help="JSONL: id, before, after, tests, instruction_...")
    add("--sample", type=int, default=0, help="questions per category; 0: all")
    add("--max-tokens", type=int, default=1024, help="token limit of an answer")
    add("--methods", default=METHODS, help=f"default: {METHODS}")
    add("--runs", type=int, default=1)
    add(
        "--best", type=int, default=0, help="fastest methods to measure after the first run; 0: all"
    )
    add("--resume", action="store_true", help="continue a stopped run")
    add("--hot", action="store_true", help="keep what one question taught for the next ones")
    add("--tie", type=float, default=TIE_LOGITS, help="logits closer than this are a tie")
    add("--model", default=None, help="default: the engine's own")
    add("--device", choices=("cpu", "cuda"), default="cpu")
    add("--dtype", default="auto", help="of the engine: auto, f32, bf16, q8, q4")
    add(
        "--hf-dtype",
        default="auto",
        help="of transformers; auto: the engine's, beside q8 and q4 bf16 or f32",
    )
    add("--threads", type=int, default=0, help="0: one per core")
    add("--corpus", type=Path, help="for drafters that copy from one (`draftline train corpus`)")
    add("--no-library", action="store_true", help="without counts of the language's library")
    add("--answers", type=Path, help="folder for Spec-Bench's own answer files")
    add("--out", type=Path, help="default: bench/results/specbench-MODEL-HOST.json")
    options = parser.parse_args(argv)
    for name, least in (("sample", 0), ("max_tokens", 1), ("runs", 1), ("best", 0), ("tie", 0)):
        value = getattr(options, name)
        if value < least:
            parser.error(f"--{name.replace('_', '-')} {value}: must be {least} or more")
    if options.max_tokens > MAX_ANSWER_TOKENS:
        parser.error(f"--max-tokens {options.max_tokens}: must be {MAX_ANSWER_TOKENS} or less")
    if options.hot and options.resume:
        parser.error("--hot with --resume: what was learnt is gone: start again")
    if options.hf_dtype not in ("auto", "f32", "bf16"):
        parser.error(f"--hf-dtype {options.hf_dtype}: choose from auto, f32, bf16")
    readers = (("questions", questions.spec_bench), ("human_eval", questions.human_eval),
               ("can_it_edit", questions.can_it_edit))  # fmt: skip
    try:
        parse_methods(options.methods)
        every = [one for name, read in readers if getattr(options, name)
                 for one in read(getattr(options, name))]  # fmt: skip
    except (ValueError, OSError) as error:
        parser.error(str(error))
    if not every:
        parser.error("no prompts: name a file with --questions, --human-eval, --can-it-edit")
    options.asked = questions.sample(every, options.sample)
    return options


def main(argv: list[str] | None = None) -> int:
    options = parse_arguments(argv)
    try:
        record = run(options)
    except (ValueError, OSError, RuntimeError, WeightsError) as error:
        complain("specbench", error)
        return 2
    except KeyboardInterrupt:
        complain("specbench", "stopped: continue with --resume")
        return 130
    tables.show(record)
    report.write_json(options.out, record)
    tables.draw(options.out, record)
    report.print_json_line(record)
    ours = [one for one in record["different"] if one["gap"] is None or one["gap"] >= options.tie]
    return 1 if ours else 0
