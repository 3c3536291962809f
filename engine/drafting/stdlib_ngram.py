"""How code of a language usually goes on: an n-gram of this Python's standard library.

Counted once for each tokenizer, when its first model is fetched or while nothing is asked, from the
sources that are installed, and kept in the cache as a file that is mapped. No request waits for it:
until it is ready the n-gram is empty. It reads no files of the user.
"""

from __future__ import annotations

import logging
import os
import sys
import sysconfig
import threading
import time
from collections.abc import Generator, Iterator
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from engine.drafting._drafting import Ngram
from engine.editing.edits import plain
from engine.prompts.tokenizer import Tokenizer
from index.workspace.array_file import ArrayFile, sync, write
from index.workspace.file_filter import Skipped, read
from index.workspace.token_cache import chunks

if TYPE_CHECKING:
    from engine.weights import Progress

log = logging.getLogger(__name__)

# Of encodings and pydoc_data: tables and help texts; drafts of code are better without them.
EXCLUDED_FOLDERS = ("__pycache__", "dist-packages", "encodings", "pydoc_data", "site-packages")
MIN_COUNTS = (2, 3, 6)  # times that one, two or three tokens were seen, or they are left out
COUNTING_SLICES = 128  # slices of counting
BATCH_CHARS = 1 << 15  # characters tokenised in a slice
BORDER = np.array([-1], np.int32)  # ends a text
SAVE_POLL_S = 0.05  # seconds between two looks at whether the file is written
FOLDER = "library"  # in the cache
STALE_TEMP_FILE_S = 3600.0  # seconds after which a half-written file is nobody's


class StdlibNgram:
    """The n-gram, and the work of making it."""

    def __init__(self, home: Path, tokenizer: Tokenizer, sources: Path | None = None) -> None:
        """`home`: the cache. `sources`: a folder with *.py files in place of the standard library.
        A file that cannot be used is logged, and made again by `build`."""
        self.tokenizer = tokenizer
        self.sources = Path(sources or sysconfig.get_path("stdlib"))
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        recipe = (tokenizer.fingerprint, version, str(sources or ""), EXCLUDED_FOLDERS, MIN_COUNTS)
        self.fingerprint = sha256(repr(recipe).encode()).hexdigest()
        self.file = home / FOLDER / f"{tokenizer.fingerprint[:16]}-python{version}.ngram"
        self.ngram = Ngram()  # the one to use now; another one takes its place when it is ready
        self.ready = self._load()

    def build(self, progress: Progress | None = None) -> Generator[float, None, None]:
        """Make what is missing, a slice of some 50 ms a turn. Yields the seconds to wait before
        the next one. Stopped halfway, nothing is kept. `progress` is called with bytes."""
        if self.ready:
            return
        report = progress or (lambda label, done, total: None)
        files = (path for path in python_files(self.sources) if path.is_file())
        done, total = 0, sum(path.stat().st_size for path in files)
        tokens: list[NDArray[np.int32]] = []
        for batch in batches(self.sources):
            ids = self.tokenizer.encode_batch(batch)
            tokens += [one if text else BORDER for text, one in zip(batch, ids, strict=True)]
            done += sum(map(len, batch))
            report("reading Python's library", min(done, total), total)
            yield 0.0
        if not tokens:
            log.warning(
                "%s: no Python sources; drafts go without the language's library", self.sources
            )
            return
        counted = np.concatenate(tokens)
        tokens.clear()
        yield 0.0
        ngram = Ngram()
        for part in range(COUNTING_SLICES):
            ngram.add(counted, MIN_COUNTS, part, COUNTING_SLICES)
            done = counted.nbytes * (part + 1) // COUNTING_SLICES
            report("counting Python's library", done, counted.nbytes)
            yield 0.0
        ngram.finish()
        self.ngram, self.ready = ngram, True
        saving = threading.Thread(target=self._save, args=(len(counted),), name="draftline-library")
        saving.start()  # putting it on disk takes longer than a slice
        try:
            while saving.is_alive():
                yield SAVE_POLL_S
        finally:
            saving.join()  # half a file would be left

    def _load(self) -> bool:
        """Use the file, if it is there and right."""
        try:
            file = ArrayFile(self.file)
            file.check()
            if file.fingerprint != self.fingerprint:
                raise file.damaged("made of other sources or by another version")
            self.ngram = Ngram.mapped(file.arrays["table"])
        except FileNotFoundError:
            return False
        except (OSError, KeyError, TypeError, ValueError) as error:
            log.warning("the library's n-gram is counted again: %s", error)
            return False
        return True

    def _save(self, tokens: int) -> None:
        """Put the n-gram on disk and use that file from now on. A failure is only logged."""
        folder = self.file.parent
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for old in folder.glob("*.tmp"):  # of a process that was killed
                with suppress(FileNotFoundError):  # another process was first
                    if time.time() - old.stat().st_mtime > STALE_TEMP_FILE_S:
                        old.unlink()
            about = {"python": sys.version, "tokens": tokens}
            write(self.file, self.fingerprint, about, {"table": np.asarray(self.ngram.table)})
            sync(folder)
        except OSError as error:
            log.warning("the library's n-gram is not kept for the next start: %s", error)
            return
        self._load()


def ngram_files(home: Path, fingerprint: str) -> list[Path]:
    """The files in the cache that were counted with a tokenizer, by any Python."""
    return sorted((home / FOLDER).glob(f"{fingerprint[:16]}-*.ngram"))


def batches(folder: Path) -> Iterator[list[str]]:
    """The texts of a folder's *.py files in pieces, "" after each text: about SLICE characters at
    once. Where a tokenizer does not split between two pieces, a token or two are not the text's."""
    batch: list[str] = []
    size = 0
    for path in python_files(folder):
        try:
            text = plain(read(path))
        except Skipped:
            continue  # the library has sources in other encodings, for tests
        for piece in (*chunks(text), ""):
            batch.append(piece)
            size += len(piece)
            if size >= BATCH_CHARS:
                yield batch
                batch, size = [], 0
    if batch:
        yield batch


def python_files(folder: Path) -> Iterator[Path]:
    """*.py files below a folder, but for what is LEFT_OUT."""
    for top, folders, names in os.walk(folder):
        folders[:] = sorted(set(folders).difference(EXCLUDED_FOLDERS))
        yield from (Path(top, name) for name in sorted(names) if name.endswith(".py"))
