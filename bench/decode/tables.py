"""The tables that `python -m bench decode` prints."""

from __future__ import annotations

from typing import Any

from bench.common.report import console_with_header, interval, table


def show(record: dict[str, Any]) -> None:
    """Show every prompt, kinds of prompts, the floor, and what else was measured."""
    console = console_with_header(
        record, 140, f"medians of {record['repeats']}; {record['seconds']} s in all"
    )
    console.print("load: " + ", ".join(f"{k} {v:.1f} s" for k, v in record["load_s"].items()))
    lines = []
    for one in record["results"]:
        equal = {True: "equal", False: "DIFFERENT", None: ""}[one.get("equal")]
        right = {True: "right", False: "wrong", None: ""}[one.get("passes")]
        lines.append(
            [
                one["prompt"],
                one["method"],
                one["dtype"],
                f"{one['tokens']}",
                f"{one['tokens_per_s']:.1f}",
                f"{one['end_to_end_tokens_per_s']:.1f}",
                f"{one['drafted_per_forward']:.1f}",
                f"{one['tokens_per_forward']:.2f}",
                f"{one['ms_per_step']:.1f}",
                interval(one, "ratio_to_plain", "ratio_"),
                f"{equal} {right}".strip(),
            ]
        )
    heads = (
        "prompt method dtype tokens tokens/s end-to-end drafted/pass tokens/pass ms/pass ratio text"
    )
    console.print(table("Decoding", heads, lines))
    heads = "kind prompts method against ratio cost"
    lines = [
        [
            one["kind"] + (" (by path)" if one["sampled"] else ""),
            str(one["prompts"]),
            one["method"],
            one["against"],
            interval(one, "ratio", ""),
            "" if one["cost"] is None else f"{one['cost']:.3f}",
        ]
        for one in record["groups"]
    ]
    console.print(table("How many times as fast", heads, lines))
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
