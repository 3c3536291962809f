"""Headings of text as people write it: Markdown, reStructuredText, source code.

Only what a line looks like counts; nothing is parsed to the end.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

LONGEST = 160  # characters of a title
SEEN = 400  # characters of a line that are looked at
TABS = 4

FENCE = re.compile(r" {0,3}(`{3,}|~{3,})(.*)")
ATX = re.compile(r" {0,3}(#{1,6})(?=[ \t]|$)")
CLOSED = re.compile(r"(?:^|[ \t])#+$")  # an ATX heading may end in #
SETEXT = re.compile(r" {0,3}(=+|-+)[ \t]*$")
BETWEEN = re.compile(r" {0,3}([-*_])[ \t]*(?:\1[ \t]*){2,}$")  # a line across the page
NO_TITLE = re.compile(r" {4}|\t| {0,3}(?:[-*+>|#]|\d+[.)])(?:\s|$)")  # of a setext heading
RULE = re.compile(r"([!-/:-@\[-`{-~])\1*[ \t]*$")  # under, or over, a title of reStructuredText
MARKUP = re.compile(r"\[([^\]\n]*)\]\([^)\n]*\)|[`*]+|:[\w:.-]+:(?=`)")

WORDS = (
    "abstract async export default extern final inline internal override private protected pub "
    "public sealed static unsafe virtual"
)
NOUNS = (
    "class def defmodule enum fn fun func function impl interface module namespace "
    "object protocol record struct trait type union"
)
DEFINITION = re.compile(
    rf"([ \t]*)(?:(?:{'|'.join(WORDS.split())})(?:\([\w: ]*\))?[ \t]+)*"
    rf"(?:{'|'.join(NOUNS.split())})\b[ \t]*(?:<[^>\n]{{0,80}}>|\([^)\n]{{0,80}}\))?[ \t]*"
    r"([A-Za-z_$][\w$.:]*)"
    # Prose goes on with another word.
    r"(?=[ \t]*(?:$|[({:<=\[;,]|(?:struct|interface|extends|implements|for|where|is|do)\b))"
)


@dataclass(frozen=True, slots=True)
class Heading:
    """A heading of a document: where its line starts, how deep it is (1: the top), its words."""

    start: int
    level: int
    title: str


Line = tuple[int, str]  # where it starts, without its end


def headings(kind: str, text: str) -> tuple[Heading, ...]:
    """The headings of a text, by place."""
    how = {"md": _markdown, "rst": _rst, "code": _code}.get(kind)
    return tuple(how(list(_lines(text)))) if how else ()


def title_of(text: str) -> str:
    """One short line, without markup."""
    plain = MARKUP.sub(lambda match: match[1] or "", text[: 4 * LONGEST])
    return " ".join(plain.split()).rstrip("¶ ")[:LONGEST]


def _lines(text: str) -> Iterator[Line]:
    at = 0
    for line in text.split("\n"):
        yield at, line[:SEEN].removesuffix("\r")
        at += len(line) + 1


def _markdown(lines: list[Line]) -> Iterator[Heading]:
    fence = ""
    before: Line = (0, "")  # empty after what can be no title
    for start, line in lines[_front_matter(lines) :]:
        mark = FENCE.match(line)
        if fence:
            if mark and mark[1].startswith(fence) and not mark[2].strip():
                fence = ""
            line = ""
        elif mark and not (mark[1][0] == "`" and "`" in mark[2]):
            fence, line = mark[1], ""
        elif heading := ATX.match(line):
            if title := title_of(CLOSED.sub("", line[heading.end() :].strip())):
                yield Heading(start, len(heading[1]), title)
            line = ""
        elif (under := SETEXT.match(line)) and before[1].strip():
            if not NO_TITLE.match(before[1]) and (title := title_of(before[1])):
                yield Heading(before[0], 1 if under[1][0] == "=" else 2, title)
            line = ""
        elif BETWEEN.match(line):
            line = ""
        before = (start, line)


def _front_matter(lines: list[Line]) -> int:
    """How many lines of settings a text begins with, between two lines of ---."""
    if lines[0][1].rstrip() == "---":
        for number, (_, line) in enumerate(lines[1:50], start=2):
            if line.rstrip() == "---":
                return number
    return 0


def _rst(lines: list[Line]) -> Iterator[Heading]:
    """Levels in the order in which their marks are first seen, as docutils does."""
    marks: list[tuple[str, bool]] = []
    blank = (0, "")
    for n, (start, line) in enumerate(lines):
        above = lines[n - 1] if n else blank
        below = lines[n + 1][1] if n + 1 < len(lines) else ""
        title, under = line.rstrip(), RULE.match(below)
        if not title or not under or RULE.match(title) or len(below.rstrip()) < min(4, len(title)):
            continue
        over = RULE.match(above[1]) if n else None
        lined = bool(over and over[1] == under[1] and len(above[1].rstrip()) >= len(title))
        if not lined and (
            line[0].isspace() or above[1].strip() or len(below.rstrip()) < len(title)
        ):
            continue
        mark = (under[1], lined)
        if mark not in marks:
            marks.append(mark)
        yield Heading(above[0] if lined else start, marks.index(mark) + 1, title_of(title))


def _code(lines: list[Line]) -> Iterator[Heading]:
    """Definitions; one that is indented more belongs to the one before it."""
    open_at: list[int] = []  # indentation of those around
    for start, line in lines:
        match = DEFINITION.match(line)
        if not match:
            continue
        indent = len(match[1].expandtabs(TABS))
        while open_at and open_at[-1] >= indent:
            open_at.pop()
        open_at.append(indent)
        yield Heading(start, len(open_at), title_of(match[2].rstrip(".:")))
