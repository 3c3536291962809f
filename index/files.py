"""Which files of a folder count as text to copy from, and why the others do not.

Skipped: what .gitignore files and .git/info/exclude say (not a user's global excludes), version
control and junk folders, secrets, binaries, files over 1 MiB, and whatever a link leads to outside
the folder. Linked folders are never entered.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from pathspec import GitIgnoreSpec

LARGEST = 1 << 20  # bytes of a file
SNIFFED = 1 << 13  # bytes in which a NUL makes a file binary

# fmt: off
SECRET_FILES = (  # patterns of lower-case names
    ".env*", "*.pem", "*.key", "*.p12", "*.pfx", "*.ppk", "*.jks", "*.keystore", "*.kdbx",
    "id_rsa*", "id_dsa*", "id_ecdsa*", "id_ed25519*", "credentials*", ".netrc", "_netrc",
    ".npmrc", ".pypirc", ".pgpass", ".git-credentials", ".htpasswd",
)
SECRET_FOLDERS = frozenset({".aws", ".azure", ".docker", ".gnupg", ".kube", ".ssh"})
JUNK_FOLDERS = frozenset({
    ".git", ".hg", ".svn", "node_modules", "bower_components", "__pycache__", ".venv", "venv",
    ".tox", ".nox", ".eggs", ".cache", ".mypy_cache", ".pytest_cache", ".ruff_cache",
    ".hypothesis", ".gradle", ".idea", ".next", ".terraform", "build", "dist",
})
# fmt: on
JUNK_MARKS = ("CACHEDIR.TAG", "pyvenv.cfg")  # a folder with one of these is made, not written

Report = Callable[[str, str], None]  # (path in the folder, why it was skipped)


class Skipped(ValueError):
    """A file that does not count; the message is the reason."""


@dataclass(frozen=True, slots=True)
class File:
    """A file that may count; only reading it tells whether it is text."""

    path: str  # in the folder, with "/"; undecodable bytes as surrogate escapes
    full: Path
    changed: int  # ns since the epoch


@dataclass(frozen=True, slots=True)
class _Rules:
    """The ignore rules of one folder."""

    folder: Path
    spec: GitIgnoreSpec


def walk(root: Path, report: Report | None = None) -> Iterator[File]:
    """The files of a folder, sorted by name, depth first. NotADirectoryError where it is none."""
    root = Path(os.path.realpath(root))
    if not root.is_dir():
        raise NotADirectoryError(f"{root}: not a folder; name one that exists")
    yield from _walk(root, root, _rules_above(root), report or (lambda path, reason: None))


def why_skipped(root: Path, path: str) -> str | None:
    """Why a file of the folder does not count, its content included; None where it does."""
    root = Path(os.path.realpath(root))
    rules, folder = _rules_above(root), root
    *folders, name = path.split("/")
    for part in folders:
        rules = rules + _rules_in(folder)
        reason = _why_not_folder(folder / part, rules)
        if reason:
            return reason
        folder = folder / part
    rules = rules + _rules_in(folder)
    reason = _why_not_file(root, folder / name, rules)
    if reason:
        return reason
    try:
        read(folder / name)
    except Skipped as skipped:
        return str(skipped)
    return None


def read(path: Path) -> str:
    """The exact text of a file, line ends and BOM kept. Raises Skipped."""
    try:
        with path.open("rb") as file:
            data = file.read(LARGEST + 1)
    except OSError as error:
        raise Skipped(_unreadable(error)) from error
    if len(data) > LARGEST:
        raise Skipped(f"over {LARGEST >> 20} MiB")
    if b"\0" in data[:SNIFFED]:
        raise Skipped("binary")
    if data.startswith(b"-----BEGIN ") and b"PRIVATE KEY" in data.split(b"\n", 1)[0]:
        raise Skipped("may hold secrets: a private key")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Skipped("not UTF-8") from error


def _walk(root: Path, folder: Path, rules: list[_Rules], report: Report) -> Iterator[File]:
    def name_of(path: Path) -> str:
        return path.relative_to(root).as_posix()

    try:
        paths = sorted(folder.iterdir(), key=os.fsencode)
    except OSError as error:
        report(name_of(folder), _unreadable(error))
        return
    rules = rules + _rules_in(folder)
    for path in paths:
        try:
            is_folder = stat.S_ISDIR(path.lstat().st_mode)
        except OSError as error:  # gone since it was listed
            report(name_of(path), _unreadable(error))
            continue
        reason = _why_not_folder(path, rules) if is_folder else _why_not_file(root, path, rules)
        if reason:
            report(name_of(path), reason)
        elif is_folder:
            yield from _walk(root, path, rules, report)
        else:
            try:
                changed = path.stat().st_mtime_ns
            except OSError as error:
                report(name_of(path), _unreadable(error))
                continue
            yield File(name_of(path), path, changed)


def _why_not_folder(path: Path, rules: list[_Rules]) -> str | None:
    if path.is_symlink():
        return "a link to a folder"
    if path.name.lower() in SECRET_FOLDERS:
        return "may hold secrets"
    if path.name in JUNK_FOLDERS or path.name.endswith(".egg-info"):
        return f"a {path.name} folder"
    mark = next((mark for mark in JUNK_MARKS if _holds(path, mark)), None)
    if mark:
        return f"holds {mark}"
    return "ignored by .gitignore" if _ignored(path, "/", rules) else None


def _why_not_file(root: Path, path: Path, rules: list[_Rules]) -> str | None:
    """By name, kind and size; the content is not looked at."""
    if any(fnmatchcase(path.name.lower(), pattern) for pattern in SECRET_FILES):
        return "may hold secrets"
    if _ignored(path, "", rules):
        return "ignored by .gitignore"
    if path.is_symlink():
        return _why_not_link(root, path)
    try:
        status = path.stat()
    except OSError as error:
        return _unreadable(error)
    if not stat.S_ISREG(status.st_mode):
        return "not a regular file"
    return f"over {LARGEST >> 20} MiB" if status.st_size > LARGEST else None


def _why_not_link(root: Path, path: Path) -> str | None:
    """A link counts as what it leads to, where that is a file of the folder which counts itself."""
    try:
        target = path.resolve(strict=True)
    except (OSError, RuntimeError):  # RuntimeError: a cycle, before Python 3.13
        return "a broken link"
    if target.is_dir():
        return "a link to a folder"
    if not target.is_relative_to(root):
        return "a link out of the folder"
    reason = why_skipped(root, target.relative_to(root).as_posix())
    return f"a link to a file that is skipped: {reason}" if reason else None


def _rules_above(root: Path) -> list[_Rules]:
    """The rules of the repository around a folder, from its top to the folder's parent. None of
    them hold where they ignore the folder itself: then the repository is not about it."""
    top = next((folder for folder in (root, *root.parents) if (folder / ".git").exists()), None)
    if top is None:
        return []
    rules = _rules_file(top, top / ".git" / "info" / "exclude")
    for folder in [folder for folder in reversed(root.parents) if folder.is_relative_to(top)]:
        if folder != top and _ignored(folder, "/", rules):
            return []
        rules = rules + _rules_in(folder)
    return [] if root != top and _ignored(root, "/", rules) else rules


def _rules_in(folder: Path) -> list[_Rules]:
    return _rules_file(folder, folder / ".gitignore")


def _rules_file(folder: Path, path: Path) -> list[_Rules]:
    """Rules that hold below `folder`; none where the file is missing or no text, as git does."""
    try:
        if path.is_symlink():
            return []
        lines = path.read_bytes().decode("utf-8", "surrogateescape").splitlines()
    except OSError:
        return []
    spec = GitIgnoreSpec.from_lines(line for line in lines if _is_pattern(line))
    return [_Rules(folder, spec)]


def _is_pattern(line: str) -> bool:
    """False for a line that git passes over too, such as a lone "!"."""
    try:
        GitIgnoreSpec.from_lines([line])
    except (ValueError, re.error):
        return False
    return True


def _ignored(path: Path, end: str, rules: list[_Rules]) -> bool:
    """Whether the innermost rules that know the path say so. `end` is "/" for a folder."""
    for rule in reversed(rules):
        ignored = rule.spec.check_file(path.relative_to(rule.folder).as_posix() + end).include
        if ignored is not None:
            return bool(ignored)
    return False


def _holds(folder: Path, name: str) -> bool:
    try:
        return (folder / name).is_file()
    except OSError:  # the walk itself reports a folder that it cannot enter
        return False


def _unreadable(error: OSError) -> str:
    return f"unreadable: {error.strerror or error}"
