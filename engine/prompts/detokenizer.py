"""Token ids to text, piece by piece."""

from __future__ import annotations

from engine.prompts.tokenizer import Tokenizer


class Detokenizer:
    """Decodes tokens as they come; a character is never split between two pieces of text."""

    def __init__(self, tokenizer: Tokenizer, continues: bool = False) -> None:
        """`continues`: the tokens follow a text, so that their first blank counts."""
        self.tokenizer = tokenizer
        self.ids: list[int] = [*tokenizer.lead] if continues else []
        self.start, self.read = 0, len(self.ids)  # ids[start:read] is decoded again as context

    def push(self, token: int) -> str:
        """The text that `token` completes; "" while a character is incomplete."""
        self.ids.append(token)
        before = self.tokenizer.decode(self.ids[self.start : self.read])
        text = self.tokenizer.decode(self.ids[self.start :])
        if text.endswith("\ufffd") and len(self.ids) - self.read < 8:
            return ""
        self.start, self.read = self.read, len(self.ids)
        return text[len(before) :]

    def flush(self) -> str:
        """The rest at the end of the answer: an incomplete character becomes U+FFFD."""
        before = self.tokenizer.decode(self.ids[self.start : self.read])
        text = self.tokenizer.decode(self.ids[self.start :])
        self.start = self.read = len(self.ids)
        return text[len(before) :]
