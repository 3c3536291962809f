"""The standard library's n-grams: counted as a naive count does, built in slices, and kept in a
file that is verified."""

from __future__ import annotations

import logging
import os
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from engine.drafting._drafting import Ngram
from engine.drafting.stdlib_ngram import (
    BORDER,
    COUNTING_SLICES,
    MIN_COUNTS,
    StdlibNgram,
    batches,
    ngram_files,
)
from engine.prompts.tokenizer import Tokenizer
from engine.worker import Worker
from tests.conftest import CORPUS, byte_bpe

ENTRY = np.dtype(
    [("key", "<u8"), ("tokens", "<i4", 6), ("shares", "u1", 6), ("seen", "u1"), ("", "u1")]
)
TOKENS = st.lists(st.integers(-1, 5), max_size=80)
THRESHOLDS = st.tuples(*[st.integers(1, 4)] * 3)
Row = tuple[tuple[int, ...], tuple[int, ...], int]  # tokens, shares, seen


def entries(ngram: Ngram) -> NDArray[Any]:
    """The entries of a table, by key."""
    table = np.asarray(ngram.table).view(ENTRY)
    return np.sort(table[table["key"] != 0], order="key")


def rows(ngram: Ngram) -> Counter[Row]:
    """The same, without the keys."""
    return Counter(
        (tuple(entry["tokens"].tolist()), tuple(entry["shares"].tolist()), int(entry["seen"]))
        for entry in entries(ngram)
    )


def oracle(tokens: list[int], min_counts: tuple[int, ...]) -> Counter[Row]:
    """`rows` from a naive count."""
    found: Counter[Row] = Counter()
    for order in (1, 2, 3):
        after: dict[tuple[int, ...], Counter[int]] = defaultdict(Counter)
        for end in range(order, len(tokens)):
            if -1 not in (tail := tokens[end - order : end + 1]):
                after[tuple(tail[:-1])][tail[-1]] += 1
        for followers in after.values():
            if (total := followers.total()) >= min_counts[order - 1]:
                top = sorted(followers.items(), key=lambda item: (-item[1], item[0]))[:6]
                shares = [max(1, count * 255 // total) for _, count in top] + [0] * 6
                names = [token for token, _ in top] + [-1] * 6
                found[tuple(names[:6]), tuple(shares[:6]), total.bit_length()] += 1
    return found


# -- counting --------------------------------------------------------------------------------------


@given(TOKENS, THRESHOLDS, st.integers(1, 9))
def test_counting_in_parts_matches_a_naive_count(
    tokens: list[int], min_counts: tuple[int, int, int], parts: int
) -> None:
    ngram, array = Ngram(), np.array(tokens, np.int32)
    for part in range(parts):
        ngram.add(array, min_counts, part, parts)
    assert ngram.slots == 0, "no table before it is finished"
    ngram.finish()
    assert rows(ngram) == oracle(tokens, min_counts)
    assert 2 * len(entries(ngram)) < ngram.slots, "a search must reach an empty slot"


@given(TOKENS, st.integers(1, 4), st.integers(1, 9))
def test_parts_may_be_counted_in_any_order(tokens: list[int], min_count: int, parts: int) -> None:
    array, whole, sliced = np.array(tokens, np.int32), Ngram(), Ngram()
    whole.count(array, min_count)
    for part in reversed(range(parts)):
        sliced.add(array, (min_count,) * 3, part, parts)
    sliced.finish()
    assert (entries(whole) == entries(sliced)).all()


@pytest.mark.parametrize(("part", "parts"), [(-1, 2), (2, 2), (0, 0)])
def test_invalid_parts_are_rejected(part: int, parts: int) -> None:
    with pytest.raises(ValueError, match=f"part {part} of {parts}"):
        Ngram().add(BORDER, MIN_COUNTS, part, parts)


# -- building --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    folder = tmp_path_factory.mktemp("tokenizer")
    byte_bpe(folder)
    return Tokenizer(folder)


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    """A small library, with files that do not belong to it."""
    folder = tmp_path / "lib"
    texts = {
        "one.py": "".join(CORPUS),
        "deep/two.py": "def f(a):\n    return a\n" * 40,
        "deep/crlf.py": "def g(b):\r\n    return b\r\n" * 5,
        "deep/empty.py": "",
        "note.txt": "not code",
        "site-packages/x.py": "x = other",
        "deep/__pycache__/y.py": "y = other",
        "encodings/z.py": "z = other",
    }
    for name, text in texts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(text.encode())
    (folder / "latin.py").write_bytes(b"# -*- coding: latin-1 -*-\nx = '\xe9'\n")
    return folder


@pytest.fixture
def counted(sources: Path, tokenizer: Tokenizer) -> Counter[Row]:
    """The expected entries for `sources`."""
    tokens: list[int] = []
    for name in ("one.py", "deep/two.py", "deep/crlf.py"):
        text = (sources / name).read_text("utf-8")  # line ends become "\n"
        tokens += [*tokenizer.encode(text), -1]
    return oracle(tokens, MIN_COUNTS)


def drain(library: StdlibNgram) -> int:
    """Build it and return the number of slices it took."""
    slices = 0
    for wait in library.build():
        slices += 1
        time.sleep(wait)
    return slices


def test_it_counts_exactly_the_sources(
    tmp_path: Path, sources: Path, tokenizer: Tokenizer, counted: Counter[Row]
) -> None:
    library = StdlibNgram(tmp_path / "home", tokenizer, sources)
    assert not library.ready and library.ngram.slots == 0
    assert drain(library) > COUNTING_SLICES
    assert library.ready and rows(library.ngram) == counted and counted.total() > 100
    assert drain(library) == 0, "already built"
    assert [file.name for file in library.file.parent.iterdir()] == [library.file.name]


def test_texts_are_read_in_pieces(sources: Path) -> None:
    (sources / "long.py").write_text("".join(f"name_{n} = {n}\n" for n in range(20_000)))
    pieces = [piece for batch in batches(sources) for piece in batch]
    sizes = [sum(map(len, batch)) for batch in batches(sources)]
    assert max(sizes) < 40_000 and len(sizes) > 3
    texts = ["".join(CORPUS), "def g(b):\n    return b\n" * 5, "def f(a):\n    return a\n" * 40, ""]
    texts.append((sources / "long.py").read_text())
    joined = "".join(piece or "\0" for piece in pieces).split("\0")[:-1]
    assert sorted(joined) == sorted(texts)


def test_the_next_start_maps_the_file(
    tmp_path: Path, sources: Path, tokenizer: Tokenizer, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        first = StdlibNgram(tmp_path, tokenizer, sources)
        drain(first)
        second = StdlibNgram(tmp_path, tokenizer, sources)
    assert second.ready and drain(second) == 0
    assert (np.asarray(first.ngram.table) == np.asarray(second.ngram.table)).all()
    assert not np.asarray(second.ngram.table).flags.owndata and not caplog.messages
    second.file.unlink()  # the mapping stays valid
    assert rows(second.ngram) == rows(first.ngram)


def test_an_interrupted_build_leaves_nothing(
    tmp_path: Path, sources: Path, tokenizer: Tokenizer
) -> None:
    library = StdlibNgram(tmp_path, tokenizer, sources)
    build = library.build()
    for _ in range(COUNTING_SLICES // 2):
        next(build)
    assert isinstance(build, Iterator) and not library.ready and library.ngram.slots == 0
    del build
    assert not library.file.exists()
    assert drain(library) > COUNTING_SLICES and library.ready


def test_the_worker_builds_it_while_idle(
    tmp_path: Path, sources: Path, tokenizer: Tokenizer, counted: Counter[Row]
) -> None:
    library = StdlibNgram(tmp_path, tokenizer, sources)
    worker = Worker(library.build())
    deadline = time.monotonic() + 180
    while not worker.idle():
        assert time.monotonic() < deadline, "it was never built"
        time.sleep(0.01)
    worker.close()
    assert library.ready and rows(library.ngram) == counted


def test_progress_is_reported_in_bytes_and_completes(
    tmp_path: Path, sources: Path, tokenizer: Tokenizer
) -> None:
    reports: list[tuple[str, int, int]] = []
    (sources / "gone.py").symlink_to(sources / "nothing")
    library = StdlibNgram(tmp_path, tokenizer, sources)
    for wait in library.build(lambda *report: reports.append(report)):
        time.sleep(wait)
    for stage, verb in (
        (reports[:-COUNTING_SLICES], "reading"),
        (reports[-COUNTING_SLICES:], "counting"),
    ):
        assert stage == sorted(stage) and len({(label, total) for label, _, total in stage}) == 1
        assert stage[0][0].startswith(verb) and 0 < stage[-1][1] <= stage[-1][2]
    assert library.ready and reports[-1][1] == reports[-1][2], "completed"


def test_stopping_during_the_save_leaves_no_partial_file(
    tmp_path: Path, sources: Path, tokenizer: Tokenizer
) -> None:
    library = StdlibNgram(tmp_path, tokenizer, sources)
    with closing(library.build()) as build:
        while not library.ready:
            next(build, None)  # it ends at once where the file is saved already
    assert [file.name for file in library.file.parent.iterdir()] == [library.file.name]


def test_the_files_of_a_tokenizer_are_found(tmp_path: Path, tokenizer: Tokenizer) -> None:
    own = StdlibNgram(tmp_path, tokenizer).file
    other = own.with_name(own.name.split("-")[0] + "-python3.99.ngram")
    assert ngram_files(tmp_path, tokenizer.fingerprint) == []
    own.parent.mkdir()
    for file in (own, other, own.with_name("0" * 16 + "-python3.99.ngram")):
        file.touch()
    assert ngram_files(tmp_path, tokenizer.fingerprint) == sorted([own, other])


def test_two_builds_may_run_at_once(tmp_path: Path, sources: Path, tokenizer: Tokenizer) -> None:
    first, second = (StdlibNgram(tmp_path, tokenizer, sources) for _ in range(2))
    builds = [first.build(), second.build()]
    while builds:
        builds = [build for build in builds if next(build, None) is not None]
    assert first.ready and second.ready and rows(first.ngram) == rows(second.ngram)
    assert StdlibNgram(tmp_path, tokenizer, sources).ready
    assert len(list(first.file.parent.iterdir())) == 1


def test_another_tokenizer_has_another_file(
    tmp_path: Path, sources: Path, tokenizer: Tokenizer
) -> None:
    (tmp_path / "other").mkdir()
    byte_bpe(tmp_path / "other", 290)
    drain(StdlibNgram(tmp_path, tokenizer, sources))
    other = StdlibNgram(tmp_path, Tokenizer(tmp_path / "other"), sources)
    assert not other.ready and drain(other) and other.ready
    assert StdlibNgram(tmp_path, tokenizer, sources).ready


# -- errors ----------------------------------------------------------------------------------------


def flip(file: Path, offset: int) -> None:
    data = bytearray(file.read_bytes())
    data[offset] ^= 1
    file.write_bytes(data)


DAMAGE = {
    "table": lambda file: flip(file, file.stat().st_size // 2),
    "truncated": lambda file: os.truncate(file, file.stat().st_size - 8),
    "empty": lambda file: os.truncate(file, 0),
    "first byte": lambda file: flip(file, 0),
    "not a table": lambda file: file.write_text("something else\n" * 9),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_file_is_rebuilt(
    tmp_path: Path,
    sources: Path,
    tokenizer: Tokenizer,
    counted: Counter[Row],
    caplog: pytest.LogCaptureFixture,
    damage: str,
) -> None:
    drain(StdlibNgram(tmp_path, tokenizer, sources))
    DAMAGE[damage](StdlibNgram(tmp_path, tokenizer, sources).file)
    library = StdlibNgram(tmp_path, tokenizer, sources)
    assert not library.ready and library.ngram.slots == 0
    assert len(caplog.messages) == 1 and str(library.file) in caplog.text
    drain(library)
    assert rows(library.ngram) == counted and StdlibNgram(tmp_path, tokenizer, sources).ready
    assert len(caplog.messages) == 1


def test_a_file_of_other_sources_is_rebuilt(
    tmp_path: Path,
    sources: Path,
    tokenizer: Tokenizer,
    counted: Counter[Row],
    caplog: pytest.LogCaptureFixture,
) -> None:
    drain(StdlibNgram(tmp_path, tokenizer, sources / "deep"))
    library = StdlibNgram(tmp_path, tokenizer, sources)
    assert not library.ready and "other sources" in caplog.text and len(caplog.messages) == 1
    drain(library)
    assert rows(library.ngram) == counted


def test_it_is_used_in_memory_if_it_cannot_be_saved(
    tmp_path: Path,
    sources: Path,
    tokenizer: Tokenizer,
    counted: Counter[Row],
    caplog: pytest.LogCaptureFixture,
) -> None:
    library = StdlibNgram(tmp_path, tokenizer, sources)
    library.file.parent.write_text("a file where the folder should be")
    drain(library)
    assert library.ready and rows(library.ngram) == counted
    assert len(caplog.messages) == 1 and "could not be saved" in caplog.text


def test_without_sources_it_stays_empty(
    tmp_path: Path, tokenizer: Tokenizer, caplog: pytest.LogCaptureFixture
) -> None:
    library = StdlibNgram(tmp_path, tokenizer, tmp_path / "none")
    assert drain(library) == 0 and not library.ready and library.ngram.slots == 0
    assert len(caplog.messages) == 1 and str(tmp_path / "none") in caplog.text


def test_what_a_killed_process_left_is_removed(
    tmp_path: Path, sources: Path, tokenizer: Tokenizer
) -> None:
    library = StdlibNgram(tmp_path, tokenizer, sources)
    left = library.file.with_name(".draftline-0123456789abcdef.tmp")
    left.parent.mkdir()
    left.write_text("half of it")
    drain(library)
    assert [file.name for file in library.file.parent.iterdir()] == [library.file.name]


def test_the_standard_library_is_found(tmp_path: Path, tokenizer: Tokenizer) -> None:
    first = next(batches(StdlibNgram(tmp_path, tokenizer).sources))
    assert "import " in "".join(first)
