"""Imports in the middle of a file move to the others; the oracle for Python is its own parser."""

from __future__ import annotations

import ast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.editing.moved_imports import move_imports
from engine.records import Request

HEAD = (
    '"""A module."""\n\nfrom __future__ import annotations\n\nimport os\nfrom typing import Any\n'
)
FUNCTION = "def f():\n    return 1\n"
TEXT = f"{HEAD}\n\n{FUNCTION}\n\ndef g():\n    return 2\n"


def moved(
    answer: str, text: str = TEXT, part: str = FUNCTION, path: str = "a.py", asked: str = "Do it."
) -> str:
    """The text after the part is replaced by an answer and its imports are moved."""
    start = text.index(part)
    span = (start, start + len(part))
    request = Request("edit", text, path=path, selection=span, instruction=asked)
    return move_imports(request, text[:start] + answer + text[span[1] :])


@pytest.mark.parametrize(
    ("answer", "imports"),
    [
        (f"import logging\n\n\n{FUNCTION}", "import logging\nimport os\n{}"),
        (f"import logging\n{FUNCTION}", "import logging\nimport os\n{}"),
        (f"import os\n\n{FUNCTION}", "import os\n{}"),  # is there already
        (f"from typing import Any, Final\n\n{FUNCTION}",
         "import os\nfrom typing import Any, Final\n"),
        (f"from typing import Any\n\n{FUNCTION}", "import os\n{}"),
        (f"from re import match\n\n{FUNCTION}", "import os\nfrom re import match\n{}"),
        (f"import sys\nimport json\n\n{FUNCTION}", "import json\nimport os\nimport sys\n{}"),
        (f"{FUNCTION}import json\n", "import json\nimport os\n{}"),
        (f"import numpy\n\n{FUNCTION}", "import os\n{}\nimport numpy\n"),
        (f"from .a import b\n{FUNCTION}", "import os\n{}\nfrom .a import b\n"),
    ],
)  # fmt: skip
def test_an_import_moves_to_its_place_among_the_others(answer: str, imports: str) -> None:
    typing = "from typing import Any\n"
    assert moved(answer) == TEXT.replace(f"import os\n{typing}", imports.format(typing))


def test_future_imports_come_first() -> None:
    text = TEXT.replace("from __future__ import annotations\n\n", "")
    new = moved(f"from __future__ import annotations\n{FUNCTION}", text)
    ast.parse(new)
    compile(new, "a.py", "exec")
    assert new.startswith('"""A module."""\n\nfrom __future__ import annotations\n\nimport os\n')


def test_a_file_without_imports() -> None:
    assert (
        moved(f"import re\n{FUNCTION}", f"x = 1\n{FUNCTION}") == f"import re\n\nx = 1\n{FUNCTION}"
    )
    text = f'"""Doc."""\n\n\n{FUNCTION}\n'
    assert moved(f"import re\n{FUNCTION}", text.replace("\n\n\n", "\n\nx = 1\n")) == (
        f'"""Doc."""\n\nimport re\n\nx = 1\n{FUNCTION}\n'
    )


@pytest.mark.parametrize(
    "answer",
    [
        "def f():\n    import re\n    return 1\n",  # inside a function
        "import re; x = 1\n" + FUNCTION,  # with other code
        "import re\ndef f(:\n",  # does not parse
        FUNCTION + "# import re\n",
    ],
)
def test_other_imports_stay(answer: str) -> None:
    assert moved(answer) == TEXT.replace(FUNCTION, answer)


def test_a_local_import_stays_if_asked_for() -> None:
    answer = f"import re\n{FUNCTION}"
    assert moved(answer, asked="Import re here.") == TEXT.replace(FUNCTION, answer)


def test_the_imports_at_the_top_stay_where_they_are() -> None:
    new = TEXT.replace("import os\n", "import os\nimport re\n")
    assert move_imports(Request("edit", TEXT, path="a.py", instruction="Do it."), new) == new


def test_a_method_and_line_ends() -> None:
    text = "import os\r\n\r\nclass A:\r\n    def f(self):\r\n        return 1\r\n"
    part = "    def f(self):\r\n        return 1\r\n"
    assert moved(f"    import re\r\n{part}", text, part) == text.replace(
        "os\r\n", "os\r\nimport re\r\n"
    )


@pytest.mark.parametrize(
    ("path", "text", "part", "added"),
    [
        ("a.ts", 'import { a } from "a";\n\nf();\n\nfunction g() {}\n', "function g() {}\n",
         'import { b } from "b";\n'),
        ("a.go", 'package a\n\nimport "fmt"\n\nfunc f() {}\n', "func f() {}\n", 'import "os"\n'),
        ("a.rs", "use std::fs;\n\nfn f() {}\n", "fn f() {}\n", "use std::io;\n"),
        ("a.c", "#include <a.h>\n\nint f(void) { return 1; }\n", "int f(void) { return 1; }\n",
         "#include <b.h>\n"),
    ],
)  # fmt: skip
def test_other_languages(path: str, text: str, part: str, added: str) -> None:
    first = next(line for line in text.splitlines(True) if line.startswith(("import", "use", "#")))
    assert moved(added + part, text, part, path) == text.replace(first, first + added)


IMPORTS = ["import re", "import os", "from a import b", "from typing import Any, Final", ""]
LINES = st.lists(st.sampled_from(IMPORTS), max_size=4)


@given(LINES, LINES)
def test_the_same_is_imported_and_the_rest_stays(above: list[str], below: list[str]) -> None:
    answer = (
        "".join(f"{line}\n" for line in above) + FUNCTION + "".join(f"{line}\n" for line in below)
    )
    new = moved(answer)
    tree, wanted = ast.parse(new), ast.parse(TEXT.replace(FUNCTION, answer))
    assert names(tree) == names(wanted)
    is_import = [isinstance(node, ast.Import | ast.ImportFrom) for node in tree.body]
    assert not any(is_import[is_import.index(False, 1) :])  # 0 is the docstring
    rest = [ast.dump(node) for node in ast.parse(TEXT).body[1:]]
    assert [ast.dump(node) for node in tree.body[1:]][-2:] == rest[-2:]
    request = Request("edit", TEXT, path="a.py", instruction="Do it.")
    assert move_imports(request, new) == new


def names(tree: ast.Module) -> set[tuple[str, str]]:
    """What a module imports: (module, name)."""
    return {
        (getattr(node, "module", "") or "", each.name)
        for node in tree.body
        if isinstance(node, ast.Import | ast.ImportFrom)
        for each in node.names
    }
