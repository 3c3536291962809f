"""Answers and summaries as files: Markdown for people, JSON for programs.

What models and documents wrote stands in fences, exactly as it is: nothing in it is markup.
"""

from __future__ import annotations

import dataclasses
import json
import re
import secrets
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ui.web.transcript import place

if TYPE_CHECKING:
    from engine.rag.citations import Citation
    from ui.web.transcript import Entry

MARKUP = re.compile(r"([\\`*_{}\[\]()#+\-.!<>|~&:@])")
TICKS = re.compile(r"`{3,}")


def as_markdown(entries: Sequence[Entry], title: str = "Questions and answers") -> str:
    """All entries, for a person."""
    return "\n".join([f"# {plain(title)}\n", *map(_markdown, entries)])


def as_json(entries: Sequence[Entry], title: str = "Questions and answers") -> str:
    """All entries, for a program. Places are code points."""
    found = {"title": title, "entries": [_object(one) for one in entries]}
    return json.dumps(found, indent=1, ensure_ascii=False) + "\n"


def write(folder: Path, name: str, text: str, key: str = "") -> str:
    """The path of a file below `folder`, in a folder that nobody can guess: named by chance, or by
    a `key` that is kept secret; then what was written by it before is replaced."""
    made = folder / f"export-{key or secrets.token_hex(16)}"
    made.mkdir(mode=0o700, parents=True, exist_ok=True)
    new = made / f".{name}.new"
    new.write_text(text, "utf-8", errors="replace", newline="")
    return str(new.replace(made / name))


def forget(folder: Path, key: str) -> None:
    """Delete what was written by a key."""
    shutil.rmtree(folder / f"export-{key}", ignore_errors=True)


def plain(text: str) -> str:
    """A text on one line of Markdown, in which nothing is markup."""
    return MARKUP.sub(r"\\\1", " ".join(text.split()))


def fenced(text: str) -> str:
    """A text as it is; the fence is longer than those in it."""
    fence = "`" * (1 + max([2, *(len(one) for one in TICKS.findall(text))]))
    return f"{fence}text\n{text}\n{fence}"


def figures(entry: Entry) -> str:
    """What it took, on one line."""
    took = entry.figures
    parts = [
        f"{took['tokens']:.0f} tokens" if took.get("tokens") else "",
        f"{took['seconds']:.1f} s" if "seconds" in took else "",
        f"{took['tokens_per_second']:.0f} tokens/s" if took.get("tokens_per_second") else "",
        f"about {took['ratio_to_plain']:.1f} times plain speed"
        if took.get("ratio_to_plain")
        else "",
    ]
    return ", ".join([one for one in (entry.model, *parts) if one])


def _markdown(entry: Entry) -> str:
    lines = [f"## {plain(entry.asked)}\n", fenced(entry.text), ""]
    if entry.stopped:
        lines.append("*Stopped before its end.*\n")
    lines += [f"*{plain(one)}*\n" for one in entry.notes]
    if entry.citations:
        lines.append(f"{entry.covered:.0%} of the words are copied from:\n")
    elif entry.found:
        lines.append("No passage of this is copied from the documents: check it.\n")
    for number, (one, passage) in enumerate(
        zip(entry.citations, entry.passages, strict=True), start=1
    ):
        where = f"characters {one.source_start} to {one.source_stop}"
        lines.append(f"{number}\\. {plain(place(one))}, {where}:\n\n{fenced(passage.quote)}\n")
    if told := figures(entry):
        lines.append(f"{plain(told)}\n")
    return "\n".join(lines)


def _object(entry: Entry) -> dict[str, Any]:
    return {
        "asked": entry.asked,
        "text": entry.text,
        "found": entry.found,
        "stopped": entry.stopped,
        "covered": round(entry.covered, 4),
        "citations": [
            _cited(entry.text, one, passage.quote)
            for one, passage in zip(entry.citations, entry.passages, strict=True)
        ],
        "notes": list(entry.notes),
        "model": entry.model,
        "figures": dict(entry.figures),
    }


def _cited(text: str, citation: Citation, quote: str) -> dict[str, Any]:
    """A citation with its words, as they stand in the text and in the document."""
    return dataclasses.asdict(citation) | {
        "text": text[citation.start : citation.stop],
        "quote": quote,
    }
