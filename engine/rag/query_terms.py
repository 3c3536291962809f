"""The words of a question: what it is about, and which of them some texts do not have.

English is known a little: its commonest words, and the endings of the others. In other languages
more words count, and each must stand there as it is; in a writing without gaps each two characters
that follow one another are taken for a word. No model, no index.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence

from engine.rag.citations import IS_DENSE
from index.documents.full_text import GENERIC_WORDS

MOST = 64  # words of a question that are looked at
WORD = re.compile(r"[^\W\d_]+|\d+")
CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])")
ENDINGS = frozenset(
    {"", *re.findall(r"\w+", "d e s ed er es ers ing ings ion ions al ally ly ment")}
)
COMMON = frozenset(
    re.findall(
        r"\w+",
        """a about after again all also am an and any are as at be because been before being below
        best better between big both but by can could deep did do does doing down during each
        either else every far fast few for from further get good had happen happened happening
        happens has have having he heavy her here high him his hot how i if in instead into is
        it its itself just kind know large let like long many may me might more most much must
        my need needed needs neither no nor not of off often old on once one only or other our
        out over own per please possible same shall she should since small so some soon sort
        such tall than that the their them then there these they think this those through to too
        under until up upon us use used using very want wants was way ways we were what when
        where whether which while who whom whose why wide will wish with within without would
        yes yet you your""",
    )
)


def content(question: str) -> list[str]:
    """The words of a question that say what it is about, in lower case; none where it is about a
    document as a whole."""
    words = dict.fromkeys(_split(question))
    named = [word for word in words if word not in COMMON and (len(word) > 1 or word.isdigit())]
    return [word for word in named if word not in GENERIC_WORDS][:MOST]


def missing_words(wanted: Iterable[str], texts: Sequence[str]) -> list[str]:
    """Those of the words that no text has, whatever their endings."""
    words = set(_split("\n".join(texts)))
    return [
        word
        for word in wanted
        if word not in words and not any(_alike(word, other) for other in words)
    ]


def _split(text: str) -> Iterator[str]:
    """Words in lower case, names in code taken apart."""
    for word in WORD.findall(unicodedata.normalize("NFC", text)):
        for part in CAMEL.split(word):
            if IS_DENSE.search(part):
                yield from (part[at : at + 2] for at in range(max(1, len(part) - 1)))
            else:
                yield part.lower()


def _alike(one: str, other: str) -> bool:
    """Whether two words differ by their endings only."""
    shared = 0
    while shared < min(len(one), len(other)) and one[shared] == other[shared]:
        shared += 1
    return shared >= 3 and one[shared:] in ENDINGS and other[shared:] in ENDINGS
