"""Make the recorded sessions of the typist: python -m bench.latency.record

Nobody sat at a keyboard: a program with a fixed seed makes them from the sample files, so that
nobody's habits or machine are in them. It takes a few parts of one to five lines out of each file,
whose brackets are balanced, and types them again in a random order. Times between keys are
log-normal with a mean of 200 ms (60 words a minute). Of the letters and digits 2.5 % are slips: a
neighbour on the keyboard, noticed after none to two further keys, erased and typed again. At the
start of a line, and behind a blank or an opening bracket, the typist may pause and look at what is
offered; the end of a part is such a pause, and then the cursor jumps to the next one.
"""

from __future__ import annotations

import json
import math
import random
from typing import Any

from bench.common.tasks import source
from bench.latency.places import SEED, STROKE
from bench.latency.sessions import RECORDED_WORDS, SESSIONS
from engine.editing.brackets import scan

FILES = {  # two files of each language
    "python": ("confuse/util.py", "fractional_indexing/fractional_indexing.py"),
    "typescript": ("ts-retry-promise/retry-promise.ts", "ajv/parseJson.ts"),
    "go": ("go-humanize/times.go", "reflow/truncate.go"),
    "rust": ("textwrap/indentation.rs", "bytesize/parse.rs"),
    "c": ("hiredis/dict.c", "hiredis-py/pack.c"),
}
KEYS = 130  # keys of a session, at least
PART_CHARS = (20, 90)  # characters of a part without indentation
APART_LINES = 8  # lines between two parts
MEAN_MS, SPREAD = 12_000 / RECORDED_WORDS, 0.4  # of the time between keys
SLIPS = 0.025  # share of the letters and digits
LINE_PAUSES, WORD_PAUSES = 0.6, 0.2  # shares of the places where the typist may look
LOOK_S, JUMP_S, THINK_S = (0.6, 1.4), (1.2, 2.5), 4.5  # seconds; the last once a session
ROWS = ("1234567890", "qwertyuiop", "asdfghjkl", "zxcvbnm")
COMMENTS = ("#", "//", "/*", "*", '"""', "'''")


def candidates(text: str) -> list[tuple[int, int, int]]:
    """Find parts to type, as (number of the first line, start, stop)."""
    lines, found, start = text.split("\n"), [], 0
    for first, line in enumerate(lines):
        stop, indent = start, len(line) - len(line.lstrip())
        for other in lines[first : first + 5]:
            bare = other.strip()
            if not bare or not indent or len(other) - len(other.lstrip()) < indent:
                break
            if bare.startswith(COMMENTS):
                break
            stop += len(other) + 1
            part = text[start + indent : stop - 1]
            brackets = scan(part)
            is_whole = not (brackets.open or brackets.unmatched_closers)
            if is_whole and PART_CHARS[0] <= len("".join(part.split())) <= PART_CHARS[1]:
                found.append((first, start + indent, stop - 1))
        start += len(line) + 1
    return found


def choose(text: str, chance: random.Random) -> list[tuple[int, int]]:
    """Choose parts of KEYS keys in all that are apart from each other, in a random order."""
    chosen, keys, every = list[tuple[int, int, int]](), 0, candidates(text)
    for part in chance.sample(every, len(every)):
        if all(abs(part[0] - other[0]) >= APART_LINES for other in chosen) and keys < KEYS:
            chosen.append(part)
            keys += len(STROKE.findall(text[part[1] : part[2]]))
    return [(start, stop) for _, start, stop in chosen]


def strokes(text: str, chance: random.Random) -> list[dict[str, Any]]:
    """Type a text: keys, erased keys and pauses."""
    made: list[dict[str, Any]] = []

    def press(key: str) -> None:
        mean = math.log(MEAN_MS) - SPREAD**2 / 2
        kind, more = ("keys", key) if key else ("erase", 1)
        if not made or kind not in made[-1]:
            made.append({kind: more, "ms": []})
        else:
            made[-1][kind] += more
        made[-1]["ms"].append(round(min(max(chance.lognormvariate(mean, SPREAD), 60), 900)))

    def pause(share: float) -> None:
        if chance.random() < share:
            made.append({"pause": round(chance.uniform(*LOOK_S), 2)})

    keys = STROKE.findall(text)
    for number, key in enumerate(keys):
        if key.isalnum() and key.isascii() and chance.random() < SLIPS:
            row = next(row for row in ROWS if key.lower() in row)
            at = row.index(key.lower())
            later = keys[number + 1 : number + 1 + chance.randrange(3)]
            wrong = [row[at - 1 if at else 1], *later]
            wrong = wrong[: next((n for n, one in enumerate(wrong) if "\n" in one), None)]
            for one in (*wrong, *[""] * len(wrong)):
                press(one)
        press(key)
        if key[0] == "\n":
            pause(LINE_PAUSES)
        elif key in " ([{":
            pause(WORD_PAUSES)
    pause(1.0)
    return made


def record(file: str, chance: random.Random) -> dict[str, Any]:
    """Make the recording of a file."""
    text = source(file)
    parts = [
        {
            "start": start,
            "jump": round(chance.uniform(*JUMP_S), 2),
            "strokes": strokes(text[start:stop], chance),
        }
        for start, stop in choose(text, chance)
    ]
    parts[len(parts) // 2]["jump"] = THINK_S
    return {"file": file, "words_per_minute": RECORDED_WORDS, "parts": parts}


def main() -> None:
    for language, files in FILES.items():
        for number, file in enumerate(files, 1):
            made = record(file, random.Random(f"{SEED} {file}"))
            path = SESSIONS / f"{number}-{language}.json"
            path.write_text(dumped(made), "utf-8")


def dumped(made: dict[str, Any]) -> str:
    """Write a recording as JSON, a stroke a line."""
    parts = []
    for part in made["parts"]:
        head = json.dumps({**part, "strokes": []})[:-2]
        lines = ",\n  ".join(json.dumps(one) for one in part["strokes"])
        parts.append(f"\n {head}\n  {lines}\n ]}}")
    head = json.dumps({**made, "parts": []})[:-2]
    return f"{head}{','.join(parts)}\n]}}\n"


if __name__ == "__main__":
    main()
