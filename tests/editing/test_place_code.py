"""Code of an answer goes where it belongs: imports, definitions, and everything else."""

from __future__ import annotations

import ast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.editing.place_code import place_code

SHOP = '''"""A shop."""

import os
from typing import Any


class Shop:
    name = "x"

    # what is in it
    @property
    def size(self):
        return 1

    def close(self):
        return 2


def total(prices):
    found = sum(prices)
    return found


print(total([1]))
'''
CART = """import a from "a";

export class Cart {
  total(): number {
    return 1;
  }
}

/** Five. */
export const five = (x: number) => {
  return x;
};
"""


def placed(text: str, at: str, code: str, path: str = "shop.py") -> str:
    offset = text.index(at)
    return place_code(path, text, (offset, offset), code)


def test_imports_go_to_the_imports_and_a_definition_behind_the_one_at_the_cursor() -> None:
    code = "import re\nfrom typing import Any, Iterable\n\ndef half(x):\n    return x / 2\n"
    new = placed(SHOP, "found = sum", code)
    assert "import os\nimport re\nfrom typing import Any, Iterable\n\n\nclass" in new
    assert "    return found\n\n\ndef half(x):\n    return x / 2\n\n\nprint(" in new
    assert len(new.splitlines()) == len(SHOP.splitlines()) + 5


@pytest.mark.parametrize("at", ["return 1", "size(self)", "# what is in it"])
def test_a_method_comes_behind_the_method_at_the_cursor(at: str) -> None:
    new = placed(SHOP, at, "def open(self):\n    return 3\n")
    assert "        return 1\n\n    def open(self):\n        return 3\n\n    def close" in new


def test_a_method_at_no_method_ends_the_class() -> None:
    new = placed(SHOP, 'name = "x"', "def open(self):\n    return 3\n")
    assert "        return 2\n\n    def open(self):\n        return 3\n\n\ndef total" in new


def test_a_function_at_a_method_comes_behind_the_class() -> None:
    new = placed(SHOP, "return 1", "def half(x):\n    return x\n")
    assert "        return 2\n\n\ndef half(x):\n    return x\n\n\ndef total" in new


def test_a_definition_takes_the_place_of_its_namesake_and_what_is_above_stays() -> None:
    new = placed(SHOP, "print", "def size(self):\n    # bigger\n    return 9\n")
    above = "    # what is in it\n    @property\n"
    assert f"{above}    def size(self):\n        # bigger\n        return 9\n\n    def close" in new
    new = placed(SHOP, "print", "@cached\ndef size(self):\n    return 9\n")
    assert "    # what is in it\n    @cached\n    def size(self):\n        return 9\n" in new


def test_a_method_is_one_of_the_class_at_the_cursor() -> None:
    two = SHOP.replace("\n\ndef total", "\n\nclass Bag:\n    size = 2\n\n\ndef total")
    code = "def close(self):\n    return 9\n"
    new = placed(two, "size = 2", code)
    assert "    size = 2\n\n    def close(self):\n        return 9\n\n\ndef total" in new
    assert "        return 2\n" in new  # of the other class
    assert "        return 9\n\n\nclass Bag:" in placed(two, "print", code)
    setter = "@size.setter\ndef size(self, new):\n    self.x = new\n"
    new = placed(SHOP, "return 1", setter)
    assert "        return 1\n\n    @size.setter\n    def size(self, new):\n" in new
    assert placed(new, "return 1", setter) == new


def test_an_export_stays_and_methods_need_no_class_around_them() -> None:
    new = placed(CART, "return x", "const five = (x: string) => {\n  return 5;\n};\n", "cart.ts")
    assert "/** Five. */\nexport const five = (x: string) => {\n  return 5;\n};\n" in new
    code = 'import b from "b";\nempty(): void {\n  b();\n}\n'
    new = placed(CART, "return 1", code, "cart.ts")
    assert new.startswith('import a from "a";\nimport b from "b";\n\nexport')
    assert "    return 1;\n  }\n\n  empty(): void {\n    b();\n  }\n}\n" in new


def test_statements_are_put_at_the_cursor_and_in_the_place_of_a_selection() -> None:
    new = placed(SHOP, "found = sum", "import re\nif prices:\n    print(prices)\n")
    assert "    found = sum(prices)\n    if prices:\n        print(prices)\n    return" in new
    assert "import re\nfrom typing import Any\n" in new
    start = SHOP.index("found = sum")
    span = start, SHOP.index("return found") + 3
    new = place_code("shop.py", SHOP, span, "import re\nreturn re.x\n")
    assert "def total(prices):\n    return re.x\n\n\nprint" in new and "import re\nfrom" in new


def test_languages_without_a_grammar_and_empty_files() -> None:
    ruby = "def a\n  1\nend\n"
    assert placed(ruby, "1", "two\nthree", "a.rb") == "def a\n  1\n  two\n  three\nend\n"
    assert place_code("a.py", "", (0, 0), "def f():\n    pass\n").strip() == "def f():\n    pass"
    assert place_code("a.py", SHOP, (3, 3), " \n") == SHOP


CODES = [
    "import re\n\ndef half(x):\n    return x\n",
    "def open(self):\n    return 3\n",
    "def total(prices):\n    return 0\n",
    "@property\ndef size(self):\n    return 4\n\n\ndef new():\n    pass\n",
    "class Shop:\n    pass\n",
    "import os\nfrom typing import Any\n",
]


@given(st.sampled_from(CODES), st.data(), st.sampled_from(["\n", "\r\n", "\r"]))
def test_definitions_placed_anywhere_leave_a_program_that_has_them_once(
    code: str, data: st.DataObject, end: str
) -> None:
    text = SHOP.replace("\n", end)
    at = data.draw(st.integers(0, len(text)))
    once = place_code("shop.py", text, (at, at), code)
    assert once.count(end) == len(once.splitlines())
    tree = ast.parse(once)
    names = [node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    assert len(names) == len(set(names))
    assert place_code("shop.py", once, (at, at), code) == once
