"""Blank lines around definitions stay as they were, and no other line changes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.editing.blank_lines import keep_blank_lines
from engine.records import Request

FILE = """import os


# Loads.
def load(path):

    return os.open(path)



class Store:
    x = 1

    def get(self):
        return 1


    def put(self):
        return 2


if __name__ == "__main__":
    load("a")
"""


def kept(new: str, instruction: str = "Go on", old: str = FILE, path: str = "a.py") -> str:
    return keep_blank_lines(Request("edit", old, path=path, instruction=instruction), new)


def squeezed(text: str) -> str:
    """A text with one blank line wherever there are some."""
    return "\n\n".join(filter(None, (part.strip("\n") for part in text.split("\n\n"))))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("return 2", "return 3"),
        ("return os.open(path)", "return os.open(path, 1)"),
        ("    def put(self):\n        return 2\n\n\n", ""),  # one goes
        ("class Store:", "def more():\n    return 3\n\n\nclass Store:"),
    ],
)
def test_the_blank_lines_between_lines_that_stay_are_the_files(old: str, new: str) -> None:
    wanted = FILE.replace(old, new)
    answer = kept(squeezed(wanted) + "\n").split("\n")
    lines = FILE.split("\n")
    assert [line for line in answer if line] == [line for line in wanted.split("\n") if line]
    for first, last in (("import os", "# Loads."), ("    x = 1", "    def get(self):")):
        gap, own = (text[text.index(first) + 1 : text.index(last)] for text in (answer, lines))
        assert gap == own


def test_layout_that_is_asked_for_and_lines_inside_functions_are_the_answers() -> None:
    new = FILE.replace("return 2", "return 3").replace("\n\n\n", "\n\n")
    assert kept(new, "Reformat it, and return 3") == new
    new = FILE.replace("    return os.open(path)\n\n", "    path = 1\n    return path\n\n")
    assert kept(new.replace("1\n    r", "1\n\n    r")) == new.replace("1\n    r", "1\n\n    r")
    new = FILE.replace("    return os", "    path = 1\n\n    return os")
    assert kept(new) == new
    blank = FILE.replace("\n\n\n", "\n\n")
    assert kept(blank) == blank  # nothing else: it is refused elsewhere
    assert kept("a\n\n\nb\n", old="a\n\nc\n", path="a.txt") == "a\n\n\nb\n"


def test_line_ends_stay() -> None:
    old = FILE.replace("\n", "\r\n")
    new = old.replace("return 2", "return 3")
    assert kept(new.replace("\r\n\r\n\r\n", "\r\n\r\n"), old=old) == new


LINES = st.sampled_from(
    ["def f():", "class A:", "    return 1", "    x = 1", "", "", "# a", "y = 2"]
)
TEXTS = st.lists(LINES, max_size=14).map("\n".join)


@given(TEXTS, TEXTS, st.sampled_from(["\n", "\r\n", "\r"]))
def test_only_blank_lines_differ(old: str, new: str, end: str) -> None:
    old, new = old.replace("\n", end), new.replace("\n", end)
    result = kept(new, old=old)
    assert list(filter(str.strip, result.splitlines())) == list(filter(str.strip, new.splitlines()))
    assert kept(old, old=old) == old
