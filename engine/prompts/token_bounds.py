"""The fewest tokens that a text can have, from its bytes and the vocabulary, without tokenizing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Spec = Mapping[str, Any]  # tokenizer.json, or a part of it
Shares = NDArray[np.float64]  # [256]

NFC_SHRINKAGE = 4  # times the UTF-8 bytes of its NFC form that a text has, at most
COUNTED_BYTES = 1 << 20  # bytes counted at a time
# What neither drops characters nor replaces them, of byte-level and of SentencePiece tokenizers.
BYTE_LEVEL_STEPS = frozenset({"Sequence", "NFC", "ByteLevel", "Digits", "Split"})
SENTENCEPIECE_STEPS = frozenset({"Sequence", "Prepend", "Replace", "Metaspace", "Digits", "Split"})
BLANK_MARK = {"pattern": {"String": " "}, "content": "\u2581"}  # the Replace of SentencePiece


def byte_shares(spec: Spec, byte_level: bool, token_bytes: Sequence[bytes | None]) -> Shares:
    """Return the least share of a token that each byte takes.

    A byte's share is 1/n, where n is the length of the longest token with that byte. So the shares
    of the bytes of a token add up to 1 at most, and those of a text to its number of tokens. The
    share is 0 where a tokenizer may drop the byte or merge it into an unknown token.
    `token_bytes`: those of the whole vocabulary, control tokens included.
    """
    steps = [*steps_of(spec.get("normalizer")), *steps_of(spec.get("pre_tokenizer"))]
    composes = any(step["type"] == "NFC" for step in steps)
    single = np.array([data[0] for data in token_bytes if data is not None and len(data) == 1], int)
    if not keeps_bytes(spec, steps, byte_level) or (composes and len(set(single.tolist())) < 256):
        return np.zeros(256)
    lengths = np.array([len(data or b"") for data in token_bytes], np.int64)
    data = np.frombuffer(b"".join(data or b"" for data in token_bytes), np.uint8)
    longest = np.zeros(256)
    np.maximum.at(longest, data, np.repeat(lengths, lengths))
    if composes:
        longest[:] = NFC_SHRINKAGE * longest.max()
    shares = np.zeros(256)
    shares[single] = 1 / longest[single]
    return shares


def keeps_bytes(spec: Spec, steps: Sequence[Spec], byte_level: bool) -> bool:
    """Return whether every byte of a text that has a token of its own ends up in some token."""
    known = BYTE_LEVEL_STEPS if byte_level else SENTENCEPIECE_STEPS
    if any(step["type"] not in known or step.get("behavior") == "Removed" for step in steps):
        return False
    if byte_level:
        return any(step["type"] == "ByteLevel" for step in steps)
    replaced = [step for step in steps if step["type"] == "Replace"]
    return bool(spec["model"].get("byte_fallback")) and all(
        {"pattern": step["pattern"], "content": step["content"]} == BLANK_MARK for step in replaced
    )


def fewest_tokens(text: str, shares: Shares) -> int:
    """Count the tokens that a text has at least."""
    data = np.frombuffer(text.encode("utf-8", "replace"), np.uint8)
    counts = np.zeros(256, np.int64)
    for start in range(0, len(data), COUNTED_BYTES):
        counts += np.bincount(data[start : start + COUNTED_BYTES], minlength=256)
    return int(counts @ shares)


def steps_of(part: Spec | None) -> list[Spec]:
    """Return the normalizers or pre-tokenizers of a part of tokenizer.json.

    Those of a sequence are included.
    """
    if part is None:
        return []
    inner = part.get("normalizers") or part.get("pretokenizers") or []
    return [part, *(step for step in inner for step in steps_of(step))]
