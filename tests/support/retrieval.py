"""Helpers for tests of copying drafters: corpora, first drafts, a brute-force search."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

from engine.drafting import DraftContext, Drafter, NullDrafter
from engine.records import Draft
from research.methods.datastore import Corpus, build

FEW = st.lists(st.integers(0, 3), min_size=1, max_size=40)
GOLDEN = [[5, 6, 7, 8, 0], [5, 6, 7, 9, 0], [5, 6, 4, 0], [5, 6, 7, 8, 0]]


def corpus(*documents: list[int]) -> Corpus:
    return build([np.array(document, np.int32) for document in documents])


def drafted(drafter: Drafter, prompt: list[int], capacity: int = 100, **more: Any) -> Draft:
    """The first draft after a prompt."""
    context = DraftContext(prompt, capacity=capacity, **more)
    drafter.begin(context)
    return drafter.propose(context, None).first(capacity)


def followed(texts: list[list[int]], run: list[int]) -> list[tuple[int, int]]:
    """Oracle: (text, position) after every occurrence of `run` that is followed by a token."""
    size = len(run)
    return [
        (number, position)
        for number, text in enumerate(texts)
        for position in range(size, len(text))
        if text[position - size : position] == run
    ]


def paths_of(draft: Draft) -> list[tuple[int, ...]]:
    """The path of tokens to each node."""
    paths: list[tuple[int, ...]] = []
    for token, parent in zip(draft.tokens, draft.parents, strict=True):
        paths.append((*(paths[parent] if parent >= 0 else ()), token))
    return paths


class Other(NullDrafter):
    """A fake in place of Token Recycling or a model."""

    def __init__(self) -> None:
        self.told: list[list[int]] = []
        self.begun = 0

    def begin(self, context: DraftContext) -> None:
        self.begun += 1

    def propose(self, context: DraftContext, target: Any) -> Draft:
        return Draft([99], [-1], [1.0], ["other"])

    def observe(self, draft: Draft, path: Any, committed: list[int], *_: Any) -> None:
        self.told.append(committed)
