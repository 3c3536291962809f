"""Chunks found by meaning: their vectors are kept beside them and compared exactly.

The function that makes vectors is handed in; `local` makes one of a model2vec model in a folder,
with the extra `draftline[embed]`. Nothing is downloaded.
"""

from __future__ import annotations

import sqlite3
import threading
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Vectors = NDArray[np.float32]  # one row each
Embed = Callable[[list[str]], Vectors]
Session = Callable[[bool], AbstractContextManager[sqlite3.Connection]]  # whether it writes
Ranked = tuple[int, float]  # row of a chunk, score

SCHEMA = "CREATE TABLE vectors (row INTEGER PRIMARY KEY, vector BLOB NOT NULL);"
BATCH = 64  # chunks embedded at once
PROBE = "Which text is this about?"  # its vector, kept at row 0, tells one model from another
FUSED = 60  # reciprocal rank fusion: a list gives 1 / (60 + rank), as its authors found good


def local(folder: Path) -> Embed:
    """A static model (model2vec) in a folder. ValueError where it cannot be had."""
    try:
        from model2vec import StaticModel
    except ImportError as error:
        raise ValueError(f"{folder}: needs model2vec; `pip install 'draftline[embed]'`") from error
    if not (folder / "config.json").is_file():  # else it would be looked for on the hub
        raise ValueError(f"{folder}: no model2vec model; name a folder with its config.json")
    model = StaticModel.from_pretrained(folder)

    def embed(texts: list[str]) -> Vectors:
        return np.asarray(model.encode(texts), np.float32)

    return embed


def fused(*lists: Sequence[Ranked]) -> list[Ranked]:
    """Several lists, best first, as one: what stands high in any of them stands high."""
    scores: defaultdict[int, float] = defaultdict(float)
    for each in lists:
        for rank, (row, _) in enumerate(each, start=1):
            scores[row] += 1 / (FUSED + rank)
    return sorted(scores.items(), key=lambda one: (-one[1], one[0]))


class Meaning:
    """The vectors of all chunks of a file, by one function. Any thread may call."""

    def __init__(self, embed: Embed, session: Session) -> None:
        self._embed = embed
        self._session = session
        self._lock = threading.RLock()
        self._known = (-1, -1)  # the chunks that are in memory: how many, the newest
        self._rows: NDArray[np.int64] = np.empty(0, np.int64)
        self._matrix: Vectors = np.empty((0, 0), np.float32)

    def nearest(self, query: str, count: int, among: Sequence[str] | None = None) -> list[Ranked]:
        """The chunks most like a query; `among`: of these documents."""
        with self._lock:
            self.refresh()
            rows, matrix = self._rows, self._matrix
        if not len(rows) or not query.strip():
            return []
        alike = matrix @ self._made([query])[0]
        if among is not None:
            alike[~np.isin(rows, self._rows_of(among))] = -np.inf
        best = np.argsort(-alike, kind="stable")[:count]
        return [(int(rows[at]), float(alike[at])) for at in best if alike[at] > -np.inf]

    def refresh(self) -> None:
        """Embed the chunks that have no vector yet, and take all vectors into memory."""
        with self._lock:
            if self._state() == self._known:
                return
            if self._known[0] < 0:
                self._same_model()
            while texts := self._missing():
                vectors = self._made([text for _, text in texts])
                pairs = zip(texts, vectors, strict=True)
                with self._session(True) as connection:
                    connection.executemany(
                        "INSERT OR REPLACE INTO vectors "
                        "SELECT row, ? FROM chunks WHERE row = ?",  # it may have been removed
                        [(vector.tobytes(), row) for (row, _), vector in pairs],
                    )
            self._known = self._state()
            with self._session(False) as connection:
                found = connection.execute(
                    "SELECT row, vector FROM vectors WHERE row > 0 ORDER BY row"
                ).fetchall()
            self._rows = np.array([row for row, _ in found], np.int64)
            self._matrix = np.array([np.frombuffer(vector, np.float32) for _, vector in found])

    def _state(self) -> tuple[int, int]:
        """Changes whenever a chunk comes or goes, since no row is used twice."""
        with self._session(False) as connection:
            count, newest = connection.execute(
                "SELECT count(*), ifnull(max(row), 0) FROM chunks"
            ).fetchone()
        return int(count), int(newest)

    def _same_model(self) -> None:
        """Forget the vectors where another model made them."""
        probe = self._made([PROBE])[0]
        with self._session(True) as connection:
            row = connection.execute("SELECT vector FROM vectors WHERE row = 0").fetchone()
            kept = np.frombuffer(row[0] if row else b"", np.float32)
            if kept.shape != probe.shape or not np.allclose(kept, probe, atol=1e-3):
                connection.execute("DELETE FROM vectors")
                connection.execute("INSERT INTO vectors VALUES (0, ?)", (probe.tobytes(),))

    def _missing(self) -> list[tuple[int, str]]:
        """Some chunks without a vector, with what they say."""
        with self._session(False) as connection:
            return connection.execute(
                "SELECT c.row, c.heading || char(10) || w.text "
                "FROM chunks AS c JOIN words AS w ON w.rowid = c.row "
                f"WHERE c.row NOT IN (SELECT row FROM vectors) LIMIT {BATCH}"
            ).fetchall()

    def _rows_of(self, documents: Sequence[str]) -> list[int]:
        marks = ", ".join("?" * len(documents))
        query = f"SELECT row FROM chunks WHERE document IN ({marks})"
        with self._session(False) as connection:
            return [row for (row,) in connection.execute(query, tuple(documents))]

    def _made(self, texts: list[str]) -> Vectors:
        """Vectors of length 1."""
        vectors = np.asarray(self._embed(texts), np.float32)
        if vectors.ndim != 2 or len(vectors) != len(texts):
            raise ValueError(f"embed: {len(texts)} texts gave {vectors.shape}; one row each")
        length = np.linalg.norm(vectors, axis=1, keepdims=True)
        length[length == 0] = 1
        scaled: Vectors = vectors / length
        return scaled
