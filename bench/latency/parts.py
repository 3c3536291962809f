"""The parts of `python -m bench latency`; each returns its figures by name."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from bench.common import report
from bench.common.environment import ROOT
from bench.latency import load
from bench.latency import model as latency_model
from bench.latency.lsp_client import Client, ServerError, ServerProcess
from bench.latency.model import EDITED_FILE, CancelTimes
from bench.latency.next_edit import next_edits
from bench.latency.typist import Typist, intervals, sample_stretches, spread, summary, wasted

Figures = dict[str, Any]

SLOW = 60  # keystrokes a minute
FAST = (150, 300, 450)  # keystrokes a minute: 30, 60 and 90 words of five


@dataclass(frozen=True)
class Amounts:
    """The amounts to measure."""

    repeats: int = 5
    places: int = 5  # function bodies typed at each speed
    slow: int = 12  # keystrokes in each, at 60 per minute
    fast: int = 30  # keystrokes in each, at each of FAST
    changes: int = 10_000
    lines: int = 10_000
    idle: float = 5.0  # s of idling after the changes


QUICK = Amounts(repeats=2, places=1, slow=4, fast=10, changes=200, idle=1.0)


@dataclass(frozen=True)
class LatencyBench:
    """The state that every part shares."""

    served: ServerProcess
    client: Client
    amounts: Amounts
    file: Path
    workspace: Path

    @property
    def edited(self) -> str:
        """The URI of an unsaved document in the workspace."""
        return (self.workspace / "bench_edited.py").as_uri()


# -- parts -------------------------------------------------------------------------------------


def typist(bench: LatencyBench) -> Figures:
    """Type at all speeds, in different places, since completions are cached by place."""
    amounts, text, speeds = bench.amounts, bench.file.read_text("utf-8"), (SLOW, *FAST)
    try:
        places = sample_stretches(text, len(speeds) * amounts.places, amounts.fast)
    except ValueError as error:
        raise ServerError(f"{bench.file.name}: {error}: name another --file") from error
    typing = Typist(bench.client, bench.file.as_uri(), text)
    figures: Figures = {"typed_file": bench.file.name, "typed_file_lines": text.count("\n")}
    cold: list[float] = []
    for turn, speed in enumerate(speeds):
        own = places[turn * amounts.places : (turn + 1) * amounts.places]
        keys = amounts.slow if speed == SLOW else amounts.fast
        before = bench.client.command("draftline.stats")
        presses, busy, took = [], bench.served.cpu_seconds(), time.perf_counter()
        for number, stretch in enumerate(own):
            report.say(f"typist, {speed} keystrokes/minute: place {number + 1} of {len(own)}")
            first, more = typing.type(number, stretch, keys, intervals(speed, number))
            cold.append(first)
            presses += more
        busy, took = bench.served.cpu_seconds() - busy, time.perf_counter() - took
        after = bench.client.command("draftline.stats")
        kept = after["completions"].get("kept", 0) - before["completions"].get("kept", 0)
        found = {
            "keystrokes": len(presses),
            **summary(presses),
            "kept": kept / len(presses),
            "wasted": wasted(before, after),
            "processor_share": busy / took / (os.cpu_count() or 1),
        }
        figures |= {f"{name}_{speed}": value for name, value in found.items()}
    bench.client.close(bench.file.as_uri())
    return figures | spread("first_in_place_s", cold)


def cancel(bench: LatencyBench) -> Figures:
    figures: Figures = {}
    for name, measure in (
        ("decoding", latency_model.cancel_decoding),
        ("prefilling", latency_model.cancel_prefilling),
    ):
        report.say(f"cancel while {name}")
        found = measure(bench.served, bench.client, bench.amounts.repeats, bench.edited)
        figures |= cancel_figures(name, found)
    return figures


def cancel_figures(name: str, found: list[CancelTimes]) -> Figures:
    """Median and maximum milliseconds until each sign of cancellation."""
    if not found:
        raise ServerError(
            f"while {name}: every response came before the request could be cancelled"
        )
    figures: Figures = {f"cancel_{name}_repeats": len(found)}
    for sign in ("answered", "free", "idle"):
        times = [1000 * float(getattr(one, sign)) for one in found]
        figures[f"cancel_{name}_{sign}_ms_p50"] = median(times)
        figures[f"cancel_{name}_{sign}_ms_max"] = max(times)
    return figures


def prefix(bench: LatencyBench) -> Figures:
    report.say("prefix cache")
    bench.client.configure(maxTokens=1, debounceMs=0)
    try:
        sources = [path for path in sorted((ROOT / "index").rglob("*.py")) if suits(path)]
        some = sources[: max(2, bench.amounts.repeats) + 1]  # the first is to warm up
        found = latency_model.prefix(bench.served, bench.client, some, bench.workspace)[1:]
    finally:
        bench.client.configure(maxTokens=64, debounceMs=75)
    return {
        "prefix_repeats": len(found),
        "prefix_first_s": median(one.first for one in found),
        "prefix_second_s": median(one.second for one in found),
        "prefix_ratio": median(one.second / one.first for one in found),
        "prefix_ratio_max": max(one.second / one.first for one in found),
    }


def suits(path: Path) -> bool:
    """Return whether a file has enough text before the completed function."""
    text = path.read_text("utf-8")
    try:
        return sample_stretches(text, 1, 60)[0].start > 2000
    except ValueError:
        return False


def edit(bench: LatencyBench) -> Figures:
    repeats, found = bench.amounts.repeats, []
    report.say("edit: warm-up")
    try:
        for pair in latency_model.edits(bench.served, bench.client, repeats, bench.workspace):
            found.append(pair)
            report.say(f"edit: {len(found)} of {repeats}, decoding {pair.decoding:.1f}x")
    finally:
        bench.client.configure(speculation=True)
    on, again = [one.on for one in found], [one.again for one in found]
    return {
        "edit_repeats": len(found),
        "edit_tokens": median(one.stats["tokens"] for one in on),
        "edit_accepted_share": median(one.stats["acceptedShare"] for one in on),
        "edit_decoding_ratio": median(one.decoding for one in found),
        "edit_end_to_end_ratio": median(one.end_to_end for one in found),
        "edit_on_s": median(one.seconds for one in on),
        "edit_off_s": median(one.off.seconds for one in found),
        "edit_again_s": median(one.seconds for one in again),
        "edit_prompt_tokens": median(one.stats["promptTokens"] for one in on),
        "edit_cached_tokens": median(one.stats["cachedTokens"] for one in on),
        "edit_again_cached_tokens": median(one.stats["cachedTokens"] for one in again),
    }


def change(bench: LatencyBench) -> Figures:
    count, lines = bench.amounts.changes, bench.amounts.lines
    source = EDITED_FILE.read_text("utf-8")
    report.say(f"change: {count:,} in the server's own code")
    inside = [1000 * one for one in load.server_change_times(source, count, lines)]
    report.say(f"change: {count:,} over pipes")
    served, client = bench.served, bench.client
    found = load.changes(served, client, source, count, lines, bench.edited, bench.amounts.idle)
    return {
        "changes": count,
        **load.change_cost(found),
        "did_change_inside_ms_p50": load.percentile(inside, 50),
        "did_change_inside_ms_p99": load.percentile(inside, 99),
        "memory_mb_before": found.before / 1e6,
        "memory_mb_after": found.after / 1e6,
        "memory_mb_idle": found.later / 1e6,
        "memory_mb_grown": (found.later - found.before) / 1e6,
    }


def clients(model: str, amounts: Amounts, workspace: Path) -> Figures:
    """Eight clients of a second server, which listens on a port."""
    with closing(ServerProcess(model, tcp=True)) as served:
        report.say("clients: eight at once")
        rounds = [*load.clients(served, amounts.repeats, workspace)]
        report.say("clients: one floods")
        flooded = [*load.clients(served, amounts.repeats, workspace, load.FLOOD_DOCUMENTS)]
    return {
        "clients_rounds": len(rounds),
        "clients_mixed": sum(len(one.mixed) for one in rounds + flooded),
        "clients_wait_s_p50": median(median(one.waits) for one in rounds),
        "clients_wait_s_max": median(max(one.waits) for one in rounds),
        "clients_wait_max_over_median": median(
            max(one.waits) / median(one.waits) for one in rounds
        ),
        "clients_flooded_wait_s_max": median(max(one.waits) for one in flooded),
    }


def next_edit(model: str, amounts: Amounts, file: Path) -> Figures:
    """Return the first token of a next edit by a model, in this process."""
    found = []
    for one in next_edits(model, file, amounts.repeats):
        found.append(one)
        report.say(f"next_edit: {len(found)} of {amounts.repeats}, {one.cold_ratio:.2f}x")
    return {
        "next_edit_repeats": len(found),
        "next_edit_tokens": median(one.cold[2] for one in found),
        "next_edit_first_token_s": median(one.cold[0] for one in found),
        "next_edit_one_pass_s": median(one.cold[1] for one in found),
        "next_edit_first_token_ratio": median(one.cold_ratio for one in found),
        "next_edit_typed_tokens": median(one.typed[2] for one in found),
        "next_edit_typed_first_token_s": median(one.typed[0] for one in found),
        "next_edit_typed_ratio": median(one.typed_ratio for one in found),
    }


PARTS: dict[str, Callable[[LatencyBench], Figures]] = {
    "typist": typist,
    "cancel": cancel,
    "prefix": prefix,
    "edit": edit,
    "change": change,
}
NAMES = (*PARTS, "clients", "next_edit")
