"""Evidence for an answer: the passages that were read, best first, with the answer's words marked.

A copied passage is marked where it was copied from. What was not copied, such as "3" or "two
months", is marked in the sentence that has most of its words, and of equal ones in that with most
of the question's words. The model is not involved.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from engine.rag.citations import Citation, Source, TextUnits, answer_parts, page_at
from engine.rag.query_terms import content_words, missing_words
from index.documents.languages import detect, stem, stop_words

MAX_PASSAGE_CHARS = 1200
MAX_PASSAGES = 4
MIN_CLAIM_SHARE = 0.5  # share of a claim's words that a sentence must have to be marked
# A claim of so few words, such as "3", may stand anywhere by chance: it is only marked in passages
# that have nearly as many of the question's words as the best one.
SHORT_CLAIM_WORDS, MIN_FIT = 2, 0.6
# Lines of prose go on in the next one, those of lists, tables and code do not.
SENTENCE_END = re.compile(
    r"\n(?=\s*(?:\n|[-*+>#|\u2022]|\d+[.)]\s)|[^\n]*[|\t])|(?<=[.!?;])\s+|(?<=[\u3002\uff01\uff1f\uff1b])"
)
NUMBERS = {
    word: str(number)
    for words in (
        "two three four five six seven eight nine ten eleven twelve",
        "zwei drei vier f\u00fcnf sechs sieben acht neun zehn elf zw\u00f6lf",
        "deux trois quatre cinq six sept huit neuf dix onze douze",
    )
    for number, word in enumerate(words.split(), 2)
}
BREAKS = ("\n\n", "\n", " ")  # the places where a long text is cut, best first

Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Evidence:
    """A passage, code points `start:stop` of a document, and the answer's words in it."""

    document: str
    name: str
    page: int | None  # from 1; None if the document has no pages
    line: int | None  # from 1; None if the document has pages
    start: int
    stop: int
    marks: tuple[Span, ...]  # code points of the document, in order, without overlap
    fit: float = 0.0  # share of the question's words that the passage has, 0 to 1


class Vocabulary:
    """Compares words without inflection, by the language of some texts."""

    def __init__(self, sources: Sequence[Source]) -> None:
        self.language = detect("\n".join(source.text for source in sources))
        self.ignored = stop_words(self.language)

    def key(self, word: str) -> str:
        """Equal for words that count as the same."""
        word = word.casefold()
        return NUMBERS.get(word) or stem(word, self.language)

    def words(self, text: str) -> list[str]:
        """Return the words and numbers of a text; of scripts without spaces the characters."""
        return [self.key(key) for key in TextUnits.of(text).keys if key[0].isalnum()]

    def content(self, text: str) -> set[str]:
        """Return the words of a text without stop words."""
        each = [key for key in TextUnits.of(text).keys if key[0].isalnum()]
        return {self.key(key) for key in each if key.casefold() not in self.ignored}

    def telling(self, text: str) -> set[str]:
        """Return the words of a text without stop words, unless there are no others."""
        return self.content(text) or set(self.words(text))


class JudgedPassage:
    """A part of a source while it is judged."""

    def __init__(self, source: Source, start: int, stop: int, wanted: Sequence[str]) -> None:
        """Take `start:stop`, code points of the source's text. `wanted`: the question's words."""
        self.source, self.text = source, source.text[start:stop]
        self.start, self.stop = source.start + start, source.start + stop
        self.line = source.line + source.text.count("\n", 0, start)
        heading = source.heading_at(self.start)
        self.fit = share_of(wanted, f"{heading}\n{source.table_head}\n{self.text}")
        self.marks: list[Span] = []

    def overlap(self, citation: Citation) -> Span | None:
        """Return the code points of the document that a citation and the passage share."""
        start, stop = max(self.start, citation.source_start), min(self.stop, citation.source_stop)
        return (start, stop) if self.source.document == citation.document and start < stop else None

    def marked_text(self) -> str:
        spans = _merged(self.marks)
        return " ".join(self.text[a - self.start : b - self.start] for a, b in spans)

    def evidence(self) -> Evidence:
        source = self.source
        page = page_at(source.pages, self.start)
        line = self.line if page is None else None
        place = (source.document, source.name, page, line, self.start, self.stop)
        return Evidence(*place, _merged(self.marks), round(self.fit, 4))


def on_topic(
    question: str, citations: Sequence[Citation], sources: Sequence[Source]
) -> list[Citation]:
    """Return the citations of passages that have a word of the question.

    Their heading may have it, too. What is copied from anywhere else does not answer it, however
    long the copy is.
    """
    passages = [passage for passage in _passages(content_words(question), sources) if passage.fit]
    return [
        citation for citation in citations if any(passage.overlap(citation) for passage in passages)
    ]


def find_evidence(
    question: str, answer: str, sources: Sequence[Source], citations: Sequence[Citation]
) -> tuple[Evidence, ...]:
    """Return the passages of the sources that fit the answer and the question best.

    There are at most MAX_PASSAGES, and at least one if there is any text.
    """
    wanted, vocabulary = content_words(question), Vocabulary(sources)
    passages = _passages(wanted, sources)
    for passage in passages:
        passage.marks += filter(None, map(passage.overlap, citations))
    for part in answer_parts(answer, citations):
        if part.citation is None:
            for claim in SENTENCE_END.split(part.text):
                if not citations or vocabulary.content(claim):
                    _mark_claim(claim, question, vocabulary, passages)
    count = len(vocabulary.words(answer)) or 1
    passages.sort(key=lambda one: -one.fit - len(vocabulary.words(one.marked_text())) / count)
    marked = [passage for passage in passages if passage.marks]
    others = [passage for passage in passages if not passage.marks]
    return tuple(other.evidence() for other in [*marked, *others][:MAX_PASSAGES])


def share_of(wanted: Sequence[str], text: str) -> float:
    """Return the share of the wanted words that a text has in any inflection.

    It is 1 if none are wanted.
    """
    return 1 - len(missing_words(wanted, [text])) / len(wanted) if wanted else 1.0


def split_passages(text: str) -> Iterator[Span]:
    """Split a text in parts of at most MAX_PASSAGE_CHARS, without blanks around them."""
    start = 0
    while start < len(text):
        stop = min(len(text), start + MAX_PASSAGE_CHARS)
        if stop < len(text):
            breaks = (text.rfind(mark, start + MAX_PASSAGE_CHARS // 2, stop) for mark in BREAKS)
            stop = next((at for at in breaks if at > 0), stop)
        part = text[start:stop]
        if part.strip():
            yield stop - len(part.lstrip()), start + len(part.rstrip())
        start = stop


def _passages(wanted: Sequence[str], sources: Sequence[Source]) -> list[JudgedPassage]:
    """Return all passages of the sources, in order. `wanted`: the question's words."""
    return [
        JudgedPassage(source, start, stop, wanted)
        for source in sources
        for start, stop in split_passages(source.text)
    ]


# -- marks -----------------------------------------------------------------------------------------


def _mark_claim(
    claim: str, question: str, vocabulary: Vocabulary, passages: Sequence[JudgedPassage]
) -> None:
    """Mark the words of a claim in the sentence that fits it best.

    The sentence must have enough of them, and be in a passage that has a word of the question. The
    words that do not repeat the question decide first.
    """
    words, wanted = vocabulary.telling(claim), content_words(question)
    own = words.difference(vocabulary.words(question))
    passages = [passage for passage in passages if passage.fit]
    if len(words) <= SHORT_CLAIM_WORDS:
        best_fit = max((passage.fit for passage in passages), default=0.0)
        passages = [passage for passage in passages if passage.fit >= MIN_FIT * best_fit]
    best = (0, 0, 0.0, -1.0)
    chosen: tuple[JudgedPassage, list[Span]] | None = None
    for passage in passages if words else ():
        for start, stop in split_sentences(passage.text):
            sentence = passage.text[start:stop]
            found = words.intersection(vocabulary.words(sentence))
            if len(found) < MIN_CLAIM_SHARE * len(words):
                continue
            fit = (len(found & own), len(found), share_of(wanted, sentence), passage.fit)
            if fit > best:
                best, at = fit, passage.start + start
                chosen = passage, [(at + a, at + b) for a, b in _runs(sentence, words, vocabulary)]
    if chosen:
        chosen[0].marks += chosen[1]


def _runs(sentence: str, words: Collection[str], vocabulary: Vocabulary) -> Iterator[Span]:
    """Yield the stretches of a sentence that consist of these words.

    Stop words among them are included.
    """
    units = TextUnits.of(sentence)
    run: list[int] = []  # units, of which the last one is among the words
    for number, key in enumerate(units.keys):
        if vocabulary.key(key) in words:
            run.append(number)
        elif run and key[0].isalnum() and key.casefold() not in vocabulary.ignored:
            yield units.starts[run[0]], units.stops[run[-1]]
            run = []
    if run:
        yield units.starts[run[0]], units.stops[run[-1]]


def split_sentences(text: str) -> Iterator[Span]:
    """Split a text into its sentences, list items and rows of tables."""
    borders = [0, *(match.end() for match in SENTENCE_END.finditer(text)), len(text)]
    return ((start, stop) for start, stop in pairwise(borders) if text[start:stop].strip())


def _merged(marks: Iterable[Span]) -> tuple[Span, ...]:
    """Return the marks in order, overlapping ones as one."""
    merged: list[Span] = []
    for start, stop in sorted(marks):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(stop, merged[-1][1]))
        else:
            merged.append((start, stop))
    return tuple(merged)
