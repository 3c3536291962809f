"""Drafts for one request of a host: chains of tokens, since hosts verify no trees.

The expected text is the prompt. The answer is aligned with its longest block at first and wherever
the answer opens a code block, and with a distant copy once a few tokens of it were written
(`follow_far` in core/drafter.cpp).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from engine.drafting._drafting import Drafter as Native
from engine.drafting.hosts.prompt_blocks import TokenTexts, closes, find_blocks, opens
from engine.drafting.hosts.shared_text import SharedText
from engine.drafting.next_token import (
    BORDER,
    CONFIDENT_RUN_TOKENS,
    WORKSPACE_QUERY,
    NextTokenModel,
    WeightKind,
)

Ids = NDArray[np.int32]

WEIGHTS: WeightKind = "hunk"
MAX_LINE_BYTES = 256  # bytes of the answer's current line; longer ones open no block


class ChainDrafter:
    """Drafts chains for one answer, on one thread at a time, with one `model` for all answers."""

    def __init__(
        self, model: NextTokenModel, texts: TokenTexts, shared: SharedText, prompt: Ids
    ) -> None:
        """Begin an answer. `prompt`: its tokens, at least one."""
        self._texts, self._shared = texts, shared
        found = find_blocks(prompt, texts)
        self._blocks, self._fence = found.blocks, found.open_fence
        self._line = bytearray()
        self._tail = prompt[-WORKSPACE_QUERY.limit :].copy()
        self._native = Native(model.vocabulary, model.library.ngram, model.weights[WEIGHTS])
        self._native.leave_out("siblings")  # a chain
        expected = np.append(prompt, np.int32(BORDER))
        self._native.begin(expected, len(expected) - 1, np.ascontiguousarray(prompt[-1:]))
        self._align()

    def commit(self, tokens: Sequence[int], learning: float = 0.0) -> None:
        """Advance by tokens that the host has verified.

        `learning`: rate of the online update by the last draft; 0 for none.
        """
        tail = np.append(self._tail, np.array(tokens, np.int32))
        self._tail = tail[-WORKSPACE_QUERY.limit :]
        done = 0
        for count, token in enumerate(tokens, 1):
            if self._opens_block(self._texts[token]):
                self._native.commit(tokens[done:count], learning)
                self._align()
                done = count
        if done < len(tokens):
            self._native.commit(tokens[done:], learning)

    def propose(self, capacity: int, costs: NDArray[np.float64]) -> list[int]:
        """Propose at most `capacity` tokens that may follow, as many as are worth their time.

        `costs`: seconds of a pass by its rows, 1 to capacity + 1.
        """
        if self._native.run < CONFIDENT_RUN_TOKENS:
            tree = self._shared.tree(self._tail)
            if tree is not None:
                self._native.files(tree.tokens, tree.parents, tree.probs, tree.length)
        return self._native.propose(capacity, costs)[0]

    def _opens_block(self, text: bytes) -> bool:
        """Return whether the answer opens a code block with this token, which ends its line."""
        *lines, rest = text.split(b"\n")
        opened = False
        for line in lines:
            self._line += line
            whole = bytes(self._line)
            self._line.clear()
            if not self._fence:
                self._fence = opens(whole)
                opened = bool(self._fence)
            elif closes(whole, self._fence):
                self._fence, opened = b"", False
                self._blocks = self._blocks[1:] + self._blocks[:1]  # the next one is another's
        if len(self._line) <= MAX_LINE_BYTES:
            self._line += rest
        return opened and not rest

    def _align(self) -> None:
        """Expect the block that comes next."""
        if self._blocks:
            self._native.align(self._blocks[0][0])
