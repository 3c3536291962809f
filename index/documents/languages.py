"""Words, stop words and stems by language, and which language a text is in.

Stems are those of the Snowball stemmers. A language is known by its script or by its stop words,
and named by its ISO 639-1 code. Scripts without spaces between words are split into characters,
to be searched for as n-grams.
"""

from __future__ import annotations

import re
import threading
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from functools import cache

import Stemmer
import stopwordsiso

from index.documents.stop_words import COMMON_ENGLISH, ENGLISH, GENERIC_WORDS, QUESTION_WORDS

DEFAULT_LANGUAGE = "en"
SAMPLES, SAMPLE_CHARS = 10, 5000  # samples, characters each; they decide a text's language
MIN_SCRIPT_SHARE = 0.3  # share of a text's letters; a script with more decides its language
MIN_COMPOUND_LETTERS = 8
MIN_PART_LETTERS = 4  # letters of a compound's part
COMPOUNDING = frozenset(("da", "de", "fi", "hu", "nl", "no", "sv"))  # compounds are one word
NGRAM, LONG_NGRAM = 2, 3  # characters; a Thai word has more of them than a Chinese one

# Scripts without spaces: Thai, Lao, Myanmar, Khmer, kana, Chinese characters. Classes of a regex.
SOUTHEAST_ASIAN = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u19e0-\u19ff\uaa60-\uaa7f\ua9e0-\ua9ff"
CJK = "\u3005-\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
SPACELESS = SOUTHEAST_ASIAN + CJK
HANGUL = "\u1100-\u11ff\u3130-\u318f\uac00-\ud7a3"  # has spaces, but particles join the words

MARKS = "".join(
    chr(code) for code in range(0x300, 0xFE30) if unicodedata.category(chr(code))[0] == "M"
)
WORD = re.compile(rf"[^\W_]+(?:[{MARKS}]+[^\W_]*)*")
NGRAM_RUN = re.compile(rf"(?:(?![{MARKS}])[{SPACELESS}{HANGUL}][{MARKS}]*)+")
CHARACTER = re.compile(rf".[{MARKS}]*", re.DOTALL)  # a character with its marks
SINGLE_HUMP = re.compile(r"[A-Z]?[a-z]*|[A-Z]+|\d+")
HUMP = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|\d+")
SCRIPTS = {  # the main language of each
    language: re.compile(f"[{letters}]")
    for language, letters in {
        "ja": "\u3040-\u30ff",
        "zh": "\u4e00-\u9fff",
        "ko": HANGUL,
        "th": "\u0e00-\u0e7f",
        "lo": "\u0e80-\u0eff",
        "my": "\u1000-\u109f",
        "km": "\u1780-\u17ff",
        "ru": "\u0400-\u052f",
        "ar": "\u0600-\u06ff",
        "el": "\u0370-\u03ff",
        "he": "\u0590-\u05ff",
        "hi": "\u0900-\u097f",
        "hy": "\u0530-\u058f",
        "ta": "\u0b80-\u0bff",
    }.items()
}
OWN_SCRIPT = frozenset(("ja", "zh", "ko", "th", "lo", "my", "km"))  # their scripts are their own
STEMMERS = {
    **{"ar": "arabic", "ca": "catalan", "cs": "czech", "da": "danish", "de": "german"},
    **{"el": "greek", "en": "english", "es": "spanish", "et": "estonian", "eu": "basque"},
    **{"fa": "persian", "fi": "finnish", "fr": "french", "ga": "irish", "hi": "hindi"},
    **{"hu": "hungarian", "hy": "armenian", "id": "indonesian", "it": "italian"},
    **{"lt": "lithuanian", "nl": "dutch", "no": "norwegian", "pl": "polish", "pt": "portuguese"},
    **{"ro": "romanian", "ru": "russian", "sv": "swedish", "tr": "turkish"},
}
MIN_KANA_SHARE = 0.1  # share of kana; with more, a text with Chinese characters is Japanese
INVISIBLE = re.compile("[\u00ad\u200b\u2060\ufeff]")  # soft hyphens, blanks without width

_stemmers = threading.local()  # a stemmer is not thread-safe


def words(text: str) -> list[str]:
    """Return the words of a text: letters and digits with their combining marks."""
    return WORD.findall(normalized(text))


def normalized(text: str) -> str:
    """Return a text as searches compare it: one form of each character, without soft hyphens."""
    return unicodedata.normalize("NFKC", INVISIBLE.sub("", text))


def humps(word: str) -> list[str]:
    """Split a camelCase word: camel, Case; nothing for a word that is not split."""
    if not word.isascii() or SINGLE_HUMP.fullmatch(word):
        return []
    found = HUMP.findall(word)
    return found if len(found) > 1 else []


def characters(run: str) -> list[str]:
    """Return the characters of a text with their combining marks."""
    return CHARACTER.findall(run)


def ngrams_between(run: str, left_out: Collection[str]) -> list[tuple[str, ...]]:
    """Return the overlapping n-grams of a run of characters without spaces.

    Each n-gram is some characters. Those of the words `left_out` do not count; of these words, the
    longest at each place is left out.
    """
    found: list[tuple[str, ...]] = []
    for piece in _pieces(run, left_out):
        size = LONG_NGRAM if re.match(f"[{SOUTHEAST_ASIAN}]", piece) else NGRAM
        each = characters(piece)
        found += [tuple(each[at : at + size]) for at in range(max(1, len(each) - size + 1))]
    return found


def _pieces(run: str, left_out: Collection[str]) -> list[str]:
    """Return the pieces of a run between the words `left_out`."""
    each, longest = characters(run), max(map(len, left_out), default=0)
    pieces, at = [""], 0
    while at < len(each):
        sizes = range(min(longest, len(each) - at), 0, -1)
        size = next((size for size in sizes if "".join(each[at : at + size]) in left_out), 0)
        if size:
            pieces.append("")
        else:
            pieces[-1] += each[at]
        at += size or 1
    return [piece for piece in pieces if piece]


def stem(word: str, language: str) -> str:
    """Return a word without inflection.

    Where the language has no stemmer, it is the word itself in lower case.
    """
    if language not in STEMMERS:
        return word.lower()
    stemmers: dict[str, Stemmer.Stemmer] = _stemmers.__dict__
    if language not in stemmers:
        stemmers[language] = Stemmer.Stemmer(STEMMERS[language])
    return str(stemmers[language].stemWord(word.lower()))


def compound_splits(word: str, language: str) -> list[tuple[str, str]]:
    """Return the stems of both parts of a word, for each place where a compound may be joined."""
    if language not in COMPOUNDING:
        return []
    places = range(MIN_PART_LETTERS, len(word) - MIN_PART_LETTERS + 1)
    return [(stem(word[:at], language), stem(word[at:], language)) for at in places]


@cache
def stop_words(language: str) -> frozenset[str]:
    """Return the words of a language that say nothing about what a text is about."""
    listed = ENGLISH if language == "en" else stopwordsiso.stopwords(language)
    return frozenset(listed) | QUESTION_WORDS.get(language, frozenset())


@cache
def vague_words(language: str) -> frozenset[str]:
    """More words that do not say what a question is about, but are searched for."""
    common = COMMON_ENGLISH if language == "en" else frozenset()
    return GENERIC_WORDS.get(language, frozenset()) | common


@cache
def _languages_of_stop_words() -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for language in sorted(stopwordsiso.langs() & STEMMERS.keys()):
        for word in filter(str.isalpha, stop_words(language) | vague_words(language)):
            found[word] = (*found.get(word, ()), language)
    return found


def detect(text: str, likely: Sequence[str] = ()) -> str:
    """Return the language of a text. If several fit equally well, one of `likely` is preferred."""
    script = _script(text[: SAMPLES * SAMPLE_CHARS])
    if script in OWN_SCRIPT:
        return script
    languages = _languages_of_stop_words()
    counts: Counter[str] = Counter()
    for word in _sample(text):
        counts.update(languages.get(word.lower(), ()))
    preferred = [script] if script else [*likely, DEFAULT_LANGUAGE]
    best = max(counts.values(), default=0)
    candidates = [*preferred, *counts]
    return next(language for language in candidates if counts[language] == best)


def _script(text: str) -> str:
    """Return the main language of a text's script.

    It is "" for the Latin script and where none prevails.
    """
    letters = sum(map(str.isalpha, text))
    share = {name: len(script.findall(text)) / max(1, letters) for name, script in SCRIPTS.items()}
    if share["ja"] + share["zh"] >= MIN_SCRIPT_SHARE:
        return "ja" if share["ja"] >= MIN_KANA_SHARE else "zh"
    return next((name for name in share if share[name] >= MIN_SCRIPT_SHARE), "")


def _sample(text: str) -> Iterator[str]:
    """Words of a text, from all parts of a long one."""
    step = max(SAMPLE_CHARS, len(text) // SAMPLES)
    for start in range(0, len(text), step):
        yield from words(text[start : start + SAMPLE_CHARS])


class WordFinder:
    """Knows which words a text contains in any inflection."""

    def __init__(self, text: str, written: Collection[str]) -> None:
        """Take the text. `written`: the languages whose stems are compared."""
        self._languages = written
        self._text = normalized(text).lower()
        split = [part for word in words(text) for part in NGRAM_RUN.split(word)]
        found = {each.lower() for part in split for each in (part, *humps(part))}
        self._stems = found | {stem(word, language) for word in found for language in written}
        self._compounds = [stem for stem in self._stems if len(stem) >= MIN_COMPOUND_LETTERS]

    def __contains__(self, word: str) -> bool:
        word = word.lower()
        if word in self._stems or (NGRAM_RUN.match(word) and word in self._text):
            return True
        return any(self._contains_stem(stem(word, name), name) for name in self._languages)

    def _contains_stem(self, stem: str, language: str) -> bool:
        if stem in self._stems or language not in COMPOUNDING or len(stem) < MIN_PART_LETTERS:
            return stem in self._stems
        return any(word.startswith(stem) or word.endswith(stem) for word in self._compounds)
