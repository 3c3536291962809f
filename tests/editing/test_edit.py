"""`Engine.edit`: what is shown, what is written, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine import Config, Edit, EditRefused, Engine, FileError, Request, RequestError
from engine.editing.diff import diff
from engine.editing.edit import edit_file
from engine.records import Done, Usage
from tests.support.command import EDITED, FENCE, SOURCE, chain_model, make_file

OLD = "import os\nimport abc\n\n\ndef one():\n    return 1\n"


def never(request: Request) -> Done:
    raise AssertionError("a rule makes this edit")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "a.py"
    file.write_text(OLD)
    return file


def test_the_model_edits_a_file_which_is_written_on_request(tmp_path: Path) -> None:
    file = make_file(tmp_path)
    model = chain_model(tmp_path / "chain", "x=9", FENCE)
    with Engine(Config(model=str(model), threads=1, library=False)) as engine:
        edit = engine.edit(file, "do", lines=(2, 2))
    assert edit.new.encode() == EDITED and file.read_bytes() == SOURCE
    assert str(edit) == diff(edit.old, edit.new, file) + edit.seen and "+x=9" in str(edit)
    assert edit.seen == "not run: syntax, lost definitions and names looked at"
    edit.write()
    assert file.read_bytes() == EDITED
    with pytest.raises(FileError, match="changed on disk"):
        edit.write()


def test_a_rule_needs_no_model(file: Path) -> None:
    edit = edit_file(never, file, "rename one to two")
    assert "def two()" in edit.new and edit.rule and edit.old == OLD
    edit.write()
    assert file.read_text() == edit.new


def test_a_note_of_a_rule_does_not_stop_the_edit(file: Path) -> None:
    file.write_text("def one():\n    return 1  # one\n")
    edit = edit_file(never, file, "rename one to two")
    assert edit.notes and not edit.warnings and f"note: {edit.notes[0]}" in str(edit)
    edit.write()
    assert "def two" in file.read_text()


def test_what_fails_a_check_is_asked_for_again_and_shown(file: Path) -> None:
    asked: list[Request] = []

    def ask(request: Request) -> Done:
        asked.append(request)
        return Done("stop", "def one(:\n    return 2", FENCE)

    edit = edit_file(ask, file, "Return 2", lines=(5, 6))
    assert len(asked) == 2 and edit.warnings
    assert f"check this: {'; '.join(edit.warnings)}" in str(edit)
    with pytest.raises(EditRefused, match=r"not written: .*write\(force=True\)"):
        edit.write()
    assert file.read_text() == OLD
    edit.write(force=True)
    assert file.read_text() == edit.new != OLD


def test_an_edit_that_changes_nothing_says_so(file: Path) -> None:
    assert str(Edit(file, OLD, OLD)) == f"{file}: nothing changed"


def test_a_weak_model_is_warned_about(file: Path) -> None:
    file.write_text("x = 1\n" * 200)
    done = Done("stop", "x = 1\n" * 200, FENCE)
    edit = edit_file(lambda _: done, file, "Do", model="smollm2-135m")
    assert any("lines" in warning for warning in edit.warnings)


def test_bad_requests_are_errors_of_one_line(file: Path) -> None:
    for error, path, instruction, lines in (
        (FileError, "nowhere.py", "do", None),
        (RequestError, file, " ", None),
        (RequestError, file, "do", (0, 1)),
        (RequestError, file, "do", (2, 99)),
        (EditRefused, file, "do", None),
    ):
        with pytest.raises(error) as caught:
            edit_file(lambda _: Done("failed", error="broken"), path, instruction, lines)
        assert "\n" not in str(caught.value)


def test_a_result_prints_its_text_and_its_figures() -> None:
    done = Done("stop", "the text", usage=Usage(9, 3, 4, 2, 5, 2, decode_seconds=0.5))
    text, figures = str(done).split("\n")
    assert text == "the text" and "4 tokens in 2 passes, 8.0 tokens/s" in figures
    assert "2 of 5 drafted" in figures and "9 tokens of prompt, 3 of them cached" in figures
    assert "broken" in str(Done("failed", error="broken"))
