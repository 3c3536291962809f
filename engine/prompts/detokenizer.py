"""Token ids to text, piece by piece."""

from __future__ import annotations

from engine.prompts.tokenizer import Tokenizer


class Detokenizer:
    """Decodes tokens as they come; a character is never split between two pieces of text."""

    def __init__(self, tokenizer: Tokenizer, continues: bool = False) -> None:
        """Start. `continues`: the tokens follow a text, so that their first blank counts."""
        self.tokenizer = tokenizer
        self.ids: list[int] = [*tokenizer.lead] if continues else []
        self.start, self.read = 0, len(self.ids)  # ids[start:read] is decoded again as context

    def own_texts(self, tokens: list[int]) -> list[str] | None:
        """Return the texts that `push` would give for `tokens`, where they can be looked up."""
        if self.read < len(self.ids):  # a character is incomplete
            return None
        own = [self.tokenizer.own_text(token) for token in tokens]
        return None if None in own else own  # type: ignore[return-value]

    def skip(self, tokens: list[int]) -> None:
        """Go on behind `tokens`, at least one, whose `own_texts` were taken."""
        self.ids += tokens
        self.start, self.read = len(self.ids) - 1, len(self.ids)

    def push(self, token: int) -> str:
        """Return the text that `token` completes; "" while a character is incomplete."""
        if own := self.own_texts([token]):
            self.skip([token])
            return own[0]
        self.ids.append(token)
        before = self.tokenizer.decode(self.ids[self.start : self.read])
        text = self.tokenizer.decode(self.ids[self.start :])
        if text.endswith("\ufffd") and len(self.ids) - self.read < 8:
            return ""
        self.start, self.read = self.read, len(self.ids)
        return text[len(before) :]

    def flush(self) -> str:
        """Return the rest at the end of the answer.

        An incomplete character becomes U+FFFD.
        """
        before = self.tokenizer.decode(self.ids[self.start : self.read])
        text = self.tokenizer.decode(self.ids[self.start :])
        self.start = self.read = len(self.ids)
        return text[len(before) :]
