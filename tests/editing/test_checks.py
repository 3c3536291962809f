"""Checks of an edit: what nobody asked for is found, and good edits pass. The oracle for Python is
its own parser."""

from __future__ import annotations

import ast
import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from engine.editing.checks import check_edit
from engine.records import Request

PYTHON = '''import os


# Shared by all tests.
LIMIT = 10


def first(path, count):
    """The first lines of a file."""
    lines = []
    # Bytes, as the encoding is unknown.
    with open(path, "rb") as file:
        for line in file:
            lines.append(line)  # with its end
            if len(lines) == count:
                break
    if not lines:
        raise ValueError("the file has no lines")
    return lines


class Reader:
    path = "x"

    def read(self):
        return first(self.path, LIMIT)
'''
FIRST = PYTHON[PYTHON.index("def first") : PYTHON.index("\n\n\nclass")]
TYPESCRIPT = """import { join } from "path";

export function full(name: string): string {
  // Relative to the folder.
  return join("folder", name);
}

const twice = (count: number) => count * 2;
"""


def kinds(instruction: str, new: str, old: str = PYTHON, path: str = "a.py") -> set[str]:
    """The kinds of the checks that fail; each has one line for the user and one for the model."""
    failed = check_edit(Request("edit", old, path=path, instruction=instruction), new).failed
    assert all(one.warning and one.hint and "\n" not in one.warning + one.hint for one in failed)
    return {one.kind for one in failed}


def change(old: str, new: str, text: str = PYTHON) -> str:
    assert old in text
    return text.replace(old, new)


GOOD = [
    ("Rename the parameter path to source.", change("path, count", "source, count").replace(
        "open(path", "open(source")),
    ("Add type hints.", change("(path, count):", "(path: str, count: int) -> list[bytes]:")),
    ("Add type hints.", change("(path, count):", "(\n    path: str,\n    count: int,\n):")),
    ("Add docstrings.", change('    path = "x"', '    """Reads."""\n\n    path = "x"')),
    ("Translate the comments to German.", change("# with its end", "# mit Ende")),
    ("Remove the comment about bytes.", change(
        "    # Bytes, as the encoding is unknown.\n", "")),
    ("Use a comprehension.", change(FIRST, 'def first(path, count):\n    """The first lines of a '
        'file."""\n    # Bytes, as the encoding is unknown.\n    with open(path, "rb") as file:\n'
        "        return [*file][:count]")),
    ("Remove the class Reader.", PYTHON[: PYTHON.index("\n\nclass")]),
    ("Say in the message which file it is.", change(
        '"the file has no lines"', 'f"{path} has no lines"')),
    ("Log the count.", change("import os\n", "import os\nimport logging\n").replace(
        "    return lines\n", "    logging.info(count)\n    return lines\n")),
    ("Rename first to head.", change("first(", "head(")),
    ("Add a method `skip`.", PYTHON + "\n    def skip(self):\n        return None\n"),
    ("Return early.", change("lines = []", "if not count:\n        return []\n    lines = []")),
    ("Handle a missing file.", change("lines = []", "lines: list[bytes] = []")),
    ("Wrap the long lines.", change("lines.append(line)", "lines.append(\n            line\n)")),
    ("Remove all calls of len.", change("len(lines) == count", "lines[count - 1 :]")),
    ("Return None instead of raising ValueError.", change(
        '    raise ValueError("the file has no lines")', "    return None")),
    ("Import json, it is used soon.", change("import os\n", "import os\nimport json\n")),
    ("Reader.read: skip the first line.", change("LIMIT)", "LIMIT)[1:]")),
    ("Let `read` return more lines than LIMIT.", change("LIMIT = 10", "LIMIT = 20").replace(
        "LIMIT)", "2 * LIMIT)")),
]  # fmt: skip
BAD = [
    ("Sort the lines.", change("return lines", "return sorted(lines"), "syntax"),
    ("Sort the lines.", change('    """The first lines of a file."""\n', ""), "docstrings"),
    ("Sort the lines.", change("    # Bytes, as the encoding is unknown.\n", ""), "comments"),
    ("Sort the lines.", change("  # with its end", ""), "comments"),
    ("Sort the lines.", change("the file has no lines", "empty!"), "strings"),
    ("Sort the lines.", change("    def read(self):\n        return first(self.path, LIMIT)\n",
                               ""), "definitions"),
    ("Sort the lines.", change("LIMIT = 10\n", ""), "definitions"),
    ("Sort the lines.", change(FIRST, "return sorted(lines)"), "syntax"),
    ("Sort the lines.", change("return lines", "return numpy.sort(lines)"), "undefined"),
    ("Sort the lines.", change("import os\n", "").replace("LIMIT)", "os.sep)"), "undefined"),
    ("Sort the lines.", PYTHON[:200], "deleted"),
    ("Sort the lines.", PYTHON + "\n\nprint(first(__file__, 3))\n", "statements"),
    ("Sort the lines.", PYTHON + "\n\n" + FIRST + "\n", "duplicates"),
    ("Sort the lines.", PYTHON + "\n\nfrom heapq import Reader\n", "hidden"),
    ("Translate the comments to German.", change(
        "            lines.append(line)  # with its end",
        "            if not line:\n                continue\n"
        "            lines.append(line)  # mit Ende"), "code"),
    ("Add a docstring to read.", change("LIMIT)", "LIMIT + 1)"), "code"),
    ("Add type hints.", change("return lines", "return [*lines]"), "code"),
    ("Add a docstring and type hints.", change(
        "(path, count):", "(path: str, count: int) -> list[bytes]:"), "additions"),
    ("Rename path to source.", change("path, count", "source, count"), "rename"),
    ("Add a parameter `encoding`.", change("path, count", "path, count, coding"), "missing"),
    ("Add a function strip_end().", change("return lines", "return lines[:]"), "missing"),
    ("Write read with async and await.", change("    def read", "    async def read"), "missing"),
    ("Sort the numbers.", change("\n\n\ndef", "\n\ndef").replace("[]", "[ ]"), "blank"),
    ("Remove all calls of len.", change("= 10", "= 20"), "remaining"),
    ("Use an index instead of calling len.", change("lines = []", "lines = [0]"), "remaining"),
    ("Remove the class Reader and the rest.", PYTHON.replace("LIMIT = 10\n", ""), "definitions"),
    ("Delete the method read.", change("class Reader:\n", "class Reader:\n    name = 1\n").replace(
        '    path = "x"\n', ""), "definitions"),
    ("Log the count.", change("import os\n", "import os\nfrom logging import logs\n"), "imports"),
    ("Read on.", change("                break\n", "                pass\n"), "idle"),
]  # fmt: skip


@pytest.mark.parametrize(("instruction", "new"), GOOD)
def test_an_edit_that_does_what_was_asked_passes(instruction: str, new: str) -> None:
    ast.parse(new)
    assert new != PYTHON and kinds(instruction, new) == set()


@pytest.mark.parametrize(("instruction", "new", "kind"), BAD)
def test_what_nobody_asked_for_is_found(instruction: str, new: str, kind: str) -> None:
    assert kind in kinds(instruction, new)


@pytest.mark.parametrize(
    ("path", "old", "new", "kind"),
    [
        ("a.ts", TYPESCRIPT, change('"folder", name)', '"folder", name', TYPESCRIPT), "syntax"),
        ("a.ts", TYPESCRIPT, change("  // Relative to the folder.\n", "", TYPESCRIPT), "comments"),
        ("a.ts", TYPESCRIPT, change("const twice = (count: number) => count * 2;\n", "",
                                    TYPESCRIPT), "definitions"),
        ("a.ts", TYPESCRIPT, TYPESCRIPT + TYPESCRIPT[TYPESCRIPT.index("export") :], "duplicates"),
        ("a.go", "func (s *S) Sum() int { return 1 }\n", "func (s *S) Add() int { return 1 }\n",
         "definitions"),
        ("a.go", "type A struct{}\n", "type A struct{}\n\ntype A struct{}\n", "duplicates"),
        ("a.md", "# Usage of a\n\nb\n", "# Other\n\nb\n", "headings"),
        ("a.rs", "pub fn a() { b(); }\n", "pub fn c() { b(); }\n", "definitions"),
        ("a.lua", "function a() end\n", "function b() end\n", "definitions"),  # no grammar
        ("a.lua", "x = f(1)\n", "x = f((1)\n", "brackets"),
        ("a.c", "int a(void) { return 1; }\n", "int b(void) { return 1; }\n", "definitions"),
        ("a.java", "class A { int b() { return 1; } }\n", "class A { int c() { return 1; } }\n",
         "definitions"),
    ],
)  # fmt: skip
def test_other_languages(path: str, old: str, new: str, kind: str) -> None:
    assert kind in kinds("Sort the lines.", new, old, path)
    assert kinds("Sort the lines.", old + "\n", old, path) == set()


@pytest.mark.parametrize(
    ("asked", "old", "new", "passes"),
    [
        ("Remove the calls of console.log.", 'f(); console.log("a");', "f();", True),
        ("Remove the calls of console.log.", "console.log(1); console.log(2);", "console.log(2);",
         False),
        ("Remove the call of console.log.", "console.log(1); console.log(2);", "console.log(2);",
         True),
        ("Remove all calls of console.log.", "console.log(1); a.log(2);", "a.log(2);", True),
        ("Return [] instead of null.", "f = null; g = null;", "f = []; g = null;", True),
        ("Use let instead of var.", "var a = 1; var b = a;", "let a = 1; let b = a;", True),
        ("Use let instead of var.", "var a = 1; var b = a;", "var a = 2; var b = a;", False),
    ],
)  # fmt: skip
def test_what_is_to_go_goes(asked: str, old: str, new: str, passes: bool) -> None:
    assert ("remaining" not in kinds(asked, new, old, "a.ts")) == passes


TWO = """@dataclass
class Item:
    name: str


@dataclass
class Booking:
    day: int


def late(limit):
    return Booking(limit + 1)


def early(limit):
    return limit - 1
"""


@pytest.mark.parametrize(
    ("asked", "old", "new", "passes"),
    [
        ("Make Booking frozen.", "dataclass\nclass B", "dataclass(frozen=True)\nclass B", True),
        ("Make Booking frozen.", "@dataclass\n", "@dataclass(frozen=True)\n", False),
        ("Make them frozen.", "@dataclass\n", "@dataclass(frozen=True)\n", True),
        ("Let Booking begin at 2.", "limit + 1", "limit + 2", True),  # it speaks of Booking
        ("Let late add 2.", "day: int", "day: float", True),  # late speaks of it
        ("Let Booking begin at 2.", "limit - 1", "limit - 2", False),
        ("Let late add 2.", "limit - 1", "late(limit - 2)", True),
    ],
)
def test_what_is_not_named_stays(asked: str, old: str, new: str, passes: bool) -> None:
    assert ("elsewhere" not in kinds(asked, TWO.replace(old, new), TWO)) == passes


@pytest.mark.parametrize(
    ("comment", "is_task"),
    [
        ("# TODO: sort", True),
        ("# Implement the sorting", True),
        ("# not implemented yet", True),
        ("# please implement this", True),
        ("# an implementation detail of the sort", False),
        ("# Implements Timsort", False),
        ("# implemented in C", False),
    ],
)
def test_only_the_comment_of_a_task_goes_when_it_is_done(comment: str, is_task: bool) -> None:
    old = f"def f(x):\n    {comment}\n    return g(x)\n"
    new = "def f(x):\n    return g(x)\n"
    assert ("comments" in kinds("Sort the lines.", new, old)) == (not is_task)


@pytest.mark.parametrize(
    "head",
    [
        "CREATE TABLE orders (",
        "create or replace view shop.orders as (",
        "CREATE UNIQUE INDEX IF NOT EXISTS `orders` ON a (",
        'CREATE FUNCTION "shop"."orders" (',
        "CREATE MATERIALIZED VIEW [orders] AS (",
    ],
)
def test_what_sql_creates_is_a_definition(head: str) -> None:
    other = "CREATE TABLE others (id int);\n"
    old = f"{other}{head}id);\n"
    new = f"{other}SELECT 1 + 2 + 3 + 4;\n"
    assert "definitions" in kinds("Sort the lines.", new, old, "a.sql")
    assert kinds("Sort the lines.", old + "SELECT 1;\n", old, "a.sql") == set()
    assert kinds("Drop orders.", other + "SELECT 1;\n", old, "a.sql") == set()


@pytest.mark.parametrize(
    ("asked", "old", "new", "quoted"),
    [
        ("Add docstrings.", "a = 1\nb = 2\nc = 3\n", "a = 1\nc = 3\n", "b = 2"),
        ("Add docstrings.", "a = 1\nc = 3\n", "a = 1\nb = 2\nc = 3\n", "b = 2"),
        ("Add docstrings.", "a = 1\nb = 2\n", "a = 1\nb = 3\n", "b = 3"),
        ("Go on.", "if a:\n    pass\nif b:\n    c()\n", "if a:\n    pass\nif b:\n    pass\n",
         "if b:"),
        ("Go on.", "a = (\nb = 2\nc = 3\n", "a = (\nb = 2\n    return )\n", "line 3"),
    ],
)  # fmt: skip
def test_a_warning_names_the_line_that_changed(asked: str, old: str, new: str, quoted: str) -> None:
    failed = check_edit(Request("edit", old, path="a.py", instruction=asked), new).failed
    assert any(quoted in check.warning for check in failed), failed


@pytest.mark.parametrize(
    ("asked", "new", "passes"),
    [
        ("Sort the lines, but keep `count`.", PYTHON.replace("count", "size"), False),
        ("Sort the lines. Keep the class Reader as it is.", change("LIMIT)", "9)"), False),
        ("Sort the lines. Do not change read.", change("LIMIT)", "9)"), False),
        ("Sort the lines, but keep `count`.", change("return lines", "return sorted(lines)"), True),
        ("Sort the lines. Do not change read.", change("return lines", "return [*lines]"), True),
        ("Keep at most `count` lines.", PYTHON.replace("count", "size"), True),  # keeps no name
        ("Keep the class Reader as it is.", PYTHON.replace("10", "11"), True),
    ],
)
def test_what_is_to_be_kept_stays(asked: str, new: str, passes: bool) -> None:
    assert ("kept" not in kinds(asked, new)) == passes


def test_a_dotted_name_of_another_module_names_no_definition_of_the_file() -> None:
    old = "def join(a):\n    return a\n\n\ndef load(b):\n    return os.path.join(b)\n"
    new = old + "\n\ndef save(c):\n    return c\n"
    assert "elsewhere" not in kinds("Use os.path.join", new.replace("n c", "n b"), new)
    assert "elsewhere" in kinds("Sort in join", new.replace("n c", "n b"), new)
    lost = new.replace("def join(a):\n    return a\n\n\n", "")
    assert "definitions" in kinds("Use os.path.join", lost, old)


@pytest.mark.parametrize(
    ("new", "passes"),
    [
        ("def f(user, x):\n    return g(id, x)\n", False),
        ("def f(user, x):\n    return g(user, x)\n", True),
        ("def f(user, x):\n    return g(id(user), x)\n", True),  # meant as the builtin
        ("def f(x):\n    id = h(x)\n    return g(id, x)\n", True),
        ("def f(user, x):\n    return [g(id, x) for id in user]\n", True),
    ],
)
def test_a_variable_that_is_gone_leaves_no_use_of_a_builtin(new: str, passes: bool) -> None:
    old = "def f(id, x):\n    return g(id, x)\n"
    assert ("builtins" not in kinds("Take the user.", new, old)) == passes


@pytest.mark.parametrize(
    ("asked", "new", "passes"),
    [
        ("Sort them.", "Order all.\n\n    >>> f(1)\n    1\n    ", False),
        ("Sort them.", "Add one number to another that is given, and return both.", False),
        ("Sort them.", "Add one number to another that is given, and return both.\n\n"
         "    >>> f(1)\n    2\n    ", True),
        ("Improve the docstring.", "Order all.", True),
        ("Rewrite it.", "Order all.", True),
    ],
)  # fmt: skip
def test_docstrings_are_not_rewritten_unasked(asked: str, new: str, passes: bool) -> None:
    doc = "Add one number to another that is given, and return both.\n\n    >>> f(1)\n    1\n    "
    old = f'def f(x):\n    """{doc}"""\n    return x\n'
    edited = f'def f(x):\n    """{new}"""\n    return sorted(x)\n'
    assert ("docstrings" not in kinds(asked, edited, old)) == passes


@pytest.mark.parametrize(
    ("asked", "parameter", "passes"),
    [
        ("Rename the attribute name to title", "title", False),
        ("Rename self.name to self.title", "title", False),
        ("Rename the attribute name to title", "name", True),
        ("Rename name to title", "title", True),
    ],
)
def test_a_renamed_attribute_leaves_the_parameter(asked: str, parameter: str, passes: bool) -> None:
    old = "class A:\n    def __init__(self, name):\n        self.name = name\n"
    new = f"class A:\n    def __init__(self, {parameter}):\n        self.title = {parameter}\n"
    assert ("parameters" not in kinds(asked, new, old)) == passes


def test_prose_has_no_brackets() -> None:
    assert kinds("Fix the typos.", "a) the\n", "a) teh\n", "a.md") == set()


def test_a_definition_that_is_used_elsewhere_must_not_go() -> None:
    span = (PYTHON.index("def first"), PYTHON.index("\n\n\nclass"))
    renamed = FIRST.replace("def first", "def head")
    for asked, new in (("Rename first to head.", renamed), ("Remove first.", "SECOND = None")):
        request = Request("edit", PYTHON, path="a.py", selection=span, instruction=asked)
        (failed,) = check_edit(request, PYTHON[: span[0]] + new + PYTHON[span[1] :]).failed
        assert failed.kind == "uses" and "`first`" in failed.warning


def test_only_the_selection_is_checked() -> None:
    """What the text around it has, too, is not lost; what it has not, is not the edit's."""
    broken = PYTHON + "def f(:\n"
    span = (PYTHON.index("def first"), PYTHON.index("\n\n\nclass"))
    request = Request("edit", broken, path="a.py", selection=span, instruction="Sort the lines.")
    assert check_edit(request, broken.replace("return lines", "return sorted(lines)")).failed == ()
    (failed,) = check_edit(request, broken.replace("return lines", "return lines)")).failed
    line = PYTHON[: PYTHON.index("return lines")].count("\n") + 1
    assert (failed.kind, failed.warning.split(":")[0]) == ("syntax", f"line {line}")


NAMES = st.sampled_from(["alpha", "beta", "gamma", "delta"])


@st.composite
def programs(draw: st.DrawFn) -> str:
    """A Python module in which every name is defined."""
    lines = ["import math", ""]
    for name in draw(st.lists(NAMES, min_size=1, max_size=4, unique=True)):
        lines.append(f"def {name}(first, second=1):")
        if draw(st.booleans()):
            lines.append(f'    """Text of {name}."""')
        body = draw(st.lists(st.sampled_from([
            "value = first + second", "# a remark", "if first:\n        second = math.pi",
            "value = [one for one in (first, second)]", "first, value = second, {first: second}",
            'raise ValueError(f"{first} is wrong")', "value = lambda third: third",
            "with open(first) as file:\n        value = file.read()",
            "for value in first:\n        continue",
        ]), max_size=4))  # fmt: skip
        lines += [f"    {line}" for line in [*body, "return first"]] + ["", ""]
    return "\n".join(lines)


def code_of(text: str) -> str:
    """A program without its comments and docstrings."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            body[:] = [
                one for one in body if not isinstance(getattr(one, "value", 0), ast.Constant)
            ]
    return ast.dump(tree)


COMMENTED = [
    ("# a remark", "# another remark"), ('"""Text', '"""Other text'),
    ("    return", "    # x\n    return"),
    ("import math\n", '"""A module."""\n\nimport math\n'), ("return first", "return first  # x"),
    ("return first", "return second"), ("first + second", "first - second"), ("\n\n\n", "\n\n"),
    ("        continue", "    continue"), ("    return first", ""), ("import math", "import cmath"),
    ('second=1):', 'second=1):\n    """New."""'), ("math.pi", "(math.pi)"), ("", ""),
]  # fmt: skip


@given(programs(), st.lists(st.sampled_from(COMMENTED), max_size=3))
def test_code_is_the_same_if_pythons_parser_finds_it_the_same(
    text: str, edits: list[tuple[str, str]]
) -> None:
    new = text
    for old, other in edits:
        new = new.replace(old, other) if old else new
    try:
        same = code_of(new) == code_of(text)
    except SyntaxError:
        assert "syntax" in kinds("Rewrite the comments.", new, text)
        return
    if "(math.pi)" not in new:  # the tokens differ, though the code does not
        assert ("code" in kinds("Rewrite the comments.", new, text)) == (not same)


@given(programs(), st.data())
def test_an_unbalanced_bracket_or_quote_is_a_syntax_error(text: str, data: st.DataObject) -> None:
    marks = [at for at, char in enumerate(text) if char in "()[]{}\"'"]
    at = data.draw(st.sampled_from(marks))
    new = text[:at] + text[at + 1 :]
    try:
        ast.parse(new)
    except SyntaxError:
        assert "syntax" in kinds("Sort the lines.", new, text)


@given(programs(), programs())
def test_every_lost_function_is_named(text: str, new: str) -> None:
    own, kept = ({one.name for one in ast.parse(each).body if isinstance(one, ast.FunctionDef)}
                 for each in (text, new))  # fmt: skip
    request = Request("edit", text, path="a.py", instruction="Do what is right.")
    lost = [one.warning for one in check_edit(request, new).failed if one.kind == "definitions"]
    assert bool(lost) == bool(own - kept)
    assert all(f"`{name}`" in lost[0] for name in sorted(own - kept)[:0])
    assert kinds(f"Drop {' '.join(own)}.", new, text) & {"definitions"} == set()


@given(programs(), programs())
def test_names_that_are_all_defined_are_not_reported(text: str, new: str) -> None:
    assert "undefined" not in kinds("Do what is right.", new, text)
    broken = new.replace("return first", "return unheard_of(first)")
    assert "undefined" in kinds("Do what is right.", broken, text)


@given(programs(), st.sampled_from([
    "Sort the lines.", "Make alpha faster.", "Use sum() instead of the loop.", "Rename value.",
    "Remove the call of ValueError.", "Log what beta gets.",
]))  # fmt: skip
def test_a_text_without_a_change_passes_and_one_of_white_space_alone_is_named(
    text: str, asked: str
) -> None:
    assert kinds(asked, text, text) == set()
    blank = kinds(asked, text.replace("\n\n", "\n\n\n"), text)
    assert blank == set() if "\n\n" not in text or "lines" in asked else "blank" in blank


@given(programs(), NAMES, st.sampled_from(["first", "second", "third"]))
def test_a_name_that_is_replaced_everywhere_is_no_damage(text: str, name: str, old: str) -> None:
    new = re.sub(rf"\b{old}\b", "renamed", text)
    assert kinds(f"Rename {old} to renamed.", new, text) == set()
    assert kinds(f"Rename {old} of {name} to renamed.", new, text) <= {"elsewhere"}


PIECES = [
    *("\n", "\r\n", "\r", "    ", "\t", "(", ")", "[", "}", '"', "'''", '"""', "#", "# é", "\\"),
    *("def f():", "class A:", "x = 1", "import a", "from b import *", "é", "😋", "\0", "\ud800"),
    *("f'{", "lambda:", "return", "@d", ":", ",", "->", "//", "/*", "func (a *B) c() {", "`"),
]
TEXTS = st.lists(st.sampled_from(PIECES), max_size=25).map("".join)


@given(
    TEXTS,
    TEXTS,
    st.sampled_from(["py", "ts", "tsx", "go", "rs", "c", "java", "json", "sh", "x"]),
    st.sampled_from(["Add comments.", "Add `x`.", "Rename x to y.", "Add type hints", "\0(", "🙂"]),
    st.data(),
)  # fmt: skip
@example("", "x", "py", "", None)
def test_any_text_is_checked(
    text: str, new: str, suffix: str, instruction: str, data: st.DataObject | None
) -> None:
    start = data.draw(st.integers(0, len(text))) if data else 0
    stop = data.draw(st.integers(start, len(text))) if data else 0
    whole = text[:start] + new + text[stop:]
    path, span = f"a.{suffix}", (start, stop)
    request = Request("edit", text, path=path, selection=span, instruction=instruction)
    assert check_edit(request, text).failed == ()
    assert check_edit(request, whole).text == whole


def test_deep_nesting_does_not_overflow() -> None:
    deep = "(" * 2000 + ")" * 2000
    assert kinds("Add comments.", f"x = {deep}\ny = 1\n", f"x = {deep}\n") == {"code", "additions"}
