"""The files that an instruction probably concerns.

Those that define the names in it come first, then those that use them. Reads the indexed files,
within limits, and no others.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.editing import rename_request
from engine.editing.instruction import code_names
from engine.editing.unread_uses import written
from index.workspace import file_filter
from lsp_server.protocol.text_sync import OpenDocument
from lsp_server.shared_engine import NotReady

if TYPE_CHECKING:
    from lsp_server.protocol.messages import FindFilesParams
    from lsp_server.session import Session

MAX_FOUND = 20
MAX_SEARCHED_FILES = 5000
MAX_SEARCHED_BYTES = 64 << 20
TOO_LARGE = f"over {file_filter.MAX_FILE_BYTES >> 20} MiB"  # why a file is not indexed
MIN_PLAIN_WORD_CHARS = 4  # characters of a word not written as code that may be a name
DEFINED = (
    r"\b(?:def|class|function\*?|func|fn|struct|enum|interface|trait|type|const|let|var|static|mod)"
    r"\s+(?:\([^()]*\)\s*)?(?:mut\s+)?{name}(?![\w$])|^{name}[ \t]*(?::[^=\n]+)?=(?!=)"
)


@dataclass(frozen=True, slots=True)
class TextFile:
    """The text of an open document, or of a file on disk; `path` is "" if it has none."""

    uri: str
    path: str
    text: str


async def find_files(session: Session, params: FindFilesParams) -> dict[str, Any]:
    """Find the files that an instruction concerns: the handler of draftline/findFiles."""
    with suppress(NotReady):
        await session.engine(("find", ""))
        await session.index.open()
    names, words = _names(params.instruction)
    texts, _ = await asyncio.to_thread(
        files_with, [*session.documents], indexed_paths(session), [*names, *words]
    )
    own = params.textDocument.uri if params.textDocument else ""
    found = await asyncio.to_thread(_ranked, texts, names, words, own)
    return {"files": found[:MAX_FOUND]}


def _names(instruction: str) -> tuple[list[str], list[str]]:
    """Find the names that an instruction writes as code, and other words that may be names."""
    renames = rename_request.read(instruction)
    new = {each.new for each in renames}
    names = dict.fromkeys([*(each.old for each in renames), *code_names(instruction)])
    words = dict.fromkeys(re.findall(r"[^\W\d]\w*", instruction))
    plain = [word for word in words if len(word) >= MIN_PLAIN_WORD_CHARS and word not in names]
    return [name for name in names if name not in new], [] if renames else plain


def indexed_paths(session: Session) -> list[str]:
    """List the indexed files, the most recently changed ones first."""
    documents = session.workspace.documents if session.workspace else []
    ordered = sorted(documents, key=lambda one: one.changed, reverse=True)
    return [document.path for document in ordered if document.path.startswith("/")]


def files_with(
    documents: Iterable[OpenDocument], paths: Collection[str], words: Collection[str]
) -> tuple[list[TextFile], bool]:
    """Find the open documents and the files at these paths that have one of some words.

    Open files are searched as the editor has them. Also returns whether all were searched: at most
    MAX_SEARCHED_FILES files with MAX_SEARCHED_BYTES bytes are.
    """
    if not words:
        return [], True
    texts = [
        TextFile(document.uri, document.path or "", document.text.text) for document in documents
    ]
    pattern = re.compile("|".join(map(written, words)))
    found = [text_file for text_file in texts if pattern.search(text_file.text)]
    known = {text_file.path for text_file in texts} | {
        str(Path(text_file.path).resolve()) for text_file in texts
    }
    parts = [word.encode() for word in words]
    left = MAX_SEARCHED_BYTES
    closed = [each for each in paths if each not in known]
    for path in closed[:MAX_SEARCHED_FILES]:
        try:
            with Path(path).open("rb") as file:
                data = file.read(file_filter.MAX_FILE_BYTES + 1)
        except OSError:  # deleted meanwhile, or not readable: it cannot be edited
            continue
        left -= len(data)
        if left < 0:
            return found, False
        if any(part in data for part in parts):
            with suppress(file_filter.Skipped):
                text = file_filter.decode(data)
                if pattern.search(text):
                    found.append(TextFile(Path(path).as_uri(), path, text))
    return found, len(closed) <= MAX_SEARCHED_FILES


def large_files(session: Session) -> list[str]:
    """List the files of the workspace that are too large to be indexed.

    Notebooks with their output, for example, may be.
    """
    skipped = session.workspace.skipped if session.workspace else {}
    return sorted(path for path, why in skipped.items() if why == TOO_LARGE)


def large_files_with(paths: Iterable[str], words: Collection[str]) -> tuple[list[TextFile], bool]:
    """Find the files that have one of some words.

    Also returns whether all were searched: at most MAX_SEARCHED_BYTES bytes are.
    """
    pattern = re.compile("|".join(map(written, words)))
    found, left = list[TextFile](), MAX_SEARCHED_BYTES
    for path in paths:
        try:
            with Path(path).open("rb") as file:
                data = file.read(left + 1)
        except OSError:  # deleted meanwhile, or not readable
            continue
        left -= len(data)
        if left < 0:
            return found, False
        text = data.decode("utf-8", "replace")
        if pattern.search(text):
            found.append(TextFile(Path(path).as_uri(), path, text))
    return found, True


def _ranked(
    texts: list[TextFile], names: list[str], words: list[str], own: str
) -> list[dict[str, str]]:
    """Rank the files, best first: the URI of each, and the reason.

    `own` comes first, if it has a name, then those that define most names, then those that use them
    most.
    """
    ranked = []
    for text_file in texts:
        defined = [name for name in [*names, *words] if _defines(text_file.text, name)]
        used = {name: len(re.findall(written(name), text_file.text)) for name in names}
        used = {name: count for name, count in used.items() if count and name not in defined}
        if defined or used:
            shown = f"defines {_listed(defined)}" if defined else f"uses {_listed(used)}"
            rank = (
                text_file.uri != own,
                -len(defined),
                -sum(used.values()),
                text_file.path,
                text_file.uri,
            )
            ranked.append((rank, {"uri": text_file.uri, "reason": shown}))
    return [file for _, file in sorted(ranked, key=lambda each: each[0])]


def _defines(text: str, name: str) -> bool:
    return re.search(DEFINED.replace("{name}", re.escape(name)), text, re.M) is not None


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)
