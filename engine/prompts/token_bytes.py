"""The UTF-8 bytes of each token of a vocabulary, for byte-level, SentencePiece and other decoders.

Takes the parts of tokenizer.json; knows nothing of control tokens.
"""

from __future__ import annotations

import json
import re
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Backend

Words = dict[str, int] | list[list[Any]]  # word -> id; of Unigram models [word, score] by id
Decoder = dict[str, Any]


def words_bytes(words: Words, decoder: Decoder, backend: Backend) -> list[bytes | None]:
    """UTF-8 bytes by id; None for unused ids and for tokens that have no text of their own."""
    names = list(words) if isinstance(words, dict) else [word for word, _ in words]
    numbers = list(words.values()) if isinstance(words, dict) else list(range(len(words)))
    if is_byte_level(words, decoder):
        known = byte_level(names)
    elif "\u2581" in json.dumps(decoder, ensure_ascii=False):
        known = [sentencepiece(name) for name in names]
    else:
        texts = backend.decode_batch([[number] for number in numbers])
        known = [None if "\ufffd" in text else text.encode() for text in texts]
    found: list[bytes | None] = [None] * (1 + max(numbers, default=-1))
    for number, one in zip(numbers, known, strict=True):
        found[number] = one
    return found


def is_byte_level(words: Words, decoder: Decoder) -> bool:
    """Return whether each character of a token stands for one byte (GPT-2's byte-level BPE)."""
    return decoder.get("type") == "ByteLevel" and isinstance(words, dict)


def byte_level(words: list[str]) -> list[bytes | None]:
    """Return the bytes of byte-level tokens; None for a token with other characters."""
    table = np.full(
        len(byte_characters()) + 256, -1, np.int16
    )  # indexed by code point; the last one is no byte
    for byte, char in byte_characters():
        table[ord(char)] = byte
    points = np.frombuffer("".join(words).encode("utf-32-le", "surrogatepass"), np.uint32)
    values = table[np.minimum(points, len(table) - 1)]
    data, stops = values.astype(np.uint8).tobytes(), np.cumsum([0, *map(len, words)])
    found: list[bytes | None] = [data[a:b] for a, b in pairwise(stops.tolist())]
    for place in set(np.searchsorted(stops, np.flatnonzero(values < 0), "right").tolist()):
        found[place - 1] = None
    return found


def sentencepiece(word: str) -> bytes:
    """Return the bytes of a SentencePiece token: "▁" is a blank, "<0x0A>" a byte."""
    byte = re.fullmatch("<0x([0-9A-F]{2})>", word)
    return bytes.fromhex(byte[1]) if byte else word.replace("\u2581", " ").encode()


def byte_characters() -> list[tuple[int, str]]:
    """Return GPT-2's map of bytes to characters.

    Printable bytes map to themselves, the others in order to U+0100 and up.
    """
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = [byte for byte in range(256) if byte not in printable]
    return [(n, chr(n if n in printable else 256 + others.index(n))) for n in range(256)]
