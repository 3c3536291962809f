"""The workspace survives kills, full disks, damaged files, other processes and threads.

Uses real files, processes and signals. Answers are always compared with a fresh build.
"""

from __future__ import annotations

import os
import random
import resource
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from index import Workspace
from index.workspace import token_db
from tests.support.child import end_of, kill, start
from tests.support.encoders import Bytes, Composed
from tests.support.faults import (
    NAMES,
    TIMEOUT_S,
    change,
    check,
    kill_repeatedly,
    make_tree,
    small_segments,
    some_text,
    starts_warm,
    tiny_disk,
    warnings_of_index,
)
from tests.support.folder_mirror import wait_for


@pytest.fixture
def root(tmp_path: Path) -> Path:
    make_tree(tmp_path / "root", random.Random(1))
    return tmp_path / "root"


def test_kill_9_at_random_moments(tmp_path: Path) -> None:
    kill_repeatedly(tmp_path, range(5))


# -- disks and files of the store ----------------------------------------------------------------


def work_on_a_full_disk(root: Path, home: Path, free: Callable[[], object]) -> None:
    """Answers stay right, each cache logs the failure once, and saves again when there is room."""
    chance = random.Random(4)
    with warnings_of_index() as lines, Workspace(root, Bytes(), home) as workspace:
        workspace.build()
        for _ in range(5):
            for _ in range(8):
                workspace.refresh(change(root, chance))
            workspace.compact()
            check(workspace)
        failures = [line for line in lines if "cannot save the index" in line]
        ids = [line for line in lines if "not caching token ids" in line]
        assert len(failures) == 1 and len(ids) <= 1 and len(lines) == len(failures) + len(ids), (
            lines
        )
        free()
        (root / "u").write_text("value = 8\n")
        workspace.refresh([root / "u"])
    assert len(lines) == len(failures) + len(ids), lines
    starts_warm(root, home)


@pytest.mark.parametrize("limit", [1000, 20_000])
def test_no_room_for_large_files(tmp_path: Path, root: Path, limit: int) -> None:
    home = tmp_path / "home"

    def work() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        small_segments()
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
        work_on_a_full_disk(
            root, home, lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        )

    assert end_of(start(work)) == 0


def test_a_full_disk(tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small_segments(monkeypatch)
    with tiny_disk(tmp_path / "home", "64k") as resize:
        work_on_a_full_disk(root, tmp_path / "home", lambda: resize("64m"))


def test_close_saves_again_after_a_full_disk(tmp_path: Path, root: Path) -> None:
    """Although nothing changes after there is room again."""
    with tiny_disk(tmp_path / "home", "64k") as resize:
        with Workspace(root, Bytes(), tmp_path / "home") as workspace:
            workspace.build()
            workspace._segments.seal()
            workspace.compact()
            resize("64m")
        starts_warm(root, tmp_path / "home")


def damage_kinds() -> Iterator[Any]:
    """Names and functions that damage a file."""
    for share in (0.0, 0.01, 0.5, 0.99):
        yield (
            f"cut-{share}",
            lambda path, share=share: os.truncate(path, int(path.stat().st_size * share)),
        )
    for seed in range(4):
        yield f"flip-{seed}", lambda path, seed=seed: flip(path, random.Random(seed))
    yield "longer", lambda path: path.write_bytes(path.read_bytes() + b"more")
    yield "foreign", lambda path: path.write_bytes(random.Random(1).randbytes(20_000))
    yield "version", lambda path: overwrite(path, {8: 99, 68: 99})
    yield "gone", lambda path: path.unlink()
    yield "folder", lambda path: (path.unlink(), path.mkdir())
    yield "pipe", lambda path: (path.unlink(), os.mkfifo(path))
    yield "loop", lambda path: (path.unlink(), path.symlink_to(path))


def flip(path: Path, chance: random.Random) -> None:
    data = path.read_bytes()
    overwrite(path, {(at := chance.randrange(len(data))): data[at] ^ 1 << chance.randrange(8)})


def overwrite(path: Path, changed: dict[int, int]) -> None:
    data = bytearray(path.read_bytes())
    for at, byte in changed.items():
        data[at] = byte
    path.write_bytes(data)


@pytest.mark.parametrize("suffix", ["table", ".part", ".sqlite"])
def test_a_damaged_file(tmp_path: Path, root: Path, suffix: str) -> None:
    with Workspace(root, Composed(), tmp_path / "good") as workspace:
        workspace.build()
    starts_warm(root, tmp_path / "good", Composed())
    for name, damage in damage_kinds():
        home = tmp_path / name
        shutil.copytree(tmp_path / "good", home)
        files = [path for path in home.rglob("*") if path.name.endswith(suffix)]
        damage(files[0])
        with warnings_of_index() as lines, Workspace(root, Composed(), home) as workspace:
            workspace.build()
            check(workspace)
        in_the_way = suffix != ".sqlite" and name == "folder"  # neither loaded nor saved
        assert len(lines) <= 1 + in_the_way, (name, lines)
        assert lines or suffix == ".sqlite" or name == "gone"
        if not in_the_way:
            starts_warm(root, home, Composed())


@pytest.mark.parametrize("other", ["tokenizer", "roots"])
def test_another_index_in_place_of_ours(tmp_path: Path, root: Path, other: str) -> None:
    """The saved index of another workspace is copied over this one's."""
    (tmp_path / "far").mkdir()
    (tmp_path / "far" / "u").write_text("value = 9\n" * 50)
    encoder, roots = (Composed(), root) if other == "tokenizer" else (Bytes(), tmp_path / "far")
    for home, who in (
        (tmp_path / "home", (root, Bytes())),
        (tmp_path / "theirs", (roots, encoder)),
    ):
        with Workspace(*who, home) as workspace:
            workspace.build()
    for kind in ("index", "tokens"):
        own, other_home = (next((tmp_path / each / kind).iterdir()) for each in ("home", "theirs"))
        if own.is_dir():
            shutil.rmtree(own)
            shutil.copytree(other_home, own)
        else:
            shutil.copy(other_home, own)
    with warnings_of_index() as lines, Workspace(root, Bytes(), tmp_path / "home") as workspace:
        workspace.build()
        check(workspace)
    assert len(lines) == 1 and "another fingerprint" in lines[0]
    starts_warm(root, tmp_path / "home")


# -- other processes -----------------------------------------------------------------------------


def test_two_processes_at_once(tmp_path: Path, root: Path) -> None:
    """Each changes one half of the files; finally both know all, and one of them saves."""
    home, halves = tmp_path / "home", [root / "one", root / "two"]
    for half in halves:
        make_tree(half, random.Random(5))

    def wait_for_both(step: str, seed: int) -> None:
        (tmp_path / f"{step}{seed}").touch()
        wait_for(lambda: all((tmp_path / f"{step}{each}").exists() for each in (0, 1)))

    def work(own: Path, seed: int) -> None:
        chance = random.Random(seed)
        with warnings_of_index() as lines, Workspace(root, Bytes(), home) as workspace:
            workspace.build()
            wait_for_both("built", seed)
            for _ in range(40):
                workspace.refresh(change(own, chance))
                if chance.random() < 0.2:
                    workspace.compact()
            wait_for_both("changed", seed)
            workspace.scan()
            check(workspace)
        assert lines == []

    def in_child(own: Path, seed: int) -> None:
        token_db.BUSY_TIMEOUT_S = TIMEOUT_S  # a slow disk is no failure
        small_segments()
        work(own, seed)

    children = [start(partial(in_child, half, seed)) for seed, half in enumerate(halves)]
    assert [end_of(child) for child in children] == [0, 0]
    with Workspace(root, Bytes(), home) as workspace:
        workspace.build()
        check(workspace)
    starts_warm(root, home)


def test_another_process_saves_after_the_writer_is_killed(tmp_path: Path, root: Path) -> None:
    home = tmp_path / "home"

    def work() -> None:
        with Workspace(root, Bytes(), home) as workspace:
            workspace.build()
            workspace.compact()
            (tmp_path / "ready").touch()
            time.sleep(2 * TIMEOUT_S)

    child = start(work)
    with warnings_of_index() as lines, Workspace(root, Bytes(), home) as workspace:
        try:
            wait_for((tmp_path / "ready").exists)
            workspace.build()
            (root / "u").write_text("value = 10\n" * 2000)
            workspace.scan()
            workspace.compact()
            assert workspace._saved and not workspace._saved._store.writable
            with pytest.raises(PermissionError, match="another process"):
                workspace.clear()
        finally:
            kill(child)
        check(workspace)
    assert lines == []
    starts_warm(root, home)


# -- threads -------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
def test_concurrent_edits_and_queries(
    tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Threads change files, buffers and the workspace at random while others query it."""
    if seed % 2:
        small_segments(monkeypatch)
    errors: list[BaseException] = []
    queries = [0]
    home = tmp_path / "home" if seed < 2 else None
    with warnings_of_index() as lines, Workspace(root, Bytes(), home) as workspace:
        workspace.build()

        def edit(chance: random.Random, step: int) -> None:
            paths = change(root, chance)
            path = root / chance.choice(NAMES)
            for act in chance.sample(
                (
                    lambda: workspace.refresh(paths),
                    lambda: workspace.refresh([paths[0], path, root / "c"]),
                    lambda: workspace.update(path, some_text(chance), step),
                    lambda: workspace.update(path, None),
                    lambda: workspace.remove(paths[-1]),
                    lambda: workspace.rename(paths[0], paths[-1]),
                    lambda: workspace.rename(root / "a", root / "c"),
                ),
                3,
            ):
                act()

        def maintain(chance: random.Random, step: int) -> None:
            chance.choice((workspace.scan, workspace.compact, workspace.refresh))()

        def ask(chance: random.Random, step: int) -> None:
            queries[0] += 1
            tail = chance.choice((b"value", b"\n", b"x + ", "é".encode()))
            for match in workspace.match(list(tail), near=str(root / chance.choice(NAMES))):
                rest = match.continuation(9)
                span = match.span(0, len(rest))
                assert len(rest) and span and span.start < span.stop
                before = match.document.tokens[match.end - match.length : match.end].tolist()
                assert before == list(tail)[-match.length :]
            workspace.tree(list(tail))
            assert len(workspace.find("value", 3)) <= 3
            assert workspace.stats().tokens >= 0 and workspace.paths is not workspace.skipped

        def run(work: Callable[..., None], number: int) -> None:
            """15 edits a thread; the other threads go on until all edits are done."""
            chance = random.Random(100 * seed + number)
            try:
                for step in count(1):
                    work(chance, step)
                    if step == 15 if work is edit else edited.is_set():
                        break
            except BaseException as error:
                errors.append(error)

        works = (edit, edit, edit, maintain, ask, ask)
        edited = threading.Event()
        threads = [threading.Thread(target=run, args=each[::-1]) for each in enumerate(works)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(TIMEOUT_S)
            assert not thread.is_alive(), "deadlock"
            if thread is threads[2]:
                edited.set()
        if errors:
            raise errors[0]
        for name in NAMES:
            workspace.update(root / name, None)
        workspace.scan()
        check(workspace)
        workspace.compact()
        check(workspace)
    assert queries[0] and lines == []
