"""The result of every parser."""

from __future__ import annotations

import re
from typing import NamedTuple

from index.documents.formats.headings import Heading, find_headings

INVALID = re.compile("[\0\ud800-\udfff]")  # NUL and lone surrogates, which no text file can hold


class ParsedDocument(NamedTuple):
    """The text of a file. Positions are code points of `text`."""

    text: str
    pages: tuple[tuple[int, int], ...] = ()  # (start, stop) of each page; only a pdf has pages
    headings: tuple[Heading, ...] = ()  # in order


def from_markdown(markdown: str) -> ParsedDocument:
    """Return a file that was converted to Markdown, with its headings."""
    text = replace_invalid(markdown).strip("\n")
    return ParsedDocument(text, (), find_headings("md", text))


def replace_invalid(text: str) -> str:
    """`text` with U+FFFD in place of NUL and lone surrogates."""
    return INVALID.sub("\ufffd", text)
