"""Ranks the sentences of a document's chapters by how much they say about their chapter.

A sentence scores by the mean weight of its words, which is high if they are frequent in its chapter
and rare in the others (tf-idf), more if it has a number, as facts do, and more at the beginning. No
model and no list of stop words is used, so that it works in any language.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence

from engine.rag.sentences import word_count, words

NUMBER = re.compile(r"\d")
NUMBER_BONUS = 0.5  # share of the score
FIRST_BONUS = 1.0  # share of the score, for the first sentence; half of it for the second, ...
MIN_WORDS = 10  # words; shorter sentences have no advantage


class Salience:
    """The weights of the words of each chapter."""

    def __init__(self, chapters: Sequence[Sequence[str]]) -> None:
        """Count the words of `chapters`, given as the sentences of each."""
        self._counts = [
            Counter(word for sentence in own for word in words(sentence)) for own in chapters
        ]
        self._chapters_with = Counter(word for counts in self._counts for word in counts)

    def best(self, chapter: int, sentences: Sequence[str], count: int) -> list[str]:
        """Return the `count` best of some sentences of a chapter, in their order."""
        scores = [
            self._score(chapter, one) * (1 + FIRST_BONUS / (at + 1))
            for at, one in enumerate(sentences)
        ]
        ranking = sorted(range(len(sentences)), key=lambda at: (-scores[at], at))
        return [sentences[at] for at in sorted(ranking[:count])]

    def _score(self, chapter: int, sentence: str) -> float:
        bonus = NUMBER_BONUS if NUMBER.search(sentence) else 0.0
        total = sum(self._weight(chapter, word) for word in set(words(sentence)))
        return total * (1 + bonus) / max(word_count(sentence), MIN_WORDS)

    def _weight(self, chapter: int, word: str) -> float:
        rarity = math.log((1 + len(self._counts)) / self._chapters_with.get(word, 1))
        return math.log1p(self._counts[chapter][word]) * rarity
