"""Whether a prompt is made of indexed files, and hence may be kept on disk."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from engine.records import Request
from index.workspace.file_filter import Skipped, check_buffer, lookup

if TYPE_CHECKING:
    from index.workspace.workspace import Workspace


def is_of_indexed_files(request: Request, workspace: Workspace | None) -> bool:
    """Return whether a prompt shows texts of indexed files, and words in which no secret is seen.

    Of no workspace is a file whose edit is asked for: it must be one that would be indexed.
    """
    words = f"{request.instruction}\n{request.update}"
    if request.kind == "chat" or request.parse_special or not request.path:
        return False
    try:
        path = str(Path(request.path).absolute())
    except FileNotFoundError:  # the current folder was deleted
        return False
    if workspace is None:
        texts = (request.text, words)
        return request.kind == "edit" and _would_be_indexed(path, texts)
    shown = [(path, request.text + (request.suffix or "")), (path, words), *request.snippets]
    return all(_is_indexed(*each, workspace) for each in shown)


def _is_indexed(path: str, text: str, workspace: Workspace) -> bool:
    """Return whether the workspace has a file, by its path in a root, and may have this text."""
    keys = [workspace.key(root / path) for root in workspace.roots or (Path(),)]
    key = next(filter(workspace.has, keys), None)
    return key is not None and workspace.why_private(key, text) is None


def _would_be_indexed(path: str, texts: tuple[str, ...]) -> bool:
    try:
        folder, name = os.path.split(os.path.realpath(path))
        lookup(folder, name)
        for text in texts:
            check_buffer(path, text, [Path(folder)])
    except (Skipped, ValueError):  # ValueError: no file can have this name
        return False
    return True
