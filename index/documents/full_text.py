"""Keyword search over chunks: SQLite's FTS5 ranked by BM25, in any language.

The words of a chunk are indexed as they are, and by their stems in the document's language. A word
of a query is found as it is written, or by its stem in any language of the documents. A query is
built from single quoted words, so nothing that a user writes is FTS5 syntax.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import log
from typing import NamedTuple

from index.documents import languages
from index.documents.chunking import Chunk

# `terms` holds stems, the parts of camelCase, and single characters of scripts without spaces;
# `compounds` holds long words forward and backward, so that a prefix query finds both ends.
# Combining marks (M*) are parts of words.
SCHEMA = """
CREATE VIRTUAL TABLE words USING fts5(
    text, heading, name, terms, compounds,
    tokenize = "unicode61 remove_diacritics 2 categories 'L* N* Co M*'"
);
"""
EXACT, TERMS, COMPOUNDS = "{text heading name}", "terms", "compounds"
COLUMN_WEIGHTS = (0.5, 0.5, 0.5, 1.0, 0.5)
MAX_QUERY_TERMS = 64
MAX_QUERY_CHARS = 256 << 10  # characters; the rest of a query is ignored
MAX_JOINED_CHARS = 200  # characters; a longer joined name is not searched for whole
MIN_CUT_LETTERS, CUT_SHARE = 6, 0.7  # letters, share of a word; its beginning is searched for
MAX_RARE_CHUNKS = 3  # chunks; a word in no more of them is rare
BACKWARD = "0"  # before a word that is spelled backward

JOINED = re.compile(r"[^\W_]+(?:(?:[._/:-]{1,2}|->)[^\W_]+)*")  # os.path.join, max_size, a->b
SINGLE_WORD = re.compile(r"[^\W_]+")

Ranked = tuple[int, float]  # row of a chunk, score


@dataclass(frozen=True, slots=True)
class QueryTerm:
    """A word of a query."""

    word: str  # as it is written; an n-gram in a script without spaces
    match: str  # the FTS5 query that finds it in any inflection
    is_content: bool  # whether it says what the query is about


def insert(
    connection: sqlite3.Connection,
    chunks: Iterable[Chunk],
    name: str,
    language: str,
    rows: Iterable[int | None],
) -> None:
    """Index the chunks of document `name` under these rows."""
    connection.executemany(
        "INSERT INTO words (rowid, text, heading, name, terms, compounds) "
        "VALUES (?, ?, ?, ?, ?, ?)",
        (
            (row, chunk.text, chunk.heading, name, *_indexed(chunk, language))
            for row, chunk in zip(rows, chunks, strict=True)
        ),
    )


def _indexed(chunk: Chunk, language: str) -> tuple[str, str]:
    """Return the columns `terms` and `compounds` of a chunk."""
    text = f"{chunk.heading}\n{chunk.table_head}\n{chunk.text}"
    found = [_of_word(word, language) for word in languages.words(text)]
    return " ".join(terms for terms, _ in found), " ".join(long for _, long in found if long)


@lru_cache(1 << 16)
def _of_word(word: str, language: str) -> tuple[str, str]:
    """Return what columns `terms` and `compounds` index for a word."""
    terms, compounds = [], []
    for part in languages.NGRAM_RUN.split(word):
        if part:
            terms += [languages.stem(each, language) for each in (part, *languages.humps(part))]
            if language in languages.COMPOUNDING and len(part) >= languages.MIN_COMPOUND_LETTERS:
                compounds += [part.lower(), BACKWARD + terms[0][::-1]]
    for run in languages.NGRAM_RUN.findall(word):
        terms += languages.characters(run)
    return " ".join(terms), " ".join(compounds)


@lru_cache(16)
def query_terms(query: str, written: tuple[str, ...] = ()) -> list[QueryTerm]:
    """Return the distinct words of a query, without stop words unless there are no others.

    `written`: the languages of the documents, the most frequent first.
    """
    query = query[:MAX_QUERY_CHARS]
    language = languages.detect(query, written)
    stop, vague = languages.stop_words(language), languages.vague_words(language)
    found: dict[str, QueryTerm] = {}
    stopped: dict[str, QueryTerm] = {}
    for word in languages.words(query):
        for part in filter(None, languages.NGRAM_RUN.split(word)):
            humps = languages.humps(part)
            for each in (*humps, part):
                low = each.lower()
                tells = low not in vague and (len(each) > 1 or each.isdigit())
                # The parts of maxSize say what it is about; for E07 the whole does.
                is_content = tells and (not humps or (each == part) != part.isalpha())
                terms = stopped if low in stop else found
                match = _word_match(each, written or (language,))
                terms.setdefault(low, QueryTerm(each, match, is_content and terms is found))
        for run in languages.NGRAM_RUN.findall(word):
            content = languages.ngrams_between(run, stop | vague)
            telling = languages.ngrams_between(run, stop)
            for ngram in telling or languages.ngrams_between(run, ()):
                text = "".join(ngram)
                match = f"{TERMS} : {_quoted(' '.join(ngram))}"
                terms = found if telling else stopped
                terms.setdefault(text, QueryTerm(text, match, ngram in content))
    return [*(found or stopped).values()][:MAX_QUERY_TERMS]


def _word_match(word: str, written: Iterable[str]) -> str:
    """Return the FTS5 query for a word in any inflection, and as a part of a compound."""
    alternatives = {f"{EXACT} : {_quoted(word)}": None}
    for language in written:
        stem = languages.stem(word, language)
        alternatives[f"{TERMS} : {_quoted(stem)}"] = None
        if len(word) > MIN_CUT_LETTERS:  # such as inscrire, inscription
            cut = word.lower()[: max(MIN_CUT_LETTERS, int(CUT_SHARE * len(word)))]
            alternatives[f"{TERMS} : {_quoted(cut)} *"] = None
        if language in languages.COMPOUNDING and len(stem) >= languages.MIN_PART_LETTERS:
            for affix in (stem, BACKWARD + stem[::-1]):
                alternatives[f"{COMPOUNDS} : {_quoted(affix)} *"] = None
            for parts in languages.compound_splits(word, language):
                both = " AND ".join(f"{TERMS} : {_quoted(part)}" for part in parts)
                alternatives[f"({both})"] = None
    return " OR ".join(alternatives)


def _joined_names(query: str) -> list[str]:
    """Return identifiers and other joined words of a query, to be searched for whole."""
    names = dict.fromkeys(JOINED.findall(languages.normalized(query[:MAX_QUERY_CHARS])))
    joined = [name for name in names if not SINGLE_WORD.fullmatch(name)]
    return [name for name in joined if len(name) < MAX_JOINED_CHARS][:MAX_QUERY_TERMS]


def _quoted(text: str) -> str:
    """Quote a text as an FTS5 phrase, inside which nothing is syntax."""
    return '"' + text.replace('"', " ") + '"'


def search(
    connection: sqlite3.Connection, query: str, count: int, among: Sequence[str] | None = None
) -> list[Ranked]:
    """Return the `count` best chunks by BM25; those with more of the query's words come first.

    `among`: ids of the documents to search, None for all.
    """
    terms = query_terms(query, languages_of(connection))
    if not terms:
        return []
    score = f"bm25(words, {', '.join(map(str, COLUMN_WEIGHTS))})"
    restriction, ids = "", list(among or ())
    if among is not None:  # +: or SQLite would search once for each row
        marks = ", ".join("?" * len(ids))
        restriction = f"AND +rowid IN (SELECT row FROM chunks WHERE document IN ({marks}))"
    names = [f"{EXACT} : {_quoted(name)}" for name in _joined_names(query)]
    match = " OR ".join([*(term.match for term in terms), *names])
    rows = connection.execute(
        f"SELECT rowid, {score} FROM words WHERE words MATCH ? {restriction} ORDER BY 2, 1 LIMIT ?",
        (match, *ids, count),
    )
    scores = {row: -score for row, score in rows}
    coverage = query_coverage(connection, query, [*scores])
    ranking = [
        (row, scores[row] * (1 + covered.share))
        for row, covered in zip(scores, coverage, strict=True)
    ]
    return sorted(ranking, key=lambda ranked: (-ranked[1], ranked[0]))


def languages_of(connection: sqlite3.Connection) -> tuple[str, ...]:
    """Return the languages of all documents, the most frequent first."""
    query = "SELECT language FROM documents GROUP BY language ORDER BY count(*) DESC, language"
    return tuple(language for (language,) in connection.execute(query))


class Coverage(NamedTuple):
    """The words of a query that a chunk contains, and their share."""

    share: float  # 0 to 1; content words of the query, by inverse document frequency
    found: tuple[str, ...]  # content words that it contains, in lower case
    missing: tuple[str, ...]  # the others
    has_rare_word: bool  # one that it contains is in few chunks


def query_coverage(
    connection: sqlite3.Connection, query: str, rows: Sequence[int]
) -> list[Coverage]:
    """Return how much of a query each row contains.

    If no word is a content word, all of them count.
    """
    (total,) = connection.execute("SELECT count(*) FROM chunks").fetchone()
    terms = query_terms(query, languages_of(connection))
    content = [term for term in terms if term.is_content] or terms
    weights: dict[str, float] = {}
    rare: set[str] = set()
    found: dict[int, list[str]] = {row: [] for row in rows}
    row_list = ", ".join(map(str, rows))
    for term in content:
        word = term.word.lower()
        count = "SELECT count(*) FROM words WHERE words MATCH ?"
        (frequency,) = connection.execute(count, (term.match,)).fetchone()
        weights[word] = log(1 + (total + 1) / (frequency + 0.5))
        if frequency <= MAX_RARE_CHUNKS and len(word) > 1:
            rare.add(word)
        matching = f"SELECT rowid FROM words WHERE words MATCH ? AND +rowid IN ({row_list})"
        for (row,) in connection.execute(matching, (term.match,)):
            found[row].append(word)
    whole = sum(weights.values())
    return [
        Coverage(
            sum(weights[word] for word in found[row]) / whole if whole else 0.0,
            tuple(found[row]),
            tuple(word for word in weights if word not in found[row]),
            not rare.isdisjoint(found[row]),
        )
        for row in rows
    ]
