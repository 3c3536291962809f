"""Folders of the cache: created private, and never written to if they are links or of others.

A link in the place of a folder would let whoever made it choose where files are written.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from index.os_calls import IS_WINDOWS

# The limits of what is kept. Beyond them the oldest goes first; indexes age from their last use.
MAX_INDEX_BYTES = 8 << 30  # bytes; the indexes of all folders
UNUSED_INDEX_DAYS = 90  # days; then an index that nobody loaded is deleted
MAX_TOKEN_DB_BYTES = 512 << 20  # bytes; the token ids of one tokenizer
MAX_TOKEN_DBS = 4
MAX_NGRAM_FILES = 8
MAX_ANSWERS = 4096  # files; answers about documents
MAX_TOKENIZERS = 16  # files; tokenizers of other machines' engines
MAX_PREFIX_BYTES = 2_000_000_000  # bytes; what models computed for prompts


def make_cache_folder(folder: Path, levels: int = 1, mode: int = 0o700) -> None:
    """Create a folder unless it exists.

    `levels`: how many folders at the end of the path belong to the cache; they are created with
    `mode` and checked, from the top. Those above are the user's choice. The mode of an existing
    folder is not changed. Raises OSError.
    """
    inner = [folder, *folder.parents][:levels]
    inner[-1].parent.mkdir(parents=True, exist_ok=True)
    for each in reversed(inner):
        with suppress(FileExistsError):
            each.mkdir(mode=mode)
        _check(each)


def keep_newest(paths: Iterable[Path], most: int, ends: Sequence[str] = ()) -> None:
    """Delete all files and folders but the `most` that were changed last.

    Before each, the files with its name and one of these `ends` are deleted. What cannot be deleted
    is left.
    """
    all_paths = list(paths)
    if len(all_paths) <= most:
        return
    found = []
    for path in all_paths:
        with suppress(OSError):
            found.append((path.lstat().st_mtime_ns, path))
    for _, path in sorted(found, reverse=True)[most:]:
        with suppress(OSError):  # another process was faster, or it is another user's
            for end in ends:
                path.with_name(path.name + end).unlink(missing_ok=True)
            if path.is_symlink() or not path.is_dir():
                path.unlink()
            else:
                shutil.rmtree(path)


def check_cache_folder(folder: Path, levels: int = 1) -> None:
    """OSError unless these folders exist and may be used; its `strerror` includes the remedy."""
    for each in reversed([folder, *folder.parents][:levels]):
        _check(each)


def _check(folder: Path) -> None:
    status = folder.lstat()
    if stat.S_ISLNK(status.st_mode):
        why = "a symbolic link, which is not followed: replace it with a folder"
        raise NotADirectoryError(errno.ENOTDIR, why, str(folder))
    if not stat.S_ISDIR(status.st_mode):
        raise NotADirectoryError(errno.ENOTDIR, "not a folder: delete it", str(folder))
    if IS_WINDOWS:
        return
    if status.st_uid not in (os.geteuid(), 0):
        why = f"owned by user {status.st_uid}: delete it, or choose another cache folder"
        raise PermissionError(errno.EPERM, why, str(folder))
    if status.st_mode & stat.S_IWOTH and not status.st_mode & stat.S_ISVTX:  # as /tmp has it
        why = "writable by every user: take that permission away (chmod o-w)"
        raise PermissionError(errno.EPERM, why, str(folder))
