"""Rows and tables of `python -m bench replay`, and the best rule of each family."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from statistics import mean
from typing import Any

from bench.common import report
from bench.replay.peers import SINGLE_COPY
from bench.replay.run import Key, Rule, Tally

AUTOMATON = ("sam-first", "sam-last", "sam-tree")
BEST = "best automaton rule"
ALL, POOLED = "all", "pooled"
SINGLE = f"best {SINGLE_COPY}"
SHOWN = ("best draftline", BEST, SINGLE)  # methods in the table by package

Row = dict[str, Any]  # an object of --json
Tallies = dict[Key, Tally]
Groups = dict[
    str, list[set[str]]
]  # name of a row -> the sets of packages whose tallies it averages


def groups(packages: list[str], folds: list[set[str]], by_language: bool) -> Groups:
    """Return the packages of each row.

    With folds "all" averages both halves and "pooled" has all tokens over all steps; without folds
    the two are the same.
    """
    known = set(packages)
    found: Groups = {ALL: [known]}
    if folds:
        found = {ALL: [fold & known for fold in folds if fold & known], POOLED: [known]}
    for package in sorted(known):
        name = package.partition(":")[0] if by_language else package
        found.setdefault(name, [set()])[0].add(package)
    return found


def rows(
    tallies: Tallies, chosen: list[Rule], rows_of: Groups, options: argparse.Namespace, source: str
) -> list[Row]:
    """Return the rows of every rule, then of the best rules; "all" first, then by package."""
    found = []
    for rule in chosen:
        for name, parts in rows_of.items():
            for budget in options.budget:
                some = [
                    sum_tallies(tallies[rule.name, package, budget] for package in sorted(part))
                    for part in parts
                ]
                about = {"drafter": rule.name, "source": source, "mode": options.mode}
                found.append(about | {"package": name, "budget": budget} | figures(some))
    return found + list(best_rows(found, chosen, list(rows_of), options.budget))


def sum_tallies(tallies: Iterator[Tally]) -> Tally:
    whole = Tally()
    for one in tallies:
        whole.add(one)
    return whole


def figures(some: list[Tally]) -> Row:
    """Return the mean of several tallies' figures; times and precision are those of their sum."""
    whole = sum_tallies(iter(some))
    return {
        "speedup": round(mean(one.speedup for one in some), 4),
        "tokens_per_step": round(mean(one.tokens_per_step for one in some), 4),
        "precision": round(whole.precision, 4),
        "us_per_step_p50": round(whole.microseconds(0.5), 1),
        "us_per_step_p99": round(whole.microseconds(0.99), 1),
    }


def best_rows(
    found: list[Row], chosen: list[Rule], packages: list[str], budgets: list[int]
) -> Iterator[Row]:
    """Return the fastest rules by family and over all automata: per budget, then over budgets.

    A rule that adapts its drafts to their cost always has the largest budget there, which has the
    budget "best".
    """
    names: dict[str, list[str]] = {}
    for rule in chosen:
        names.setdefault(f"best {rule.family}", []).append(rule.name)
        if rule.family in AUTOMATON:
            names.setdefault(BEST, []).append(rule.name)
    adapting = {rule.name for rule in chosen if rule.adapts}
    at = {(one["drafter"], one["package"], one["budget"]): one for one in found}
    for title, members in names.items():
        most = budgets[-1:] if adapting & set(members) else budgets
        for some in [*([one] for one in budgets), most]:
            pairs = [(name, budget) for name in members for budget in some]
            name, budget = max(pairs, key=lambda pair: at[pair[0], ALL, pair[1]]["speedup"])
            for package in packages:
                row = at[name, package, budget] | {"drafter": title, "rule": f"{name}, N={budget}"}
                yield row | ({"budget": "best"} if some is most else {})


def show(found: list[Row], options: argparse.Namespace, title: str, file: Any) -> None:
    """Print the best rule of each family; then draftline and the best automaton by package."""
    from rich.console import Console

    console = Console(file=file, width=None if file.isatty() else 140)
    console.print(title, markup=False)
    heads = " ".join([*(f"N={budget}" for budget in options.budget), "best"])
    bests: dict[tuple[str, str], list[Row]] = {}
    for row in found:
        if "rule" in row:
            bests.setdefault((row["drafter"], row["package"]), []).append(row)
    shown = {}
    for (drafter, package), some in bests.items():
        title = drafter if drafter in (BEST, SINGLE) else drafter.removeprefix("best ")
        shown[drafter, package] = [title, *(f"{row['speedup']:.2f}" for row in some)]
    lines = []
    for (drafter, package), cells in shown.items():
        if package == ALL:
            last = bests[drafter, package][-1]
            times = [f"{last[f'us_per_step_{name}']:.0f}" for name in ("p50", "p99")]
            counts = [f"{last[name]:.2f}" for name in ("tokens_per_step", "precision")]
            lines.append([*cells, *counts, *times, last["rule"]])
    name = f"Mode {options.mode}: times as fast as plain decoding, at most N nodes a step"
    ends = "tokens_a_step precision us_p50 us_p99 best_is"
    console.print(report.table(name, f"drafter {heads} {ends}", lines))
    lines = [
        [package, *cells]
        for (drafter, package), cells in sorted(shown.items(), key=lambda item: item[0][1])
        if package != ALL and drafter in SHOWN
    ]
    if lines:
        console.print(report.table("By package", f"package drafter {heads}", lines))


def write_rows(file: Path, about: dict[str, Any], found: list[Row]) -> None:
    """Write the tables' rows as JSON, one per line, after the facts of the run."""
    some = [
        row
        for row in found
        if "rule" in row and (row["package"] in (ALL, POOLED) or row["drafter"] in SHOWN)
    ]
    head = json.dumps(about, indent=1).removesuffix("\n}")
    lines = ",\n  ".join(map(json.dumps, some))
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f'{head},\n "rows": [\n  {lines}\n ]\n}}\n', "utf-8")
