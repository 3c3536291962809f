"""Token ids to text, piece by piece."""

from __future__ import annotations

from engine.prompts.tokenizer import Tokenizer


class Detokenizer:
    """Text of a growing list of ids, piece by piece; a character is never split between pieces."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.ids: list[int] = []
        self.start = self.read = 0  # ids[start:read] is decoded again as context for what follows

    def push(self, token: int) -> str:
        """The text that `token` completes, "" while a character is open."""
        self.ids.append(token)
        before = self.tokenizer.decode(self.ids[self.start : self.read])
        text = self.tokenizer.decode(self.ids[self.start :])
        if text.endswith("\ufffd") and len(self.ids) - self.read < 8:
            return ""
        self.start, self.read = self.read, len(self.ids)
        return text[len(before) :]

    def flush(self) -> str:
        """What is left at the end: an unfinished character, shown as U+FFFD."""
        before = self.tokenizer.decode(self.ids[self.start : self.read])
        text = self.tokenizer.decode(self.ids[self.start :])
        self.start = self.read = len(self.ids)
        return text[len(before) :]
