"""Reasons to check an answer: what in it the passages do not say, or say of something else.

Words are compared by their stems, numbers by their values. The model is not involved.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from itertools import combinations
from typing import NamedTuple

from engine.rag.citations import Citation, Source
from engine.rag.evidence import Evidence, Vocabulary, split_sentences
from engine.rag.query_terms import content_words, missing_words
from index.documents.tables import heads_at

# An answer speaks about the question if it and the sentences that it stands in have more than this
# share of the question's words. Right answers often have a third of them, wrong ones seldom.
MIN_QUESTION_SHARE = 0.25
MIN_OWN_SHARE = 0.5  # share of the answer's own words; the sentences that it stands in have more
UNSUPPORTED = "No passage supports this: check it."
OFF_TOPIC = "Neither this nor the sentence that it comes from has the question's words: check it."
UNKNOWN = "{} is in none of the passages: check it."
ELSEWHERE = "The passages say this, but not about {}: check it."
APART = "{} and {} stand in different places of the passages: check whether they belong together."

SIGNS = ".,'\u2019\u00a0\u202f"  # between thousands
# Digits with thousands, decimals or minutes; those of a name such as E07 or 2nd are not a number
NUMBER = re.compile(
    rf"(?<!\w)(?:\d{{1,3}}(?:[{SIGNS}]\d{{3}})+(?!\d)|\d+)(?:[.,:]\d+)?(?![^\W\d_])"
)
THOUSANDS = re.compile(rf"(?<=\d)[{SIGNS}](?=\d{{3}}(?!\d))")
NAME = re.compile(r"(?<=[^\s.:!?>|*])\s+([^\W\d_]\w+(?:[-'\u2019]\w+)*)")  # not the first word
CAPITALIZED_NOUNS = ("de",)  # languages whose nouns all look like names


class Judgement(NamedTuple):
    """What can be told of an answer by its words."""

    doubts: tuple[str, ...]  # reasons to check it, one line each
    found: tuple[str, ...]  # words of the question in the answer, or in the sentences around it
    missing: tuple[str, ...]  # the others


class SourceSentence(NamedTuple):
    """A sentence or row, its heading and its head; the values in these, and in its neighbors."""

    text: str
    values: frozenset[str]
    nearby: frozenset[str]
    has_answer: bool


class Fact(NamedTuple):
    """A number or a name in an answer, and the values by which it is known."""

    text: str
    values: frozenset[str]
    is_number: bool


def judge(
    questions: Collection[str],
    answer: str,
    citations: Sequence[Citation],
    evidence: Sequence[Evidence],
    sources: Sequence[Source],
) -> Judgement:
    """Compare an answer with the passages that were read.

    `questions`: the one that was asked, and the one that was searched in its place.
    """
    vocabulary = Vocabulary(sources)
    sentences = [one for each in sources for one in _sentences(each, evidence, vocabulary)]
    homes = [one for one in sentences if one.has_answer]
    texts = [answer, *(one.text for one in homes)]
    asked = [(words, missing_words(words, texts)) for words in map(content_words, questions)]
    wanted, missing = min(asked, key=lambda each: len(each[1]) / (len(each[0]) or 1))
    found = [word for word in wanted if word not in missing]
    doubts = [*_wrong_facts(questions, answer, citations, sentences, vocabulary)]
    if missing and len(found) <= MIN_QUESTION_SHARE * len(wanted):
        doubts.append(OFF_TOPIC)
    telling = vocabulary.telling(answer)
    own = telling.difference(*map(vocabulary.words, questions)) or telling
    own_found = own.intersection(value for one in homes for value in one.values)
    if not doubts and len(own_found) <= MIN_OWN_SHARE * len(own):
        doubts.append(UNSUPPORTED)
    return Judgement(tuple(dict.fromkeys(doubts)), tuple(found), tuple(missing))


def _sentences(
    source: Source, evidence: Sequence[Evidence], vocabulary: Vocabulary
) -> Iterator[SourceSentence]:
    """Yield the sentences and rows of a source."""
    marks = [mark for one in evidence if one.document == source.document for mark in one.marks]
    spans = [*split_sentences(source.text)]
    starts = [start for start, _ in spans]
    heads = heads_at(source.kind, source.text, starts, source.table_head)
    texts = []
    for (start, stop), head in zip(spans, heads, strict=True):
        above = f"{source.heading_at(source.start + start)}\n{source.name}\n{head}"
        texts.append(f"{above}\n{source.text[start:stop]}")
    values = [_values(text, vocabulary) for text in texts]
    for number, (start, stop) in enumerate(spans):
        first, last = source.start + start, source.start + stop
        has_answer = any(begin < last and first < end for begin, end in marks)
        around = [] if heads[number] else values[max(0, number - 1) : number + 2]
        nearby = values[number].union(*around)
        yield SourceSentence(texts[number], values[number], nearby, has_answer)


# -- numbers and names -----------------------------------------------------------------------------


def _wrong_facts(
    questions: Collection[str],
    answer: str,
    citations: Sequence[Citation],
    sentences: Sequence[SourceSentence],
    vocabulary: Vocabulary,
) -> Iterator[str]:
    """Yield doubts about numbers and names that no passage has, or none has together.

    The question's numbers must be where the answer stands. What is copied as a whole is right.
    """
    known = frozenset[str]().union(*(sentence.values for sentence in sentences))
    homes = [sentence.nearby for sentence in sentences if sentence.has_answer]
    for fact in _facts(next(iter(questions)), vocabulary):
        if fact.is_number and not fact.values & known:
            yield UNKNOWN.format(fact.text)
        elif fact.is_number and homes and not any(fact.values & nearby for nearby in homes):
            yield ELSEWHERE.format(fact.text)
    for start, stop in split_sentences(answer):
        stop = start + len(answer[start:stop].rstrip())
        if any(one.start <= start and stop <= one.stop for one in citations):
            continue
        facts = [*_facts(answer[start:stop], vocabulary)]
        yield from (UNKNOWN.format(fact.text) for fact in facts if not fact.values & known)
        for one, other in combinations([fact for fact in facts if fact.values & known], 2):
            having = [sentence.nearby for sentence in sentences if one.values & sentence.values]
            together = any(other.values & nearby for nearby in having)
            if (one.is_number or other.is_number) and not together:
                yield APART.format(one.text, other.text)


def _facts(text: str, vocabulary: Vocabulary) -> Iterator[Fact]:
    """Yield the numbers and names of a text."""
    for match in NUMBER.finditer(text):
        yield Fact(match.group(), values_of(match.group()), True)
    for match in NAME.finditer(text):
        word = match.group(1)
        if word[0].isupper() and vocabulary.language not in CAPITALIZED_NOUNS:
            yield Fact(word, frozenset(vocabulary.words(word)), False)


def _values(text: str, vocabulary: Vocabulary) -> frozenset[str]:
    """Return the values of all words and numbers of a text."""
    numbers = (values_of(match.group()) for match in NUMBER.finditer(text))
    return frozenset(vocabulary.words(text)).union(*numbers)


def values_of(number: str) -> frozenset[str]:
    """Return the values that a number may have: 1.484 is 1484 in one country, 1.484 in another."""
    hour, _, minutes = number.partition(":")
    if minutes:
        return frozenset((f"{int(hour)}:{minutes}", *(() if int(minutes) else (str(int(hour)),))))
    readings = (number.replace(",", "."), THOUSANDS.sub("", number).replace(",", "."))
    return frozenset(map(_plain, readings))


def _plain(reading: str) -> str:
    """Return a number without the zeros that change nothing."""
    whole, _, decimals = reading.partition(".")
    return ".".join(filter(None, (whole.lstrip("0") or "0", decimals.rstrip("0"))))
