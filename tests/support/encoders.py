"""Simple tokenizers with the interface of `engine.prompts.tokenizer.Tokenizer`."""

from __future__ import annotations

import unicodedata
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from index.workspace.token_cache import Ids

Places = tuple[NDArray[np.int64], NDArray[np.int64]]


class Bytes:
    """A token is a byte. Counts the characters that were tokenized."""

    fingerprint = "bytes/1"
    byte_lengths = np.ones(256, np.int32)
    token_bytes = tuple(bytes([value]) for value in range(256))

    def __init__(self) -> None:
        self.seen = 0

    def encode_batch(self, texts: list[str]) -> list[Ids]:
        self.seen += sum(map(len, texts))
        return [np.frombuffer(text.encode(), np.uint8).astype(np.int32) for text in texts]

    def encode_with_offsets(self, text: str) -> tuple[Ids, NDArray[np.int64]]:
        raise AssertionError("not needed for bytes")

    def places(self, ids: Ids) -> Places:
        begins = ids & 0xC0 != 0x80
        return np.cumsum(begins) - 1, np.cumsum(begins)


class Composed:
    """A token is a code point of the text in NFC."""

    fingerprint = "composed"
    token_bytes = tuple(  # up to the ideographs of plane 2, which NFC yields
        chr(point).encode("utf-8", "surrogatepass") for point in range(3 << 16)
    )
    byte_lengths = np.array(list(map(len, token_bytes)), np.int32)

    def encode_batch(self, texts: list[str]) -> list[Ids]:
        return [self.encode_with_offsets(text)[0] for text in texts]

    def encode_with_offsets(self, text: str) -> tuple[Ids, NDArray[np.int64]]:
        starts = [at for at, char in enumerate(text) if not at or not unicodedata.combining(char)]
        ids: list[int] = []
        places: list[int] = []
        for start, stop in pairwise([*starts, len(text)]):
            new = unicodedata.normalize("NFC", text[start:stop])
            ids += map(ord, new)
            places += range(start, stop) if len(new) == stop - start else [start] * len(new)
        return np.array(ids, np.int32), np.array(places, np.int64)

    def places(self, ids: Ids) -> Places:
        return np.arange(len(ids)), np.arange(1, len(ids) + 1)
