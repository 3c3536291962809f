"""The sentence of some passages that fits a question best. The model is not involved.

A sentence fits by the question's words that it has, and its passage by those that it has nearby.
A word counts by its rarity among the sentences (inverse document frequency).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import log
from typing import NamedTuple

from engine.rag.citations import Source
from engine.rag.evidence import split_sentences
from engine.rag.query_terms import content_words
from index.documents.languages import DEFAULT_LANGUAGE, WordFinder, detect
from index.documents.tables import heads_at, labelled

NEARBY_WEIGHT = 0.5  # weight of the question's words in the passage; those in the sentence have 1
MIN_FIT = 0.4  # share of the question's words, by rarity, that a sentence must have
MAX_CHARS = 600  # characters; longer ones are not worth reading twice
# The end of what a sentence introduces: items of a list may have blank lines between them.
BLOCK_END = re.compile(r"\n[ \t]*\n(?=\S)(?!(?:[-*+\u2022]|\d+[.)])\s)|\Z")
TERM = re.compile(r"[^\n]*\n[ \t]*\n[ \t]+\S")  # a line above indented text, which explains it
TITLE = re.compile(r"#|.*\n([=~^\"'`*+#-])\1{2,}\s*\Z|_[^\n]*:\Z", re.DOTALL)


class Sentence(NamedTuple):
    text: str
    has: frozenset[str]  # words of the question
    nearby: frozenset[str]  # words of the question in its passage


def best_sentence(question: str, sources: Sequence[Source], refers_to: str = "") -> str:
    """Return a sentence, list item or row that has most of the question's words; "" for none.

    A row comes with the names of its columns; a term, or what ends with a colon, with what follows
    it. Of equal ones that is best which has most words of the question that this one `refers_to`.
    """
    wanted = content_words(question)
    others = [word for word in content_words(refers_to) if word not in wanted]
    words = [*wanted, *others]
    sentences = _sentences(words, sources)
    count = len(sentences)
    weight = {
        word: log(1 + count / (1 + sum(word in sentence.has for sentence in sentences)))
        for word in words
    }

    def total(some: Sequence[str], found: frozenset[str]) -> float:
        return sum(weight[word] for word in some if word in found)

    def fit(one: Sentence) -> tuple[float, float]:
        own, other = (
            total(some, one.has) + NEARBY_WEIGHT * total(some, one.nearby)
            for some in (wanted, others)
        )
        return own, other

    best = max(sentences, key=fit, default=Sentence("", frozenset(), frozenset()))
    has = total(wanted, best.has)
    fits = has > 0 and has >= MIN_FIT * total(wanted, frozenset(wanted))
    return best.text if fits and len(best.text) <= MAX_CHARS else ""


def _sentences(wanted: Sequence[str], sources: Sequence[Source]) -> list[Sentence]:
    languages = (detect("\n".join(source.text for source in sources)), DEFAULT_LANGUAGE)
    found = []
    for source in sources:
        passage = WordFinder(f"{source.heading}\n{source.table_head}\n{source.text}", languages)
        nearby = frozenset(word for word in wanted if word in passage)
        spans = [*split_sentences(source.text)]
        starts = [start for start, _ in spans]
        heads = heads_at(source.kind, source.text, starts, source.table_head)
        for (start, stop), head in zip(spans, heads, strict=True):
            text = source.text[start:stop].strip()
            if TITLE.match(text):
                continue
            text = labelled(head, text)
            finder = WordFinder(text, languages)
            if text.endswith(":") or TERM.match(source.text, start):
                end = BLOCK_END.search(source.text, stop)
                text = source.text[start : end.start() if end else stop].strip()
            found.append(Sentence(text, frozenset(w for w in nearby if w in finder), nearby))
    return found
