"""Which renames an instruction asks for."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from engine.editing.dialogue import by_rule
from engine.editing.edits import EditRefused
from engine.editing.rename_request import RenameRequest, read, replaced_names
from engine.records import Request

PLAIN = RenameRequest("path", "source")


@pytest.mark.parametrize(
    ("instruction", "renames"),
    [
        ("Rename path to source", [PLAIN]),
        ("rename path to source.", [PLAIN]),
        ("Please rename path into source everywhere!", [PLAIN]),
        ("Can you rename  path\nto source in this file", [PLAIN]),
        ("Rename path to source in this function", [RenameRequest("path", "source", in_part=True)]),
        ("Rename path -> source", [PLAIN]),
        ("rename path→source", [PLAIN]),
        ("Change the name of path to source", [PLAIN]),
        ("Rename `path` to `source`", [PLAIN]),
        ("Rename \u201cpath\u201d to 'source'", [PLAIN]),
        ("Rename `path()` to `source()`", [PLAIN]),
        ("Rename the parameter path to source", [RenameRequest("path", "source", ("parameter",))]),
        ("Rename path parameter to source", [RenameRequest("path", "source", ("parameter",))]),
        (
            "The class path should be called source",
            [RenameRequest("path", "source", ("class", "type"))],
        ),
        (
            "Change the method's name from path to source",
            [RenameRequest("path", "source", ("method",))],
        ),
        (
            "Rename self.path to self.source",
            [RenameRequest("path", "source", ("attribute", "method"))],
        ),
        (
            "Rename Reader.path to source",
            [RenameRequest("path", "source", ("attribute", "method"), owner="Reader")],
        ),
        (
            "Rename the method `Reader.path()` to `Reader.source()`",
            [RenameRequest("path", "source", ("method",), owner="Reader")],
        ),
        (
            "Rename the method `path` of `Reader` to `source`",
            [RenameRequest("path", "source", ("method",), owner="Reader")],
        ),
        (
            "Rename the path parameter of the function load to source",
            [RenameRequest("path", "source", ("parameter",), owner="load")],
        ),
        ("Rename path in load to source", [RenameRequest("path", "source", owner="load")]),
        ("Rename path to source and rename a to b", [PLAIN, RenameRequest("a", "b")]),
        (
            "Rename path to source, a to b and c to d",
            [PLAIN, RenameRequest("a", "b"), RenameRequest("c", "d")],
        ),
        (
            "Rename path to source, also in comments",
            [RenameRequest("path", "source", in_comments=True)],
        ),
        (
            "Rename path to source in the comments and docstrings, too",
            [RenameRequest("path", "source", in_comments=True, in_strings=True)],
        ),
        ("Rename the variables to snake_case", []),
        ("Rename path to something better", []),
        ("Rename it to source", [RenameRequest("it", "source", certain=False)]),
        ("Rename `it` to source", [RenameRequest("it", "source")]),
        ("Rename a variable to source", []),
        ("Rename the function", []),
        ("Rename path to source and add type hints", []),
        ("Rename path to source in load only", []),
        ("Rename path to source in the comments", []),
        ("Do not rename path to source", []),
        ("Rename variables to camelCase", []),
        ("Rename all functions to f", []),
        ("Add a docstring", []),
        ("", []),
    ],
)
def test_instructions(instruction: str, renames: list[RenameRequest]) -> None:
    assert read(instruction) == renames


@given(st.text(max_size=80), st.text(max_size=20))
@example("a and b to c", "")
def test_no_instruction_fails(instruction: str, more: str) -> None:
    for text in (
        instruction,
        f"rename {instruction} to {more}",
        f"Rename `{more}` to `{instruction}`",
    ):
        for request in read(text):
            assert request.old and request.new
        with contextlib.suppress(EditRefused):
            by_rule(Request("edit", "a = 1\n", "a.py", instruction=text))


def test_names_that_are_replaced_among_other_things() -> None:
    assert replaced_names("Rename the parameter `a` to `b`, and c to d.") == [("a", "b")]
    assert replaced_names("replace foo() with bar") == [("foo", "bar")]
    assert replaced_names("Make a of b") == []


@given(st.text())
def test_any_instruction_is_read(text: str) -> None:
    assert isinstance(replaced_names(text), list)
