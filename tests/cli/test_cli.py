"""The `draftline` command as a whole: help, bad input, missing models, Ctrl-C."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.command import (
    READY_COMMAND,
    chain_model,
    draftline,
    draftline_process,
    environment,
    make_file,
    one_line,
    untouched,
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return make_file(tmp_path)


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["edit"],
        ["ask"],
        ["summarize"],
        ["chat"],
        ["serve"],
        ["index"],
        ["storage"],
        ["doctor"],
        ["train", "drafter"],
        ["train", "corpus"],
        ["train", "eagle-head"],
        ["two-models"],
    ],
)
def test_help_lists_the_exit_codes(tmp_path: Path, arguments: list[str]) -> None:
    result = draftline(tmp_path, *arguments, "--help")
    assert (result.returncode, result.stderr) == (0, b"")
    assert b"exit codes:\n  0    " in result.stdout


def test_commands_without_a_model_import_no_torch(tmp_path: Path) -> None:
    """In one process: each command must leave torch to the next."""
    commands = [
        ["--help"], ["--version"], ["edit", "missing", "-i", "x"], ["ask", "--help"],
        ["summarize", "--help"], ["chat", "--help"], ["drafters", "-v"], ["storage"],
    ]  # fmt: skip
    script = (
        "import sys\nfrom ui.cli.main import main\n"
        f"codes = [main(command) for command in {commands!r}]\n"
        "heavy = ('torch', 'transformers', 'tokenizers')\n"
        "print(codes[:1] + codes[2:], [name for name in heavy if name in sys.modules])"
    )
    result = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, env=environment(tmp_path), capture_output=True
    )
    assert result.stdout.splitlines()[-1] == b"[0, 2, 0, 0, 0, 0, 0] []"


def test_a_process_ends_with_the_exit_code_and_one_line(tmp_path: Path) -> None:
    result = draftline_process(tmp_path, "edit", "missing.py", "-i", "x")
    assert (result.returncode, one_line(result)) == (
        2,
        "draftline: missing.py: no such file: check the name\n",
    )


def test_alone_it_prints_its_help(tmp_path: Path) -> None:
    alone = draftline(tmp_path)
    assert (alone.returncode, alone.stderr) == (0, b"") and b"COMMAND" in alone.stdout
    assert alone.stdout == draftline(tmp_path, "--help").stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
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
        (["edit", "my file.py", "-i", ""], "-i: empty: say what to change"),
        (["edit", "my file.py", "-i", " \n"], "-i: empty"),
        (["edit", "my file.py", "-i", "-"], "-i: empty"),
        (["edit", "my file.py", "-i", b"\xff"], "-i: not text"),
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
        (
            ["edit", "my file.py", "-i", "x", "--max-tokens", "0"],
            "0: give a whole number of 1 or more",
        ),
        (["edit", "my file.py", "-i", "x", "--device", "abacus"], "abacus"),
        (["edit", "my file.py", "-i", "x", "--device", "cuda:0,cpu"], "numbered cards only"),
        (["edit", "my file.py", "-i", "x", "--dtype", "f8"], "f8"),
        (["edit", "my file.py", "-i", "x", "--workspace", "latin"], "latin: not a folder"),
        (["edit", "long.py", "-i", "x"], "81 lines"),
    ],
)
def test_bad_input_is_one_line_and_code_2(
    tmp_path: Path, file: Path, arguments: list[str], message: str
) -> None:
    (tmp_path / "binary").write_bytes(b"ab\0c")
    (tmp_path / "latin").write_bytes(b"caf\xe9\n")
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "long.py").write_bytes(b"x = 1\n" * 81)
    result = draftline(tmp_path, *arguments)
    assert message in one_line(result)
    assert result.returncode == 2
    assert untouched(file)
    assert not (tmp_path / "home").exists()


def test_an_instruction_on_stdin_that_is_not_utf8(tmp_path: Path, file: Path) -> None:
    result = draftline(tmp_path, "edit", file, "-i", "-", stdin=b"ab\xff")
    assert "not UTF-8 (byte 2)" in one_line(result)
    assert result.returncode == 2


@pytest.mark.parametrize("name", ["qwen2.5-coder-0.5", "./no/such/folder", "my file.py"])
def test_a_missing_model_is_code_3(tmp_path: Path, file: Path, name: str) -> None:
    result = draftline(tmp_path, "edit", file.name, "-i", "x", "--model", name)
    assert name in one_line(result)
    assert result.returncode == 3
    assert untouched(file)


@pytest.mark.full
def test_a_hub_id_without_a_network_is_code_3(tmp_path: Path, file: Path) -> None:
    """In a process: the hub's client reads HF_HUB_OFFLINE when it is imported."""
    result = draftline_process(
        tmp_path,
        *("edit", file.name, "-i", "x", "--model", "no/such-model"),
        env=environment(tmp_path, HF_HUB_OFFLINE="1"),
    )
    assert "no/such-model" in one_line(result)
    assert result.returncode == 3


# -- Ctrl-C ------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def endless(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that repeats one line."""
    return chain_model(tmp_path_factory.mktemp("endless") / "model", "ab", "\n", context=30000)


def test_ctrl_c_in_an_import_ends_the_process_at_once(tmp_path: Path) -> None:
    """KeyboardInterrupt in a callback of torch's initialisation aborts the process."""
    (tmp_path / "extension.py").write_text("import signal\nsignal.raise_signal(signal.SIGINT)\n")
    script = """import sys
from ui.common.interrupt import Interrupt
Interrupt().listen()
sys.path.insert(0, sys.argv[1])
try:
    import extension
except KeyboardInterrupt:
    sys.exit("raised")
"""
    result = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)], capture_output=True, check=False
    )
    assert result.returncode == 130
    assert result.stderr == b"draftline: interrupted: no file was changed\n"


@pytest.mark.parametrize(
    "moment",
    [
        0.0,
        *(pytest.param(seconds, marks=pytest.mark.full) for seconds in (0.05, 0.2, 0.5, 1.0, 2.0)),
        "writing",
    ],
)
def test_ctrl_c_at_any_moment(file: Path, endless: Path, moment: float | str) -> None:
    """During imports, loading, prefill or writing: the outcome is the same."""
    arguments = ("edit", file.name, "-i", "x", "--lines", "2", "--apply", "--model", str(endless))
    more = ("--max-tokens", "29000", "--no-speculation", "-v")
    process = subprocess.Popen(
        [sys.executable, "-c", READY_COMMAND, *arguments, *more],
        cwd=file.parent,
        env=environment(file.parent),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout and process.stderr
    assert process.stdout.readline() == b"ready\n"
    started = b""
    if isinstance(moment, float):
        time.sleep(moment)
    else:
        started = process.stderr.read(8)
        assert started == b"ab\nab\nab"
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=180)
    assert process.returncode == 130
    written, said, after = err.partition(b"draftline: interrupted: no file was changed\n")
    assert said and not after
    answer = started + written
    assert answer == (b"ab\n" * len(answer))[: len(answer)], "the answer so far, also within a line"
    assert out == b""
    assert untouched(file)
