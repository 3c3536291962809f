"""Measure whole answers: plain decoding, Draftline, and other programs at their best.

    make peers && python -m bench decode [--repeats 3] [--tasks-of-kind 5] [--sweep] [--isa avx2]
    python -m bench decode --spec-bench spec_bench.jsonl --kinds translation --limit 96

The tasks are edits of real code, whole files and selections, which a program judges, places to
complete, questions, summaries and conversations (bench/common/tasks.py), edits from a file
(--tasks), and Spec-Bench's questions (bench/common/questions.py). --tasks-of-kind bounds the time:
it takes that many of each kind, of all languages. Each method gets one short warm-up; the methods
take turns in an order that rotates with the task and the repeat.

For each kind: reading the prompt, decoding, both together (end to end), and the share of right
answers. Decoding excludes the prompt (bench/decode/methods.py), whose time is measured once, before
anything of it is cached. A ratio is the median over tasks of the median over pairs from the same
repeat; its interval resamples tasks. With other programs, only what both answered rightly counts,
and each is compared at the setting that is its fastest on the kind's tasks: --sweep tries all of
llama.cpp's that bench/decode/peers/programs.py lists.
"cost" is free of noise: the cost of all passes by this machine's measured table
(engine/model/cost_model.py), relative to one-token passes for the same text.

Transformers' plain decoding, and ours in a second dtype, is timed over PLAIN_TOKENS only (its speed
hardly depends on the text), and both get --slow-prompts tasks of each kind; so do edits by other
programs without speculation, whole. A method that would not
fit into memory is left out and named. --temperatures measures acceptance
(bench/decode/acceptance.py), --second-edit reuse of the prompt (bench/decode/prefix_reuse.py),
--passes how long passes over several rows take and how fast a prompt is read
(bench/decode/passes.py). Until OUT is written, OUT.runs has a JSON line per run: --resume continues
a stopped run.

Exit code 1: Draftline's text differs from plain decoding's; the results are written all the same.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from time import perf_counter
from typing import Any

from bench.common import questions, report, tasks
from bench.common.cli import argument_parser, complain
from bench.common.environment import gpu_name, results_path, run_record
from bench.common.tasks import EDITS, Task
from bench.decode import figures, tables
from bench.decode.acceptance import acceptance
from bench.decode.figures import Runs, kinds_of, limit_of
from bench.decode.methods import DraftlineRunner, PeerRunner, Run, floor_of
from bench.decode.passes import passes, prompts
from bench.decode.peers import programs
from bench.decode.prefix_reuse import second_edits
from bench.decode.runners import METHODS, Runners
from bench.quality.quality import resumed
from engine.model import _kernels
from engine.weights import WeightsError

WARM_UP = 24  # tokens


def tasks_of(method: str, todo: list[Task], slow_prompts: int, runners: Runners) -> set[str]:
    """Return the names of the tasks that a method runs."""
    slow = set(kinds_of(todo) if _is_slow(method, runners) else ())
    if method in programs.PLAIN:
        slow |= set(EDITS)
    names: set[str] = set()
    for kind in kinds_of(todo):
        of_kind = [task.name for task in todo if task.kind == kind]
        names.update(of_kind[:slow_prompts] if kind in slow else of_kind)
    return names


def _is_slow(method: str, runners: Runners) -> bool:
    return method.startswith("hf") or method.endswith(f"-{runners.slow}")


def measure(
    options: argparse.Namespace, runners: Runners, todo: list[Task], notes: Path
) -> tuple[Runs, Any]:
    """Return all runs, and for each engine the floors measured, one per task.

    A method is warmed up by its first task. Each run is also appended to `notes` as it ends. A task
    whose runs are there is not run again. Raises ValueError if they are of another run.
    """
    floors: dict[str, list[dict[str, float]]] = {}
    gets = {m: tasks_of(m, todo, options.slow_prompts, runners) for m in runners.methods}
    runs = noted(options, runners, notes)
    cold = set(runners.methods)
    with notes.open("a", encoding="utf-8") as out:
        for place, task in enumerate(todo):
            for name, engine in runners.engines.items():
                if found := floor_of(engine, runners.threads):
                    floors.setdefault(name, []).append(found)
            order = [m for m in runners.methods if task.name in gets[m]]
            if all(len(runs.get((task.name, m), ())) == options.repeats for m in order):
                continue
            for method in order:
                runs.pop((task.name, method), None)
            for repeat in range(-1, options.repeats):  # -1 warms those up that are cold
                what = "warm-up" if repeat < 0 else f"repeat {repeat + 1} of {options.repeats}"
                turn = (place + repeat) % len(order) if order else 0
                for method in order[turn:] + order[:turn]:
                    if repeat < 0 and method not in cold:
                        continue
                    cold.discard(method)
                    limit = limit_of(method, runners) if repeat >= 0 else WARM_UP
                    report.progress(what, place, len(todo), task.name, method)
                    run = runners.methods[method].run(task, limit)
                    if repeat >= 0 and run.tokens and run.forwards:
                        runs.setdefault((task.name, method), []).append(run)
                        note = {"task": task.name, "method": method} | asdict(run)
                        out.write(json.dumps(note) + "\n")
                        out.flush()
                    elif repeat == 0:
                        why = f"{task.name} ended with the prompt's own pass"
                        runners.leave_out([method], why)
    return runs, floors


def noted(options: argparse.Namespace, runners: Runners, notes: Path) -> Runs:
    """Return the last runs of each task and method in a stopped run's notes, or begin notes."""
    head = {
        "model": Path(runners.model).name,
        "device": runners.device,
        "threads": runners.threads,
        "methods": list(runners.methods),
        "repeats": options.repeats,
    }
    lines = resumed(notes, head) if options.resume else []
    if not lines:
        notes.parent.mkdir(parents=True, exist_ok=True)
        notes.write_text(json.dumps(head) + "\n", "utf-8")
    runs: Runs = {}
    for line in lines:
        made = runs.setdefault((line.pop("task"), line.pop("method")), [])
        made.append(Run(**line))
        del made[: -options.repeats]
    return runs


def arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argument_parser("decode", __doc__)
    parser.add_argument("--model", default=None, help="default: the engine's own")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--dtypes", help="default: auto and f32 (bf16 where the processor has it)")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--sweep", action="store_true", help="try llama.cpp's settings as well")
    parser.add_argument("--threads", type=int, default=0, help="0: one per core")
    parser.add_argument("--isa", help="our kernels' instruction set, such as avx2; default: best")
    parser.add_argument("--tasks", type=Path, help="JSONL: id, instruction, context, before")
    parser.add_argument("--sample", type=int, default=20, help="how many of --tasks")
    parser.add_argument(
        "--kinds", default=",".join(tasks.KINDS), help="kinds of tasks, including Spec-Bench's"
    )
    parser.add_argument(
        "--tasks-of-kind", type=int, default=0, help="how many of each kind that ships; 0: all"
    )
    parser.add_argument("--spec-bench", type=Path, help="JSONL: question_id, category, turns")
    parser.add_argument("--questions", type=int, default=10, help="of each of Spec-Bench's kinds")
    parser.add_argument("--limit", type=int, default=96, help="token limit of their answers")
    parser.add_argument("--temperatures", default="", help="such as 0,0.2,0.8: measure acceptance")
    parser.add_argument("--second-edit", action="store_true", help="measure reuse of the prompt")
    parser.add_argument(
        "--passes", action="store_true", help="measure passes over rows, and reading a prompt"
    )
    parser.add_argument(
        "--slow-prompts", type=int, default=1, help="tasks of each kind for slow methods"
    )
    parser.add_argument("--answers", type=Path, help="write the answers to this file, for reading")
    parser.add_argument("--resume", action="store_true", help="continue a stopped run")
    parser.add_argument("--out", type=Path, help="default: bench/results/decode-MODEL-HOST.json")
    options = parser.parse_args(argv)
    options.methods += "".join(f",{name}" for name in programs.SWEPT if options.sweep)
    options.methods = ",".join(dict.fromkeys(options.methods.split(",")))
    try:
        for name in options.methods.split(","):
            if name not in METHODS:
                programs.program(name)
    except ValueError as error:
        parser.error(f"--methods {error}")
    options.kinds = [kind for kind in options.kinds.split(",") if kind]
    known = (*tasks.KINDS, *questions.KINDS)
    if unknown := set(options.kinds) - set(known):
        parser.error(f"--kinds {','.join(sorted(unknown))}: choose from {','.join(known)}")
    if set(options.kinds) & set(questions.KINDS) and not options.spec_bench:
        parser.error("--kinds of Spec-Bench need its questions: name them with --spec-bench FILE")
    try:
        options.temperatures = [float(one) for one in options.temperatures.split(",") if one]
    except ValueError:
        parser.error(f"--temperatures {options.temperatures}: numbers, with commas between them")
    for name in ("repeats", "sample", "questions", "limit"):
        if getattr(options, name) < 1:
            parser.error(f"--{name} {getattr(options, name)}: must be 1 or more")
    if options.tasks_of_kind < 0:
        parser.error(f"--tasks-of-kind {options.tasks_of_kind}: must be 0 or more")
    for path in (options.tasks, options.spec_bench):
        if path and not path.is_file():
            parser.error(f"{path}: no such file")
    return options


def load_tasks(options: argparse.Namespace) -> list[Task]:
    """Return the tasks of all requested kinds.

    Raises ValueError or OSError with a one-line message.
    """
    every = tasks.sample(tasks.every_task(), options.tasks_of_kind)
    todo = [task for task in every if task.kind in options.kinds]
    named = [kind for kind in options.kinds if kind in questions.KINDS]
    if named:
        todo += questions.tasks(options.spec_bench, named, options.questions, options.limit)
    return todo + (tasks.from_file(options.tasks, options.sample) if options.tasks else [])


def extras(options: argparse.Namespace, runners: Runners, todo: list[Task]) -> dict[str, Any]:
    """Measure what is optional: acceptance, reuse of the prompt, passes over several rows."""
    plain, ours = (runners.methods.get(name) for name in ("plain", "draftline"))
    found: dict[str, Any] = {"acceptance": [], "second_edit": [], "passes": [], "reading": []}
    if (
        options.temperatures
        and isinstance(plain, DraftlineRunner)
        and isinstance(ours, DraftlineRunner)
    ):
        found["acceptance"] = acceptance(plain, ours, todo, options.temperatures, options.limit)
    if options.second_edit and "plain" in runners.engines:
        found["second_edit"] = second_edits(runners.engines["plain"], options.repeats)
    if options.passes and "plain" in runners.engines:
        engine = runners.engines["plain"]
        llama = runners.methods.get("llama.cpp")
        server = llama.peer if isinstance(llama, PeerRunner) else None
        found["passes"] = passes(engine, options.repeats)
        found["reading"] = [prompts(engine, server, task, options.repeats) for task in todo[:2]]
    return found


def default_out(options: argparse.Namespace, runners: Runners) -> Path:
    """Return the results file, named by prompts, model and hardware."""
    name = "decode" if options.kinds == list(tasks.KINDS) else "-".join(["decode", *options.kinds])
    hardware = gpu_name() if runners.device == "cuda" else None
    parts = [name, Path(runners.model).name, *([options.isa] if options.isa else [])]
    return results_path(*parts, hardware=hardware)


def main(argv: list[str] | None = None) -> int:
    options = arguments(argv)
    began = perf_counter()
    try:
        todo = load_tasks(options)
        if options.isa:
            _kernels.set_isa(options.isa)
        runners = Runners(options)
    except (ValueError, OSError, RuntimeError, WeightsError) as error:
        complain("decode", error)
        return 2
    options.out = options.out or default_out(options, runners)
    notes = options.out.with_suffix(".runs")
    with runners:
        try:
            runs, floors = measure(options, runners, todo, notes)
        except ValueError as error:
            complain("decode", error)
            return 2
        more = extras(options, runners, todo)
        pairs_seen = [(t, m) for t in todo for m in runners.methods if (t.name, m) in runs]
        results = [figures.result(task, method, runs, runners) for task, method in pairs_seen]
        ratios = figures.ratios(todo, runs, results, runners)
    different = sum(line.get("equal") is False for line in results)
    different += sum(line["prompts"] - line["equal"] for line in more["acceptance"])
    record = run_record(runners, options.repeats, perf_counter() - began) | {
        "kinds": figures.kinds(todo, results),
        "ratios": ratios,
        "floor": figures.floor(floors, runs),
        "peers": runners.versions,
        **more,
        "different": different,
        "resumed": options.resume,
        "results": results,
    }
    tables.show(record)
    report.write_json(options.out, record)
    if options.answers:
        texts = [{"task": t, "method": m, "text": many[0].text} for (t, m), many in runs.items()]
        report.write_json(options.answers, {"answers": texts})
    notes.unlink()
    report.print_json_line(record)
    return 1 if record["different"] else 0
