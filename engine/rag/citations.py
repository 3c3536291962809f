"""Finds the passages of an answer that are copied from its sources. The model is not involved.

Texts are compared as sequences of words, signs and gaps: how a gap is made (blanks, line ends) does
not matter, all else does. From left to right, the longest passage that occurs in a source is cited
if it is long enough, so that every citation names a position with exactly the quoted words.
Whether the answer is faithful to the source's meaning is not judged.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from index._core import Automaton
from index.documents.languages import MARKS, SPACELESS

MIN_PASSAGE_WORDS = 5.0
MIN_WHOLE_ANSWER_WORDS = 2.0  # words of a passage that is the whole answer
MIN_IDENTIFIER_CHARS = 4
GAP = " "
CLOSING = frozenset(",.;:!?)]}")  # characters that end something else if a gap follows
IS_SPACELESS = re.compile(f"[{SPACELESS}]")
UNIT = re.compile(rf"\s+|[{SPACELESS}][{MARKS}]*|(?:[^\W{SPACELESS}][{MARKS}]*)+|.", re.DOTALL)
NOT_PROSE = re.compile(r"[\d_/.:@\\#$%&=+*<>|~^]|[^\W\d_][A-Z]")  # in words other than prose
QUOTES_AND_SIGNS = "\"'`*()[]{}<>.,;:!?"


@dataclass(frozen=True, slots=True)
class Source:
    """A text that may be cited: a passage of a document that starts at code point `start`."""

    document: str
    name: str
    text: str
    start: int = 0
    pages: tuple[tuple[int, int], ...] = ()  # (start, stop) of the document's pages
    line: int = 1  # the document's line, from 1, at which the text starts
    heading: str = ""  # the nearest one above the text
    table_head: str = ""  # the rows that name the columns of the table that it starts inside of
    headings: tuple[tuple[int, str], ...] = ()  # (start, title) of those in the text, in order
    kind: str = ""  # that of the document

    def heading_at(self, position: int) -> str:
        """Return the nearest heading above a code point of the document."""
        above = bisect_right([start for start, _ in self.headings], position)
        return self.headings[above - 1][1] if above else self.heading


@dataclass(frozen=True, slots=True)
class Citation:
    """Code points `start:stop` of an answer are at `source_start:source_stop` of a document."""

    start: int
    stop: int
    document: str
    name: str
    page: int | None  # from 1; None if the document has no pages
    source_start: int
    source_stop: int


class AnswerPart(NamedTuple):
    """A part of an answer; without a citation it is not covered by any source."""

    text: str
    citation: Citation | None


class PassageMatch(NamedTuple):
    """`length` units found in text number `source`, from unit `at`; 0, -1, -1 for none."""

    length: int
    source: int
    at: int


@dataclass(frozen=True, slots=True)
class TextUnits:
    """A text as words, signs and gaps: parallel lists of what each is and where it is."""

    keys: list[str]
    starts: list[int]
    stops: list[int]

    @classmethod
    def of(cls, text: str) -> TextUnits:
        matches = [*UNIT.finditer(text)]
        keys = [_key(match.group()) for match in matches]
        return cls(keys, [match.start() for match in matches], [match.end() for match in matches])


def cite(answer: str, sources: Sequence[Source], question: str = "") -> list[Citation]:
    """Return the copied passages of an answer in order, without overlap.

    Of equal sources the first counts.

    A passage has at least MIN_PASSAGE_WORDS. A shorter one counts if it occurs exactly once in the
    sources and either contains an identifier or is the whole answer of MIN_WHOLE_ANSWER_WORDS or
    more; words that the question contains do not count here, since every answer repeats them.
    """
    units = TextUnits.of(answer)
    answer_words = _word_count(units.keys)
    texts = [TextUnits.of(source.text) for source in sources]
    finder = PassageFinder([text.keys for text in texts])
    matches = finder.longest(units.keys)
    question_words = {word.lower() for word in _bare_words(question)}

    def is_citable(passage: slice) -> bool:
        keys = units.keys[passage]
        if keys[0] == GAP or (keys[0] in CLOSING and keys[1:2] == [GAP]):
            return False
        count = _word_count(keys)
        if count >= MIN_PASSAGE_WORDS:
            return True
        text = answer[units.starts[passage.start] : units.stops[passage.stop - 1]]
        words = [word for word in _bare_words(text) if word and word.lower() not in question_words]
        has_identifier = any(_is_identifier(word) for word in words)
        is_answer = bool(words) and MIN_WHOLE_ANSWER_WORDS <= count == answer_words
        return (has_identifier or is_answer) and finder.count(keys) == 1

    citations: list[Citation] = []
    at = 0
    while at < len(matches):
        source, length = matches[at].source, matches[at].length
        if length and units.keys[at + length - 1] == GAP:
            length -= 1
        if not length or not is_citable(slice(at, at + length)):
            at += 1
            continue
        first = matches[at].at
        start = sources[source].start + texts[source].starts[first]
        stop = sources[source].start + texts[source].stops[first + length - 1]
        citations.append(
            Citation(
                units.starts[at],
                units.stops[at + length - 1],
                sources[source].document,
                sources[source].name,
                page_at(sources[source].pages, start),
                start,
                stop,
            )
        )
        at += length
    return citations


def answer_parts(answer: str, citations: Sequence[Citation]) -> list[AnswerPart]:
    """Split the whole answer into cited passages and the text between them."""
    parts: list[AnswerPart] = []
    at = 0
    for citation in citations:
        if at < citation.start:
            parts.append(AnswerPart(answer[at : citation.start], None))
        parts.append(AnswerPart(answer[citation.start : citation.stop], citation))
        at = citation.stop
    return [*parts, AnswerPart(answer[at:], None)] if at < len(answer) else parts


def coverage(answer: str, citations: Sequence[Citation]) -> float:
    """Return the share of the answer's words that is cited, 0 to 1; 0 if it has no words."""
    cited = sum(
        _word_count(TextUnits.of(answer[citation.start : citation.stop]).keys)
        for citation in citations
    )
    return min(1.0, cited / (_word_count(TextUnits.of(answer).keys) or 1.0))


def page_at(pages: Sequence[tuple[int, int]], position: int) -> int | None:
    """Return the page number, from 1, of a code point; None if there are no pages."""
    return max(1, bisect_right([start for start, _ in pages], position)) if pages else None


class PassageFinder:
    """Finds the longest passages of some texts.

    The suffix automaton is built over the reversed texts: a match that ends at a unit there starts
    at that unit here."""

    def __init__(self, texts: Sequence[Sequence[str]]) -> None:
        self._tokens: dict[str, int] = {}
        self._lengths = [len(text) for text in texts]
        self._automaton = Automaton()
        for text in reversed(texts):  # the automaton prefers the newest of equal matches
            self._automaton.add(self._reversed(text))

    def longest(self, keys: Sequence[str]) -> list[PassageMatch]:
        """Find the longest passage that starts at each unit; the first of equal ones."""
        tokens = self._reversed(keys)
        matches: list[PassageMatch] = []
        length = 0
        for stop in range(1, len(tokens) + 1):  # at most one longer than the match before
            match = self._automaton.match(tokens[stop - length - 1 : stop], 1, length + 1)
            length = match.length
            if length:
                source = len(self._lengths) - 1 - int(match.docs[0])
                at = self._lengths[source] - int(match.ends[0])
                matches.append(PassageMatch(length, source, at))
            else:
                matches.append(PassageMatch(0, -1, -1))
        return matches[::-1]

    def count(self, keys: Sequence[str]) -> int:
        """Count the occurrences of a passage in the texts."""
        match = self._automaton.match(self._reversed(keys), 1, len(keys))
        return match.count if match.length == len(keys) else 0

    def _reversed(self, keys: Sequence[str]) -> NDArray[np.int32]:
        tokens = self._tokens
        numbers = (tokens.setdefault(key, len(tokens)) for key in reversed(keys))
        return np.fromiter(numbers, np.int32, len(keys))


def _key(unit: str) -> str:
    """Equal for units that count as the same."""
    if unit.isspace():
        return GAP
    return unit if unit.isascii() else unicodedata.normalize("NFC", unit)


def _is_identifier(word: str) -> bool:
    """Return whether a word is specific enough to look up.

    That is a name in code, or a number with a unit.
    """
    return len(word) >= MIN_IDENTIFIER_CHARS and NOT_PROSE.search(word) is not None


def _word_count(keys: Sequence[str]) -> float:
    """Count the words; a character of a script without spaces is half a word."""
    return sum(0.5 if IS_SPACELESS.match(key) else 1.0 for key in keys if key[0].isalnum())


def _bare_words(text: str) -> list[str]:
    """Return the words between blanks, without quotes and signs around them."""
    return [word.strip(QUOTES_AND_SIGNS) for word in text.split()]
