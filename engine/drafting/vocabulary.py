"""Features of tokens that do not depend on their ids: a hash of the bytes, and a class.

They let weights fitted with one tokenizer serve another.
"""

from __future__ import annotations

from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from engine.drafting._drafting import Vocabulary
from engine.prompts.tokenizer import Tokenizer

# Token classes, as in core/vocabulary.hpp. A spaced word starts with whitespace.
BLANK, LINE_END, PUNCTUATION, SPACED_WORD, WORD, OTHER = range(6)
STARTS_LINE = 8  # flag: a new line starts after the token


def vocabulary(tokenizer: Tokenizer) -> Vocabulary:
    """Return the tokenizer's vocabulary for the native drafter."""
    return Vocabulary(*token_features(tokenizer))


def token_features(tokenizer: Tokenizer) -> tuple[NDArray[np.uint32], NDArray[np.uint8]]:
    """Return the CRC-32 of the UTF-8 bytes, and the class, of each token id.

    Ids without bytes get 0 and OTHER.
    """
    known = tokenizer.token_bytes
    hashes = [0 if data is None else crc32(data) for data in known]
    classes = [
        OTHER if data is None else token_class(data.decode("utf-8", "replace")) for data in known
    ]
    return np.array(hashes, np.uint32), np.array(classes, np.uint8)


def token_class(text: str) -> int:
    """Classify a token by its first non-blank character, with STARTS_LINE where it applies."""
    bare = text.lstrip()
    if not bare:
        if not text:
            return OTHER
        return LINE_END + STARTS_LINE if "\n" in text else BLANK
    first = bare[0]
    if first.isalnum() or first == "_":
        kind = WORD if len(bare) == len(text) else SPACED_WORD
    else:
        kind = PUNCTUATION if first.isprintable() and first != "\ufffd" else OTHER
    _, line, rest = text.rpartition("\n")
    return kind + (STARTS_LINE if line and not rest.strip() else 0)
