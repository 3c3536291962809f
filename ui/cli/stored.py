"""What Draftline stores on this machine: where, how large, and how it is deleted.

Only what bears the names that Draftline gives is listed or deleted: DRAFTLINE_HOME may name a
folder that holds other things. Links are never followed.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from engine.remote.address import Address, AddressError, connect, runtime_folders
from engine.weights import home
from engine.weights.catalogue.builtins import BUILTINS
from index.cache_folder import (
    MAX_ANSWERS,
    MAX_INDEX_BYTES,
    MAX_NGRAM_FILES,
    MAX_PREFIX_BYTES,
    MAX_TOKEN_DB_BYTES,
    MAX_TOKEN_DBS,
    MAX_TOKENIZERS,
    UNUSED_INDEX_DAYS,
)
from index.temporary_file import NAME as TEMPORARY
from ui.common.errors import FAILED, Failure, reason

DELETED = ".deleted-"  # begins the name of what is being deleted
_HEX = "[0-9a-f]"
_LEFTOVERS = rf"{re.escape(DELETED)}{_HEX}{{16}}|{TEMPORARY.pattern}"  # left by killed processes
_INDEX_LIMIT = f"{MAX_INDEX_BYTES / 1e9:.1f} GB, {UNUSED_INDEX_DAYS} days without use"


@dataclass(frozen=True, slots=True)
class StoredPart:
    """One kind of things that are stored."""

    name: str  # as `draftline storage clear NAME` takes it
    about: str
    folder: str  # in the cache folder; "" for that itself
    is_ours: Callable[[Path], bool]  # asked about the entries of the folder
    limit: str = "a few kB"
    deleted_by: str = ""  # what deletes it, where `draftline storage clear` does not


def _named(pattern: str) -> Callable[[Path], bool]:
    known = re.compile(pattern)
    return lambda path: known.fullmatch(path.name) is not None


def _is_model(path: Path) -> bool:
    """Check whether this is a model's folder, GGUF file or lock, or a download that goes on."""
    if path.name == ".partial":
        return True
    if path.suffix == ".gguf":  # a built-in or hub model's; a user's own file stays where it is
        return path.stem in BUILTINS or _is_model(path.with_suffix(""))
    if path.suffix == ".lock":
        return path.stem in BUILTINS or not path.lstat().st_size
    return (path / "draftline.json").is_file()


CACHES = (
    StoredPart("index", "the indexes of folders", "index", _named(f"{_HEX}{{32}}"), _INDEX_LIMIT),
    StoredPart(
        "tokens",
        "token ids of files",
        "tokens",
        _named(rf"{_HEX}{{32}}\.sqlite(-wal|-shm)?"),
        f"{MAX_TOKEN_DB_BYTES / 1e9:.1f} GB for each of {MAX_TOKEN_DBS} tokenizers",
    ),
    StoredPart(
        "library",
        "n-grams of Python's library",
        "library",
        _named(r".+\.ngram"),
        f"{MAX_NGRAM_FILES} files",
    ),
    StoredPart(
        "answers",
        "answers about documents",
        "finished",
        _named(rf"{_HEX}{{64}}\.json"),
        f"{MAX_ANSWERS:,} answers",
    ),
    StoredPart(
        "tokenizers",
        "tokenizers of other machines' engines",
        "tokenizers",
        _named(f"{_HEX}{{64}}"),
        f"{MAX_TOKENIZERS} tokenizers",
    ),
    StoredPart(
        "prefixes",
        "what models computed for prompts",
        "prefixes",
        _named(f"{_HEX}{{16}}-{_HEX}{{32}}"),
        f"{MAX_PREFIX_BYTES / 1e9:.1f} GB",
    ),
    StoredPart("costs", "measured times of passes", "", _named(r"costs\.json")),
)
KEPT = (
    StoredPart(
        "models",
        "models, one copy of each",
        "models",
        _is_model,
        "none",
        "draftline models remove NAME",
    ),
    StoredPart(
        "documents",
        "documents that were added to the page",
        "documents",
        lambda path: (path / "documents.sqlite").is_file(),
        "none",
        "the page's own buttons",
    ),
    StoredPart(
        "marks",
        "this machine's random name",
        "",
        _named(rf"machine|edits\.lock|{_LEFTOVERS}"),
        deleted_by="draftline storage remove",
    ),
)
PARTS = (*KEPT, *CACHES)


def paths_of(part: StoredPart) -> list[Path]:
    """List what is stored of a part, with what killed processes left next to it. Raises OSError."""
    folder = home() / part.folder
    try:
        if folder.is_symlink() and part.folder:
            return []
        entries = sorted(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []
    is_left = _named(_LEFTOVERS)
    return [path for path in entries if part.is_ours(path) or (part.folder and is_left(path))]


def size_of(paths: Sequence[Path]) -> int:
    """Count the bytes of files and folders. What vanishes meanwhile counts nothing."""
    total = 0
    for path in paths:
        for each in _files(path):
            with suppress(OSError):
                total += each.lstat().st_size
    return total


def _files(path: Path) -> Iterator[Path]:
    if path.is_symlink() or not path.is_dir():
        yield path
        return
    for root, _, names in os.walk(path):
        yield from (Path(root) / name for name in names)


def delete(part: StoredPart) -> int:
    """Delete what is stored of a part, and its folder if nothing else is in it.

    Returns the bytes that were freed. Each thing vanishes at once, so that no process sees a part
    of it. Raises OSError.
    """
    freed = 0
    for path in reversed(paths_of(part)):  # a database's journals before the database
        size = size_of([path])
        delete_path(path)
        freed += size
    if part.folder:
        with suppress(OSError):  # others' files are in it, or it is not there
            (home() / part.folder).rmdir()
    return freed


def delete_path(path: Path) -> None:
    """Delete a file, a folder or a link, if it is there. Raises OSError."""
    hidden = path.with_name(f"{DELETED}{secrets.token_hex(8)}")
    try:
        path.rename(hidden)
        if stat.S_ISDIR(hidden.lstat().st_mode):
            shutil.rmtree(hidden)
        else:
            hidden.unlink()
    except FileNotFoundError:
        return


def failure(error: OSError) -> Failure:
    """Make the failure that ends a command which could not read or delete something."""
    return Failure(FAILED, f"{error.filename}: {reason(error)}: check its permissions")


def sockets() -> list[Path]:
    """List the sockets, locks and logs of this user's shared servers."""
    known = re.compile(rf"{_HEX}{{16}}\.(sock|lock|log)")
    found: list[Path] = []
    for folder in runtime_folders():
        with suppress(FileNotFoundError, NotADirectoryError):
            if not folder.is_symlink():
                found += sorted(path for path in folder.iterdir() if known.fullmatch(path.name))
    return found


def running_servers() -> list[Path]:
    """List the sockets on which a shared server of this user answers."""
    found = []
    for path in sockets():
        if path.suffix == ".sock":
            with suppress(OSError, AddressError):  # its server is dead
                connect(Address(path=path)).close()
                found.append(path)
    return found
