"""`draftline index --watch`, and Ctrl-C: what is told of changes, and what is kept after it."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.support.command import one_line
from tests.support.index_command import PATIENCE, Running, answer, index, make_model, make_project


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("model"))


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return make_project(tmp_path / "project")


def test_watch_tells_each_change_and_keeps_them(project: Path, model: Path) -> None:
    with Running(project, model, "--watch", "--json") as running:
        (built,) = running.lines(1)
        assert (built["files"], built["misses"]) == (3, 3)
        (project / "c.txt").write_text("three\n")
        (change,) = running.lines(1)
        assert (change["path"], change["change"]) == (str(project / "c.txt"), "changed")
        assert change["files"] == 3 and change["tokens"] > 0
        (project / "sub").rename(project / "moved")
        moved = {(one["path"], one["change"]) for one in running.lines(2)}
        assert moved == {
            (str(project / "sub" / "b.py"), "gone"),
            (str(project / "moved" / "b.py"), "new"),
        }
        (project / "junk.o").write_bytes(b"\0")  # does not count: nothing is said
        (project / "a.py").unlink()
        (change,) = running.lines(1)
        assert (Path(change["path"]).name, change["change"], change["files"]) == ("a.py", "gone", 2)

        refused = index(project, model, "--clear")
        assert refused.returncode == 1
        assert "another process keeps this index" in one_line(refused)
        beside = answer(project, model)
        assert beside["files"] == 2, "two may use an index at a time"

        assert running.interrupt() == 130
        assert running.process.stderr
        said = running.process.stderr.read().decode()
        assert said.splitlines()[-1] == "draftline: interrupted: no file was changed"

    again = answer(project, model)
    assert (again["files"], again["loaded"], again["misses"]) == (2, 2, 0)
    with Running(project, model, "--watch") as running:  # warm: nothing is tokenised or read
        running.until("2 files, none new, ")
        (project / "new.py").write_text("pass\n")
        running.until("  new new.py; 3 files, ")
        assert running.interrupt() == 130


def test_watch_has_a_live_line_on_a_terminal(project: Path, model: Path) -> None:
    with Running(project, model, "--watch", terminal=True) as running:
        running.until("no change yet")
        (project / "a.py").write_text("pass\n")
        running.until("ago: changed a.py")
        (project / "sub" / "q\x1b[2Jq").write_text("x\n")
        running.until("ago: new sub/q\u241b[2Jq")
        assert running.interrupt() == 130
        running.until("draftline: interrupted")


def test_ctrl_c_while_building_leaves_what_was_kept(project: Path, model: Path) -> None:
    before = answer(project, model)
    kept = {path: path.read_bytes() for path in folder_of_index(project)}
    assert kept
    words = "def add(left, right):\n    return left + right\n" * 20_000
    for number in range(8):  # two batches, seconds of work
        (project / f"big{number}.py").write_text(f"{number}\n{words}")
    with Running(project, model, terminal=True) as running:
        running.until("looking at files")
        deadline = time.monotonic() + PATIENCE
        while not list((project.parent / "home").rglob("*-wal")):  # until it tokenises
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert running.interrupt() == 130
        running.until("draftline: interrupted: no file was changed")
    assert {path: path.read_bytes() for path in folder_of_index(project)} == kept
    for number in range(8):
        (project / f"big{number}.py").unlink()
    again = answer(project, model)
    assert (again["loaded"], again["misses"]) == (before["files"], 0)


def folder_of_index(project: Path) -> list[Path]:
    """The files of the kept index, without its lock."""
    found = (project.parent / "home" / "index").rglob("*")
    return sorted(path for path in found if path.is_file() and path.name != "lock")
