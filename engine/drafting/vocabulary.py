"""What the drafter knows of each token: a hash of its bytes and how it looks, whatever its id is.

Weights fitted with one tokenizer serve another one by it. It says nothing of what tokens mean.
"""

from __future__ import annotations

from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from engine.drafting._drafting import Vocabulary
from engine.prompts.tokenizer import Tokenizer

BLANK, LINE_END, PUNCTUATION, SPACED_WORD, WORD, OTHER = range(
    6
)  # looks; as in core/vocabulary.hpp
STARTS_LINE = 8  # added to the look of a token after which a line starts


def vocabulary(tokenizer: Tokenizer) -> Vocabulary:
    """The tokenizer's, for the drafter."""
    return Vocabulary(*token_features(tokenizer))


def token_features(tokenizer: Tokenizer) -> tuple[NDArray[np.uint32], NDArray[np.uint8]]:
    """By id: CRC-32 of the UTF-8 bytes, and the look. 0 and OTHER where there are no bytes."""
    known = tokenizer.token_bytes
    hashes = [0 if one is None else crc32(one) for one in known]
    looks = [OTHER if one is None else token_class(one.decode("utf-8", "replace")) for one in known]
    return np.array(hashes, np.uint32), np.array(looks, np.uint8)


def token_class(text: str) -> int:
    """How a token looks: by its first character that is not blank."""
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
