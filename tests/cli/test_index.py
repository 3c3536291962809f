"""`draftline index`: its output, its exit codes, and what is saved between runs."""

from __future__ import annotations

import gc
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from index.workspace import file_filter
from tests.support.command import on_terminal, one_line
from tests.support.faults import tiny_disk
from tests.support.index_command import age, answer, index, make_model, make_project

FIGURES = {"files", "tokens", "segments", "nbytes", "dead", "hits", "misses", "disk", "cache"}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(autouse=True)
def settled_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trust the timestamps of files that were written a moment ago."""
    monkeypatch.setattr(file_filter, "TIMESTAMP_GRANULARITY_NS", -1)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return make_project(tmp_path / "project")


# -- build and figures -------------------------------------------------------------------------


def test_a_second_run_reads_only_changes(project: Path, model: Path) -> None:
    first = answer(project, model)
    assert first.keys() == FIGURES | {"roots", "seconds", "warm", "loaded", "skipped"}
    assert (first["files"], first["misses"], first["hits"]) == (3, 3, 0)
    assert (first["warm"], first["loaded"]) == (False, 0)
    assert first["roots"] == [str(project)] and first["disk"] > 0 < first["cache"]
    reasons = {Path(path).name: why for path, why in first["skipped"].items()}
    assert reasons == {"data": "binary", "id_rsa": "may hold secrets"}

    again = answer(project, model)
    assert (again["files"], again["tokens"]) == (first["files"], first["tokens"])
    assert (again["misses"], again["hits"], again["loaded"], again["warm"]) == (0, 0, 3, True)

    (project / "c.txt").write_text("three\n")
    (project / "d.txt").write_text("def add(left, right):\n    return left + right\n")  # as a.py
    changed = answer(project, model)
    assert (changed["files"], changed["loaded"]) == (4, 2)
    assert (changed["misses"], changed["hits"]) == (1, 1)


def test_the_summary_line(project: Path, model: Path) -> None:
    first, again = index(project, model), index(project, model)
    figures, where = first.stdout.decode().splitlines()
    assert figures.startswith("3 files, ") and "bytes a token), 1 segment; 2 skipped; " in figures
    assert where == f"Saved in {project.parent / 'home' / 'index'}"
    (line,) = first.stderr.decode().splitlines()
    assert line.startswith("draftline: read 4 files in "), "one of them is binary"
    assert again.stdout.decode().startswith("3 files, none new, ") and again.stderr == b""
    (project / "c.txt").write_text("three\n")
    assert index(project, model).stdout.decode().startswith("3 files, 1 of them new, ")


def test_stats_are_a_table(project: Path, model: Path) -> None:
    index(project, model)
    shown = index(project, model, "--stats").stdout.decode().splitlines()
    rows = {line[:13].strip(): line[13:].strip() for line in shown[2:]}
    assert rows["files"] == "3" and rows["loaded warm"] == "3 of 3 files"
    assert rows["token cache"] == "0 hits, 0 misses"
    assert rows["skipped"] in {
        "2: 1 binary, 1 may hold secrets",
        "2: 1 may hold secrets, 1 binary",
    }
    assert rows["dead"].startswith("0.0%") and "bytes a token" in rows["memory"]
    assert shown[-4:] == [
        "Not indexed:",
        "  id_rsa: may hold secrets",
        "  data: binary",
        "To index a file that holds no secrets, name it in .draftlineindex in the folder.",
    ]


def test_stats_list_what_is_not_indexed_without_its_contents(project: Path, model: Path) -> None:
    password = "Xy" + "7b" * 8
    (project / "z.ini").write_text(f"name = x\npassword = {password}\n")
    for number in range(30):
        (project / f"binary{number:02}").write_bytes(b"\0")
    shown = index(project, model, "--stats").stdout.decode()
    first = shown.splitlines().index("Not indexed, 20 of 33 (--json lists all):")
    listed = shown.splitlines()[first + 1 : first + 21]
    assert listed[:3] == [
        "  id_rsa: may hold secrets",
        "  z.ini: may hold secrets: an assigned password or key in line 2",
        "  binary00: binary",
    ]
    assert password not in shown
    skipped = answer(project, model)["skipped"]
    assert len(skipped) == 33 and password not in str(skipped)


def test_several_folders_are_one_index_in_any_order(project: Path, model: Path) -> None:
    (project / "other").mkdir()
    (project / "other" / "e.py").write_text("pass\n")
    age(project)
    one = answer(project, model, "sub", "other")
    other = answer(project, model, "other", "./sub/../sub")
    assert one["files"] == other["loaded"] == 2
    assert one["roots"] == other["roots"] == [str(project / "other"), str(project / "sub")]


def test_no_save_neither_uses_nor_saves_an_index(project: Path, model: Path) -> None:
    for _ in range(2):
        result = answer(project, model, "--no-save")
        assert (result["misses"], result["disk"], result["cache"]) == (3, 0, 0)
    assert not (project.parent / "home").exists()


def not_saved(project: Path, model: Path, why: bytes) -> None:
    """It is built and shown, and the exit code and one line say that it was not saved."""
    for more in ((), ("--json",), ("--stats",)):
        result = index(project, model, *more)
        lines = result.stderr.splitlines()
        assert result.returncode == 1 and re.search(rb'3 files|"files": 3', result.stdout)
        assert b"index is not saved: free space" in lines[-1] and why in result.stderr
        assert b"Saved in" not in result.stdout
    found = index(project, model, "--find", "left")  # which was asked for, and is whole
    assert found.returncode == 0 and b"a.py:1:9" in found.stdout
    assert index(project, model, "--no-save").returncode == 0


def test_an_index_that_cannot_be_saved_is_code_1(project: Path, model: Path) -> None:
    home = project.parent / "home"
    home.mkdir()
    (home / "index").write_text("in the way")
    not_saved(project, model, b"not a folder")
    (home / "index").unlink()
    result = index(project, model)
    assert result.returncode == 0 and b"Saved in" in result.stdout


def test_a_full_disk_is_code_1(project: Path, model: Path) -> None:
    (project / "c.txt").write_text("".join(f"{n}\n" for n in range(20_000)))
    age(project)
    with tiny_disk(project.parent / "home", "64k") as resize:
        not_saved(project, model, b"No space left")
        resize("64m")
        assert index(project, model).returncode == 0
        assert answer(project, model)["loaded"] == 3


@pytest.fixture
def no_collector() -> Iterator[None]:
    """Let nothing be closed by luck."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def test_clear_deletes_the_saved_index(project: Path, model: Path, no_collector: None) -> None:
    index(project, model)
    cleared = index(project, model, "--clear")
    assert cleared.returncode == 0 and cleared.stdout.startswith(b"Freed: ")
    assert str(project).encode() in cleared.stdout
    again = index(project, model, "--clear")  # the first let go of it, without the collector's help
    assert again.returncode == 0 and b"Nothing was saved" in again.stdout
    afterwards = answer(project, model)
    assert (afterwards["misses"], afterwards["loaded"]) == (3, 0)
    shutil.rmtree(project / "sub")
    gone = answer(project, model, "--clear", "sub")  # a folder that was removed
    assert gone["freed"]["index"] == 0


# -- archives ----------------------------------------------------------------------------------


def test_an_index_is_exported_and_imported_elsewhere(
    project: Path, model: Path, tmp_path: Path
) -> None:
    made = index(project, model, "--export", tmp_path / "file")
    assert made.returncode == 0 and made.stdout.startswith(b"3 files, ")
    said = made.stderr.decode().splitlines()[-1]
    assert said.startswith(f"draftline: exported to {tmp_path / 'file'}, ")
    place = tmp_path / "elsewhere" / "checkout"
    shutil.copytree(project, place)
    (place / "a.py").write_text("other = 1\n")
    taken = index(place, model, "--import", tmp_path / "file")
    assert taken.returncode == 0, taken.stderr
    assert taken.stdout.startswith(b"3 files, 1 of them new, ")
    assert said.rsplit(maxsplit=1)[1] in taken.stderr.decode(), "the same identity"
    assert (answer(place, model)["loaded"], answer(place, model)["misses"]) == (3, 0)


def test_an_archive_of_another_tokenizer_is_refused(
    project: Path, model: Path, tmp_path: Path
) -> None:
    index(project, model, "--export", tmp_path / "file")
    other = shutil.copytree(model, tmp_path / "other-model")
    text = (other / "tokenizer.json").read_text("utf-8")
    (other / "tokenizer.json").write_text(text + "\n", "utf-8")
    result = index(project, other, "--import", tmp_path / "file")
    assert result.returncode == 1
    line = one_line(result)
    assert model.name in line and "other-model" in line and "--model" in line


# -- find --------------------------------------------------------------------------------------


def test_find_shows_line_and_column(project: Path, model: Path) -> None:
    found = index(project, model, "--find", "add(")
    assert found.returncode == 0
    assert found.stdout.decode().splitlines() == [
        "sub/b.py:3:5  y = add(x, 2)",
        "a.py:1:5  def add(left, right):",
    ]
    assert found.stderr.decode().splitlines()[-1] == "draftline: 2 places"
    one = index(project, model, "--find", "add(", "--most", "1")
    assert one.stdout.decode().splitlines() == ["sub/b.py:3:5  y = add(x, 2)"]
    assert "there are more" in one.stderr.decode()
    elsewhere = index(project, model, "--find", "left +", "..", cwd=project / "sub")
    assert elsewhere.stdout.decode() == f"{project / 'a.py'}:2:12      return left + right\n"


def test_find_as_json_gives_code_points(project: Path, model: Path) -> None:
    (project / "z.py").write_bytes("\ufeff# \U0001f60b\r\r\nfind me\n\u2028find me".encode())
    found = answer(project, model, "--find", "find me")
    text = (project / "z.py").read_bytes().decode()
    assert [(place["line"], place["column"]) for place in found["places"]] == [(3, 1), (4, 2)]
    for place in found["places"]:
        assert text[place["start"] : place["stop"]] == "find me"
        assert place["path"] == str(project / "z.py")
    assert found["more"] is False


@pytest.mark.parametrize("text", ["nowhere", r"one\ntwo", b"\xff"])
def test_no_match_is_code_1(project: Path, model: Path, text: str | bytes) -> None:
    """A backslash escapes nothing."""
    result = index(project, model, "--find", text)
    assert (result.returncode, result.stdout) == (1, b"")
    assert result.stderr.decode().splitlines()[-1] == "draftline: 0 places"
    assert index(project, model, "--find", "one\ntwo").stdout == b"c.txt:1:1  one\n"


def test_a_file_cannot_drive_the_terminal(project: Path, model: Path) -> None:
    name = b"n\n\x1b[2J\xff.py"
    (Path(os.fsdecode(os.fsencode(project) + b"/" + name))).write_bytes(b"\tevil \x1b[31m text\n")
    piped = index(project, model, "--find", "evil")
    assert piped.stdout == name + b":1:2  \tevil \x1b[31m text\n"
    code, seen = on_terminal(project, "index", "--model", model, "--find", "evil")
    assert code == 0
    assert "\x1b[2J" not in seen and "\x1b[31m text" not in seen
    assert "n\u240a\u241b[2J\ufffd.py:1:2" in seen and "\u241b[31m text" in seen


# -- errors ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["nowhere"], 2, "nowhere: no such folder"),
        (["a.py"], 2, "a.py: not a folder"),
        (["loop"], 2, "loop: unreadable: "),
        ([".", "missing"], 2, "missing: no such folder"),
        (["--find", ""], 2, "the text is empty"),
        (["--find", "x", "--most", "0"], 2, "--most 0"),
        (["--most", "3"], 2, "--most 3"),
        (["--clear", "--no-save"], 2, "--clear --no-save"),
        (["--clear", "--stats"], 2, "not allowed with"),
        (["--no-save", "--export", "x"], 2, "--no-save: --export and --import"),
        (["--export", "a.py"], 2, "a.py: exists"),
        (["--export", "nowhere/x"], 2, "--export nowhere/x: no such folder"),
        (["--import", "nowhere"], 1, "--import nowhere: No such file"),
        (["--import", "a.py"], 1, "a.py: not a draftline array file: copy or export it again"),
        (["--find"], 2, "expected one argument"),
        (["--model", "smollm"], 3, "unknown model 'smollm'"),
        (["--model", "project"], 3, "unknown model 'project'"),
        (["--model", "."], 3, "this folder has no config.json"),
        (["--model", "smollm2-135m", "--clear"], 3, "draftline models pull smollm2-135m"),
    ],
)
def test_bad_input_is_one_line(
    project: Path, model: Path, arguments: list[str], code: int, message: str
) -> None:
    (project / "loop").symlink_to("loop")
    result = index(project, model, *arguments)
    assert message in one_line(result)
    assert result.returncode == code
    assert not (project.parent / "home" / "index").exists()


def test_an_unreadable_tokenizer_is_code_3(project: Path, model: Path) -> None:
    broken = project.parent / "broken"
    shutil.copytree(model, broken)
    for text in ("{", '{"added_tokens": [], "model": {"type": "?", "vocab": {}}}'):
        (broken / "tokenizer.json").write_text(text)
        result = index(project, broken)
        assert result.returncode == 3 and "its tokenizer cannot be read" in one_line(result)


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_an_unreadable_folder_leaves_the_saved_index(project: Path, model: Path) -> None:
    index(project, model)
    project.chmod(0)
    try:
        result = index(project, model, project, "--json", cwd=project.parent)
    finally:
        project.chmod(0o700)
    assert result.returncode == 2 and "unreadable" in one_line(result)
    assert answer(project, model)["loaded"] == 3
