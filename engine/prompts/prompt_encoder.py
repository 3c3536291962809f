"""Tokenizes the texts of one prompt, and stops as soon as they cannot fit into the context."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from engine.prompts.tokenizer import Tokenizer
from engine.records import RequestError

MAX_CHAR_BYTES = 4


class Cancelled(Exception):
    """Nobody waits for the prompt any more."""


@dataclass
class PromptEncoder:
    """The tokenizer of one prompt."""

    tokenizer: Tokenizer
    context: int | None = None  # tokens; None: no limit
    cancelled: Callable[[], bool] = lambda: False  # called before every piece of a text
    tokens: int = 0  # so far

    def encode(self, text: str) -> list[int]:
        """Return the ids of plain text.

        RequestError once the prompt has more tokens than the context, before a text that cannot fit
        is tokenized. Cancelled if it is.
        """
        if self.context is not None and MAX_CHAR_BYTES * len(text) > self.context - self.tokens:
            self.expect(self.tokens + self.tokenizer.fewest_tokens(text))
        ids: list[int] = []
        for part in self.tokenizer.encode_in_pieces(text):
            ids += part
            self.tokens += len(part)
            self.expect(self.tokens)
            if self.cancelled():
                raise Cancelled
        return ids

    def encode_inside(self, text: str) -> list[int]:
        """Ids of a text that follows another one. Raises what `encode` raises."""
        tokens = self.tokens
        self.tokens -= len(self.tokenizer.before)  # the ids before it are encoded too, and dropped
        ids = self.tokenizer.encode_inside(text, self.encode)
        self.tokens = tokens + len(ids)
        return ids

    def expect(self, tokens: int) -> None:
        """RequestError if the prompt, of at least so many tokens, exceeds the context."""
        if self.context is not None and tokens > self.context:
            raise too_long(f"at least {tokens}", self.context)


def too_long(tokens: int | str, context: int) -> RequestError:
    """Make the error of a prompt that leaves no capacity for an answer."""
    return RequestError(
        f"the prompt has {tokens} tokens, the model's context is {context}: "
        "select fewer lines, or choose a model with a longer context"
    )
