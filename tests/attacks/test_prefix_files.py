"""Prefixes on disk that are cut, forged, of other programs, on full or read-only disks, or whose
writer is killed: what cannot be used is dropped with one line in the log, and the rows are those of
a cold start."""

from __future__ import annotations

import json
import os
import random
import signal
import struct
import zlib
from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from index.temporary_file import NAME
from index.workspace import array_file
from index.workspace.array_file import ArrayFile, Arrays, write
from tests.model.test_target import some_tokens
from tests.support.child import end_of, start
from tests.support.faults import tiny_disk
from tests.support.file_steps import kill_at
from tests.support.prefixes import RowsTarget, files, keep, opened, stored

PROMPT, OTHER = some_tokens(200, 1000), some_tokens(260, 1000, seed=1)
HYBRIDS = [False, True]


def used(home: Path, has_states: bool) -> int:
    """How much of PROMPT is taken from disk; `RowsTarget.read` compares every number."""
    target = RowsTarget(has_states)
    opened(home, target)
    return target.read(PROMPT)


# -- damaged and forged files ----------------------------------------------------------------------


@pytest.mark.parametrize("has_states", HYBRIDS)
def test_cut_and_flipped_files(
    tmp_path: Path, has_states: bool, caplog: pytest.LogCaptureFixture
) -> None:
    (path,) = stored(tmp_path, PROMPT, has_states=has_states)
    good, chance = path.read_bytes(), random.Random(3)
    places = chance.sample(range(len(good)), 150)
    broken = [good[:at] for at in (0, 1, 16, *places[:50])] + [good + b"\0", good * 2]
    head = 16 + struct.unpack_from("<I", good, 12)[0] + 4
    tokens = good.index(np.array(PROMPT[:-1], np.int32).tobytes())
    flipped = [*range(0, head, 7), tokens, tokens + 600, *places[50:]]
    broken += [good[:at] + bytes([good[at] ^ 0x10]) + good[at + 1 :] for at in flipped]
    equal = 0
    for data in broken:
        path.write_bytes(data)
        caplog.clear()
        if used(tmp_path, has_states):
            assert len(data) == len(good) and not caplog.messages
            equal += 1  # a byte between two arrays
        else:
            assert len(caplog.messages) == 1 and str(path) in caplog.text
            assert not path.exists()
    assert equal < 5
    path.write_bytes(good)
    assert used(tmp_path, has_states) == len(PROMPT) - 1


Change = Callable[[dict[str, Any], Arrays], None]
LONG = np.zeros(1 << 20, np.int32)


def _set(name: str, value: Any) -> Change:
    return lambda about, arrays: arrays.update({name: value})


FORGED: dict[str, Change] = {
    "no tokens": lambda about, arrays: [arrays.pop("tokens")].clear(),
    "no rows": lambda about, arrays: [arrays.pop("part0")].clear(),
    "more arrays": _set("part9", np.zeros(3, np.float32)),
    "rows of others": _set("part0", np.zeros((2, 2, 3, 199, 9), np.float32)),
    "fewer rows": _set("part1", np.zeros((2, 1, 1, 198, 16), np.float32)),
    "other numbers": _set("part1", np.zeros((2, 1, 1, 199, 16), np.int32)),
    "long numbers": _set("tokens", np.zeros(199, np.int64)),
    "too many tokens": _set("tokens", LONG),
    "none": _set("tokens", LONG[:0]),
    "a table of tokens": _set("tokens", np.zeros((199, 1), np.int32)),
    "checkpoints": lambda about, arrays: about.update(checkpoints=[1, 2]),
    "far checkpoints": lambda about, arrays: about.update(checkpoints=[1 << 70]),
    "many checkpoints": lambda about, arrays: about.update(checkpoints=[*range(1, 150)]),
    "odd checkpoints": lambda about, arrays: about.update(checkpoints={"a": [True]}),
}


@pytest.mark.parametrize("has_states", HYBRIDS)
@pytest.mark.parametrize("change", FORGED.values(), ids=FORGED)
def test_forged_files(
    tmp_path: Path, has_states: bool, change: Change, caplog: pytest.LogCaptureFixture
) -> None:
    """With right checksums."""
    (path,) = stored(tmp_path, PROMPT, has_states=has_states)
    file = ArrayFile(path)
    about, arrays = dict(file.about), dict(file.arrays)
    change(about, arrays)
    write(path, file.fingerprint, about, arrays)
    assert used(tmp_path, has_states) == 0 and not path.exists()
    assert len(caplog.messages) == 1 and str(path) in caplog.text


def test_another_version_of_the_format(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (path,) = stored(tmp_path, PROMPT)
    data = bytearray(path.read_bytes())
    struct.pack_into("<I", data, 8, array_file.VERSION + 1)
    path.write_bytes(data)
    assert used(tmp_path, False) == 0
    assert len(caplog.messages) == 1 and "version" in caplog.text and not path.exists()


def test_a_huge_header(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (path,) = stored(tmp_path, PROMPT)
    entries = [["tokens", "<i4", [1 << 60], 0]]
    header = {"fingerprint": "x", "about": {}, "arrays": entries}
    text = json.dumps(header).encode()
    head = array_file.PREFIX.pack(array_file.MAGIC, array_file.VERSION, len(text)) + text
    path.write_bytes(head + array_file.CHECKSUM.pack(zlib.crc32(head)))
    os.truncate(path, 1 << 36)  # a file with a hole
    assert used(tmp_path, False) == 0
    assert len(caplog.messages) == 1 and not path.exists()


def test_things_that_are_no_files(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (path,) = stored(tmp_path, PROMPT)
    secret = tmp_path / "elsewhere"
    path.rename(secret)
    data = secret.read_bytes()
    for kind in ("link", "pipe", "folder"):
        if kind == "link":
            path.symlink_to(secret)
        elif kind == "pipe":
            os.mkfifo(path)
        else:
            path.mkdir()
        caplog.clear()
        assert used(tmp_path, False) == 0 and len(caplog.messages) == 1
        if path.is_dir():
            path.rmdir()
        assert not os.path.lexists(path)
    assert secret.read_bytes() == data


def test_files_that_change_while_the_engine_runs(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Deleted, cut, or replaced by the entry of another prompt, or of another model."""
    (path,) = stored(tmp_path, PROMPT)
    good = path.read_bytes()
    (other,) = stored(tmp_path / "other", OTHER)
    ours = ArrayFile(path)
    write(tmp_path / "foreign", "another model", ours.about, ours.arrays)
    foreign = (tmp_path / "foreign").read_bytes()
    for data, lines in (
        (None, 0), (good[:-1], 1), (b"", 1), (other.read_bytes(), 1), (foreign, 1),
    ):  # fmt: skip
        path.write_bytes(good)
        target = RowsTarget()
        opened(tmp_path, target)
        path.unlink()
        if data is not None:
            path.write_bytes(data)
        caplog.clear()
        assert target.read(PROMPT) == 0 and len(caplog.messages) == lines
        assert not path.exists()


# -- disks -----------------------------------------------------------------------------------------


def test_a_full_disk(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """What is there stays and is used; nothing is left of what does not fit."""
    with tiny_disk(tmp_path / "disk", "1m") as resize:
        home = tmp_path / "disk"
        (path,) = stored(home, PROMPT)
        target = RowsTarget()
        store = opened(home, target)
        long = some_tokens(3000, 1000, seed=2)
        target.read(long)
        keep(store, long)
        (line,) = caplog.messages
        assert "No space left" in line and files(home) == [path]
        target.read(OTHER)
        assert not store.want(OTHER, lambda: True), "it is not tried again"
        resize("9m")
        assert used(home, False) == len(PROMPT) - 1 and len(caplog.messages) == 1


def test_a_read_only_disk(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """What is there is used, also where damaged files stay there."""
    with tiny_disk(tmp_path / "disk", "9m") as resize:
        home = tmp_path / "disk"
        path, bad = stored(home, PROMPT, OTHER)
        bad.write_bytes(bad.read_bytes()[:-1])
        resize("9m,ro")
        target = RowsTarget()
        store = opened(home, target)
        assert target.read(PROMPT) == len(PROMPT) - 1
        assert target.read(OTHER) == 0 and len(caplog.messages) == 1
        keep(store, OTHER)
        assert len(caplog.messages) == 2 and "Read-only" in caplog.messages[1]
        assert files(home) == sorted([path, bad])


# -- kills -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("stride", [36, pytest.param(1, marks=pytest.mark.full)])
def test_kill_9_at_any_step_loses_the_entry_in_flight_alone(
    tmp_path: Path, stride: int, caplog: pytest.LogCaptureFixture
) -> None:
    """At each of more than a hundred file operations; the entry takes the place of an older one."""
    longer = [*PROMPT[:190], *some_tokens(200, 1000, seed=2)]
    outcomes = set[tuple[int, int]]()

    def work(home: Path, number: int) -> None:
        array_file.STEP_BYTES = 1 << 12
        target = RowsTarget(has_states=True)
        store = opened(home, target)
        target.read(longer)
        kill_at(number)
        keep(store, longer)

    for number in count(step=stride):
        home = tmp_path / str(number)
        _, old = stored(home, OTHER, PROMPT, has_states=True)
        ended = end_of(start(partial(work, home, number)))
        target = RowsTarget(has_states=True)
        store = opened(home, target)
        cached = target.read(longer)
        assert cached == len(longer) - 1 or (cached == 0 and old.exists())
        outcomes.add((ended, cached))
        assert target.read(OTHER) == len(OTHER) - 1
        target.read(longer)
        keep(store, longer)
        assert not [path for path in files(home) if NAME.fullmatch(path.name)]
        if ended == 0:
            break
        assert ended == -signal.SIGKILL
    assert number > 100 and not caplog.messages
    assert len(outcomes) >= 2 + (stride == 1)
    print(f"{number // stride} kills")
