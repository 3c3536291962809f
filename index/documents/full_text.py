"""Chunks found by their words: SQLite's FTS5, with identifiers found by their parts.

A query is built from words alone, each of them quoted: nothing that a user writes is syntax. What a
document is, and whose connection this is, is not known here.
"""

from __future__ import annotations

import re
import sqlite3
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from math import log

from index.documents.chunking import Chunk

# `parts` has what the tokenizer would not cut: camelCase, and languages without spaces.
SCHEMA = """
CREATE VIRTUAL TABLE words USING fts5(
    text, heading, name, parts, tokenize = "porter unicode61 remove_diacritics 2"
);
"""
WEIGHTS = (1.0, 1.0, 0.5, 0.7)  # of these columns
TERMS = 64  # of a query that are looked for
LONGEST = 200  # characters of a name that is looked for whole

WORD = re.compile(r"[^\W_]+(?:(?:[._/:-]{1,2}|->)[^\W_]+)*")  # with what may join it inside
SIMPLE = re.compile(r"[^\W_]+")
SMOOTH = re.compile(r"[A-Z]?[a-z]*|[A-Z]+|\d+")  # it has one hump
HUMP = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|\d+")
SPACELESS = re.compile(  # Thai, Lao, Khmer, kana, Chinese characters
    "[\u0e00-\u0eff\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
    "\U00020000-\U0003ffff]+"
)

# Words of a question that say nothing of what it asks for.
STOP = frozenset(
    re.findall(
        r"\w+",
        """a about an and any are as at be been but by can could did do does for from had has have
        he her his how i if in into is it its me my of on or our shall she should so than that the
        their them then there these they this those to us was we were what when where which who
        whom whose why will with would you your""",
    )
)
# Words that say what is wanted of a document, not what about.
GENERAL = frozenset(
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
    """Let chunks of the document `name`, at these rows, be found."""
    connection.executemany(
        "INSERT INTO words (rowid, text, heading, name, parts) VALUES (?, ?, ?, ?, ?)",
        (
            (row, chunk.text, chunk.heading, name, " ".join(parts(chunk.text)))
            for row, chunk in zip(rows, chunks, strict=True)
        ),
    )


def parts(text: str) -> Iterator[str]:
    """The words inside words that FTS5 does not see."""
    for word in SIMPLE.findall(text):
        if word.isascii():
            if not SMOOTH.fullmatch(word):
                yield from _humps(word)
        else:
            for run in SPACELESS.findall(word):
                yield from run


def _humps(word: str) -> list[str]:
    """camelCase -> camel, Case."""
    found = HUMP.findall(word)
    return found if len(found) > 1 else []


def words_of(query: str) -> list[str]:
    """What a query asks for: its simple words, each once, without those that say nothing."""
    found: dict[str, str] = {}
    for word in SIMPLE.findall(unicodedata.normalize("NFC", query)):
        runs = SPACELESS.findall(word)
        pairs = [" ".join(run[at : at + 2]) for run in runs for at in range(max(1, len(run) - 1))]
        for each in pairs or [*(_humps(word) if word.isascii() else []), word]:
            found.setdefault(each.lower(), each)
    telling = [word for low, word in found.items() if low not in STOP]
    return (telling or list(found.values()))[:TERMS]


def _joined(query: str) -> list[str]:
    """Its identifiers and other words that are joined, to be found whole."""
    found = dict.fromkeys(WORD.findall(unicodedata.normalize("NFC", query)))
    return [word for word in found if len(word) < LONGEST and not SIMPLE.fullmatch(word)][:TERMS]


def _quoted(words: Sequence[str]) -> str:
    """An FTS5 query for any of some words; in quotes, nothing is syntax."""
    return " OR ".join('"' + word.replace('"', " ") + '"' for word in words)


def ranked(
    connection: sqlite3.Connection, query: str, count: int, among: Sequence[str] | None = None
) -> list[Ranked]:
    """The chunks that answer a query best, by their words; `among`: of these documents."""
    wanted = words_of(query)
    if not wanted:
        return []
    score = f"bm25(words, {', '.join(map(str, WEIGHTS))})"
    only, ids = "", list(among or ())
    if among is not None:  # +: or SQLite would search once for each of the rows
        marks = ", ".join("?" * len(ids))
        only = f"AND +rowid IN (SELECT row FROM chunks WHERE document IN ({marks}))"
    rows = connection.execute(
        f"SELECT rowid, {score} FROM words WHERE words MATCH ? {only} ORDER BY 2, 1 LIMIT ?",
        (_quoted([*wanted, *_joined(query)]), *ids, count),
    )
    return [(row, -score) for row, score in rows]


def shares(connection: sqlite3.Connection, query: str, rows: Sequence[int]) -> list[float]:
    """For each row, how much of a query it holds, 0 to 1: its words, but for GENERAL ones, weighed
    by their rarity. A word that no chunk has counts most."""
    (total,) = connection.execute("SELECT count(*) FROM chunks").fetchone()
    held, all_of_it = dict.fromkeys(rows, 0.0), 0.0
    only = ", ".join(map(str, rows))
    wanted = words_of(query)
    for word in [one for one in wanted if one.lower() not in GENERAL] or wanted:
        term = _quoted([word])
        count = "SELECT count(*) FROM words WHERE words MATCH ?"
        (having,) = connection.execute(count, (term,)).fetchone()
        weight = log(1 + (total + 1) / (having + 0.5))
        all_of_it += weight
        mine = f"SELECT rowid FROM words WHERE words MATCH ? AND +rowid IN ({only})"
        for (row,) in connection.execute(mine, (term,)):
            held[row] += weight
    return [held[row] / all_of_it if all_of_it else 0.0 for row in rows]
