"""Run benchmarks in the test process: `main(argv)`, its exit code and its output."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest


@dataclass(frozen=True)
class Ran:
    """One finished run."""

    code: int
    out: str
    err: str


RunBench = Callable[..., Ran]


@pytest.fixture
def run_bench(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> RunBench:
    """`run_bench(main, *options)` in an empty home and a temporary working directory."""

    def run(main: Callable[[list[str]], int], *options: Any) -> Ran:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("DRAFTLINE_HOME", str(tmp_path / "home"))
        monkeypatch.setenv("HF_HUB_OFFLINE", "1")
        capsys.readouterr()
        message = ""
        try:
            code: Any = main([str(option) for option in options])
        except SystemExit as end:
            code = end.code
            if isinstance(code, str):  # the interpreter prints it and exits with 1
                code, message = 1, f"{code}\n"
        shown = capsys.readouterr()
        return Ran(code or 0, shown.out, shown.err + message)

    return run
