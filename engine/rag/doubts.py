"""Reasons to check an answer: what in it the passages do not say, or say of something else.

Words are compared by their stems, numbers by their values. The model is not involved.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import combinations, pairwise
from typing import NamedTuple

from engine.rag.citations import Citation, Source
from engine.rag.evidence import Evidence, Vocabulary
from engine.rag.query_terms import content_words, missing_words
from engine.rag.statements import SENTENCE_END, SourceStatement, find_statements
from index.documents.full_text import CUT_SHARE, MIN_CUT_LETTERS
from index.documents.languages import words

# An answer speaks about the question if it, the sentences that it stands in and their headings have
# more than this share of the question's words. Chosen on half of the questions of bench/qa: right
# answers often have a third of them, wrong ones seldom.
MIN_QUESTION_SHARE = 0.25
MIN_OWN_SHARE = 0.5  # share of the answer's own words; the sentences that it stands in have more
UNSUPPORTED = "No passage supports this: check it."
OFF_TOPIC = "Neither this nor the sentence that it stands in has a word of the question: check it."
BARELY = (
    "Of the question, only \u201c{}\u201d is in this or the sentence that it stands in: check it."
)
UNKNOWN = "{} is in none of the passages: check it."
APART = "{} and {} are not in one {} of the passages: check whether they belong together."

# Digits with separators of thousands, decimals or minutes, that belong to no name such as E07
NUMBER = re.compile(
    r"(?<![^\W\d])(?<!\d)(?:\d{1,3}(?:[.,'\u2019\u00a0\u202f]\d{3})+(?!\d)(?:[.,]\d+)?"
    r"|\d+(?:[.,:]\d+)?)"
)
THOUSANDS = re.compile(r"(?<=\d)[.,'\u2019\u00a0\u202f](?=\d{3}(?!\d))")
WORD = re.compile(r"[^\W\d_]+(?:[-'\u2019][^\W\d_]+)*")
CAPITALIZED_NOUNS = ("de",)  # languages whose nouns all look like names


class Fact(NamedTuple):
    """A number or a name, and the values by which it is known."""

    text: str
    values: frozenset[str]
    is_number: bool


class KnownStatement(NamedTuple):
    """A statement of a source, and the values in it, its headings and its document's name."""

    statement: SourceStatement
    above: str
    values: frozenset[str]
    nearby: frozenset[str]  # those of the sentences around it as well; a row is alone


class Judgement(NamedTuple):
    """What can be told of an answer by its words."""

    doubts: tuple[str, ...]  # reasons to check it, one line each; none for one that is supported
    found: tuple[str, ...]  # words of the question in the answer, or where it stands
    missing: tuple[str, ...]  # the others


def judge(
    asked: str,
    question: str,
    answer: str,
    citations: Sequence[Citation],
    evidence: Sequence[Evidence],
    sources: Sequence[Source],
) -> Judgement:
    """Compare an answer with the question and with the sources.

    `question`: what was searched: `asked`, with an earlier question that it refers to.
    """
    read = ReadSources(sources, evidence)
    texts = [answer, *read.homes_of_answer()]
    found, missing = max(
        (_compared(one, texts) for one in dict.fromkeys((asked, question))),
        key=lambda each: len(each[0]) / max(1, len(each[0]) + len(each[1])),
    )
    doubts = [*read.wrong_facts(asked, answer, citations)]
    if missing and len(found) <= MIN_QUESTION_SHARE * (len(found) + len(missing)):
        doubts.append(BARELY.format(", ".join(found)) if found else OFF_TOPIC)
    if not any(doubts) and not read.has_own_words(question, answer):
        doubts.append(UNSUPPORTED)
    return Judgement(tuple(dict.fromkeys(filter(None, doubts))), found, missing)


def _compared(question: str, texts: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return which words of a question some texts have, and which they lack.

    As in the search, a long word is found by its beginning, too.
    """
    wanted = content_words(question)
    missing = missing_words(wanted, texts)
    known = [word.lower() for text in texts for word in words(text)]
    lacking = tuple(word for word in missing if not _begins(word, known))
    return tuple(word for word in wanted if word not in lacking), lacking


def _begins(word: str, known: Sequence[str]) -> bool:
    """Return whether a long word begins like one of the known ones: inscrire, inscription."""
    beginning = word[: max(MIN_CUT_LETTERS, int(CUT_SHARE * len(word)))]
    return len(word) > MIN_CUT_LETTERS and any(one.startswith(beginning) for one in known)


class ReadSources:
    """What the sources say, and where in them an answer stands."""

    def __init__(self, sources: Sequence[Source], evidence: Sequence[Evidence]) -> None:
        self._vocabulary = Vocabulary(sources)
        self._places: list[KnownStatement] = []
        self._homes: list[KnownStatement] = []  # in which the answer stands
        for source in sources:
            marked = [one.marks for one in evidence if one.document == source.document]
            marks = [mark for each in marked for mark in each]
            for place in self._places_of(source):
                self._places.append(place)
                start, stop = (source.start + at for at in place.statement[:2])
                if any(first < stop and start < last for first, last in marks):
                    self._homes.append(place)
        texts = (f"{one.name}\n{one.heading}\n{one.table_head}\n{one.text}" for one in sources)
        self._known = self._values("\n".join(texts))

    def homes_of_answer(self) -> list[str]:
        """Return the statements that the answer stands in, with their headings."""
        return [f"{home.above}\n{home.statement.text}" for home in self._homes]

    def wrong_facts(self, asked: str, answer: str, citations: Sequence[Citation]) -> Iterator[str]:
        """Yield doubts about numbers and names that no passage has, or none has together."""
        yield from (self._unknown(fact) for fact in self._facts(asked) if fact.is_number)
        for start, stop in _claims(answer):
            if any(one.start <= start and stop <= one.stop for one in citations):
                continue  # copied as a whole
            facts = [*self._facts(answer[start:stop])]
            yield from map(self._unknown, facts)
            for one, other in combinations(facts, 2):
                if one.is_number or other.is_number:
                    yield self._apart(one, other)

    def has_own_words(self, question: str, answer: str) -> bool:
        """Return whether the answer's own words, which the question lacks, are where it stands."""
        telling = self._vocabulary.telling(answer)
        own = telling.difference(self._vocabulary.words(question)) or telling
        found = {value for home in self._homes for value in home.values}
        return bool(own) and len(own & found) > MIN_OWN_SHARE * len(own)

    def _places_of(self, source: Source) -> Iterator[KnownStatement]:
        """Yield the statements of a source with their values."""
        found = []
        for one in find_statements(source):
            above = f"{source.heading_at(source.start + one.start)}\n{source.name}"
            found.append((one, above, self._values(f"{above}\n{one.text}")))
        for number, (one, above, values) in enumerate(found):
            around = found[max(0, number - 1) : number + 2]
            nearby = values if one.is_row else values.union(*(each for _, _, each in around))
            yield KnownStatement(one, above, values, nearby)

    def _values(self, text: str) -> frozenset[str]:
        """Return the values of all numbers and words of a text."""
        numbers = (values_of(match.group()) for match in NUMBER.finditer(text))
        return frozenset(self._vocabulary.words(text)).union(*numbers)

    def _facts(self, text: str) -> Iterator[Fact]:
        """Yield the numbers and names of a text. The first word of a sentence is no name."""
        for match in NUMBER.finditer(text):
            if not text[match.end() : match.end() + 1].isalpha():
                yield Fact(match.group(), values_of(match.group()), True)
        if self._vocabulary.language in CAPITALIZED_NOUNS:
            return
        for match in [*WORD.finditer(text)][1:]:
            word = match.group()
            if word[0].isupper() and len(word) > 1:
                yield Fact(word, frozenset(self._vocabulary.words(word)), False)

    def _unknown(self, fact: Fact) -> str:
        """Return the doubt about an fact that no passage has; "" if one has it."""
        return "" if fact.values & self._known else UNKNOWN.format(fact.text)

    def _apart(self, one: Fact, other: Fact) -> str:
        """Return the doubt about two facts that stand in different rows or sentences."""
        if not (one.values & self._known and other.values & self._known):
            return ""
        having = [place for place in self._places if one.values & place.nearby]
        if any(other.values & place.nearby for place in having):
            return ""
        kind = "row" if any(place.statement.is_row for place in having) else "sentence"
        return APART.format(one.text, other.text, kind)


def _claims(answer: str) -> Iterator[tuple[int, int]]:
    """Yield where the sentences of an answer are."""
    borders = [0, *(match.end() for match in SENTENCE_END.finditer(answer)), len(answer)]
    for start, stop in pairwise(borders):
        claim = answer[start:stop]
        if claim.strip():
            yield stop - len(claim.lstrip()), start + len(claim.rstrip())


def values_of(number: str) -> frozenset[str]:
    """Return the values that a number may have: 1.484 is 1484 in one country, 1.484 in another."""
    hour, _, minutes = number.partition(":")
    if minutes:
        hour = hour.lstrip("0") or "0"
        return frozenset((f"{hour}:{minutes}", *(() if minutes.strip("0") else (hour,))))
    readings = (number.replace(",", "."), THOUSANDS.sub("", number).replace(",", "."))
    return frozenset(map(_without_zeros, readings))


def _without_zeros(reading: str) -> str:
    """Return a number without the zeros that change nothing."""
    whole, _, decimals = reading.partition(".")
    decimals = decimals.rstrip("0")
    return f"{whole.lstrip('0') or '0'}.{decimals}" if decimals else whole.lstrip("0") or "0"
