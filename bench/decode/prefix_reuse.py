"""The part of a second edit's prompt that is prefilled, compared with the first edit's.

Both edits are of one file. Only prompts are processed; each answer has one token.
"""

from __future__ import annotations

from itertools import accumulate
from statistics import median
from typing import Any

from bench.common import report
from bench.common.tasks import source
from engine import Engine, Request

FILE = "mergedeep/mergedeep.py"
FIRST, SECOND = "Add type annotations.", "Say in a comment what it does."
Prefilled = tuple[int, float]  # tokens, seconds


def cases() -> dict[str, tuple[Request, Request]]:
    """Return the first and the second edit of each case."""
    text = source(FILE)
    count = text.count("\n")
    kept = text.splitlines(keepends=True)

    def edit(instruction: str, where: tuple[int, int] | None, of: str = text) -> Request:
        ends = list(accumulate(map(len, of.splitlines(keepends=True)), initial=0))
        selection = (ends[where[0] - 1], ends[where[1]]) if where else None
        return Request("edit", of, FILE, 0, selection, instruction, max_tokens=1)

    half, end = count // 2, count - 6
    changed = {at: "".join([*kept[:at], "    # edited\n", *kept[at:]]) for at in (half, end)}
    return {
        "a selection, again": (edit(FIRST, (6, 42)), edit(SECOND, (6, 42))),
        "its first third": (edit(FIRST, (6, 42)), edit(SECOND, (6, 18))),
        "another selection": (edit(FIRST, (6, 34)), edit(SECOND, (35, count))),
        "a file, again": (edit(FIRST, None), edit(SECOND, None)),
        "a file, changed at its end": (edit(FIRST, None), edit(SECOND, None, changed[end])),
        "a file, changed in its middle": (edit(FIRST, None), edit(SECOND, None, changed[half])),
    }


def second_edits(engine: Engine, repeats: int) -> list[dict[str, Any]]:
    """Medians over `repeats`; ratios are medians of pairs."""
    found = []
    for place, (name, requests) in enumerate(cases().items()):
        pairs: list[tuple[Prefilled, Prefilled]] = []
        for repeat in range(repeats):
            report.progress(f"repeat {repeat + 1}", place, 6, name, "second edit")
            engine.parts.target.pool.sequences.clear()
            first, second = (prefill(engine, request) for request in requests)
            pairs.append((first, second))
        found.append(
            {
                "case": name,
                "first_tokens": pairs[0][0][0],
                "second_tokens": pairs[0][1][0],
                "first_s": round(median(first for (_, first), _ in pairs), 4),
                "second_s": round(median(second for _, (_, second) in pairs), 4),
                "ratio": round(median(b / a for (_, a), (_, b) in pairs), 4),
            }
        )
    return found


def prefill(engine: Engine, request: Request) -> Prefilled:
    """Prefilled tokens of the prompt, and the seconds it took."""
    done = engine.submit(request, False).result()
    if done.reason not in ("stop", "length"):
        raise RuntimeError(f"second edit: {done.error or done.reason}")
    usage = done.usage
    return usage.prompt_tokens - 1 - usage.cached_tokens, usage.prefill_seconds
