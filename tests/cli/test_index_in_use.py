"""`draftline index` beside another process, and interrupted: what is saved stays whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.prompts.tokenizer import Tokenizer
from index.workspace.workspace import Workspace
from tests.support.command import one_line
from tests.support.index_command import Running, answer, index, make_model, make_project


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("model"))


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return make_project(tmp_path / "project")


def test_an_index_in_use_is_read_but_not_cleared(project: Path, model: Path) -> None:
    with Workspace([project], Tokenizer(model), project.parent / "home") as workspace:
        workspace.build()
        workspace.compact()
        refused = index(project, model, "--clear")
        assert refused.returncode == 1
        assert "in use by another process" in one_line(refused)
        assert answer(project, model)["files"] == 3
    assert index(project, model, "--clear").returncode == 0


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
