"""Where a language server can be asked for a rename: wherever the name may be meant, or nowhere."""

from __future__ import annotations

import pytest

from engine.editing import rename_request
from engine.editing.rename_places import rename_places

PLAIN = "Rename x to y"
PY_CLASS = "class C:\n    x@ = 1\n    def f(self): return self.x@\n"


def marked_places(marked: str, path: str, instruction: str, selected: bool = True) -> list[int]:
    """The starts of the places; the whole text is selected, or nothing is."""
    text = marked.replace("@", "")
    (request,) = rename_request.read(instruction)
    selection = (0, len(text)) if selected else None
    return [place.start for place in rename_places(path, text, selection, request)]


@pytest.mark.parametrize(
    ("path", "marked", "instruction"),
    [
        ("a.py", "def f(x@):\n    return x@ + len('x')  # x\n", PLAIN),
        ("a.py", "from a import x@\nx@()\n", "Rename the function x to y"),
        ("a.py", "print(x@)\n", PLAIN),  # of another module
        ("a.py", "a.x@()\n", PLAIN),
        ("a.py", PY_CLASS, "Rename self.x to self.y"),
        ("a.py", "def f(x@):\n    return a.x\n", "Rename the parameter x to y"),
        ("a.ts", "import { x@ } from 'a';\nexport const z = x@ + 1;\n", PLAIN),
        ("a.go", "package a\n\nfunc f(x@ int) int { return x@ } // x\n", PLAIN),
        ("a.go", "package a\n\nfunc f(a A, x int) { a.x@ = x }\n", "Rename the field x to y"),
        ("a.go", "package a\n\nfunc f(a A, x@ int) { a.x = x@ }\n", "Rename the variable x to y"),
        ("a.rs", "struct A { x@: u8 }\nfn f(a: A) { a.x@ }\n", PLAIN),
        ("a.c", "int x@(void) { return x@(); }\n", PLAIN),
        ("A.java", "class A { int f(int x) { return this.x@; } }", "Rename the field x to y"),
        ("a.ts", "class A { x@() {} }\nclass B { x() {} }\n", "Rename A.x to y"),
        ("a.ts", "class A { x@() {} }\nfunction x() {}\n", "Rename the method x of A to y"),
    ],
)
def test_places(path: str, marked: str, instruction: str) -> None:
    expected = [at - nth for nth, at in enumerate(marks(marked))]
    assert marked_places(marked, path, instruction) == expected


def marks(marked: str) -> list[int]:
    return [at for at in range(len(marked)) if marked.startswith("x@", at)]


@pytest.mark.parametrize(
    ("path", "text", "instruction"),
    [
        ("a.py", "def f(x):\n    return a.x\n", PLAIN),  # either of two
        ("a.go", "package a\n\nfunc f(a A, x int) { a.x = x }\n", PLAIN),
        ("a.py", "x = 1\n", "Rename the parameter x to y"),
        ("a.py", "x = 1\n", "Rename x to class"),
        ("a.py", "x = 1\n", "Rename x to x"),
        ("a.py", "x = 1  # x\n", "Rename x to y, also in comments"),
        ("a.py", "y = 1  # x\n", PLAIN),
        ("a.md", "x\n", PLAIN),
    ],
)
def test_none(path: str, text: str, instruction: str) -> None:
    assert marked_places(text, path, instruction) == []


def test_only_what_is_selected() -> None:
    (request,) = rename_request.read(PLAIN)
    text = "x = 1\nprint(x)\n"
    assert [place.start for place in rename_places("a.py", text, (6, 15), request)] == [12]
    (in_function,) = rename_request.read("Rename x to y in this function")
    assert rename_places("a.py", text, None, in_function) == []
