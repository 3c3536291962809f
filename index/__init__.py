"""The text index: suffix automata, the workspace built on them, and documents.

Independent of torch, of any tokenizer (the caller passes one in) and of the editor protocol.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from index._core import Automaton, Frozen, Match, Segments, Tree
    from index.records import Span, Stats
    from index.workspace.token_cache import Encoder
    from index.workspace.workspace import Workspace
    from index.workspace.workspace_match import WorkspaceMatch

__all__ = [
    "Automaton", "Encoder", "Frozen", "Match", "Segments", "Span", "Stats", "Tree", "Workspace",
    "WorkspaceMatch",
]  # fmt: skip

_MODULES = {
    "Span": "records", "Stats": "records", "WorkspaceMatch": "workspace.workspace_match",
    "Encoder": "workspace.token_cache", "Workspace": "workspace.workspace",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    """Import public names on first use, because some are slow to import."""
    from importlib import import_module

    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"index.{_MODULES.get(name, '_core')}"), name)
