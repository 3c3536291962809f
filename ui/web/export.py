"""Exports answers and summaries as Markdown or JSON.

In Markdown, text of models and documents is fenced or escaped, so that none of it is markup.
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

if TYPE_CHECKING:
    from engine.rag.citations import Citation
    from ui.web.transcript import Entry, EvidencePassage

MARKDOWN_CHARS = re.compile(r"([\\`*_{}\[\]()#+\-.!<>|~&:@])")
BACKTICKS = re.compile(r"`{3,}")


def as_markdown(entries: Sequence[Entry], title: str = "Questions and answers") -> str:
    """Return all entries as Markdown."""
    return "\n".join([f"# {escaped(title)}\n", *map(_markdown, entries)])


def as_json(entries: Sequence[Entry], title: str = "Questions and answers") -> str:
    """Return all entries as JSON. Offsets count code points."""
    data = {"title": title, "entries": [_object(entry) for entry in entries]}
    return json.dumps(data, indent=1, ensure_ascii=False) + "\n"


def write(folder: Path, name: str, text: str, key: str = "") -> str:
    """Write a file and return its path, which cannot be guessed.

    The file is in a subfolder named after the secret `key`, where it replaces the previous one, or
    else after a random number.
    """
    subfolder = folder / f"export-{key or secrets.token_hex(16)}"
    subfolder.mkdir(mode=0o700, parents=True, exist_ok=True)
    new = subfolder / f".{name}.new"
    new.write_text(text, "utf-8", errors="replace", newline="")
    return str(new.replace(subfolder / name))


def remove(folder: Path, key: str) -> None:
    """Delete the files that were written with a key."""
    shutil.rmtree(folder / f"export-{key}", ignore_errors=True)


def escaped(text: str) -> str:
    """Write a text as one line of Markdown without markup."""
    return MARKDOWN_CHARS.sub(r"\\\1", " ".join(text.split()))


def fenced(text: str) -> str:
    """Put a text in a fence that is longer than any in it."""
    fence = "`" * (1 + max([2, *(len(run) for run in BACKTICKS.findall(text))]))
    return f"{fence}text\n{text}\n{fence}"


def figures(entry: Entry) -> str:
    """Return the figures of an answer, on one line."""
    values = entry.figures
    parts = [
        f"{values['tokens']:.0f} tokens" if values.get("tokens") else "",
        f"{values['seconds']:.1f} s" if "seconds" in values else "",
        f"{values['tokens_per_second']:.0f} tokens/s" if values.get("tokens_per_second") else "",
        f"about {values['ratio_to_plain']:.1f} times the speed of plain decoding"
        if values.get("ratio_to_plain")
        else "",
    ]
    return ", ".join(part for part in (entry.model, *parts) if part)


def _markdown(entry: Entry) -> str:
    lines = [f"## {escaped(entry.title)}\n", fenced(entry.text), ""]
    if entry.stopped:
        lines.append("*Stopped: incomplete.*\n")
    lines += [f"*{escaped(note)}*\n" for note in entry.notes]
    lines += [f"*{escaped(doubt)}*\n" for doubt in entry.doubts]
    for number, passage in enumerate(entry.passages, start=1):
        where = f"from character {passage.start}"
        source = f"{number}\\. {escaped(passage.location)}, {where}"
        lines.append(f"{source}:\n\n{fenced(passage.text)}\n")
    if line := figures(entry):
        lines.append(f"{escaped(line)}\n")
    return "\n".join(lines)


def _object(entry: Entry) -> dict[str, Any]:
    return {
        "asked": entry.title,
        "rewritten": entry.rewritten,
        "text": entry.text,
        "found": entry.found,
        "stopped": entry.stopped,
        "covered": round(entry.covered, 4),
        "supported": not entry.doubts,
        "doubts": list(entry.doubts),
        "citations": [
            _citation(entry, citation, entry.passages[index])
            for citation, index in zip(entry.citations, entry.cited_passages, strict=True)
        ],
        "passages": [dataclasses.asdict(passage) for passage in entry.passages],
        "notes": list(entry.notes),
        "model": entry.model,
        "figures": dict(entry.figures),
    }


def _citation(entry: Entry, citation: Citation, passage: EvidencePassage) -> dict[str, Any]:
    """Return a citation with the words of the answer and of the document."""
    return dataclasses.asdict(citation) | {
        "text": entry.text[citation.start : citation.stop],
        "quote": passage.quote(citation),
    }
