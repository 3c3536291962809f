"""Git repositories as their files describe them: worktrees, submodules and settings. git isn't run.

Settings that one file includes from another are not read.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from index.os_calls import NO_LINK, NO_WAIT

MAX_BYTES = 1 << 20  # bytes of an ignore file, or of a file of settings
SYSTEM_SETTINGS = Path("/etc/gitconfig")
MAX_CACHED = 16  # files of settings that are parsed
TRUE = {"true", "yes", "on", "1"}

SECTION = re.compile(r'\s*\[\s*([\w.-]+)(?:\s+"((?:[^"\\]|\\.)*)")?\s*\]')
SETTING = re.compile(r"\s*([A-Za-z][\w-]*)\s*(?:=(.*))?", re.DOTALL)
VALUE = re.compile(r'"((?:[^"\\]|\\.)*)"|\\(.)|([^"\\#;]+)|([#;].*)', re.DOTALL)


class GitFileTooLarge(ValueError):
    """A file that is not read; the message names it, and says how large it may be."""


class Repository(NamedTuple):
    """A repository with a working tree."""

    folder: str  # the working tree
    common: str  # git's folder, which all worktrees share; a real path
    is_bare: bool  # has worktrees elsewhere only
    ignore_case: bool
    ignore_files: tuple[str, ...]  # those next to its .gitignore files; the first count more
    submodules: frozenset[str]  # their folders


def repository_at(folder: str, is_inside: bool = False) -> Repository | None:
    """Return the repository whose working tree is a folder, if it is one's.

    `is_inside`: the folder is in another one, where git looks closer. Raises GitFileTooLarge.
    """
    try:
        mode = os.stat(os.path.join(folder, ".git")).st_mode
    except OSError:
        return None
    top = Path(folder)
    git = top / ".git"
    if stat.S_ISREG(mode):  # a linked worktree, or a submodule
        target = _first_line(git)
        if not target.startswith("gitdir: "):
            return None
        git = top / target.removeprefix("gitdir: ")
    elif not stat.S_ISDIR(mode):
        return None
    if is_inside and not os.path.lexists(git / "HEAD"):
        return None
    common = git / _first_line(git / "commondir")
    settings = _settings(git, common)
    excludes = settings.get("core.excludesfile", os.fspath(_user_folder() / "ignore"))
    ignore_files = [common / "info/exclude"]
    if excludes:
        ignore_files.append(top / _expand(excludes))
    real = os.path.realpath(common)
    return Repository(
        folder,
        real,
        real == os.path.realpath(git) and _is_true(settings, "core.bare"),
        _is_true(settings, "core.ignorecase"),
        tuple(map(os.fspath, ignore_files)),
        frozenset(_submodules(top)),
    )


def read_file(path: str | Path, follow: bool = False) -> bytes | None:
    """Return the contents of a small regular file.

    None if there is none to read, which git takes for empty. `follow`: also through a link. Raises
    GitFileTooLarge.
    """
    flags = NO_WAIT | (0 if follow else NO_LINK)
    try:
        with open(path, "rb", opener=lambda name, mode: os.open(name, mode | flags)) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return None
            data = file.read(MAX_BYTES + 1)
    except (OSError, ValueError):  # a name with a NUL
        return None
    if len(data) > MAX_BYTES:
        raise GitFileTooLarge(f"{path}: over {MAX_BYTES >> 20} MiB; make it smaller")
    return data


def _read_text(path: Path) -> str:
    """Return the text of a file; empty if it is missing."""
    return (read_file(path, follow=True) or b"").decode("utf-8", "surrogateescape")


def _first_line(path: Path) -> str:
    """Return the first line of a file that names a folder; git's lines end at a NUL, too."""
    return re.split("[\n\0]", _read_text(path), maxsplit=1)[0].rstrip("\r")


def _expand(path: str) -> Path:
    """Expand a path that may start with the name of a user's folder."""
    with suppress(RuntimeError):  # no such user
        return Path(path).expanduser()
    return Path(path)


def _user_folder() -> Path:
    """Return the folder where git keeps the user's settings."""
    return _expand(os.environ.get("XDG_CONFIG_HOME") or "~/.config") / "git"


def _settings(git: Path, common: Path) -> dict[str, str]:
    """Return the settings without subsections that apply in a working tree, by "section.name"."""
    if (named := os.environ.get("GIT_CONFIG_GLOBAL")) is not None:
        of_user = [Path(named)]
    else:
        of_user = [_user_folder() / "config", _expand("~/.gitconfig")]
    system = [] if os.environ.get("GIT_CONFIG_NOSYSTEM") else [SYSTEM_SETTINGS]
    found: dict[str, str] = {}
    for path in (*system, *of_user, common / "config"):
        found.update(_parse(_read_text(path)))
    if _is_true(found, "extensions.worktreeconfig"):
        found.update(_parse(_read_text(git / "config.worktree")))
    return found


def _is_true(settings: dict[str, str], name: str) -> bool:
    return settings.get(name, "").lower() in TRUE


def _submodules(folder: Path) -> Iterator[str]:
    """Yield the folders of the submodules that a repository names."""
    for name, value in _parse(_read_text(folder / ".gitmodules")):
        section, _, rest = name.partition(".")
        if section == "submodule" and rest.endswith(".path"):
            yield os.path.normpath(folder / value)


@lru_cache(MAX_CACHED)
def _parse(text: str) -> tuple[tuple[str, str], ...]:
    """Return the settings in a file, in order: ("section.subsection.name", value)."""
    found = []
    section = ""
    for raw in re.sub(r"\\\r?\n", "", text).split("\n"):
        line = raw.rstrip("\r")
        if head := SECTION.match(line):
            section = head[1].lower() + (f".{head[2]}" if head[2] is not None else "")
            line = line[head.end() :]
        if setting := SETTING.match(line):
            found.append((f"{section}.{setting[1].lower()}", _value(setting[2])))
    return tuple(found)


def _value(text: str | None) -> str:
    """Return a value without quotes, escapes and comments. A name without a value is true."""
    if text is None:
        return "true"
    parts = []
    for quoted, escaped, plain, _ in VALUE.findall(text.strip(" \t")):
        parts.append(re.sub(r"\\(.)", r"\1", quoted) or escaped or plain)
    return "".join(parts).rstrip(" \t")
