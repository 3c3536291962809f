"""Faults that an edit adds are found, and the same code in both texts is not reported."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.editing.checks import check_edit
from engine.records import Request

OLD = """#!/usr/bin/env python
# Copyright of all.

\"\"\"Reads and writes lines of files.\"\"\"

import os

__all__ = ["load", "save"]


def load(path, size):
    lines = open(path).read(size)
    return [each for each in lines if each]


def save(path, text):
    open(path, "w").write(text)
    return load(path, 3)


class Store:
    def __init__(self, path):
        self.path = path

    def first(self, size=1):
        return load(self.path, size)

    def rest(self):
        return self.first(2)
"""
BODY = "    lines = open(path).read(size)\n    return [each for each in lines if each]\n"


def kinds(new: str, instruction: str = "Go on", old: str = OLD, path: str = "a.py") -> set[str]:
    request = Request("edit", old, path=path, instruction=instruction)
    return {failed.kind for failed in check_edit(request, new).failed}


@pytest.mark.parametrize(
    ("old", "new", "kind"),
    [
        (BODY, BODY.replace("(size)", "(text)"), "undefined"),  # of another function
        ("load(self.path", "first(self.path", "undefined"),  # a method, without `self`
        ("load(self.path", "load(self.folder", "attributes"),
        ("load(path, size)", "load(path, size, strict=False)", "unused"),
        ("def load(path, size)", "def load(path)", "calls"),
        ("first(self, size=1)", "first(self, size, mode)", "calls"),
        (BODY, BODY.replace("return", "lines ="), "returns"),
        (BODY, "    # ... rest of the function\n    return []\n", "placeholders"),
        (BODY, BODY.replace("lines = open", "# lines = open"), "commented"),
        (BODY, BODY + "    print(path)\n", "unreachable"),
        ("= open(path).read(size)", "= await read(path, size)", "await"),
        ('"""Reads and writes lines of files."""\n', "", "docstrings"),
        ("# Copyright of all.\n", "", "top"),
        ("#!/usr/bin/env python\n", "", "top"),
        ('["load", "save"]', '["load"]', "exports"),
    ],
)
def test_faults(old: str, new: str, kind: str) -> None:
    """The one text is found where it comes in place of the other, and not where it was before."""
    assert old in OLD
    changed = OLD.replace(old, new)
    assert kind in kinds(changed)
    more = changed.replace("import os", "import os, re")
    assert kinds(more, "Import re", changed) == set()


@pytest.mark.parametrize(
    ("asked", "old", "new"),
    [
        ("Comment out the line that reads", "    lines = open", "    # lines = open"),
        ("Print the lines; return nothing", "    return [each", "    print([each"),
        ("Do not export save", '["load", "save"]', '["load"]'),
        ("Remove the copyright", "# Copyright of all.\n", ""),
        ("Remove the shebang", "#!/usr/bin/env python\n", ""),
        ("Remove the docstring", '"""Reads and writes lines of files."""\n', ""),
    ],
)
def test_what_is_asked_for_is_no_fault(asked: str, old: str, new: str) -> None:
    faults = {"commented", "returns", "exports", "top", "docstrings"}
    assert not kinds(OLD.replace(old, new), asked) & faults


@pytest.mark.parametrize(
    ("asked", "old", "new", "passes"),
    [
        ("Add a parameter mode to load", "size):", "size, kind=1):", False),
        ("Add an optional argument `mode` to load", "size):", "size, mode=1):", True),
        ("Add a parameter to load", "size):", "size, mode=1):", True),
        ("Raise a KeyError if path is None", "    lines", "    assert path\n    lines", False),
        ("Handle PermissionError", "    lines", "    assert path\n    lines", False),
        ("Raise something, not KeyError", "    lines", "    assert path\n    lines", True),
        ("Change the default of size to 25", "size=1", "size=2", False),
        ("Change the default of size to 25", "size=1", "size=25", True),
        ("Return 'no lines' for none", "if each]", "if each] or 'none'", False),
        ("Return 'no lines' for none", "if each]", "if each] or 'no lines'", True),
    ],
)
def test_what_the_instruction_names_is_there(asked: str, old: str, new: str, passes: bool) -> None:
    assert ("missing" not in kinds(OLD.replace(old, new), asked)) == passes


def test_a_variable_that_is_asked_for_is_used() -> None:
    new = OLD.replace("    lines = open", "    count = size\n    lines = open")
    assert "unused" in kinds(new, "Use a variable count")
    assert "unused" not in kinds(new, "Go on")


@pytest.mark.parametrize(("added", "passes"), [("mode", False), ("mode=1", True)])
def test_a_parameter_that_is_to_be_optional_has_a_default(added: str, passes: bool) -> None:
    new = OLD.replace("save(path, text)", f"save(path, text, {added})")
    for asked in ("Add an optional parameter mode to save", "Add a mode, by default 1"):
        assert ("optional" not in kinds(new, asked)) == passes
    assert "optional" not in kinds(new, "Add a parameter mode to save")


@pytest.mark.parametrize(
    ("asked", "passes"),
    [("Fix load", False), ("Make the function `load` faster", False), ("Fix save", True),
     ("Use load in save", True), ("Fix the code", True)],
)  # fmt: skip
def test_what_the_instruction_begins_to_speak_of_changes(asked: str, passes: bool) -> None:
    new = OLD.replace("load(path, 3)", "load(path, 4)")
    assert ("untouched" not in kinds(new, asked)) == passes


PIECES = [
    "def f(a, b=1):", "    x = a", "    return x", "    return", "    y: int = await a", "class A:",
    "    def g(self, c):", "        self.d = c", "        return self.e", "f(1, 2)", "'d'",
    "__all__ = ['f']", "# existing code", "from a import *", "    global x", "    del x",
    "async def h(): pass",
]  # fmt: skip
TEXTS = st.lists(st.sampled_from(PIECES), max_size=12).map("\n".join)


@given(TEXTS, TEXTS, st.sampled_from(["a.py", "a.ts", "a.go"]))
def test_any_text_is_checked(old: str, new: str, path: str) -> None:
    assert isinstance(kinds(new, "Go on", old, path), set)
