"""Text that can be copied from: the suffix automaton, the files of a folder, the workspace.

No torch, no tokenizer (one is handed in), no editor protocol.
"""

from index._core import Automaton, Match, Tree
from index.workspace import Encoder, Span, Workspace, WorkspaceMatch

__all__ = ["Automaton", "Encoder", "Match", "Span", "Tree", "Workspace", "WorkspaceMatch"]
