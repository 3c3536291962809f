"""Extracts sentences and list items from the text that a model streams.

Headings, table rows, list markers and other markup are left out, and so is everything from the
first repeated sentence on, since a model that repeats itself does not stop. Sentences found in a
prefix of the text do not change when more of it arrives.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from engine.rag.citations import IS_SPACELESS
from engine.records import Piece

MIN_WORDS = 4  # a character of a script without spaces is half a word
MAX_SENTENCE_CHARS = 480  # longer ones are text that was not split well
ABBREVIATIONS = "e.g|i.e|cf|etc|vs|Dr|Mr|Mrs|Ms|Prof|St|No|Fig|Eq|Sec|al|approx|ca|resp|incl"
LIST_MARKER = r"(?:[-*+>\u2022]|\d{1,2}[.)])[ \t]"
BORDER = re.compile(
    r"\n[ \t]*(?=\n)"  # an empty line
    rf"|\n[ \t]*(?={LIST_MARKER}|[#|]|```|===|---)"
    r"|\s(?=\.\. )"  # a reStructuredText directive
    r"|(?<=[.!?\u2026])[\"'\u201d\u2019)\]`*]*\s+(?=\S)"
    r"|(?<=[\u3002\uff01\uff1f])(?=.)",
    re.DOTALL,
)
ABBREVIATION = re.compile(rf"(?:^|[\s(])(?:{ABBREVIATIONS}|[A-Z])\.$")
LEADING_MARKER = re.compile(rf"\s*(?:{LIST_MARKER}\s*)?")
MARKUP = re.compile(r"[#|!]|\.\. |```|[=~-]{3}")  # headings, tables, images, rules, ...
WORD = re.compile(r"[^\W\d_]{2,}")


@dataclass(frozen=True, slots=True)
class SentenceSpans:
    """(start, stop) of sentences; `complete` if no further text can add or change one."""

    spans: tuple[tuple[int, int], ...]
    complete: bool


def find_sentences(
    text: str, maximum: int, ended: bool, titles: Collection[str] = ()
) -> SentenceSpans:
    """The first `maximum` sentences of a text. Unless the text has `ended`, its last sentence is
    not known yet. `titles`: lines to leave out, normalized by `normalize`."""
    spans: list[tuple[int, int]] = []
    seen: set[str] = set()
    for start, stop in _split(text, ended):
        start, stop = _trimmed(text, start, stop, titles)
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
    """The words of a text without case and signs; equal for sentences that count as the same."""
    folded = unicodedata.normalize("NFC", text).casefold()
    return " ".join(re.findall(r"\w+", folded))


def join_lines(pieces: Iterable[Piece], start: int, stop: int) -> tuple[Piece, ...]:
    """Characters `start:stop` of the pieces' text with every gap a blank; sources are kept."""
    joined: list[Piece] = []
    at, gap = 0, False
    for piece in pieces:
        part = piece.text[max(0, start - at) : max(0, stop - at)]
        at += len(piece.text)
        words = part.split()
        if words:
            gap = bool(joined) and (gap or part[0].isspace())
            joined.append(piece._replace(text=" " * gap + " ".join(words)))
        gap = part[-1].isspace() if part else gap
    return tuple(joined)


def count_sentences(text: str) -> int:
    """The number of sentences of a whole text, repeated ones included."""
    return sum(_is_sentence(text[start:stop].strip()) for start, stop in _split(text, True))


def without_repeats(groups: Iterable[Sequence[str]]) -> list[list[str]]:
    """Groups of sentences without those that an earlier group contains."""
    seen: set[str] = set()
    kept = []
    for group in groups:
        kept.append([one for one in group if normalize(one) not in seen])
        seen.update(map(normalize, group))
    return kept


def _split(text: str, ended: bool) -> list[tuple[int, int]]:
    """The text from border to border; the last piece only if the text has ended."""
    pieces, start = [], 0
    for border in BORDER.finditer(text):
        before = text[max(start, border.start() - 8) : border.start()]
        continues = before[-1:] in (".", "\u2026") and text[border.end()].islower()
        directive = text.startswith(".. ", border.end())
        if directive or not (continues or ABBREVIATION.search(before)):
            pieces.append((start, border.end()))
            start = border.end()
    return [*pieces, (start, len(text))] if ended else pieces


def _trimmed(text: str, start: int, stop: int, titles: Collection[str]) -> tuple[int, int]:
    """The span without gaps, a list marker, and lines that are titles."""
    while True:
        marker = LEADING_MARKER.match(text, start)
        start = min(stop, marker.end() if marker else start)
        end = text.find("\n", start, stop)
        if end < 0 or normalize(text[start:end]) not in titles:
            break
        start = end + 1
    stop = start + len(text[start:stop].rstrip())
    return (stop, stop) if normalize(text[start:stop]) in titles else (start, stop)


def _is_sentence(text: str) -> bool:
    text = text.strip()
    if not 0 < len(text) <= MAX_SENTENCE_CHARS or MARKUP.match(text) or text.endswith(":"):
        return False
    return len(WORD.findall(text)) + len(IS_SPACELESS.findall(text)) / 2 >= MIN_WORDS
