"""The `draftline` command on its own: help, bad input, Ctrl-C. Each is one process, one line and
an exit code, and the file as it was."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.command import (
    chain_model,
    draftline,
    environment,
    make_file,
    one_line,
    untouched,
)

CODE = "import sys\nfrom ui.cli.main import main\nprint('ready', flush=True)\nsys.exit(main())"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return make_file(tmp_path)


@pytest.mark.parametrize("arguments", [["--help"], ["edit", "--help"]])
def test_help_needs_no_torch_and_tells_the_exit_codes(tmp_path: Path, arguments: list[str]) -> None:
    result = draftline(tmp_path, *arguments)
    assert result.returncode == 0
    assert b"130  interrupted" in result.stdout
    assert result.stderr == b""


@pytest.mark.parametrize(
    ("arguments", "code"),
    [(["--help"], 0), (["--version"], None), (["edit", "missing", "-i", "x"], 2)],
)
def test_what_needs_no_model_loads_no_torch(
    tmp_path: Path, arguments: list[str], code: int | None
) -> None:
    script = (
        "import sys\nfrom ui.cli.main import main\n"
        f"code = main({arguments!r})\n"
        "print([name for name in ('torch', 'transformers') if name in sys.modules], code)"
    )
    command = [sys.executable, "-c", script]
    result = subprocess.run(command, cwd=tmp_path, env=environment(tmp_path), capture_output=True)
    loaded, said = result.stdout.splitlines()[-1].decode().rsplit(" ", 1)
    assert loaded == "[]"
    assert code is None or said == str(code)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "required"),
        (["frobnicate"], "invalid choice"),
        (["edit"], "required"),
        (["edit", "my file.py"], "required: -i"),
        (["edit", "my file.py", "-i", "x", "--bogus"], "unrecognized arguments: --bogus"),
        (["edit", "missing.py", "-i", "x"], "missing.py: no such file"),
        (["edit", "new\nline", "-i", "x"], "no such file"),
        (["edit", ".", "-i", "x"], "a folder"),
        (["edit", "binary", "-i", "x"], "a binary file"),
        (["edit", "latin", "-i", "x"], "latin: not UTF-8 (byte 3 is 0xe9)"),
        (["edit", "/proc/self/mem", "-i", "x"], "Input/output error"),
        (["edit", "my file.py", "-i", ""], "the instruction is empty"),
        (["edit", "my file.py", "-i", " \n"], "the instruction is empty"),
        (["edit", "my file.py", "-i", "-"], "the instruction is empty"),
        (["edit", "my file.py", "-i", b"\xff"], "the instruction is not text"),
        (["edit", "my file.py", "-i", "x", "--lines", "5"], "outside my file.py: it has 4 lines"),
        (["edit", "my file.py", "-i", "x", "--lines", "0:2"], "it has 4 lines"),
        (["edit", "my file.py", "-i", "x", "--lines", "2:5"], "it has 4 lines"),
        (["edit", "my file.py", "-i", "x", "--lines", "9:"], "it has 4 lines"),
        (["edit", "my file.py", "-i", "x", "--lines", "3:2"], "ends before it begins"),
        (["edit", "my file.py", "-i", "x", "--lines", ":"], "not lines"),
        (["edit", "my file.py", "-i", "x", "--lines", "two"], "not lines"),
        (["edit", "my file.py", "-i", "x", "--lines", "-1"], "--lines"),
        (["edit", "empty", "-i", "x", "--lines", "1"], "it has 0 lines"),
        (["edit", "my file.py", "-i", "x", "--lines", "1", "--whole-file"], "not allowed with"),
        (["edit", "my file.py", "-i", "x", "--apply", "--json"], "not allowed with"),
        (["edit", "my file.py", "-i", "x", "--temperature", "-1"], "temperature -1.0: must be 0"),
        (["edit", "my file.py", "-i", "x", "--temperature", "nan"], "nan"),
        (["edit", "my file.py", "-i", "x", "--top-p", "0"], "top_p 0.0: must be above 0"),
        (["edit", "my file.py", "-i", "x", "--top-k", "-2"], "top_k -2: must be 0"),
        (["edit", "my file.py", "-i", "x", "--top-k", "few"], "few"),
        (["edit", "my file.py", "-i", "x", "--max-tokens", "0"], "0 is not 1 or more"),
        (["edit", "my file.py", "-i", "x", "--device", "abacus"], "abacus"),
        (["edit", "my file.py", "-i", "x", "--device", "cuda:0,cpu"], "several are cards"),
        (["edit", "my file.py", "-i", "x", "--dtype", "f8"], "f8"),
        (["edit", "my file.py", "-i", "x", "--workspace", "latin"], "latin: not a folder"),
        (["edit", "long.py", "-i", "x"], "81 lines"),
    ],
)
def test_bad_input_gets_one_line_and_code_2(
    tmp_path: Path, file: Path, arguments: list[str], says: str
) -> None:
    (tmp_path / "binary").write_bytes(b"ab\0c")
    (tmp_path / "latin").write_bytes(b"caf\xe9\n")
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "long.py").write_bytes(b"x = 1\n" * 81)
    result = draftline(tmp_path, *arguments)
    assert says in one_line(result)
    assert result.returncode == 2
    assert untouched(file)
    assert not (tmp_path / "home").exists()


def test_an_instruction_that_is_not_utf8_on_stdin(tmp_path: Path, file: Path) -> None:
    result = draftline(tmp_path, "edit", file, "-i", "-", stdin=b"ab\xff")
    assert "not UTF-8 (byte 2)" in one_line(result)
    assert result.returncode == 2


@pytest.mark.parametrize("name", ["qwen2.5-coder-0.5", "no/such/folder", "my file.py"])
def test_a_model_that_cannot_be_had_is_code_3(tmp_path: Path, file: Path, name: str) -> None:
    offline = environment(tmp_path) | {"HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "-m", "ui.cli", "edit", file.name, "-i", "x", "--model", name]
    result = subprocess.run(command, cwd=tmp_path, env=offline, capture_output=True)
    assert name.split("/")[0].split(" ")[0] in one_line(result)
    assert result.returncode == 3
    assert untouched(file)


@pytest.fixture(scope="session")
def endless(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that writes the same line again and again."""
    return chain_model(tmp_path_factory.mktemp("endless") / "model", "ab", "\n", context=30000)


@pytest.mark.parametrize("moment", [0.0, 0.05, 0.2, 0.5, 1.0, 2.0, "writing"])
def test_ctrl_c_at_any_moment(file: Path, endless: Path, moment: float | str) -> None:
    """Imports, load, reading and writing: one of the moments falls into each."""
    arguments = ("edit", file.name, "-i", "x", "--lines", "2", "--apply", "--model", str(endless))
    process = subprocess.Popen(
        [sys.executable, "-c", CODE, *arguments, "--max-tokens", "29000", "--no-speculation", "-v"],
        cwd=file.parent,
        env=environment(file.parent),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout and process.stdout.readline() == b"ready\n"
    assert process.stderr
    if isinstance(moment, float):
        time.sleep(moment)
    else:
        assert process.stderr.read(8) == b"ab\nab\nab"
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=180)
    assert process.returncode == 130
    assert err.endswith(b"draftline: interrupted: no file was changed\n")
    assert err.replace(b"ab\n", b"").count(b"\n") == 1
    assert out == b""
    assert untouched(file)
