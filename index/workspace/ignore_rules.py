"""The rules by which git ignores files, in each folder of a workspace."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, overload

from index.workspace.git_repository import GitFileTooLarge, Repository, read_file, repository_at
from index.workspace.ignore_patterns import FOLDER, MAX_WORK, IgnorePatterns, compile_patterns

UNUSABLE = "an ignore file or a file of git cannot be used"  # the start of a reason


class Skipped(ValueError):
    """A file that is not indexed; the message is the reason."""


@dataclass(frozen=True, slots=True)
class IgnoreFile:
    """An ignore file."""

    start: int  # offset of the part below the file's folder in an absolute path's bytes
    patterns: IgnorePatterns


IgnoreFiles = tuple[IgnoreFile, ...]  # innermost first
IGNORES_ALL = IgnoreFile(0, compile_patterns(b"*"))
SEPARATOR = os.fsencode(os.sep)


class IgnoreRules(NamedTuple):
    """The rules by which git ignores files in a folder."""

    ignore_files: IgnoreFiles
    repository: Repository | None  # around the folder


def rules_above(top: str) -> IgnoreRules:
    """Return the rules of the repository around a folder, from its top to the folder's parent.

    No ignore file of them applies if they ignore the folder itself.
    """
    inside: list[str] = []  # the folder and its ancestors, up to the top of the repository
    for folder in (top, *map(str, Path(top).parents)):
        if repository := _repository_at(folder):
            break
        inside.append(folder)
    else:
        return IgnoreRules((), None)
    rules = _rules_of(repository)
    for part in reversed(inside):
        rules = with_ignore_file_in(os.path.dirname(part), rules)
        if is_ignored(part + "/", rules.ignore_files):
            return IgnoreRules((), repository)
    return rules


def _repository_at(folder: str, is_inside: bool = False) -> Repository | None:
    """Call `repository_at`. Raises Skipped if one of its files is too large."""
    try:
        return repository_at(folder, is_inside)
    except GitFileTooLarge as error:
        raise Skipped(f"{UNUSABLE}: {error}") from error


def _rules_of(repository: Repository) -> IgnoreRules:
    """Return the rules of a repository before its .gitignore files."""
    files: IgnoreFiles = ()
    for path in repository.ignore_files:
        files += ignore_file(repository.folder, path, repository.ignore_case, follow=True)
    return IgnoreRules(files, repository)


@overload
def with_ignore_file_in(folder: str, rules: IgnoreRules) -> IgnoreRules: ...
@overload
def with_ignore_file_in(folder: str, rules: IgnoreRules | None) -> IgnoreRules | None: ...
def with_ignore_file_in(folder: str, rules: IgnoreRules | None) -> IgnoreRules | None:
    """Return the rules in a folder, given its parent's; None if ignore files are not used."""
    if rules is None:
        return None
    ignore_case = rules.repository is not None and rules.repository.ignore_case
    own = ignore_file(folder, os.path.join(folder, ".gitignore"), ignore_case)
    if not own:
        return rules
    files = own + rules.ignore_files
    if sum(file.patterns.work for file in files) > MAX_WORK:
        raise Skipped(f"{UNUSABLE}: with those above, {folder} has too many patterns; use fewer")
    return rules._replace(ignore_files=files)


def ignore_file(
    folder: str, path: str, ignore_case: bool = False, follow: bool = False
) -> IgnoreFiles:
    """Return the ignore file at a path, for a folder.

    () if it is missing or unreadable, as git does. Raises Skipped if it is too large.
    """
    try:
        data = read_file(path, follow)
        if not data:
            return ()
        patterns = compile_patterns(data, ignore_case)
    except GitFileTooLarge as error:
        raise Skipped(f"{UNUSABLE}: {error}") from error
    except ValueError as error:
        raise Skipped(f"{UNUSABLE}: {path}: {error}; simplify it") from error
    return (IgnoreFile(len(os.fsencode(os.path.join(folder, ""))), patterns),)


def is_ignored(absolute: str, ignore_files: IgnoreFiles) -> bool:
    """Return whether the innermost ignore file that matches ignores a path.

    Paths of folders end in "/".
    """
    if not ignore_files:
        return False
    path = os.fsencode(absolute).replace(SEPARATOR, b"/")
    if path.endswith(b"/"):
        path = path[:-1] + FOLDER
    for file in ignore_files:
        ignores = file.patterns.decide(path[file.start :])
        if ignores is not None:
            return ignores
    return False


def rules_in(absolute: str, rules: IgnoreRules) -> IgnoreRules:
    """Return the rules in a folder, given its parent's. Raises Skipped if it is ignored."""
    inner, outer = _repository_at(absolute, True), rules.repository
    if inner and outer and inner.common == outer.common and not outer.is_bare:
        raise Skipped("another worktree of the repository")
    submodules = outer.submodules if outer else ()
    if not (inner and absolute in submodules) and is_ignored(absolute + "/", rules.ignore_files):
        if any(path.startswith(absolute + os.sep) for path in submodules):
            return IgnoreRules((IGNORES_ALL,), outer)  # all but the submodules, which git tracks
        raise Skipped("ignored by .gitignore")
    return with_ignore_file_in(absolute, _rules_of(inner) if inner else rules)
