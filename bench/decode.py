"""How fast answers are decoded: plainly, by Draftline, by transformers and by llama.cpp.

    python bench/decode.py [--repeats 5] [--methods plain,draftline] [--tasks editeval.jsonl]

Six prompts (bench/tasks.py): three edits whose answers are checked, three summaries. Every method
has one short warm-up a prompt; then, in each repeat and prompt, all methods take turns, in an order
that rotates. Ratios are medians over pairs of one repeat, with a bootstrap interval
(bench/stats.py). Decoding excludes the prompt (bench/methods.py says how); end to end is the
prompt's time and the time of the whole answer at the measured speed.

To end in time, plain decoding by others, and ours in a second dtype, is timed over PLAIN_TOKENS
only (its speed hardly depends on what is written), and the second dtype and transformers get
--slow-prompts of each kind. A method that would not fit into memory is left out and named.
Exit code 1: some plain text and Draftline's differ; the results are written all the same.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
# This folder must not come first: it has an index.py too.
sys.path[:] = [str(ROOT), *(p for p in sys.path if Path(p).resolve() != Path(__file__).parent)]

from bench import report, tasks  # noqa: E402
from bench.methods import Run, floor_of  # noqa: E402
from bench.runners import METHODS, Runners  # noqa: E402
from bench.stats import bootstrap, pairs  # noqa: E402
from bench.tasks import Task  # noqa: E402
from engine.weights import WeightsError  # noqa: E402

PLAIN_TOKENS, WARM_UP = 96, 24
COMPARED = (  # what is claimed: (ours, theirs)
    ("plain", "llama.cpp"),
    ("draftline", "llama.cpp-lookup"),
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
    for kind in ("edit", "summary"):
        shipped = [task.name for task in todo if task.kind == kind and not task.sampled]
        names.update(shipped[:slow_prompts])
    return names


def measure(options: argparse.Namespace, runners: Runners, todo: list[Task]) -> tuple[Runs, Any]:
    """All runs, and of each engine the floors seen, one a repeat."""
    runs: Runs = {}
    floors: dict[str, list[dict[str, float]]] = {}
    gets = {m: chosen(m, todo, options.slow_prompts, runners) for m in runners.methods}
    for repeat in range(-1, options.repeats):  # -1 warms up
        for name, engine in runners.engines.items():
            found = floor_of(engine, runners.threads) if repeat >= 0 else None
            if found:
                floors.setdefault(name, []).append(found)
        for place, task in enumerate(todo):
            order = [m for m in runners.methods if task.name in gets[m]]
            turn = (repeat + place) % len(order) if order else 0
            for method in order[turn:] + order[:turn]:
                limit = limit_of(method, runners) if repeat >= 0 else WARM_UP
                report.progress(repeat, options.repeats, task.name, method)
                run = runners.methods[method].run(task, limit)
                if repeat >= 0 and run.tokens and run.forwards:
                    runs.setdefault((task.name, method), []).append(run)
                elif repeat == 0:
                    runners.leave_out([method], f"{task.name} ended with the prompt's own pass")
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
    if method.startswith("draftline") and plain:
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
    for kind in ("edit", "summary"):
        for sampled in (False, True):
            names = [task.name for task in todo if (task.kind, task.sampled) == (kind, sampled)]
            for one, other in dict.fromkeys(wanted):
                both = [n for n in names if (n, one) in runs and (n, other) in runs]
                if both:
                    ratio = bootstrap(
                        [pairs(speeds(runs[n, one]), speeds(runs[n, other])) for n in both], sampled
                    )
                    found.append(
                        {
                            "kind": kind,
                            "prompts": len(both),
                            "sampled": sampled,
                            "method": one,
                            "against": other,
                            "ratio": round(ratio.value, 3),
                            "low": round(ratio.low, 3),
                            "high": round(ratio.high, 3),
                        }
                    )
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


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--model", default=None, help="default: the engine's own")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--dtypes", help="default: auto and f32 (bf16 where the processor has it)")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--threads", type=int, default=0, help="0: one a core")
    parser.add_argument("--tasks", type=Path, help="JSONL: id, instruction, context, before")
    parser.add_argument("--sample", type=int, default=20, help="of --tasks")
    parser.add_argument("--prompts", type=int, default=3, help="shipped ones of each kind")
    parser.add_argument(
        "--slow-prompts", type=int, default=1, help="of each kind, for slow methods"
    )
    parser.add_argument("--out", type=Path, help="default: bench/results/decode-MODEL-HOST.json")
    options = parser.parse_args()
    unknown = set(options.methods.split(",")) - set(METHODS)
    if unknown:
        parser.error(f"--methods {','.join(sorted(unknown))}: choose from {','.join(METHODS)}")
    for name in ("repeats", "sample"):
        if getattr(options, name) < 1:
            parser.error(f"--{name} {getattr(options, name)}: must be 1 or more")
    if options.tasks and not options.tasks.is_file():
        parser.error(f"--tasks {options.tasks}: no such file")
    return options


def main() -> int:
    options = arguments()
    began = perf_counter()
    todo: list[Task] = []
    for kind in ("edit", "summary"):
        todo += [task for task in tasks.shipped() if task.kind == kind][: options.prompts]
    try:
        todo += tasks.from_file(options.tasks, options.sample) if options.tasks else []
        runners = Runners(options)
    except (ValueError, OSError, RuntimeError, WeightsError) as error:
        print(f"bench/decode.py: {error}", file=sys.stderr)
        return 2
    with runners:
        runs, floors = measure(options, runners, todo)
    pairs_seen = [(t, m) for t in todo for m in runners.methods if (t.name, m) in runs]
    results = [result(task, method, runs, runners) for task, method in pairs_seen]
    record = report.about(options, runners, perf_counter() - began) | {
        "results": results,
        "groups": groups(todo, runs, runners),
        "floor": floor(floors, runs),
        "different": sum(line.get("equal") is False for line in results),
    }
    report.show(record)
    report.write(options, record)
    report.last_line(record)
    return 1 if record["different"] else 0


if __name__ == "__main__":
    sys.exit(main())
