"""The corpus of `python -m bench index`, and the tails to look up, as token ids."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bench.index.peers import TAIL
from index import Encoder
from index.workspace import file_filter

Ids = NDArray[np.int32]

CHANGED_FILE_TOKENS = 2000
PIECE_TOKENS = 10  # tokens that are adjacent in their source


def texts(source: list[Path]) -> Iterator[str]:
    """Yield the texts of the Python files of some folders, in a fixed random order."""
    found = [
        file.real_path
        for root in source
        for file in file_filter.walk(root)
        if file.path.endswith(".py") and "site-packages/" not in file.path
    ]
    for number in np.random.default_rng(0).permutation(len(found)).tolist():
        try:
            yield file_filter.read(found[number])
        except file_filter.Skipped:
            continue


def collect(stream: Iterator[str], encoder: Encoder, tokens: int) -> list[Ids]:
    """Documents of `tokens` tokens in all, the last one truncated; fewer if the stream ends."""
    found: list[Ids] = []
    while tokens:
        batch = list(islice(stream, 64))
        if not batch:
            break
        for document in encoder.encode_batch(batch):
            found.append(document[:tokens])
            tokens -= len(found[-1])
    return [document for document in found if len(document)]


def cut(documents: list[Ids], tokens: int) -> list[Ids]:
    """Return the first documents, of `tokens` tokens in all.

    If there are fewer, the documents are repeated with permuted ids: a longer text of the same
    patterns. No document is empty.
    """
    permuted = np.arange(max(int(one.max()) for one in documents) + 1, dtype=np.int32)
    chosen: list[Ids] = []
    chance = np.random.default_rng(1)
    while tokens:
        for document in documents:
            chosen.append(permuted[document[:tokens]])
            tokens -= len(chosen[-1])
            if not tokens:
                break
        permuted = chance.permutation(permuted)
    return chosen


def write(path: Path, documents: list[Ids], unseen: Ids, tails: int, changes: int) -> None:
    """Write what the processes read: documents; seen and as many new tails; changed files.

    A changed file consists of shuffled pieces of unseen text, so that it is new as a whole.
    """
    seen, chance = np.concatenate(documents), np.random.default_rng(2)
    asked = [
        text[at : at + TAIL]
        for text in (seen, unseen)
        for at in chance.integers(0, len(text) - TAIL, tails).tolist()
    ]
    pieces = unseen[: len(unseen) // PIECE_TOKENS * PIECE_TOKENS].reshape(-1, PIECE_TOKENS)
    changed = [
        pieces[chance.permutation(len(pieces))[: CHANGED_FILE_TOKENS // PIECE_TOKENS]].ravel()
        for _ in range(changes)
    ]
    ends = np.cumsum([len(document) for document in documents])
    np.savez(path, tokens=seen, ends=ends, tails=np.array(asked), changes=np.array(changed))
