"""Files that were dropped on the page, read one by one: one that cannot be read does not take the
others with it.

What the browser says of them is not believed: only uploaded copies are read, and then deleted.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

from index.documents.documents import Document, DocumentError

if TYPE_CHECKING:
    from index.documents.documents import Documents

LONGEST_NAME = 200  # characters of what the browser says that are shown


@dataclass
class Arriving:
    """The files that were dropped last, and what became of each. One for a session."""

    files: list[Arrived] = field(default_factory=list)

    @property
    def busy(self) -> bool:
        return any(one.state in ("waiting", "reading") for one in self.files)


@dataclass
class Arrived:
    """A file that was dropped."""

    name: str
    path: str = ""  # of the uploaded copy
    state: str = "waiting"  # waiting, reading, added, failed
    told: str = ""  # of it, for a person


def arrived(data: Any) -> list[Arrived]:
    """The files that the browser names, with its own trouble with them. It may say anything."""
    files = data.get("files") if isinstance(data, dict) else None
    found = []
    for one in files if isinstance(files, list) else []:
        if not isinstance(one, dict):
            continue
        name = text_of(one, "name")[:LONGEST_NAME] or "a file"
        if error := text_of(one, "error"):
            found.append(Arrived(name, state="failed", told=f"{name}: {error[:LONGEST_NAME]}"))
        else:
            found.append(Arrived(name, text_of(one, "path")))
    return found


def read(file: Arrived, folder: Path, library: Documents) -> list[str]:
    """Add an uploaded file to the library: its id, or nothing; its state says why. In a thread."""
    began = perf_counter()
    try:
        document = library.add(uploaded(file, folder), file.name)
    except DocumentError as error:
        file.told, file.state = str(error), "failed"  # in this order: it is shown meanwhile
        return []
    except BaseException:
        file.told, file.state = f"{file.name}: not read; try again", "failed"
        raise
    finally:
        forget(file, folder)
    file.told = f"{document.name}: {size(document)}, {perf_counter() - began:.1f} s"
    file.state = "added"
    return [document.id]


def uploaded(file: Arrived, folder: Path) -> Path:
    """Where the copy is. DocumentError where the browser names something else: nothing outside of
    the folder of uploads is read, or deleted."""
    try:
        path = Path(file.path).resolve()
        if path.is_relative_to(folder) and path.is_file():
            return path
    except (OSError, ValueError):
        pass
    raise DocumentError(f"{file.name}: not uploaded; drop it again")


def forget(file: Arrived, folder: Path) -> None:
    """Delete the copy, and the folder that Gradio made for it."""
    with contextlib.suppress(DocumentError, OSError):
        path = uploaded(file, folder)
        path.unlink()
        if path.parent != folder:
            path.parent.rmdir()


def size(document: Document) -> str:
    """How much it is: in pages where it has them."""
    if pages := len(document.pages):
        return "1 page" if pages == 1 else f"{pages} pages"
    words = len(document.text) // 6
    return f"about {words / 1000:.0f}k words" if words >= 1000 else f"about {max(1, words)} words"


def arriving_html(arriving: Arriving) -> str:
    """What becomes of the files that were dropped: while it goes on each of them, then a sum and
    those that failed."""
    files = arriving.files
    if not files:
        return ""
    ended = sum(one.state in ("added", "failed") for one in files)
    added = sum(one.state == "added" for one in files)
    failed = sum(one.state == "failed" for one in files)
    if arriving.busy:
        head = f"reading: {ended} of {len(files)} done"
        bar = f'<progress max="{len(files)}" value="{ended}" aria-label="files read"></progress>'
        lines = files
    else:
        head = f"{added} added" + (f", {failed} not" if failed else "")
        bar = '<button type="button" name="dismiss" aria-label="dismiss this list">\u00d7</button>'
        lines = [one for one in files if one.state == "failed"]
    items = "".join(
        f'<li class="{one.state}">{escape(one.told or f"{one.name}: {one.state}")}</li>'
        for one in lines
    )
    return (
        f'<div class="arriving" role="status"><p>{head}{bar}</p>'
        f"{f'<ul>{items}</ul>' if items else ''}</div>"
    )


def text_of(data: Any, key: str) -> str:
    value = data.get(key) if isinstance(data, dict) else None
    return value if isinstance(value, str) else ""
