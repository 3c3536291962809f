"""Sentences and list items of documents, and of the text that a model streams.

Headings, table rows, list markers and other markup are left out; of a model's text, so is
everything from the first repeated sentence on, since a model that repeats itself does not stop.
Sentences found in a prefix of that text do not change when more of it arrives.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from textwrap import dedent

from engine.rag.citations import IS_SPACELESS
from index.documents.languages import SPACELESS

MIN_WORDS = 4  # words; a character of a script without spaces is half a word
MAX_SENTENCE_CHARS = 480  # characters; longer ones are text that was not split well
ABBREVIATIONS = (
    "e.g|i.e|cf|etc|vs|Dr|Mr|Mrs|Ms|Prof|St|No|Fig|Eq|Sec|al|approx|ca|resp|incl"
    "|Nr|Abs|Art|Str|Tel|bzw|usw|vgl|Mme|env"
)
LIST_MARKER = r"(?:[-*+>\u2022]|\d{1,2}[.)])[ \t]"
BORDER = re.compile(
    r"\n[ \t]*(?=\n)"  # an empty line
    rf"|\n[ \t]*(?={LIST_MARKER}|[#|]|```|===|---)"
    r"|\s(?=\.\. )"  # a reStructuredText directive
    r"|(?<=[.!?\u2026])[\"'\u201d\u2019)\]`*]*\s+(?=\S)"
    r"|(?<=[\u3002\uff01\uff1f])(?=.)",
    re.DOTALL,
)
ABBREVIATION = re.compile(rf"(?:^|[\s(])(?:{ABBREVIATIONS}|[A-Za-z])\.$")
ORDINAL = re.compile(r", \d{1,2}\.$")  # an ordinal at a break, such as "Hauptstraße 7, 3. Stock"
DAY = re.compile(r"(?:^|\s)\d{1,2}\.$")
GERMAN_MONTH = re.compile(
    r"(?:Januar|Februar|März|April|Mai|Juni|Juli|August|September|Oktober|November|Dezember)\b"
)
LEADING_MARKER = re.compile(rf"\s*(?:(?:{LIST_MARKER}|\(\d{{1,2}}\))\s*)?")
MARKUP = re.compile(r"[#|!]|\.\. |```|[=~-]{3}")  # headings, tables, images, rules, ...
WORD = re.compile(r"[^\W\d_]{2,}")
TITLE_NUMBER = re.compile(r"^(?:\d+|[a-z])(?: \d+)* ")  # the number of a normalized title
ANY_WORD = re.compile(rf"[{SPACELESS}]|[^\W{SPACELESS}]+")
COMMENT = re.compile(
    r'''"""(?P<double>.*?)"""|\'{3}(?P<single>.*?)\'{3}|/\*+(?P<block>.*?)\*/'''
    r"|^[ \t]*(?:#+|//+)[ \t]?(?P<line>[^\n]*)",
    re.DOTALL | re.MULTILINE,
)
CODE_BLOCK = re.compile(r"^[ \t]*(```|~~~).*?(?:^[ \t]*\1[ \t]*$|\Z)", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True, slots=True)
class SentenceSpans:
    """(start, stop) of sentences; `complete` if no further text can add or change one."""

    spans: tuple[tuple[int, int], ...]
    complete: bool


def find_sentences(text: str, maximum: int, ended: bool) -> SentenceSpans:
    """Find the first `maximum` sentences of a text.

    Unless the text has `ended`, its last sentence is not known yet.
    """
    spans: list[tuple[int, int]] = []
    seen: set[str] = set()
    for start, stop in _split(text, ended):
        start, stop = _trimmed(text, start, stop)
        if not _is_sentence(text[start:stop]):
            continue
        words = normalize(text[start:stop])
        if words in seen:
            return SentenceSpans(tuple(spans), True)
        seen.add(words)
        spans.append((start, stop))
        if len(spans) == maximum:
            return SentenceSpans(tuple(spans), True)
    return SentenceSpans(tuple(spans), ended)


def normalize(text: str) -> str:
    """Return the words of a text without case and signs.

    They are equal for sentences that count as the same.
    """
    folded = unicodedata.normalize("NFC", text).casefold()
    return " ".join(re.findall(r"\w+", folded))


def own_sentences(text: str, titles: Collection[str] = (), code: bool = False) -> list[str]:
    """Return the different sentences of a document's text, on one line each.

    Source code has only those of its comments; a text without sentences has its lines, such as the
    rows of a table, instead. `titles`: lines to leave out, normalized by `normalize`.
    """
    if code:
        text = "\n".join(_comments(text))
    text = CODE_BLOCK.sub("\n", text)
    lines = ["" if _is_left_out(line, titles) else line for line in text.split("\n")]
    text = "\n".join(f"\n{line}\n" if " | " in line else line for line in lines)
    found: dict[str, str] = {}
    for start, stop in _split(text, True):
        start, stop = _trimmed(text, start, stop)
        sentence = " ".join(text[start:stop].split())
        if _is_sentence(sentence) and (not code or sentence.endswith((".", "\u3002"))):
            found.setdefault(normalize(sentence), sentence)
    if not found and not code:
        found = {
            normalize(line): line for line in text_lines(text) if normalize(line) not in titles
        }
    return list(found.values())


def _is_left_out(line: str, titles: Collection[str]) -> bool:
    """Return whether a line is a title, with or without its number, or the number of a page."""
    key = normalize(line)
    return key in titles or TITLE_NUMBER.sub("", key) in titles or key.isdecimal()


def _comments(code: str) -> Iterator[str]:
    """Yield the comments and docstrings of source code without their marks."""
    for match in COMMENT.finditer(code):
        block = match["double"] or match["single"] or match["block"]
        yield f"\n{dedent(block)}\n" if block else match["line"] or ""


def text_lines(text: str) -> Iterator[str]:
    """Lines with at least two words, on one line without a table's outer bars."""
    for line in text.splitlines():
        row = " ".join(line.strip().strip("|").split())
        if len(ANY_WORD.findall(row)) > 1 and not row.startswith("#"):
            yield row[:MAX_SENTENCE_CHARS]


def words(text: str) -> list[str]:
    """Return the words of a text without case; a character of a script without spaces is one."""
    folded = unicodedata.normalize("NFC", text).casefold()
    return [match.group() for match in ANY_WORD.finditer(folded)]


def word_count(text: str) -> float:
    """Count the words; a character of a script without spaces is half a word."""
    return len(words(text)) - len(IS_SPACELESS.findall(text)) / 2


def _split(text: str, ended: bool) -> list[tuple[int, int]]:
    """Split the text at its borders; the last piece counts only if the text has ended."""
    pieces, start = [], 0
    for border in BORDER.finditer(text):
        before = text[max(start, border.start() - 8) : border.start()]
        continues = before[-1:] in (".", "\u2026") and text[border.end()].islower()
        directive = text.startswith(".. ", border.end())
        is_date = DAY.search(before) and GERMAN_MONTH.match(text, border.end())
        abbreviated = ABBREVIATION.search(before) or ORDINAL.search(before)
        if directive or not (continues or is_date or abbreviated):
            pieces.append((start, border.end()))
            start = border.end()
    return [*pieces, (start, len(text))] if ended else pieces


def _trimmed(text: str, start: int, stop: int) -> tuple[int, int]:
    """Return the span without gaps and a list marker."""
    marker = LEADING_MARKER.match(text, start)
    start = min(stop, marker.end() if marker else start)
    return start, start + len(text[start:stop].rstrip())


def _is_sentence(text: str) -> bool:
    text = text.strip()
    if not 0 < len(text) <= MAX_SENTENCE_CHARS or MARKUP.match(text) or text.endswith(":"):
        return False
    return len(WORD.findall(text)) + len(IS_SPACELESS.findall(text)) / 2 >= MIN_WORDS
