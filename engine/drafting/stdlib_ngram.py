"""An n-gram model of the installed Python standard library: how code usually continues.

It is counted once per tokenizer, when a model is downloaded or while the engine is idle, and stored
in the cache as a memory-mapped file. Requests never wait for it: the n-gram is empty until it is
ready. No files of the user are read.
"""

from __future__ import annotations

import logging
import os
import sys
import sysconfig
import threading
from collections.abc import Generator, Iterator
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from engine.drafting._drafting import Ngram
from engine.editing.edits import plain
from engine.prompts.tokenizer import Tokenizer
from index.cache_folder import MAX_NGRAM_FILES, keep_newest, make_cache_folder
from index.os_calls import sync_folder
from index.workspace.array_file import ArrayFile, write
from index.workspace.file_filter import Skipped, read
from index.workspace.token_cache import chunks

if TYPE_CHECKING:
    from engine.weights import Progress

log = logging.getLogger(__name__)

# encodings and pydoc_data hold tables and help texts, which make drafts of code worse.
EXCLUDED_FOLDERS = ("__pycache__", "dist-packages", "encodings", "pydoc_data", "site-packages")
MIN_COUNTS = (2, 3, 6)  # counts; rarer contexts of one, two and three tokens are dropped
COUNTING_SLICES = 128  # slices, of some 50 ms each
BATCH_CHARS = 1 << 15  # characters, tokenised in one slice
BORDER = np.array([-1], np.int32)  # a pseudo token that ends each text
SAVE_POLL_S = 0.05
FOLDER = "library"  # a folder in the cache folder


class StdlibNgram:
    """The n-gram of one tokenizer, and how it is built."""

    def __init__(self, home: Path, tokenizer: Tokenizer, sources: Path | None = None) -> None:
        """Open the cached file, if there is one.

        `home`: the cache folder. `sources`: a folder of *.py files, by default the standard
        library. A cached file that cannot be used is logged, and `build` replaces it.
        """
        self.tokenizer = tokenizer
        self.sources = Path(sources or sysconfig.get_path("stdlib"))
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        recipe = (tokenizer.fingerprint, version, str(sources or ""), EXCLUDED_FOLDERS, MIN_COUNTS)
        self.fingerprint = sha256(repr(recipe).encode()).hexdigest()
        self.file = home / FOLDER / f"{tokenizer.fingerprint[:16]}-python{version}.ngram"
        self.ngram = Ngram()  # empty until ready, then replaced
        self.ready = self._load()

    def build(self, progress: Progress | None = None) -> Generator[float, None, None]:
        """Build and save the n-gram if it is missing, in slices of some 50 ms.

        Yields the seconds to wait before the next slice. If the generator is closed early, nothing
        is saved. `progress` is called with bytes."""
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
                "%s: no Python sources found; drafting continues without the n-gram", self.sources
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
        saving = threading.Thread(target=self._save, args=(len(counted),), name="draftline-ngram")
        saving.start()  # writing takes longer than a slice
        try:
            while saving.is_alive():
                yield SAVE_POLL_S
        finally:
            saving.join()  # else a partial file would be left

    def _load(self) -> bool:
        """Map the cached file if it exists and is valid."""
        try:
            file = ArrayFile(self.file)
            file.check()
            if file.fingerprint != self.fingerprint:
                raise file.damaged("made from other sources or by another version")
            self.ngram = Ngram.mapped(file.arrays["table"])
        except FileNotFoundError:
            return False
        except (OSError, KeyError, TypeError, ValueError) as error:
            log.warning("rebuilding the n-gram of the standard library: %s", error)
            return False
        return True

    def _save(self, tokens: int) -> None:
        """Write the n-gram to the cache and map it. A failure is only logged."""
        folder = self.file.parent
        try:
            make_cache_folder(folder)
            about = {"python": sys.version, "tokens": tokens}
            write(self.file, self.fingerprint, about, {"table": np.asarray(self.ngram.table)})
            sync_folder(folder)
            keep_newest(folder.glob("*.ngram"), MAX_NGRAM_FILES)
        except OSError as error:
            log.warning("the n-gram of the standard library could not be saved: %s", error)
            return
        self._load()


def ngram_files(home: Path, fingerprint: str) -> list[Path]:
    """List the cached files of a tokenizer, of any Python version."""
    return sorted((home / FOLDER).glob(f"{fingerprint[:16]}-*.ngram"))


def batches(folder: Path) -> Iterator[list[str]]:
    """Yield the texts of a folder's *.py files in batches of about BATCH_CHARS characters.

    They are pieces, with "" after each text. Where a tokenizer would not split between two pieces,
    a token or two differ from those of the whole text.
    """
    batch: list[str] = []
    size = 0
    for path in python_files(folder):
        try:
            text = plain(read(path))
        except Skipped:
            continue  # the library has test files in other encodings
        for piece in (*chunks(text), ""):
            batch.append(piece)
            size += len(piece)
            if size >= BATCH_CHARS:
                yield batch
                batch, size = [], 0
    if batch:
        yield batch


def python_files(folder: Path) -> Iterator[Path]:
    """Yield the *.py files below a folder, without EXCLUDED_FOLDERS."""
    for top, folders, names in os.walk(folder):
        folders[:] = sorted(set(folders).difference(EXCLUDED_FOLDERS))
        yield from (Path(top, name) for name in sorted(names) if name.endswith(".py"))
