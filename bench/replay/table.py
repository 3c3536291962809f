"""Rows and tables of `python -m bench replay`, and the best rule of each family."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from statistics import mean
from typing import Any

from bench.common import report
from bench.replay.run import Key, Rule, Tally

AUTOMATON = ("sam-first", "sam-last")
BEST = "best automaton rule"
ALL, POOLED = "all", "pooled"
SHOWN = ("best draftline", BEST, "best bound")  # methods in the table by package

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
    tallies: Tallies, chosen: list[Rule], rows_of: Groups, options: argparse.Namespace
) -> list[Row]:
    """Return the rows of every rule, then of the best rules; "all" first, then by package."""
    found = []
    for rule in chosen:
        for name, parts in rows_of.items():
            for budget in options.budget:
                for beta in options.beta:
                    at = beta if rule.by_beta else 0.0
                    some = [
                        sum_tallies(
                            tallies[rule.name, package, budget, at] for package in sorted(part)
                        )
                        for part in parts
                    ]
                    found.append(make_row(some, rule.name, name, budget, beta, options.mode))
    return found + list(best_rows(found, chosen, list(rows_of), options))


def sum_tallies(tallies: Iterator[Tally]) -> Tally:
    whole = Tally()
    for one in tallies:
        whole.add(one)
    return whole


def make_row(
    some: list[Tally], name: str, package: str, budget: int, beta: float, mode: str
) -> Row:
    """Return the mean of several tallies' figures; times and precision are those of their sum."""
    whole = sum_tallies(iter(some))
    return {
        "drafter": name,
        "mode": mode,
        "package": package,
        "budget": budget,
        "beta": beta,
        "tokens_per_step": round(mean(one.tokens_per_step for one in some), 4),
        "speedup": round(mean(one.speedup(beta) for one in some), 4),
        "precision": round(whole.precision, 4),
        "us_per_step_p50": round(whole.microseconds(0.5), 1),
        "us_per_step_p99": round(whole.microseconds(0.99), 1),
    }


def best_rows(
    found: list[Row], chosen: list[Rule], packages: list[str], options: argparse.Namespace
) -> Iterator[Row]:
    """Return the best rules by family, and over all automata.

    They are the best rule per budget at beta 0, and the best rule and budget at every other beta
    (draftline always has the largest budget there).
    """
    names: dict[str, list[str]] = {}
    for rule in chosen:
        names.setdefault(f"best {rule.family}", []).append(rule.name)
        if rule.family in AUTOMATON:
            names.setdefault(BEST, []).append(rule.name)
    by_beta = {rule.name for rule in chosen if rule.by_beta}
    at = {(one["drafter"], one["package"], one["budget"], one["beta"]): one for one in found}
    for title, members in names.items():
        budgets = options.budget[-1:] if by_beta & set(members) else options.budget
        for beta in options.beta:
            for some in [[one] for one in options.budget] if beta == 0 else [budgets]:
                pairs = [(name, budget) for name in members for budget in some]
                name, budget = max(
                    pairs, key=lambda pair: at[pair[0], ALL, pair[1], beta]["speedup"]
                )
                for package in packages:
                    row = at[name, package, budget, beta]
                    yield row | {"drafter": title, "rule": name}


def show(found: list[Row], options: argparse.Namespace, title: str, file: Any) -> None:
    """Print the best rule of each family; then draftline and the best automaton by package."""
    from rich.console import Console

    console = Console(file=file, width=None if file.isatty() else 140)
    console.print(title, markup=False)
    columns = [(0.0, budget) for budget in options.budget] if 0.0 in options.beta else []
    columns += [(beta, 0) for beta in options.beta if beta]
    heads = [f"beta={beta:g}" if beta else f"N={budget}" for beta, budget in columns]
    bests: dict[tuple[str, str], list[Row]] = {}
    for row in found:
        if "rule" in row:
            bests.setdefault((row["drafter"], row["package"]), []).append(row)
    lines = []
    for (name, package), some in bests.items():
        if package == ALL:
            last = some[-1]
            lines.append(
                [
                    name.removeprefix("best ") if name != BEST else name,
                    *cells(some, columns),
                    f"{last['precision']:.2f}",
                    f"{last['us_per_step_p50']:.0f}",
                    f"{last['us_per_step_p99']:.0f}",
                    f"{last['rule']}, N={last['budget']}",
                ]
            )
    ends = ["precision", "us_p50", "us_p99", "in_the_last_column"]
    name = f"Mode {options.mode}: tokens a step at N nodes, speed-up where a node costs beta"
    console.print(report.table(name, " ".join(["drafter", *heads, *ends]), lines))
    lines = [
        [package, name.removeprefix("best ") if name != BEST else name, *cells(some, columns)]
        for (name, package), some in sorted(bests.items(), key=lambda item: item[0][1])
        if package != ALL and name in SHOWN
    ]
    if lines:
        console.print(report.table("By package", " ".join(["package", "drafter", *heads]), lines))


def cells(some: list[Row], columns: list[tuple[float, int]]) -> list[str]:
    """Return the cells of a family's rows."""
    return [
        f"{row['speedup']:.2f}"
        for beta, budget in columns
        for row in some
        if row["beta"] == beta and budget in (0, row["budget"])
    ]


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
