"""Workspace faults at full size: many kills, many files, large branches, a real tokenizer.

Measurements are printed (pytest -rP), not asserted.
"""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from engine.memory import give_back_memory
from engine.prompts.tokenizer import Tokenizer
from engine.weights import locate
from index import Workspace
from index.workspace.watch import Watch
from tests.support.child import end_of, start
from tests.support.encoders import Bytes
from tests.support.faults import (
    PHASES,
    TIMEOUT_S,
    check,
    git,
    kill_repeatedly,
    starts_warm,
    texts,
    two_branches,
    warnings_of_index,
)

pytestmark = pytest.mark.full

FILES = 100_000


def resident() -> float:
    """Resident memory of this process in MB, without what is free."""
    gc.collect()
    give_back_memory()
    return psutil.Process().memory_info().rss / 1e6


@pytest.fixture
def smollm2() -> Tokenizer:
    return Tokenizer(locate("smollm2-135m"))


def test_kill_9_at_120_random_moments(tmp_path: Path) -> None:
    assert kill_repeatedly(tmp_path, range(1000, 1120)) == set(PHASES)


def test_100_000_tiny_files(tmp_path: Path) -> None:
    root, home = tmp_path / "root", tmp_path / "home"
    for folder in range(100):
        (root / f"{folder}").mkdir(parents=True)
        for number in range(FILES // 100):
            (root / f"{folder}" / f"{number}.py").write_text(f"f{folder} = {number}\n")

    def build(tokenized: int) -> None:
        """Runs in a process of its own, to measure its memory."""
        before = resident()
        begin = time.monotonic()
        with warnings_of_index() as lines, Workspace(root, Bytes(), home) as workspace:
            workspace.build()
            built = time.monotonic() - begin
            assert len(workspace.paths) == FILES
            assert workspace.stats().misses == tokenized
            for _ in range(100):
                folder, number = random.randrange(100), random.randrange(FILES // 100)
                (match,) = workspace.match(list(f"f{folder} = {number}".encode()), k=1)
                assert match.length == len(f"f{folder} = {number}")
                text = bytes(match.document.tokens.tolist()).decode()
                assert text.startswith(f"f{folder} = {number}")
                assert (root / match.path).read_text() == text
            (root / "50" / "500.py").write_text("changed = 1\n")
            (root / "60" / "600.py").unlink()
            begin = time.monotonic()
            workspace.scan()
            scanned = time.monotonic() - begin
            assert workspace.match(list(b"changed"))[0].count == 1
            assert len(workspace.paths) == FILES - 1
            grown = resident() - before
            begin = time.monotonic()
        closed = time.monotonic() - begin
        (root / "50" / "500.py").write_text("f50 = 500\n")  # the next build looks for any of them
        (root / "60" / "600.py").write_text("f60 = 600\n")
        assert lines == []
        print(f"100,000 files, {tokenized} tokenized: ready in {built:.1f} s, scanned in "
              f"{scanned:.1f} s, closed in {closed:.1f} s, {grown:.0f} MB resident")  # fmt: skip

    assert end_of(start(lambda: build(FILES))) == 0
    assert end_of(start(lambda: build(0))) == 0


def test_a_checkout_of_2_000_files(tmp_path: Path, smollm2: Tokenizer) -> None:
    """And back, by events alone. Memory does not grow, and no text is tokenized twice."""
    root, other, home = tmp_path / "root", tmp_path / "other", tmp_path / "home"
    two_branches(root, 2000, 4096)
    git(root, "clone", "-q", "--branch", "two", str(root), str(other))
    expected = {}
    for branch, folder in (("two", other), ("one", root)):
        with Workspace(folder, smollm2) as workspace:
            workspace.build()
            found = texts(workspace).items()
            expected[branch] = {path.replace(str(folder), str(root)): ids for path, ids in found}
    with warnings_of_index() as lines, Workspace(root, smollm2, home) as workspace:
        workspace._watch = Watch([root], workspace.refresh, rescan_s=1e6)  # no full scans
        workspace._watch.start()
        workspace.build()
        workspace.compact()
        size, memory = workspace.nbytes, resident()
        for branch in ("two", "one") * 3:
            begin = time.monotonic()
            git(root, "checkout", "-q", branch)
            left = time.monotonic()
            while texts(workspace) != expected[branch]:
                assert time.monotonic() < left + TIMEOUT_S, "events were lost"
                time.sleep(0.01)
            done = time.monotonic()
            workspace.compact()
            print(f"checkout of {branch}: {left - begin:.2f} s of git, consistent "
                  f"{done - left:.2f} s later; settled in {time.monotonic() - done:.2f} s; "
                  f"{workspace.nbytes / size:.2f} of the index's bytes, "
                  f"{resident() - memory:+.0f} MB resident; {workspace.stats()}")  # fmt: skip
            assert workspace.stats().misses == 4002
            assert workspace.nbytes < 1.5 * size and workspace.stats().dead < 0.5
            assert resident() < memory + 3 * size / 1e6
        check(workspace)
    assert lines == []
    starts_warm(root, home, smollm2)


def lines_of(size: int) -> Iterator[tuple[str, str]]:
    for name, part in (("x", "x"), ("blank", " "), ("ends", "\n"), ("code", "var a=f(b){c+1};")):
        yield name, (part * size)[:size]


def test_giant_lines_and_a_real_tokenizer(tmp_path: Path, smollm2: Tokenizer) -> None:
    for name, text in lines_of(1 << 20):
        (tmp_path / name).write_text(text)
    begin = time.monotonic()
    with Workspace(tmp_path, smollm2) as workspace:
        workspace.build()
        print(f"four lines of 1 MiB: {time.monotonic() - begin:.1f} s")
        for name, text in lines_of(1 << 20):
            begin = time.monotonic()
            workspace.update(tmp_path / name, "y" + text[1:], 2)
            print(f"a buffer of one line of {name}: {time.monotonic() - begin:.2f} s")
            document = {one.path: one for one in workspace.documents}[str(tmp_path / name)]
            assert smollm2.decode(document.tokens.tolist()) == "y" + text[1:]
            workspace.update(tmp_path / name, None)
        assert sorted(map(str, tmp_path.iterdir())) == workspace.paths
        check(workspace, ["var a", "c+1"])
