"""Blocks of docx and html joined into one text with headings, and the result of every parser."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

from index.documents.formats.headings import Heading, clean_title

INVALID = re.compile("[\0\ud800-\udfff]")  # NUL and lone surrogates, which no text file can hold


class ParsedDocument(NamedTuple):
    """The text of a file. Positions are code points of `text`."""

    text: str
    pages: tuple[tuple[int, int], ...] = ()  # (start, stop) of each page; only a pdf has pages
    headings: tuple[Heading, ...] = ()  # in order


@dataclass(frozen=True, slots=True)
class Block:
    """A paragraph, list item, table row, or (where `level` is not 0) a heading."""

    text: str
    level: int = 0
    tight: bool = False  # no empty line between two tight blocks


def join_blocks(blocks: list[Block]) -> ParsedDocument:
    """Blocks separated by empty lines; empty blocks are dropped."""
    pieces: list[str] = []
    headings: list[Heading] = []
    at, tight = 0, False
    for block in blocks:
        text = replace_invalid(block.text).rstrip().strip("\n")
        if not text.strip():
            continue
        if pieces:
            pieces.append("\n" if block.tight and tight else "\n\n")
            at += len(pieces[-1])
        tight = block.tight
        if block.level:
            headings.append(Heading(at, block.level, clean_title(text)))
        pieces.append(text)
        at += len(text)
    return ParsedDocument("".join(pieces), (), tuple(headings))


def replace_invalid(text: str) -> str:
    """`text` with U+FFFD in place of NUL and lone surrogates."""
    return INVALID.sub("\ufffd", text)
