"""Workspace: continuations from the indexed files, with the Span they were copied from."""

from __future__ import annotations

from pathlib import Path

from engine.drafting import Chain, Context
from index.workspace import Workspace

BRANCHES = 3


class WorkspaceSource:
    """Continuations of the longest suffix of the text that occurs in the workspace's files."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace
        self.near: str | None = None  # of equally long matches, those near this file come first

    def begin(self, context: Context) -> None:
        if context.path:
            self.near = self.workspace.disk.key(Path(context.path).absolute())

    def extend(self, tokens: list[int]) -> None:
        pass

    def chains(self, context: Context, length: int) -> list[Chain]:
        found = []
        for match in self.workspace.match(context.tail(64), BRANCHES, near=self.near):
            tokens = match.continuation(length).tolist()
            found.append(Chain(tokens, match.length, "workspace", "any", match.span))
        return found
