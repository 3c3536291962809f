"""`draftline train drafter`: the weights it writes, its output and its errors."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import sysconfig
import threading
from pathlib import Path

import numpy as np
import pytest

from engine.drafting import drafter_weights as module
from engine.drafting.drafter_weights import WEIGHT_KINDS, load_weights
from engine.prompts.tokenizer import Tokenizer
from research.commands import train as command
from tests.support.command import Result, draftline, environment, one_line
from tests.support.training import make_place, record
from ui.common.errors import Failure

TIMEOUT_S = 180.0


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_place(tmp_path_factory.mktemp("train"))


def options(place: Path, *arguments: str | Path) -> list[str | Path]:
    """`train drafter` with the edits and tokenizer of `place`. A later option overrides them."""
    given = ["--edits", place / "edits.jsonl", "--model", place / "model"]
    return ["train", "drafter", *given, *arguments]


def run(place: Path, folder: Path, *arguments: str | Path) -> Result:
    """Run in `folder`, with the cache of `place`."""
    return draftline(folder, *options(place, *arguments), cache=place)


# -- weights -----------------------------------------------------------------------------------


def test_the_command_makes_the_same_file_twice(place: Path, tmp_path: Path) -> None:
    out = tmp_path / "w.safetensors"
    results = []
    for _ in range(2):
        result = run(place, tmp_path, "--out", out.name, "--rounds", "2")
        assert result.returncode == 0, result.stderr.decode()
        results.append((out.read_bytes(), result.stdout, result.stderr))
        assert all(np.asarray(one.values).any() for one in load_weights(out).values())
    assert results[0] == results[1]
    (closing,) = results[0][1].decode().splitlines()
    assert closing.startswith(f"w.safetensors: {len(results[0][0]) / 1e3:.0f} kB, ")
    reported = results[0][2].decode().splitlines()
    assert reported[0] == "draftline: 4 edits of one, two; the weights go to w.safetensors"
    rounds = [line for line in reported if line.startswith("draftline: round ")]
    assert len(rounds) == 4 and all(line.endswith(" bits a token") for line in rounds)
    assert sorted(tmp_path.iterdir()) == [out]


def test_held_out_packages_are_scored(place: Path, tmp_path: Path) -> None:
    out = tmp_path / "w.safetensors"
    held_out = run(place, tmp_path, "--out", out, "--test", "two")
    assert held_out.returncode == 0
    head, *rows, _ = held_out.stdout.decode().splitlines()
    assert head.startswith("held out") and [row.split()[:2] for row in rows] == [
        ["two", kind] for kind in WEIGHT_KINDS
    ]
    assert b"2 edits of one;" in held_out.stderr
    trained = load_weights(out)
    lines = (place / "edits.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "one.jsonl").write_text("".join(lines[:2]))
    assert run(place, tmp_path, "--out", out, "--edits", "one.jsonl").returncode == 0
    for kind, weights in load_weights(out).items():
        alone = np.asarray(weights.values)
        assert np.array_equal(alone, np.asarray(trained[kind].values)), (
            "trained on a held-out package"
        )


def test_the_default_file_is_the_weights_in_use(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or, if they cannot be written, a file in the current folder."""
    edits = place / "edits.jsonl"
    monkeypatch.setattr(module, "SHIPPED", tmp_path / "weights.safetensors")
    assert command._out(None, edits) == tmp_path / "weights.safetensors"
    monkeypatch.setattr(module, "SHIPPED", tmp_path / "gone" / "weights.safetensors")
    monkeypatch.chdir(tmp_path)
    assert command._out(None, edits) == Path("drafter.safetensors")
    Path("drafter.safetensors").mkdir()
    with pytest.raises(Failure, match=r"drafter\.safetensors: a folder"):
        command._out(None, edits)


def test_the_library_is_counted_once(
    place: Path,
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    tokenizer = Tokenizer(place / "model")
    monkeypatch.setattr(sysconfig, "get_path", lambda name: str(place / "sources"))
    counted = command._stdlib_ngram(tokenizer)
    assert counted.ready and counted.file.is_file() and counted.file.is_relative_to(home)
    assert "counting the standard library" in capsys.readouterr().err
    again = command._stdlib_ngram(tokenizer)
    assert np.array_equal(np.asarray(again.ngram.table), np.asarray(counted.ngram.table))
    assert capsys.readouterr().err == ""
    counted.file.unlink()
    monkeypatch.setattr(sysconfig, "get_path", lambda name: str(place / "home"))
    with pytest.raises(Failure, match="sources of its library"):
        command._stdlib_ngram(tokenizer)


def test_ctrl_c_leaves_the_old_file(place: Path, tmp_path: Path) -> None:
    out = tmp_path / "w.safetensors"
    out.write_bytes(b"as it was")
    arguments = options(place, "--out", out, "--rounds", "1000000")
    process = subprocess.Popen(
        [sys.executable, "-m", "ui.cli", *arguments],
        cwd=tmp_path, env=environment(place), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    late = threading.Timer(TIMEOUT_S, process.kill)
    late.start()
    assert process.stderr and process.stdout
    try:
        while b": round " not in (line := process.stderr.readline()):
            assert line, "it ended before its first round"
        process.send_signal(signal.SIGINT)
        rest, code = process.stderr.read(), process.wait(TIMEOUT_S)
    finally:
        late.cancel()
        process.kill()
    assert code == 130 and rest.endswith(b"draftline: interrupted: no file was changed\n")
    assert process.stdout.read() == b""
    assert out.read_bytes() == b"as it was" and list(tmp_path.iterdir()) == [out]


def test_a_process_trains_without_torch(place: Path, tmp_path: Path) -> None:
    """The one end-to-end run in a process of its own."""
    arguments = list(map(str, options(place, "--out", "w.safetensors", "--rounds", "1")))
    script = (
        f"import sys\nfrom ui.cli.main import main\ncode = main({arguments!r})\n"
        "print(code, [name for name in ('torch', 'transformers') if name in sys.modules])"
    )
    result = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, env=environment(place), capture_output=True
    )
    assert result.stdout.splitlines()[-1] == b"0 []", result.stderr.decode()


# -- errors ------------------------------------------------------------------------------------

GOOD = json.dumps(record("p", "a.py", "a\n", "b\n"))
BAD_EDITS = {
    "binary": (b"\xff\xfe\x00", "not UTF-8"),
    "empty": (b"\n \n", "no edits"),
    "prose": (f"{GOOD}\nnot JSON\n".encode(), "line 2: not JSON"),
    "array": (b"[1]\n", "line 1: not a JSON object"),
    "half a line": (f"{GOOD}\n{GOOD[:40]}".encode(), "line 2: not JSON"),
    "half a record": (b'{"before": "a", "path": "a.py"}\n', "'after' is missing"),
    "no text": (GOOD.replace('"b\\n"', "7").encode(), "'after' is not a string"),
    "half a character": (GOOD.replace("a.py", "\\ud800").encode(), "lone surrogate"),
    "nothing changed": (GOOD.replace('"b\\n"', '"a\\n"').encode(), "nothing was changed"),
}


@pytest.mark.parametrize("name", BAD_EDITS)
def test_bad_edits_are_one_line(place: Path, tmp_path: Path, name: str) -> None:
    data, message = BAD_EDITS[name]
    (tmp_path / "bad.jsonl").write_bytes(data)
    result = run(place, tmp_path, "--edits", "bad.jsonl", "--out", "w.safetensors")
    assert result.returncode == 2
    line = one_line(result)
    assert "bad.jsonl" in line and message in line
    assert [path.name for path in tmp_path.iterdir()] == ["bad.jsonl"]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--edits", "nowhere.jsonl"], 2, "nowhere.jsonl: no such file"),
        (["--edits", "."], 2, ".: unreadable: "),
        (["--edits", "a.txt/edits"], 2, "a.txt/edits: unreadable: "),
        (["--out", "no/folder/w"], 2, "no/folder/w: cannot be written"),
        (["--out", "a.txt/w"], 2, "a.txt/w: cannot be written"),
        (["--out", "w" * 300], 2, "cannot be written"),
        (["--out", "/proc/w"], 2, "/proc/w: cannot be written"),
        (["--out", "."], 2, ".: a folder"),
        (["--out", "/dev/null"], 2, "/dev/null: not a regular file"),
        (["--out", "loop"], 2, "loop: cannot be written"),
        (["--test", "flask"], 2, "--test flask: no such package"),
        (["--test", "one,flask"], 2, "choose from one, two"),
        (["--test", "one, two"], 2, "nothing is left to train on"),
        (["--rounds", "0"], 2, "--rounds 0"),
        (["--rounds", "many"], 2, "invalid int value"),
        (["--model", "smollm"], 3, "unknown model 'smollm'"),
        (["--model", "."], 3, "this folder has no config.json"),
        (["--edit", "x"], 2, "unrecognized arguments"),
    ],
)
def test_bad_input_is_one_line(
    place: Path, tmp_path: Path, arguments: list[str], code: int, message: str
) -> None:
    (tmp_path / "a.txt").touch()
    (tmp_path / "loop").symlink_to("loop")
    default = ["--out", "w.safetensors"] * ("--out" not in arguments)
    result = run(place, tmp_path, *default, *arguments)
    assert message in one_line(result)
    assert result.returncode == code
    assert {path.name for path in tmp_path.iterdir()} == {"a.txt", "loop"}


def test_edits_are_not_overwritten(place: Path, tmp_path: Path) -> None:
    edits, link = tmp_path / "edits.jsonl", tmp_path / "link"
    edits.write_bytes((place / "edits.jsonl").read_bytes())
    link.symlink_to(edits)
    result = run(place, tmp_path, "--edits", edits, "--out", link)
    assert result.returncode == 2 and "it holds the edits" in one_line(result)
    assert edits.read_bytes() == (place / "edits.jsonl").read_bytes()


@pytest.mark.parametrize("arguments", [["train"], ["train", "drafter"], ["train", "model"]])
def test_wrong_usage_is_one_line(tmp_path: Path, arguments: list[str]) -> None:
    result = draftline(tmp_path, *arguments)
    assert result.returncode == 2 and "--help" in one_line(result)


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everything")
def test_a_read_only_folder_is_reported_before_training(place: Path, tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    try:
        result = run(place, tmp_path, "--out", "w.safetensors")
    finally:
        tmp_path.chmod(0o700)
    assert result.returncode == 2 and "check its folder" in one_line(result)
