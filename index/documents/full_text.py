"""Keyword search over chunks: SQLite's FTS5 ranked by BM25, with identifiers split into words.

A query is built from single quoted words, so nothing that a user writes is FTS5 syntax.
"""

from __future__ import annotations

import re
import sqlite3
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from math import log

from index.documents.chunking import Chunk

# `parts` holds words that the tokenizer does not split: camelCase, and scripts without spaces.
SCHEMA = """
CREATE VIRTUAL TABLE words USING fts5(
    text, heading, name, parts, tokenize = "porter unicode61 remove_diacritics 2"
);
"""
COLUMN_WEIGHTS = (1.0, 1.0, 0.5, 0.7)
MAX_QUERY_TERMS = 64
MAX_QUERY_CHARS = 256 << 10  # the rest of a query is ignored
MAX_COMPOUND_CHARS = 200  # of a joined name that is searched for whole

COMPOUND = re.compile(r"[^\W_]+(?:(?:[._/:-]{1,2}|->)[^\W_]+)*")  # os.path.join, max_size, a->b
WORD = re.compile(r"[^\W_]+")
SINGLE_HUMP = re.compile(r"[A-Z]?[a-z]*|[A-Z]+|\d+")
HUMP = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|\d+")
SPACELESS = re.compile(  # Thai, Lao, Khmer, kana, Chinese characters
    "[\u0e00-\u0eff\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
    "\U00020000-\U0003ffff]+"
)

STOP_WORDS = frozenset(
    re.findall(
        r"\w+",
        """a about an and any are as at be been but by can could did do does for from had has have
        he her his how i if in into is it its me my of on or our shall she should so than that the
        their them then there these they this those to us was we were what when where which who
        whom whose why will with would you your""",
    )
)
# Words that say what to do with a document, not what to look for in it.
GENERIC_WORDS = frozenset(
    re.findall(
        r"\w+",
        """answer answers author complete content contents describe description document documents
        exact exactly explain explanation file files find give introduction key list main mean
        meaning name overview page pages paper passage point points question quote read say says
        section show subject summarise summarize summary tell text thing things title topic topics
        word words write""",
    )
)

Ranked = tuple[int, float]  # row of a chunk, score


def insert(
    connection: sqlite3.Connection, chunks: Iterable[Chunk], name: str, rows: Iterable[int | None]
) -> None:
    """Index the chunks of document `name` under these rows."""
    connection.executemany(
        "INSERT INTO words (rowid, text, heading, name, parts) VALUES (?, ?, ?, ?, ?)",
        (
            (row, chunk.text, chunk.heading, name, " ".join(subwords(chunk.text)))
            for row, chunk in zip(rows, chunks, strict=True)
        ),
    )


def subwords(text: str) -> Iterator[str]:
    """Words inside words, which FTS5's tokenizer does not split."""
    for word in WORD.findall(text):
        if word.isascii():
            if not SINGLE_HUMP.fullmatch(word):
                yield from _humps(word)
        else:
            for run in SPACELESS.findall(word):
                yield from run


def _humps(word: str) -> list[str]:
    """camelCase -> camel, Case; nothing for a word that is not split."""
    humps = HUMP.findall(word)
    return humps if len(humps) > 1 else []


def _normalized(query: str) -> str:
    return unicodedata.normalize("NFC", query[:MAX_QUERY_CHARS])


def query_words(query: str) -> list[str]:
    """The distinct words of a query, without stop words unless there are no others."""
    words: dict[str, str] = {}
    for word in WORD.findall(_normalized(query)):
        runs = SPACELESS.findall(word)
        pairs = [" ".join(run[at : at + 2]) for run in runs for at in range(max(1, len(run) - 1))]
        for each in pairs or [*(_humps(word) if word.isascii() else []), word]:
            words.setdefault(each.lower(), each)
    telling = [word for low, word in words.items() if low not in STOP_WORDS]
    return (telling or list(words.values()))[:MAX_QUERY_TERMS]


def _compounds(query: str) -> list[str]:
    """Identifiers and other joined words of a query, to be searched for whole."""
    words = dict.fromkeys(COMPOUND.findall(_normalized(query)))
    compounds = [word for word in words if not WORD.fullmatch(word)]
    return [word for word in compounds if len(word) < MAX_COMPOUND_CHARS][:MAX_QUERY_TERMS]


def _any_of(words: Sequence[str]) -> str:
    """An FTS5 query for any of the words; inside quotes nothing is syntax."""
    return " OR ".join('"' + word.replace('"', " ") + '"' for word in words)


def search(
    connection: sqlite3.Connection, query: str, count: int, among: Sequence[str] | None = None
) -> list[Ranked]:
    """The `count` best chunks by BM25. `among`: ids of the documents to search, None for all."""
    words = query_words(query)
    if not words:
        return []
    score = f"bm25(words, {', '.join(map(str, COLUMN_WEIGHTS))})"
    restriction, ids = "", list(among or ())
    if among is not None:  # +: or SQLite would search once for each row
        marks = ", ".join("?" * len(ids))
        restriction = f"AND +rowid IN (SELECT row FROM chunks WHERE document IN ({marks}))"
    rows = connection.execute(
        f"SELECT rowid, {score} FROM words WHERE words MATCH ? {restriction} ORDER BY 2, 1 LIMIT ?",
        (_any_of([*words, *_compounds(query)]), *ids, count),
    )
    return [(row, -score) for row, score in rows]


def query_coverage(connection: sqlite3.Connection, query: str, rows: Sequence[int]) -> list[float]:
    """The share of a query's words that each row contains, 0 to 1, weighted by inverse document
    frequency. GENERIC_WORDS do not count, unless there are no others."""
    (total,) = connection.execute("SELECT count(*) FROM chunks").fetchone()
    covered, whole = dict.fromkeys(rows, 0.0), 0.0
    row_list = ", ".join(map(str, rows))
    words = query_words(query)
    for word in [one for one in words if one.lower() not in GENERIC_WORDS] or words:
        term = _any_of([word])
        count = "SELECT count(*) FROM words WHERE words MATCH ?"
        (frequency,) = connection.execute(count, (term,)).fetchone()
        weight = log(1 + (total + 1) / (frequency + 0.5))
        whole += weight
        matching = f"SELECT rowid FROM words WHERE words MATCH ? AND +rowid IN ({row_list})"
        for (row,) in connection.execute(matching, (term,)):
            covered[row] += weight
    return [covered[row] / whole if whole else 0.0 for row in rows]
