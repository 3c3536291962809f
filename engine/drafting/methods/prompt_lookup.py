"""Prompt lookup: what followed the last tokens where they stood first.

Saxena, github.com/apoorvumang/prompt-lookup-decoding. The last 3, 2 or 1 tokens are searched in
prompt and answer; the first place that has the whole draft behind it is copied, always so many
tokens, whatever they cost. transformers takes 2 or 1 and also places with fewer tokens behind them.
"""

from __future__ import annotations

from typing import Any

from engine.drafting import DraftContext, NullDrafter, chain
from engine.drafting.methods.suffix_lookup import SuffixLookup
from engine.records import Draft

LONGEST, TOKENS = 3, 10


class PromptLookupDrafter(NullDrafter):
    """One run of tokens a step. Serves one request."""

    def __init__(self, longest: int = LONGEST, tokens: int = TOKENS, whole: bool = True) -> None:
        """`whole`: only places with `tokens` tokens behind them count."""
        self.longest, self.count, self.whole = longest, tokens, whole

    def begin(self, context: DraftContext) -> None:
        self.text = SuffixLookup([], context.prompt)

    def propose(self, context: DraftContext, target: Any) -> Draft:
        size = len(self.text.tokens)
        for length in range(min(self.longest, size - 1), 0, -1):
            stop = size  # where it may start at most
            if self.whole:  # the draft ends in the text, and starts before the last n tokens
                stop = size - length - max(self.count - 1, length)
            place = self.text.first(length, stop) if stop > 0 else -1
            if place >= 0:
                return chain(self.text.after(place, min(self.count, context.room)), "lookup")
        return Draft()

    def observe(
        self, draft: Draft, path: list[int], committed: list[int], scores: Any, seconds: float
    ) -> None:
        self.text.extend(committed)
