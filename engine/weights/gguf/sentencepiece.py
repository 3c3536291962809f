"""A GGUF's SentencePiece vocabulary -> the BPE model of a tokenizer.json.

Such a file has pieces and scores, no merges: SentencePiece joins the two neighbours whose union has
the highest score. As ranked merges that is the list of all pairs that make a piece, best first.
Texts are not split before they are merged, blanks are written as U+2581, and a character that is
no piece falls back to its UTF-8 bytes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import islice
from operator import itemgetter
from typing import Any

from engine.weights.gguf.gguf_file import Gguf

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6  # tokenizer.ggml.token_type
MAX_PIECE_CHARS = 512
MAX_MERGES = 4 << 20  # merges of a vocabulary; Gemma's has 514,906
MAX_PIECES_CHARS = 16 << 20  # characters of all pieces: each is split at every one
BLANK = "\u2581"


def normalizer(prefix: bool) -> dict[str, Any]:
    """Make the step that writes blanks as U+2581; `prefix`: one is put before the text."""
    replaced = {"type": "Replace", "pattern": {"String": " "}, "content": BLANK}
    if not prefix:
        return replaced
    return {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": BLANK}, replaced]}


def decoder(prefix: bool) -> dict[str, Any]:
    """Make the steps from pieces and bytes to text, without the blank put before it."""
    steps: list[dict[str, Any]] = [
        {"type": "Replace", "pattern": {"String": BLANK}, "content": " "},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
    ]
    if prefix:
        steps.append({"type": "Strip", "content": " ", "start": 1, "stop": 0})
    return {"type": "Sequence", "decoders": steps}


def piece_scores(file: Gguf, tokens: list[str], kinds: list[int]) -> dict[str, float]:
    """Score the pieces that a text can be made of: the highest is joined first."""
    if file.text("general.architecture").startswith("gemma"):  # its scores say something else
        scores = [0.0 if kind == USER_DEFINED else -1.0 - n for n, kind in enumerate(kinds)]
    elif "tokenizer.ggml.scores" not in file.fields:
        raise file.unsupported("tokenizer 'llama' and no 'tokenizer.ggml.scores'")
    else:
        scores = file.entries("tokenizer.ggml.scores", float)
    if len(scores) != len(tokens) or not all(map(math.isfinite, scores)):
        raise file.damaged(
            f"'tokenizer.ggml.scores' is no list of {len(tokens)} numbers, one for each token"
        )
    found = {
        token: score
        for token, kind, score in zip(tokens, kinds, scores, strict=True)
        if kind in (NORMAL, USER_DEFINED)
    }
    chars = [len(piece) for piece in found]
    if max(chars, default=0) > MAX_PIECE_CHARS or sum(chars) > MAX_PIECES_CHARS:
        raise file.damaged(
            f"'tokenizer.ggml.tokens' has a token of over {MAX_PIECE_CHARS} characters, or over "
            f"{MAX_PIECES_CHARS} in all"
        )
    return found


def merges(scores: Mapping[str, float]) -> list[list[str]]:
    """List every pair of pieces that makes a piece, the best first.

    Of one piece's pairs the one with the longest left part comes first. Where there are more than
    MAX_MERGES, the list has one more than that.
    """
    pairs = (
        (score, at, len(piece) - at, piece)
        for piece, score in scores.items()
        for at in range(1, len(piece))
        if piece[:at] in scores and piece[at:] in scores
    )
    found = [*islice(pairs, MAX_MERGES + 1)]
    found.sort(key=itemgetter(0, 1, 2), reverse=True)
    return [[piece[:at], piece[at:]] for _, at, _, piece in found]
