"""What a run says of a server: whether speculation changes its answers, in one sentence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ui.verify.compare import AGAIN, BATCHED, FOUR, Comparison

SAME, CHANGED, UNKNOWN = 0, 1, 2  # exit codes


class Verdict(NamedTuple):
    """The judgement, and its exit code."""

    code: int
    text: str


def judge(table: Sequence[Comparison], complete: bool, missing_baseline: str) -> Verdict:
    """Judge a table.

    How many answers differ between the modes is held against how many differ without speculation
    anyway: of those asked alone, when they are asked again; of those asked four at once, also from
    those asked alone, for no two batches are the same. Sampled answers do not count: most methods
    only promise their distribution.
    `missing_baseline`: why there are no answers without speculation; "" if there are.
    """
    if missing_baseline:
        return Verdict(UNKNOWN, f"Not measured: {missing_baseline}.")
    rows = [row for row in table if row.mode == "both" and not row.is_sampled]
    judged = [_judge_row(row, _noise(table, row)) for row in rows]
    changed = [verdict.text for verdict in judged if verdict.code == CHANGED]
    if changed:
        return Verdict(CHANGED, f"Yes: {'; '.join(changed)}.")
    unknown = [verdict.text for verdict in judged if verdict.code == UNKNOWN]
    if unknown:
        why = "The server differs from itself, so that single answers show nothing"
        return Verdict(UNKNOWN, f"Not to be told: {'; '.join(unknown)}. {why}.")
    if not complete or len(rows) < 2:
        text = "Not measured in full: no answer differs, but not every request was answered."
        return Verdict(UNKNOWN, text)
    most = percent(max(row.interval[1] for row in rows))
    text = (
        f"No: {rows[-1].of} requests have the same answers with and without speculation, alone and "
        f"four at once. (With 95 % certainty it changes fewer than {most} of such answers.)"
    )
    return Verdict(SAME, text)


def _judge_row(row: Comparison, noise: Comparison | None) -> Verdict:
    """Judge the answers of one row by those that differ without speculation anyway."""
    count = len(row.differing)
    if not count:
        return Verdict(SAME, "")
    changed = f"{count} of {row.of} answers differ with and without speculation ({row.name}"
    if noise is None:
        return Verdict(UNKNOWN, f"{changed}), and nothing says how many differ anyway")
    own = len(noise.differing)
    if not own:
        text = f"{changed}), while without it none of {noise.of} does ({noise.name})"
        return Verdict(CHANGED, text)
    text = f"{changed}: {span(row)}), without it {own} of {noise.of} ({noise.name}: {span(noise)})"
    return Verdict(CHANGED if row.interval[0] > noise.interval[1] else UNKNOWN, text)


def _noise(table: Sequence[Comparison], row: Comparison) -> Comparison | None:
    """Return the row of the answers that differ without speculation anyway."""
    names = (AGAIN, BATCHED) if row.name == FOUR else (AGAIN,)
    found = [each for each in table if each.mode == "without" and each.name in names]
    return max(found, key=lambda each: len(each.differing) / each.of) if found else None


def span(row: Comparison) -> str:
    """Write the 95 % interval of a row: `0.7 to 8.7 %`."""
    low, high = (percent(share).removesuffix(" %") for share in row.interval)
    return f"{low} to {high} %"


def percent(share: float) -> str:
    """Write a share: `4.6 %`, `42 %`."""
    digits = 0 if share >= 0.1 or share == 0 else 1
    return f"{100 * share:.{digits}f} %"
