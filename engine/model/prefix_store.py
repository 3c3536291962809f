"""Prefixes of prompts on disk: the level below the sequences in memory (engine/model/kv_cache.py).

An entry is a file of a prompt's first tokens, their keys and values and, of a model with linear
attention, its states at the last checkpoints, as they stood in memory. It is written in steps while
the engine is idle, whole or not at all, and checked whenever it is used. One that cannot be used is
deleted, with one line in the log. Which prompts may be written is decided by the caller.
"""

from __future__ import annotations

import logging
import os
import re
from collections import deque
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from engine.model import _kernels
from engine.model.kv_cache import Sequence, common_prefix
from engine.model.native.recurrent_state import Checkpoint
from index.cache_folder import MAX_PREFIX_BYTES, check_cache_folder, make_cache_folder
from index.version import own_version
from index.workspace.array_file import ArrayFile, Arrays, write_in_steps

if TYPE_CHECKING:
    from engine.model.native.native_target import NativeTarget

log = logging.getLogger(__name__)

FOLDER = "prefixes"  # in the cache folder
VERSION = 2  # raise it when rows get other bits, or files another layout, within a version
MIN_TOKENS = 128  # tokens; fewer are read again, which takes no longer than a file does
STORED_CHECKPOINTS = 2  # one at the prompt's end, one before it for a prompt with another end
MAX_WANTED = 8  # prompts that wait to be written
PAUSE_SECONDS = 30.0  # seconds between a prompt and its writing, so that typing writes little
NAME = re.compile(r"[0-9a-f]{16}-[0-9a-f]{32}")  # of a file: its model's mark, its tokens' digest


class Outdated(ValueError):
    """A file of another model, version or kind of processor."""


class StoredPrefix(NamedTuple):
    """The tokens whose rows a file has."""

    tokens: list[int]
    checkpoints: list[int] | None  # tokens that each one covers; None for a model without states

    def reusable(self, tokens: list[int]) -> int:
        """Count how many of these tokens, from the first one on, need not be read."""
        common = common_prefix(self.tokens, tokens)
        if self.checkpoints is None:
            return common
        return max((at for at in self.checkpoints if at <= common), default=0)


class PrefixStore:
    """The entries of one model, for its thread. Processes may share the folder."""

    def __init__(
        self, home: Path, target: NativeTarget, tokenizer: str, limit: int = MAX_PREFIX_BYTES
    ) -> None:
        """Find the entries that `target` can use, and let it use them.

        `tokenizer`: its fingerprint; `limit`: bytes of the files of all models.
        """
        self._home, self._target, self._limit = home, target, limit
        self._fingerprint = fingerprint_of(target, tokenizer)
        self._parts = target.model.new_cache(0)
        states = target.model.recurrent_state()
        self._layers = None if states is None else states.layers
        self._wanted: deque[tuple[list[int], Callable[[], bool]]] = deque(maxlen=MAX_WANTED)
        self._entries: dict[Path, StoredPrefix] = {}
        self._is_usable = True
        try:
            paths = prefix_files(home, target.folder)
        except OSError as error:
            self._give_up(error)
            return
        outdated = 0
        for path in paths:
            try:
                self._entries[path] = self._opened(path)[1]
            except FileNotFoundError:  # another process was faster
                pass
            except Outdated:
                self._delete(path)
                outdated += 1
            except (OSError, ValueError) as error:
                self._drop(path, error)
        if outdated:
            log.warning("%d stored prompts of another model or version are dropped", outdated)
        target.pool.find_stored = self.find

    def find(self, tokens: list[int], cached: int, need: int) -> tuple[Sequence, int] | None:
        """Copy the entry that has the most of these tokens to a sequence of `need` rows.

        Returns it with the number of those tokens, or None where they are hardly more than
        `cached`.
        """
        while self._entries:
            path = max(self._entries, key=lambda path: self._entries[path].reusable(tokens))
            rows = self._entries[path].reusable(tokens)
            if rows < cached + MIN_TOKENS:
                return None
            try:
                file, entry = self._opened(path)
                if entry != self._entries[path]:  # another process has other checkpoints
                    self._entries[path] = entry
                    continue
                found = self._copied(file, entry, rows, need)
            except FileNotFoundError:  # cleared, or evicted by another process
                del self._entries[path]
            except (OSError, ValueError) as error:
                self._drop(path, error)
            else:
                with suppress(OSError):  # a disk that cannot be written
                    os.utime(path)  # the time of its last use
                return found, rows
        return None

    def want(self, tokens: list[int], may_write: Callable[[], bool]) -> bool:
        """Note a prompt that is read now, to be written if `may_write` then says so.

        Returns whether to run `save` once there is time: else it runs already.
        """
        if self._is_usable:
            self._wanted.append((tokens, may_write))
        return len(self._wanted) == 1

    def save(self) -> Generator[float, None, None]:
        """Write what is wanted and not on disk yet, the latest first, in slices.

        Yields the seconds until the next slice. Where a request runs between two, the entry in
        flight is begun again.
        """
        while self._wanted:
            wanted, epoch = self._wanted[-1], self._target.epoch
            try:
                with closing(self._written(*wanted)) as steps:
                    for descriptor in steps:
                        os.fsync(descriptor)  # part by part: all at once would hold up requests
                        yield 0.0
                        if self._target.epoch != epoch:  # its rows may be overwritten
                            break
            except OSError as error:
                self._give_up(error)
                return
            if self._target.epoch != epoch:
                yield PAUSE_SECONDS
            else:
                with suppress(ValueError):  # forgotten meanwhile
                    self._wanted.remove(wanted)

    def _written(
        self, tokens: list[int], may_write: Callable[[], bool]
    ) -> Generator[int, None, None]:
        """Write what memory has of a prompt, in steps, unless it need not or must not be."""
        found = self._unsaved(tokens)
        if found is None or not may_write():
            return
        sequence, entry = found
        arrays = _arrays(sequence, entry)
        if sum(array.nbytes for array in arrays.values()) > self._limit:
            return
        path = self._path(arrays["tokens"])
        make_cache_folder(path.parent, levels=2)
        about = {"checkpoints": entry.checkpoints}
        yield from write_in_steps(path, self._fingerprint, about, arrays)
        for other, old in [*self._entries.items()]:
            if other != path and common_prefix(old.tokens, entry.tokens) * 2 >= len(old.tokens):
                self._delete(other)  # most of it is in the new one
        self._entries[path] = entry
        self._evict()

    def _unsaved(self, tokens: list[int]) -> tuple[Sequence, StoredPrefix] | None:
        """Find the sequence in memory that has the most of a prompt, if no entry has as much."""
        found: tuple[Sequence, StoredPrefix] | None = None
        stored = [entry for path, entry in self._entries.items() if path.exists()]
        most = max((entry.reusable(tokens) for entry in stored), default=0)
        for sequence in self._target.pool.sequences:
            if sequence.owner:
                continue
            rows = common_prefix(sequence.tokens, tokens)
            checkpoints: list[int] | None = None
            if sequence.recurrent is not None:
                places = [each.position for each in sequence.recurrent.checkpoints]
                checkpoints = [at for at in places if at <= rows][-STORED_CHECKPOINTS:]
                rows = max(checkpoints, default=0)
            if rows >= most + MIN_TOKENS:
                found, most = (sequence, StoredPrefix(tokens[:rows], checkpoints)), rows
        return found

    def _copied(self, file: ArrayFile, entry: StoredPrefix, rows: int, need: int) -> Sequence:
        """Copy the first rows of an entry while its file is verified. Damaged, MemoryError."""
        arrays, recurrent = file.arrays, self._target.model.recurrent_state()
        if recurrent is not None and entry.checkpoints is not None:
            recurrent.broken = True  # only its checkpoints have states
            for at in entry.checkpoints:
                names = [(f"state{at}_{n}", f"tail{at}_{n}") for n in range(len(recurrent.layers))]
                layers = [(arrays[state].copy(), arrays[tail].copy()) for state, tail in names]
                recurrent.checkpoints.append(Checkpoint(at, layers))
        cache = tuple(arrays[f"part{n}"] for n in range(len(self._parts)))
        with ThreadPoolExecutor(1, "draftline-checksum") as executor:
            checking = executor.submit(file.check)
            mapped = Sequence(entry.tokens, cache, None, recurrent)
            found = self._target.pool.allocate(mapped, rows, need)
            checking.result()
        return found

    def _opened(self, path: Path) -> tuple[ArrayFile, StoredPrefix]:
        """Map a file, whose rows are not verified yet. OSError, Damaged, Outdated."""
        file = ArrayFile(path)
        if file.fingerprint != self._fingerprint:
            raise Outdated(f"{path}: of another model or version")
        tokens, checkpoints = file.arrays.get("tokens"), file.about.get("checkpoints")
        count = len(tokens) if tokens is not None and tokens.ndim == 1 else 0
        if not count or not self._are_places(checkpoints, count):
            raise file.damaged("not the rows of a prompt")
        expected: dict[str, tuple[tuple[int, ...], str]] = {"tokens": ((count,), "<i4")}
        for n, part in enumerate(self._parts):
            expected[f"part{n}"] = ((*part.shape[:3], count, part.shape[4]), part.dtype.str)
        for at in checkpoints or ():
            for n, layer in enumerate(self._layers or ()):
                expected[f"state{at}_{n}"] = (layer.state.shape, "<f4")
                expected[f"tail{at}_{n}"] = (layer.tail.shape, "<f4")
        if {name: (one.shape, one.dtype.str) for name, one in file.arrays.items()} != expected:
            raise file.damaged("rows of another shape")
        if self._path(file.arrays["tokens"]) != path:
            raise file.damaged("its tokens are not those of its name")
        return file, StoredPrefix(file.arrays["tokens"].tolist(), checkpoints)

    def _path(self, tokens: NDArray[np.int32]) -> Path:
        """Return the place of the entry of these tokens."""
        digest = blake2b(tokens.tobytes(), digest_size=16).hexdigest()
        return self._home / FOLDER / f"{model_mark(self._target.folder)}-{digest}"

    def _are_places(self, checkpoints: object, count: int) -> bool:
        """Return whether these are the checkpoints of an entry of `count` tokens."""
        if self._layers is None or not isinstance(checkpoints, list):
            return self._layers is None and checkpoints is None
        return len(checkpoints) <= STORED_CHECKPOINTS and all(
            type(at) is int and 0 < at <= count for at in checkpoints
        )

    def _evict(self) -> None:
        """Delete the entries of all models that were used least recently, beyond the limit."""
        found = []
        for path in prefix_files(self._home):
            with suppress(FileNotFoundError):  # another process was faster
                status = path.lstat()
                found.append((status.st_mtime_ns, status.st_size, path))
        total = sum(size for _, size, _ in found)
        for _, size, path in sorted(found):
            if total > self._limit:
                self._delete(path)
                total -= size

    def _drop(self, path: Path, error: Exception) -> None:
        log.warning("a stored prompt is dropped: %s", " ".join(str(error).split()))
        self._delete(path)

    def _delete(self, path: Path) -> None:
        self._entries.pop(path, None)
        with suppress(OSError):  # it is gone, or the disk cannot be written
            path.unlink()

    def _give_up(self, error: OSError) -> None:
        """Write nothing from now on, as the folder cannot be used."""
        why = f"{error.filename or self._home / FOLDER}: {error.strerror}"
        log.warning("prompts will be read again after the next start: %s", why)
        self._is_usable = False
        self._wanted.clear()


def _arrays(sequence: Sequence, entry: StoredPrefix) -> Arrays:
    """List the arrays of an entry's file; those of the cache are views of the sequence's."""
    arrays: Arrays = {"tokens": np.array(entry.tokens, np.int32)}
    for n, part in enumerate(sequence.cache):
        arrays[f"part{n}"] = part[..., : len(entry.tokens), :]
    for each in sequence.recurrent.checkpoints if sequence.recurrent is not None else ():
        if each.position in (entry.checkpoints or ()):
            for n, (state, tail) in enumerate(each.layers):
                arrays |= {f"state{each.position}_{n}": state, f"tail{each.position}_{n}": tail}
    return arrays


def fingerprint_of(target: NativeTarget, tokenizer: str) -> str:
    """Join all that the bits of a row depend on besides the tokens before it."""
    kernels = blake2b(Path(str(_kernels.__file__)).read_bytes(), digest_size=16).hexdigest()
    formats = f"{target.dtype_name}, kv {target.model.kv}"
    numbers = f"{formats} {_kernels.isa()} {kernels} numpy {np.__version__}"
    return f"{VERSION} {own_version()} {target.weights_digest} {tokenizer} {numbers}"


def model_mark(folder: Path) -> str:
    """Return how the files of a model's folder begin."""
    return blake2b(os.fsencode(folder.name), digest_size=8).hexdigest()


def prefix_files(home: Path, model: Path | None = None) -> list[Path]:
    """List the files of a model's folder, or of all. OSError where the cache must not be used."""
    try:
        check_cache_folder(home / FOLDER, levels=2)
    except FileNotFoundError:
        return []
    start = model_mark(model) if model else ""
    files = [path for path in (home / FOLDER).iterdir() if NAME.fullmatch(path.name)]
    return [path for path in files if path.name.startswith(start)]
