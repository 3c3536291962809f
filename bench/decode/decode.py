"""How fast answers are decoded: plainly, by Draftline, by transformers and by llama.cpp.

    python bench/decode/decode.py [--repeats 5] [--methods plain,draftline] [--kinds file,edit,summary]
    python bench/decode/decode.py --spec-bench spec_bench.jsonl --kinds translation --limit 96

Edits of whole files and of selections, whose answers are checked, and summaries (bench/common/tasks.py);
tasks by path; Spec-Bench's questions by path (bench/common/questions.py). Every method has one short
warm-up a prompt; then, in each repeat, all methods take turns, in an order that rotates. Ratios are
medians over pairs of one repeat, with a bootstrap interval (bench/common/stats.py). Decoding excludes the
prompt (bench/decode/methods.py says how); end to end is the prompt's time, read once, and the time of the
whole answer at the measured speed. "cost" is free of noise: what all passes cost by this machine's
measured table (engine/model/cost_model.py), beside passes of one token for the same text.

To end in time, plain decoding by others, and ours in a second dtype, is timed over PLAIN_TOKENS
only (its speed hardly depends on what is written), and the second dtype and transformers get
--slow-prompts of each kind. A method that would not fit into memory is left out and named.
--temperatures: what is accepted there (bench/decode/acceptance.py); --second-edit: what of its prompt is
read again (bench/decode/prefix_reuse.py). Until OUT is there, its twin .runs has a JSON line for each run.
Exit code 1: some plain text and Draftline's differ; the results are written all the same.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

# This folder must not come first: it has an index.py too.
from bench.common import questions, report, tasks
from bench.common.stats import bootstrap, pairs
from bench.common.tasks import Task
from bench.decode.acceptance import acceptance
from bench.decode.methods import Ours, Run, floor_of, relative_cost
from bench.decode.prefix_reuse import second_edits
from bench.decode.runners import LLAMA, METHODS, Runners
from engine.weights import WeightsError

ROOT = Path(__file__).resolve().parents[2]

PLAIN_TOKENS, WARM_UP = 96, 24
SHIPPED = ("file", "edit", "summary")
COMPARED = (  # what is claimed: (ours, theirs)
    ("plain", "llama.cpp"),
    *(("draftline", name) for name in LLAMA[1:]),
    ("draftline", "lookup"),
    ("plain-{slow}", "hf"),
    ("draftline-{slow}", "hf-lookup"),
)
Runs = dict[tuple[str, str], list[Run]]  # (task, method) -> one a repeat


def limit_of(method: str, runners: Runners) -> int | None:
    """Tokens that a timed run may take; None: the whole answer."""
    capped = method in ("hf", "llama.cpp") or method == f"plain-{runners.slow}"
    return PLAIN_TOKENS if capped else None


def chosen(method: str, todo: list[Task], slow_prompts: int, runners: Runners) -> set[str]:
    """Names of the tasks that a method gets."""
    if not (method.startswith("hf") or method.endswith(f"-{runners.slow}")):
        return {task.name for task in todo}
    names: set[str] = set()
    for kind in kinds_of(todo):
        shipped = [task.name for task in todo if task.kind == kind and not task.sampled]
        names.update(shipped[:slow_prompts])
    return names


def kinds_of(todo: list[Task]) -> list[str]:
    """In the order that they come."""
    return list(dict.fromkeys(task.kind for task in todo))


def measure(
    options: argparse.Namespace, runners: Runners, todo: list[Task], notes: Path
) -> tuple[Runs, Any]:
    """All runs, and of each engine the floors seen, one a prompt. Runs are also noted at once."""
    runs: Runs = {}
    floors: dict[str, list[dict[str, float]]] = {}
    gets = {m: chosen(m, todo, options.slow_prompts, runners) for m in runners.methods}
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
    """The plain decoding of ours that a method is compared with: in its own dtype, if it ran."""
    same = f"plain-{runners.slow}"
    slow = method.startswith("hf") or method.endswith(f"-{runners.slow}")
    return same if slow and same in runners.methods else "plain"


def result(task: Task, method: str, runs: Runs, runners: Runners) -> dict[str, Any]:
    """One line of the results: medians over the repeats."""
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
    """Whether every run wrote one text; of a capped plain run, as far as it goes."""
    texts = {run.text for run in fast}
    if capped:
        return len(texts) == 1 and all(fast[0].text.startswith(run.text) for run in plain)
    return texts == {run.text for run in plain} and len(texts) == 1


def groups(todo: list[Task], runs: Runs, runners: Runners) -> list[dict[str, Any]]:
    """Ratios over all prompts of a kind: every method to plain, and what is claimed."""
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
                        cost = relative_cost(runners.engines[other].cost, passes)
                        line["cost"] = None if cost is None else round(cost, 4)
                    found.append(line)
    return found


def floor(floors: dict[str, list[dict[str, float]]], runs: Runs) -> dict[str, Any]:
    """Of each plain method: bytes a step reads, bandwidth, and a step's time over their ratio."""
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
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--model", default=None, help="default: the engine's own")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--dtypes", help="default: auto and f32 (bf16 where the processor has it)")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--threads", type=int, default=0, help="0: one a core")
    parser.add_argument("--tasks", type=Path, help="JSONL: id, instruction, context, before")
    parser.add_argument("--sample", type=int, default=20, help="of --tasks")
    parser.add_argument("--kinds", default=",".join(SHIPPED), help="also Spec-Bench's")
    parser.add_argument("--prompts", type=int, default=4, help="shipped ones of each kind")
    parser.add_argument("--spec-bench", type=Path, help="JSONL: question_id, category, turns")
    parser.add_argument("--questions", type=int, default=10, help="of each of its kinds")
    parser.add_argument("--limit", type=int, default=96, help="tokens of an answer to them")
    parser.add_argument("--temperatures", default="", help="such as 0,0.2,0.8: what is accepted")
    parser.add_argument("--second-edit", action="store_true", help="what it reads again")
    parser.add_argument(
        "--slow-prompts", type=int, default=1, help="of each kind, for slow methods"
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


def asked(options: argparse.Namespace) -> list[Task]:
    """The tasks of all kinds that are wanted. ValueError or OSError with one line."""
    every = [*tasks.whole_files(), *tasks.shipped()]
    todo: list[Task] = []
    for kind in options.kinds:
        todo += [task for task in every if task.kind == kind][: options.prompts]
    named = [kind for kind in options.kinds if kind in questions.KINDS]
    if named:
        todo += questions.tasks(options.spec_bench, named, options.questions, options.limit)
    return todo + (tasks.from_file(options.tasks, options.sample) if options.tasks else [])


def besides(options: argparse.Namespace, runners: Runners, todo: list[Task]) -> dict[str, Any]:
    """What is asked for beside the speed."""
    plain, ours = (runners.methods.get(name) for name in ("plain", "draftline"))
    found: dict[str, Any] = {"acceptance": [], "second_edit": []}
    if options.temperatures and isinstance(plain, Ours) and isinstance(ours, Ours):
        found["acceptance"] = acceptance(plain, ours, todo, options.temperatures, options.limit)
    if options.second_edit and "plain" in runners.engines:
        found["second_edit"] = second_edits(runners.engines["plain"], options.repeats)
    return found


def main(argv: list[str] | None = None) -> int:
    options = arguments(argv)
    began = perf_counter()
    try:
        todo = asked(options)
        runners = Runners(options)
    except (ValueError, OSError, RuntimeError, WeightsError) as error:
        print(f"bench/decode/decode.py: {error}", file=sys.stderr)
        return 2
    options.out = report.place(options, runners)
    notes = options.out.with_suffix(".runs")
    with runners:
        runs, floors = measure(options, runners, todo, notes)
        more = besides(options, runners, todo)
        kinds = groups(todo, runs, runners)
    pairs_seen = [(t, m) for t in todo for m in runners.methods if (t.name, m) in runs]
    results = [result(task, method, runs, runners) for task, method in pairs_seen]
    different = sum(line.get("equal") is False for line in results)
    different += sum(line["prompts"] - line["equal"] for line in more["acceptance"])
    record = report.about(options, runners, perf_counter() - began) | {
        "results": results,
        "groups": kinds,
        "floor": floor(floors, runs),
        **more,
        "different": different,
    }
    report.show(record)
    report.write(options, record)
    notes.unlink()
    report.last_line(record)
    return 1 if record["different"] else 0
