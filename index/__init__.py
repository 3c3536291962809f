"""Text that can be copied from: the suffix automaton, the files of folders, the workspace.

No torch, no tokenizer (one is handed in), no editor protocol. Imported by name when asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from index._core import Automaton, Frozen, Match, Segments, Tree
    from index.records import Span, Stats, WorkspaceMatch
    from index.workspace.token_cache import Encoder
    from index.workspace.workspace import Workspace

__all__ = [
    "Automaton", "Encoder", "Frozen", "Match", "Segments", "Span", "Stats", "Tree", "Workspace",
    "WorkspaceMatch",
]  # fmt: skip

_WHERE = {
    "Span": "records", "Stats": "records", "WorkspaceMatch": "records",
    "Encoder": "workspace.token_cache", "Workspace": "workspace.workspace",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    """What the room holds, loaded when it is first asked for: some of it is slow to import."""
    from importlib import import_module

    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"index.{_WHERE.get(name, '_core')}"), name)
