"""The figures of `python -m bench decode`: of each run, of each kind of task, and ratios."""

from __future__ import annotations

from statistics import median
from typing import Any

from bench.common.stats import over_tasks, pairs
from bench.common.tasks import EDITS, Task
from bench.decode.methods import Run, relative_cost
from bench.decode.peers.programs import program_of
from bench.decode.runners import Runners
from ui.verify.rates import wilson

Runs = dict[tuple[str, str], list[Run]]  # (task, method) -> one a repeat

COMPARED = (  # (ours, theirs)
    ("draftline", "lookup"),
    ("plain-{slow}", "hf"),
    ("draftline-{slow}", "hf-lookup"),
)
SPEEDS = ("end_to_end", "tokens", "reading")  # of a Run, each with "_per_s"
PLAIN_TOKENS = 96  # tokens that are timed of a slow method's plain answer


def limit_of(method: str, runners: Runners) -> int | None:
    """Return the token limit of a timed run; None for the whole answer."""
    return PLAIN_TOKENS if method in ("hf", f"plain-{runners.slow}") else None


def plain_of(method: str, runners: Runners) -> str:
    """Our plain decoding that a method is compared with: in the same dtype if that was run."""
    same = f"plain-{runners.slow}"
    slow = method.startswith("hf") or method.endswith(f"-{runners.slow}")
    return same if slow and same in runners.methods else "plain"


def is_ours(method: str) -> bool:
    return method.startswith(("plain", "draftline", "lookup"))


def kinds_of(todo: list[Task]) -> list[str]:
    """Return the kinds of tasks, in order of first appearance."""
    return list(dict.fromkeys(task.kind for task in todo))


def groups(todo: list[Task]) -> dict[str, list[Task]]:
    """Return the tasks of each kind; first, if there are both, all edits that ship."""
    edits = {"all edits": [task for task in todo if task.kind in EDITS]}
    found = {kind: [task for task in todo if task.kind == kind] for kind in kinds_of(todo)}
    return (edits if set(EDITS) <= set(found) else {}) | found


# -- one task ----------------------------------------------------------------------------------


def result(task: Task, method: str, runs: Runs, runners: Runners) -> dict[str, Any]:
    """Return one line of the results: medians over the repeats of a task."""
    mine = runs[task.name, method]
    first, plain = mine[0], runs.get((task.name, plain_of(method, runners)))
    capped = limit_of(method, runners) is not None
    line = {
        "prompt": task.name,
        "kind": task.kind,
        "method": method,
        "dtype": runners.dtypes[method],
        "tokens": first.tokens,
        "tokens_per_s": round(speed(mine, "tokens"), 2),
        "drafted_per_forward": round(sum(n for n, _ in first.steps) / first.forwards, 2),
        "tokens_per_forward": round(median(run.tokens / run.forwards for run in mine), 3),
        "ms_per_step": round(1000 * median(run.seconds / run.forwards for run in mine), 2),
        "prompt_tokens": first.prompt,
        "prefill_s": round(first.prefill, 3),
        "reading_tokens_per_s": round(speed(mine, "reading"), 1),
        "end_to_end_tokens_per_s": None if capped else round(speed(mine, "end_to_end"), 2),
        "passes": None if capped else task.passes(first.text),
    }
    if is_ours(method) and not method.startswith("plain") and plain:
        base = limit_of(plain_of(method, runners), runners)
        line["equal"] = equal(mine, plain, base is not None)
    return line


def speed(runs: list[Run], what: str) -> float:
    """Return the median over repeats of one of SPEEDS."""
    return median(speeds(runs, what))


def speeds(runs: list[Run], what: str) -> list[float]:
    name = "tokens_per_s" if what == "tokens" else f"{what}_tokens_per_s"
    return [getattr(run, name) for run in runs]


def equal(fast: list[Run], plain: list[Run], capped: bool) -> bool:
    """Return whether all runs wrote the same text.

    A capped plain run is compared as far as it goes.
    """
    texts = {run.text for run in fast}
    if capped:
        return len(texts) == 1 and all(fast[0].text.startswith(run.text) for run in plain)
    return texts == {run.text for run in plain} and len(texts) == 1


# -- kinds of tasks ----------------------------------------------------------------------------


def kinds(todo: list[Task], results: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return for each kind and method the speeds, as medians over tasks, and the right answers."""
    found = []
    for kind, tasks in groups(todo).items():
        names = {task.name for task in tasks}
        for method in dict.fromkeys(one["method"] for one in results):
            lines = [one for one in results if one["method"] == method and one["prompt"] in names]
            if lines:
                found.append({"kind": kind, "method": method} | _of_kind(lines))
    return found


def _of_kind(lines: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the figures of one method over tasks."""
    judged = [line["passes"] for line in lines if line["passes"] is not None]
    low, high = wilson(sum(judged), len(judged)) if judged else (0.0, 0.0)
    whole = [one["end_to_end_tokens_per_s"] for one in lines]
    known = [one["equal"] for one in lines if "equal" in one]
    return {
        "tasks": len(lines),
        "end_to_end_tokens_per_s": None if None in whole else round(median(whole), 2),
        "tokens_per_s": round(median(one["tokens_per_s"] for one in lines), 2),
        "reading_tokens_per_s": round(median(one["reading_tokens_per_s"] for one in lines), 1),
        "tokens_per_forward": round(
            sum(one["tokens"] for one in lines)
            / sum(one["tokens"] / one["tokens_per_forward"] for one in lines),
            3,
        ),
        "judged": len(judged),
        "right": sum(judged),
        "right_low": round(low, 3),
        "right_high": round(high, 3),
        "equal": sum(known) if known else None,
    }


def ratios(
    todo: list[Task], runs: Runs, results: list[dict[str, Any]], runners: Runners
) -> list[dict[str, Any]]:
    """Ratios over the tasks of a kind: to plain decoding, of the pairs COMPARED, to programs.

    Plain decoding is compared with that of each program, Draftline with the setting of each that is
    its fastest, end to end, on these tasks. A ratio is the median over tasks of each task's median
    over repeats; its interval resamples tasks. With another program only tasks count that both
    answered rightly, if they are judged.
    """
    within = [m for m in runners.methods if is_ours(m) or m.startswith("hf")]
    wanted = [(m, plain_of(m, runners)) for m in within if m != plain_of(m, runners)]
    wanted += [(one.format(slow=runners.slow), other) for one, other in COMPARED]
    others = [m for m in runners.methods if m not in within]
    wrong = {(each["prompt"], each["method"]) for each in results if each["passes"] is False}
    found = []
    for kind, tasks in groups(todo).items():
        best = fastest(tasks, others, runs)
        theirs = [("plain", name) for name in best]
        theirs += [("draftline", name) for name in best.values()]
        for one, other in dict.fromkeys(wanted + theirs):
            left_out = set() if is_ours(one) == is_ours(other) else wrong
            usable = runs.keys() - left_out
            both = [t for t in tasks if {(t.name, one), (t.name, other)} <= usable]
            if both:
                line = {"kind": kind, "method": one, "against": other, "tasks": len(both)}
                found.append(line | _ratios(both, one, other, runs, runners))
    return found


def fastest(tasks: list[Task], methods: list[str], runs: Runs) -> dict[str, str]:
    """Return for each program its method with the highest end-to-end speed.

    It is the median over the tasks that all methods of the program ran.
    """
    ran = {method: {t.name for t in tasks if (t.name, method) in runs} for method in methods}
    found = {}
    for program in dict.fromkeys(program_of(method) for method in methods if ran[method]):
        mine = [method for method in methods if ran[method] and program_of(method) == program]
        if common := set.intersection(*(ran[method] for method in mine)):
            median_of = {m: median(speed(runs[t, m], "end_to_end") for t in common) for m in mine}
            found[program] = max(mine, key=median_of.__getitem__)
    return found


def _ratios(
    tasks: list[Task], one: str, other: str, runs: Runs, runners: Runners
) -> dict[str, Any]:
    line: dict[str, Any] = {"cost": None}
    for what in SPEEDS:
        capped = limit_of(one, runners) or limit_of(other, runners)
        shared = what == "reading" and is_ours(one) and is_ours(other)
        if shared or (what == "end_to_end" and capped):
            line |= {what: None, f"{what}_low": None, f"{what}_high": None}
            continue
        ratio = over_tasks(
            [
                median(pairs(*(speeds(runs[task.name, name], what) for name in (one, other))))
                for task in tasks
            ]
        )
        line |= {what: round(ratio.value, 3)}
        line |= {f"{what}_low": round(ratio.low, 3), f"{what}_high": round(ratio.high, 3)}
    if other == plain_of(one, runners) and other in runners.engines and is_ours(one):
        every = [run for task in tasks for run in runs[task.name, one]]
        cost = relative_cost(runners.engines[other].parts.cost, every)
        line["cost"] = None if cost is None else round(cost, 4)
    return line


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
