"""The database of token ids is bounded and shared, and no fault causes an error or a wrong id."""

from __future__ import annotations

import os
import random
import resource
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import index.workspace.token_cache
import index.workspace.token_db
from index.workspace.token_cache import TokenCache
from index.workspace.token_db import TokenDB
from tests.index.test_token_cache import Bytes, source
from tests.support.child import end_of, kill, start
from tests.support.faults import warnings_of_index
from tests.support.folder_mirror import wait_for


def filled(folder: Path, texts: list[str]) -> Path:
    """A database file with the ids of these texts."""
    tokens = TokenCache(Bytes(), folder)
    tokens.encode(texts)
    tokens.close()
    (path,) = folder.glob("*")
    return path


def encode_twice(folder: Path, texts: list[str]) -> tuple[int, int]:
    """Check the ids of these texts with two caches in succession; returns the hits of each."""
    hits = []
    for _ in range(2):
        tokens = TokenCache(Bytes(), folder)
        for text, one in zip(texts, tokens.encode(texts), strict=True):
            assert bytes(one.ids.tolist()) == text.encode() and one.starts is None
        tokens.close()
        hits.append(tokens.hits)
    return hits[0], hits[1]


ROOT = Path(__file__).resolve().parents[2]
TEXTS = [source(seed, 3000) for seed in range(30)]


def test_another_process_finds_the_ids(tmp_path: Path) -> None:
    filled(tmp_path / "new" / "cache", TEXTS)
    code = (
        "import sys, pathlib; sys.path.insert(0, sys.argv[1])\n"
        "import tests.index.test_token_db as t\n"
        "print(t.encode_twice(pathlib.Path(sys.argv[2]), t.TEXTS))"
    )
    command = [sys.executable, "-c", code, str(ROOT), str(tmp_path / "new/cache")]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "(30, 30)"


def test_databases_of_few_tokenizers_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index.workspace.token_db, "MAX_TOKEN_DBS", 2)
    paths = [tmp_path / f"{name}.sqlite" for name in "abcd"]
    for age, path in enumerate(paths):
        database = TokenDB(path, 1 << 20)
        database.note([], {b"digest": (np.arange(9, dtype=np.int32), None)})
        database.write()
        database.close()
        os.utime(path, ns=(age, age))
    assert {path.name for path in tmp_path.iterdir()} == {"c.sqlite", "d.sqlite"}


def test_files_are_private(tmp_path: Path) -> None:
    tokens = TokenCache(Bytes(), tmp_path / "cache")
    tokens.encode(TEXTS)
    tokens.flush()
    files = list((tmp_path / "cache").iterdir())
    assert len(files) == 3 and tokens.nbytes() > sum(map(len, TEXTS)) * 4
    assert {file.stat().st_mode & 0o777 for file in files} == {0o600}
    assert (tmp_path / "cache").stat().st_mode & 0o777 == 0o700
    tokens.close()


def test_new_ids_are_written_in_the_background(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index.workspace.token_db, "WRITE_DELAY_S", 0.01)
    tokens = TokenCache(Bytes(), tmp_path)
    tokens.encode(TEXTS)
    database = tokens._db
    assert database
    wait_for(lambda: database._writer is None)
    assert encode_twice(tmp_path, TEXTS) == (30, 30)
    tokens.close()
    tokens.encode(["after the end"])
    assert tokens._db and not tokens._db._fresh


def test_least_recently_used_rows_are_evicted(tmp_path: Path) -> None:
    limit = 400_000
    tokens, favourite = TokenCache(Bytes(), tmp_path, limit), source(1000, 3000)
    tokens.encode([favourite])
    for seed in range(100):
        tokens.encode([source(seed, 3000)])
        tokens.encode([favourite])
        tokens.flush()
        journal = index.workspace.token_db.WRITE_BATCH_BYTES
        assert tokens.nbytes() < limit + journal + 100_000
    assert tokens.hits == 100, "the most recently used text was evicted"
    tokens.close()
    assert limit // 2 < tokens.nbytes() <= limit + 20_000
    tokens = TokenCache(Bytes(), tmp_path, limit)
    found = []
    for text in [source(seed, 3000) for seed in range(100)] + [favourite]:
        assert tokens._db
        found.append(bool(tokens._db.find([index.workspace.token_cache.digest(text)])))
    first = found.index(True)
    assert found == [False] * first + [True] * (101 - first)
    assert 15 < 100 - first < 35
    tokens.clear()
    assert tokens.nbytes() < 40_000 and encode_twice(tmp_path, TEXTS) == (0, 30)
    tokens.close()


TAMPERED = [
    "ids = substr(ids, 2)", "ids = x''", "ids = 'text'", "ids = 7", "ids = NULL", "starts = x'00'",
    "starts = 'a'", "crc = NULL", "crc = 'x'", "ids = zeroblob(length(ids))",
    "digest = digest || 1", "starts = x'00000000'", "ids = CAST(x'ff8000' AS TEXT)",
]  # fmt: skip


@pytest.mark.parametrize("change", TAMPERED)
def test_a_damaged_row_is_replaced(tmp_path: Path, change: str) -> None:
    with closing(sqlite3.connect(filled(tmp_path, TEXTS))) as connection, connection:
        connection.execute(f"UPDATE texts SET {change}")
    assert encode_twice(tmp_path, TEXTS) == (0, 30)


@pytest.mark.parametrize("ids", [[-1], [256], [65] * 2, []])
def test_ids_that_do_not_fit_the_text_are_replaced(tmp_path: Path, ids: list[int]) -> None:
    """Valid rows of ids that cannot be the text's."""
    path = filled(tmp_path, ["A"])
    row = index.workspace.token_db._pack(np.array(ids, np.int32), None)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE texts SET crc = ?, starts = ?, ids = ?", row)
    assert encode_twice(tmp_path, ["A"]) == (0, 1)


def foreign(path: Path) -> None:
    path.unlink()
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE texts (digest, other)")


def headless(path: Path) -> None:
    foreign(path)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA application_id = {index.workspace.token_db.APPLICATION_ID}")


DAMAGES: dict[str, Callable[[Path], object]] = {
    "empty": lambda path: path.write_bytes(b""),
    "noise": lambda path: path.write_bytes(random.Random(0).randbytes(50_000)),
    "foreign": foreign,
    "another table": headless,
    "half": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "pages": lambda path: path.write_bytes(path.read_bytes()[:8192] + b"\x5a" * 200_000),
    "a journal": lambda path: Path(f"{path}-wal").write_bytes(b"\x37\x7f\x06\x82" + b"x" * 9000),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_an_unusable_file_is_recreated(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, damage: str
) -> None:
    DAMAGES[damage](filled(tmp_path, TEXTS))
    assert encode_twice(tmp_path, TEXTS)[1] == 30
    assert len(caplog.records) == (damage != "a journal"), "one line"


@settings(max_examples=15)
@given(at=st.integers(0, 120) | st.integers(0, 1 << 20), bit=st.integers(0, 7))
def test_a_flipped_bit_changes_no_answer(
    tmp_path_factory: pytest.TempPathFactory, at: int, bit: int
) -> None:
    folder = tmp_path_factory.mktemp("flipped")
    path = filled(folder, TEXTS[:4])
    data = bytearray(path.read_bytes())
    data[at % len(data)] ^= 1 << bit
    path.write_bytes(data)
    encode_twice(folder, TEXTS[:4])
    assert encode_twice(folder, TEXTS[:4])[1] == 4


def test_an_unusable_folder_is_ignored(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("in the way")
    tokens = TokenCache(Bytes(), tmp_path / "file" / "cache")
    for _ in range(3):
        assert tokens.encode(["x"])[0].ids.tolist() == [120]
        tokens.flush()
    assert (tokens.hits, tokens.misses, tokens.nbytes()) == (0, 3, 0)
    assert len(caplog.records) == 1 and "not caching token ids" in caplog.text


def test_a_locked_file_is_not_written(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index.workspace.token_db, "BUSY_TIMEOUT_S", 0.05)
    path = filled(tmp_path, TEXTS)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        tokens = TokenCache(Bytes(), tmp_path)
        tokens.encode([*TEXTS, "new"])
        tokens.flush()
        assert tokens.hits == 30, "a writer does not stop readers"
    assert len(caplog.records) == 1 and "locked" in caplog.text
    tokens.close()
    assert encode_twice(tmp_path, [*TEXTS, "new"]) == (30, 31)


# -- processes and threads -------------------------------------------------------------------------


def test_a_full_disk_changes_no_answer(tmp_path: Path) -> None:
    def work() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, 60_000))
        with warnings_of_index() as lines:
            assert encode_twice(tmp_path, TEXTS) == (0, 0)
        assert len(lines) == 2, "one line for each start"

    assert end_of(start(work)) == 0
    assert encode_twice(tmp_path, TEXTS) == (0, 30)


def encode_forever(folder: Path, seed: int) -> None:
    tokens, chance = TokenCache(Bytes(), folder, limit=300_000), random.Random(seed)
    while True:
        tokens.encode(chance.sample(TEXTS, 5))
        tokens.flush()
        if chance.random() < 0.1:
            tokens.clear()


@pytest.mark.parametrize("seed", range(6))
def test_kill_9_changes_no_answer(tmp_path: Path, seed: int) -> None:
    """Two at once, so that one is killed while the other writes."""
    children = [start(partial(encode_forever, tmp_path, number)) for number in (seed, -seed)]
    for child in children:
        child.join(random.Random(seed).random() * 0.15)
        assert child.is_alive()
        kill(child)
    assert encode_twice(tmp_path, TEXTS)[1] == 30
    with closing(sqlite3.connect(next(tmp_path.glob("*.sqlite")))) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_threads_share_a_cache(tmp_path: Path) -> None:
    tokens, wrong = TokenCache(Bytes(), tmp_path, limit=200_000), []

    def work(seed: int) -> None:
        chance = random.Random(seed)
        for _ in range(15):
            texts = chance.sample(TEXTS, 6)
            answers = [*tokens.encode(texts), *map(tokens.encode_buffer, texts)]
            for text, one in zip(texts * 2, answers, strict=True):
                if bytes(one.ids.tolist()) != text.encode():
                    wrong.append(text)
            chance.choice([tokens.flush, tokens.clear, tokens.nbytes])()

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(300)
    assert not wrong and not any(thread.is_alive() for thread in threads)
    assert tokens.hits + tokens.misses == 6 * 15 * 6
    tokens.close()
