"""Text to token ids, never the same text twice.

A file's ids are kept on disk by the digest of its text, for each tokenizer apart; those of an open
buffer in memory, by chunk. It reads no source files and knows nothing of paths or of what changed.
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

from index.workspace.token_db import Kept

Ids = NDArray[np.int32]

LEAST, MOST = 256, 4096  # characters of a chunk, where the text lets it be cut
ONE_IN = 16  # of the places where a text may be cut, one in so many is
CONTEXT = 32  # characters before a place that decide whether it is one
BATCH = 4 << 20  # characters handed to the encoder at once: its answers take 30 times as much
RECENT = 4 << 20  # characters of open buffers' chunks whose ids stay in memory

# A line may be followed by a cut where tokenizers split a text in any case: after its "\n" between
# two characters that are not white (some take slashes along with a line end), else before its end
# after a letter or digit. Where no line may: after the first word of one.
LINE = re.compile(r"\n(?:(?P<after>(?<=\S\n)(?=[^\s/]))|(?<=[0-9A-Za-z]\n)|(?<=[0-9A-Za-z]\r\n))")
WORD = re.compile(r"\n[ \t]*+\S++(?=[ \t])")

# A text in pieces as these cuts make them: a tokenizer is asked whether it splits there.
SPLITS = ["a1", "\n\n  b):\n", "c;\n", "'d e\n", "f", " =\n\tg", "\r\n \r\nh)\n", "\u00e9 i"]

log = logging.getLogger(__name__)


class Encoder(Protocol):
    """Text to token ids; the engine's tokenizer is one. Ids are int32, nothing is added to them."""

    @property
    def fingerprint(self) -> str:
        """Of the tokenizer: where it is the same, so are the ids of a text."""
        ...

    @property
    def byte_lengths(self) -> NDArray[np.int32]:
        """UTF-8 bytes that each id decodes to, by id; -1 where that is not fixed."""
        ...

    def encode_batch(self, texts: list[str]) -> list[Ids]:
        """The ids of each text."""
        ...

    def encode_with_offsets(self, text: str) -> tuple[Ids, NDArray[np.int64]]:
        """Ids, and where each starts in `text`, in code points."""
        ...

    def places(self, ids: Ids) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The code points that each token covers, also in part: starts and stops, from 0. For ids
        whose bytes add up to a text."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Encoded:
    """A text's ids."""

    ids: Ids
    starts: NDArray[np.int32] | None  # only where the ids' bytes do not add up to the text: the
    # code point at which each token starts, and the text's length


def digest(text: str) -> bytes:
    """16 bytes that stand for a text."""
    return blake2b(text.encode(), digest_size=16).digest()


def chunks(text: str) -> list[str]:
    """A text in pieces of one to two thousand characters, whose ids together are the text's. Which
    places are cuts depends on the text just before them: an edit changes the pieces around it."""
    parts: list[str] = []
    start = 0
    while len(text) - start > MOST:
        stop = _cut(text, start)
        parts.append(text[start:stop])
        start = stop
    if start < len(text):
        parts.append(text[start:])
    return parts


def _cut(text: str, start: int) -> int:
    """Where the chunk from `start` ends: LEAST to MOST characters on, or later, where it can."""
    least, most = start + LEAST, start + MOST
    while True:
        for places in (_line_cuts, _word_cuts):
            best, lowest = 0, 1 << 32
            for place in places(text, least, most):
                mark = crc32(text[place - CONTEXT : place].encode("utf-8", "replace"))
                if mark % ONE_IN == 0:
                    return place
                if mark < lowest:
                    best, lowest = place, mark
            if best:
                return best
        if most >= len(text):
            return len(text)
        most += most - start


def _line_cuts(text: str, least: int, most: int) -> Iterator[int]:
    for line in LINE.finditer(text, least, most):
        at = line.start()
        yield at + 1 if line.lastgroup else at - (text[at - 1] == "\r")


def _word_cuts(text: str, least: int, most: int) -> Iterator[int]:
    return (word.end() for word in WORD.finditer(text, least, most))


class Tokens:
    """Encodes by way of the caches. Any thread may call it."""

    def __init__(self, encoder: Encoder, folder: Path | None, limit: int = 512 << 20) -> None:
        """`folder`: where the file of ids is kept, None for none; `limit`: its bytes."""
        self.hits = self.misses = 0  # texts that `encode` found, and those that it tokenised
        self._encoder = encoder
        self._kept = None
        if folder is not None:
            self._kept = Kept(folder / f"{digest(encoder.fingerprint).hex()}.sqlite", limit)
        self._lock = threading.Lock()
        self._recent: OrderedDict[str, Encoded] = OrderedDict()  # by chunk, used last comes last
        self._room = RECENT

    def encode(self, texts: Sequence[str]) -> list[Encoded]:
        """The ids of whole files: kept ones where there are, and kept from now on."""
        keys = [digest(text) for text in texts]
        by_key = dict(zip(keys, texts, strict=True))
        rows = self._kept.find(by_key) if self._kept else {}
        found = {key: Encoded(*row) for key, row in rows.items()}
        known = {key: one for key, one in found.items() if self._fits(by_key[key], one)}
        missing = {key: text for key, text in by_key.items() if key not in known}
        parts = [self._parts(text) for text in missing.values()]
        pieces = iter(self._tokenise([part for some in parts for part in some]))
        fresh = {
            key: _joined(self._encoder, some, [next(pieces) for _ in some])
            for key, some in zip(missing, parts, strict=True)
        }
        if self._kept:
            self._kept.note(known, {key: (one.ids, one.starts) for key, one in fresh.items()})
        with self._lock:
            self.hits += len(texts) - len(fresh)
            self.misses += len(fresh)
        known |= fresh
        return [known[key] for key in keys]

    def encode_buffer(self, text: str) -> Encoded:
        """As `encode`, for a text that changes a little each time: only chunks not seen lately are
        tokenised. Nothing is put on disk."""
        parts = self._parts(text)
        with self._lock:
            known = {part: self._recent[part] for part in parts if part in self._recent}
        missing = list(dict.fromkeys(part for part in parts if part not in known))
        known.update(zip(missing, self._tokenise(missing), strict=True))
        with self._lock:
            for part, one in known.items():
                if part not in self._recent:
                    self._room -= len(part)
                self._recent[part] = one
                self._recent.move_to_end(part)
            while self._room < 0 and len(self._recent) > len(known):
                self._room += len(self._recent.popitem(last=False)[0])
        return _joined(self._encoder, parts, [known[part] for part in parts])

    def flush(self) -> None:
        """Put on disk what is to be kept; it is done in the background else."""
        if self._kept:
            self._kept.write()

    def nbytes(self) -> int:
        """Of the file on disk."""
        return self._kept.nbytes() if self._kept else 0

    def clear(self) -> None:
        """Forget all ids of this tokenizer, on disk too."""
        with self._lock:
            self._recent.clear()
            self._room = RECENT
        if self._kept:
            self._kept.clear()

    def close(self) -> None:
        """Write and let go of the file; from then on nothing is kept on disk."""
        if self._kept:
            self._kept.close()

    @cached_property
    def _apart(self) -> bool:
        """Whether pieces of a text have the same ids as the text."""
        *parts, whole = self._encoder.encode_batch([*SPLITS, "".join(SPLITS)])
        if np.array_equal(np.concatenate(parts), whole):
            return True
        log.info("this tokenizer does not split at line ends: texts are tokenised as a whole")
        return False

    def _parts(self, text: str) -> list[str]:
        return chunks(text) if self._apart or not text else [text]

    def _tokenise(self, parts: list[str]) -> list[Encoded]:
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
        """Whether ids can be those of a text."""
        by_id = self._encoder.byte_lengths
        if len(one.ids) and not 0 <= one.ids.min() <= one.ids.max() < len(by_id):
            return False
        if one.starts is None:
            lengths, size = by_id[one.ids], len(text if text.isascii() else text.encode())
            return bool((lengths >= 0).all()) and int(lengths.sum()) == size
        starts, length = one.starts, len(text)
        return bool(
            len(starts) == len(one.ids) + 1
            and starts[-1] == length
            and 0 <= starts.min() <= starts.max() <= length
        )


def _batches(parts: list[str]) -> Iterator[list[str]]:
    """Texts in runs of about BATCH characters."""
    batch: list[str] = []
    size = 0
    for part in parts:
        batch.append(part)
        size += len(part)
        if size >= BATCH:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _joined(encoder: Encoder, parts: list[str], pieces: list[Encoded]) -> Encoded:
    """The ids of a text from those of its chunks."""
    if len(pieces) == 1:
        return pieces[0]
    ids = np.concatenate([one.ids for one in pieces] or [np.zeros(0, np.int32)])
    if all(one.starts is None for one in pieces):
        return Encoded(ids, None)
    starts, before = [], 0
    for part, one in zip(parts, pieces, strict=True):
        own = encoder.places(one.ids)[0] if one.starts is None else one.starts[:-1]
        starts.append(own + before)
        before += len(part)
    return Encoded(ids, np.append(np.concatenate(starts), before).astype(np.int32))
