"""Tokenizes texts through caches, so that no text is tokenized twice.

The ids of files are kept on disk, keyed by the digest of the text, with one database per tokenizer.
The ids of open buffers are kept in memory by content-defined chunk. No source file is read here.
"""

from __future__ import annotations

import logging
import re
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from typing import Protocol
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from index.cache_folder import MAX_TOKEN_DB_BYTES
from index.workspace.token_db import TokenDB

Ids = NDArray[np.int32]

MIN_CHUNK_CHARS, MAX_CHUNK_CHARS = 256, 4096  # characters; more if the text has no place to cut
CUT_EVERY = 16  # possible cuts, of which one is taken
CUT_CONTEXT_CHARS = 32  # characters; those before a possible cut decide whether it is taken
ENCODE_BATCH_CHARS = 4 << 20  # characters per encoder call; its result takes 30 times the memory
RECENT_CHUNK_CHARS = 4 << 20  # characters of open buffers' chunks in memory

# Places where tokenizers split a text anyway. At a line end: after its "\n" between two characters
# that are not white space (some tokenizers join slashes to a line end), else before the line end
# after a letter or digit. In a text without such lines: after the first word of a line.
LINE_CUT = re.compile(
    r"\n(?:(?P<after>(?<=\S\n)(?=[^\s/]))|(?<=[0-9A-Za-z]\n)|(?<=[0-9A-Za-z]\r\n))"
)
WORD_CUT = re.compile(r"\n[ \t]*+\S++(?=[ \t])")

# A text split at such places; tells whether a tokenizer does split there.
SPLIT_PROBE = [
    "a1", "\n\n  b):\n", "c;\n", "'d e\n", "f", " =\n\tg", "\r\n \r\nh)\n", "\u00e9 i",
]  # fmt: skip

log = logging.getLogger(__name__)


class Encoder(Protocol):
    """A tokenizer, such as the engine's. Ids are int32, without special tokens."""

    @property
    def fingerprint(self) -> str:
        """Identifies the tokenizer: equal fingerprints mean equal ids for every text."""
        ...

    @property
    def byte_lengths(self) -> NDArray[np.int32]:
        """The number of UTF-8 bytes of each id; -1 if that depends on its neighbours."""
        ...

    @property
    def token_bytes(self) -> Sequence[bytes | None]:
        """The bytes of each id. Requested only for ids whose length is not -1."""
        ...

    def encode_batch(self, texts: list[str]) -> list[Ids]:
        """Return the ids of each text."""
        ...

    def encode_with_offsets(self, text: str) -> tuple[Ids, NDArray[np.int64]]:
        """Return the ids, and the offset in code points at which each starts in `text`."""
        ...

    def places(self, ids: Ids) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the code points that each token covers, even in part: starts and stops, from 0.

        The ids' bytes must add up to a text.
        """
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Encoded:
    """The ids of a text."""

    ids: Ids
    # The code point at which each token starts, then the text's length; None if the ids' bytes add
    # up to the text
    starts: NDArray[np.int32] | None


def digest(text: str) -> bytes:
    """16 bytes that identify a text."""
    return blake2b(text.encode(), digest_size=16).digest()


def chunks(text: str) -> list[str]:
    """Content-defined chunks of one to two thousand characters whose ids, joined, are the text's.

    A cut depends only on the text just before it, so an edit changes only the chunks around it.
    """
    parts: list[str] = []
    start = 0
    while len(text) - start > MAX_CHUNK_CHARS:
        stop = _cut(text, start)
        parts.append(text[start:stop])
        start = stop
    if start < len(text):
        parts.append(text[start:])
    return parts


def _cut(text: str, start: int) -> int:
    """Find the end of the chunk from `start`, MIN_CHUNK_CHARS to MAX_CHUNK_CHARS on if possible."""
    first, last = start + MIN_CHUNK_CHARS, start + MAX_CHUNK_CHARS
    while True:
        for cuts in (_line_cuts, _word_cuts):
            best, lowest = 0, 1 << 32
            for cut in cuts(text, first, last):
                checksum = crc32(text[cut - CUT_CONTEXT_CHARS : cut].encode("utf-8", "replace"))
                if checksum % CUT_EVERY == 0:
                    return cut
                if checksum < lowest:
                    best, lowest = cut, checksum
            if best:
                return best
        if last >= len(text):
            return len(text)
        last += last - start


def _line_cuts(text: str, first: int, last: int) -> Iterator[int]:
    for line in LINE_CUT.finditer(text, first, last):
        at = line.start()
        yield at + 1 if line.lastgroup else at - (text[at - 1] == "\r")


def _word_cuts(text: str, first: int, last: int) -> Iterator[int]:
    return (word.end() for word in WORD_CUT.finditer(text, first, last))


class TokenCache:
    """An encoder with caches, safe to use from any thread."""

    def __init__(
        self, encoder: Encoder, folder: Path | None, limit: int = MAX_TOKEN_DB_BYTES
    ) -> None:
        """Open the cache. `folder`: the database's, None for none; `limit`: its size in bytes."""
        self.hits = self.misses = 0  # texts that `encode` found, and that it tokenized
        self._encoder = encoder
        self._db = None
        if folder is not None:
            self._db = TokenDB(folder / f"{digest(encoder.fingerprint).hex()}.sqlite", limit)
        self._lock = threading.Lock()
        self._recent: OrderedDict[str, Encoded] = OrderedDict()  # by chunk, oldest use first
        self._recent_capacity = RECENT_CHUNK_CHARS

    def encode(self, texts: Sequence[str]) -> list[Encoded]:
        """Return the ids of whole files, through the database."""
        keys = [digest(text) for text in texts]
        by_key = dict(zip(keys, texts, strict=True))
        rows = self._db.find(by_key) if self._db else {}
        found = {key: Encoded(*row) for key, row in rows.items()}
        known = {key: one for key, one in found.items() if self._fits(by_key[key], one)}
        missing = {key: text for key, text in by_key.items() if key not in known}
        parts = [self._parts(text) for text in missing.values()]
        pieces = iter(self._tokenize([part for some in parts for part in some]))
        fresh = {
            key: _joined(self._encoder, some, [next(pieces) for _ in some])
            for key, some in zip(missing, parts, strict=True)
        }
        if self._db:
            self._db.note(known, {key: (one.ids, one.starts) for key, one in fresh.items()})
        with self._lock:
            self.hits += len(texts) - len(fresh)
            self.misses += len(fresh)
        known |= fresh
        return [known[key] for key in keys]

    def encode_buffer(self, text: str) -> Encoded:
        """Return the ids of a text that is edited: only new chunks are tokenized.

        Nothing is saved.
        """
        parts = self._parts(text)
        with self._lock:
            known = {part: self._recent[part] for part in parts if part in self._recent}
        missing = list(dict.fromkeys(part for part in parts if part not in known))
        known.update(zip(missing, self._tokenize(missing), strict=True))
        with self._lock:
            for part, one in known.items():
                if part not in self._recent:
                    self._recent_capacity -= len(part)
                self._recent[part] = one
                self._recent.move_to_end(part)
            while self._recent_capacity < 0 and len(self._recent) > len(known):
                self._recent_capacity += len(self._recent.popitem(last=False)[0])
        return _joined(self._encoder, parts, [known[part] for part in parts])

    def flush(self) -> None:
        """Write new ids to the database now instead of in the background. Blocks."""
        if self._db:
            self._db.write()

    def nbytes(self) -> int:
        """Bytes of the database."""
        return self._db.nbytes() if self._db else 0

    def clear(self) -> None:
        """Forget all ids of this tokenizer, including those on disk."""
        with self._lock:
            self._recent.clear()
            self._recent_capacity = RECENT_CHUNK_CHARS
        if self._db:
            self._db.clear()

    def close(self) -> None:
        """Write new ids, and close the database. Blocks."""
        if self._db:
            self._db.close()

    @cached_property
    def _chunks_tokenize_alike(self) -> bool:
        """Return whether the joined ids of a text's chunks are the text's ids."""
        *parts, whole = self._encoder.encode_batch([*SPLIT_PROBE, "".join(SPLIT_PROBE)])
        if np.array_equal(np.concatenate(parts), whole):
            return True
        log.info("this tokenizer does not split at line ends: texts are tokenized whole")
        return False

    def _parts(self, text: str) -> list[str]:
        return chunks(text) if self._chunks_tokenize_alike or not text else [text]

    def _tokenize(self, parts: list[str]) -> list[Encoded]:
        if not (self._encoder.byte_lengths >= 0).any():
            return [self._with_starts(part) for part in parts]
        done: list[Encoded] = []
        for batch in _batches(parts):
            for part, ids in zip(batch, self._encoder.encode_batch(batch), strict=True):
                one = Encoded(ids, None)
                done.append(one if self._fits(part, one) else self._with_starts(part))
        return done

    def _with_starts(self, part: str) -> Encoded:
        ids, starts = self._encoder.encode_with_offsets(part)
        return Encoded(ids, np.append(starts, len(part)).astype(np.int32))

    def _fits(self, text: str, one: Encoded) -> bool:
        """Return whether these can be the ids of a text."""
        by_id = self._encoder.byte_lengths
        if len(one.ids) and not 0 <= one.ids.min() <= one.ids.max() < len(by_id):
            return False
        if one.starts is None:
            return self._adds_up(text, one.ids)
        starts, length = one.starts, len(text)
        return bool(
            len(starts) == len(one.ids) + 1
            and starts[-1] == length
            and 0 <= starts.min() <= starts.max() <= length
        )

    def _adds_up(self, text: str, ids: Ids) -> bool:
        """Return whether the ids' bytes are the text's, which normalization may have changed."""
        lengths = self._encoder.byte_lengths[ids]
        if len(ids) and lengths.min() < 0:
            return False
        if text.isascii():
            return int(lengths.sum()) == len(text)
        # Among composed and decomposed characters, one may lose as many bytes as another gains.
        by_id = self._encoder.token_bytes
        return b"".join(by_id[token] or b"" for token in ids.tolist()) == text.encode()


def _batches(parts: list[str]) -> Iterator[list[str]]:
    """Texts in batches of about ENCODE_BATCH_CHARS."""
    batch: list[str] = []
    size = 0
    for part in parts:
        batch.append(part)
        size += len(part)
        if size >= ENCODE_BATCH_CHARS:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _joined(encoder: Encoder, parts: list[str], pieces: list[Encoded]) -> Encoded:
    """Join the ids of a text's chunks."""
    if len(pieces) == 1:
        return pieces[0]
    ids = np.concatenate([piece.ids for piece in pieces] or [np.zeros(0, np.int32)])
    if all(piece.starts is None for piece in pieces):
        return Encoded(ids, None)
    starts, before = [], 0
    for part, piece in zip(parts, pieces, strict=True):
        own = encoder.places(piece.ids)[0] if piece.starts is None else piece.starts[:-1]
        starts.append(own + before)
        before += len(part)
    return Encoded(ids, np.append(np.concatenate(starts), before).astype(np.int32))
