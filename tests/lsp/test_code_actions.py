"""Code actions: the lines that an action without a selection applies to."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsp_server.editing.code_actions import block_around
from lsp_server.protocol.positions import Text

PYTHON = """import math


@dataclass
@frozen
class Circle:
    radius: float

    @property
    def area(self):
        if self.radius:

            return math.pi
        else:
            return 0

    def name(self):
        return "circle"


x = 1
y = 2

z = 3
"""
BRACES = """function one(a) {
  if (a) {
    two();
  } else {
    three();
  }
  return 4;
}

const five = () => {
  six();
};
"""


def lines(source: str, text: str) -> str:
    """The block around the first occurrence of `text`."""
    start, stop = block_around(Text.of(source), source.index(text))
    assert start == 0 or source[start - 1] in "\r\n"
    return source[start:stop]


@pytest.mark.parametrize(
    ("source", "at", "first", "last"),
    [
        (PYTHON, "radius: float", "@dataclass", 'return "circle"'),
        (PYTHON, "class Circle", "@dataclass", 'return "circle"'),
        (PYTHON, "def area", "    @property", "            return 0"),
        (PYTHON, "return math", "        if self.radius", "            return math.pi"),
        (PYTHON, "return 0", "        else:", "            return 0"),
        (PYTHON, '"circle"', "    def name", '        return "circle"'),
        (PYTHON, "y = 2", "x = 1", "y = 2"),
        (PYTHON, "z = 3", "z = 3", "z = 3"),
        (PYTHON, "import", "import math", "import math"),
        (BRACES, "two()", "  if (a)", "  }"),
        (BRACES, "return 4", "function one", "}"),
        (BRACES, "six()", "const five", "};"),
    ],
)
def test_the_block_around_an_offset(source: str, at: str, first: str, last: str) -> None:
    found = lines(source, at)
    assert found.startswith(first) and found.endswith(last), found


@given(
    st.lists(
        st.sampled_from(["", "a:", "  b {", "  }", "    c", "@d", "\t", "else:", "end", "é😋"]),
        max_size=20,
    ),
    st.sampled_from(["\n", "\r\n", "\r"]),
    st.data(),
)
def test_a_block_is_whole_lines_around_the_offset(
    parts: list[str], end: str, data: st.DataObject
) -> None:
    text = Text.of(end.join(parts))
    offset = data.draw(st.integers(0, len(text.text)))
    start, stop = block_around(text, offset)
    own = text.line(text.line_of(offset))
    assert start <= own[1] and stop >= start
    starts = {text.line(number)[0] for number in range(text.line_count)}
    assert start in starts
    assert stop in {text.line(number)[1] for number in range(text.line_count)}
    if text.text[slice(*own)].strip():
        assert start <= own[0] and own[1] <= stop


def test_an_empty_document() -> None:
    assert block_around(Text.of(""), 0) == (0, 0)
    assert block_around(Text.of("\n\n"), 1) == (1, 1)
