"""The tables that `python -m bench specbench` prints, one per category, and its two charts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bench.common import report
from bench.common.charts import Estimate, bar_chart, save

HEADS = "method tokens/s median runs ratio recounted total decoding accepted tokens/pass text"


def show(record: dict[str, Any]) -> None:
    """Print the tables, how `auto` compares with the best method, and what failed."""
    took = f"{record['seconds']} s in this session"
    console = report.console_with_header(
        record, 152, f"{record['max_tokens']} tokens at most; {took}"
    )
    for label, dtype in record["dtypes"].items():
        console.print(f"{label}: {record['methods'][label]}, {dtype}", markup=False)
    for category in dict.fromkeys(one["category"] for one in record["results"]):
        lines = [one for one in record["results"] if one["category"] == category]
        title = f"{category}: {max(one['questions'] for one in lines)} questions"
        console.print(report.table(title, HEADS, [row(one) for one in lines]))
    console.print(
        "ratio: means of questions' tokens/s, prompts included, tokens by ids; recounted: plain "
        "decoding's counted again from its text, as published; total: all tokens by all time; "
        "decoding: without prompts; brackets: 95 % over questions"
    )
    for one in record["auto"]:
        said = f"{one['ratio']:.2f} [{one['low']:.2f}, {one['high']:.2f}] times {one['best']}"
        console.print(f"auto, {one['category']}: {said}", markup=False)
    for one in record["errors"]:
        where = f"{one['category']} {one['question_id']}, {one['method']}, run {one['run'] + 1}"
        console.print(f"no answer: {where}: {one['error']}", markup=False)
    for one in record["different"]:
        where = f"{one['category']} {one['question_id']}, {one['method']}, run {one['run'] + 1}"
        gap = "other text, same tokens" if one["gap"] is None else f"logits {one['gap']:.3g} apart"
        console.print(f"DIFFERENT: {where}: {gap}", markup=False)


def row(line: dict[str, Any]) -> list[str]:
    """Return the cells of one method."""
    text = "equal" if line["equal"] else f"{line['different']} differ, {line['near_ties']} by ties"
    if line["equal_to"] != "plain":
        text += f" ({line['equal_to']})"
    spread = "" if line["tokens_per_s_std"] is None else f" ± {line['tokens_per_s_std']:.1f}"
    return [
        line["method"],
        f"{line['tokens_per_s']:.1f}{spread}",
        f"{line['tokens_per_s_median']:.1f}",
        str(line["runs"]),
        report.interval(line, "speedup", "speedup_"),
        *(number(line.get(f"speedup_{name}")) for name in ("recounted", "total", "decode")),
        report.interval(line, "mean_accepted", "mean_accepted_"),
        f"{line['tokens_per_pass']:.2f}",
        text,
    ]


def number(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def draw(out: Path, record: dict[str, Any]) -> None:
    """Draw speedup and mean accepted tokens by category, beside `out`."""
    for name, label in (
        ("speedup", "speedup over plain decoding, with 95 % intervals"),
        ("mean_accepted", "mean accepted tokens per step, with 95 % intervals"),
    ):
        points = {
            (one["category"], one["method"]): Estimate(
                one[name], one[f"{name}_low"], one[f"{name}_high"]
            )
            for one in record["results"]
            if one[name] is not None
        }
        path = out.with_name(f"{out.stem}-{name.replace('_', '-')}.svg")
        save(bar_chart(f"{record['model']}: {label}", points, baseline=1.0), path)
