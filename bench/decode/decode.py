"""Measure decoding speed: plain decoding, Draftline, transformers and llama.cpp.

    python -m bench decode [--repeats 5] [--methods plain,draftline] [--kinds file,edit,summary]
    python -m bench decode --spec-bench spec_bench.jsonl --kinds translation --limit 96

The prompts are edits of whole files and of selections, whose answers are checked, and summaries
(bench/common/tasks.py), edits from a file (--tasks), and Spec-Bench's questions
(bench/common/questions.py). Each method gets one short warm-up per prompt; then, in each repeat,
the methods take turns in a rotating order. Ratios are medians over pairs from the same repeat, with
a bootstrap confidence interval (bench/common/stats.py). Decoding speed excludes the prompt
(bench/decode/methods.py); end-to-end speed adds the prompt's time, measured once. "cost" is free of
noise: the cost of all passes by this machine's measured table (engine/model/cost_model.py),
relative to one-token passes for the same text.

To bound the run time, other programs' plain decoding, and ours in a second dtype, is timed over
PLAIN_TOKENS only (its speed hardly depends on the text), and the second dtype and transformers get
--slow-prompts prompts of each kind. A method that would not fit into memory is left out and named.
--temperatures measures acceptance (bench/decode/acceptance.py), --second-edit reuse of the prompt
(bench/decode/prefix_reuse.py), --passes how long passes over several rows take and how fast a
prompt is read (bench/decode/passes.py). Until OUT is written, OUT.runs has a JSON line per run.

Exit code 1: Draftline's text differs from plain decoding's; the results are written all the same.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

from bench.common import questions, report, tasks
from bench.common.cli import argument_parser, complain
from bench.common.environment import gpu_name, results_path, run_record
from bench.common.stats import bootstrap, pairs
from bench.common.tasks import Task
from bench.decode import tables
from bench.decode.acceptance import acceptance
from bench.decode.methods import (
    DraftlineRunner,
    LlamaCppRunner,
    Run,
    floor_of,
    relative_cost,
)
from bench.decode.passes import passes, prompts
from bench.decode.prefix_reuse import second_edits
from bench.decode.runners import LLAMA_METHODS, METHODS, Runners
from engine.weights import WeightsError

PLAIN_TOKENS, WARM_UP = 96, 24
SHIPPED = ("file", "edit", "summary")
COMPARED = (  # (ours, theirs)
    ("plain", "llama.cpp"),
    *(("draftline", name) for name in LLAMA_METHODS[1:]),
    ("draftline", "lookup"),
    ("plain-{slow}", "hf"),
    ("draftline-{slow}", "hf-lookup"),
)
Runs = dict[tuple[str, str], list[Run]]  # (task, method) -> one a repeat


def limit_of(method: str, runners: Runners) -> int | None:
    """Return the token limit of a timed run; None for the whole answer."""
    capped = method in ("hf", "llama.cpp") or method == f"plain-{runners.slow}"
    return PLAIN_TOKENS if capped else None


def tasks_of(method: str, todo: list[Task], slow_prompts: int, runners: Runners) -> set[str]:
    """Return the names of the tasks that a method runs."""
    if not (method.startswith("hf") or method.endswith(f"-{runners.slow}")):
        return {task.name for task in todo}
    names: set[str] = set()
    for kind in kinds_of(todo):
        shipped = [task.name for task in todo if task.kind == kind and not task.sampled]
        names.update(shipped[:slow_prompts])
    return names


def kinds_of(todo: list[Task]) -> list[str]:
    """Return the kinds of tasks, in order of first appearance."""
    return list(dict.fromkeys(task.kind for task in todo))


def measure(
    options: argparse.Namespace, runners: Runners, todo: list[Task], notes: Path
) -> tuple[Runs, Any]:
    """Return all runs, and for each engine the floors measured, one per prompt.

    Each run is also appended to `notes` as it ends.
    """
    runs: Runs = {}
    floors: dict[str, list[dict[str, float]]] = {}
    gets = {m: tasks_of(m, todo, options.slow_prompts, runners) for m in runners.methods}
    notes.parent.mkdir(parents=True, exist_ok=True)
    with notes.open("w", encoding="utf-8") as out:
        for place, task in enumerate(todo):
            for name, engine in runners.engines.items():
                if found := floor_of(engine, runners.threads):
                    floors.setdefault(name, []).append(found)
            order = [m for m in runners.methods if task.name in gets[m]]
            for repeat in range(-1, options.repeats):  # -1 warms up
                what = "warm-up" if repeat < 0 else f"repeat {repeat + 1} of {options.repeats}"
                turn = repeat % len(order) if order else 0
                for method in order[turn:] + order[:turn]:
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


def plain_of(method: str, runners: Runners) -> str:
    """Our plain decoding that a method is compared with: in the same dtype if that was run."""
    same = f"plain-{runners.slow}"
    slow = method.startswith("hf") or method.endswith(f"-{runners.slow}")
    return same if slow and same in runners.methods else "plain"


def result(task: Task, method: str, runs: Runs, runners: Runners) -> dict[str, Any]:
    """Return one line of the results: medians over the repeats of a task."""
    mine = runs[task.name, method]
    base = plain_of(method, runners)
    plain = runs.get((task.name, base))
    speed = median(run.tokens_per_s for run in mine)
    prefill = median(run.prefill for run in mine)
    whole = max((run.tokens for (t, _), many in runs.items() if t == task.name for run in many))
    length = whole if limit_of(method, runners) else mine[0].tokens
    line = {
        "prompt": task.name,
        "kind": task.kind,
        "method": method,
        "dtype": runners.dtypes[method],
        "tokens": mine[0].tokens,
        "tokens_per_s": round(speed, 2),
        "drafted_per_forward": round(sum(n for n, _ in mine[0].steps) / mine[0].forwards, 2),
        "tokens_per_forward": round(median(run.tokens / run.forwards for run in mine), 3),
        "ms_per_step": round(1000 * median(run.seconds / run.forwards for run in mine), 2),
        "prefill_s": round(prefill, 3),
        "end_to_end_tokens_per_s": round(length / (prefill + length / speed), 2),
        "ratio_to_plain": None,
    }
    if plain:
        ratio = bootstrap([pairs(*(speeds(one) for one in (mine, plain)))])
        line |= {"ratio_to_plain": round(ratio.value, 3), "ratio_to": base}
        line |= {"ratio_low": round(ratio.low, 3), "ratio_high": round(ratio.high, 3)}
    if method.startswith(("draftline", "lookup")) and plain:
        line["equal"] = equal(mine, plain, limit_of(base, runners) is not None)
    if limit_of(method, runners) is None:
        line["passes"] = task.passes(mine[0].text)
    return line


def speeds(runs: list[Run]) -> list[float]:
    return [run.tokens_per_s for run in runs]


def equal(fast: list[Run], plain: list[Run], capped: bool) -> bool:
    """Return whether all runs wrote the same text.

    A capped plain run is compared as far as it goes.
    """
    texts = {run.text for run in fast}
    if capped:
        return len(texts) == 1 and all(fast[0].text.startswith(run.text) for run in plain)
    return texts == {run.text for run in plain} and len(texts) == 1


def groups(todo: list[Task], runs: Runs, runners: Runners) -> list[dict[str, Any]]:
    """Ratios over all prompts of a kind: every method to plain decoding, and the pairs COMPARED."""
    wanted = [(m, plain_of(m, runners)) for m in runners.methods if m != plain_of(m, runners)]
    wanted += [(one.format(slow=runners.slow), other) for one, other in COMPARED]
    found = []
    for kind in kinds_of(todo):
        for sampled in (False, True):
            names = [task.name for task in todo if (task.kind, task.sampled) == (kind, sampled)]
            for one, other in dict.fromkeys(wanted):
                both = [n for n in names if (n, one) in runs and (n, other) in runs]
                if both:
                    ratio = bootstrap(
                        [pairs(speeds(runs[n, one]), speeds(runs[n, other])) for n in both], sampled
                    )
                    line = {"kind": kind, "prompts": len(both), "sampled": sampled}
                    line |= {"method": one, "against": other, "cost": None}
                    line |= {"ratio": round(ratio.value, 3)}
                    line |= {"low": round(ratio.low, 3), "high": round(ratio.high, 3)}
                    if other == plain_of(one, runners) and other in runners.engines:
                        passes = [run for n in both for run in runs[n, one]]
                        cost = relative_cost(runners.engines[other].parts.cost, passes)
                        line["cost"] = None if cost is None else round(cost, 4)
                    found.append(line)
    return found


def floor(floors: dict[str, list[dict[str, float]]], runs: Runs) -> dict[str, Any]:
    """Return bytes read per step, bandwidth, and step time over the floor, by plain method."""
    found = {}
    for method, seen in floors.items():
        steps = [run.seconds / run.forwards for (_, m), many in runs.items() for run in many
                 if m == method]  # fmt: skip
        if steps:
            ms, step = median(one["ms"] for one in seen), 1000 * median(steps)
            found[method] = {
                "weight_bytes": seen[0]["bytes"],
                "bandwidth_gb_per_s": round(median(one["bytes_per_s"] for one in seen) / 1e9, 2),
                "floor_ms": round(ms, 2),
                "step_ms": round(step, 2),
                "step_over_floor": round(step / ms, 3),
            }
    return found


def arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argument_parser("decode", __doc__)
    parser.add_argument("--model", default=None, help="default: the engine's own")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--dtypes", help="default: auto and f32 (bf16 where the processor has it)")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--threads", type=int, default=0, help="0: one per core")
    parser.add_argument("--tasks", type=Path, help="JSONL: id, instruction, context, before")
    parser.add_argument("--sample", type=int, default=20, help="how many of --tasks")
    parser.add_argument(
        "--kinds", default=",".join(SHIPPED), help="kinds of prompts, including Spec-Bench's"
    )
    parser.add_argument("--prompts", type=int, default=4, help="built-in prompts of each kind")
    parser.add_argument("--spec-bench", type=Path, help="JSONL: question_id, category, turns")
    parser.add_argument("--questions", type=int, default=10, help="of each of Spec-Bench's kinds")
    parser.add_argument("--limit", type=int, default=96, help="token limit of their answers")
    parser.add_argument("--temperatures", default="", help="such as 0,0.2,0.8: measure acceptance")
    parser.add_argument("--second-edit", action="store_true", help="measure reuse of the prompt")
    parser.add_argument(
        "--passes", action="store_true", help="measure passes over rows, and reading a prompt"
    )
    parser.add_argument(
        "--slow-prompts", type=int, default=1, help="prompts of each kind for slow methods"
    )
    parser.add_argument("--out", type=Path, help="default: bench/results/decode-MODEL-HOST.json")
    options = parser.parse_args(argv)
    unknown = set(options.methods.split(",")) - set(METHODS)
    if unknown:
        parser.error(f"--methods {','.join(sorted(unknown))}: choose from {','.join(METHODS)}")
    options.kinds = options.kinds.split(",")
    known = (*SHIPPED, *questions.KINDS)
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
    for path in (options.tasks, options.spec_bench):
        if path and not path.is_file():
            parser.error(f"{path}: no such file")
    return options


def load_tasks(options: argparse.Namespace) -> list[Task]:
    """Return the tasks of all requested kinds.

    Raises ValueError or OSError with a one-line message.
    """
    every = [*tasks.whole_files(), *tasks.shipped()]
    todo: list[Task] = []
    for kind in options.kinds:
        todo += [task for task in every if task.kind == kind][: options.prompts]
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
        server = llama.llama if isinstance(llama, LlamaCppRunner) else None
        found["passes"] = passes(engine, options.repeats)
        found["reading"] = [prompts(engine, server, task, options.repeats) for task in todo[:2]]
    return found


def default_out(options: argparse.Namespace, runners: Runners) -> Path:
    """Return the results file, named by prompts, model and hardware."""
    name = "decode" if options.kinds == list(SHIPPED) else "-".join(["decode", *options.kinds])
    hardware = gpu_name() if runners.device == "cuda" else None
    return results_path(name, Path(runners.model).name, hardware=hardware)


def main(argv: list[str] | None = None) -> int:
    options = arguments(argv)
    began = perf_counter()
    try:
        todo = load_tasks(options)
        runners = Runners(options)
    except (ValueError, OSError, RuntimeError, WeightsError) as error:
        complain("decode", error)
        return 2
    options.out = options.out or default_out(options, runners)
    notes = options.out.with_suffix(".runs")
    with runners:
        runs, floors = measure(options, runners, todo, notes)
        more = extras(options, runners, todo)
        kinds = groups(todo, runs, runners)
    pairs_seen = [(t, m) for t in todo for m in runners.methods if (t.name, m) in runs]
    results = [result(task, method, runs, runners) for task, method in pairs_seen]
    different = sum(line.get("equal") is False for line in results)
    different += sum(line["prompts"] - line["equal"] for line in more["acceptance"])
    record = run_record(runners, options.repeats, perf_counter() - began) | {
        "results": results,
        "groups": kinds,
        "floor": floor(floors, runs),
        **more,
        "different": different,
    }
    tables.show(record)
    report.write_json(options.out, record)
    notes.unlink()
    report.print_json_line(record)
    return 1 if record["different"] else 0
