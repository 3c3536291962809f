"""Imports are sorted as isort's rules in ruff sort them, and unused ones are those that ruff finds;
what a rule cannot know is left to the model."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.editing.dialogue import by_rule
from engine.editing.edits import EditRefused
from engine.editing.imports import ImportEdit, read
from engine.records import Request

SORT, UNUSED = "Sort the imports", "Remove unused imports"


def edit(text: str, instruction: str, path: str = "a.py") -> str | None:
    made = by_rule(Request("edit", text, path, instruction=instruction))
    return made.text if made else None


@pytest.mark.parametrize(
    ("instruction", "edit"),
    [
        (SORT, ImportEdit(order=True)),
        ("please organise imports in this file.", ImportEdit(order=True)),
        ("Sort and group the imports", ImportEdit(order=True)),
        (UNUSED, ImportEdit(unused=True)),
        ("Remove the unused import os", ImportEdit(unused=True, name="os")),
        ("Remove unused import `os`", ImportEdit(unused=True, name="os")),
        ("Sort imports and remove unused ones", ImportEdit(order=True, unused=True)),
        ("Remove unused imports, then sort the rest", ImportEdit(order=True, unused=True)),
        ("Clean up the imports", None),
        ("Sort the list", None),
        ("Sort imports by length", None),
        ("Remove the import of os", None),
        ("Add the missing imports", None),
        ("", None),
    ],
)
def test_instructions(instruction: str, edit: ImportEdit | None) -> None:
    assert read(instruction) == edit


MESSY = '''"""A module."""

import sys, os
from . import near
from collections import OrderedDict, abc, deque, MAXSIZE
from ..far import it
import numpy as np
from __future__ import annotations
import re

import module10
import module9

X = 1
'''
TIDY = '''"""A module."""

from __future__ import annotations

import os
import re
import sys
from collections import MAXSIZE, OrderedDict, abc, deque

import numpy as np

import module9
import module10

from ..far import it
from . import near

X = 1
'''


def test_order() -> None:
    assert edit(MESSY.replace("import numpy as np\n", ""), SORT) == TIDY.replace(
        "import numpy as np\n\n", ""
    )
    assert edit(TIDY, SORT) == TIDY
    made = by_rule(Request("edit", TIDY, "a.py", instruction=SORT))
    assert made is not None and made.rule == "the imports are sorted already"


def test_line_ends_and_layout_are_kept() -> None:
    text = "import sys\r\nfrom a import (\r\n    c,\r\n    b as d,\r\n)\r\nimport os\r\n"
    assert edit(text, SORT) == (
        "import os\r\nimport sys\r\n\r\nfrom a import (\r\n    b as d,\r\n    c,\r\n)\r\n"
    )
    assert edit("import b\nimport a", SORT) == "import a\nimport b"


LEFT = [
    (SORT, "import b  # first\nimport a\n"),
    (SORT, "import b\n# then\nimport a\n"),
    (SORT, "import b\nb.use()\nimport a\n"),
    (SORT, "from b import *\nimport a\n"),
    (SORT, "from b import x\nfrom a import x\n"),
    (SORT, "from b import x\nfrom b import y\n"),
    (SORT, "import b; import a\n"),
    (SORT, "from b import y, \\\n    x\n"),
    (SORT, "from b import (y,\n    x)\n"),
    (SORT, "import numpy\nimport os\n\nimport own\n"),
    (SORT, "x = 1\n"),
    (SORT, "import b\nimport (\n"),
    (UNUSED, "from b import *\nimport a\nprint(eval('a'))\n"),
    (UNUSED, "if a:\n    import b\n"),
    (
        UNUSED,
        "try:\n    import b\nexcept ImportError:\n    b = None\nimport c\ndef f(): import d\n",
    ),
    (UNUSED, "import a; import b\n"),
    (UNUSED, "from a import (  # a\n    b,\n    c,\n)\nb\n"),
]


@pytest.mark.parametrize(("instruction", "text"), LEFT)
def test_left_to_the_model(instruction: str, text: str) -> None:
    assert edit(text, instruction) is None


@pytest.mark.parametrize("path", ["a/__init__.py", "a.pyi", "a.d.ts", "a.txt"])
def test_files_whose_imports_are_left_to_the_model(path: str) -> None:
    assert edit("import a\n", UNUSED, path) is None


KEPT = """import typing, i, j
import a as a
import b  # noqa
import c
import d
import e
from f import g as g
__all__ = ["c"]
def h(x: "d.D", y: "list['j']"): "e"
typing.cast("list[i.I]", h)
"""


def test_what_may_be_used_is_kept() -> None:
    made = by_rule(Request("edit", KEPT.replace("# noqa", ""), "a.py", instruction=UNUSED))
    assert made is not None
    assert made.text == KEPT.replace("import b  # noqa\n", "").replace("# noqa", "")


REMOVED = [
    ("import os\n\n\ndef f(): pass\n", "def f(): pass\n"),
    ('"""A."""\n\nimport os\n\nX = 1\n', '"""A."""\n\nX = 1\n'),
    ("import os\nimport sys\n\nsys\n", "import sys\n\nsys\n"),
    ("from a import b, c, d\nc\n", "from a import c\nc\n"),
    ("from a import b, c, d\nb, d\n", "from a import b, d\nb, d\n"),
    ("from a import (\n    b,\n    c,\n    d,\n)\nb\n", "from a import (\n    b,\n)\nb\n"),
    ("import a.b, c as d\nd\n", "import c as d\nd\n"),
]


@pytest.mark.parametrize(("old", "new"), REMOVED)
def test_unused_imports_go(old: str, new: str) -> None:
    assert edit(old, UNUSED) == new
    ends = (old.replace("\n", "\r\n"), new.replace("\n", "\r\n"))
    assert edit(ends[0], UNUSED) == ends[1]


SCRIPT = """import "side-effect";
import Default from "a";
import * as all from "b";
import { one, two as three, four } from "c";
import {
  five,
  six,
} from "d";
import type { Seven } from "e";
import used, { eight } from "f";
import { Nine } from "g";

export const x: Seven = used(three, six, eight);
/** @see {Nine} */
"""
SCRIPT_LEFT = """import "side-effect";
import { two as three } from "c";
import {
  six,
} from "d";
import type { Seven } from "e";
import used, { eight } from "f";
import { Nine } from "g";

export const x: Seven = used(three, six, eight);
/** @see {Nine} */
"""


def test_unused_imports_of_typescript() -> None:
    assert edit(SCRIPT, UNUSED, "a.ts") == SCRIPT_LEFT
    assert edit(SCRIPT_LEFT, UNUSED, "a.ts") == SCRIPT_LEFT
    assert edit('import a, { b } from "c";\na;\n', UNUSED, "a.ts") is None
    assert (
        edit('import { a } from "c";\nvar a;\n', UNUSED, "a.js")
        == 'import { a } from "c";\nvar a;\n'
    )
    text = 'import React from "react";\nimport p from "p";\nexport const x = <b />;\n'
    assert edit(text, UNUSED, "a.tsx") == text.replace('import p from "p";\n', "")
    assert edit(SCRIPT, SORT, "a.ts") is None


def test_a_byte_order_mark_stays() -> None:
    assert edit("\ufeffimport b\nimport a\nb\n", UNUSED) == "\ufeffimport b\nb\n"
    assert edit("\ufeffimport b\nimport a\na\n", UNUSED) == "\ufeffimport a\na\n"


def test_one_unused_import() -> None:
    text = "import a\nimport b\nimport c\nc\n"
    assert edit(text, "Remove the unused import b") == "import a\nimport c\nc\n"
    with pytest.raises(EditRefused, match="`c` is not an unused import"):
        edit(text, "Remove the unused import c")


def test_sorted_without_the_unused() -> None:
    assert edit("import b\nimport a\nimport c\nb, a\n", "Sort imports and remove unused ones") == (
        "import a\nimport b\nb, a\n"
    )


def ruff(rule: str, text: str) -> str:
    command = [sys.executable, "-m", "ruff", "check", "--isolated", "--fix", "--quiet"]
    command += ["--select", rule, "--stdin-filename", "x/a.py", "-"]
    result = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    return result.stdout


modules = st.sampled_from(["os", "sys", "re", "os.path", "b10", "b9", "B", "a_b", ".r", "..q", "."])
members = st.sampled_from(["x", "Y", "Zed", "MAX", "z10", "z9", "_p"])
imports = st.one_of(
    modules.filter(lambda name: name[0] != ".").map("import {}".format),
    st.builds("import {} as {}".format, modules.filter(lambda name: name[0] != "."), st.just("w")),
    st.builds("from {} import {}".format, modules,
              st.lists(members, min_size=1, max_size=4, unique=True).map(", ".join)),
)  # fmt: skip


@settings(max_examples=25)
@given(st.lists(imports, min_size=1, max_size=7), st.sampled_from(["x", "os, w", "Y, MAX, sys"]))
def test_the_same_as_ruff(statements: list[str], used: str) -> None:
    text = "\n".join([*statements, "", f"print({used})", ""])
    ordered = edit(text, SORT)
    if ordered is not None:
        assert ordered == ruff("I001", text)
    left = edit(text, UNUSED)
    if left is not None and ordered is not None:  # None: ruff also removes a name that is rebound
        assert left.lstrip() == ruff("F401", text).lstrip()


def test_many_imports() -> None:
    count = 4000
    lines = [f"import n{i * i}\n" for i in range(count)]
    assert edit("".join(lines) + "n4()\n", UNUSED) == "import n4\nn4()\n"
    names = ", ".join(f"n{i * i}" for i in range(count))
    assert edit(f"from m import {names}\nn4()\n", UNUSED) == "from m import n4\nn4()\n"
    script = "".join(f"import {{n{i * i}}} from 'm';\n" for i in range(count))
    assert edit(f"{script}n4();\n", UNUSED, "a.ts") == "import {n4} from 'm';\nn4();\n"


def test_names_in_long_texts_may_be_used() -> None:
    words = ".".join(f"n{i * i}" for i in range(8000))
    for text in (f"x: 'list[{words}]' = 1\n", f"x = 1  # type: {words}\n"):
        assert edit(f"import n4, m\n{text}", UNUSED) == f"import n4\n{text}"
    assert edit(f"import n4\nx = '{words}!'\n", UNUSED) == f"x = '{words}!'\n"
    tags = "@".join(words.split("."))
    script = f"import {{n4}} from 'm';\nimport {{m}} from 'm';\n// @see {tags}\n"
    assert edit(script, UNUSED, "a.ts") == script.replace("import {m} from 'm';\n", "")


def test_where_lines_go_blank_ones_do_not_pile_up() -> None:
    for text, expected in (
        ("import a\n\nimport b\n\n\nx = 1\n", "x = 1\n"),
        ("\ufeffimport a\n \nx = 1\n", "\ufeffx = 1\n"),
        ("y = 1\n\nimport a\nimport b\n\nx = 1\n", "y = 1\n\nx = 1\n"),
        ("y = 1\n\nimport a\n\nimport b\n\nx = 1\n", "y = 1\n\nx = 1\n"),
        ("y = 1\nimport a\n\nx = 1\n", "y = 1\n\nx = 1\n"),
        ("y = 1\r\n\r\nimport a\r\n\r\nx = 1\r\n", "y = 1\r\n\r\nx = 1\r\n"),
    ):
        assert edit(text, UNUSED) == expected


def test_numbers_in_names_may_be_long() -> None:
    digits = "9" * 5000
    text = f"import a1{digits}\nimport a{digits}\nimport a09\nimport a10\n"
    assert edit(text, SORT) == f"import a09\nimport a10\nimport a{digits}\nimport a1{digits}\n"
