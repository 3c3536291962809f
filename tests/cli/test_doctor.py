"""`draftline doctor`: every check says ok, warn or fail, with a remedy unless all is well."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from engine import weights
from tests.conftest import tiny_model
from tests.support.command import draftline
from tests.support.shared_server import private_runtime
from tests.support.tiny_gguf import usual_models
from ui.cli import doctor_checks as checks
from ui.cli.doctor_checks import Finding

NAMES = [
    "python", "native code", "compiler", "torch", "card", "model", "memory", "disk",
    "cache folder", "runtime folder", "watches", "edits", "port",
]  # fmt: skip


def holds(found: Finding) -> bool:
    """Whether a finding has a remedy exactly where something is wrong."""
    return found.state in ("ok", "warn", "fail") and (found.remedy == "") == (found.state == "ok")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DRAFTLINE_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("DRAFTLINE_MODEL", raising=False)
    return tmp_path / "home"


def test_the_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failed = Finding("torch", "fail", "no torch", "install it")  # loading it takes seconds
    monkeypatch.setattr(checks, "torch", lambda has_card: failed)
    with private_runtime(tmp_path / "home"):
        result = draftline(tmp_path, "doctor", "--json", "--port", "0")
        report = json.loads(result.stdout)
        findings = [Finding(**one) for one in report["checks"]]
        assert [found.name for found in findings] == NAMES and all(map(holds, findings))
        assert report["version"] and result.stderr == b""
        assert result.returncode == 1  # torch
        lines = draftline(tmp_path, "doctor", "--port", "0").stdout.decode().splitlines()
    assert len(lines) == len(NAMES)
    assert all(line.startswith(("ok  ", "warn", "fail")) for line in lines)
    assert any(line.endswith("no torch: install it") for line in lines)
    assert not (tmp_path / "home").exists()


OLD_CARD = """
import torch
torch.version.cuda = "13.0"
for name, value in (("is_available", True), ("device_count", 1), ("get_device_name", "Old Card"),
                    ("get_device_capability", (6, 1)), ("get_arch_list", ["sm_75"])):
    setattr(torch.cuda, name, lambda *_, value=value: value)
"""  # beside a new torch


def torch_says(cuda: str | None, cards: int, refused: str = "") -> str:
    """Code that prints what torch's would."""
    about = {"version": "2.9", "cuda": cuda, "cards": cards, "refused": refused}
    return f"print({json.dumps(about)!r})"


@pytest.mark.parametrize(
    ("code", "has_card", "state", "words"),
    [
        (torch_says(None, 0), False, "ok", "CPU"),
        (torch_says(None, 0), True, "warn", "CUDA"),
        (torch_says("13.0", 0), True, "warn", "driver"),
        (torch_says("13.0", 1), True, "ok", "CUDA 13.0"),
        (torch_says("13.0", 1, "cuda: Old Card: buy one"), True, "warn", "cuda: Old Card buy one"),
        (OLD_CARD + checks.TORCH_CODE, True, "warn", "has compute capability 6.1"),
        ("raise ImportError('libtorch.so: not found')", False, "fail", "libtorch.so: not found"),
        ("import os; os.abort()", False, "fail", "status"),
    ],
)
def test_torch_is_asked_in_a_process(code: str, has_card: bool, state: str, words: str) -> None:
    found = checks.torch_build(has_card, code)
    assert (found.state, holds(found)) == (state, True)
    assert words in f"{found.what} {found.remedy}"


@pytest.mark.parametrize("missing", ["torch", "transformers"])
def test_torch_is_needed_only_for_a_card(monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    monkeypatch.setattr(checks, "find_spec", lambda name: None if name == missing else True)
    found = checks.torch(has_card=False)
    assert (found.state, holds(found)) == ("ok", True) and missing in found.what
    found = checks.torch(has_card=True)
    assert (found.state, holds(found)) == ("warn", True) and "draftline[gpu]" in found.remedy


def test_a_model_of_safetensors_files_needs_torch(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    monkeypatch.setattr("engine.weights.fetch.download.DEFAULT_MODEL", str(tiny_model(folder)))
    assert checks.model().state == "ok"
    monkeypatch.setattr(checks, "find_spec", lambda name: None)
    found = checks.model()
    assert (found.state, holds(found)) == ("fail", True) and "draftline[gpu]" in found.remedy
    (folder / "model.safetensors").write_bytes(b"short")
    assert checks.model().state == "fail" and "damaged" in checks.model().what


def test_a_damaged_model(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usual_models(tmp_path, monkeypatch)
    weights.locate("tiny")
    kept = home / "models" / "tiny.gguf"
    assert checks.model().state == "ok"
    data = kept.read_bytes()
    kept.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    found = checks.model()
    assert (found.state, holds(found)) == ("fail", True) and str(kept) in found.what
    assert "draftline models remove tiny" in found.remedy
    own = tmp_path / "own.gguf"
    own.write_bytes(data[:-100])
    monkeypatch.setattr("engine.weights.fetch.download.DEFAULT_MODEL", str(own))
    assert checks.model().state == "fail" and "damaged" in checks.model().what


@pytest.mark.parametrize(
    ("name", "state"), [("", "warn"), ("smollm2-135m", "warn"), ("no-such-model", "fail")]
)
def test_a_missing_model(
    home: Path, monkeypatch: pytest.MonkeyPatch, name: str, state: str
) -> None:
    if name:
        monkeypatch.setattr("engine.weights.fetch.download.DEFAULT_MODEL", name)
    found = checks.model()
    assert (found.state, holds(found)) == (state, True)
    assert name in found.what and (state == "fail" or "draftline models pull" in found.remedy)
    assert holds(checks.memory()) and holds(checks.disk())


def test_a_model_larger_than_the_disk(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.weights.fetch.download.free_bytes", lambda folder: 10)
    found = checks.disk()
    assert (found.state, holds(found)) == ("fail", True) and "10 bytes are free" in found.what


def folder_of_file(home: Path) -> None:
    home.write_bytes(b"")


def folder_for_all(home: Path) -> None:
    home.mkdir()
    home.chmod(0o777)


@pytest.mark.parametrize("make", [folder_of_file, folder_for_all])
def test_a_cache_folder_that_cannot_be_used(home: Path, make: Callable[[Path], None]) -> None:
    assert checks.cache_folder().state == "ok"  # it is made when it is needed
    make(home)
    found = checks.cache_folder()
    assert (found.state, holds(found)) == ("fail", True) and str(home) in found.what


def test_a_cache_folder_may_be_a_link(home: Path) -> None:
    (home.parent / "disk").mkdir()
    home.symlink_to(home.parent / "disk")
    assert checks.cache_folder().state == "ok"


def test_a_runtime_folder_that_others_may_open(tmp_path: Path) -> None:
    with private_runtime(tmp_path / "home") as folder:
        assert checks.runtime_folder().state == "ok"
        (folder / "draftline").mkdir(mode=0o755)
        found = checks.runtime_folder()
        assert (found.state, holds(found)) == ("fail", True) and "chmod 700" in found.what


@pytest.mark.parametrize(
    ("watches", "instances", "words"),
    [
        (8192, 128, ["max_user_watches"]),
        (524_288, 8, ["max_user_instances"]),
        (1, 1, ["max_user_watches", "max_user_instances"]),
        (524_288, 128, []),
    ],
)
def test_limits_of_watches(tmp_path: Path, watches: int, instances: int, words: list[str]) -> None:
    assert checks.watch_limits(tmp_path).state == "ok"  # not Linux
    (tmp_path / "max_user_watches").write_text(f"{watches}\n")
    (tmp_path / "max_user_instances").write_text(f"{instances}\n")
    found = checks.watch_limits(tmp_path)
    assert (found.state, holds(found)) == ("warn" if words else "ok", True)
    assert all(f"fs.inotify.{word}=" in found.remedy for word in words)


def test_a_port_in_use() -> None:
    with closing(socket.socket()) as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        found = checks.serve_port(port)
        assert (found.state, holds(found)) == ("warn", True) and str(port) in found.what
    assert checks.serve_port(0).state == "ok"


def test_a_card(monkeypatch: pytest.MonkeyPatch) -> None:
    found = checks.card([["Card 1", "580.1", "24564", "20000"]])
    assert found.state == "ok" and "20000 of 24564 MiB free" in found.what
    monkeypatch.setenv("PATH", "")
    assert checks.nvidia_cards() == []
