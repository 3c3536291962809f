"""Processes that hold one index each, and the timed jobs that they run in turns.

    python -m bench.index.jobs NAME CORPUS.npz FOLDER

is such a process. It reads jobs, [name, arguments], from stdin and answers each with a JSON line on
stdout; FOLDER is for what an index saves.
"""

from __future__ import annotations

import gc
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from bench.common import report
from bench.common.environment import ROOT
from bench.index.peers import PEERS, TAIL, ComparedIndex, DraftlineIndex


class IndexJobs:
    """The jobs of one index over one corpus; each returns plain data."""

    def __init__(self, kind: type[ComparedIndex], corpus: Path, folder: Path) -> None:
        self.kind, self.folder = kind, folder
        with np.load(corpus) as arrays:
            self.documents = np.split(arrays["tokens"], arrays["ends"][:-1])
            self.tails = list(arrays["tails"])
            self.changes = list(arrays["changes"])
        self.peer = kind()

    def build(self) -> dict[str, Any]:
        """Build time, and growth of the process (only meaningful the first time)."""
        self.peer = self.kind()
        documents = list(self.documents)
        gc.collect()
        before = psutil.Process().memory_info().rss
        start = time.perf_counter()
        self.peer.build(documents)
        seconds = time.perf_counter() - start
        return {"seconds": seconds, "resident": psutil.Process().memory_info().rss - before}

    def count(self) -> int | None:
        return self.peer.nbytes()

    def shape(self, frozen: int, young: int) -> int:
        """Split draftline's index into segments; returns the tokens of the young one."""
        assert isinstance(self.peer, DraftlineIndex)
        self.peer.shape(self.documents, frozen, young)
        return self.peer.young.size

    def match(self) -> dict[str, Any]:
        """Return the microseconds and the match length of each tail."""
        times, lengths = [], []
        for tail in self.tails:
            start = time.perf_counter_ns()
            length = self.peer.match(tail)
            times.append((time.perf_counter_ns() - start) / 1000)
            lengths.append(length)
        return {"us": times, "lengths": lengths}

    def update(self, count: int) -> list[float]:
        """Return the milliseconds until `match` finds a changed document, for `count` changes."""
        times = []
        for number, tokens in enumerate(self.changes[:count]):
            tail = tokens[-1 - TAIL : -1]
            start = time.perf_counter()
            self.peer.update(number % len(self.documents), tokens)
            length = self.peer.match(tail)
            times.append((time.perf_counter() - start) * 1000)
            if length < TAIL - 1:
                raise RuntimeError(f"the changed text was not found: {length} of {TAIL} tokens")
        return times

    def save(self) -> int | None:
        """Bytes on disk; None if the index cannot be saved."""
        try:
            self.peer.save(self.folder)
        except NotImplementedError:
            return None
        return sum(file.stat().st_size for file in self.folder.iterdir())

    def load(self) -> float:
        """Seconds until the first answer."""
        start = time.perf_counter()
        self.peer = self.kind()
        self.peer.load(self.folder)
        self.peer.match(self.tails[0])
        return time.perf_counter() - start


class ProcessEnded(RuntimeError):
    """The process ended; the message names the job."""


class IndexProcess:
    """An index in its own process."""

    def __init__(self, name: str, corpus: Path, folder: Path) -> None:
        folder.mkdir()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "bench.index.jobs", name, str(corpus), str(folder)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            self.missing: str | None = self._answer("its start")["missing"]
        except ProcessEnded as error:
            self.missing = str(error)

    def do(self, job: str, **arguments: Any) -> Any:
        assert self.process.stdin
        try:
            print(json.dumps([job, arguments]), file=self.process.stdin, flush=True)
        except BrokenPipeError as error:
            raise ProcessEnded(f"ended before {job}") from error
        return self._answer(job)

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()

    def _answer(self, job: str) -> Any:
        assert self.process.stdout
        line = self.process.stdout.readline()
        if not line:
            raise ProcessEnded(f"ended at {job}, exit code {self.process.wait()}")
        return json.loads(line)


class IndexProcesses:
    """The indexes over one corpus, taking turns; one that fails is left out from then on."""

    def __init__(self, names: list[str], corpus: Path, folder: Path, left_out: list[str]) -> None:
        self.running: dict[str, IndexProcess] = {}
        self.left_out = left_out
        for name in names:
            process = IndexProcess(name, corpus, folder / name)
            if process.missing:
                process.close()
                self._leave_out(f"{name}: {process.missing}")
            else:
                self.running[name] = process

    def do(self, job: str, repeats: dict[str, int], **arguments: Any) -> dict[str, list[Any]]:
        """Run a job `repeats[name]` times on each index, in turns; the results by name."""
        answers: dict[str, list[Any]] = {name: [] for name in repeats if name in self.running}
        for repeat in range(max(repeats.values(), default=0)):
            for name in list(answers):
                if repeat < repeats[name]:
                    try:
                        answers[name].append(self.running[name].do(job, **arguments))
                    except ProcessEnded as error:
                        self._leave_out(f"{name}: {error}")
                        self.running.pop(name).close()
                        del answers[name]
        return answers

    def close(self) -> None:
        for process in self.running.values():
            process.close()

    def _leave_out(self, why: str) -> None:
        if why not in self.left_out:
            self.left_out.append(why)
            report.say(why)


def main() -> int:
    name, corpus, folder = sys.argv[1:]
    try:
        jobs = IndexJobs(PEERS[name], Path(corpus), Path(folder))
        jobs.peer.build([])  # imports what it needs
    except ImportError as error:
        why = f"{error}; see bench/index/index.py for how to install it"
        print(json.dumps({"missing": why}), flush=True)
        return 0
    print(json.dumps({"missing": None}), flush=True)
    for line in sys.stdin:
        job, arguments = json.loads(line)
        print(json.dumps(getattr(jobs, job)(**arguments)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
