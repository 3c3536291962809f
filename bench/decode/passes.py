"""The time of a pass over several rows, and the speed of prefill, next to llama.cpp."""

from __future__ import annotations

from dataclasses import replace
from statistics import median
from typing import Any

from bench.common import report
from bench.common.engine_thread import in_engine_thread
from bench.common.stats import bootstrap, pairs
from bench.common.tasks import Task
from bench.decode.peers.peer import Peer
from bench.decode.prefix_reuse import prefill
from engine import Engine
from engine.model.cost_model import NEAR_TOKENS, scratch, timed
from engine.prompts.builder import prompt_of

ROWS = (1, 2, 4, 8, 16, 32)
ROUNDS = 5  # rounds of passes in each repeat


def passes(engine: Engine, repeats: int) -> list[dict[str, Any]]:
    """Medians of passes behind NEAR_TOKENS tokens; all numbers of rows take turns.

    Ratios to one row are medians of pairs.
    """
    probe = in_engine_thread(engine, lambda: scratch(engine.parts.target, NEAR_TOKENS))
    found: dict[int, list[float]] = {rows: [] for rows in ROWS}

    def one_turn() -> None:
        for rows in ROWS:
            found[rows].append(timed(probe, NEAR_TOKENS, rows))

    in_engine_thread(engine, one_turn)
    for rows in ROWS:
        found[rows].clear()  # the first passes warm up
    for _ in range(repeats * ROUNDS):
        in_engine_thread(engine, one_turn)
    return [
        {
            "rows": rows,
            "ms": round(1000 * median(seconds), 2),
            "ratio": round(median(b / a for a, b in zip(found[1], seconds, strict=True)), 3),
        }
        for rows, seconds in found.items()
    ]


def prompts(engine: Engine, llama: Peer | None, task: Task, repeats: int) -> dict[str, Any]:
    """Prompt tokens read in a second by ours and by llama.cpp in turns, none of them cached."""
    request = replace(task.request, max_tokens=1)
    ids = prompt_of(request, engine.parts.tokenizer).ids
    ours: list[float] = []
    theirs: list[float] = []
    for repeat in range(-1, repeats):  # -1 warms up
        report.progress(f"repeat {repeat + 1}", 0, 1, task.name, "reading the prompt")
        engine.parts.target.pool.sequences.clear()
        tokens, seconds = prefill(engine, request)
        answer = llama.run(ids, 1, (), cached=False) if llama else None
        if repeat >= 0:
            ours.append(tokens / seconds)
            if answer:
                theirs.append(answer["read"] / answer["read_seconds"])
    found: dict[str, Any] = {"prompt": task.name, "tokens": len(ids)}
    found["tokens_per_s"] = round(median(ours), 1)
    if theirs:
        ratio = bootstrap([pairs(ours, theirs)])
        found |= {"llama_tokens_per_s": round(median(theirs), 1), "ratio": round(ratio.value, 3)}
        found |= {"low": round(ratio.low, 3), "high": round(ratio.high, 3)}
    return found
