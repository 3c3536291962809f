"""Prompt lookup decoding: what followed the first occurrence of the last tokens.

Saxena, "Prompt Lookup Decoding" (2023, github.com/apoorvumang/prompt-lookup-decoding). The last 3,
2 or 1 tokens are searched in prompt and answer; the first occurrence that has a whole draft behind
it is copied. Drafts always have the same length. The version in transformers uses n-grams of 2 or 1
tokens and also takes occurrences with fewer tokens behind them.
"""

from __future__ import annotations

from typing import Any

from engine.drafting import DraftContext, NullDrafter, chain
from engine.records import Draft
from research.methods.suffix_lookup import SuffixLookup

MAX_NGRAM, DRAFT_TOKENS = 3, 10


class PromptLookupDrafter(NullDrafter):
    """A drafter of one chain per step, for one request."""

    def __init__(
        self, longest: int = MAX_NGRAM, tokens: int = DRAFT_TOKENS, whole: bool = True
    ) -> None:
        """Set the limits of n-grams and drafts.

        `longest`: tokens of the n-gram. `whole`: only occurrences followed by `tokens` tokens
        count.
        """
        self.longest, self.count, self.whole = longest, tokens, whole

    def begin(self, context: DraftContext) -> None:
        self.text = SuffixLookup([], context.prompt)

    def propose(self, context: DraftContext, target: Any) -> Draft:
        size = len(self.text.tokens)
        for length in range(min(self.longest, size - 1), 0, -1):
            stop = size  # exclusive limit of where the occurrence starts
            if self.whole:  # the draft must fit into the text and start before the last n tokens
                stop = size - length - max(self.count - 1, length)
            place = self.text.first(length, stop) if stop > 0 else -1
            if place >= 0:
                return chain(self.text.after(place, min(self.count, context.capacity)), "lookup")
        return Draft()

    def observe(
        self, draft: Draft, path: list[int], committed: list[int], scores: Any, seconds: float
    ) -> None:
        self.text.extend(committed)
