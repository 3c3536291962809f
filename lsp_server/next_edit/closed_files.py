"""Files that are not open and in which a next edit may be.

The index names those that have a name that was changed; the few of them that are read must speak of
the module that was changed, too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING
from urllib.parse import unquote

from engine.editing.edits import BOM
from engine.editing.scopes.names import whole_word
from index.workspace import file_filter
from lsp_server.next_edit.renames import family, module_name
from lsp_server.next_edit.rules import Changed
from lsp_server.protocol.positions import Text
from lsp_server.protocol.text_sync import OpenDocument

if TYPE_CHECKING:
    from index.workspace.workspace import Workspace

MAX_NAMES = 8  # names that are looked up, those changed last first
MAX_MATCHES = 32  # matches of one name in the index
MAX_FILES = 12
MAX_CHARS = 1 << 18  # characters of all files together
BEFORE = ("", " ", ".", "(")  # text that a name may be tokenized with
WHOLE_FOLDERS = frozenset({"go", "java", "cpp"})  # languages with one module for each folder


def closed_documents(
    changed: list[Changed], workspace: Workspace, documents: Iterable[OpenDocument]
) -> dict[str, OpenDocument]:
    """Find the indexed files other than the open `documents` that may use a changed name.

    They are documents by URI; their version is -1.
    """
    known = {workspace.key(document.path) for document in documents if document.path}
    found: dict[str, OpenDocument] = {}
    left, read = MAX_CHARS, 0
    for name, home in changed[:MAX_NAMES]:
        related = re.compile(whole_word(module_name(home)))
        for path in _paths(name, workspace):
            uri = Path(path).as_uri() if path.startswith("/") else ""
            if path in known or not uri or uri in found or family(path) != family(home):
                continue
            if read == MAX_FILES:
                return found
            read += 1
            with suppress(file_filter.Skipped):
                text = file_filter.read(path).removeprefix(BOM)  # as editors have it
                if len(text) <= left and (_shares_folder(path, home) or related.search(text)):
                    left -= len(text)
                    found[uri] = OpenDocument(uri, path, "", -1, Text.of(text))
    return found


def is_unchanged(document: OpenDocument) -> bool:
    """Return whether the file still has the document's text."""
    try:
        return file_filter.read(document.path or "").removeprefix(BOM) == document.text.text
    except file_filter.Skipped:
        return False


def _paths(name: str, workspace: Workspace) -> list[str]:
    """Find the indexed files that probably have a name."""
    found: dict[str, None] = {}
    for before in BEFORE:
        (ids,) = workspace.encoder.encode_batch([before + name])
        for match in workspace.match(ids, MAX_MATCHES) if len(ids) else ():
            if match.length == len(ids):
                found[match.path] = None
    return list(found)


def _shares_folder(path: str, home: str) -> bool:
    folder = str(PurePosixPath(unquote(home).removeprefix("file://")).parent)
    return family(path) in WHOLE_FOLDERS and str(PurePosixPath(path).parent) == folder
