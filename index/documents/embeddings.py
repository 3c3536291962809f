"""Vector search over chunks: exact cosine similarity, fused with keyword search by rank.

The embedding function is injected; `load_model2vec` makes one from a model2vec model in a folder,
which needs the extra `draftline[embed]`. Nothing is downloaded.
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

Vectors = NDArray[np.float32]  # [texts, dimensions]
Embed = Callable[[list[str]], Vectors]
Session = Callable[[bool], AbstractContextManager[sqlite3.Connection]]  # argument: whether to write
Ranked = tuple[int, float]  # row of a chunk, score

SCHEMA = "CREATE TABLE vectors (row INTEGER PRIMARY KEY, vector BLOB NOT NULL);"
EMBED_BATCH = 64  # chunks embedded at once
PROBE = "Which text is this about?"  # its vector, stored in row 0, identifies the embedding model
RRF_K = 60


def load_model2vec(folder: Path) -> Embed:
    """The static embedding model in `folder`. Raises ValueError if there is none."""
    try:
        from model2vec import StaticModel
    except ImportError as error:
        raise ValueError(f"{folder}: needs model2vec; `pip install 'draftline[embed]'`") from error
    if not (folder / "config.json").is_file():  # else model2vec would look on the hub
        raise ValueError(f"{folder}: no model2vec model; name a folder with its config.json")
    model = StaticModel.from_pretrained(folder)

    def embed(texts: list[str]) -> Vectors:
        return np.asarray(model.encode(texts), np.float32)

    return embed


def fuse_ranks(*rankings: Sequence[Ranked]) -> list[Ranked]:
    """Reciprocal rank fusion (Cormack et al., 2009) of rankings, each best first."""
    scores: defaultdict[int, float] = defaultdict(float)
    for ranking in rankings:
        for rank, (row, _) in enumerate(ranking, start=1):
            scores[row] += 1 / (RRF_K + rank)
    return sorted(scores.items(), key=lambda one: (-one[1], one[0]))


class VectorIndex:
    """The vectors of all chunks, by one embedding function. Thread-safe."""

    def __init__(self, embed: Embed, session: Session) -> None:
        self._embed = embed
        self._session = session
        self._lock = threading.RLock()
        self._loaded = (-1, -1)  # `_state` of the vectors in memory
        self._rows: NDArray[np.int64] = np.empty(0, np.int64)
        self._matrix: Vectors = np.empty((0, 0), np.float32)

    def nearest(self, query: str, count: int, among: Sequence[str] | None = None) -> list[Ranked]:
        """The chunks most similar to a query. `among`: ids of documents, None for all."""
        with self._lock:
            self.refresh()
            rows, matrix = self._rows, self._matrix
        if not len(rows) or not query.strip():
            return []
        similarity = matrix @ self._unit_vectors([query])[0]
        if among is not None:
            similarity[~np.isin(rows, self._rows_of(among))] = -np.inf
        best = np.argsort(-similarity, kind="stable")[:count]
        return [(int(rows[at]), float(similarity[at])) for at in best if similarity[at] > -np.inf]

    def refresh(self) -> None:
        """Embed the chunks that have no vector yet, and load all vectors into memory."""
        with self._lock:
            if self._state() == self._loaded:
                return
            if self._loaded[0] < 0:
                self._drop_vectors_of_another_model()
            last = 0
            while chunks := self._chunks_without_vector(last):
                last = chunks[-1][0]
                vectors = self._unit_vectors([text for _, text in chunks])
                pairs = zip(chunks, vectors, strict=True)
                with self._session(True) as connection:
                    connection.executemany(
                        "INSERT OR REPLACE INTO vectors "
                        "SELECT row, ? FROM chunks WHERE row = ?",  # it may have been removed
                        [(vector.tobytes(), row) for (row, _), vector in pairs],
                    )
            self._loaded = self._state()
            with self._session(False) as connection:
                stored = connection.execute(
                    "SELECT row, vector FROM vectors WHERE row > 0 ORDER BY row"
                ).fetchall()
            self._rows = np.array([row for row, _ in stored], np.int64)
            self._matrix = np.array([np.frombuffer(vector, np.float32) for _, vector in stored])

    def _state(self) -> tuple[int, int]:
        """Changes whenever a chunk is added or removed, since row numbers are never reused."""
        with self._session(False) as connection:
            count, newest = connection.execute(
                "SELECT count(*), ifnull(max(row), 0) FROM chunks"
            ).fetchone()
        return int(count), int(newest)

    def _drop_vectors_of_another_model(self) -> None:
        probe = self._unit_vectors([PROBE])[0]
        with self._session(True) as connection:
            row = connection.execute("SELECT vector FROM vectors WHERE row = 0").fetchone()
            stored = np.frombuffer(row[0] if row else b"", np.float32)
            if stored.shape != probe.shape or not np.allclose(stored, probe, atol=1e-3):
                connection.execute("DELETE FROM vectors")
                connection.execute("INSERT INTO vectors VALUES (0, ?)", (probe.tobytes(),))

    def _chunks_without_vector(self, after: int) -> list[tuple[int, str]]:
        """Up to EMBED_BATCH of them in rows above `after`: row, and heading and text."""
        with self._session(False) as connection:
            return connection.execute(
                "SELECT c.row, c.heading || char(10) || w.text "
                "FROM chunks AS c JOIN words AS w ON w.rowid = c.row "
                "WHERE c.row > ? AND NOT EXISTS (SELECT 1 FROM vectors WHERE row = c.row) "
                f"ORDER BY c.row LIMIT {EMBED_BATCH}",
                (after,),
            ).fetchall()

    def _rows_of(self, documents: Sequence[str]) -> list[int]:
        marks = ", ".join("?" * len(documents))
        query = f"SELECT row FROM chunks WHERE document IN ({marks})"
        with self._session(False) as connection:
            return [row for (row,) in connection.execute(query, tuple(documents))]

    def _unit_vectors(self, texts: list[str]) -> Vectors:
        """[texts, dimensions], each row of length 1."""
        vectors = np.asarray(self._embed(texts), np.float32)
        if vectors.ndim != 2 or len(vectors) != len(texts):
            raise ValueError(
                f"embed: {len(texts)} texts gave an array of shape {vectors.shape}; "
                "expected one row per text"
            )
        length = np.linalg.norm(vectors, axis=1, keepdims=True)
        length[length == 0] = 1
        scaled: Vectors = vectors / length
        return scaled
