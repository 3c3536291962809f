"""A tokenizer for models whose own is not known: words, numbers and runs of marks.

It has about as many tokens as a model's own, for those who count them, and every text is exactly
its pieces, for the index. Ids are given as pieces are first seen, so that they mean nothing to
another process.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Sequence
from typing import Any
from uuid import uuid4

import numpy as np

from engine.records import Message

PIECE = re.compile(r"[ \t]?[^\W\d_]{1,8}|\d{1,3}|[ ]?[^\w\s]{1,3}|_|\n[ \t]*|[^\S\n]+", re.DOTALL)
MESSAGE_TOKENS = 8  # tokens around the text of a message
FIRST_CAPACITY = 1 << 12  # pieces; doubled when they are more


class WordTokenizer:
    """Ids of texts and back, used from any thread."""

    def __init__(self) -> None:
        self.fingerprint = f"words {uuid4().hex}"
        self.token_bytes: list[bytes | None] = []  # indexed by id
        self._ids: dict[str, int] = {}
        self._pieces: list[str] = []
        self._bytes = np.zeros(FIRST_CAPACITY, np.int32)
        self._chars = np.zeros(FIRST_CAPACITY, np.int64)
        self._lock = threading.Lock()

    @property
    def byte_lengths(self) -> np.ndarray[Any, Any]:
        """UTF-8 bytes of each id's text (int32)."""
        return self._bytes

    def encode(self, text: str) -> list[int]:
        """Ids of a text."""
        known = self._ids
        return [
            known[piece] if piece in known else self._new(piece) for piece in PIECE.findall(text)
        ]

    def decode(self, ids: list[int]) -> str:
        return "".join(self._pieces[id] for id in ids)

    def chat(self, messages: Sequence[Message]) -> list[int]:
        """Return as many ids as a conversation may have in a model's template.

        They mean nothing.
        """
        texts = [self.encode(message["content"]) for message in messages]
        return [0] * sum(len(ids) + MESSAGE_TOKENS for ids in texts)

    def encode_batch(self, texts: list[str]) -> list[np.ndarray[Any, Any]]:
        """Ids (int32) of many texts."""
        return [np.array(self.encode(text), np.int32) for text in texts]

    def encode_with_offsets(self, text: str) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """Ids, and the code point of `text` where each starts."""
        ids = np.array(self.encode(text), np.int32)
        return ids, self.places(ids)[0]

    def places(
        self, ids: np.ndarray[Any, Any]
    ) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """Return the code points (int64) that each token covers: starts and stops from 0."""
        stops = np.cumsum(self._chars[ids], dtype=np.int64)
        return stops - self._chars[ids], stops

    def _new(self, piece: str) -> int:
        """Return the id of a piece that is new, or that another thread has just added."""
        with self._lock:
            if piece in self._ids:
                return self._ids[piece]
            number, data = len(self._pieces), piece.encode("utf-8", "surrogatepass")
            if number == len(self._bytes):
                self._bytes = np.concatenate([self._bytes, np.zeros_like(self._bytes)])
                self._chars = np.concatenate([self._chars, np.zeros_like(self._chars)])
            self._bytes[number], self._chars[number] = len(data), len(piece)
            self._pieces.append(piece)
            self.token_bytes.append(data)
            self._ids[piece] = number  # last: whoever finds it finds all of it
            return number
