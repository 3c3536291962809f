"""Prompt lookup inside our own engine: the rule that is compared with, on the same passes.

The first place of the last 3, 2 or 1 tokens in prompt and answer so far, and the TOKENS after it,
as published: always so many, whatever they cost.
"""

from __future__ import annotations

from typing import Any

from engine.drafting import Context, Nothing
from engine.records import Draft

LONGEST, TOKENS = 3, 10


class PromptLookup(Nothing):
    """One run of tokens a step. Serves one request."""

    def begin(self, context: Context) -> None:
        self.text = list(context.prompt)
        self.first: dict[tuple[int, ...], int] = {}  # n-gram -> the place after its first one
        self.done = 0
        self._note()

    def propose(self, context: Context, target: Any) -> Draft:
        draft = Draft()
        for count in range(min(LONGEST, len(self.text)), 0, -1):
            place = self.first.get(tuple(self.text[-count:]))
            if place is not None:
                for n, token in enumerate(self.text[place : place + min(TOKENS, context.room)]):
                    draft.add(token, n - 1, 1.0, "lookup")
                break
        return draft

    def observe(
        self, draft: Draft, path: list[int], committed: list[int], scores: Any, seconds: float
    ) -> None:
        self.text += committed
        self._note()

    def _note(self) -> None:
        """Remember the n-grams that something follows."""
        for place in range(self.done + 1, len(self.text)):
            for count in range(1, min(LONGEST, place) + 1):
                self.first.setdefault(tuple(self.text[place - count : place]), place)
        self.done = max(self.done, len(self.text) - 1)
