"""The files of the roots, as the disk has them now: where they are, which count, what they hold.

Names are absolute paths in which the folders are no links. What is skipped is remembered, with why.
Nothing outside the roots is read: who wants what a link leads to there names it as a root.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from index import files
from index.files import File, Skipped, Stamp
from index.records import Span
from index.tokens import digest

if TYPE_CHECKING:
    from index.segment import Document

Progress = Callable[[str, int, int], None]  # (what, done, of)

WIDE = 64  # so many changed paths are looked at sooner by a walk over everything


@dataclass(frozen=True, slots=True)
class Change:
    """A text as it was read."""

    path: str
    text: str
    digest: bytes
    stamp: Stamp | None  # None: look at it again


class Disk:
    """Some folders. Not for several threads at once, but for `key`."""

    def __init__(self, roots: Sequence[Path]) -> None:
        self.roots = tuple(dict.fromkeys(Path(os.path.realpath(root)) for root in roots))
        self.skipped: dict[str, str] = {}  # by name: why it does not count
        self.passed: dict[str, Stamp] = {}  # files that did not count for what they held

    def key(self, path: Path | str) -> str:
        """The name of a file; what is no absolute path, such as "untitled:1", names itself."""
        path = os.fspath(path)
        if not os.path.isabs(path):
            return path
        folder, name = os.path.split(os.path.normpath(path))
        return os.path.join(os.path.realpath(folder), name)

    def require_roots(self) -> None:
        """NotADirectoryError where a root is none."""
        for root in self.roots:
            if not root.is_dir():
                raise NotADirectoryError(f"{root}: not a folder; name one that exists")

    def walk(self) -> dict[str, File]:
        """All files that may count, by name. A root that is gone has none."""
        found: dict[str, File] = {}
        skipped: dict[str, str] = {}
        for root in self.roots:

            def report(path: str, reason: str, root: Path = root) -> None:
                skipped[os.path.join(root, path)] = reason

            try:
                for file in files.walk(root, report):
                    found.setdefault(os.path.join(root, file.path), file)
            except NotADirectoryError:
                continue
        self.passed = {
            path: stamp
            for path, stamp in self.passed.items()
            if path in found and found[path].stamp == stamp
        }
        self.skipped = skipped | {path: self.skipped[path] for path in self.passed}
        return found

    def look(self, keys: Collection[str]) -> dict[str, File]:
        """Those of these files that may count."""
        found: dict[str, File] = {}
        for key in keys:
            self.skipped.pop(key, None)
            for root in self.roots:
                inside = key.removeprefix(os.path.join(root, ""))
                if inside == key or not os.path.lexists(key):
                    continue
                try:
                    found[key] = files.look(root, inside)
                    self.skipped.pop(key, None)
                    break
                except Skipped as reason:
                    self.skipped[key] = str(reason)
        return found

    def is_wide(self, keys: Collection[str]) -> bool:
        """Whether a walk is the better way to see what changed."""
        return len(keys) > WIDE or any(
            os.path.isdir(key) and not os.path.islink(key) for key in keys
        )

    def read(self, path: str, file: File) -> Change | None:
        """What a file holds; None where that does not count."""
        try:
            text, stamp = files.load(file)
        except Skipped as reason:
            self.skipped[path] = str(reason)
            self.passed[path] = file.stamp
            return None
        self.skipped.pop(path, None)
        self.passed.pop(path, None)
        return Change(path, text, digest(text), stamp)

    def find(self, text: str, documents: Iterable[Document], most: int) -> list[Span]:
        """Where a text stands in files that still are as they were indexed: newest first."""
        spans: list[Span] = []
        for document in sorted(documents, key=lambda one: one.changed, reverse=True):
            try:
                whole = files.read(document.path) if text else ""
            except Skipped:  # gone, or a buffer without a file
                continue
            at = whole.find(text) if digest(whole) == document.digest else -1
            while at >= 0 and len(spans) < most:
                spans.append(Span(document.path, at, at + len(text), document.version))
                at = whole.find(text, at + 1)
        return spans

    def why_no_buffer(self, path: str, text: str) -> str | None:
        """Why an open buffer is not copied from; None where it is."""
        *folders, name = path.lower().split("/")
        if files.SECRET_NAME.match(name) or not files.SECRET_FOLDERS.isdisjoint(folders):
            return "may hold secrets"
        try:
            files._text(text.encode())
        except UnicodeEncodeError:
            return "not UTF-8"
        except Skipped as reason:
            return str(reason)
        return None
