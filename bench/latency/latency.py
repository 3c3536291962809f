"""Measure what a user of an editor waits for, through the language server's own protocol.

    python -m bench latency [--model qwen2.5-coder-0.5b] [--workspace .] [--only typist,edit]

A real server process runs a real model on a real workspace. The parts, in this order:

typist   replays recorded sessions in five languages at 30, 60 and 90 words a minute, in a workspace
         without what is typed: when suggestions are shown, whether they are what is typed next and
         are accepted, and what that costs; medians over sessions with 95 % intervals; a new server
         at each speed, since completions are cached by place
peer     the same sessions with llama.vscode's requests to the llama-server of `make peers`; typist
         and peer take half an hour each
cancel   from $/cancelRequest to idle, while an edit is decoded and while a prompt is prefilled;
         idle means: the response arrived, nothing runs (draftline.stats), no processor time is used
prefix   time to first token at a position, and again after one more keystroke
edit     60 lines edited with and without speculation, in turns; the answers must be equal
change   10,000 random edits of a 10,000-line file: the cost of didChange over pipes, the processor
         time of the server's own code, and the memory that stays allocated
clients  eight clients over --tcp at the same moment: waiting times, and whether answers are mixed
         up; then again while one of them floods the server
next_edit  time to the first token of a next edit by a model in Sweep's format, against one forward
         pass over the tokens of its prompt that are not cached, in turns; and to its whole answer
         after one more keystroke (a model that is not made for it repeats the region)
restart  time to the first token of a prompt of 8,000 tokens, and again of a new engine that finds
         the prompt on disk; the texts must be equal

With --engine the model is elsewhere: at an address, or with `own` in a `draftline serve` that this
bench starts here. Everything between the language server and it passes through a link of --link-ms
(20) to and fro. Only typist, prefix and edit are measured then.

The machine should be otherwise idle. The run ends with one JSON line; the same record is written to
a file after each part, so that a stopped run leaves it. What a model or machine cannot do is left
out, with a line that says why.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil

from bench.common import report
from bench.common.cli import argument_parser, complain
from bench.common.environment import ROOT, environment, results_path
from bench.latency.language_server import LanguageServer
from bench.latency.lsp_client import Client, ServerError, ServerProcess
from bench.latency.parts import (
    NAMES,
    PARTS,
    QUICK,
    SPEEDS,
    Amounts,
    Figures,
    LatencyBench,
    clients,
    next_edit,
    peer,
    restart,
    typist,
)  # fmt: skip
from bench.latency.sessions import sample_workspace
from bench.latency.slow_link import slow_link
from bench.serving.serving import server_of
from engine.config import DEFAULT_MODEL

PACKAGES = ("draftline", "torch", "pygls", "lsprotocol")
OWN = "own"  # the value of --engine that starts a server here
LINKED = ("typist", "prefix", "edit")  # parts that can be measured with --engine
EDITED = ROOT / "index" / "workspace" / "token_db.py"  # a file of about 300 lines
CPU = "cpu_s_per_accepted_character_60"
CPU_RATIO = f"{CPU}_to_llama.vscode"
TARGETS = (  # part, figure, comparison, target
    ("typist", "first_s_p50_60", "<=", 0.2),
    ("typist", "first_s_p90_60", "<=", 0.5),
    ("typist", "in_time_or_cancelled_60", ">=", 0.9),
    ("peer", CPU_RATIO, "<=", 0.5),
    ("cancel", "cancel_decoding_idle_ms_max", "<=", 200),
    ("cancel", "cancel_prefilling_idle_ms_max", "<=", 500),
    ("prefix", "prefix_ratio", "<=", 0.25),
    ("edit", "edit_decoding_ratio", ">=", 3),
    ("edit", "edit_end_to_end_ratio", ">=", 2),
    ("change", "did_change_ms_p50", "<=", 2),
    ("change", "did_change_inside_ms_p99", "<=", 2),
    ("clients", "clients_mixed", "<=", 0),
    ("next_edit", "next_edit_first_token_ratio", "<=", 1.2),
    ("next_edit", "next_edit_typed_ratio", "<=", 1.2),
    ("next_edit", "next_edit_whole_s", "<=", 0.35),
    ("restart", "restart_first_token_s", "<=", 1.0),
)


def measure(options: argparse.Namespace, amounts: Amounts, record: Figures) -> None:
    """Fill the record, writing it after each part."""
    figures = record["figures"]

    def run(name: str, part: Callable[[], Figures]) -> None:
        try:
            figures.update(rounded(part()))
        except ServerError as why:
            record["left_out"].append(f"{name}: {why}")
            report.say(record["left_out"][-1])
        record["targets"] = targets(figures, options.only)
        record["seconds"] = round(time.perf_counter() - record["began"])
        report.write_json(options.out, {k: v for k, v in record.items() if k != "began"})

    for words in SPEEDS if "typist" in options.only else ():
        with sample_workspace() as folder, started(options, folder, record) as (served, client):
            run("typist", partial(typist, LanguageServer(served, client, folder), words, amounts))
    if "peer" in options.only:
        run("peer", partial(peer, options.model, amounts))
        ours, theirs = (figures.get(name) for name in (CPU, f"llama.vscode_{CPU}"))
        if ours and theirs:
            run("peer", lambda: {CPU_RATIO: ours[0] / theirs[0]})
    if wanted := [name for name in options.only if name in PARTS]:
        with started(options, options.workspace, record) as (served, client):
            bench = LatencyBench(served, client, amounts, options.workspace)
            for name in wanted:
                run(name, partial(PARTS[name], bench))
    if "clients" in options.only:
        run("clients", partial(clients, options.model, amounts, options.workspace))
    if "next_edit" in options.only:
        run("next_edit", partial(next_edit, options.model, amounts, options.file))
    if "restart" in options.only:
        run("restart", partial(restart, options.model))


@contextmanager
def started(
    options: argparse.Namespace, workspace: Path, record: Figures
) -> Iterator[tuple[ServerProcess, Client]]:
    """Start a server with a client that has opened the workspace; record how long that takes."""
    began = time.perf_counter()
    with (
        elsewhere(options) as engine,
        closing(ServerProcess(options.model, engine=engine)) as served,
    ):
        client = served.client()
        client.start(workspace)
        served.usage = psutil.Process(client.ask("draftline/info")["process"])
        stats, figures = client.command("draftline.stats"), record["figures"]
        figures["start_s"] = round(time.perf_counter() - began, 2)
        record["device"], figures["index_tokens"] = stats["device"], stats["tokens"]
        figures["reading_tokens_per_s"] = stats["readingTokensPerSecond"]
        yield served, client


@contextmanager
def elsewhere(options: argparse.Namespace) -> Iterator[str]:
    """Open the link to --engine; yield the address at this end. "" without one."""
    if not options.engine:
        yield ""
        return
    served = argparse.Namespace(model=options.model, queue=32)
    with server_of(served) if options.engine == OWN else nullcontext() as started:
        url = urlsplit(started.url if started else options.engine)
        seconds = options.link_ms / 1000
        with slow_link(url.hostname or "", url.port or 80, seconds) as port:
            yield f"http://127.0.0.1:{port}"


def rounded(value: Any) -> Any:
    """Round the numbers in figures, lists of them, and records."""
    if isinstance(value, dict):
        return {name: rounded(one) for name, one in value.items()}
    if isinstance(value, list):
        return [rounded(one) for one in value]
    return round(value, 4) if isinstance(value, float) else value


def targets(figures: Figures, parts: list[str]) -> list[Figures]:
    """Return the targets of the requested parts, and whether they were met."""
    found = []
    for part, name, sign, limit in TARGETS:
        if part in parts:
            value = figures.get(name)
            value = value[0] if isinstance(value, list) else value
            good = value is not None and (value <= limit if sign == "<=" else value >= limit)
            asked = f"{sign} {limit:g}"
            found.append({"figure": name, "asked": asked, "measured": value, "met": good})
    return found


def show(record: Figures) -> None:
    """Print all figures and the targets."""
    console = report.console(120)
    machine = record["machine"]
    console.print(
        f"{record['model']} on {machine['cpu']}, {machine['cores']} cores; load before: "
        f"{record['load_before']}; {record['seconds']} s in all"
    )
    for why in record["left_out"]:
        console.print(why, markup=False)
    figures = record["figures"].items()
    lines = [[name, shown(value)] for name, value in figures if "sessions_" not in name]
    console.print(report.table("Figures", "figure measured", lines))
    lines = [
        [one["figure"], shown(one["measured"]), one["asked"], "yes" if one["met"] else "NO"]
        for one in record["targets"]
    ]
    console.print(report.table("Asked for", "figure measured asked met", lines))


def shown(value: Any) -> str:
    if value is None:
        return "not measured"
    if isinstance(value, list):  # with an interval
        return "{} [{}, {}]".format(*map(shown, value))
    return f"{value:.3g}" if isinstance(value, float) and abs(value) < 1000 else f"{value}"


def read_options(argv: list[str] | None) -> argparse.Namespace:
    parser = argument_parser("latency", __doc__)
    add = parser.add_argument
    add("--model", default=DEFAULT_MODEL, help="a built-in name, or a folder")
    add(
        "--workspace", type=Path, default=ROOT, help="the folder to index; default: this repository"
    )
    add("--file", type=Path, default=EDITED, help="next_edit's Python file, about 300 lines")
    add("--engine", default="", help="own, or http://HOST:PORT of a server without TLS")
    add("--link-ms", type=float, default=20.0, help="to and fro, with --engine; default: 20")
    add("--only", help=f"parts to measure: {','.join(NAMES)}")
    add("--repeats", type=int, help="of all parts but typist and peer; default: 5")
    add("--sessions", type=int, default=0, help="of typist and peer at each speed; default: all")
    add("--quick", action="store_true", help="a trial run: little of everything")
    add("--out", type=Path, help="the results; bench/results/latency-...json")
    options = parser.parse_args(argv)
    options.only = (options.only or ",".join(LINKED if options.engine else NAMES)).split(",")
    if options.engine and (wrong := [name for name in options.only if name not in LINKED]):
        parser.error(f"--only {wrong[0]}: not with --engine; name some of {', '.join(LINKED)}")
    if options.engine and options.engine != OWN and not options.engine.startswith("http://"):
        parser.error(f"--engine {options.engine}: name own, or http://HOST:PORT")
    if not 0 <= options.link_ms <= 10_000:
        parser.error(f"--link-ms {options.link_ms:g}: must be 0 to 10000")
    if wrong := [name for name in options.only if name not in NAMES]:
        parser.error(f"--only {wrong[0]}: no such part; name some of {', '.join(NAMES)}")
    if options.sessions < 0:
        parser.error(f"--sessions {options.sessions}: must be 0 (all) or more")
    if options.repeats is not None and options.repeats < 1:
        parser.error(f"--repeats {options.repeats}: must be 1 or more")
    if not options.workspace.is_dir():
        parser.error(f"--workspace {options.workspace}: not a folder")
    if not options.file.is_file():
        parser.error(f"--file {options.file}: no such file")
    options.workspace, options.file = options.workspace.resolve(), options.file.resolve()
    return options


def main(argv: list[str] | None = None) -> int:
    options = read_options(argv)
    amounts = QUICK if options.quick else Amounts()
    if options.repeats:
        amounts = replace(amounts, repeats=options.repeats)
    if options.sessions:
        amounts = replace(amounts, sessions=options.sessions)
    record: Figures = {
        **environment(packages=PACKAGES),
        "model": Path(options.model).name,
        "load_before": round(os.getloadavg()[0], 2),
        "quick": options.quick,
        "parts": options.only,
        "link_ms": options.link_ms if options.engine else None,
        "left_out": [],
        "figures": {},
        "targets": [],
        "began": time.perf_counter(),
    }
    name = "latency-link" if options.engine else "latency"
    options.out = options.out or results_path(name, record["model"])
    try:
        measure(options, amounts, record)
    except ServerError as why:
        complain("latency", f"{options.model}: {why}")
        return 1
    del record["began"]
    show(record)
    report.print_json_line(record)
    return 0
