"""The segment store loads exactly what was saved, and nothing damaged."""

from __future__ import annotations

import json
import logging
import os
import random
import shutil
import struct
import tempfile
import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from itertools import count, islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from index.workspace import array_file
from index.workspace.segment_store import Part, SavedState, SegmentStore
from tests.support.segment_store import OURS, load, names, same, save, state, whole


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Iterator[Callable[[], list[str]]]:
    """lines(): the store's log lines since the last call."""

    def take() -> list[str]:
        found = [
            each.getMessage()
            for each in caplog.records
            if each.name == "index.workspace.segment_store"
        ]
        assert all(each.levelno == logging.WARNING for each in caplog.records)
        caplog.clear()
        return found

    yield take


# --- saving and loading --------------------------------------------------------------------------

NAMES = st.from_regex(array_file.NAME, fullmatch=True)
ARRAYS = st.dictionaries(
    NAMES,
    npst.arrays(
        st.sampled_from(sorted(array_file.DTYPES)),
        npst.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5),
    ),
    max_size=4,
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters()),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
)  # fmt: skip
PART = st.builds(Part, st.from_regex("[a-z0-9]{1,64}", fullmatch=True), ARRAYS)
SAVED = st.builds(
    SavedState,
    st.dictionaries(st.text(), JSON, max_size=3),
    ARRAYS,
    st.lists(PART, max_size=3, unique_by=lambda part: part.name),
)


@given(SAVED, SAVED)
@settings(max_examples=40)
def test_a_saved_state_is_loaded(first: SavedState, second: SavedState) -> None:
    kept = {part.name for part in first.parts}
    second = SavedState(second.meta, second.table, first.parts[1:] + [
        part for part in second.parts if part.name not in kept
    ])  # fmt: skip
    with tempfile.TemporaryDirectory() as place, SegmentStore(Path(place) / "a", OURS) as store:
        assert store.load() is None
        assert store.acquire()
        store.save(first)
        loaded = store.load()
        assert same(loaded, first) and whole(store.folder, first)
        store.save(second)
        assert whole(store.folder, second)
        assert same(loaded, first), "a mapped file outlives its deletion"
        files = [path for path in store.folder.iterdir() if path.name != "lock"]
        assert store.nbytes() == sum(path.stat().st_size for path in files)
        store.clear()
        assert store.load() is None and names(store.folder) == {"lock"}


def test_loaded_arrays_are_read_only_and_files_private(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "index"
    save(folder, state(1))
    loaded = load(folder)
    assert loaded is not None
    for array in (*loaded.table.values(), *loaded.parts[0].arrays.values()):
        assert not array.flags.writeable and array.flags.aligned
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}


@pytest.mark.parametrize("top", [False, True], ids=["store", "folder of stores"])
def test_a_linked_folder_is_neither_read_nor_written(
    tmp_path: Path, top: bool, lines: Callable[[], list[str]]
) -> None:
    elsewhere, folder = tmp_path / "elsewhere", tmp_path / "home" / "index" / "key"
    linked = folder.parent if top else folder
    save(elsewhere / "key" if top else elsewhere, state(1))
    elsewhere.chmod(0o755)
    before = names(elsewhere)
    linked.parent.mkdir(parents=True)
    linked.symlink_to(elsewhere)
    with SegmentStore(folder, OURS) as store:
        assert store.load() is None and not store.acquire()
        store.sweep()
    (line,) = lines()
    assert str(linked) in line and "symbolic link" in line
    assert names(elsewhere) == before and elsewhere.stat().st_mode & 0o777 == 0o755


def test_the_mode_of_an_existing_folder_stays(tmp_path: Path) -> None:
    (tmp_path / "index").mkdir()
    (tmp_path / "index").chmod(0o755)
    save(tmp_path / "index", state(1))
    assert (tmp_path / "index").stat().st_mode & 0o777 == 0o755


def test_an_existing_part_is_not_rewritten(tmp_path: Path) -> None:
    save(tmp_path, state(1))
    before = (tmp_path / "part2.part").stat().st_mtime_ns
    with SegmentStore(tmp_path, OURS) as store:
        assert store.load() is not None and store.acquire()
        store.save(state(2))
        assert (tmp_path / "part2.part").stat().st_mtime_ns == before
        (tmp_path / "part2.part").unlink()  # by a stranger
        store.save(state(2))
        assert whole(tmp_path, state(2))


def test_saving_and_loading_do_not_copy_arrays(tmp_path: Path) -> None:
    big = state(1, size=1 << 20)  # 8 MiB a part
    tracemalloc.start()
    try:
        save(tmp_path, big)
        loaded = load(tmp_path)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
    assert same(loaded, big)


@pytest.mark.parametrize("name", ["", "A", "a/b", "../a", "a.b", "é", "a\n", "a" * 65])
def test_invalid_names_are_refused(tmp_path: Path, name: str) -> None:
    with SegmentStore(tmp_path / "a", OURS) as store:
        assert store.acquire()
        with pytest.raises(ValueError, match="new_name"):
            store.save(SavedState({}, {}, [Part(name, {})]))
        with pytest.raises(ValueError, match="identifier"):
            store.save(SavedState({}, {f"{name}-": np.zeros(1)}, []))
        assert names(store.folder) == {"lock"}


ODD_ARRAYS = [
    np.array([None]),
    np.array(["a"]),
    np.zeros(2, ">i4"),
    np.zeros(1, "M8[s]"),
    np.zeros(1, [("a", "i4")]),
    np.zeros(1, np.complex64),
    np.zeros((1,) * 33),
]


def test_arrays_of_any_strides_are_written(tmp_path: Path) -> None:
    """In C order, and in steps that leave nothing if they are not ended."""
    whole = np.arange(2 * 3 * 5 * 4, dtype=np.int32).reshape(2, 3, 5, 4)
    arrays = {"some_rows": whole[:, :, 1:3], "turned": whole.T, "every_other": whole[0, 0, ::2, 0]}
    array_file.write(tmp_path / "a", "", {}, arrays)
    found = array_file.ArrayFile(tmp_path / "a")
    found.check()
    assert same(SavedState({}, found.arrays, []), SavedState({}, arrays, []))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(array_file, "STEP_BYTES", 16)
        for steps in count():
            writing = array_file.write_in_steps(tmp_path / "b", "", {}, arrays)
            if len([*islice(writing, steps)]) < steps:
                break
            writing.close()
            assert names(tmp_path) == {"a"}
    assert steps > 20 and (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_states_that_could_not_be_loaded_are_refused(tmp_path: Path) -> None:
    wrong = [SavedState({}, {"a": array}, []) for array in ODD_ARRAYS]
    wrong += [SavedState({}, {}, [Part("a", {"a": array})]) for array in ODD_ARRAYS]
    wrong += [
        SavedState({"a": each}, {}, []) for each in ((1,), {1: 2}, {1, 2}, b"a", float("nan"))
    ]
    wrong += [SavedState({}, {}, [Part("a", {}), Part("a", {})])]
    with SegmentStore(tmp_path, OURS) as store:
        assert store.acquire()
        store.save(state(1))
        for saved in wrong:
            with pytest.raises(ValueError) as caught:
                store.save(saved)
            assert "\n" not in str(caught.value)
    assert whole(tmp_path, state(1))


# --- damaged files --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["table", "part1.part"])
def test_damaged_files_are_not_loaded(
    tmp_path: Path, name: str, lines: Callable[[], list[str]]
) -> None:
    saved = state(1)
    save(tmp_path, saved)
    path = tmp_path / name
    good = path.read_bytes()
    broken = [good[:length] for length in range(len(good))]
    broken += [good + more for more in (b"\0", b"a", good)]
    flipped = [
        good[:at] + bytes([good[at] ^ mask]) + good[at + 1 :]
        for at in range(len(good))
        for mask in (1, 0x80)
    ]
    equal = 0
    for data in broken + flipped:
        path.write_bytes(data)
        loaded, warnings = load(tmp_path), lines()
        if loaded is None:
            assert len(warnings) == 1 and str(path) in warnings[0]
        else:
            assert same(loaded, saved) and not warnings and len(data) == len(good)
            equal += 1
    assert equal <= 2 * 3 * array_file.ALIGNMENT  # flips of the bytes between arrays
    path.write_bytes(good)
    assert same(load(tmp_path), saved) and not lines()


def test_foreign_files_are_not_loaded(tmp_path: Path, lines: Callable[[], list[str]]) -> None:
    rng = random.Random(7)

    def foreign() -> None:
        with SegmentStore(tmp_path, "another") as store:
            assert store.acquire()
            store.save(state(1))

    def other_version() -> None:
        (tmp_path / "table").write_bytes(forged(header([]), version=array_file.VERSION + 1))

    def other_part() -> None:
        save(tmp_path / "other", state(1, size=4))
        shutil.copy(tmp_path / "other" / "part1.part", tmp_path / "part1.part")

    def nameless_part() -> None:
        data = forged(header([]))
        (tmp_path / "a.part").write_bytes(data)
        named = ["a", len(data), zlib.crc32(data[:-4])]
        (tmp_path / "table").write_bytes(forged(header([], [named])))

    def instead(make: Callable[[Path], object], name: str) -> Callable[[], None]:
        def damage() -> None:
            (tmp_path / name).unlink()
            make(tmp_path / name)

        return damage

    makers: list[Callable[[Path], object]] = [
        Path.touch, Path.mkdir, os.mkfifo, lambda path: path.write_bytes(rng.randbytes(999)),
        lambda path: path.symlink_to(path), lambda path: path.write_bytes(b"\0" * 999),
    ]  # fmt: skip
    damages = [foreign, other_version, other_part, nameless_part]
    damages += [instead(make, name) for make in makers for name in ("table", "part1.part")]
    damages += [lambda: (tmp_path / "part2.part").unlink()]
    damages += [lambda: shutil.copy(tmp_path / "part1.part", tmp_path / "table")]
    damages += [lambda: shutil.copy(tmp_path / "part1.part", tmp_path / "part2.part")]
    for damage in damages:
        shutil.rmtree(tmp_path)
        save(tmp_path, state(1))
        damage()
        assert load(tmp_path) is None
        warnings = lines()
        assert len(warnings) == 1 and str(tmp_path) in warnings[0]
        if (tmp_path / "table").is_file():
            save(tmp_path, state(2))
            assert same(load(tmp_path), state(2))


def forged(header: bytes, version: int = array_file.VERSION) -> bytes:
    """A file with a right checksum over any header."""
    head = struct.pack("<8sII", b"DRAFTLN\0", version, len(header)) + header
    return head + struct.pack("<I", zlib.crc32(head))


def header(entries: Any, parts: Any = ()) -> bytes:
    about = {"meta": {}, "parts": parts}
    return json.dumps({"fingerprint": OURS, "about": about, "arrays": entries}).encode()


HOSTILE = [
    b"", b"{}", b"[]", b"null", b"\xff", b"[" * 100_000, b'{"a":' * 100_000, b"9" * 100_000,
    header(None), header([None]), header([[]]), header({}),
    header([], None), header([], [None]), header([], [["../lock", 0, 0]]),
    header([], [["a\n", 0, 0]]), header([], [["a", "b", 0]]), header([], [["missing", 0, 0]]),
    header([["a", "<i4", [1 << 62], 0]]), header([["a", "<i4", [-1], 0]]),
    header([["a", "<i4", [-1, -4], 0]]), header([["a", "<i4", [1 << 40], 0]]),
    header([["a", "<i4", [0, 1 << 62, 1 << 62], 0]]), header([["a", "<i4", [0, 1 << 64], 0]]),
    header([["a", "<i4", [True], 0]]), header([["a", "<i4", [1.0], 0]]),
    header([["a", "<i4", 1, 0]]), header([["a", "<i4", [0] * 99, 0]]),
    header([["a", "<i4", [[1]], 0]]), header([["a", "<i4", [1], None]]),
    header([["a", "|O", [1], 0]]), header([["a", "<U4", [1], 0]]), header([["a", ">i4", [1], 0]]),
    header([["a", "<V4", [1], 0]]), header([["a", "i4,i4", [1], 0]]), header([["a", [], [1], 0]]),
    header([["a b", "<i4", [1], 0]]), header([["a", "|u1", [0], 0], ["a", "|u1", [0], 0]]),
]  # fmt: skip


def loads_nothing(folder: Path, data: bytes) -> None:
    (folder / "table").write_bytes(data)
    tracemalloc.start()
    try:
        assert load(folder) is None
        assert tracemalloc.get_traced_memory()[1] < (4 << 20) + 50 * len(data)
    finally:
        tracemalloc.stop()


def test_hostile_headers_are_refused(tmp_path: Path, lines: Callable[[], list[str]]) -> None:
    for data in HOSTILE:
        bare = forged(data)
        for rest in (bytes(128), bytes(-len(bare) % array_file.ALIGNMENT)):
            loads_nothing(tmp_path, bare + rest)
            assert len(lines()) == 1, data[:99]
    for length in (0xFFFFFFFF, 0x7FFFFFFF, 1 << 22, 100, 0):
        loads_nothing(
            tmp_path, struct.pack("<8sII", b"DRAFTLN\0", array_file.VERSION, length) + b"a" * 99
        )
        assert len(lines()) == 1


@given(st.recursive(
    st.none() | st.booleans() | st.integers() | st.sampled_from(["a", "<i4", "|u1", "é"]),
    lambda inner: st.lists(inner, max_size=5),
))  # fmt: skip
@example([["a", "|u1", [0], 0]])
@settings(max_examples=100)
def test_arbitrary_headers_are_handled(entries: Any) -> None:
    with tempfile.TemporaryDirectory() as place:
        bare = forged(header(entries))
        (Path(place) / "table").write_bytes(bare + bytes(-len(bare) % array_file.ALIGNMENT))
        loaded = load(Path(place))
        assert loaded is None or all(array.size == 0 for array in loaded.table.values())
