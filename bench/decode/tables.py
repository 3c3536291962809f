"""The tables that `python -m bench decode` prints."""

from __future__ import annotations

from typing import Any

from bench.common.report import console_with_header, interval, table


def show(record: dict[str, Any]) -> None:
    """Show the kinds of tasks, how they compare, the floor, and what else was measured."""
    console = console_with_header(
        record, 140, f"medians of {record['repeats']}; {record['seconds']} s in all"
    )
    console.print("load: " + ", ".join(f"{k} {v:.1f} s" for k, v in record["load_s"].items()))
    heads = "kind method tasks end-to-end decoding reading tokens/pass right equal"
    lines = [
        [
            one["kind"],
            one["method"],
            str(one["tasks"]),
            number(one["end_to_end_tokens_per_s"]),
            number(one["tokens_per_s"]),
            number(one["reading_tokens_per_s"]),
            f"{one['tokens_per_forward']:.2f}",
            right(one),
            "" if one["equal"] is None else f"{one['equal']} of {one['tasks']}",
        ]
        for one in record["kinds"]
    ]
    console.print(table("Tokens/s, as medians over tasks", heads, lines))
    heads = "kind method against tasks end-to-end decoding reading cost"
    lines = [
        [
            one["kind"],
            one["method"],
            one["against"],
            str(one["tasks"]),
            *(interval(one, what, f"{what}_") for what in ("end_to_end", "tokens", "reading")),
            "" if one["cost"] is None else f"{one['cost']:.3f}",
        ]
        for one in record["ratios"]
    ]
    console.print(table("How many times as fast, with 95 % intervals over tasks", heads, lines))
    heads = "method MB/step GB/s floor/ms step/ms step/floor"
    lines = [
        [
            name,
            f"{one['weight_bytes'] / 1e6:.0f}",
            f"{one['bandwidth_gb_per_s']:.1f}",
            f"{one['floor_ms']:.1f}",
            f"{one['step_ms']:.1f}",
            f"{one['step_over_floor']:.2f}",
        ]
        for name, one in record["floor"].items()
    ]
    console.print(table("One-token steps against reading the weights once", heads, lines))
    if record["acceptance"]:
        heads = "kind temperature prompts equal tokens tokens/pass accepted"
        lines = [[str(value) for value in one.values()] for one in record["acceptance"]]
        console.print(table("What is accepted", heads, lines))
    if record["second_edit"]:
        heads = "case first/tokens second/tokens first/s second/s ratio"
        lines = [[str(value) for value in one.values()] for one in record["second_edit"]]
        console.print(table("Reading the prompt of a second edit", heads, lines))
    if record["passes"]:
        heads = "rows ms ratio"
        lines = [[str(value) for value in one.values()] for one in record["passes"]]
        console.print(table("Passes over several rows against one", heads, lines))
    if record["reading"]:
        heads = "prompt tokens tokens/s llama.cpp ratio"
        lines = [
            [
                one["prompt"],
                str(one["tokens"]),
                f"{one['tokens_per_s']}",
                f"{one.get('llama_tokens_per_s', '')}",
                interval(one, "ratio", "") if "ratio" in one else "",
            ]
            for one in record["reading"]
        ]
        console.print(table("Reading a prompt", heads, lines))


def number(value: float | None) -> str:
    return "" if value is None else f"{value:.1f}"


def right(line: dict[str, Any]) -> str:
    """Write how many of the judged answers are right, and the interval of the share."""
    if not line["judged"]:
        return ""
    low, high = (100 * line[f"right_{end}"] for end in ("low", "high"))
    return f"{line['right']} of {line['judged']} [{low:.0f}, {high:.0f} %]"
