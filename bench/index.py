"""How fast the automaton is built and asked, and how much memory it takes.

    python bench/index.py --tokens 1000000 [--source DIR] [--tokenizer tokenizer.json]

Documents are the Python files under --source (default: this Python's standard library) until
there are enough tokens; the tails asked for are half from these files ("seen") and half from the
files after them ("new"). Without --tokenizer a token is a word, a run of blanks or a sign, by its
checksum, so nothing is downloaded. Build: median of 5. Match: one Python call each, the call's own
cost included. Prints a table, then one JSON line. Other indexes are not compared here yet.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import sys
import sysconfig
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

# This file is called index too: its folder must not come before the package.
sys.path[:] = [path for path in sys.path if Path(path).resolve() != Path(__file__).parent.resolve()]

from index import Automaton, files  # noqa: E402

Ids = NDArray[np.int32]

BUILDS = 5
TAILS = 2000  # of each kind
TAIL = 64  # tokens
WORD = re.compile(r"\w+|\s+|[^\w\s]")


def hashed(texts: list[str]) -> list[Ids]:
    """A stand-in for a tokenizer: 50,000 ids by checksum of words, blanks and signs."""
    return [
        np.array([zlib.crc32(word.encode()) % 50_000 for word in WORD.findall(text)], np.int32)
        for text in texts
    ]


def tokenizer(path: Path | None) -> Callable[[list[str]], list[Ids]]:
    if path is None:
        return hashed
    from tokenizers import Tokenizer

    loaded = Tokenizer.from_file(str(path))

    def encode(texts: list[str]) -> list[Ids]:
        batch = loaded.encode_batch_fast(texts, add_special_tokens=False)
        return [np.array(one.ids, np.int32) for one in batch]

    return encode


def documents(source: Path, encode: Callable[[list[str]], list[Ids]]) -> Iterator[Ids]:
    """The tokens of each Python file, in batches of files."""
    batch: list[str] = []
    for file in files.walk(source):
        if file.path.endswith(".py") and "site-packages/" not in file.path:
            try:
                batch.append(files.read(file.full))
            except files.Skipped:
                continue
            if len(batch) == 64:
                yield from encode(batch)
                batch = []
    yield from encode(batch)


def collect(stream: Iterator[Ids], tokens: int) -> list[Ids]:
    """Documents of so many tokens in all, the last one cut; fewer where the stream ends."""
    found: list[Ids] = []
    for document in stream:
        found.append(document[:tokens])
        tokens -= len(found[-1])
        if tokens == 0:
            break
    return found


def tails(documents: list[Ids], chance: np.random.Generator) -> list[Ids]:
    text = np.concatenate(documents)
    return [text[at : at + TAIL].copy() for at in chance.integers(0, len(text) - TAIL, TAILS)]


def build(seen: list[Ids]) -> tuple[Automaton, float]:
    """An automaton over the documents, and the seconds it took."""
    start = time.perf_counter()
    automaton = Automaton()
    for document in seen:
        automaton.add(document)
    return automaton, time.perf_counter() - start


def ask(automaton: Automaton, questions: list[Ids]) -> list[float]:
    """Microseconds of each match."""
    times = []
    for tail in questions:
        start = time.perf_counter_ns()
        automaton.match(tail, followed=True)
        times.append((time.perf_counter_ns() - start) / 1000)
    return times


def measure(seen: list[Ids], questions: dict[str, list[Ids]]) -> list[dict[str, Any]]:
    tokens = sum(map(len, seen))
    seconds = []
    for _ in range(BUILDS):
        automaton, took = build(seen)
        seconds.append(took)
    results = []
    for form in ("growing", "frozen"):
        if form == "frozen":
            start = time.perf_counter()
            automaton.freeze()
            seconds = [took + time.perf_counter() - start for took in seconds]
        times = {name: ask(automaton, tails) for name, tails in questions.items()}
        every = [took for part in times.values() for took in part]
        results.append(
            {
                "index": "draftline",
                "form": form,
                "tokens": tokens,
                "build_tokens_per_s": round(tokens / median(seconds)),
                "bytes_per_token": round(automaton.nbytes / tokens, 1),
                "match_us_p50": round(float(np.percentile(every, 50)), 2),
                "match_us_p99": round(float(np.percentile(every, 99)), 2),
                **{f"match_{name}_us_p50": round(median(part), 2) for name, part in times.items()},
            }
        )
    return results


def machine() -> str:
    name = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        named = re.search(r"model name\s*:\s*(.+)", cpuinfo.read_text())
        name = named.group(1) if named else name
    return (
        f"{name}, {os.cpu_count()} cores, {platform.system()}, Python {platform.python_version()}"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--tokens", type=int, default=1_000_000)
    parser.add_argument("--source", type=Path, default=Path(sysconfig.get_paths()["stdlib"]))
    parser.add_argument("--tokenizer", type=Path, help="a tokenizer.json")
    options = parser.parse_args()
    if options.tokens < 1:
        sys.exit(f"--tokens {options.tokens}: must be 1 or more")
    if not options.source.is_dir():
        sys.exit(f"--source {options.source}: not a folder")
    if options.tokenizer and not options.tokenizer.is_file():
        sys.exit(f"--tokenizer {options.tokenizer}: no such file; name a tokenizer.json")
    stream = documents(options.source, tokenizer(options.tokenizer))
    seen = collect(stream, options.tokens)
    unseen = collect(stream, 100_000)
    held = [sum(map(len, part)) for part in (seen, unseen)]
    if min(held) <= TAIL or held[0] < options.tokens:
        sys.exit(f"{options.source}: {sum(held)} tokens only; ask for fewer --tokens")
    chance = np.random.default_rng(0)
    results = measure(seen, {"seen": tails(seen, chance), "new": tails(unseen, chance)})

    columns = [key for key in results[0] if key not in ("index", "tokens")]
    print(f"{machine()}; {held[0]:,} tokens in {len(seen)} documents")
    print("  ".join(f"{column:>18}" for column in columns))
    for result in results:
        print("  ".join(f"{result[column]:>18}" for column in columns))
    print(json.dumps({"machine": machine(), "results": results}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
