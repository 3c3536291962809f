"""Which files of a folder count as text to copy from, and why the others do not.

Skipped: what .gitignore and .git/info/exclude say (not a user's global excludes), version control,
junk, secrets, binaries, files over 1 MiB, linked folders, and what a link leads to outside.
"""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fnmatch import translate
from functools import lru_cache
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
SECRET_NAME = re.compile("|".join(map(translate, SECRET_FILES)))
SECRET_FOLDERS = frozenset({".aws", ".azure", ".docker", ".gnupg", ".kube", ".ssh"})
JUNK_FOLDERS = frozenset({
    ".git", ".hg", ".svn", "node_modules", "bower_components", "__pycache__", ".venv", "venv",
    ".tox", ".nox", ".eggs", ".cache", ".mypy_cache", ".pytest_cache", ".ruff_cache",
    ".hypothesis", ".gradle", ".idea", ".next", ".terraform", "build", "dist",
})
# fmt: on
JUNK_MARKS = ("CACHEDIR.TAG", "pyvenv.cfg")  # a folder with one of these is made, not written
TRIES = 3  # readings of a file that changes meanwhile
RACE = 100_000_000  # ns: two writes this close together may leave the same stamp

Stamp = tuple[int, int, int, int]  # of a file: size, mtime and ctime in ns, inode
Report = Callable[[str, str], None]  # (path in the folder, why it was skipped)


class Skipped(ValueError):
    """A file that does not count; the message is the reason."""


@dataclass(frozen=True, slots=True)
class File:
    """A file that may count; only reading it tells whether it is text."""

    path: str  # in the folder, with "/"; undecodable bytes as surrogate escapes
    full: str  # absolute path to read; of a link, the real path of what it leads to
    stamp: Stamp  # of what `full` is, when it was looked at

    @property
    def changed(self) -> int:
        """When the file was last written, ns since the epoch."""
        return self.stamp[1]


# A regex with a group for each line, the last line first, and by group (line, whether it ignores).
_Lines = tuple[re.Pattern[str], list[tuple[int, bool]]]


@dataclass(frozen=True, slots=True)
class _Rules:
    """An ignore file. The last line that matches decides; what is a folder ends in "/"."""

    start: int  # in a full path: where the path below the file's folder starts
    names: _Lines  # they look at the name alone
    paths: _Lines  # those with an inner "/" look at the path below the file's folder


Rules = tuple[_Rules, ...]  # innermost first


def walk(root: Path | str, report: Report | None = None, gitignore: bool = True) -> Iterator[File]:
    """The files of a folder, sorted by name, depth first; `gitignore` False: ignored ones, too.
    NotADirectoryError where it is none."""
    top = os.path.realpath(root)
    if not os.path.isdir(top):
        raise NotADirectoryError(f"{top}: not a folder; name one that exists")
    report = report or (lambda path, reason: None)
    above = _rules_above(top) if gitignore else None
    open_folders: list[tuple[str, Iterator[os.DirEntry[str]], Rules | None]] = []
    try:
        open_folders.append(("", *_listed(top, above)))
    except OSError as error:
        report(".", _unreadable(error))
    while open_folders:
        folder, entries, rules = open_folders[-1]
        entry = next(entries, None)
        if entry is None:
            open_folders.pop()
            continue
        path, file = folder + entry.name, None
        try:
            if entry.is_dir(follow_symlinks=False):
                _check_folder(entry.path, entry.name, rules)
                open_folders.append((path + "/", *_listed(entry.path, rules)))
            else:
                _check_name(entry.path, entry.name, rules)
                file = _file(top, above, path, entry.path, entry.stat(follow_symlinks=False))
        except OSError as error:  # also gone since it was listed
            report(path, _unreadable(error))
        except Skipped as skipped:
            report(path, str(skipped))
        if file:
            yield file


def look(root: Path | str, path: str, gitignore: bool = True) -> File:
    """One file by its path in the folder, not read. Raises Skipped for the reasons of `walk`."""
    top = os.path.realpath(root)
    return _look(top, _rules_above(top) if gitignore else None, path)


def load(file: File) -> tuple[str, Stamp | None]:
    """The exact text of a file, and its stamp, or None where that would not tell a later text from
    this one. Raises Skipped, also where the file was moved or a link took its place."""
    try:
        with open(file.full, "rb", 0, opener=_open) as opened:
            if _moved(opened.fileno(), file.full):
                raise Skipped("a folder on its path became a link")
            return _steady(opened.fileno())
    except OSError as error:
        raise Skipped(_unreadable(error)) from error


def read(path: Path | str) -> str:
    """The exact text of a file, line ends and BOM kept. Raises Skipped."""
    try:
        with Path(path).open("rb") as file:
            data = file.read(LARGEST + 1)
    except OSError as error:
        raise Skipped(_unreadable(error)) from error
    return text_of(data)


def _open(path: str, flags: int) -> int:
    """To read a file as it is now: a link fails and a pipe does not wait."""
    return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))


def _steady(descriptor: int) -> tuple[str, Stamp | None]:
    """The text of an open file, read again where it changed meanwhile, and its stamp if known."""
    for _ in range(TRIES):
        now = time.time_ns()
        status = os.fstat(descriptor)
        stamp = _stamp(status)
        if not stat.S_ISREG(status.st_mode):
            raise Skipped("not a regular file")
        data = os.pread(descriptor, LARGEST + 1, 0)
        if stamp == _stamp(os.fstat(descriptor)):
            return text_of(data), stamp if max(stamp[1:3]) < now - RACE else None
    return text_of(data), None


def _moved(descriptor: int, path: str) -> bool:
    """Whether an open file lies elsewhere than its path says, a folder on it being a link now."""
    try:
        real = os.readlink(f"/proc/self/fd/{descriptor}")
    except OSError:  # not Linux
        real = os.path.realpath(path)
    return real not in (path, path + " (deleted)")  # it may have been replaced since it was opened


def text_of(data: bytes) -> str:
    """The text that bytes are. Raises Skipped."""
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


def _stamp(status: os.stat_result) -> Stamp:
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino


def _look(top: str, above: Rules | None, path: str) -> File:
    parts = path.split("/")
    if "\0" in path or not {"", ".", ".."}.isdisjoint(parts):
        raise Skipped("not a path in the folder")
    full, rules = top, above
    for left, part in zip(reversed(range(len(parts))), parts, strict=True):
        rules = _more(full, rules)
        full = os.path.join(full, part)
        (_check_folder if left else _check_name)(full, part, rules)
    try:
        return _file(top, above, path, full, os.lstat(full))
    except OSError as error:
        raise Skipped(_unreadable(error)) from error


def _listed(folder: str, rules: Rules | None) -> tuple[Iterator[os.DirEntry[str]], Rules | None]:
    """What a folder holds, by name, and the rules that hold there, innermost first."""
    with os.scandir(folder) as entries:
        by_name = sorted(entries, key=lambda entry: os.fsencode(entry.name))
    return iter(by_name), _more(folder, rules)


def _check_folder(full: str, name: str, rules: Rules | None) -> None:
    if os.path.islink(full):
        raise Skipped("a link to a folder")
    if name.lower() in SECRET_FOLDERS:
        raise Skipped("may hold secrets")
    if name in JUNK_FOLDERS or name.endswith(".egg-info"):
        raise Skipped(f"a {name} folder")
    for mark in JUNK_MARKS:
        if os.path.isfile(os.path.join(full, mark)):
            raise Skipped(f"holds {mark}")
    if rules and _ignored(full + "/", name + "/", rules):
        raise Skipped("ignored by .gitignore")


def _check_name(full: str, name: str, rules: Rules | None) -> None:
    if name == ".git" or SECRET_NAME.match(name.lower()):
        raise Skipped("a .git file" if name == ".git" else "may hold secrets")
    if rules and _ignored(full, name, rules):
        raise Skipped("ignored by .gitignore")


def _file(top: str, above: Rules | None, path: str, full: str, status: os.stat_result) -> File:
    """A file whose name counts, by kind and size."""
    if stat.S_ISLNK(status.st_mode):
        return _linked(top, above, path, full)
    if not stat.S_ISREG(status.st_mode):
        raise Skipped("not a regular file")
    if status.st_size > LARGEST:
        raise Skipped(f"over {LARGEST >> 20} MiB")
    return File(path, full, _stamp(status))


def _linked(top: str, above: Rules | None, path: str, full: str) -> File:
    """A link counts as what it leads to, where that is a file of the folder which counts itself."""
    try:
        target = os.path.realpath(full, strict=True)
    except OSError as error:
        raise Skipped("a broken link") from error
    if os.path.isdir(target):
        raise Skipped("a link to a folder")
    start = os.path.join(top, "")
    if not target.startswith(start):
        raise Skipped("a link out of the folder")
    try:
        file = _look(top, above, target[len(start) :])
    except Skipped as skipped:
        raise Skipped(f"a link to a file that is skipped: {skipped}") from skipped
    return File(path, file.full, file.stamp)


def _rules_above(top: str) -> Rules:
    """The rules of the repository around a folder, from the folder's parent to its top. None of
    them hold where they ignore the folder itself: then the repository is not about it."""
    inside: list[str] = []  # the folder and those around it, up to the top of the repository
    for folder in (top, *map(str, Path(top).parents)):
        if os.path.exists(os.path.join(folder, ".git")):
            break
        inside.append(folder)
    else:
        return ()
    rules = _rules_in(folder, ".git/info/exclude")
    for part in reversed(inside):
        rules = _rules_in(os.path.dirname(part)) + rules
        if _ignored(part + "/", os.path.basename(part) + "/", rules):
            return ()
    return rules


def _more(folder: str, rules: Rules | None) -> Rules | None:
    """The rules that hold below `folder`; None where none are asked for."""
    return None if rules is None else _rules_in(folder) + rules


def _rules_in(folder: str, name: str = ".gitignore") -> Rules:
    """Rules that hold below `folder`; none where the file is missing, as git does."""
    start = os.path.join(folder, "")
    try:
        with open(start + name, "rb", opener=_open) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return ()
            text = file.read().decode("utf-8-sig", "surrogateescape")
    except OSError:
        return ()
    return (_Rules(len(start), _lines(text, False), _lines(text, True)),)


def _trimmed(line: str) -> str:
    """As git reads it, but for what pathspec takes "folder/**/" for: the folder itself."""
    line = line.removesuffix("\r")
    text = line.rstrip(" ")
    if text != line and (len(text) - len(text.rstrip("\\"))) % 2:
        text += " "  # escaped
    return text + "*/" if text.endswith("/**/") else text


@lru_cache(maxsize=256)
def _lines(text: str, placed: bool) -> _Lines:
    """Of an ignore file, the lines with an inner "/" or the others."""
    found = [
        (regex if placed else regex.removeprefix("^(?:.+/)?"), (number, ignores))
        for number, line in reversed([*enumerate(map(_trimmed, text.split("\n")))])
        if placed == ("/" in line.removeprefix("!").removesuffix("/"))
        for regex, ignores in _patterns(line)
    ]
    either = re.compile("|".join(f"({regex})" for regex, _ in found) or "(?!)", re.DOTALL)
    return either, [says for _, says in found]


def _patterns(line: str) -> Iterator[tuple[str, bool]]:
    """The regex of what a line matches itself (pathspec's own also matches what lies below that)
    and whether it ignores. None for a line that git passes over too, such as a lone "!"."""
    try:
        spec = GitIgnoreSpec.from_lines([line], backend="simple")
    except (ValueError, re.error):
        return
    for pattern in spec.patterns:
        if pattern.regex:
            regex = re.sub(r"\(\?P<\w+>", "(?:", pattern.regex.pattern)  # no named groups
            end = "." if regex.endswith("/") else r"\Z"  # "folder/**" is not the folder itself
            yield (regex if regex.startswith("^") else ".*" + regex) + end, bool(pattern.include)


def _ignored(full: str, name: str, rules: Rules) -> bool:
    """Whether the innermost rules that know it say so."""
    for rule in rules:
        last = -1, False
        for (regex, says), text in ((rule.names, name), (rule.paths, full[rule.start :])):
            match = regex.match(text)
            if match and match.lastindex:
                last = max(last, says[match.lastindex - 1])
        if last[0] >= 0:
            return last[1]
    return False


def _unreadable(error: OSError) -> str:
    return f"unreadable: {error.strerror or error}"
