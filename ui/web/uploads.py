"""Uploaded files, added to a library one by one: a file that cannot be read does not affect others.

The browser's data is not trusted: only copies in the upload folder are read, and then deleted.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, Literal

from index.documents.documents import Document, DocumentError

if TYPE_CHECKING:
    from index.documents.documents import Documents
    from index.documents.formats.parser import DocumentParser

MAX_NAME_CHARS = 200  # characters of the browser's data that are shown
CHARS_PER_WORD = 6
PICTURES = (".png", ".jpg", ".jpeg", ".gif", ".webp", ".bmp", ".tif", ".tiff", ".heic", ".svg")
PICTURE = "{}: a picture, whose text is not read: save it as a PDF, which needs draftline[page,ocr]"
EMPTY = "{}: an empty file: choose one with text"


@dataclass
class UploadBatch:
    """The last uploads of a session."""

    files: list[UploadedFile] = field(default_factory=list)

    @property
    def busy(self) -> bool:
        return any(file.state in ("waiting", "reading") for file in self.files)


@dataclass
class UploadedFile:
    name: str
    path: str = ""  # the path of the uploaded copy
    state: Literal["waiting", "reading", "added", "failed"] = "waiting"
    message: str = ""  # a message to the user


def files_of(data: Any) -> list[UploadedFile]:
    """Return the uploaded files that an event lists, with upload errors. `data` may be anything."""
    listed = data.get("files") if isinstance(data, dict) else None
    files = []
    for item in listed if isinstance(listed, list) else []:
        if not isinstance(item, dict):
            continue
        name = string_of(item, "name")[:MAX_NAME_CHARS] or "a file"
        if error := string_of(item, "error"):
            message = f"{name}: {error[:MAX_NAME_CHARS]}"
            files.append(UploadedFile(name, state="failed", message=message))
        else:
            files.append(UploadedFile(name, string_of(item, "path")))
    return files


def add_to_library(
    file: UploadedFile, folder: Path, library: Documents, parser: DocumentParser | None = None
) -> str | None:
    """Read an uploaded file, and return the document's id, or None if it failed.

    Blocking; closing the parser ends it.
    """
    start = perf_counter()
    try:
        path = copy_of(file, folder)
        if file.name.lower().endswith(PICTURES):
            raise DocumentError(PICTURE.format(file.name))
        if not path.stat().st_size:
            raise DocumentError(EMPTY.format(file.name))
        document = library.add(path, file.name, parser)
    except DocumentError as error:
        file.message, file.state = str(error), "failed"  # another thread reads the state first
        return None
    except BaseException:
        file.message, file.state = f"{file.name}: not read: try again", "failed"
        raise
    finally:
        delete_copy(file, folder)
    file.message = f"{document.name}: {size_of(document)}, {perf_counter() - start:.1f} s"
    file.state = "added"
    return document.id


def copy_of(file: UploadedFile, folder: Path) -> Path:
    """Return the uploaded copy. Raises DocumentError for a path outside of the upload folder."""
    try:
        path = Path(file.path).resolve()
        if path.is_relative_to(folder) and path.is_file():
            return path
    except (OSError, ValueError):
        pass
    raise DocumentError(f"{file.name}: not uploaded; drop it again")


def delete_copy(file: UploadedFile, folder: Path) -> None:
    """Delete the uploaded copy and the folder that Gradio created for it."""
    with contextlib.suppress(DocumentError, OSError):
        path = copy_of(file, folder)
        path.unlink()
        if path.parent != folder:
            path.parent.rmdir()


def size_of(document: Document) -> str:
    """Return the size of a document, in pages if it has them."""
    if pages := len(document.pages):
        return "1 page" if pages == 1 else f"{pages} pages"
    words = len(document.text) // CHARS_PER_WORD
    if len(document.text.split()) == 1:
        return "1 word"
    return f"about {words / 1000:.0f}k words" if words >= 1000 else f"about {max(2, words)} words"


def uploads_html(batch: UploadBatch) -> str:
    """Return the state of each upload; once all have ended, a summary and those that failed."""
    files = batch.files
    if not files:
        return ""
    ended = sum(file.state in ("added", "failed") for file in files)
    added = sum(file.state == "added" for file in files)
    failed = sum(file.state == "failed" for file in files)
    if batch.busy:
        head = f"reading: {ended} of {len(files)} done"
        bar = f'<progress max="{len(files)}" value="{ended}" aria-label="files read"></progress>'
        listed = files
    else:
        head = f"{added} added" + (f", {failed} not read" if failed else "")
        bar = '<button type="button" name="dismiss" aria-label="dismiss this list">\u00d7</button>'
        listed = [file for file in files if file.state == "failed"]
    items = "".join(
        f'<li class="{file.state}">{escape(file.message or f"{file.name}: {file.state}")}</li>'
        for file in listed
    )
    return (
        f'<div class="arriving" role="status"><p>{head}{bar}</p>'
        f"{f'<ul>{items}</ul>' if items else ''}</div>"
    )


def string_of(data: Any, key: str) -> str:
    value = data.get(key) if isinstance(data, dict) else None
    return value if isinstance(value, str) else ""
