"""The files under the workspace roots as they are on disk: which are indexed, and their text.

Files are named by absolute paths whose folders contain no symbolic links. Skipped files are
remembered with the reason. Nothing outside the roots is read: to index a link's target, add it as
a root.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from index.records import Span
from index.workspace import file_filter
from index.workspace.file_filter import FileEntry, Skipped, Stamp
from index.workspace.token_cache import digest

if TYPE_CHECKING:
    from index.workspace.segment import IndexedDocument

Progress = Callable[[str, int, int], None]  # (what, done, total)

MAX_LOOKUP_PATHS = 64  # paths; more changed ones are cheaper to find by a walk
MAX_SECRET_FILES = 10_000  # files of a secret folder whose hard links are looked for

HARD_LINK = f"{file_filter.SECRET}: a hard link to a file that does"
FileIdentity = tuple[int, int]  # device and inode


@dataclass(frozen=True, slots=True)
class FileText:
    """The text of a file or buffer."""

    path: str
    text: str
    digest: bytes
    stamp: Stamp | None  # None: the file must be read again


class RootFiles:
    """The files under some folders. Only `key` may be called from several threads at once."""

    def __init__(self, roots: Sequence[Path], gitignore: bool = True) -> None:
        """Take the folders, unread. `gitignore`: skip what git ignores."""
        self._gitignore = gitignore
        self.roots = tuple(dict.fromkeys(Path(os.path.realpath(root)) for root in roots))
        self.rejected: dict[str, tuple[Stamp, str]] = {}  # files skipped for their contents, why
        self._excluded: dict[str, str] = {}  # files and folders skipped unread, why
        self._links: dict[str, set[str]] = {}  # target -> symbolic links to it
        self._secrets: set[FileIdentity] = set()  # files whose names are those of secrets

    @property
    def skipped(self) -> dict[str, str]:
        """Return the reason, by path, why a file or folder is not indexed."""
        return self._excluded | {path: why for path, (_, why) in self.rejected.copy().items()}

    def key(self, path: Path | str) -> str:
        """Return the canonical name of a file.

        Anything but an absolute path ("untitled:1") is its own.
        """
        path = os.fspath(path)
        if not os.path.isabs(path):
            return path
        folder, name = os.path.split(os.path.normpath(path))
        try:
            return os.path.join(os.path.realpath(folder), name)
        except ValueError:  # no file can have this name
            return path

    def require_roots(self) -> None:
        """NotADirectoryError if a root is not a folder."""
        for root in self.roots:
            if not os.path.isdir(root):
                raise NotADirectoryError(f"{root}: not a folder; name one that exists")

    def walk(self) -> dict[str, FileEntry]:
        """Return all candidate files by name. A missing root has none."""
        found: dict[str, FileEntry] = {}
        self._links = {}
        excluded: dict[str, str] = {}
        for root in self.roots:

            def report(path: str, reason: str, root: Path = root) -> None:
                excluded[os.path.join(root, path)] = reason

            try:
                for file in file_filter.walk(root, report, self._gitignore):
                    self._add(found, os.path.join(root, file.path), file)
            except NotADirectoryError:
                continue
        self._secrets = _hard_links(_secret_files(excluded))
        for path in self._hard_linked(found):
            del found[path]
            excluded[path] = HARD_LINK
        self._excluded = excluded
        self.rejected = {path: one for path, one in self.rejected.items() if path in found}
        return found

    def _hard_linked(self, found: dict[str, FileEntry]) -> list[str]:
        """Return those of these files that are also known under the name of a secret."""
        inodes = {inode for _, inode in self._secrets}
        return [
            path
            for path, file in found.items()
            if file.stamp.inode in inodes
            and not file.is_exempt
            and not _hard_links([file.real_path]).isdisjoint(self._secrets)
        ]

    def lookup(self, keys: Collection[str]) -> dict[str, FileEntry]:
        """Return the candidates among these files; forget why anything below was skipped."""
        found: dict[str, FileEntry] = {}
        below = tuple(f"{key}/" for key in keys)
        for known in (self.rejected, self._excluded):
            for path in [path for path in known if path.startswith(below)]:
                del known[path]
        for key in keys:
            self._excluded.pop(key, None)
            for root in self.roots:
                inside = key.removeprefix(os.path.join(root, ""))
                if inside == key or not os.path.lexists(key):
                    continue
                try:
                    self._add(found, key, file_filter.lookup(root, inside, self._gitignore))
                    self._excluded.pop(key, None)
                    break
                except Skipped as reason:
                    self._excluded[key] = str(reason)
            if key not in found:
                self.rejected.pop(key, None)
        return found

    def _add(self, found: dict[str, FileEntry], key: str, file: FileEntry) -> None:
        found.setdefault(key, file)
        if file.real_path != key:
            self._links.setdefault(file.real_path, set()).add(key)

    def with_links(self, keys: Collection[str]) -> set[str]:
        """Return these files and the symbolic links to them."""
        return set(keys).union(*(self._links.get(key, ()) for key in keys))

    def needs_walk(self, keys: Collection[str]) -> bool:
        """Return whether these changes are found by a walk rather than by `lookup`."""
        return len(keys) > MAX_LOOKUP_PATHS or any(map(_is_folder_or_hard_linked, keys))

    def is_rejected(self, path: str, stamp: Stamp) -> bool:
        """Return whether this file was read and rejected, and has not changed since."""
        known = self.rejected.get(path)
        return known is not None and known[0] == stamp

    def read(self, path: str, file: FileEntry) -> FileText | None:
        """Return the text of a file, or None if it is rejected for its contents."""
        try:
            text, stamp = file_filter.load(file)
        except Skipped as reason:
            self.rejected[path] = file.stamp, str(reason)
            return None
        self.rejected.pop(path, None)
        return FileText(path, text, digest(text), stamp)

    def find(
        self,
        text: str,
        documents: Iterable[IndexedDocument],
        limit: int,
        shown: Callable[[str], bool] = lambda path: True,
    ) -> list[Span]:
        """Find a text in files unchanged since they were indexed, newest first.

        Only files that are `shown` count.
        """
        spans: list[Span] = []
        for document in sorted(documents, key=lambda document: document.changed, reverse=True):
            try:
                whole = file_filter.read(os.path.realpath(document.path)) if text else ""
            except Skipped:  # deleted, or a buffer without a file
                continue
            at = whole.find(text) if digest(whole) == document.digest else -1
            if at >= 0 and not shown(document.path):
                continue
            while at >= 0:
                if len(spans) == limit:
                    return spans
                spans.append(Span(document.path, at, at + len(text), document.version))
                at = whole.find(text, at + 1)
        return spans

    def why_skip_buffer(self, path: str, text: str) -> str | None:
        """Return why an open buffer is not indexed, or None if it is."""
        try:
            file_filter.check_buffer(path, text, self.roots)
        except Skipped as reason:
            return str(reason)
        return self._why_hard_linked(path) or self.why_ignored(path)

    def why_secret(self, path: str, text: str) -> str | None:
        """Return why a text of a file, or of none, may hold secrets; None if it seems not to."""
        return file_filter.why_secret(path, text, self.roots) or self._why_hard_linked(path)

    def why_ignored(self, path: str) -> str | None:
        """Return why a file is not indexed because of its place, as one that git ignores.

        None if it may be indexed.
        """
        return file_filter.why_ignored(path, self.roots) if self._gitignore else None

    def _why_hard_linked(self, path: str) -> str | None:
        return None if _hard_links([path]).isdisjoint(self._secrets) else HARD_LINK


def _is_folder_or_hard_linked(path: str) -> bool:
    """Return whether a change of this file may concern others.

    Those in it are concerned, or those that it is too.
    """
    try:
        status = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) or (stat.S_ISREG(status.st_mode) and status.st_nlink > 1)


def _secret_files(excluded: dict[str, str]) -> Iterator[str]:
    """Yield the files that were skipped for their names, and those in folders that were."""
    for path, reason in excluded.items():
        if reason == file_filter.SECRET:
            yield path
            below = os.walk(path) if not os.path.islink(path) else ()
            inside = (os.path.join(folder, name) for folder, _, names in below for name in names)
            yield from islice(inside, MAX_SECRET_FILES)


def _hard_links(paths: Iterable[str]) -> set[FileIdentity]:
    """Return those of these files that have several names."""
    found = set()
    for path in paths:
        with suppress(OSError, ValueError):  # ValueError: no file can have this name
            status = os.lstat(path)
            if stat.S_ISREG(status.st_mode) and status.st_nlink > 1:
                found.add((status.st_dev, status.st_ino))
    return found
