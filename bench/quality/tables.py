"""Figures and tables of `python -m bench quality`."""

from __future__ import annotations

from collections import Counter
from typing import Any

from bench.common import report
from bench.quality import tried
from ui.verify.rates import wilson

Row = dict[str, Any]


def summary(rows: list[Row]) -> Row:
    """Figures by set, instruction and mode; records left out; the number of differing answers."""
    edits = [row for row in rows if row["mode"] != "own"]
    groups: dict[tuple[str, str, str], list[Row]] = {}
    for row in edits:
        groups.setdefault((row["set"], row["asked"], row["mode"]), []).append(row)
    return {
        "results": [
            {"set": name, "asked": asked, "mode": mode} | figures(many)
            for (name, asked, mode), many in groups.items()
        ],
        "different": sum(not row["equal"] for row in edits),
        "left_out": [
            f"{row['name']}: {row['why']}" for row in rows if row["outcome"] == "left out"
        ],
        "failures": dict(
            Counter(f"{row['outcome']}: {row['why']}" for row in edits if row["why"]).most_common()
        ),
    }


def figures(rows: list[Row]) -> Row:
    """Return the figures of one group of edits."""
    accepted = [row for row in rows if row["outcome"] != "refused"]
    passed = sum(row["outcome"] == "passed" for row in rows)
    must = sum(row["must_stay"] for row in accepted)
    forwards = sum(row.get("forwards", 0) for row in rows)
    low, high = wilson(passed, len(rows))
    return {
        "edits": len(rows),
        "accepted": round(len(accepted) / len(rows), 4),
        "passed": round(passed / len(rows), 4),
        "passed_low": round(low, 4),
        "passed_high": round(high, 4),
        "unchanged": sum(row["unchanged"] for row in accepted),
        "untouched_kept": round(sum(r["stayed"] for r in accepted) / must, 4) if must else None,
        "tokens_per_forward": (
            round(sum(row.get("tokens", 0) for row in rows) / forwards, 2) if forwards else None
        ),
        "different": sum(not row["equal"] for row in rows),
        **(tried.figures(rows) if "greedy" in rows[0] else {}),
    }


def show(record: Row) -> None:
    """Print the table, the records left out, and how edits failed."""
    is_tried = any("greedy_passed" in one for one in record["results"])
    console = report.console(180 if is_tried else 140)
    console.print(
        f"{record['model']} on {record['on']}; answers with and without speculation: "
        f"{record['different']} differ; {record['seconds']} s in all",
        markup=False,
    )
    lines = [
        [
            one["set"],
            one["asked"],
            one["mode"],
            str(one["edits"]),
            percent(one["accepted"]),
            f"{percent(one['passed'])} [{percent(one['passed_low'])}, "
            f"{percent(one['passed_high'])}]",
            str(one["unchanged"]),
            percent(one["untouched_kept"]),
            "" if one["tokens_per_forward"] is None else f"{one['tokens_per_forward']:.2f}",
        ]
        for one in record["results"]
    ]
    heads = "set asked mode edits accepted passed unchanged untouched_kept tokens/pass"
    if is_tried:
        heads += " greedy checked checked_but_wrong time/greedy"
        for line, one in zip(lines, record["results"], strict=True):
            line += [
                percent(one["greedy_passed"]),
                str(one["checked"]),
                str(one["checked_but_wrong"]),
                f"{one['times_greedy'] or 0:.2f}",
            ]
    console.print(report.table("Edits", heads, lines))
    if record["left_out"]:
        names = "; ".join(record["left_out"])
        console.print(f"left out, since their reference answers fail here: {names}", markup=False)
    for why, count in record["failures"].items():
        console.print(f"{count:4d} {why}", markup=False)


def percent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.1f}%"
