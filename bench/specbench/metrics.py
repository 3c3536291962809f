"""Spec-Bench's figures (arXiv 2401.07851) from the saved answers of `python -m bench specbench`.

As Spec-Bench defines them, a question's speed is the tokens of its turns divided by their time,
prompts included; a method's speed is the mean over its questions; its speedup is the ratio of two
such means, not the mean of ratios (`speedup_total`, all tokens by all time, is given as well). Mean
accepted tokens are over all steps of all questions and include the model's own token, so plain
decoding has 1. Spec-Bench recounts the baseline's tokens from its text, and all others' from their
ids: `speedup` counts ids on both sides, `speedup_recounted` is the published way. Questions that a
method could not answer are left out and named.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from statistics import mean, median, stdev
from typing import Any

from bench.common.questions import Question
from bench.common.stats import Ratio, ratio_of_sums
from bench.specbench.run import PLAIN, TRANSFORMERS, Row

AUTO = "auto"
OVERALL = "overall"
Key = tuple[str, int | str]  # category and id
Rows = dict[tuple[int, str], dict[Key, Row]]  # (run, method) -> its answers, errors among them
Answers = dict[Key, Row]


def group_lines(lines: Iterable[Row]) -> Rows:
    """Lines by run and method; for a repeated question the later line counts."""
    found: Rows = {}
    for line in lines:
        key = (line["category"], line["question_id"])
        found.setdefault((line["run"], line["method"]), {})[key] = line
    return found


def total(answer: Row, what: str) -> float:
    """Return the sum of a field over the turns of an answer."""
    return float(sum(answer["choices"][0][what]))


def speed(answer: Row, tokens: str = "new_tokens", seconds: str = "wall_time") -> float:
    """Tokens per second of one question."""
    return total(answer, tokens) / total(answer, seconds)


def equal(one: Row, other: Row) -> bool:
    """Return whether all turns have equal texts."""
    return str(one["choices"][0]["turns"]) == str(other["choices"][0]["turns"])


def base_of(method: str, methods: Iterable[str]) -> str:
    """Return the method with the reference texts.

    That is transformers for its own prompt lookup, else plain.
    """
    return TRANSFORMERS[0] if method == TRANSFORMERS[1] and TRANSFORMERS[0] in methods else PLAIN


def members(questions: Iterable[Question]) -> dict[str, set[Key]]:
    """Return the questions of each group; all of them last."""
    found: dict[str, set[Key]] = {}
    for one in questions:
        found.setdefault(one.group, set()).add((one.category, one.id))
    return found | {OVERALL: {key for group in found.values() for key in group}}


def answered(rows: Rows, method: str, group: set[Key]) -> dict[int, Answers]:
    """Return the method's answers to the group's questions by run.

    Errors and empty answers are left out.
    """
    return {
        run: {
            key: one
            for key, one in answers.items()
            if key in group and not one["error"] and total(one, "new_tokens")
        }
        for (run, name), answers in sorted(rows.items())
        if name == method
    }


# -- one method in one category --------------------------------------------------------------------


def figures(rows: Rows, method: str, group: set[Key], gaps: Mapping[Any, float],
            tie: float) -> dict[str, Any] | None:  # fmt: skip
    """Means and deviations over runs; None if nothing was answered."""
    mine = {run: found for run, found in answered(rows, method, group).items() if found}
    plain = answered(rows, PLAIN, group)
    if not mine:
        return None
    lengths = [one["choices"][0]["accept_lengths"] for run in mine.values() for one in run.values()]
    accepted = ratio_of_sums([(sum(one), len(one)) for one in lengths])
    passes = sum(total(one, "passes") for run in mine.values() for one in run.values())
    speeds = [mean(speed(one) for one in run.values()) for run in mine.values()]
    return {
        "tokens_per_s": round(mean(speeds), 3),
        **compared(mine, plain),
        "mean_accepted": round(accepted.value, 4),
        "mean_accepted_low": round(accepted.low, 4),
        "mean_accepted_high": round(accepted.high, 4),
        "tokens_per_pass": round(sum(map(sum, lengths)) / passes, 4),
        **texts(rows, method, mine, gaps, tie),
        "questions": len({key for run in mine.values() for key in run}),
        "runs": len(mine),
        "tokens_per_s_median": round(
            median(speed(one) for run in mine.values() for one in run.values()), 3
        ),
        "tokens_per_s_total": round(totals(mine), 3),
        "tokens_per_s_runs": [round(one, 3) for one in speeds],
        "tokens_per_s_std": round(stdev(speeds), 3) if len(speeds) > 1 else None,
    }


def totals(runs: dict[int, Answers]) -> float:
    """Return all tokens divided by all time."""
    every = [one for run in runs.values() for one in run.values()]
    return sum(total(one, "new_tokens") for one in every) / sum(
        total(one, "wall_time") for one in every
    )


def compared(mine: dict[int, Answers], plain: dict[int, Answers]) -> dict[str, Any]:
    """Ratios to plain decoding over the questions that both answered, run by run."""
    both = {run: [key for key in found if key in plain.get(run, {})] for run, found in mine.items()}
    runs = [run for run, keys in both.items() if keys]
    if not runs:
        return {"speedup": None}
    ratios: dict[str, list[float]] = {"speedup": [], "recounted": [], "total": [], "decode": []}
    for run in runs:
        ours, theirs = ({key: found[run][key] for key in both[run]} for found in (mine, plain))
        mine_s = sum(speed(one) for one in ours.values())
        ratios["speedup"].append(mine_s / sum(speed(one) for one in theirs.values()))
        again = sum(speed(one, "recounted") for one in theirs.values())
        ratios["recounted"].append(mine_s / again if again else math.nan)
        ratios["total"].append(totals({run: ours}) / totals({run: theirs}))
        alone = [(decoding(ours[key]), decoding(theirs[key])) for key in both[run]]
        alone = [pair for pair in alone if all(pair)]
        ratios["decode"].append(
            sum(a for a, _ in alone) / sum(b for _, b in alone) if alone else math.nan
        )
    interval = ratio_of_sums(paired(mine, plain))
    values = ratios["speedup"]
    return {
        "speedup": round(mean(values), 4),
        "speedup_low": round(interval.low, 4),
        "speedup_high": round(interval.high, 4),
        "speedup_std": round(stdev(values), 4) if len(values) > 1 else None,
        "speedup_recounted": mean_or_none(ratios["recounted"]),
        "speedup_total": mean_or_none(ratios["total"]),
        "speedup_decode": mean_or_none(ratios["decode"]),
    }


def decoding(answer: Row) -> float:
    """Tokens per second, prompt excluded; 0 if there were none."""
    return speed(answer, "decoded", "decode_time") if total(answer, "decode_time") else 0.0


def mean_or_none(values: list[float]) -> float | None:
    """Return the mean; None if a value is NaN."""
    return None if any(map(math.isnan, values)) else round(mean(values), 4)


def paired(one: dict[int, Answers], other: dict[int, Answers]) -> list[tuple[float, float]]:
    """Both speeds of each question, averaged over runs."""
    found: dict[Key, list[tuple[float, float]]] = {}
    for run, answers in one.items():
        for key, answer in answers.items():
            if key in other.get(run, {}):
                pair = speed(answer), speed(other[run][key])
                found.setdefault(key, []).append(pair)
    return [(mean(a for a, _ in pairs), mean(b for _, b in pairs)) for pairs in found.values()]


def texts(rows: Rows, method: str, mine: dict[int, Answers], gaps: Mapping[Any, float],
          tie: float) -> dict[str, Any]:  # fmt: skip
    """Return whether the texts equal the base's, exactly and except for near ties."""
    base = base_of(method, {name for _, name in rows})
    differing = [
        (run, method, key)
        for run, answers in mine.items()
        for key, answer in answers.items()
        if key in rows.get((run, base), {}) and not equal(answer, rows[run, base][key])
    ]
    far = [place for place in differing if gaps.get(place, math.inf) >= tie]
    return {
        "equal": not differing,
        "equal_but_ties": not far,
        "equal_to": base,
        "different": len(differing),
        "near_ties": len(differing) - len(far),
    }


# -- all methods -----------------------------------------------------------------------------------


def different(rows: Rows) -> list[tuple[int, str, Key]]:
    """(run, method, question) of each of our texts that differs from plain decoding."""
    return [
        (run, method, key)
        for (run, method), answers in sorted(rows.items())
        if method not in (PLAIN, *TRANSFORMERS)
        for key, answer in answers.items()
        if not answer["error"]
        and not (plain := rows.get((run, PLAIN), {}).get(key, answer))["error"]
        and not equal(answer, plain)
    ]


def results(rows: Rows, methods: list[str], questions: list[Question], gaps: Mapping[Any, float],
            tie: float) -> list[dict[str, Any]]:  # fmt: skip
    """Return a line for each method in each group and overall."""
    found = []
    for category, group in members(questions).items():
        for method in methods:
            if (line := figures(rows, method, group, gaps, tie)) is not None:
                found.append({"method": method, "category": category} | line)
    return found


def auto(
    rows: Rows, methods: list[str], questions: list[Question], lines: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Compare `auto` with the fastest other method of each group.

    Only questions that both answered count.
    """
    found = []
    for category, group in members(questions).items():
        of = {one["method"]: one for one in lines if one["category"] == category}
        others = [name for name in methods if name != AUTO and name in of]
        if AUTO not in of or not others:
            continue
        best = max(others, key=lambda name: of[name]["tokens_per_s"])
        pairs = paired(answered(rows, AUTO, group), answered(rows, best, group))
        if pairs:
            ratio: Ratio = ratio_of_sums(pairs)
            found.append({"category": category, "best": best, "ratio": round(ratio.value, 4),
                          "low": round(ratio.low, 4), "high": round(ratio.high, 4)})  # fmt: skip
    return found


def fastest(rows: Rows, questions: list[Question], count: int) -> list[str]:
    """Return the `count` fastest methods of the first run, without plain decoding."""
    group = members(questions)[OVERALL]
    speeds = {}
    for run, method in rows:
        answers = answered(rows, method, group).get(0, {})
        if run == 0 and method != PLAIN and answers:
            speeds[method] = mean(map(speed, answers.values()))
    return sorted(speeds, key=lambda name: -speeds[name])[:count]


def errors(rows: Rows) -> list[dict[str, Any]]:
    """Return the questions that could not be answered, and why."""
    return [
        {"run": run, "method": method, "category": key[0], "question_id": key[1],
         "error": answer["error"]}
        for (run, method), answers in sorted(rows.items())
        for key, answer in answers.items()
        if answer["error"]
    ]  # fmt: skip
