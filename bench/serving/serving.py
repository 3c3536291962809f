"""Measure `draftline serve` under load: many clients, half of whom hang up midway.

    python -m bench serving [--model qwen2.5-coder-0.5b] [--clients 20] [--seconds 300]
    python -m bench serving --sharing 1,4,16 [--seconds 30]

A real server process is used. Every answer must equal the text that the same request gets alone, a
full queue must reply with status 429, and memory, threads and file handles must return to what they
were near the start. Then, on the idle server, the time is measured until it is idle again after a
client hangs up, during prefill and during decoding. The machine should be otherwise idle. The run
prints a table and one JSON line, and writes the same record to bench/results. --sharing measures
something else: what each of so many clients gets that ask at the same time.

Exit code 1: an answer was wrong.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import httpx
import psutil

from bench.common import report
from bench.common.cli import argument_parser
from bench.common.environment import ROOT, environment, results_path
from bench.serving.load import CHAT, Tally, alone, load, plan
from bench.serving.sharing import share
from engine.config import DEFAULT_MODEL

Figures = dict[str, Any]
HANG_UPS = 10  # hang-ups of each kind, on the idle server
TIMEOUT_S = 300


@dataclass
class Server:
    """A running `draftline serve`."""

    process: psutil.Popen
    url: str

    def figures(self) -> dict[str, float]:
        """Return the server's metrics by name and labels."""
        text = httpx.get(f"{self.url}/metrics", trust_env=False, timeout=TIMEOUT_S).text
        lines = (line.rsplit(" ", 1) for line in text.splitlines() if line[0] != "#")
        return {name: float(value) for name, value in lines}

    def wait_idle(self) -> float:
        """Wait until the server is idle; returns the seconds that took."""
        began = time.perf_counter()
        while self.figures()["draftline_open"]:
            if time.perf_counter() - began > TIMEOUT_S:
                raise RuntimeError("the server does not become idle: see its log")
            time.sleep(0.002)
        return time.perf_counter() - began


def server_of(options: argparse.Namespace) -> Any:
    """Start a server for a context.

    Raises RuntimeError if it fails to start or exits with an error.
    """

    @contextmanager
    def running() -> Any:
        command = [sys.executable, "-m", "ui.cli", "serve", "--port", "0", "--no-page"]
        command += ["--model", options.model, "--queue", str(options.queue)]
        variables = os.environ | {"PYTHONPATH": str(ROOT)}
        process = psutil.Popen(command, stderr=subprocess.PIPE, text=True, env=variables)
        said: list[str] = []
        for line in process.stderr:
            said.append(line)
            if " at http" in line:
                break
        else:
            raise RuntimeError("the server did not start: " + "".join(said).strip())
        threading.Thread(target=said.extend, args=(process.stderr,), daemon=True).start()
        try:
            yield Server(process, line.split()[-1].removesuffix("/v1"))
        finally:
            process.send_signal(signal.SIGINT)
            code = process.wait(TIMEOUT_S)
        if code:
            raise RuntimeError(f"the server ended with {code}: {''.join(said[-5:]).strip()}")

    return running()


@dataclass
class ResourceWatch:
    """Samples a process's resources once a second, in a thread."""

    process: Any
    samples: list[tuple[float, int, int]] = field(default_factory=list)  # MB, threads, handles
    over: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> ResourceWatch:
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        self.thread.join()

    def _run(self) -> None:
        while not self.over.wait(1):
            self.samples.append(resources_of(self.process))


def resources_of(process: Any) -> tuple[float, int, int]:
    """Memory (MB), threads and file handles of a process."""
    with process.oneshot():
        return process.memory_info().rss / 1e6, process.num_threads(), process.num_fds()


def medians(samples: list[tuple[float, int, int]]) -> tuple[float, int, int]:
    memory, threads, handles = zip(*samples, strict=True)
    return round(median(memory), 1), int(median(threads)), int(median(handles))


def tenths(samples: list[Any]) -> tuple[list[Any], list[Any]]:
    """Return the second tenth of the samples (the first warms up) and the last."""
    size = max(1, len(samples) // 10)
    return samples[size : 2 * size] or samples, samples[-size:]


def memory_by_tenth(samples: list[tuple[float, int, int]]) -> list[float]:
    """Return the median memory in each tenth of the time, which shows growth."""
    size = max(1, len(samples) // 10)
    parts = [samples[at : at + size] for at in range(0, size * min(10, len(samples)), size)]
    return [medians(part)[0] for part in parts]


def under_load(server: Server, options: argparse.Namespace) -> tuple[Tally, Figures]:
    """Run all clients and return the outcomes and figures."""
    asked = alone(server.url, plan(options.tokens))
    before = server.figures()
    with ResourceWatch(server.process) as watch:
        tally = asyncio.run(load(server.url, asked, options.clients, options.seconds))
    server.wait_idle()
    time.sleep(1)
    after = server.figures()
    early, late = (medians(part) for part in tenths(watch.samples))
    rest = resources_of(server.process)
    stayed = [tally.whole[n] for n in range(options.clients) if n % 4 < 2]
    cancelled = 'draftline_answers_total{end="cancelled"}'
    left = after.get(cancelled, 0) - before.get(cancelled, 0)
    late_steps = after["draftline_late_steps_total"] - before["draftline_late_steps_total"]
    return tally, {
        "answers": sum(tally.whole.values()),
        "streamed": tally.streamed,
        "hung_up": tally.left,
        "broken_off": int(left),  # hang-ups before the answer was complete
        "refused_429": tally.refused,
        "wrong": len(tally.wrong),
        "late_steps_a_hang_up": round(late_steps / max(left, 1), 3),
        "fewest_and_most_answers_of_who_stayed": [min(stayed), max(stayed)],
        "answer_s_p50": round(median(tally.seconds or [0.0]), 3),
        "memory_mb": [early[0], late[0]],
        "memory_mb_each_tenth": memory_by_tenth(watch.samples),
        "threads": [early[1], late[1], rest[1]],
        "handles": [early[2], late[2], rest[2]],
    }


def hung_up(server: Server) -> Figures:
    """Milliseconds from hanging up to idle, on an otherwise idle server."""
    found: Figures = {}
    for name, events in (("reading", 1), ("writing", 4)):
        times, steps = [], []
        for n in range(HANG_UPS):
            before = server.figures()["draftline_late_steps_total"]
            text = f"{name} {n}\n" + "x = [1, 2, 3]\n" * 12
            body = {"messages": [{"role": "user", "content": text}], "stream": True}
            body |= {"max_tokens": 200, "temperature": 1.5, "seed": n}
            with (
                httpx.Client(base_url=server.url, trust_env=False, timeout=TIMEOUT_S) as http,
                http.stream("POST", CHAT, json=body) as answer,
            ):
                lines = (line for line in answer.iter_lines() if line)
                for _ in range(events):  # the first one comes before prefill
                    next(lines)
            times.append(server.wait_idle())
            steps.append(server.figures()["draftline_late_steps_total"] - before)
        found[f"idle_after_{name}_ms"] = [round(1000 * f(times), 1) for f in (median, max)]
        found[f"late_steps_{name}_max"] = int(max(steps))
    return found


def shared(server: Server, options: argparse.Namespace) -> list[Figures]:
    """Measure what each of several clients gets, for each number of clients."""
    asked = plan(options.tokens)
    rows = []
    asyncio.run(share(server.url, asked, 1, 0))  # warms up
    for clients in options.sharing:
        report.say(f"{clients} clients at the same time")
        server.wait_idle()
        rows.append(asyncio.run(share(server.url, asked, clients, options.seconds)))
    return rows


def whole_run(server: Server, options: argparse.Namespace) -> Figures:
    """Return the figures under load, and after hanging up on the idle server."""
    report.say(f"{options.clients} clients for {options.seconds:g} s")
    tally, figures = under_load(server, options)
    report.say("hanging up")
    for wrong in tally.wrong[:10]:
        report.say(wrong)
    return figures | hung_up(server)


def read_options(argv: list[str] | None) -> argparse.Namespace:
    parser = argument_parser("serving", __doc__)
    add = parser.add_argument
    add("--model", default=DEFAULT_MODEL, help="a built-in name or a folder")
    add("--clients", type=int, default=20)
    add("--seconds", type=float, default=300, help="how long the load lasts")
    add("--tokens", type=int, default=48, help="token limit of an answer")
    add(
        "--queue",
        type=int,
        default=16,
        help="the server's queue; fewer than clients, to see status 429",
    )
    add("--sharing", metavar="1,4,16", help="measure what so many clients get at the same time")
    add("--out", type=Path, help="the results; bench/results/serving-...json")
    options = parser.parse_args(argv)
    try:
        options.sharing = [
            int(clients) for clients in (options.sharing or "").split(",") if clients
        ]
    except ValueError:
        parser.error(f"--sharing {options.sharing}: whole numbers, with commas between them")
    if options.sharing and min(options.sharing) < 1:
        parser.error(f"--sharing {min(options.sharing)}: must be 1 or more")
    options.queue = max([options.queue, *options.sharing])
    return options


def main(argv: list[str] | None = None) -> int:
    options = read_options(argv)
    record: Figures = {
        **environment(),
        "model": Path(options.model).name,
        "clients": options.clients,
        "seconds": options.seconds,
        "queue": options.queue,
    }
    options.out = options.out or results_path(
        "serving-sharing" if options.sharing else "serving", record["model"]
    )
    with server_of(options) as server:
        if options.sharing:
            record["sharing"] = shared(server, options)
        else:
            record["figures"] = whole_run(server, options)
    if options.sharing:
        heads = " ".join(record["sharing"][0])
        lines = [[str(value) for value in row.values()] for row in record["sharing"]]
        console = report.console(120)
        console.print(report.table("Clients that ask at the same time", heads, lines))
    for name, value in record.get("figures", {}).items():
        print(f"{name.replace('_', ' '):40} {value}")
    report.write_json(options.out, record)
    report.print_json_line(record)
    return 1 if record.get("figures", {}).get("wrong") else 0
