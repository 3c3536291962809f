"""Blocks of text, as docx and html have them, put together as one text with its headings."""

from __future__ import annotations

import re
from dataclasses import dataclass

from index.documents.formats.headings import Heading, title_of

SPOILT = re.compile("[\0\ud800-\udfff]")  # what no text file could hold
Read = tuple[str, list[tuple[int, int]], list[Heading]]  # text, pages, headings


@dataclass(frozen=True, slots=True)
class Block:
    """A paragraph, a line of a list or table, or a heading where `level` is not 0."""

    text: str
    level: int = 0
    tight: bool = False  # belongs to the block before it: no empty line between


def joined(blocks: list[Block]) -> Read:
    """One text, with an empty line between blocks. Empty blocks vanish."""
    pieces: list[str] = []
    found: list[Heading] = []
    at, tight = 0, False
    for block in blocks:
        text = clean(block.text).rstrip().strip("\n")
        if not text.strip():
            continue
        if pieces:
            pieces.append("\n" if block.tight and tight else "\n\n")
            at += len(pieces[-1])
        tight = block.tight
        if block.level:
            found.append(Heading(at, block.level, title_of(text)))
        pieces.append(text)
        at += len(text)
    return "".join(pieces), [], found


def clean(text: str) -> str:
    """Without NUL and halves of surrogate pairs."""
    return SPOILT.sub("\ufffd", text)
