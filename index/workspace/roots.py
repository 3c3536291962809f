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

from index.records import Span
from index.workspace import file_filter
from index.workspace.file_filter import File, Skipped, Stamp
from index.workspace.token_cache import digest

if TYPE_CHECKING:
    from index.workspace.segment import Document

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

    def __init__(self, roots: Sequence[Path], gitignore: bool = True) -> None:
        """`gitignore` False: what git ignores counts, too."""
        self._gitignore = gitignore
        self.roots = tuple(dict.fromkeys(Path(os.path.realpath(root)) for root in roots))
        self.passed: dict[str, tuple[Stamp, str]] = {}  # what did not count for what it held, why
        self._left_out: dict[str, str] = {}  # what is not to be read, why
        self._links: dict[str, set[str]] = {}  # by what they lead to

    @property
    def skipped(self) -> dict[str, str]:
        """By name: why a file or folder does not count."""
        return self._left_out | {path: why for path, (_, why) in self.passed.copy().items()}

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
            if not os.path.isdir(root):
                raise NotADirectoryError(f"{root}: not a folder; name one that exists")

    def walk(self) -> dict[str, File]:
        """All files that may count, by name. A root that is gone has none."""
        found: dict[str, File] = {}
        self._links = {}
        left_out: dict[str, str] = {}
        for root in self.roots:

            def report(path: str, reason: str, root: Path = root) -> None:
                left_out[os.path.join(root, path)] = reason

            try:
                for file in file_filter.walk(root, report, self._gitignore):
                    self._note(found, os.path.join(root, file.path), file)
            except NotADirectoryError:
                continue
        self._left_out = left_out
        self.passed = {path: one for path, one in self.passed.items() if path in found}
        return found

    def look(self, keys: Collection[str]) -> dict[str, File]:
        """Those of these files that may count. Nothing is known of what was below them."""
        found: dict[str, File] = {}
        below = tuple(f"{key}/" for key in keys)
        for known in (self.passed, self._left_out):
            for path in [path for path in known if path.startswith(below)]:
                del known[path]
        for key in keys:
            self._left_out.pop(key, None)
            for root in self.roots:
                inside = key.removeprefix(os.path.join(root, ""))
                if inside == key or not os.path.lexists(key):
                    continue
                try:
                    self._note(found, key, file_filter.look(root, inside, self._gitignore))
                    self._left_out.pop(key, None)
                    break
                except Skipped as reason:
                    self._left_out[key] = str(reason)
            if key not in found:
                self.passed.pop(key, None)
        return found

    def _note(self, found: dict[str, File], key: str, file: File) -> None:
        found.setdefault(key, file)
        if file.full != key:
            self._links.setdefault(file.full, set()).add(key)

    def with_links(self, keys: Collection[str]) -> set[str]:
        """These files, and the links that lead to them."""
        return set(keys).union(*(self._links.get(key, ()) for key in keys))

    def is_wide(self, keys: Collection[str]) -> bool:
        """Whether a walk is the better way to see what changed."""
        return len(keys) > WIDE or any(
            os.path.isdir(key) and not os.path.islink(key) for key in keys
        )

    def is_passed(self, path: str, stamp: Stamp) -> bool:
        """Whether this very file was read and did not count."""
        known = self.passed.get(path)
        return known is not None and known[0] == stamp

    def read(self, path: str, file: File) -> Change | None:
        """What a file holds; None where that does not count."""
        try:
            text, stamp = file_filter.load(file)
        except Skipped as reason:
            self.passed[path] = file.stamp, str(reason)
            return None
        self.passed.pop(path, None)
        return Change(path, text, digest(text), stamp)

    def find(self, text: str, documents: Iterable[Document], most: int) -> list[Span]:
        """Where a text stands in files that still are as they were indexed: newest first."""
        spans: list[Span] = []
        for document in sorted(documents, key=lambda one: one.changed, reverse=True):
            try:
                whole = file_filter.read(document.path) if text else ""
            except Skipped:  # gone, or a buffer without a file
                continue
            at = whole.find(text) if digest(whole) == document.digest else -1
            while at >= 0:
                if len(spans) == most:
                    return spans
                spans.append(Span(document.path, at, at + len(text), document.version))
                at = whole.find(text, at + 1)
        return spans

    def why_no_buffer(self, path: str, text: str) -> str | None:
        """Why an open buffer is not copied from; None where it is."""
        *folders, name = path.lower().split("/")
        if file_filter.SECRET_NAME.match(name) or not file_filter.SECRET_FOLDERS.isdisjoint(
            folders
        ):
            return "may hold secrets"
        try:
            file_filter.text_of(text.encode())
        except UnicodeEncodeError:
            return "not UTF-8"
        except Skipped as reason:
            return str(reason)
        return None
