"""`python -m bench install`: what it refuses. tests/cli/test_wheel.py runs it."""

from __future__ import annotations

from pathlib import Path

from bench.install import install
from tests.bench.conftest import RunBench
from tests.support.tiny_gguf import write_folder, write_gguf


def test_what_cannot_be_measured_is_named(run_bench: RunBench, tmp_path: Path) -> None:
    write_gguf(tmp_path / "m.gguf")
    write_folder(tmp_path / "folder")
    wheel = tmp_path / "draftline.whl"
    wheel.write_bytes(b"")
    for named, options in {
        "unknown": (wheel, "--model", "unknown"),
        "folder": (wheel, "--model", tmp_path / "folder"),
        "missing.whl": (tmp_path / "missing.whl", "--model", tmp_path / "m.gguf"),
    }.items():
        ran = run_bench(install.main, *options)
        assert ran.code == 2 and named in ran.err and ran.err.count("\n") == 1, ran.err


def test_what_pip_says_is_shown(run_bench: RunBench, tmp_path: Path) -> None:
    write_gguf(tmp_path / "m.gguf")
    wheel = tmp_path / "draftline-1.0-py3-none-any.whl"
    wheel.write_bytes(b"no wheel")
    ran = run_bench(install.main, wheel, "--model", tmp_path / "m.gguf")
    assert ran.code == 1 and "draftline-1.0" in ran.err
    assert not ran.out
