"""Large indexes, `python -m bench index --scale`: what a workspace of each size costs.

    python -m bench.index.scale build|start|ask FOLDER

is one job in a fresh process; it prints one JSON line. build: an index of FOLDER/files, saved.
start: until the saved index answers, and until all of it is verified and compared with the files.
ask: the times of matches and of changed files. A file's text is the number of its prepared ids, one
byte a token, so that reading, walking and saving are real and tokenizing takes no time.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from bench.common import report
from bench.common.environment import ROOT
from bench.index import corpus as index_corpus
from bench.index.compare import Amounts
from bench.index.folder import PreparedTokenizer, load_encoder
from bench.index.peers import TAIL
from index import Workspace

Row = dict[str, Any]

FILES_A_FOLDER = 100
SAMPLE_S = 0.02  # seconds between two looks at the memory
CHANGES = 50
COLUMNS = (  # column title, key, unit, digits
    ("tokens/M", "tokens", 1e6, 0),
    ("files", "files", 1, 0),
    ("segments", "segments", 1, 0),
    ("build_s", "build_s", 1, 1),
    ("peak_MB", "peak_mb", 1, 0),
    ("mapped", "peak_mapped_mb", 1, 0),
    ("disk", "disk_bytes_per_token", 1, 2),
    ("start_s", "start_s", 1, 3),
    ("cold_s", "cold_start_s", 1, 2),
    ("verified", "verified_s", 1, 1),
    ("match_us", "match_us_p50", 1, 1),
    ("p99", "match_us_p99", 1, 1),
    ("found_ms", "visible_ms", 1, 1),
    ("most", "visible_ms_max", 1, 1),
)
ROUNDS = 3  # rounds of matches; the first warms up
STARTS = 3
REPEATS = 10  # copies of the real text, with other ids, in the largest size
START_TAIL = 16  # tokens of the first match
MAX_GB, MAX_DISK_BYTES, MAX_MATCH_RATIO, MAX_VISIBLE_MS, MAX_START_S = (
    2.0,
    16.0,
    3.0,
    50.0,
    1.0,
)


# -- the corpus --------------------------------------------------------------------------------


def prepare(
    folder: Path,
    documents: list[index_corpus.Ids],
    unseen: index_corpus.Ids,
    tokens: int,
    tails: int,
) -> int:
    """Write files and ids of `tokens` tokens; returns the number of files.

    Documents beyond those given are their repetitions with permuted ids.
    """
    files = folder / "files"
    chance = np.random.default_rng(2)
    ends, written = [], 0
    stored = np.lib.format.open_memmap(folder / "ids.npy", "w+", np.int32, (tokens,))
    for number, ids in enumerate(_repeated(documents, tokens)):
        stored[written : written + len(ids)] = ids
        written += len(ids)
        ends.append(written)
        path = files / str(number // FILES_A_FOLDER) / f"{number}.py"
        if number % FILES_A_FOLDER == 0:
            path.parent.mkdir(parents=True)
        path.write_text(str(number).ljust(len(ids)), "ascii")
    asked = [
        text[at : at + TAIL]
        for text in (stored, unseen)
        for at in chance.integers(0, len(text) - TAIL, tails).tolist()
    ]
    changed = [
        chance.permutation(unseen)[: index_corpus.CHANGED_FILE_TOKENS] for _ in range(CHANGES)
    ]
    np.savez(folder / "asked.npz", ends=ends, tails=np.array(asked), changes=np.array(changed))
    stored.flush()
    return len(ends)


def _repeated(documents: list[index_corpus.Ids], tokens: int) -> Iterator[index_corpus.Ids]:
    """Documents of `tokens` tokens in all; see `prepare`."""
    permuted = np.arange(max(int(one.max()) for one in documents) + 1, dtype=np.int32)
    chance = np.random.default_rng(1)
    while tokens:
        for document in documents:
            if tokens:
                yield permuted[document[:tokens]]
                tokens -= min(tokens, len(document))
        permuted = chance.permutation(permuted)


class Prepared:
    """The prepared files of a folder."""

    def __init__(self, folder: Path) -> None:
        ids = np.load(folder / "ids.npy", mmap_mode="r")
        with np.load(folder / "asked.npz") as arrays:
            self.tails, self.changes = list(arrays["tails"]), list(arrays["changes"])
            ends = arrays["ends"].tolist()
        self.documents = [np.asarray(ids[a:b]) for a, b in zip([0, *ends], ends, strict=False)]
        self.encoder = PreparedTokenizer(self.documents + self.changes)
        self.files, self.home = folder / "files", folder / "home"

    def path(self, number: int) -> Path:
        return self.files / str(number // FILES_A_FOLDER) / f"{number}.py"

    def workspace(self) -> Workspace:
        return Workspace(self.files, self.encoder, self.home)


# -- the jobs ----------------------------------------------------------------------------------


def memory_mb() -> tuple[float, float]:
    """Resident memory of this process: the anonymous part, and mapped files."""
    fields = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    anonymous, files = (int(fields[key].split()[0]) / 1e3 for key in ("RssAnon", "RssFile"))
    return anonymous, files


@contextmanager
def peak_memory(row: Row) -> Iterator[None]:
    """Add the largest memory during the block to a row, less what was held before it."""
    over, before = threading.Event(), memory_mb()
    peak = [*before]

    def sample() -> None:
        while not over.wait(SAMPLE_S):
            for at, one in enumerate(memory_mb()):
                peak[at] = max(peak[at], one)

    thread = threading.Thread(target=sample, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        row["peak_mb"], row["peak_mapped_mb"] = peak[0] - before[0], peak[1]


def build(folder: Path) -> Row:
    prepared = Prepared(folder)
    row: Row = {}
    with peak_memory(row):
        start = time.perf_counter()
        workspace = prepared.workspace()
        workspace.build()
        row["ready_s"] = time.perf_counter() - start
        workspace.compact()
        row["build_s"] = time.perf_counter() - start
        row["held_mb"] = memory_mb()[0]
        stats = workspace.stats()
        workspace.close()
    row |= {"tokens": stats.tokens, "segments": stats.segments}
    row["disk_bytes_per_token"] = stats.disk / stats.tokens
    row["ids_bytes_per_token"] = stats.cache / stats.tokens
    return row


def start(folder: Path) -> Row:
    """Seconds until the first answer, which readers get while the files are compared."""
    prepared = Prepared(folder)
    tail = prepared.documents[0][:START_TAIL]
    before = memory_mb()[0]
    begin = time.perf_counter()
    workspace = prepared.workspace()
    building = threading.Thread(target=workspace.build)
    building.start()
    while not workspace.match(tail):
        time.sleep(0.001)
    first = time.perf_counter() - begin
    building.join()
    row = {"first_s": first, "verified_s": time.perf_counter() - begin}
    row |= {"read": workspace.stats().misses, "held_mb": memory_mb()[0] - before}
    workspace.close()
    return row


def ask(folder: Path) -> Row:
    prepared = Prepared(folder)
    row: Row = {}
    with prepared.workspace() as workspace:
        workspace.build()
        row["segments"] = workspace.stats().segments
        rounds = [[_match_us(workspace, tail) for tail in prepared.tails] for _ in range(ROUNDS)]
        for key, percent in (("match_us_p50", 50), ("match_us_p99", 99)):
            row[key] = median(float(np.percentile(one, percent)) for one in rounds[1:])
        times = [_visible_ms(prepared, workspace, number) for number in range(CHANGES)]
        row["visible_ms"], row["visible_ms_max"] = median(times), max(times)
    return row


def _match_us(workspace: Workspace, tail: index_corpus.Ids) -> float:
    start = time.perf_counter_ns()
    workspace.match(tail)
    return (time.perf_counter_ns() - start) / 1000


def _visible_ms(prepared: Prepared, workspace: Workspace, number: int) -> float:
    """Milliseconds from a changed file's report until a match finds its new text."""
    at = number * 7919 % len(prepared.documents)
    path, tail = prepared.path(at), prepared.changes[number][-1 - TAIL : -1]
    before = path.read_text("ascii")
    path.write_text(prepared.encoder.text(len(prepared.documents) + number), "ascii")
    begin = time.perf_counter()
    workspace.refresh([path])
    found = workspace.match(tail)
    took = (time.perf_counter() - begin) * 1000
    if not found or found[0].length < TAIL:
        raise RuntimeError(f"the changed text of {path.name} was not found")
    path.write_text(before, "ascii")
    return took


JOBS = {"build": build, "start": start, "ask": ask}


def run(job: str, folder: Path) -> Row:
    """Run a job in a fresh process. Raises CalledProcessError if it fails."""
    command = [sys.executable, "-m", "bench.index.scale", job, str(folder)]
    ran = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    row: Row = json.loads(ran.stdout.splitlines()[-1])
    return row


def forget_cached_pages(folder: Path) -> None:
    """Ask the system to drop the cached pages of a folder's files."""
    os.sync()
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


# -- the run -----------------------------------------------------------------------------------


def measure(
    sizes: list[int], amounts: Amounts, source: list[Path], tokenizer: Path | None, work: Path
) -> Iterator[Row]:
    """Yield a row for each size, the smallest first."""
    stream, encoder = index_corpus.texts(source), load_encoder(tokenizer)
    unseen = np.concatenate(index_corpus.collect(stream, encoder, amounts.unseen))
    report.say("tokenising")
    documents = index_corpus.collect(stream, encoder, max(max(sizes) // REPEATS, min(sizes)))
    real = sum(map(len, documents))
    for tokens in sizes:
        folder = work / str(tokens)
        folder.mkdir()
        report.say(f"{tokens:,} tokens: writing files")
        files = prepare(folder, documents, unseen, tokens, amounts.tails)
        yield {"tokens": tokens, "real": min(real, tokens), "files": files} | of_size(folder)
        shutil.rmtree(folder)


def of_size(folder: Path) -> Row:
    """Return the figures of one size, whose corpus `prepare` has written there."""
    row = run("build", folder)
    report.say(f"built {row['tokens']:,} tokens in {row['build_s']:.1f} s")
    starts = [run("start", folder) for _ in range(STARTS)]
    row["start_s"] = median(one["first_s"] for one in starts)
    row["verified_s"] = median(one["verified_s"] for one in starts)
    row["start_mb"] = max(one["held_mb"] for one in starts)
    forget_cached_pages(folder / "home")
    row["cold_start_s"] = run("start", folder)["first_s"]
    row |= run("ask", folder)
    return row


def targets(rows: list[Row]) -> list[Row]:
    """Return the targets of the largest size, relative to the smallest."""
    small, large = rows[0], rows[-1]
    found = [
        ("anonymous memory while building, GB", large["peak_mb"] / 1e3, MAX_GB),
        ("disk, bytes a token", large["disk_bytes_per_token"], MAX_DISK_BYTES),
        (
            f"match p99, times that of {small['tokens'] / 1e6:g} M",
            large["match_us_p99"] / small["match_us_p99"],
            MAX_MATCH_RATIO,
        ),
        ("a changed file is found after, ms", large["visible_ms"], MAX_VISIBLE_MS),
        ("start to the first answer, s", large["start_s"], MAX_START_S),
    ]
    return [
        {"what": what, "measured": measured, "target": target, "met": measured <= target}
        for what, measured, target in found
    ]


def main() -> int:
    job, folder = sys.argv[1:]
    print(json.dumps(JOBS[job](Path(folder))), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
