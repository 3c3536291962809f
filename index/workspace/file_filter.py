"""Decides which files of a folder are indexed, and reads them.

Skipped are what git ignores by patterns (also files that git tracks all the same), other worktrees
of a repository in it, version control, build output, caches, binaries, files over 1 MiB, links to
folders, links that lead out of the folder, and what may hold secrets, unless `.draftlineindex` in
the folder names it.
"""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from index import temporary_file
from index.os_calls import NO_LINK, NO_WAIT, read_start
from index.workspace import secret_names, secrets
from index.workspace.ignore_rules import (
    UNUSABLE,
    IgnoreFiles,
    IgnoreRules,
    ignore_file,
    is_ignored,
    rules_above,
    rules_in,
    with_ignore_file_in,
)
from index.workspace.ignore_rules import Skipped as Skipped  # what reading raises, too

MAX_FILE_BYTES = 1 << 20
SECRET = "may hold secrets"  # the start of a reason
# The reasons for files that are not indexed because of their place
IGNORED = re.compile(rf"ignored by |a \S+ folder$|a \.git file$|holds |{UNUSABLE}")
EXEMPTIONS = ".draftlineindex"  # gitignore patterns of what is indexed although it looks secret
BINARY_CHECK_BYTES = 1 << 13  # bytes; a NUL among the first ones makes a file binary

# fmt: off
JUNK_FOLDERS = frozenset({
    ".git", ".hg", ".svn", "node_modules", "bower_components", "__pycache__", ".venv", "venv",
    ".tox", ".nox", ".eggs", ".cache", ".mypy_cache", ".pytest_cache", ".ruff_cache",
    ".hypothesis", ".gradle", ".idea", ".next", ".terraform", "build", "dist",
})
# fmt: on
JUNK_MARKS = ("CACHEDIR.TAG", "pyvenv.cfg")  # mark a folder as generated
MAX_READ_ATTEMPTS = 3  # reads of a file that changes meanwhile
TIMESTAMP_GRANULARITY_NS = 100_000_000  # nanoseconds; closer writes may leave the same timestamps


class Stamp(NamedTuple):
    """Identifies the contents of a file without reading it, and how they were judged."""

    size: int
    mtime_ns: int
    ctime_ns: int
    inode: int
    rules: int  # the version of the rules that find secrets; 0 if the file is exempt


Report = Callable[[str, str], None]  # (path relative to the folder, why it was skipped)


@dataclass(frozen=True, slots=True)
class FileEntry:
    """A candidate for indexing; whether it is text is known only after reading it."""

    path: str  # relative to the folder, with "/" and surrogate escapes
    real_path: str  # absolute path to read; a link's target
    stamp: Stamp  # the stamp of `real_path`

    @property
    def changed(self) -> int:
        """Modification time in ns since the epoch."""
        return self.stamp.mtime_ns

    @property
    def is_exempt(self) -> bool:
        """Return whether the file is indexed although it may look secret."""
        return not self.stamp.rules


class _Root(NamedTuple):
    """A folder whose files are indexed."""

    top: str  # its real path
    above: IgnoreRules | None  # the rules above it; None if ignore files are not used
    exemptions: IgnoreFiles


def walk(
    root: Path | str, report: Report | None = None, gitignore: bool = True
) -> Iterator[FileEntry]:
    """Yield the candidate files of a folder, sorted by name, depth first.

    `gitignore`: skip ignored ones. NotADirectoryError if it is not a folder.
    """
    top = os.path.realpath(root)
    if not os.path.isdir(top):
        raise NotADirectoryError(f"{top}: not a folder; name one that exists")
    report = report or (lambda path, reason: None)
    open_folders: list[tuple[str, Iterator[os.DirEntry[str]], IgnoreRules | None]] = []
    try:
        whole = _root(top, gitignore)
        open_folders.append(("", _list(top), with_ignore_file_in(top, whole.above)))
    except OSError as error:
        report(".", _unreadable(error))
    except Skipped as skipped:
        report(".", str(skipped))
    while open_folders:
        folder, entries, rules = open_folders[-1]
        entry = next(entries, None)
        if entry is None:
            open_folders.pop()
            continue
        path, file = folder + entry.name, None
        try:
            if entry.is_dir(follow_symlinks=False):
                inside = _enter(whole, entry.path, entry.name, rules)
                open_folders.append((path + "/", _list(entry.path), inside))
            else:
                _check_name(whole, entry.path, entry.name, rules)
                file = _entry(whole, path, entry.path, entry.stat(follow_symlinks=False))
        except OSError as error:  # or deleted since it was listed
            report(path, _unreadable(error))
        except Skipped as skipped:
            report(path, str(skipped))
        if file:
            yield file


def lookup(root: Path | str, path: str, gitignore: bool = True) -> FileEntry:
    """Return one file by its relative path, unread. Raises Skipped for the reasons of `walk`."""
    return _lookup(_root(os.path.realpath(root), gitignore), path)


def load(file: FileEntry) -> tuple[str, Stamp | None]:
    """Return the exact text of a file, and its stamp.

    The stamp is None if a later write might not change it. Raises Skipped, also if the file holds
    secrets, was moved or replaced by a link.
    """
    try:
        with open(file.real_path, "rb", 0, opener=_open) as opened:
            if _was_moved(opened.fileno(), file.real_path):
                raise Skipped("a folder on its path became a link")
            return _read_stable(opened.fileno(), file.stamp.rules)
    except OSError as error:
        raise Skipped(_unreadable(error)) from error


def read(path: Path | str) -> str:
    """Return the exact text of a file, including line ends and BOM, whatever it is about.

    Raises Skipped for binaries and large files, and for links, pipes and devices, which are not
    opened.
    """
    try:
        with open(path, "rb", 0, opener=_open) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise Skipped("not a regular file")
            data = read_start(file.fileno(), MAX_FILE_BYTES + 1)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        if isinstance(error, Skipped):
            raise
        raise Skipped(_unreadable(error)) from error
    return decode(data)


def _open(path: str, flags: int) -> int:
    """Open a path: fail on a link, and do not block on a pipe."""
    return os.open(path, flags | NO_LINK | NO_WAIT)


def _read_stable(descriptor: int, rules: int) -> tuple[str, Stamp | None]:
    """Read the text of an open file, again if it changed meanwhile, and its stamp as in `load`."""
    known = None
    for _ in range(MAX_READ_ATTEMPTS):
        now = time.time_ns()
        status = os.fstat(descriptor)
        stamp = _stamp(status, rules)
        if not stat.S_ISREG(status.st_mode):
            raise Skipped("not a regular file")
        data = read_start(descriptor, MAX_FILE_BYTES + 1)
        if stamp == _stamp(os.fstat(descriptor), rules):
            known = stamp if max(stamp[1:3]) < now - TIMESTAMP_GRANULARITY_NS else None
            break
    text = decode(data)
    if rules and (found := secrets.find_secret(data)):
        raise Skipped(f"{SECRET}: {found}")
    return text, known


def _was_moved(descriptor: int, path: str) -> bool:
    """Return whether an open file is not at its path because a folder on it became a link."""
    try:
        real = os.readlink(f"/proc/self/fd/{descriptor}")
    except OSError:  # not Linux
        real = os.path.realpath(path)
    return real not in (path, path + " (deleted)")  # replaced since it was opened


def decode(data: bytes) -> str:
    """Return the text of a file's contents. Raises Skipped."""
    if len(data) > MAX_FILE_BYTES:
        raise Skipped(f"over {MAX_FILE_BYTES >> 20} MiB")
    if b"\0" in data[:BINARY_CHECK_BYTES]:
        raise Skipped("binary")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Skipped("not UTF-8") from error


def check_buffer(path: str, text: str, roots: Iterable[Path] = ()) -> None:
    """Raise Skipped if an open buffer may hold secrets or is no file that is indexed.

    The buffer is of a file under one of these folders or elsewhere.
    """
    try:
        decode(text.encode())
    except UnicodeEncodeError as error:
        raise Skipped("not UTF-8") from error
    if found := why_secret(path, text, roots):
        raise Skipped(found)


def why_secret(path: str, text: str, roots: Iterable[Path] = ()) -> str | None:
    """Return why a text may hold secrets, or None if it does not seem to.

    The text is of a file under one of these folders or elsewhere. None, too, if the folder's
    `.draftlineindex` names the file.
    """
    try:
        real = os.path.realpath(path) if os.path.isabs(path) else path
    except ValueError:  # no file can have this name
        real = path
    if is_secret_path(path) or is_secret_path(real):
        found = SECRET
    elif kind := secrets.find_secret(text.encode("utf-8", "surrogatepass")):
        found = f"{SECRET}: {kind}"
    else:
        return None
    for top in map(str, roots):
        if path.startswith(os.path.join(top, "")) and _is_exempt(_root(top, False), real):
            return None
    return found


def why_ignored(path: str, roots: Iterable[Path]) -> str | None:
    """Return why a file under one of these folders is not indexed because of its place.

    Git ignores it, or it is git's own or generated. The folders need not exist. None for all other
    files.
    """
    if ".git" in path.split("/"):  # also of a repository elsewhere, as that of a worktree
        return "a .git folder"
    for top in map(str, roots):
        start = os.path.join(top, "")
        if not path.startswith(start):
            continue
        try:
            lookup(top, path.removeprefix(start))
        except Skipped as reason:
            if IGNORED.match(str(reason)):
                return str(reason)
        except ValueError:  # no file can have this name
            continue
    return None


def is_secret_path(path: str) -> bool:
    """Return whether a file of this name, or in a folder of this name, usually holds secrets."""
    folders = path.replace(os.sep, "/").lower().split("/")[:-1]
    return not secret_names.FOLDERS.isdisjoint(folders) or secret_names.is_secret(path)


def _root(top: str, gitignore: bool) -> _Root:
    """Return the rules of a top folder. Raises Skipped if an ignore file cannot be used."""
    above = rules_above(top) if gitignore else None
    return _Root(top, above, ignore_file(top, os.path.join(top, EXEMPTIONS)))


def _is_exempt(root: _Root, absolute: str) -> bool:
    """Return whether a path, or a folder on it, is indexed although it looks secret.

    Paths of folders end in "/".
    """
    start = os.path.join(root.top, "")
    if not absolute.startswith(start):
        return False
    ends = [at + 1 for at in range(len(start), len(absolute)) if absolute[at] == "/"]
    return any(is_ignored(absolute[:end], root.exemptions) for end in {*ends, len(absolute)})


def _stamp(status: os.stat_result, rules: int) -> Stamp:
    return Stamp(status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino, rules)


def _lookup(root: _Root, path: str) -> FileEntry:
    parts = path.split("/")
    if "\0" in path or not {"", ".", ".."}.isdisjoint(parts):
        raise Skipped("not a path in the folder")
    absolute, rules = root.top, with_ignore_file_in(root.top, root.above)
    for part in parts[:-1]:
        absolute = os.path.join(absolute, part)
        rules = _enter(root, absolute, part, rules)
    absolute = os.path.join(absolute, parts[-1])
    _check_name(root, absolute, parts[-1], rules)
    try:
        return _entry(root, path, absolute, os.lstat(absolute))
    except OSError as error:
        raise Skipped(_unreadable(error)) from error


def _list(folder: str) -> Iterator[os.DirEntry[str]]:
    """List the entries of a folder, by name."""
    with os.scandir(folder) as entries:
        return iter(sorted(entries, key=lambda entry: os.fsencode(entry.name)))


def _enter(root: _Root, absolute: str, name: str, rules: IgnoreRules | None) -> IgnoreRules | None:
    """Return the rules in a folder, given its parent's. Raises Skipped."""
    if os.path.islink(absolute):
        raise Skipped("a link to a folder")
    if name.lower() in secret_names.FOLDERS and not _is_exempt(root, absolute + "/"):
        raise Skipped(SECRET)
    if name in JUNK_FOLDERS or name.endswith(".egg-info"):
        raise Skipped(f"a {name} folder")
    for mark in JUNK_MARKS:
        if os.path.isfile(os.path.join(absolute, mark)):
            raise Skipped(f"holds {mark}")
    return None if rules is None else rules_in(absolute, rules)


def _check_name(root: _Root, absolute: str, name: str, rules: IgnoreRules | None) -> None:
    if name == ".git":
        raise Skipped("a .git file")
    if temporary_file.NAME.fullmatch(name):  # it may hold the text of a secret file
        raise Skipped("a temporary file of an edit")
    if secret_names.is_secret(absolute) and not _is_exempt(root, absolute):
        raise Skipped(SECRET)
    if rules and is_ignored(absolute, rules.ignore_files):
        raise Skipped("ignored by .gitignore")


def _entry(root: _Root, path: str, absolute: str, status: os.stat_result) -> FileEntry:
    """Return a file that passed the check of its name, if its type and size are allowed."""
    if stat.S_ISLNK(status.st_mode):
        return _follow_link(root, path, absolute)
    if not stat.S_ISREG(status.st_mode):
        raise Skipped("not a regular file")
    if status.st_size > MAX_FILE_BYTES:
        raise Skipped(f"over {MAX_FILE_BYTES >> 20} MiB")
    rules = 0 if root.exemptions and _is_exempt(root, absolute) else secrets.VERSION
    return FileEntry(path, absolute, _stamp(status, rules))


def _follow_link(root: _Root, path: str, absolute: str) -> FileEntry:
    """Return the file of a link whose target is an indexed file of the same folder."""
    try:
        target = os.path.realpath(absolute, strict=True)
    except OSError as error:
        raise Skipped("a broken link") from error
    if os.path.isdir(target):
        raise Skipped("a link to a folder")
    start = os.path.join(root.top, "")
    if not target.startswith(start):
        raise Skipped("a link out of the folder")
    try:
        file = _lookup(root, target[len(start) :])
    except Skipped as skipped:
        raise Skipped(f"a link to a file that is skipped: {skipped}") from skipped
    return FileEntry(path, file.real_path, file.stamp)


def _unreadable(error: OSError | ValueError) -> str:
    return f"unreadable: {getattr(error, 'strerror', None) or error}"
