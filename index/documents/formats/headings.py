"""Headings of Markdown, reStructuredText and source code.

Markdown is parsed by markdown-it-py. reStructuredText and source code are scanned line by line,
without parsing: section titles with their adornments, and definitions.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from markdown_it import MarkdownIt

MAX_TITLE_CHARS = 160
MAX_LINE_CHARS = 400  # characters; the rest of a line of reStructuredText or code is not scanned
TAB_WIDTH = 4

INVALID = re.compile("[\0\ud800-\udfff]")  # NUL and lone surrogates, which no text file can hold
LINE_END = re.compile(r"\r\n?|\n")
FRONT_MATTER = re.compile(r"---[ \t]*\r?\n(?:.*\n){0,48}?---[ \t]*\r?(?:\n|\Z)")
ADORNMENT = re.compile(r"([!-/:-@\[-`{-~])\1*[ \t]*$")  # a reStructuredText title's under/overline
MARKUP = re.compile(r"\[([^\]\n]*)\]\([^)\n]*\)|[`*]+|:[\w:.-]+:(?=`)")

MODIFIERS = (
    "abstract async export default extern final inline internal override private protected pub "
    "public sealed static unsafe virtual"
)
KEYWORDS = (
    "class def defmodule enum fn fun func function impl interface module namespace "
    "object protocol record struct trait type union"
)
DEFINITION = re.compile(
    rf"([ \t]*)(?:(?:{'|'.join(MODIFIERS.split())})(?:\([\w: ]*\))?[ \t]+)*"
    rf"(?:{'|'.join(KEYWORDS.split())})\b[ \t]*+(?:<[^>\n]{{0,80}}>|\([^)\n]{{0,80}}\))?[ \t]*"
    r"([A-Za-z_$][\w$.:]*)"
    # In prose such as "type of thing" another word follows.
    r"(?=[ \t]*(?:$|[({:<=\[;,]|(?:struct|interface|extends|implements|for|where|is|do)\b))"
)


class Heading(NamedTuple):
    """A heading: the code point where its line starts, its level (1 is the top) and its title."""

    start: int
    level: int
    title: str


Line = tuple[int, str]  # where it starts; its text without the line end


def find_headings(kind: str, text: str) -> tuple[Heading, ...]:
    """Find the headings of a text of kind "md", "rst" or "code", in order.

    Other kinds have none.
    """
    if kind == "md":
        return tuple(_markdown(text))
    scan = {"rst": _rst, "code": _code}.get(kind)
    return tuple(scan(list(_lines(text)))) if scan else ()


def top_levels(headings: Sequence[Heading], most: int) -> tuple[Heading, ...]:
    """Return the headings of the top levels that have at most `most` headings together."""
    counts = Counter(heading.level for heading in headings)
    levels = sorted(counts)
    total = 0
    for number, level in enumerate(levels):
        total += counts[level]
        if total > most:
            top = set(levels[:number])
            return tuple(heading for heading in headings if heading.level in top)
    return tuple(headings)


def clean_title(text: str) -> str:
    """Put a title on one line, shortened and without inline markup."""
    plain = MARKUP.sub(lambda match: match[1] or "", text[: 4 * MAX_TITLE_CHARS])
    plain = INVALID.sub("\ufffd", plain)
    return " ".join(plain.split()).rstrip("¶ ")[:MAX_TITLE_CHARS]


def _markdown(text: str) -> Iterator[Heading]:
    """ATX and setext headings as CommonMark defines them, after optional YAML front matter."""
    front_matter = FRONT_MATTER.match(text)
    begin = front_matter.end() if front_matter else 0
    line_starts = [begin, *(match.end() for match in LINE_END.finditer(text, begin))]
    for token, inline in pairwise(_markdown_parser().parse(text[begin:])):
        if token.type == "heading_open" and token.map and (title := clean_title(inline.content)):
            yield Heading(line_starts[token.map[0]], int(token.tag[1]), title)


@cache
def _markdown_parser() -> MarkdownIt:
    """Make a parser of blocks only: inline markup is not needed."""
    from markdown_it import MarkdownIt  # slow to import, and not needed for other formats

    parser = MarkdownIt("commonmark")
    parser.core.ruler.enableOnly(["normalize", "block"])
    return parser


def _lines(text: str) -> Iterator[Line]:
    at = 0
    for line in text.split("\n"):
        yield at, line[:MAX_LINE_CHARS].removesuffix("\r")
        at += len(line) + 1


def _rst(lines: list[Line]) -> Iterator[Heading]:
    """Section titles; as in docutils, levels follow the order in which adornments first appear."""
    styles: list[tuple[str, bool]] = []  # adornment character, whether there is an overline
    blank = (0, "")
    for n, (start, line) in enumerate(lines):
        above = lines[n - 1] if n else blank
        below = lines[n + 1][1] if n + 1 < len(lines) else ""
        title, under = line.rstrip(), ADORNMENT.match(below)
        if not title or not under or ADORNMENT.match(title):
            continue
        if len(below.rstrip()) < min(4, len(title)):
            continue
        over = ADORNMENT.match(above[1]) if n else None
        overlined = bool(over and over[1] == under[1] and len(above[1].rstrip()) >= len(title))
        if not overlined and (
            line[0].isspace() or above[1].strip() or len(below.rstrip()) < len(title)
        ):
            continue
        style = (under[1], overlined)
        if style not in styles:
            styles.append(style)
        yield Heading(above[0] if overlined else start, styles.index(style) + 1, clean_title(title))


def _code(lines: list[Line]) -> Iterator[Heading]:
    """Definitions; their nesting follows the indentation."""
    enclosing: list[int] = []  # indentation of the definitions around this line
    for start, line in lines:
        match = DEFINITION.match(line)
        if not match:
            continue
        indent = len(match[1].expandtabs(TAB_WIDTH))
        while enclosing and enclosing[-1] >= indent:
            enclosing.pop()
        enclosing.append(indent)
        yield Heading(start, len(enclosing), clean_title(match[2].rstrip(".:")))
