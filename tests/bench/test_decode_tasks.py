"""The tasks of `python -m bench decode`: their sources, their checks, and what is asked."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.common import tasks
from bench.common.edit_check import EditCheck
from engine.editing.dialogue import by_rule

RECORDS = tasks.edit_records()
EVERY = tasks.every_task()
LANGUAGES = {".py": 8, ".ts": 4, ".go": 3, ".rs": 3, ".c": 2}  # edits of each kind


def replaced(record: dict[str, Any], pairs: list[list[str]]) -> str:
    """The edited text with old texts replaced by new ones; each old one is there once."""
    text = tasks.edit(record).before
    for old, new in pairs:
        assert text.count(old) == 1, f"{text.count(old)} times: {old}"
        text = text.replace(old, new)
    return text


@pytest.mark.full
@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record["name"])
def test_the_check_of_an_edit_knows_right_from_wrong(record: dict[str, Any]) -> None:
    task = tasks.edit(record)
    right = replaced(record, record["right"])
    assert task.passes(right.removesuffix("\n")) is True  # the closing fence took it
    assert task.passes(task.before) is False, "nothing was done"
    assert task.passes(right[: len(right) // 2]) is False, "half of it"
    assert task.passes("") is False
    assert len(record["wrong"]) >= 2
    for wrong in record["wrong"]:
        assert task.passes(replaced(record, wrong)) is False


@pytest.mark.parametrize(
    ("fragment", "there"),
    [
        ("if n == 0 { return s }", True),
        ("if n==0{return s}", True),
        ("if n == 0 … s", True),
        ("if n == 0 … t", False),  # not in its block
        ("if $a == 0 { return s }", True),
        ("$a := $b + $a", True),
        ("$a := $a + $b", False),
        ('say("no … here")', True),
        ("more", False),  # only in a comment
    ],
)
def test_a_fragment_is_found_whatever_the_layout(fragment: str, there: bool) -> None:
    text = 'if n == 0 {\n\treturn s // more\n}\nt\nk := m +\n\tk\nsay("no one is here")\n'
    assert EditCheck("a.go", text, ()).has(text, fragment) is there


def test_a_comment_may_come_but_not_go() -> None:
    record = next(one for one in RECORDS if one["name"] == "no-data")
    task, right = tasks.edit(record), replaced(record, record["right"])
    licence = right[: right.index("*/") + 2]
    assert licence.startswith("/* Copyright")
    assert task.passes(right.replace(licence, f"{licence}\n/* More. */")) is True
    assert task.passes(right.replace(licence, "")) is False


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record["name"])
def test_no_rule_makes_an_edit(record: dict[str, Any]) -> None:
    task = tasks.edit(record)
    assert by_rule(task.request) is None
    assert 30 <= task.before.count("\n") <= 200


def test_there_are_as_many_tasks_of_each_kind_and_language_as_there_should_be() -> None:
    assert Counter(task.kind for task in EVERY) == {
        "file": 20, "edit": 20, "completion": 10, "question": 10, "summary": 6, "conversation": 10,
    }  # fmt: skip
    assert len({task.name for task in EVERY}) == len(EVERY)
    for kind in tasks.EDITS:
        found = Counter(Path(task.request.path).suffix for task in EVERY if task.kind == kind)
        assert found == LANGUAGES


@given(st.integers(1, 30), st.integers(0, 30))
def test_fewer_tasks_are_a_part_of_more(few: int, more: int) -> None:
    names = {task.name for task in tasks.sample(EVERY, few)}
    assert names <= {task.name for task in tasks.sample(EVERY, few + more)}
    counts = Counter(task.kind for task in EVERY)
    assert len(names) == sum(min(few, count) for count in counts.values())
    assert sorted(tasks.sample(EVERY, 0), key=EVERY.index) == EVERY


def test_five_edits_of_a_kind_have_all_languages() -> None:
    for kind in tasks.EDITS:
        chosen = [task for task in tasks.sample(EVERY, 5) if task.kind == kind]
        assert {Path(task.request.path).suffix for task in chosen} == set(LANGUAGES)


@pytest.mark.parametrize(
    "task", [task for task in EVERY if task.kind == "completion"], ids=lambda task: task.name
)
def test_a_completion_is_right_if_its_first_line_is(task: tasks.Task) -> None:
    text = tasks.source(task.request.path)
    gone = text[len(task.request.text) : len(text) - len(task.request.suffix or "")]
    assert task.request.text + gone + (task.request.suffix or "") == text and gone.strip()
    assert task.passes(gone) is True and task.passes(f" {gone}\n  and more") is True
    assert task.passes("") is False and task.passes(gone[:-1]) is False


def test_an_answer_is_right_if_it_says_what_the_document_says() -> None:
    questions = {task.name: task for task in EVERY if task.kind == "question"}
    assert questions["question-trees"].passes("There are ninety-four trees.") is True
    assert questions["question-trees"].passes("There are 194 trees.") is False
    assert questions["question-drowned"].passes("Seven of the twelve drowned.") is True
    assert questions["question-drowned"].passes("They were cut down.") is False
    assert questions["question-winter-timetable"].passes("At 18:50.") is True
    assert questions["question-oldest-rust"].passes("1.39") is False
    assert all(task.passes("I do not know.") is False for task in questions.values())
    assert all(task.passes("x") is None for task in EVERY if task.kind in tasks.KINDS[4:])


def test_the_licence_of_every_package_is_there() -> None:
    table = (tasks.FOLDER / "LICENSES").read_text("utf-8").split("\n---")[0]
    listed = {line.split("  ")[0] for line in table.splitlines()}
    for folder in tasks.CODE.iterdir():
        assert any(folder.name in line.split(", ") for line in listed), folder.name
