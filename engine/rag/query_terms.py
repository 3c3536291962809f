"""The content words of a question, and which of them some texts lack.

English has a stop list and a light stemmer. In other languages more words count and must match
exactly; scripts without spaces are split into character bigrams.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence

from engine.rag.citations import IS_SPACELESS
from index.documents.full_text import GENERIC_WORDS, STOP_WORDS

MAX_CONTENT_WORDS = 64
MIN_STEM_CHARS = 3
WORD = re.compile(r"[^\W\d_]+|\d+")
CAMEL_HUMP = re.compile(r"(?<=[a-z])(?=[A-Z])")
SUFFIXES = frozenset(
    {"", *re.findall(r"\w+", "d e s ed er es ers ing ings ion ions al ally ly ment")}
)
# More than keyword search ignores: words that could only match by chance.
COMMON_WORDS = STOP_WORDS | frozenset(
    re.findall(
        r"\w+",
        """after again all also am because before being below best better between big both deep
        doing down during each either else every far fast few further get good happen happened
        happening happens having heavy here high him hot instead itself just kind know large let
        like long many may might more most much must need needed needs neither no nor not off
        often old once one only other out over own per please possible same since small some soon
        sort such tall through too under until up upon use used using very want wants was way ways
        whether while wide wish within without yes yet""",
    )
)


def content_words(question: str) -> list[str]:
    """The words that say what a question is about, in lower case; none if it is about a document
    as a whole ("What is this file about?")."""
    words = dict.fromkeys(_split(question))
    ignored = COMMON_WORDS | GENERIC_WORDS
    content = [word for word in words if word not in ignored and (len(word) > 1 or word.isdigit())]
    return content[:MAX_CONTENT_WORDS]


def missing_words(wanted: Iterable[str], texts: Sequence[str]) -> list[str]:
    """The words that none of the texts contains in any inflection."""
    words = set(_split("\n".join(texts)))
    return [
        word
        for word in wanted
        if word not in words and not any(_same_stem(word, other) for other in words)
    ]


def _split(text: str) -> Iterator[str]:
    """Words in lower case; camelCase names are split."""
    for word in WORD.findall(unicodedata.normalize("NFC", text)):
        for part in CAMEL_HUMP.split(word):
            if IS_SPACELESS.search(part):
                yield from (part[at : at + 2] for at in range(max(1, len(part) - 1)))
            else:
                yield part.lower()


def _same_stem(one: str, other: str) -> bool:
    """Whether two words differ in their suffixes only."""
    shared = 0
    while shared < min(len(one), len(other)) and one[shared] == other[shared]:
        shared += 1
    return shared >= MIN_STEM_CHARS and one[shared:] in SUFFIXES and other[shared:] in SUFFIXES
