"""Of a long file, the functions and classes that an instruction names are edited one by one."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.editing.edits import WHOLE_FILE_LINES, line_count
from engine.editing.parts import named_parts

SHORT = "def small(a):\n    return a + 1\n"
LONG_CLASS = "class Big:\n" + "".join(
    f"    def method_{number}(self):\n        return {number}\n" for number in range(60)
)
OTHER = f"@cache\n{SHORT.replace('small', 'other')}"
TEXT = f"import os\n\nLIMIT = 3\n\n\n{SHORT}\n\n{OTHER}\n\n{LONG_CLASS}"


def parts(names: list[str], text: str = TEXT, path: str = "a.py") -> list[str]:
    return [text[start:stop] for start, stop in named_parts(path, text, names)]


def test_a_short_definition_is_one_part_with_its_decorators() -> None:
    assert parts(["small"]) == [SHORT.rstrip()]
    assert parts(["other"]) == [OTHER.rstrip()]


def test_of_a_long_class_the_methods_are_parts() -> None:
    assert parts(["method_7"]) == ["    def method_7(self):\n        return 7"]
    assert parts(["method_7", "small"]) == [SHORT.rstrip(), *parts(["method_7"])]


def test_no_part_without_a_name_or_a_grammar() -> None:
    assert parts([]) == parts(["nowhere"]) == parts(["LIMIT"]) == parts(["mall"]) == []
    assert parts(["small"], path="a.txt") == []


def test_a_long_function_with_nothing_inside_is_one_part() -> None:
    text = "def f():\n" + "    a = 1\n" * 200
    assert parts(["a"], text) == [text.rstrip()]


@pytest.mark.parametrize("name", ["checks.py", "edits.py", "rename.py"])
@given(data=st.data())
def test_parts_are_disjoint_in_order_and_have_a_name(name: str, data: st.DataObject) -> None:
    path = Path(__file__).resolve().parents[2] / "engine" / "editing" / name
    text = path.read_text()
    words = sorted(set(text.replace("(", " ").split()) & set(text.split()))
    names = [word for word in words if word.isidentifier()]
    wanted = data.draw(st.lists(st.sampled_from(names), min_size=1, max_size=3))
    last = 0
    for start, stop in named_parts(name, text, wanted):
        assert last <= start < stop
        last = stop
        assert any(word in text[start:stop] for word in wanted)
        assert line_count(text[start:stop]) <= WHOLE_FILE_LINES
