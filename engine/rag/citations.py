"""Citations: which parts of an answer are copied, and from where. The model is not asked.

Answer and sources are read as words, signs and gaps; how a gap is made (blanks, line ends) does not
matter, all else does. From left to right, the longest passage that stands in a source is taken if
it is long enough: so what is cited stands, word for word, at the place that is named. Pure
functions. Whether the source means what the answer makes of it is not judged.
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

LEAST = 5.0  # words of a passage
ALONE = 2.0  # words of one that is the whole answer
TELLING = 4  # characters of a word that can be looked up by itself
GAP = " "
CLOSING = frozenset(",.;:!?)]}")  # what ends something else, where a gap follows
MARKS = "\u0300-\u036f\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\u3099\u309a\ufe20-\ufe2f"
DENSE = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"  # no gaps there
IS_DENSE = re.compile(f"[{DENSE}]")
PIECE = re.compile(rf"\s+|[{DENSE}][{MARKS}]*|(?:[^\W{DENSE}][{MARKS}]*)+|.", re.DOTALL)
CODE = re.compile(r"[\d_/.:@\\#$%&=+*<>|~^]|[^\W\d_][A-Z]")  # in a word that is no plain language
EDGES = "\"'`*()[]{}<>.,;:!?"


@dataclass(frozen=True, slots=True)
class Source:
    """A text that may be cited: a part of a document, from code point `start` of it on."""

    document: str
    name: str
    text: str
    start: int = 0
    pages: tuple[tuple[int, int], ...] = ()  # code points of the document's pages, in order


@dataclass(frozen=True, slots=True)
class Citation:
    """Code points `start:stop` of the answer stand at `source_start:source_stop` of a document."""

    start: int
    stop: int
    document: str
    name: str
    page: int | None  # from 1; None where the document has no pages
    source_start: int
    source_stop: int


class Part(NamedTuple):
    """A part of an answer; without a citation no source covers it."""

    text: str
    citation: Citation | None


class Match(NamedTuple):
    """So many pieces stand in a source, from that piece of it on."""

    length: int
    source: int
    at: int


@dataclass(frozen=True, slots=True)
class Pieces:
    """A text as words, signs and gaps. Parallel lists: what each is, and where it stands."""

    keys: list[str]
    starts: list[int]
    stops: list[int]

    @classmethod
    def of(cls, text: str) -> Pieces:
        found = [*PIECE.finditer(text)]
        keys = [_key(one.group()) for one in found]
        return cls(keys, [one.start() for one in found], [one.end() for one in found])


def cite(answer: str, sources: Sequence[Source], asked: str = "") -> list[Citation]:
    """The copied passages of an answer, in order and apart; of equal ones the first in the sources.

    A passage has LEAST words or more. A shorter one counts where it stands at one place of the
    sources only, and either has a word that can be looked up by itself (a name in code, a number
    of some length) or is all of the answer, with ALONE words; not where those words were `asked`
    for: what a question names, every answer repeats."""
    whole = Pieces.of(answer)
    size_of_all = _size(whole.keys)
    texts = [Pieces.of(source.text) for source in sources]
    finder = Finder([text.keys for text in texts])
    matches = finder.longest(whole.keys)
    repeated = {word.lower() for word in _words(asked)}

    def enough(whole: Pieces, place: slice) -> bool:
        keys = whole.keys[place]
        if keys[0] == GAP or (keys[0] in CLOSING and keys[1:2] == [GAP]):
            return False
        size = _size(keys)
        if size >= LEAST:
            return True
        passage = answer[whole.starts[place.start] : whole.stops[place.stop - 1]]
        words = [word for word in _words(passage) if word and word.lower() not in repeated]
        telling = any(is_telling(word) for word in words)
        alone = bool(words) and ALONE <= size == size_of_all
        return (telling or alone) and finder.count(keys) == 1

    found: list[Citation] = []
    at = 0
    while at < len(matches):
        source, length = matches[at].source, matches[at].length
        if length and whole.keys[at + length - 1] == GAP:
            length -= 1
        place = slice(at, at + length)
        if not length or not enough(whole, place):
            at += 1
            continue
        first = matches[at].at
        start = sources[source].start + texts[source].starts[first]
        stop = sources[source].start + texts[source].stops[first + length - 1]
        found.append(
            Citation(
                whole.starts[at],
                whole.stops[at + length - 1],
                sources[source].document,
                sources[source].name,
                page_of(sources[source].pages, start),
                start,
                stop,
            )
        )
        at += length
    return found


def parts(answer: str, citations: Sequence[Citation]) -> list[Part]:
    """The whole answer in parts: what is cited, and what stands between."""
    found: list[Part] = []
    at = 0
    for one in citations:
        if at < one.start:
            found.append(Part(answer[at : one.start], None))
        found.append(Part(answer[one.start : one.stop], one))
        at = one.stop
    return [*found, Part(answer[at:], None)] if at < len(answer) else found


def covered(answer: str, citations: Sequence[Citation]) -> float:
    """The share of the answer's words that a source covers; 0 where it has none."""
    cited = sum(_size(Pieces.of(answer[one.start : one.stop]).keys) for one in citations)
    return min(1.0, cited / (_size(Pieces.of(answer).keys) or 1.0))


def page_of(pages: Sequence[tuple[int, int]], at: int) -> int | None:
    """The page, from 1, that code point `at` is on; None where there are no pages."""
    return max(1, bisect_right([start for start, _ in pages], at)) if pages else None


def is_telling(word: str) -> bool:
    """Whether a word can be looked up by itself: no plain language has it."""
    return len(word) >= TELLING and CODE.search(word) is not None


def same(one: str, other: str) -> bool:
    """Whether two texts have the same words and signs, and gaps at the same places."""
    return _trimmed(one) == _trimmed(other)


class Finder:
    """Finds the longest passages of some texts, in the automaton of the texts read backwards: what
    ends there at a piece begins here with it."""

    def __init__(self, texts: Sequence[Sequence[str]]) -> None:
        self._numbers: dict[str, int] = {}
        self._sizes = [len(text) for text in texts]
        self._automaton = Automaton()
        for text in reversed(texts):  # of equal matches the newest comes first
            self._automaton.add(self._backwards(text))

    def longest(self, keys: Sequence[str]) -> list[Match]:
        """For each place the longest passage that begins there; of equal ones the first text's
        first."""
        tokens = self._backwards(keys)
        found: list[Match] = []
        length = 0
        for stop in range(1, len(tokens) + 1):  # one longer than at the last place, at most
            match = self._automaton.match(tokens[stop - length - 1 : stop], 1, length + 1)
            length = match.length
            if length:
                source = len(self._sizes) - 1 - int(match.docs[0])
                found.append(Match(length, source, self._sizes[source] - int(match.ends[0])))
            else:
                found.append(Match(0, -1, -1))
        return found[::-1]

    def count(self, keys: Sequence[str]) -> int:
        """At how many places of the texts a passage stands."""
        match = self._automaton.match(self._backwards(keys), 1, len(keys))
        return match.count if match.length == len(keys) else 0

    def _backwards(self, keys: Sequence[str]) -> NDArray[np.int32]:
        numbers = self._numbers
        found = (numbers.setdefault(key, len(numbers)) for key in reversed(keys))
        return np.fromiter(found, np.int32, len(keys))


def _key(piece: str) -> str:
    """What two pieces have in common that are the same."""
    if piece.isascii():
        return GAP if piece.isspace() else piece
    return GAP if piece.isspace() else unicodedata.normalize("NFC", piece)


def _trimmed(text: str) -> list[str]:
    keys = Pieces.of(text).keys
    return keys[keys[:1] == [GAP] : len(keys) - (keys[-1:] == [GAP])]


def _size(keys: Sequence[str]) -> float:
    """In words; a character of a writing without gaps is half of one."""
    return sum(0.5 if IS_DENSE.match(key) else 1.0 for key in keys if key[0].isalnum())


def _words(text: str) -> list[str]:
    """What stands between gaps, without quotes and signs around it."""
    return [word.strip(EDGES) for word in text.split()]
