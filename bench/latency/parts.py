"""The parts of `python -m bench latency`; each returns its figures by name."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import httpx

from bench.common import report
from bench.common.environment import ROOT
from bench.decode.peers.peer import Peer
from bench.decode.peers.peer import python as peer_python
from bench.decode.peers.programs import installed, missing
from bench.latency import load
from bench.latency import model as latency_model
from bench.latency import restart as latency_restart
from bench.latency.llama_vscode import OPTIONS, LlamaVscode
from bench.latency.lsp_client import Client, ServerError, ServerProcess
from bench.latency.model import EDITED_FILE, CancelTimes
from bench.latency.next_edit import next_edits
from bench.latency.places import sample_stretches
from bench.latency.sessions import read_sessions
from bench.latency.typist import Completer, replay, row, summary
from engine.weights import gguf

Figures = dict[str, Any]

SPEEDS = (30, 60, 90)  # words a minute


@dataclass(frozen=True)
class Amounts:
    """The amounts to measure."""

    repeats: int = 5
    sessions: int = 0  # recorded sessions typed at each speed; 0: all
    parts: int = 0  # parts of each; 0: all
    changes: int = 10_000
    lines: int = 10_000
    idle: float = 5.0  # s of idling after the changes


QUICK = Amounts(repeats=2, sessions=1, parts=1, changes=200, idle=1.0)


@dataclass(frozen=True)
class LatencyBench:
    """The state that every part shares."""

    served: ServerProcess
    client: Client
    amounts: Amounts
    workspace: Path

    @property
    def edited(self) -> str:
        """The URI of an unsaved document in the workspace."""
        return (self.workspace / "bench_edited.py").as_uri()


# -- parts -------------------------------------------------------------------------------------


def typist(completer: Completer, words: int, amounts: Amounts, prefix: str = "") -> Figures:
    """Replay the recorded sessions at one speed, with a program that has not seen them.

    `prefix` names another program's figures.
    """
    rows = []
    for session in read_sessions(amounts.sessions):
        report.say(f"{prefix or 'typist '}{words} words a minute: {session.name}")
        session = session.head(amounts.parts)
        rows.append(row(session, words, replay(session, words, completer)))
    figures = {f"{prefix}{name}_{words}": value for name, value in summary(rows).items()}
    return figures | {f"{prefix}sessions_{words}": rows}


def peer(model: str, amounts: Amounts) -> Figures:
    """Replay the same sessions with llama.vscode's requests to llama-server."""
    file = gguf(model)
    if why := missing("llama.cpp", installed()):
        raise ServerError(why)
    if file is None:
        raise ServerError(f"{model}: llama-server needs a GGUF file")
    arguments = [str(file), str(os.cpu_count()), "0", *OPTIONS]  # 0: the model's own context
    figures: Figures = {}
    try:
        for words in SPEEDS:
            with (
                closing(Peer("llama_server_child", arguments, peer_python())) as child,
                closing(LlamaVscode(**child.ask({"address": True}))) as extension,
            ):
                figures |= typist(extension, words, amounts, "llama.vscode_")
    except (RuntimeError, httpx.HTTPError) as error:
        raise ServerError(f"llama-server: {error}") from error
    return figures


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
    """Return the first token and the whole of a next edit by a model, in this process."""
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
        "next_edit_whole_s": median(one.whole.seconds for one in found),
        "next_edit_whole_s_max": max(one.whole.seconds for one in found),
        "next_edit_whole_tokens": median(one.whole.tokens for one in found),
        "next_edit_whole_passes": median(one.whole.passes for one in found),
    }


def restart(model: str) -> Figures:
    """Return the first token of a long prompt before and after a restart, in this process."""
    try:
        found = latency_restart.restart(model, ROOT / "engine")
    except ValueError as why:
        raise ServerError(str(why)) from why
    return {
        "restart_tokens": found.tokens,
        "restart_read_again_tokens": found.read_again,
        "restart_cold_first_token_s": found.cold,
        "restart_first_token_s": found.restarted,
    }


PARTS: dict[str, Callable[[LatencyBench], Figures]] = {
    "cancel": cancel,
    "prefix": prefix,
    "edit": edit,
    "change": change,
}
NAMES = ("typist", "peer", *PARTS, "clients", "next_edit", "restart")
