"""The definition around a place: innermost, whole lines, with what is attached to it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.editing.definition import definition_around

PYTHON = """import os

# about
@dataclass
class Circle:
    radius = 1

    @property
    def area(self):
        if self.radius:
            return 1

        return 0

    def name(self):
        return "é😋"  # the end


x = 1
"""
SCRIPT = """import a from "a";

/** Five. */
export const five = async (x: number) => {
  six(() => {
    return x;
  });
};
const RATE = { a: 1 }; // a rate
function seven() {}
"""
RUST = """/// Doc.
#[derive(Debug)]
pub struct Point { x: i32 }

impl Point {
    // c
    fn go(&self) -> i32 {
        1
    }
}
"""


@pytest.mark.parametrize(
    ("path", "text", "at", "first", "last"),
    [
        ("a.py", PYTHON, "# about", "# about", 'return "é😋"  # the end'),
        ("a.py", PYTHON, "radius = 1", "# about", 'return "é😋"  # the end'),
        ("a.py", PYTHON, "@property", "    @property", "        return 0"),
        ("a.py", PYTHON, "return 1", "    @property", "        return 0"),
        ("a.py", PYTHON, "the end", "    def name", 'return "é😋"  # the end'),
        ("a.ts", SCRIPT, "return x", "/** Five. */", "};"),
        ("a.ts", SCRIPT, "seven", "function seven", "() {}"),
        ("a.rs", RUST, "derive", "/// Doc.", "x: i32 }"),
        ("a.rs", RUST, "  1", "    // c", "    }"),
        ("a.rs", RUST, "impl", "impl Point", "}"),
    ],
)
def test_the_innermost_definition(path: str, text: str, at: str, first: str, last: str) -> None:
    span = definition_around(path, text, text.index(at))
    assert span is not None
    found = text[slice(*span)]
    assert found.startswith(first) and found.endswith(last), found


@pytest.mark.parametrize(
    ("path", "text", "at"),
    [("a.py", PYTHON, "import"), ("a.py", PYTHON, "x = 1"), ("a.ts", SCRIPT, "RATE"),
     ("a.txt", PYTHON, "return 1"), ("a.py", "", "")],
)  # fmt: skip
def test_no_definition(path: str, text: str, at: str) -> None:
    assert definition_around(path, text, text.index(at)) is None


@given(
    st.sampled_from([("a.py", PYTHON), ("a.ts", SCRIPT), ("a.rs", RUST)]),
    st.sampled_from(["\n", "\r\n", "\r"]),
    st.data(),
)
def test_it_is_whole_lines_around_the_place_and_the_same_for_all_of_a_line(
    source: tuple[str, str], end: str, data: st.DataObject
) -> None:
    path, text = source[0], source[1].replace("\n", end)
    at = data.draw(st.integers(0, len(text)))
    span = definition_around(path, text, at)
    if span is None:
        return
    start, stop = span
    assert start <= at <= stop + len(end)
    assert start == 0 or text[start - 1] in "\r\n"
    assert text[stop - 1] not in "\r\n" and text[stop : stop + 1] in ("", "\r", "\n")
    line = max(text.rfind("\n", 0, at), text.rfind("\r", 0, at)) + 1
    assert definition_around(path, text, line) == span or text[at - 1 : at + 1] == "\r\n"
