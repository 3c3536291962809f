"""`draftline index --watch` and Ctrl-C: how changes are reported, and what is saved."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.command import one_line
from tests.support.index_command import Running, answer, index, make_model, make_project, put


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("model"))


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return make_project(tmp_path / "project")


def test_watch_reports_each_change_and_saves_them(project: Path, model: Path) -> None:
    with Running(project, model, "--watch", "--json") as running:
        (built,) = running.lines(1)
        assert (built["files"], built["misses"]) == (3, 3)
        put(project, "c.txt", "three\n")
        (change,) = running.lines(1)
        assert (change["path"], change["change"]) == (str(project / "c.txt"), "changed")
        assert change["files"] == 3 and change["tokens"] > 0
        (project / "sub").rename(project / "moved")
        moved = {(one["path"], one["change"]) for one in running.lines(2)}
        assert moved == {
            (str(project / "sub" / "b.py"), "gone"),
            (str(project / "moved" / "b.py"), "new"),
        }
        (project / "junk.o").write_bytes(b"\0")  # not indexed, so not reported
        (project / "a.py").unlink()
        (change,) = running.lines(1)
        assert (Path(change["path"]).name, change["change"], change["files"]) == ("a.py", "gone", 2)

        refused = index(project, model, "--clear")
        assert refused.returncode == 1
        assert "in use by another process" in one_line(refused)
        beside = answer(project, model)
        assert beside["files"] == 2, "a second process may read the index"

        assert running.interrupt() == 130
        assert running.process.stderr
        reported = running.process.stderr.read().decode()
        assert reported.splitlines()[-1] == "draftline: interrupted: no file was changed"

    again = answer(project, model)
    assert (again["files"], again["loaded"], again["misses"]) == (2, 2, 0)
    with Running(project, model, "--watch") as running:  # warm: nothing is read
        running.until("2 files, none new, ")
        put(project, "new.py", "pass\n")
        running.until("  new new.py; 3 files, ")
        assert running.interrupt() == 130


def test_watch_has_a_live_line_on_a_terminal(project: Path, model: Path) -> None:
    with Running(project, model, "--watch", terminal=True) as running:
        running.until("no change yet")
        put(project, "a.py", "pass\n")
        running.until("ago: changed a.py")
        put(project, "sub/q\x1b[2Jq", "x\n")
        running.until("ago: new sub/q\u241b[2Jq")
        assert running.interrupt() == 130
        running.until("draftline: interrupted")


# A build that stops for ever when it has added two files.
BLOCKED_BUILD = """import threading
from index.workspace import workspace
workspace.READ_BATCH_FILES = workspace.FREEZE_BATCH_TOKENS = 1
add, added = workspace.Workspace._add, []
def add_two(self, pending):
    add(self, pending)
    added.append(pending)
    if len(added) == 2:
        print("two files added", flush=True)
        threading.Event().wait()
workspace.Workspace._add = add_two
"""


def test_ctrl_c_during_a_build_leaves_the_saved_index(project: Path, model: Path) -> None:
    before = answer(project, model)
    saved = {path: path.read_bytes() for path in index_files(project)}
    assert saved
    for number in range(4):
        (project / f"more{number}.py").write_text(f"{number}\n")
    with Running(project, model, terminal=True, patch=BLOCKED_BUILD) as running:
        running.until("two files added")
        assert running.interrupt() == 130
        running.until("draftline: interrupted: no file was changed")
    assert {path: path.read_bytes() for path in index_files(project)} == saved
    for number in range(4):
        (project / f"more{number}.py").unlink()
    again = answer(project, model)
    assert (again["loaded"], again["misses"]) == (before["files"], 0)


def index_files(project: Path) -> list[Path]:
    """The files of the saved index, without its lock."""
    found = (project.parent / "home" / "index").rglob("*")
    return sorted(path for path in found if path.is_file() and path.name != "lock")
