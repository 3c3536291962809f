"""What a model wrote, taken apart into points: sentences, or the items of a list.

What is no sentence of its own (a heading, a row of a table, the mark of an item) is left out, and
so is all from the first point on that was said before: a model that repeats itself does not stop.
What is found in the beginning of a text stays the same whatever follows. Pure functions.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from engine.rag.citations import IS_DENSE
from engine.records import Piece

WORDS = 4  # of a point, at the least; a character of a writing without gaps is half a word
LONGEST = 480  # characters of a point: what is longer was not taken apart well
ABBREVIATIONS = "e.g|i.e|cf|etc|vs|Dr|Mr|Mrs|Ms|Prof|St|No|Fig|Eq|Sec|al|approx|ca|resp|incl"
MARK = r"(?:[-*+>\u2022]|\d{1,2}[.)])[ \t]"  # of an item
BORDER = re.compile(
    r"\n[ \t]*(?=\n)"  # an empty line
    rf"|\n[ \t]*(?={MARK}|[#|]|```|===|---)"
    r"|\s(?=\.\. )"  # a directive
    r"|(?<=[.!?\u2026])[\"'\u201d\u2019)\]`*]*\s+(?=\S)"
    r"|(?<=[\u3002\uff01\uff1f])(?=.)",
    re.DOTALL,
)
SHORTENED = re.compile(rf"(?:^|[\s(])(?:{ABBREVIATIONS}|[A-Z])\.$")
LEADING = re.compile(rf"\s*(?:{MARK}\s*)?")
NOT_SAID = re.compile(r"[#|!]|\.\. |```|[=~-]{3}")  # headings, tables, images, other marks
WORD = re.compile(r"[^\W\d_]{2,}")


@dataclass(frozen=True, slots=True)
class Points:
    """Places `start, stop` of a text; `full`: nothing that follows can change them."""

    places: tuple[tuple[int, int], ...]
    full: bool


def points(text: str, most: int, ended: bool, titles: Collection[str] = ()) -> Points:
    """The first points of a text, `most` at most. `ended`: no more of the text will come; until
    then its last point is not known. `titles`: what is no point, as `said_as` has it."""
    found: list[tuple[int, int]] = []
    said: set[str] = set()
    for start, stop in _pieces(text, ended):
        start, stop = _trimmed(text, start, stop, titles)
        if not _is_point(text[start:stop]):
            continue
        words = said_as(text[start:stop])
        if words in said:
            return Points(tuple(found), True)
        said.add(words)
        found.append((start, stop))
        if len(found) == most:
            return Points(tuple(found), True)
    return Points(tuple(found), ended)


def said_as(text: str) -> str:
    """What two points have in common that say the same in the same words."""
    folded = unicodedata.normalize("NFC", text).casefold()
    return " ".join(re.findall(r"\w+", folded))


def on_one_line(pieces: Iterable[Piece], start: int, stop: int) -> tuple[Piece, ...]:
    """Characters `start:stop` of what pieces say, each gap a blank, with where they came from."""
    found: list[Piece] = []
    at, gap = 0, False
    for piece in pieces:
        cut = piece.text[max(0, start - at) : max(0, stop - at)]
        at += len(piece.text)
        words = cut.split()
        if words:
            gap = bool(found) and (gap or cut[0].isspace())
            found.append(piece._replace(text=" " * gap + " ".join(words)))
        gap = cut[-1].isspace() if cut else gap
    return tuple(found)


def count(text: str) -> int:
    """How many points a whole text has; what is said twice counts twice."""
    return sum(_is_point(text[start:stop].strip()) for start, stop in _pieces(text, True))


def distinct(groups: Iterable[Sequence[str]]) -> list[list[str]]:
    """The same groups of points, without those that an earlier one of any group said already."""
    said: set[str] = set()
    found = []
    for group in groups:
        found.append([one for one in group if said_as(one) not in said])
        said.update(map(said_as, group))
    return found


def _pieces(text: str, ended: bool) -> list[tuple[int, int]]:
    """The text from border to border; the last piece only where it ended."""
    found, start = [], 0
    for border in BORDER.finditer(text):
        before = text[max(start, border.start() - 8) : border.start()]
        goes_on = before[-1:] in (".", "\u2026") and text[border.end()].islower()
        directive = text.startswith(".. ", border.end())
        if directive or not (goes_on or SHORTENED.search(before)):
            found.append((start, border.end()))
            start = border.end()
    return [*found, (start, len(text))] if ended else found


def _trimmed(text: str, start: int, stop: int, titles: Collection[str]) -> tuple[int, int]:
    """Without gaps, the mark of an item, and lines that are headings of the document."""
    while True:
        start = min(stop, _after(LEADING, text, start))
        end = text.find("\n", start, stop)
        if end < 0 or said_as(text[start:end]) not in titles:
            break
        start = end + 1
    stop = start + len(text[start:stop].rstrip())
    return (stop, stop) if said_as(text[start:stop]) in titles else (start, stop)


def _after(pattern: re.Pattern[str], text: str, at: int) -> int:
    found = pattern.match(text, at)
    return found.end() if found else at


def _is_point(text: str) -> bool:
    """Whether it says something by itself."""
    text = text.strip()
    if not 0 < len(text) <= LONGEST or NOT_SAID.match(text) or text.endswith(":"):
        return False
    return len(WORD.findall(text)) + len(IS_DENSE.findall(text)) / 2 >= WORDS
