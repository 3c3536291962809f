"""Figures and tables of `python -m bench assist`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from bench.assist.score import HARMFUL, OUTCOMES, RIGHT, WRONG
from bench.common import report
from bench.quality.tables import percent
from ui.verify.rates import wilson

Row = dict[str, Any]
PARTS = ("edits", "completions")


def summary(rows: list[Row]) -> Row:
    """Return the figures of all rows of each part, and by language and kind."""
    found: Row = {}
    for part in PARTS:
        if own := [row for row in rows if row["part"] == part]:
            found[part] = {
                "all": figures(own),
                "by_language": grouped(own, lambda row: str(row["language"])),
                "by_kind": grouped(own, lambda row: str(row["kind"])),
                "harm": dict(
                    Counter(
                        row["why"].split(": ")[0] for row in own if row["outcome"] == HARMFUL
                    ).most_common()
                ),
            }
    return found


def grouped(rows: list[Row], key: Callable[[Row], str]) -> dict[str, Row]:
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    return {name: figures(group) for name, group in groups.items()}


def figures(rows: list[Row]) -> Row:
    """Return counts of outcomes; shares of right ones and of harm, with 95 % intervals."""
    counts = Counter(row["outcome"] for row in rows)
    bad = sum(row["outcome"] in (WRONG, HARMFUL) and not row["warned"] for row in rows)
    made: Row = {"tasks": len(rows), **{name: counts[name] for name in OUTCOMES}}
    made |= {
        "warned": sum(row["warned"] for row in rows),
        "by_rule": sum(row["by_rule"] for row in rows),
        "bad": bad,
    }
    for name, count in (("right", counts[RIGHT]), ("harmful", counts[HARMFUL]), ("bad", bad)):
        low, high = wilson(count, len(rows))
        made[f"{name}_share"] = round(count / len(rows), 4)
        made[f"{name}_low"], made[f"{name}_high"] = round(low, 4), round(high, 4)
    return made


def show(record: Row) -> None:
    """Print what was scored, by language and kind, and the rules that decided most often."""
    console = report.console(100)
    machine = record["machine"]
    console.print(
        f"{record['model']} on {machine['cpu']}, {machine['cores']} cores; checks: "
        f"{record['checks']}; {record['seconds']} s in all",
        markup=False,
    )
    for part in PARTS:
        if part not in record["results"]:
            continue
        result = record["results"][part]
        groups = {"all": result["all"], **result["by_language"]}
        if len(result["by_kind"]) > 1:
            groups |= result["by_kind"]
        heads = "group tasks right partly wrong harmful none warned by_rule bad"
        lines = [
            [name, *(str(one[key]) for key in heads.split()[1:])] for name, one in groups.items()
        ]
        console.print(report.table(part.capitalize(), heads, lines))
        console.print(shares(result["all"]), markup=False)
        for why, count in result["harm"].items():
            console.print(f"{count:4d} harmful: {why}", markup=False)
    console.print("bad: wrong or harmful, and shown without a warning")


def shares(one: Row) -> str:
    """Return the shares of right, bad and harmful answers with their 95 % intervals."""
    return "; ".join(
        f"{name} {percent(one[f'{name}_share'])} [{percent(one[f'{name}_low'])}, "
        f"{percent(one[f'{name}_high'])}]"
        for name in ("right", "bad", "harmful")
    )
