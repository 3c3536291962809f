"""The content words of a question, and which of them some texts lack.

English has a stop list and a light stemmer. In other languages more words count and must match
exactly; scripts without spaces are split into character bigrams.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence

from engine.rag.citations import IS_SPACELESS
from index.documents.full_text import GENERIC_WORDS

MAX_CONTENT_WORDS = 64
MIN_STEM_CHARS = 3
WORD = re.compile(r"[^\W\d_]+|\d+")
CAMEL_HUMP = re.compile(r"(?<=[a-z])(?=[A-Z])")
SUFFIXES = frozenset(
    {"", *re.findall(r"\w+", "d e s ed er es ers ing ings ion ions al ally ly ment")}
)
STOP_WORDS = frozenset(
    re.findall(
        r"\w+",
        """a about after again all also am an and any are as at be because been before being below
        best better between big both but by can could deep did do does doing down during each
        either else every far fast few for from further get good had happen happened happening
        happens has have having he heavy her here high him his hot how i if in instead into is
        it its itself just kind know large let like long many may me might more most much must
        my need needed needs neither no nor not of off often old on once one only or other our
        out over own per please possible same shall she should since small so some soon sort
        such tall than that the their them then there these they this those through to too
        under until up upon us use used using very want wants was way ways we were what when
        where whether which while who whom whose why wide will wish with within without would
        yes yet you your""",
    )
)


def content_words(question: str) -> list[str]:
    """The words that say what a question is about, in lower case; none if it is about a document
    as a whole ("What is this file about?")."""
    words = dict.fromkeys(_split(question))
    content = [
        word for word in words if word not in STOP_WORDS and (len(word) > 1 or word.isdigit())
    ]
    return [word for word in content if word not in GENERIC_WORDS][:MAX_CONTENT_WORDS]


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
