"""Measure how often edits are right: EditEval and CanItEdit, with the engine's own prompts.

    python -m bench quality FOLDER [--model NAME ...] [--sample 24] [--modes file,selection]

FOLDER holds editeval.jsonl and canitedit.jsonl. Each edit is requested in both modes: the whole
file, and a selection of the lines that differ with the functions around them. It is decoded with
and without speculation, and both texts must be equal. The figures are the shares of edits that the
engine accepts, that pass the record's tests, and, of accepted edits, the share of bytes in lines
outside the change that stay as they were.

The sample is fixed: --sample odd records of EditEval, and half as many of CanItEdit, which has two
instructions each, spread evenly. A record whose reference answer fails its own tests here is left
out and named. --tune takes EditEval's even records instead; prompts are tuned on these alone, and
--answers saves what the model made of them.

--tried runs each record's own tests as the user's command of an edit (`draftline edit --check`):
up to four answers are tried, without a second decoding of each.

The tests are foreign code and run in a sandbox (bench/quality/run.py). Each edit is saved as it is
done; --resume continues a stopped run. Speed is measured by `python -m bench decode`.

Exit code 1: an answer differed with speculation; the results are written all the same.
"""

from __future__ import annotations

import argparse
import json
import re
import time
from collections.abc import Iterator
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

from bench.common import report
from bench.common.cli import argument_parser, complain
from bench.common.engine_thread import in_engine_thread
from bench.common.environment import ROOT, environment, results_path
from bench.quality import run as quality_run
from bench.quality import tasks, tried
from bench.quality.tables import show, summary
from bench.quality.tasks import MODES, Record
from engine import DEFAULT_MODEL, Config, Done, Engine, Request, RequestError
from engine.config import KV_FORMATS
from engine.editing.edits import EditRefused, apply, too_long
from engine.prompts.builder import prompt_of
from engine.weights import WeightsError

PROMPT_SOURCES = [
    *sorted((ROOT / "engine" / "prompts").glob("*.py")), ROOT / "engine" / "editing" / "edits.py"
]  # fmt: skip
Row = dict[str, Any]
Answers = dict[tuple[int, ...], tuple[Done, Done]]  # prompt -> with and without speculation


# -- one edit ----------------------------------------------------------------------------------


def edit(engine: Engine, record: Record, kind: str, mode: str, known: Answers) -> tuple[Row, str]:
    """Return the row of one edit, and the new text ("" if it was refused)."""
    asked = tasks.request(record, kind, mode)
    try:
        if why := too_long(asked, engine.config.model):
            raise EditRefused(f"the whole file is too long for the model: {why}")
        fast, plain = answers(engine, asked, known)
    except (EditRefused, RequestError) as error:
        return {"outcome": "refused", "why": reason(error), "equal": True}, ""
    row: Row = {
        "equal": (fast.text, fast.reason, fast.matched)
        == (plain.text, plain.reason, plain.matched),
        "tokens": fast.usage.completion_tokens,
        "forwards": fast.usage.forwards,
    }
    try:
        new = apply(asked, fast)
    except EditRefused as error:
        return row | {"outcome": "refused", "why": reason(error)}, fast.text
    verdict = quality_run.run(record.program(new))
    must, kept = tasks.untouched(record.before, record.after, new)
    row |= {"outcome": "passed" if verdict.passed else "failed", "why": verdict.why}
    return row | {"unchanged": new == record.before, "must_stay": must, "stayed": kept}, new


def answers(engine: Engine, asked: Request, known: Answers) -> tuple[Done, Done]:
    """Return the answers with and without speculation.

    They are from `known` if the prompt is the same as before (as for a selection of the whole
    file).
    """
    key = tuple(prompt_of(asked, engine.parts.tokenizer).ids)
    if key not in known:
        in_engine_thread(engine, engine.forget)  # a resumed run gives the same answers
        fast, plain = (engine.submit(asked, speculation).result() for speculation in (True, False))
        known[key] = fast, plain
    return known[key]


def reason(error: Exception) -> str:
    """Return an error without its remedy and numbers, so that equal ones can be counted."""
    return re.sub(r"\d+", "N", str(error).split(":")[0])


# -- all edits ---------------------------------------------------------------------------------


def measure(
    engine: Engine, options: argparse.Namespace, done: list[Row]
) -> Iterator[tuple[Row, str]]:
    """Make every edit that is not in `done`, and test each record's reference answer."""
    before = {(row["name"], row["asked"], row["mode"]): row for row in done}
    for name, records in options.sets.items():
        for record in records:
            about: Row = {"set": name, "name": record.name}
            own = before.get((record.name, "own", "own"))
            if own is None:
                verdict = quality_run.run(record.program(record.after))
                own = about | {"asked": "own", "mode": "own", "why": verdict.why}
                own |= {"outcome": "passed" if verdict.passed else "left out", "equal": True}
                yield own, ""
            known: Answers = {}
            edits = [(kind, mode) for kind in record.asked for mode in options.modes]
            for kind, mode in edits if own["outcome"] == "passed" else []:
                if (record.name, kind, mode) not in before:
                    if options.tried:
                        row, new = tried.edit(engine, record, kind, mode)
                    else:
                        row, new = edit(engine, record, kind, mode, known)
                    yield about | {"asked": kind, "mode": mode} | row, new


def run(model: str, options: argparse.Namespace) -> Row:
    """Run one model, and return its record, also written to its file.

    A stopped run leaves its rows there.
    """
    began = time.perf_counter()
    out: Path = options.out or results_path(
        f"quality{'-tune' * options.tune}{'-tried' * options.tried}",
        *(["kv", options.kv] if options.kv != "auto" else []),
        Path(model).name,
    )
    part = out.with_suffix(".part.jsonl")
    head = settings(model, options)
    rows = resumed(part, head) if options.resume else []
    part.parent.mkdir(parents=True, exist_ok=True)
    if not rows:
        part.write_text(json.dumps(head) + "\n", "utf-8")
    total = sum(1 + len(one.asked) * len(options.modes) for r in options.sets.values() for one in r)
    config = Config(model=model, device=options.device, threads=options.threads, kv=options.kv)
    with Engine(config) as engine, part.open("a", encoding="utf-8") as partial:
        for row, new in measure(engine, options, rows):
            rows.append(row)
            partial.write(json.dumps(row) + "\n")
            partial.flush()
            note(options, row, new)
            report.say(
                f"{len(rows)}/{total} {row['name']} {row['asked']} {row['mode']}: "
                f"{row['outcome']}{', ' + row['why'] if row['why'] else ''}"
                f"{'' if row['equal'] else ', DIFFERENT'}"
            )
        device = engine.parts.target.device_name
    record = head | {
        **environment(options.device),
        "on": device,
        "seconds": round(time.perf_counter() - began),
        "resumed": options.resume,
        "no_network": bool(quality_run.namespaces()),
        **summary(rows),
        "rows": rows,
    }
    report.write_json(out, record)
    with suppress(FileNotFoundError):
        part.unlink()
    return record


def settings(model: str, options: argparse.Namespace) -> Row:
    """Return what a resumed run must share with the stopped one."""
    return {
        "model": Path(model).name,
        "device": options.device,
        "kv": options.kv,
        "tune": options.tune,
        "sample": options.sample,
        "modes": options.modes,
        "tried": options.tried,
        "asked_by": sha256(b"".join(path.read_bytes() for path in PROMPT_SOURCES)).hexdigest()[:12],
    }


def resumed(part: Path, head: Row) -> list[Row]:
    """Return the rows of a stopped run, if any. Raises ValueError if it was another run."""
    if not part.exists():
        return []
    lines = part.read_text("utf-8").split("\n")
    whole = [json.loads(line) for line in lines[:-1]]  # the last may be incomplete
    for key, value in head.items():
        if whole and whole[0].get(key) != value:
            raise ValueError(
                f"--resume: {part.name} was made with {key} {whole[0].get(key)}, not {value}: "
                "start anew without --resume"
            )
    if lines[-1]:
        part.write_text("".join(f"{line}\n" for line in lines[:-1]), "utf-8")
    return whole[1:]


def note(options: argparse.Namespace, row: Row, new: str) -> None:
    """Note the answer, for reading; only while tuning."""
    if options.answers and row["asked"] != "own":
        with options.answers.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row | {"new": new}) + "\n")


def read_options(argv: list[str] | None) -> argparse.Namespace:
    parser = argument_parser("quality", __doc__)
    add = parser.add_argument
    add("folder", type=Path, help="the folder of editeval.jsonl and canitedit.jsonl")
    add("--model", action="append", help="a built-in name or a folder; repeatable")
    add("--sample", type=int, default=24, help="records of EditEval, and half as many of CanItEdit")
    add("--modes", default=",".join(MODES), help=f"of {','.join(MODES)}")
    add("--tried", action="store_true", help="the record's tests choose among four answers")
    add("--tune", action="store_true", help="only EditEval's even records")
    add("--answers", type=Path, help="with --tune: a JSONL file to append the new texts to")
    add("--resume", action="store_true", help="continue a stopped run")
    add("--device", choices=("cpu", "cuda"), default="cpu")
    add("--kv", choices=KV_FORMATS, default="auto", help="the engine's setting of that name")
    add("--threads", type=int, default=0, help="0: one per core")
    add(
        "--out",
        type=Path,
        help="results file of a single model; default: bench/results/quality-...json",
    )
    options = parser.parse_args(argv)
    options.model = options.model or [DEFAULT_MODEL]
    options.modes = options.modes.split(",")
    if wrong := [mode for mode in options.modes if mode not in MODES]:
        parser.error(f"--modes {wrong[0]}: choose from {','.join(MODES)}")
    if options.sample < 2:
        parser.error(f"--sample {options.sample}: must be 2 or more")
    if options.answers and not options.tune:
        parser.error("--answers: needs --tune; answers to other records are not saved")
    if options.out and len(options.model) > 1:
        parser.error("--out: takes a single model; without it each model gets its own file")
    try:
        options.sets = tasks.chosen(options.folder, options.sample, options.tune)
    except (ValueError, OSError) as error:
        parser.error(str(error))
    return options


def main(argv: list[str] | None = None) -> int:
    options = read_options(argv)
    records = []
    for model in dict.fromkeys(options.model):
        try:
            records.append(run(model, options))
        except (ValueError, OSError, RuntimeError, WeightsError) as error:
            complain("quality", f"{model}: {error}")
            return 2
        except KeyboardInterrupt:
            complain("quality", "stopped: continue with --resume")
            return 130
        show(records[-1])
    report.print_json_line({"bench": "quality", "models": records})
    return 1 if any(record["different"] for record in records) else 0
