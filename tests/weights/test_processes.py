"""Several processes, and their deaths: nothing half done counts, and nobody does it twice."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from engine import weights
from engine.weights import Builtin
from tests.support.weights import READY, REPOSITORY, left_over

CHILD = """
import os, signal, sys
from pathlib import Path
from engine import weights
from tests.support.tiny_gguf import builtin
weights.BUILTINS["tiny"] = builtin("tiny", Path(sys.argv[1]))
stage, number = sys.argv[2], int(sys.argv[3])
signal.signal(signal.SIGINT, signal.default_int_handler)  # tests in the background ignore it
def progress(label, done, total):
    print(label, flush=True)
    if stage and label.startswith(stage):
        os.kill(os.getpid(), number)
print(weights.locate("tiny", progress=progress))
"""


def child(tmp_path: Path, stage: str = "", number: int = 0) -> subprocess.Popen[str]:
    """Another process that fetches `tiny`; at `stage` it gets signal `number`."""
    command = [sys.executable, "-c", CHILD, str(tmp_path / "tiny.gguf"), stage, str(number)]
    return subprocess.Popen(
        command, cwd=REPOSITORY, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def test_two_processes_fetch_once(home: Path, tiny: Builtin, tmp_path: Path) -> None:
    both = [child(tmp_path), child(tmp_path)]
    said = [process.communicate()[0].splitlines() for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert {lines[-1] for lines in said} == {str(home / "models" / "tiny")}
    assert sum(any(line.startswith("fetching") for line in lines) for lines in said) == 1
    assert not any(line.startswith("checking") for lines in said for line in lines)
    assert left_over(home) == READY


def test_who_comes_second_waits_and_says_so(home: Path, tiny: Builtin, tmp_path: Path) -> None:
    from filelock import FileLock

    (home / "models").mkdir(parents=True)
    with FileLock(home / "models" / "tiny.lock"):
        process = child(tmp_path)
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line == "waiting for another draftline that is fetching tiny\n"
        assert not left_over(home)
    assert process.communicate()[0].splitlines()[-1] == str(home / "models" / "tiny")


@pytest.mark.parametrize(
    "stage",
    [
        pytest.param("fetching", marks=pytest.mark.full),  # its second part is as good
        "fetching tiny (part 2",
        "converting",
    ],
)
def test_a_killed_process_leaves_nothing_that_counts(
    home: Path, tiny: Builtin, tmp_path: Path, stage: str
) -> None:
    process = child(tmp_path, stage, signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert weights.find("tiny") is None
    assert any(name.startswith(".partial") for name in left_over(home))
    at_work: set[int] = set()

    def count(*_: object) -> None:
        at_work.add(len(list((home / "models" / ".partial" / "tiny").iterdir())))

    assert weights.locate("tiny", progress=count) == home / "models" / "tiny"
    assert at_work == {1}  # what the dead one left is gone, and its downloader with it
    assert left_over(home) == READY


@pytest.mark.parametrize("stage", ["fetching", "converting"])
def test_ctrl_c_cleans_up(home: Path, tiny: Builtin, tmp_path: Path, stage: str) -> None:
    process = child(tmp_path, stage, signal.SIGINT)
    _, errors = process.communicate()
    assert process.returncode != 0 and "KeyboardInterrupt" in errors
    assert weights.find("tiny") is None
    assert left_over(home) == (["tiny.gguf"] if stage == "converting" else [])
