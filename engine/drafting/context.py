"""Context: what the prompt and the answer so far already contain, by an automaton over both."""

from __future__ import annotations

from engine.drafting import Chain, Context
from index._core import Automaton

BRANCHES = 3


class ContextSource:
    """Continuations of the longest suffix of the text that occurred before, newest first."""

    def __init__(self) -> None:
        self.automaton = Automaton()
        self.doc = 0

    def begin(self, context: Context) -> None:
        self.doc = self.automaton.open()
        self.automaton.extend(context.prompt)

    def extend(self, tokens: list[int]) -> None:
        self.automaton.extend(tokens)

    def chains(self, context: Context, length: int) -> list[Chain]:
        match = self.automaton.match(context.tail(64), k=BRANCHES, followed=True)
        kind = "alone" if match.count == 1 else "shared"
        found = []
        for doc, end in zip(match.docs.tolist(), match.ends.tolist(), strict=True):
            tokens = self.automaton.continuation(doc, end, length).tolist()
            found.append(Chain(tokens, match.length, "context", kind))
        return found if match.length else []
