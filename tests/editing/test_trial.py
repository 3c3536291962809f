"""Edits that are tried by a command: what it may do, which candidate is taken, what is said."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.editing.dialogue import OTHER_TEMPERATURE, Ask, advance, dialogue
from engine.editing.edit import edit_file
from engine.editing.edits import EditRefused
from engine.editing.outcome import Outcome
from engine.editing.running import linters, sandbox
from engine.editing.running.sandbox import Finished, SandboxError
from engine.editing.running.trial import BadCommand, Trial, make_trial, parse_command, telling_lines
from engine.records import Done, Request
from tests.support.faults import tiny_disk

TEXT = "def f():\n    return 1\n"
ANSWERS = [TEXT.replace("1", str(number)) for number in range(1, 6)]  # the first changes nothing
FAILS = "    assert 0\nE   assert 2 == 3\nFAILED test_a.py::test_f\n"
LIMIT_S = 60.0
ROOT = Path(__file__).resolve().parents[2]


def asked(instruction: str = "Make it better.") -> Request:
    return Request("edit", TEXT, path="a.py", instruction=instruction, seed=5)


# -- which candidate is taken ----------------------------------------------------------------------


def tried(
    answers: Sequence[str], passing: set[str], instruction: str = "Make it better."
) -> tuple[list[Request], Outcome]:
    """What is asked, and the outcome, where the command passes on these texts."""
    file = Path("/w/a.py")

    def run(words: object, folder: object, files: Mapping[Path, str], seconds: float) -> Finished:
        passes = files[file] in passing
        return Finished("exit", 0 if passes else 1, "" if passes else FAILS)

    trial = Trial(("pytest", "-q"), file, file.parent, len(answers))
    with mock.patch.object(sandbox, "run", run), mock.patch.object(sandbox, "ensure"):
        requests: list[Request] = []
        steps = dialogue(asked(instruction), trial=trial)
        step = advance(steps)
        while isinstance(step, Ask):
            requests.append(step.request)
            step = advance(steps, Done("stop", answers[len(requests) - 1], matched="\n```"))
        return requests, step


@given(
    st.lists(st.sampled_from(ANSWERS), min_size=1, max_size=6), st.sets(st.sampled_from(ANSWERS))
)
def test_the_first_candidate_that_passes_is_taken(answers: list[str], passing: set[str]) -> None:
    requests, outcome = tried(answers, passing)
    good = [index for index, text in enumerate(answers) if text in passing - {TEXT}]
    changed = [text for text in answers if text != TEXT]
    assert len(requests) == (good[0] + 1 if good else len(answers))
    assert outcome.text == (answers[good[0]] if good else changed[0] if changed else TEXT)
    assert outcome.checked == ("pytest -q" if good else "")
    if good:
        assert outcome.seen == "checked by pytest -q"
    elif changed:
        assert outcome.seen.startswith("check this: `pytest -q` fails: E assert 2 == 3; FAILED ")
        assert ("without the edit" in outcome.seen) == (TEXT not in passing)


def test_candidates_are_the_request_and_then_samples_of_seeds_in_turn() -> None:
    requests, _ = tried(ANSWERS[1:], set())
    assert requests[0] == asked()
    assert [one.seed for one in requests] == [5, 6, 7, 8]
    assert {one.temperature for one in requests[1:]} == {OTHER_TEMPERATURE}


def test_a_candidate_that_passes_and_fails_another_check_is_the_last_choice() -> None:
    lost = "x = 1\n"
    _, outcome = tried([lost, ANSWERS[1]], {lost})
    assert outcome.text == lost and outcome.checked
    assert outcome.seen.startswith("check this: ")
    _, outcome = tried([lost, ANSWERS[1]], {lost, ANSWERS[1]})
    assert (outcome.text, outcome.seen) == (ANSWERS[1], "checked by pytest -q")


def test_an_edit_by_rule_is_tried_too() -> None:
    new = TEXT.replace("f()", "g()")
    for passing in ({new}, set[str]()):
        requests, outcome = tried([], passing, "rename f to g")
        assert (requests, outcome.text) == ([], new)
        seen = "checked by pytest -q" if passing else "check this: `pytest -q` fails"
        assert outcome.seen.startswith(seen)


@pytest.mark.parametrize(
    ("outcome", "seen"),
    [
        (Outcome("", rule="1 place"), "made by rule"),
        (Outcome("", looked_at="syntax looked at"), "not run: syntax looked at"),
        (Outcome("", rule="1 place", checked="make test"), "checked by make test"),
    ],
)
def test_words_of_what_was_seen(outcome: Outcome, seen: str) -> None:
    assert outcome.seen == seen


# -- what a command may do -------------------------------------------------------------------------


def python(folder: Path, code: str, seconds: float = LIMIT_S) -> Finished:
    file = folder / "a.py"
    return sandbox.run((sys.executable, "-c", code), folder, {file: "new = 1\n"}, seconds)


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    (tmp_path / "a.py").write_text("old = 1\n")
    (tmp_path / "b.py").write_text("import a\n")
    return tmp_path


def contents(folder: Path) -> dict[str, bytes]:
    return {str(one): one.read_bytes() for one in folder.rglob("*") if one.is_file()}


def test_a_command_sees_the_edited_file_and_changes_nothing(workspace: Path) -> None:
    before = contents(workspace)
    code = f"""
import os, pathlib, b
assert b.a.new == 1 and b.a.__file__ == {str(workspace / "a.py")!r}
for folder in (".", "sub", pathlib.Path.home(), "/tmp", "/var/tmp"):
    os.makedirs(folder, exist_ok=True)
    path = pathlib.Path(folder, "draftline-was-here")
    path.write_text("x")
    assert path.read_text() == "x"
os.remove("b.py"), os.rename("a.py", "c.py"), os.chmod("c.py", 0)
for folder in ("/etc", "/usr", "/"):
    try:
        pathlib.Path(folder, "draftline-was-here").write_text("x")
    except OSError:
        print("refused")
"""
    finished = python(workspace, code)
    assert (finished.code, finished.output) == (0, "refused\n" * 3)
    assert contents(workspace) == before
    for folder in (workspace, Path.home(), Path("/tmp"), Path("/var/tmp"), Path("/etc")):
        assert not (folder / "draftline-was-here").exists()


def test_a_folder_with_a_mount_in_it_is_made_of_its_entries(workspace: Path) -> None:
    """As an AppImage mounts itself below /tmp, or a container a volume in the workspace."""
    (workspace / "part").mkdir()
    (workspace / "part" / "c.py").write_text("c")
    (workspace / "link").symlink_to("a.py")
    code = """
from pathlib import Path
print(Path("link").read_text(), Path("part/c.py").read_text(), Path("my disk/d").read_text())
for name in ("a.py", "new", "part/c.py", "part/new", "b.py", "my disk/d", "my disk/new"):
    try:
        Path(name).write_text("changed")
    except OSError as error:
        print(name, error.strerror)
"""
    with tiny_disk(workspace / "my disk", "64k"):
        (workspace / "my disk" / "d").write_text("d")
        before = contents(workspace)
        finished = python(workspace, code)
        refused = (
            f"{name} Read-only file system\n" for name in ("b.py", "my disk/d", "my disk/new")
        )
        assert (finished.code, finished.output) == (0, "new = 1\n c d\n" + "".join(refused))
        assert contents(workspace) == before


def test_a_command_reaches_its_own_network_only(workspace: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as outer:
        code = f"""
import socket
with socket.create_server(("127.0.0.1", 0)) as own:
    socket.create_connection(own.getsockname()).close()
for place in (("127.0.0.1", {outer.getsockname()[1]}), ("192.0.2.1", 80)):
    try:
        socket.create_connection(place, 5)
    except OSError:
        print("refused")
"""
        finished = python(workspace, code)
    assert (finished.code, finished.output) == (0, "refused\n" * 2)


@pytest.mark.parametrize(
    ("code", "ended", "output"),
    [
        ("bytearray(16 << 30)", "exit", "MemoryError"),
        ("while True: print('y' * 9999)", "output", "yyy"),
        ("import time; print('begun', flush=True); time.sleep(999)", "time", "begun"),
        ("import os, time; os.fork() or time.sleep(999); print('done')", "exit", "done"),
        ("import os; os.kill(os.getpid(), 9)", "exit", ""),
        ("import sys; print(sys.stdin.read() == '')", "exit", "True"),
    ],
)
def test_a_command_is_bounded(workspace: Path, code: str, ended: str, output: str) -> None:
    finished = python(workspace, code, 20.0 if ended == "time" else LIMIT_S)
    assert finished.ended == ended and output in finished.output
    assert len(finished.output) <= sandbox.KEPT_BYTES
    assert (finished.code == 0) == (output in {"True", "done"})


def test_what_a_command_left_running_ends_with_it(workspace: Path) -> None:
    name = f"draftline-{os.getpid()}"
    code = f"import subprocess; subprocess.Popen(['sleep', '999'], env={{'MARK': {name!r}}})"
    assert python(workspace, code).code == 0
    environments = [one / "environ" for one in Path("/proc").iterdir() if one.name.isdecimal()]
    for environment in environments:
        try:
            assert name.encode() not in environment.read_bytes()
        except OSError:  # ended, or another user's
            continue


def test_a_command_ends_with_the_process_that_waits_for_it(workspace: Path) -> None:
    """However that one ends, and nothing stays of the texts."""
    name = f"draftline-killed-{os.getpid()}"
    code = (
        "from pathlib import Path\nfrom engine.editing.running.sandbox import run\n"
        f"run(('sh', '-c', 'exec sleep 987{os.getpid()}'), "
        f"Path({str(workspace)!r}), {{}}, 600)"
    )
    scratch = workspace / name
    scratch.mkdir()
    environment = os.environ | {"TMPDIR": str(scratch), "PYTHONPATH": str(ROOT)}
    with subprocess.Popen([sys.executable, "-c", code], env=environment) as process:
        wait_for(lambda: commands(f"987{os.getpid()}"))
        process.kill()
    wait_for(lambda: not commands(f"987{os.getpid()}"))
    assert not contents(scratch)


def commands(part: str) -> list[str]:
    """The processes of this machine with an argument that ends so."""
    found = []
    for one in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = one.read_bytes().rstrip(b"\0").split(b"\0")
        except OSError:  # ended
            continue
        if words[0] == b"sleep" and words[-1].endswith(part.encode()):
            found.append(str(one))
    return found


def wait_for(done: Callable[[], object]) -> None:
    """Wait until it is so; the test's limit of time ends it otherwise."""
    while not done():
        time.sleep(0.05)


@pytest.mark.skipif(os.getuid() != 0, reason="only root may write these otherwise")
def test_root_does_not_reach_the_kernels_settings(workspace: Path) -> None:
    code = """
for path in ("/proc/sys/vm/swappiness", "/proc/sysrq-trigger", "/dev/kmsg", "/sys/kernel/mm"):
    try:
        open(path, "r+b").close()
        print(path)
    except OSError:
        pass
open("/dev/null", "w").write("x")
assert len(open("/dev/urandom", "rb").read(8)) == 8
import multiprocessing, pty
multiprocessing.Lock()
pty.openpty()
"""
    finished = python(workspace, code)
    assert (finished.code, finished.output) == (0, "")


def test_a_machine_without_namespaces_is_named(workspace: Path) -> None:
    missing = mock.patch("shutil.which", return_value=None)
    with missing, pytest.raises(SandboxError, match=r"`unshare` of .*: install it, or leave out"):
        python(workspace, "")
    elsewhere = mock.patch("sys.platform", "darwin")
    with elsewhere, pytest.raises(SandboxError, match="on Linux only: leave out the check"):
        python(workspace, "")


# -- linters -----------------------------------------------------------------------------------


@pytest.fixture
def tools(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A workspace with settings of mypy; ruff and mypy are this environment's own."""
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    (workspace / "mypy.ini").write_text("[mypy]\n")
    monkeypatch.setattr(linters, "SAFE_SECONDS", LIMIT_S)
    linters.program.cache_clear()
    return workspace


OLD = "def f(x: int) -> int:\n    return undefined\n"


@pytest.mark.parametrize(
    ("words", "new", "seen"),
    [
        ((), OLD.replace("return", "return 1 +"), "not run: all; ruff: nothing new"),
        ((), f"{OLD}\n\nprint(nowhere)\n", "check this: ruff says “F821 Undefined name `nowhere`”"),
        ((), f"# one\n{OLD}", "not run: all; ruff: nothing new"),
        (("auto",), OLD.replace("undefined", "''"), "check this: mypy says “a.py:2: error: Inco"),
        (("auto",), OLD.replace("undefined", "x"), "not run: all; ruff, mypy: nothing new"),
    ],
)
def test_linters_name_what_an_edit_brings(
    tools: Path, words: tuple[str, ...], new: str, seen: str
) -> None:
    (tools / "a.py").write_text(OLD)
    trial = make_trial(words, tools / "a.py", tools)
    request = Request("edit", OLD, path="a.py", instruction="do")
    assert trial.lint(request, Outcome(new, looked_at="all")).seen.startswith(seen)


def test_a_new_error_is_asked_for_again(tools: Path) -> None:
    request = Request("edit", OLD, path="a.py", instruction="do")
    steps = dialogue(request, trial=make_trial((), tools / "a.py", tools))
    assert isinstance(advance(steps), Ask)
    again = advance(steps, Done("stop", OLD.replace("undefined", "nowhere"), matched="\n```"))
    assert isinstance(again, Ask) and "Undefined name `nowhere`" in again.request.instruction
    outcome = advance(steps, Done("stop", OLD.replace("undefined", "x"), matched="\n```"))
    assert isinstance(outcome, Outcome) and not outcome.failed


def test_a_file_without_a_linter_is_not_called_linted(workspace: Path) -> None:
    for words, seen in (((), "not run: all"), (("auto",), "no linter for a.md is installed")):
        trial = make_trial(words, workspace / "a.md", workspace)
        outcome = trial.lint(asked(), Outcome("# A\n", looked_at="all"))
        assert outcome.seen.endswith(seen) and not outcome.failed


# -- commands and what they print ------------------------------------------------------------------


@pytest.mark.parametrize("text", ["", "  ", "'", 'pytest "', "a\0b"])
def test_what_is_no_command_is_refused(text: str) -> None:
    with pytest.raises(BadCommand, match=r": (no command|No closing quotation)"):
        parse_command(text)


def test_no_shell_reads_a_command(workspace: Path) -> None:
    words = parse_command("echo $HOME; `ls` 'a b' '>x' *")
    assert words == ("echo", "$HOME;", "`ls`", "a b", ">x", "*")
    assert sandbox.run(words, workspace, {}, LIMIT_S).output == "$HOME; `ls` a b >x *\n"
    for text in ("true && false", "a | b", "a > b", "a ; b", "a &", "a\nb"):
        with pytest.raises(BadCommand, match=r"no shell reads it: write sh -c"):
            parse_command(text)


def test_a_missing_program_is_named(workspace: Path) -> None:
    for program, why in (
        ("no-such-program", "no such program"),
        ("./none", "no such program"),
        ("./a.py", "not a program that may be run"),
        ("/", "not a program that may be run"),
    ):
        with pytest.raises(BadCommand, match=f"{why}: install it, or correct the command"):
            make_trial((program,), workspace / "a.py", workspace)


@pytest.mark.parametrize(
    ("output", "lines"),
    [
        ("", []),
        ("one\n\ntwo  words\n", ["one", "two words"]),
        (FAILS, ["E assert 2 == 3", "FAILED test_a.py::test_f"]),
        ("\x1b[31mValueError: no\x1b[0m\x07\nend\n", ["ValueError: no"]),
        ("a.go:3:1: syntax error: unexpected }\nFAIL\n", ["a.go:3:1: syntax error: unexpected }"]),
        ("thread 'main' panicked at src/a.rs:1\n", ["thread 'main' panicked at src/a.rs:1"]),
        ("1\n2\n3\n4\n", ["2", "3", "4"]),
        ("a\u202eb\u200bc\n", ["abc"]),
    ],
)
def test_the_lines_that_tell_most(output: str, lines: list[str]) -> None:
    assert telling_lines(output) == lines


@given(st.text(max_size=2000))
def test_any_output_gives_few_short_lines(output: str) -> None:
    lines = telling_lines(output)
    assert len(lines) <= 3 and all(len(line) <= 161 for line in lines)
    assert all(line == " ".join(line.split()) and "\x1b" not in line for line in lines)


# -- all together ----------------------------------------------------------------------------------


def test_a_file_is_edited_by_the_answer_that_passes(workspace: Path) -> None:
    file, answers = workspace / "a.py", iter(["old = 2\n", "old = 3\n", "old = 4\n"])
    check = (sys.executable, "-c", "import a; assert a.old == 3, a.old")
    with mock.patch.object(Path, "cwd", return_value=workspace):
        edit = edit_file(
            lambda one: Done("stop", next(answers), "\n```"), file, "count on", check=check
        )
    assert edit.new == "old = 3\n" and not edit.warnings
    assert edit.seen.startswith("checked by ")
    assert file.read_text() == "old = 1\n"


def test_a_trial_sees_what_an_editor_has_not_saved(workspace: Path) -> None:
    check = (sys.executable, "-c", "import b; assert b.two == 2")
    texts = {workspace / "b.py": "two = 2\n", workspace / "none.py": "x"}
    trial = make_trial(check, workspace / "a.py", workspace, texts=texts)
    outcome = trial.try_outcome(asked(), Outcome("x = 1\n"))
    assert outcome.checked and not outcome.failed
    assert (workspace / "b.py").read_text() == "import a\n"


def test_nothing_is_asked_of_the_model_where_no_program_can_be_run(workspace: Path) -> None:
    def never(request: Request) -> Done:
        raise AssertionError(request)

    error = SandboxError("programs cannot be run apart here")
    unable = mock.patch.object(sandbox, "ensure", side_effect=error)
    with unable, pytest.raises(EditRefused, match="apart here"):
        edit_file(never, workspace / "a.py", "count on", check=("true",))
