"""`draftline edit`: the file, what is printed, and the exit code.

The model is a chain: each token determines the next, so it answers every edit with `x=9` and a
closing fence.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.command import (
    EDITED,
    EOS,
    FENCE,
    SEEN,
    SOURCE,
    Result,
    chain_model,
    draftline,
    draftline_process,
    make_file,
    on_terminal,
    one_line,
    untouched,
)

Chain = Callable[..., Path]
SECOND_LINE = ("-i", "make it nine", "--lines", "2", "--dtype", "f32")


@pytest.fixture(scope="session")
def chain(tmp_path_factory: pytest.TempPathFactory) -> Chain:
    """chain(answer, end) -> the folder of a chain model, made once a session."""
    root = tmp_path_factory.mktemp("chains")
    made: dict[tuple[str, str], Path] = {}

    def make(answer: str = "x=9", end: str = FENCE) -> Path:
        key = (answer, end)
        if key not in made:
            made[key] = chain_model(root / str(len(made)), answer, end)
        return made[key]

    return make


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return make_file(tmp_path)


def edit(file: Path, model: Path, *more: str, stdin: bytes = b"") -> Result:
    """Edit the second line."""
    return draftline(
        file.parent, "edit", file.name, "--model", model, *SECOND_LINE, *more, stdin=stdin
    )


@pytest.mark.parametrize(
    "tool", [["git", "apply", "-"], ["patch", "-p1", "--binary"]], ids=["git", "patch"]
)
def test_the_diff_can_be_applied(file: Path, chain: Chain, tool: list[str]) -> None:
    result = edit(file, chain())
    assert (result.returncode, result.stderr) == (0, SEEN)
    assert untouched(file)
    subprocess.run(tool, cwd=file.parent, input=result.stdout, check=True, capture_output=True)
    assert file.read_bytes() == EDITED


@pytest.mark.parametrize("more", [("--no-speculation",), ("--workspace", ".")])
def test_apply_changes_the_line_and_nothing_else(
    file: Path, chain: Chain, more: tuple[str, ...]
) -> None:
    file.chmod(0o750)
    result = edit(file, chain(), "--apply", *more)
    assert (result.returncode, result.stderr) == (0, SEEN)
    assert result.stdout == b"my file.py: 1 line added, 1 removed\n"
    assert file.read_bytes() == EDITED
    assert file.stat().st_mode & 0o777 == 0o750
    assert sorted(path.name for path in file.parent.iterdir()) == ["home", "my file.py"]


def test_json_holds_everything(file: Path, chain: Chain) -> None:
    result = edit(file, chain(), "--json", "--stats")
    assert result.returncode == 0
    got = json.loads(result.stdout)
    old = SOURCE.decode()
    assert got["path"] == "my file.py"
    assert got["text"].encode() == EDITED
    assert (got["changed"], got["reason"], got["error"]) == (True, "stop", None)
    assert [old[one["start"] : one["stop"]] for one in got["edits"]] == ["1"]
    assert [one["text"] for one in got["edits"]] == ["9"]
    assert got["diff"].encode() == edit(file, chain()).stdout
    assert got["usage"]["completion_tokens"] >= 3
    assert got["tokens_per_forward"] > 0 and got["tokens_per_second"] > 0
    assert sum(got["characters_by_source"].values()) >= 3
    for word in (b"tokens/s", b"forward passes", b"text by source"):
        assert word in result.stderr
    assert untouched(file)


def test_an_instruction_on_stdin(file: Path, chain: Chain) -> None:
    result = edit(file, chain(), "-i", "-", "--apply", stdin=b"make it nine\n")
    assert (result.returncode, file.read_bytes()) == (0, EDITED)


def test_an_answer_without_changes_is_reported_and_is_code_0(file: Path, chain: Chain) -> None:
    for more in ((), ("--apply",)):
        result = edit(file, chain("x=1"), *more)
        assert "nothing changed" in one_line(result)
        assert result.returncode == 0
        assert untouched(file)


def test_an_edit_that_fails_a_check_is_asked_for_again_and_has_a_warning(
    tmp_path: Path, chain: Chain
) -> None:
    """The model's answer, "x=9", drops the function both times."""
    file = tmp_path / "a.py"
    file.write_text("def a():\n    pass\n\n\nx=1\n")
    asked = ("--lines", "1:2", "-i", "nine", "--model", chain(), "--json")
    result = draftline(tmp_path, "edit", "a.py", *asked)
    got = json.loads(result.stdout)
    assert (result.returncode, got["text"]) == (0, "x=9\n\n\nx=1\n")
    assert got["warnings"] == ["`a` would be lost"]
    assert result.stderr.decode().count("`a` would be lost") == 2  # asking again; check this


def test_an_edit_with_a_warning_is_not_written_unless_it_is_forced(
    tmp_path: Path, chain: Chain
) -> None:
    file, text = tmp_path / "a.py", "def a():\n    pass\n\n\nx=1\n"
    file.write_text(text)
    asked = ("edit", "a.py", "--lines", "1:2", "-i", "nine", "--model", chain(), "--apply")
    result = draftline(tmp_path, *asked)
    assert (result.returncode, file.read_text()) == (1, text)
    assert b"-def a():" in result.stdout and b"+x=9" in result.stdout
    (*_, why) = result.stderr.decode().splitlines()
    assert "not written: `a` would be lost" in why and "--force" in why
    result = draftline(tmp_path, *asked, "--force")
    assert (result.returncode, file.read_text()) == (0, "x=9\n\n\nx=1\n")
    assert "check this: `a` would be lost" in result.stderr.decode()


@pytest.mark.parametrize(
    ("answer", "end", "more", "message"),
    [
        ("x=9", EOS, (), "without closing the code block"),
        ("x=9", FENCE, ("--max-tokens", "2"), "cut off after 2 tokens"),
        (" \t", FENCE, (), "delete everything"),
    ],
)
def test_a_bad_answer_is_refused(
    file: Path, chain: Chain, answer: str, end: str, more: tuple[str, ...], message: str
) -> None:
    result = edit(file, chain(answer, end), "--apply", *more)
    assert message in one_line(result)
    assert result.returncode == 1
    assert untouched(file)


def test_a_refused_edit_as_json_has_an_error_and_no_text(file: Path, chain: Chain) -> None:
    result = edit(file, chain("x=9", EOS), "--json")
    got = json.loads(result.stdout)
    assert result.returncode == 1
    assert "without closing" in got["error"]
    assert (got["text"], got["diff"], got["edits"], got["changed"]) == (None, "", [], False)


def test_a_prompt_longer_than_the_context_is_bad_input(file: Path, chain: Chain) -> None:
    file.write_bytes(b"y=1\n" * 2000)
    result = edit(file, chain(), "--lines", "1:2000")
    assert "context" in one_line(result)
    assert result.returncode == 2


@pytest.mark.full
def test_a_whole_file_that_is_short_or_allowed(file: Path, chain: Chain) -> None:
    """The answer is "x=9", which deletes nearly all of the long one."""
    for text, more in (("x=1\n", ()), ("x=1\n" * 81, ("--whole-file", "--force"))):
        file.write_text(text)
        arguments = ("-i", "nine", "--model", chain(), "--apply", *more)
        result = draftline(file.parent, "edit", file.name, *arguments)
        assert result.returncode == 0
        assert (b"99 % of the text would be deleted" in result.stderr) == bool(more)
        assert file.read_bytes() == b"x=9\n"


def test_a_process_prints_the_diff(file: Path, chain: Chain) -> None:
    """The one end-to-end run in a process of its own."""
    arguments = ("edit", file.name, "--model", chain(), *SECOND_LINE)
    result = draftline_process(file.parent, *arguments)
    assert (result.returncode, result.stderr) == (0, SEEN)
    assert result.stdout == edit(file, chain()).stdout


@pytest.mark.full
def test_a_closed_pipe_is_code_0(file: Path, chain: Chain) -> None:
    """As of `draftline edit ... | head`."""
    reading, writing = os.pipe()
    os.close(reading)
    result = draftline_process(
        file.parent,
        *("edit", file.name, "--model", chain(), *SECOND_LINE),
        capture_output=False,
        stdout=writing,
        stderr=subprocess.PIPE,
    )
    os.close(writing)
    assert (result.returncode, result.stderr) == (0, SEEN)


@pytest.mark.full
def test_a_full_disk_under_stdout_is_one_line(file: Path, chain: Chain) -> None:
    with Path("/dev/full").open("wb") as full:
        result = draftline_process(
            file.parent,
            *("edit", file.name, "--model", chain(), *SECOND_LINE),
            capture_output=False,
            stdout=full,
            stderr=subprocess.PIPE,
        )
    assert result.returncode == 1
    said = result.stderr.removeprefix(SEEN)
    assert said.count(b"\n") == 1 and b"No space left" in said


# -- on a terminal -----------------------------------------------------------------------------


def edit_on_terminal(file: Path, model: Path, *more: str, **variables: str) -> tuple[int, str]:
    """The exit code, and what a terminal shows of stdout and stderr."""
    line = ("edit", file.name, "--model", model, *SECOND_LINE, *more)
    return on_terminal(file.parent, *line, **variables)


def test_a_terminal_gets_colours_and_progress_unless_no_color(file: Path, chain: Chain) -> None:
    code, seen = edit_on_terminal(file, chain(), "-v")
    assert code == 0
    assert "\x1b[32m+x=9" in seen and "\x1b[31m-x=1" in seen
    assert "loading" in seen and "text by source" in seen
    code, seen = edit_on_terminal(file, chain(), "-v", NO_COLOR="1")
    assert code == 0
    assert "+x=9" in seen and not re.search(r"\x1b\[[0-9;]*3[0-9]m", seen)


def test_control_characters_do_not_reach_a_terminal(file: Path, chain: Chain) -> None:
    file.write_bytes(b"# \x1b]0;title\x07\nx=1\n")
    code, seen = edit_on_terminal(file, chain())
    assert code == 0
    assert "\u241b]0;title\u2407" in seen and "\x1b]0;" not in seen


# -- by rule -----------------------------------------------------------------------------------

PROGRAM = b"def f(x):\r\n    return x  # x\r\n"
RENAME = ("-i", "Rename x to total", "--model", "/nowhere")  # no model is needed


def test_a_rule_renames_without_a_model(tmp_path: Path) -> None:
    file = tmp_path / "a.py"
    file.write_bytes(PROGRAM)
    shown = draftline(tmp_path, "edit", "a.py", *RENAME)
    assert shown.returncode == 0
    assert shown.stderr.decode() == (
        "draftline: a.py: made by rule: `x` renamed to `total` in 2 places; "
        "`x` is still in 1 place of comments or strings\n"
    )
    assert b"+def f(total):\r\n" in shown.stdout
    assert draftline(tmp_path, "edit", "a.py", *RENAME, "--apply").returncode == 0
    assert file.read_bytes() == b"def f(total):\r\n    return total  # x\r\n"


def test_what_a_rule_did_as_json(tmp_path: Path) -> None:
    file = tmp_path / "a.py"
    file.write_bytes(PROGRAM)
    result = json.loads(draftline(tmp_path, "edit", "a.py", *RENAME, "--json").stdout)
    assert result["rule"] == "`x` renamed to `total` in 2 places"
    assert (result["changed"], result["error"], len(result["edits"])) == (True, None, 1)


def test_a_rename_that_is_refused_leaves_the_file(tmp_path: Path) -> None:
    file = tmp_path / "a.py"
    file.write_bytes(PROGRAM)
    for name, message in {
        "total": "`y` is not in the file",
        "f-g": "`y` is not in the file",
    }.items():
        result = draftline(tmp_path, "edit", "a.py", "-i", f"Rename y to {name}", "--apply")
        assert result.returncode == 1
        assert message in result.stderr.decode()
    assert file.read_bytes() == PROGRAM


# -- tried by a command ------------------------------------------------------------------------


@pytest.mark.parametrize("more", [(), ("--no-speculation",)])
def test_an_edit_is_checked_by_a_command(file: Path, chain: Chain, more: tuple[str, ...]) -> None:
    result = edit(file, chain(), "--check", "grep -q x=9 'my file.py'", "--apply", *more)
    said = b"draftline: my file.py: checked by grep -q x=9 'my file.py'\n"
    assert (result.returncode, result.stderr) == (0, said)
    assert file.read_bytes() == EDITED


@pytest.mark.parametrize(
    ("command", "seconds", "why"),
    [
        ("grep x=8 'my file.py'", "60", "fails with exit code 1 (it fails without the edit, too)"),
        ("grep x=1 'my file.py'", "60", "fails with exit code 1"),
        ("sleep 99", "1", "has not ended after 1 s (it fails without the edit, too)"),
        ("yes", "60", "printed more than 16 MiB and was ended (it fails without the edit, too)"),
    ],
)
def test_what_a_command_does_not_pass_is_not_written(
    file: Path, chain: Chain, command: str, seconds: str, why: str
) -> None:
    check = ("--check", command, "--check-seconds", seconds, "--candidates", "2", "--apply")
    result = edit(file, chain(), *check)
    assert result.returncode == 1
    assert f"not written: `{command}` {why}" in result.stderr.decode()
    assert file.read_bytes() == SOURCE


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (("--check", "no-such-program"), "--check no-such-program: no such program: install it"),
        (("--check", ""), "--check '': no command: name a program"),
        (("--check", "grep '"), "No closing quotation: correct the quotes"),
        (("--check", "true", "--candidates", "17"), "--candidates 17: give at most 16"),
    ],
)
def test_a_command_that_cannot_be_run_is_bad_input(
    file: Path, options: tuple[str, ...], why: str
) -> None:
    result = edit(file, file.parent / "no-model", *options)
    assert result.returncode == 2 and why in one_line(result)
    assert untouched(file)
