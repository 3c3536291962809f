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
# Endings of files whose folder is one module.
WHOLE_FOLDERS = frozenset({".go", ".java", ".c", ".h", ".cc", ".cpp", ".hpp"})
MODULE_FILES = frozenset({"__init__", "index", "mod", "lib"})  # modules named after their folder


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
        related = re.compile(whole_word(_stem(home)))
        for path in _paths(name, workspace):
            uri = Path(path).as_uri() if path.startswith("/") else ""
            if path in known or not uri or uri in found or not _alike(path, home):
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


def _stem(home: str) -> str:
    """Return the name by which other files import the one at a URI."""
    path = PurePosixPath(unquote(home))
    return path.parent.name if path.stem in MODULE_FILES else path.name.split(".")[0]


def _alike(path: str, home: str) -> bool:
    """Return whether two files may be of one language."""
    ours, theirs = (PurePosixPath(each).suffix.lower() for each in (path, unquote(home)))
    scripts = (".js", ".jsx", ".mjs", ".cjs", ".ts", ".tsx", ".mts", ".cts", ".vue", ".svelte")
    c = (".c", ".h", ".cc", ".cpp", ".cxx", ".hpp", ".hh")
    return ours == theirs or any({ours, theirs} <= set(family) for family in (scripts, c))


def _shares_folder(path: str, home: str) -> bool:
    folder = str(PurePosixPath(unquote(home).removeprefix("file://")).parent)
    is_module = PurePosixPath(path).suffix in WHOLE_FOLDERS
    return is_module and str(PurePosixPath(path).parent) == folder
