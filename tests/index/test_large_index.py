"""Large indexes, with small limits: built in segments, saved as they come, resumed after a kill,
and queried before they are verified."""

from __future__ import annotations

import os
import random
import signal
from pathlib import Path
from typing import Any

import pytest

import index.workspace.persistence
import index.workspace.segment
import index.workspace.workspace
from index import Workspace
from index.workspace.array_file import ArrayFile
from index.workspace.persistence import SavedIndex
from index.workspace.segment_store import SegmentStore
from tests.support.child import end_of, start
from tests.support.encoders import Bytes, Composed
from tests.support.faults import (
    change,
    check,
    make_tree,
    small_segments,
    some_text,
    starts_warm,
    warnings_of_index,
)

BATCH_TOKENS, MAX_TOKENS = 400, 1600


def small_limits(patch: Any) -> None:
    """Batches of 400 tokens and more, which are mapped and saved at once, and segments of 1,600."""
    patch.setattr(index.workspace.workspace, "FREEZE_BATCH_TOKENS", BATCH_TOKENS)
    patch.setattr(index.workspace.workspace, "COMMIT_TOKENS", BATCH_TOKENS)
    patch.setattr(index.workspace.persistence, "MAPPED_TOKENS", BATCH_TOKENS)
    for module in (index.workspace.workspace, index.workspace.segment):
        patch.setattr(module, "MAX_SEGMENT_TOKENS", MAX_TOKENS)


@pytest.fixture
def limits(monkeypatch: pytest.MonkeyPatch) -> None:
    small_segments(monkeypatch)
    small_limits(monkeypatch)


def tree_of_files(root: Path, files: int = 60) -> Path:
    chance = random.Random(5)
    for number in range(files):
        path = root / f"folder{number % 7}" / f"file{number}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"number = {number}\n" + some_text(chance).replace("\0", "") * 3)
        os.utime(path, (1 + number, 1 + number))
    return root


@pytest.mark.usefixtures("limits")
@pytest.mark.parametrize("encoder", [Bytes(), Composed()], ids=["bytes", "composed"])
def test_an_index_in_segments_answers_like_one_built_whole(tmp_path: Path, encoder: Any) -> None:
    root, chance = tree_of_files(tmp_path / "root"), random.Random(2)
    make_tree(root, chance)
    with Workspace(root, encoder, tmp_path / "home") as workspace:
        workspace.build()
        assert workspace.stats().segments > 5
        check(workspace)
        for _ in range(6):
            workspace.refresh(change(root, chance) + change(root, chance))
            workspace.compact()
            check(workspace)
    starts_warm(root, tmp_path / "home", encoder)


@pytest.mark.usefixtures("limits")
def test_no_segment_outgrows_the_limit_and_large_ones_are_files(tmp_path: Path) -> None:
    root = tree_of_files(tmp_path / "root")
    largest = max(path.stat().st_size for path in root.rglob("*.py"))
    with Workspace(root, Bytes(), tmp_path / "home") as workspace:
        workspace.build()
        for _ in range(2):
            files = {path.stem for path in (tmp_path / "home").rglob("*.part")}
            segments = [one for one in workspace._segments.segments if one.frozen]
            assert all(one.size <= MAX_TOKENS + largest for one in segments)
            assert all(one.name in files for one in segments if one.size >= BATCH_TOKENS)
            workspace.compact()
        check(workspace)


@pytest.mark.parametrize("saves", [1, 2, 4])
def test_a_build_resumes_after_kill_9(
    tmp_path: Path, saves: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was saved before the kill is not read again, although the token ids are lost."""
    root, home = tree_of_files(tmp_path / "root"), tmp_path / "home"

    def work() -> None:
        small_segments()
        with pytest.MonkeyPatch.context() as patch:
            small_limits(patch)
            save, done = SavedIndex.save, []

            def save_and_die(*arguments: Any) -> None:
                save(*arguments)
                done.append(1)
                if len(done) == saves:
                    os.kill(os.getpid(), signal.SIGKILL)

            patch.setattr(SavedIndex, "save", save_and_die)
            Workspace(root, Bytes(), home).build()

    assert end_of(start(work)) == -signal.SIGKILL
    for path in home.rglob("*.sqlite*"):
        path.unlink()
    small_segments(monkeypatch)
    small_limits(monkeypatch)
    with warnings_of_index() as lines, Workspace(root, Bytes(), home) as workspace:
        workspace.build()
        files, stats = len(workspace.documents), workspace.stats()
        assert stats.hits == 0 and 0 < stats.misses < files - saves
        check(workspace)
    assert lines == []
    starts_warm(root, home)


@pytest.mark.usefixtures("limits")
def test_a_saved_index_answers_before_it_is_verified(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, home = tree_of_files(tmp_path / "root"), tmp_path / "home"
    with Workspace(root, Bytes(), home) as workspace:
        workspace.build()
        expected = workspace.match(list(b"number = 7"))[0].path
    verify, found = SegmentStore.verify, []

    def look(store: SegmentStore) -> bool:
        found.append([one.path for one in workspace.match(list(b"number = 7\n"), 1)])
        workspace.update("buffer", "number = 7\nbuffer")  # a change in the meantime is kept
        return verify(store)

    monkeypatch.setattr(SegmentStore, "verify", look)
    with Workspace(root, Bytes(), home) as workspace:
        workspace.build()
        assert workspace.match(list(b"7\nbuffer"[:-1]))[0].path == "buffer"
        assert workspace.stats().misses == 0
    assert found == [[expected]]


@pytest.mark.usefixtures("limits")
def test_a_damaged_segment_is_dropped_with_all_that_was_loaded(tmp_path: Path) -> None:
    """Also if it answered wrongly until then."""
    root, home = tree_of_files(tmp_path / "root"), tmp_path / "home"
    with Workspace(root, Bytes(), home) as workspace:
        workspace.build()
    for part in home.rglob("*.part"):
        order = ArrayFile(part).arrays["order"].tobytes()
        part.write_bytes(part.read_bytes().replace(order, b"\xff" * len(order)))
    with warnings_of_index() as lines, Workspace(root, Bytes(), home) as workspace:
        workspace.build()
        check(workspace)
    assert len(lines) == 1 and "does not match its checksum; rebuilding the index" in lines[0]
    starts_warm(root, home)


def test_an_index_of_an_older_version_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One without the arrays that make loading fast."""
    root, home = tree_of_files(tmp_path / "root"), tmp_path / "home"
    older = ("text", "starts", "order", "ranks")
    with monkeypatch.context() as patch:
        patch.setattr(
            index.workspace.persistence,
            "arrays_of",
            lambda core: {name: getattr(core, name) for name in older},
        )
        with Workspace(root, Bytes(), home) as workspace:
            workspace.build()
    starts_warm(root, home)


@pytest.mark.usefixtures("limits")
def test_a_merge_that_outlives_the_workspace_writes_no_file(tmp_path: Path) -> None:
    """Else it would keep other processes from saving."""
    root, home = tree_of_files(tmp_path / "root"), tmp_path / "home"
    workspace = Workspace(root, Bytes(), home)
    workspace.build()
    workspace.close()
    before = sorted(home.rglob("*"))
    segment = max(workspace._segments.segments, key=lambda one: one.size)
    assert workspace._saved and segment.size >= BATCH_TOKENS
    ids = [(0, 0)] * len(segment.documents)
    assert workspace._saved.to_disk(segment, ids) is segment
    assert sorted(home.rglob("*")) == before
    with Workspace(root, Bytes(), home) as other:
        other.build()
        other.clear()
