"""One timed job of `python -m bench index` on a workspace, in a fresh process.

    python -m bench.index.folder prepared|alone|cold|warm|checkout FOLDER HOME [TOKENIZER]

prepared: updates, matches, memory and disk, with the token ids of FOLDER/corpus.npz. alone: only
the tokenizer, on the files of FOLDER. cold: until the first answer, with HOME empty. warm: the
same again. checkout: git changes all files of FOLDER. Imports and the loading of the tokenizer are
never timed; `alone` and `cold` read files from the page cache. Prints one JSON line.
"""

from __future__ import annotations

import builtins
import json
import keyword
import random
import re
import subprocess
import sys
import time
import zlib
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from numpy.typing import NDArray

from bench.common.environment import ROOT
from bench.index.peers import TAIL
from index import Encoder, Workspace
from index.workspace import file_filter

Ids = NDArray[np.int32]
WORD = re.compile(r"\w+|\s+|[^\w\s]")
LINE = "    {}_{} = {}({}, {})\n"
CHECKOUT_TIMEOUT_S = 120  # seconds until a checkout's files count as lost


class HashTokenizer:
    """A tokenizer stand-in: 50,000 ids by checksum of words, blanks and signs."""

    fingerprint = "words by checksum"
    byte_lengths = np.full(50_000, -1, np.int32)
    token_bytes = [None] * 50_000

    def encode_batch(self, texts: list[str]) -> list[Ids]:
        return [
            np.array([_hashed(word) for word in WORD.findall(text)], np.int32) for text in texts
        ]

    def encode_with_offsets(self, text: str) -> tuple[Ids, NDArray[np.int64]]:
        words = list(WORD.finditer(text))
        ids = np.array([_hashed(word.group()) for word in words], np.int32)
        return ids, np.array([word.start() for word in words], np.int64)

    def places(self, ids: Ids) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        raise ValueError("a checksum has no fixed bytes: ask for the offsets of a text")


@cache
def _hashed(word: str) -> int:
    return zlib.crc32(word.encode()) % 50_000


class PreparedTokenizer:
    """Returns prepared ids: a text is their number, padded to one byte per token."""

    fingerprint = "prepared"

    def __init__(self, prepared: list[Ids]) -> None:
        self.prepared = prepared
        highest = max(int(ids.max()) for ids in prepared)
        self.byte_lengths = np.ones(highest + 1, np.int32)
        self.token_bytes = [b" "] * (highest + 1)

    def text(self, number: int) -> str:
        return str(number).ljust(len(self.prepared[number]))

    def encode_batch(self, texts: list[str]) -> list[Ids]:
        """Any other text gets a single id."""
        other = np.zeros(1, np.int32)
        return [self.prepared[int(text)] if text.strip().isdecimal() else other for text in texts]

    def encode_with_offsets(self, text: str) -> tuple[Ids, NDArray[np.int64]]:
        ids = self.encode_batch([text])[0]
        return ids, np.arange(len(ids), dtype=np.int64)

    def places(self, ids: Ids) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        starts = np.arange(len(ids), dtype=np.int64)
        return starts, starts + 1


def load_encoder(path: Path | None) -> Encoder:
    """Return the tokenizer of a tokenizer.json, or the stand-in."""
    if path is None:
        return HashTokenizer()
    from engine.prompts.tokenizer import Tokenizer

    return Tokenizer(path.parent)


def prepared(folder: Path, home: Path, path: Path | None) -> dict[str, Any]:
    with np.load(folder / "corpus.npz") as arrays:
        documents = np.split(arrays["tokens"], arrays["ends"][:-1])
        tails, changes = list(arrays["tails"]), list(arrays["changes"])
    documents = [document for document in documents if len(document) > 9]
    encoder = PreparedTokenizer(documents + changes)
    root = folder / "prepared"
    root.mkdir()
    paths = [root / f"{number}.py" for number in range(len(documents))]
    for number, file in enumerate(paths):
        file.write_text(encoder.text(number), "utf-8")
    before = resident()
    with Workspace(root, encoder, home) as workspace:
        start = time.perf_counter()
        workspace.build()
        build_s = time.perf_counter() - start
        workspace.compact()
        tokens = workspace.size
        known: dict[str, Any] = {
            "tokens": tokens,
            "build_s": build_s,
            "bytes_per_token": workspace.nbytes / tokens,
            "resident_bytes_per_token": (resident() - before) / tokens,
            "disk_bytes_per_token": workspace.stats().disk / tokens,
        }
        times = []
        for number, tokens_now in enumerate(changes):
            name, text = (
                root / f"{number % len(documents)}.py",
                encoder.text(len(documents) + number),
            )
            start = time.perf_counter()
            workspace.update(name, text, number)
            found = workspace.match(tokens_now[-1 - TAIL : -1])
            times.append((time.perf_counter() - start) * 1000)
            if not found or found[0].length < TAIL:
                raise RuntimeError(f"the changed text of {name.name} was not found")
        known["update_ms"] = times
        known["segments"] = workspace.stats().segments
        known["match_us"] = [_match_us(workspace, tail) for tail in tails]
    return known


def alone(folder: Path, home: Path, path: Path | None) -> dict[str, Any]:
    encoder = load_encoder(path)
    texts = []
    for file in file_filter.walk(folder):
        try:
            texts.append(file_filter.read(file.real_path))
        except file_filter.Skipped:
            continue
    backend = getattr(encoder, "backend", None)
    start = time.perf_counter()
    if backend:
        backend.encode_batch_fast(texts, add_special_tokens=False)
    else:
        for text in texts:
            encoder.encode_with_offsets(text)
    seconds = time.perf_counter() - start
    return {"seconds": seconds, "bytes": sum(len(text.encode()) for text in texts)}


def started(folder: Path, home: Path, path: Path | None) -> dict[str, Any]:
    """Return the seconds from a loaded tokenizer to the first answer."""
    encoder = load_encoder(path)
    tail = encoder.encode_batch(["import os\nimport sys\n"])[0]
    before = resident()
    start = time.perf_counter()
    workspace = Workspace(folder, encoder, home)
    workspace.build()
    ready, unasked = time.perf_counter() - start, resident()
    found = workspace.match(tail)
    seconds = time.perf_counter() - start
    if not found:
        raise RuntimeError(f"{folder}: no match was found in it")
    stats = workspace.stats()
    known = {
        "seconds": seconds,
        "ready_s": ready,
        "resident_mb_before": before / 1e6,
        "resident_mb": unasked / 1e6,
        "resident_mb_asked": resident() / 1e6,
        "tokens": stats.tokens,
        "files": stats.files,
        "tokenised": stats.misses,
    }
    workspace.compact()
    known["segments"] = workspace.stats().segments
    known["disk_mb"] = workspace.stats().disk / 1e6
    workspace.close()
    return known


def checkout(folder: Path, home: Path, path: Path | None) -> dict[str, Any]:
    """Check out branch b, whose texts are new, and branch a again, whose texts were indexed."""
    encoder = load_encoder(path)
    with Workspace(folder, encoder, home) as workspace:
        workspace.build()
        workspace.compact()
        workspace.watch()
        memory, held = resident(), workspace.nbytes
        known = {"files": len(workspace.documents)}
        there, back = _switch(workspace, folder, "b"), _switch(workspace, folder, "a")
        workspace.compact()
        return (
            known
            | there
            | {f"back_{key}": value for key, value in back.items()}
            | {"memory_ratio": workspace.nbytes / held, "resident_ratio": resident() / memory}
        )


def _switch(workspace: Workspace, folder: Path, branch: str) -> dict[str, Any]:
    """Check out `branch`; wait until every file's new text is found and its old text is not."""
    old = {document.path: document.tokens.copy() for document in workspace.documents}
    start = time.perf_counter()
    subprocess.run(["git", "-C", str(folder), "checkout", "-q", branch], check=True)
    git_s = time.perf_counter() - start
    waiting = list(old)
    while waiting and time.perf_counter() - start < CHECKOUT_TIMEOUT_S:
        now = {document.path: document.tokens for document in workspace.documents}
        while waiting and _is_updated(workspace, now, waiting[-1], old[waiting[-1]]):
            waiting.pop()
        time.sleep(0.01)
    return {"seconds": time.perf_counter() - start, "git_s": git_s, "lost": len(waiting)}


def _is_updated(workspace: Workspace, now: dict[str, Ids], name: str, old: Ids) -> bool:
    """Return whether a file's new text is found in it, and its old text nowhere."""
    new = now.get(name, old)
    if np.array_equal(new, old):
        return False
    found, dead = (workspace.match(ids[len(ids) // 2 :][:TAIL]) for ids in (new, old))
    if not found or found[0].length < TAIL or found[0].path != name:
        return False
    return not dead or dead[0].length < TAIL


def make_repository(folder: Path, count: int) -> None:
    """Make a repository with branches a (checked out) and b.

    Each has `count` files of 4 KB whose lines are random common words.
    """

    def git(*arguments: str) -> None:
        who = ["-c", "user.name=bench", "-c", "user.email=bench@localhost"]
        subprocess.run(["git", "-C", str(folder), *who, *arguments], check=True)

    folder.mkdir()
    git("init", "-q", "-b", "a")
    chance, words = random.Random(count), [*dir(builtins), *keyword.kwlist]
    for branch in ("a", "b"):
        if branch == "b":
            git("checkout", "-q", "-b", "b")
        for number in range(count):
            place = folder / f"part{number % 40}" / f"file{number}.py"
            place.parent.mkdir(exist_ok=True)
            lines = [LINE.format(*chance.choices(words, k=5)) for _ in range(150)]
            place.write_text("".join(lines)[:4096], "utf-8")
        git("add", ".")
        git("commit", "-q", "-m", branch)
    git("checkout", "-q", "a")


def resident() -> int:
    return int(psutil.Process().memory_info().rss)


def _match_us(workspace: Workspace, tail: Ids) -> float:
    start = time.perf_counter_ns()
    workspace.match(tail)
    return (time.perf_counter_ns() - start) / 1000


JOBS = {
    "prepared": prepared,
    "alone": alone,
    "cold": started,
    "warm": started,
    "checkout": checkout,
}


def run(job: str, folder: Path, home: Path, tokenizer: Path | None = None) -> dict[str, Any]:
    """Run a job in a fresh process. Raises CalledProcessError if it fails."""
    command = [sys.executable, "-m", "bench.index.folder", job, str(folder), str(home)]
    command += [str(tokenizer)] if tokenizer else []
    ran = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    answer: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    return answer


def main() -> int:
    job, folder, home, *rest = sys.argv[1:]
    path = Path(rest[0]) if rest else None
    print(json.dumps(JOBS[job](Path(folder), Path(home), path)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
