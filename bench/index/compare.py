"""The measurements of `python -m bench index`: on token ids, in a workspace, in a folder.

Indexes take turns, so that what slows the machine down for a while slows all of them. Rows are
plain data; nothing but progress is printed.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from bench.common import report
from bench.common.stats import bootstrap, pairs
from bench.index import folder as index_folder
from bench.index.jobs import IndexProcesses
from bench.index.peers import PEERS, TAIL

Row = dict[str, Any]

PYTHON_MAX_TOKENS = 1_000_000  # tokens for the Python automaton
PYTHON_REPEATS = 2
YOUNG_TOKENS = 50_000  # tokens of the young segment
FORMS = (
    (1, 0),
    (1, YOUNG_TOKENS),
    (2, YOUNG_TOKENS),
    (4, YOUNG_TOKENS),
    (8, YOUNG_TOKENS),
)  # (frozen segments, young tokens)


@dataclass(frozen=True)
class Amounts:
    """The amounts to measure."""

    repeats: int = 5
    tails: int = 1000  # tails of each kind
    changes: int = 50
    unseen: int = 200_000  # tokens in no index
    folder: int = 20_000_000  # bytes
    checkout: int = 2000  # files


def compare(
    corpus: Path, tokens: int, work: Path, amounts: Amounts, left_out: list[str], brief: bool
) -> list[Row]:
    """Compare the indexes over one corpus of token ids, a row each. brief: leave out updates."""
    names = [name for name in PEERS if name != "python" or tokens <= PYTHON_MAX_TOKENS]
    often = {name: PYTHON_REPEATS if name == "python" else amounts.repeats for name in names}
    once, ours = dict.fromkeys(names, 1), {"draftline": 1}
    young = min(YOUNG_TOKENS, tokens // 10)
    compared = IndexProcesses(names, corpus, work, left_out)
    try:
        report.say(f"{tokens:,} tokens: {', '.join(compared.running)}")
        first = compared.do("build", once)  # warm-up; only its memory counts
        counts, disks = compared.do("count", once), compared.do("save", once)
        loads = compared.do("load", {name: often[name] for name in disks if disks[name][0]})
        built = compared.do("build", often)
        compared.do("shape", ours, frozen=1, young=young)
        compared.do("match", once)
        matches = compared.do("match", often)
        forms = by_form(compared, young, amounts.repeats)
        changed: dict[str, list[Any]] = {}
        if not brief:
            compared.do("build", ours)
            changed = compared.do("update", {"draftline": 1, "arctic": 1}, count=amounts.changes)
            changed |= compared.do("update", {"python": 1, "suffix-array": 1}, count=1)
    finally:
        compared.close()
    builds = {name: [one["seconds"] for one in many] for name, many in built.items()}
    rows = []
    for name in compared.running:
        seconds, counted, disk = median(builds[name]), counts[name][0], disks[name][0]
        resident = first[name][0]["resident"] / tokens
        row = {
            "index": name,
            "tokens": tokens,
            "rounds": often[name],
            "build_s": seconds,
            "build_tokens_per_s": tokens / seconds,
            "bytes_per_token": counted / tokens if name == "draftline" else resident,
            "resident_bytes_per_token": resident,
            "counted_bytes_per_token": counted / tokens if counted else None,
            "disk_bytes_per_token": disk / tokens if disk else None,
            **of_updates(changed.get(name, [[]])[0]),
            **of_matches([one["us"] for one in matches[name]]),
            "same_length": same_length(matches, name),
            "cold_start_s": None,
            "warm_start_s": median(loads[name]) if name in loads else None,
            "ratio_build": ratio(builds, name),
            "ratio_match": ratio(
                {key: [median(one["us"]) for one in many] for key, many in matches.items()}, name
            ),
        }
        rows.append(row | ({"forms": forms} if name == "draftline" and forms else {}))
    return rows


def by_form(compared: IndexProcesses, young: int, repeats: int) -> list[Row]:
    """draftline's match time by the number of segments."""
    forms = []
    for frozen, some in FORMS:
        tokens = compared.do("shape", {"draftline": 1}, frozen=frozen, young=min(some, young))
        compared.do("match", {"draftline": 1})
        asked = compared.do("match", {"draftline": repeats})
        if asked:
            times = of_matches([one["us"] for one in asked["draftline"]])
            forms.append({"frozen": frozen, "young_tokens": tokens["draftline"][0], **times})
    return forms


def of_matches(rounds: list[list[float]]) -> Row:
    """Medians over rounds; each has the microseconds of the seen tails, then of the new ones."""
    half = len(rounds[0]) // 2
    return {
        "match_us_p50": median(float(np.percentile(one, 50)) for one in rounds),
        "match_us_p99": median(float(np.percentile(one, 99)) for one in rounds),
        "match_us_mean": median(float(np.mean(one)) for one in rounds),
        "match_seen_us_p50": median(median(one[:half]) for one in rounds),
        "match_new_us_p50": median(median(one[half:]) for one in rounds),
    }


def of_updates(times: list[float]) -> Row:
    """Median and maximum milliseconds of updates."""
    return {
        "update_ms": median(times) if times else None,
        "update_ms_max": max(times, default=None),
        "updates": len(times),
    }


def same_length(matches: dict[str, list[Any]], name: str) -> float | None:
    """Return the share of tails with a match as long as the suffix array's, or the limit.

    The limit is the index's. None without a suffix array.
    """
    if "suffix-array" not in matches:
        return None
    most = TAIL - 1 if name == "arctic" else TAIL
    found, right = (matches[key][0]["lengths"] for key in (name, "suffix-array"))
    equal = sum(one == min(other, most) for one, other in zip(found, right, strict=True))
    return float(equal / len(found))


def ratio(times: dict[str, list[float]], name: str) -> list[float] | None:
    """Return the ratio of another index's times to draftline's, and its interval.

    It is over equal rounds.
    """
    if name == "draftline" or "draftline" not in times:
        return None
    ours, theirs = times["draftline"], times[name]
    rounds = min(len(ours), len(theirs))
    return list(bootstrap([pairs(theirs[:rounds], ours[:rounds])]))


def by_workspace(row: Row, corpus: Path, work: Path) -> None:
    """Add the workspace's updates, matches, memory and disk to draftline's row."""
    place = work / f"prepared{row['tokens']}"
    place.mkdir()
    (place / "corpus.npz").hardlink_to(corpus)
    known = index_folder.run("prepared", place, place / "home")
    row["core_update_ms"], row["core_update_ms_max"] = row["update_ms"], row["update_ms_max"]
    row |= of_updates(known.pop("update_ms"))
    row["disk_bytes_per_token"] = known["disk_bytes_per_token"]
    row["workspace"] = known | of_matches([known.pop("match_us")])


def by_folder(texts: Iterator[str], amounts: Amounts, tokenizer: Path | None, work: Path) -> Row:
    """Cold and warm start on a folder of source, and a git checkout in a repository."""
    source, bytes_left = work / "source", amounts.folder
    for number, text in enumerate(texts):
        place = source / f"part{number // 50}" / f"file{number}.py"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, "utf-8", newline="")
        bytes_left -= place.stat().st_size
        if bytes_left <= 0:
            break
    runs: dict[str, list[Row]] = {"alone": [], "cold": [], "warm": []}
    rounds = min(amounts.repeats, 3)
    for number in range(rounds):
        report.say(f"cold start of {amounts.folder / 1e6:g} MB, {number + 1} of {rounds}")
        for job in ("alone", "cold"):
            home = work / f"home{number}"
            runs[job].append(index_folder.run(job, source, home, tokenizer))
    for _ in range(rounds):
        runs["warm"].append(index_folder.run("warm", source, home, tokenizer))
    seconds = {job: [one["seconds"] for one in many] for job, many in runs.items()}
    known: Row = {
        "tokenizer": tokenizer.parent.name if tokenizer else "words by checksum",
        "bytes": runs["alone"][0]["bytes"],
        "rounds": rounds,
        "tokenizer_s": median(seconds["alone"]),
        "cold_start_s": median(seconds["cold"]),
        "cold_ratio": median(pairs(seconds["cold"], seconds["alone"])),
        "warm_start_s": median(seconds["warm"]),
        "warm_resident_mb": median(one["resident_mb"] for one in runs["warm"]),
        "cold": runs["cold"][-1],
        "warm": runs["warm"][-1],
    }
    report.say(f"git checkout of {amounts.checkout:,} files")
    known["checkout"] = None
    if not shutil.which("git"):
        report.say("git is not installed: the checkout is left out")
        return known
    repository, home = work / "repository", work / "home-repository"
    index_folder.make_repository(repository, amounts.checkout)
    known["checkout"] = index_folder.run("checkout", repository, home, tokenizer)
    again = index_folder.run("alone", repository, home, tokenizer)
    known["checkout"]["tokenizer_s"] = again["seconds"]
    return known


def targets(record: Row) -> list[Row]:
    """Return the targets at the largest size, and whether they were met."""
    rows = [row for row in record["results"] if row["index"] == "draftline"]
    if not rows or record.get("growth"):
        return []
    row, folder = rows[-1], record.get("folder", {})
    found: list[tuple[str, float | None, float]] = [
        ("build, M tokens/s (at least)", row["build_tokens_per_s"] / 1e6, 5.0),
        ("memory, frozen, bytes a token", row["bytes_per_token"], 32.0),
        ("match, 1 frozen + 1 young, us p50", row["match_us_p50"], 10.0),
        ("match, 1 frozen + 1 young, us p99", row["match_us_p99"], 50.0),
    ]
    if forms := row.get("forms", []):
        few, many = forms[1], forms[-1]
        further = (many["match_us_p50"] - few["match_us_p50"]) / (many["frozen"] - few["frozen"])
        found.append(("match, each further segment, us", further, 6.0))
    if known := row.get("workspace"):
        found.append(("the same by the workspace, us p50", known["match_us_p50"], 10.0))
        found.append(("change of a 2,000-token file, ms", row["update_ms"], 2.0))
    if folder:
        found.append(("cold start, times the tokenizer", folder["cold_ratio"], 1.3))
        found.append(("warm start, s", folder["warm_start_s"], 0.5))
        found.append(("warm start, MB resident unasked", folder["warm_resident_mb"], 200.0))
    if folder.get("checkout"):
        there = folder["checkout"]
        found.append(("git checkout, text not seen before, s", there["seconds"], 3.0))
        found.append(("git checkout back, s", there["back_seconds"], 3.0))
        found.append(("files lost by both", there["lost"] + there["back_lost"], 0.0))
        found.append(("memory after both, of before", there["memory_ratio"], 1.1))
    return [
        {"what": what, "measured": measured, "target": target,
         "met": measured >= target if "at least" in what else measured <= target}
        for what, measured, target in found
        if measured is not None
    ]  # fmt: skip
