"""`python -m bench`: the list of benchmarks, and how one is started."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from bench.__main__ import BENCHES, main

ROOT = Path(__file__).resolve().parents[2]


def test_without_a_name_all_benchmarks_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == main(["--help"]) == 0
    shown = capsys.readouterr().out
    assert all(f"  {name} " in shown for name in BENCHES)


def test_an_unknown_name_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["speed"]) == 2
    shown = capsys.readouterr()
    assert "unknown benchmark 'speed'" in shown.err and "specbench" in shown.err
    assert shown.out == ""


def test_help_says_how_the_benchmark_is_started(capsys: pytest.CaptureFixture[str]) -> None:
    for name in BENCHES:
        module = import_module(BENCHES[name][0])
        assert f"python -m bench {name}" in (module.__doc__ or "")
        with pytest.raises(SystemExit) as ended:
            main([name, "--help"])
        assert ended.value.code == 0
        assert capsys.readouterr().out.startswith(f"usage: python -m bench {name} ")


def test_a_missing_package_is_named_with_the_extra_that_has_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delitem(sys.modules, "bench.index.plot", raising=False)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)  # importing it fails
    assert main(["index-plot"]) == 2
    assert "pip install 'draftline[bench]'" in capsys.readouterr().err


def test_it_starts_as_a_module() -> None:
    command = [sys.executable, "-m", "bench", "index-plot", "--help"]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0 and ran.stdout.startswith("usage: python -m bench index-plot ")
