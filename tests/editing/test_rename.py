"""A rename by rule changes every place that refers to the same thing, and nothing else, or is
refused."""

from __future__ import annotations

import ast
import io
import keyword
import re
import tokenize
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from engine.editing.dialogue import by_rule
from engine.editing.edits import EditRefused
from engine.editing.scopes.python import PythonNames
from engine.editing.syntax import parse
from engine.records import Request
from tests.oracles.python_names import PythonOracle

ROOT = Path(__file__).resolve().parents[2]


def edit(text: str, instruction: str, path: str = "a.py", lines: str = "") -> str | None:
    """The text after an instruction for it, or for the first place of `lines` in it; None if it is
    left to the model."""
    start = text.index(lines)
    selection = (start, start + len(lines)) if lines else None
    made = by_rule(Request("edit", text, path, selection=selection, instruction=instruction))
    return made.text if made else None


# -- Python ------------------------------------------------------------------------------------

LOAD = '''def load(path, n=1):
    """Load it.

    :param path: where the path leads
    """
    with open(path) as f:  # the path
        return [path for path in f], {path: lambda path=path: path}, f"{path!r:>{n}}", "path"


load(path="x")
dump(path="y")
'''


def test_a_parameter_with_its_keyword_arguments_and_its_entry_in_the_docstring() -> None:
    new = edit(LOAD, "Rename the parameter path to source", lines="def load(path")
    assert new == (
        LOAD.replace("load(path", "load(source")
        .replace(":param path:", ":param source:")
        .replace("open(path)", "open(source)")
        .replace("{path: lambda path=path", "{source: lambda path=source")
        .replace("{path!r", "{source!r")
    )


def test_comments_and_strings_if_asked() -> None:
    new = edit(LOAD, "Rename n to count, also in comments and strings")
    assert new == LOAD.replace("n=1", "count=1").replace("{n}", "{count}")
    new = edit("a = 1  # a, ab\nb = 'a'\n", "Rename a to c, also in comments")
    assert new == "c = 1  # c, ab\nb = 'a'\n"


CLASS = """class Reader:
    limit = 3

    def __init__(self, path):
        self.path = path

    def read(self, size=limit):
        return self.path[: size or self.limit], Reader.limit, self.close()

    def close(self):
        pass


reader = Reader(path="x")
"""


@pytest.mark.parametrize(
    ("instruction", "old", "new"),
    [
        ("Rename the attribute path to source", "self.path", "self.source"),
        ("Rename close to shut", "close", "shut"),
        ("Rename the class Reader to Source", "Reader", "Source"),
        ("Rename limit to most", "limit", "most"),
    ],
)
def test_members_of_a_class(instruction: str, old: str, new: str) -> None:
    assert edit(CLASS, instruction) == CLASS.replace(old, new)


TWO_CLASSES = """class Reader:
    def __init__(self, path):
        self.path = path

    def read(self):
        return self.path


class Writer:
    path = "w"

    def read(self, again: Reader):
        return self.path + again.read()


def load(path, read=2):
    reader = Reader(path)
    return read * (reader.read() + Writer().path + Writer.read(Writer(), reader)), reader.path


def save(path):
    return load(path)
"""


@pytest.mark.parametrize(
    ("instruction", "changes"),
    [
        ("Rename Reader.read to fetch", ["def read(self):", "again.read(", "(reader.read("]),
        (
            "Rename the method `read` of `Writer` to `fetch`",
            ["def read(self, again", "Writer.read"],
        ),
        ("Rename the parameter path of load to fetch", ["load(path, ", "Reader(path)"]),
        ("Rename path in the function save to fetch", ["save(path)", "return load(path)"]),
    ],
)
def test_what_a_class_or_function_has(instruction: str, changes: list[str]) -> None:
    expected = TWO_CLASSES
    for each in changes:
        old = "path" if "path" in each else "read"
        expected = expected.replace(each, re.sub(rf"\b{old}\b", "fetch", each))
    assert edit(TWO_CLASSES, instruction) == expected


@pytest.mark.parametrize(
    ("instruction", "more"),
    [
        ("Rename Reader.path to source", ""),  # `Writer().path` is an object's without a name
        ("Rename Reader.read to fetch", "def show(x): return x.read()\n"),
        ("Rename Reader.read to fetch", "class File(Reader):\n    def read(self): pass\n"),
        ("Rename Reader.read to fetch", "class Both(Reader, Writer): pass\n"),
        ("Rename os.path to source", ""),
        ("Rename path of load to source", "class A:\n    def load(self, path): pass\n"),
        ("Rename load.path to source", ""),
    ],
)
def test_what_may_belong_to_another_is_left_to_the_model(instruction: str, more: str) -> None:
    assert edit(TWO_CLASSES + more, instruction) is None


USES = ["{0}.read()", "{0}.path", "{0}().read()", "{0}().path", "one.read()", "two.path",
        "read(path)"]  # fmt: skip


@given(
    st.lists(st.tuples(st.sampled_from(USES), st.sampled_from("AB")), max_size=5),
    st.sampled_from(["A.read", "B.read", "A.path", "B.path"]),
    st.booleans(),
)
def test_a_program_does_the_same_after_a_dotted_rename(
    uses: list[tuple[str, str]], dotted: str, static: bool
) -> None:
    head = "    @staticmethod\n    def read(" if static else "    def read(self=None"
    lines = [f"class {name}:\n    path = {name!r}\n{head}): return {name!r}\n" for name in "AB"]
    lines += ["read = print\npath = 'x'\none, two = A(), B()\nother = B()\nother.path = 'y'\n"]
    lines += ["one = A()\n"] * bool(len(uses) % 2)
    lines += [f"shown.append({use.format(name)})\n" for use, name in uses]
    before: dict[str, Any] = {"shown": []}
    text = "".join(lines)
    exec(text, before)
    if (new := edit(text, f"Rename {dotted} to fetch")) is not None:
        after: dict[str, Any] = {"shown": []}
        exec(new, after)
        assert before["shown"] == after["shown"]
        owner, name = dotted.split(".")
        assert hasattr(after[owner], "fetch") and not hasattr(after[owner], name)


def test_a_parameter_of_init_is_given_by_name_where_objects_are_made() -> None:
    new = edit(CLASS, "Rename the parameter path to source")
    assert new == CLASS.replace("path)", "source)").replace("= path", "= source").replace(
        "path=", "source="
    )


RIGHT = [
    ("x = 1\ndef f():\n    global x\n    x = 2\n", "x", None),
    ("def f():\n  x = 1\n  def g():\n    nonlocal x\n    x = 2\n  return g\n", "x", None),
    ("def f():\n  def g():\n    nonlocal x\n    x = 2\n  x = 1\n  return g\n", "x", None),
    ("__all__ = ['x', 'y']\n__all__ += ['x']\nx = y = 1\n", "x", None),
    ("def f(a: 'x', b: 'list[x]') -> 'x.y': pass\nclass x: pass\n", "x", None),
    ("def f(x, a: Float['x']): b: Float['x']\n", "x", "def f(z, a: Float['x']): b: Float['x']\n"),
    ("a: Annotated[int, 'x']\nx = 1\n", "x", "a: Annotated[int, 'x']\nz = 1\n"),
    ("a: Literal['x']\nclass x: pass\n", "x", "a: Literal['x']\nclass z: pass\n"),
    ("import a.b as x\nx.y(x=1)\n", "x", "import a.b as z\nz.y(x=1)\n"),
    ("match a:\n    case [x, *_] if x: print(x)\n    case P(y=1): pass\n", "x",
     "match a:\n    case [z, *_] if z: print(z)\n    case P(y=1): pass\n"),
    ("match a:\n    case {'k': x, **y} as w: print(x)\n    case P(k=x): x\n", "x", None),
    ("if (x := f()) and [y for w in x if (y := w)]: print(x)\n", "x", None),
    ("print([y := 1, [y for x in y]], [y])\n", "y", None),
    ("try: pass\nexcept E as x: x\nfor x in a: del x\nwith a as (x, b[x]): pass\n", "x", None),
    ("def f(x, /, **k): return x\nf(1, x=2)\n", "x", "def f(z, /, **k): return z\nf(1, x=2)\n"),
    ("def f(*x, **k): return x\nf(1, x=2)\n", "x", "def f(*z, **k): return z\nf(1, x=2)\n"),
    ("f'{x}{x!r:{x}}{{x}}{o.y}' 'x'; x = 1\n", "x", "f'{z}{z!r:{z}}{{x}}{o.y}' 'x'; z = 1\n"),
    ("é = x = 1; 'é'; x\n", "x", None),
    ("x = 1\r\nprint(x)\r\n", "x", None),
    ("\ufeffx = 1\nprint(x)\n", "x", None),
    ("@d(x)\ndef f(a=x, *, b: x = x) -> x: x\nx = 1\n", "x", None),
    ("lambda x, *a, y=x: x\nx = 1\n", "y", None),
]  # fmt: skip


@pytest.mark.parametrize(("text", "old", "new"), RIGHT)
def test_right(text: str, old: str, new: str | None) -> None:
    """None: every `x` of the text."""
    if new is None:
        new = "".join(
            text[a:b].replace(old, "z") if text[a:b] == old else text[a:b] for a, b in words(text)
        )
    assert edit(text, f"Rename {old} to z") == new


def words(text: str) -> list[tuple[int, int]]:
    """The spans of words and of what is between them."""
    ends = [i for i in range(1, len(text)) if text[i - 1].isalnum() != text[i].isalnum()]
    return list(zip([0, *ends], [*ends, len(text)], strict=True))


LEFT = [  # to the model
    "class A:\n    x = 1\n    y = [x for _ in range(x)]\nx = 2\n",
    "from a import x\nx()\n",
    "import x\nx()\n",
    "try: from a import x\nexcept ImportError: x = None\n",
    "from a import *\nx = 1\n",
    "print(x)\n",
    "def f(x): return locals()\n",
    "def f(x): return eval('x')\n",
    "@app.route('/<x>')\ndef f(x): pass\n",
    "def test_f(x): pass\n",
    "def f(x): pass\nf(**k)\n",
    "def f(x): pass\ng = f\ng(x=1)\n",
    "def f(x): pass\npartial(f, x=1)\n",
    "class A:\n    def f(self, x): pass\na.f(x=1)\n",
    "class A:\n    def __init__(self, x): pass\nclass B(A): pass\nB(x=1)\n",
    "class A(B):\n    def f(self): self.x = 1\n",
    "@dataclass\nclass A:\n    x: int\n",
    "class A:\n    x = 1\na.x\n",
    "class A:\n    x = 1\ngetattr(A, 'x')\n",
    "class A:\n    x = 1\n    def f(self): return getattr(self, name)\n",
    "class A:\n    __slots__ = ('x',)\n    def f(self): self.x = 1\n",
    "x = 1\nclass A:\n    x = x\n",
    "def f(x):\n    o.x = x\n",
    "def f(x: return\n",
    "class A:\n    def f(self, __x): __x\n".replace("__x", "x") + "print x\n",
    "# x\n",
    "type x = int\n",
    "def f[x](a: x): pass\n",
    "def f(a: \"list['x']\"): pass\nclass x: pass\n",
    "def f():\n  x = 1\n  def g():\n    nonlocal x\n    import x\n",
]


@pytest.mark.parametrize("text", LEFT)
def test_left_to_the_model(text: str) -> None:
    assert edit(text, "Rename x to z") is None


REFUSED = [
    ("x = 1\n", "Rename y to z", "`y` is not in the file"),
    ("x = 1\n", "Rename the variable y to z", "`y` is not in the file"),
    ("x = 1\n", "Rename x to 1z", "`1z` cannot be a name"),
    ("x = 1\n", "Rename x to class", "`class` cannot be a name"),
    ("x = 1\n", "Rename x to a-b", "`a-b` cannot be a name"),
    ("x = 1\n", "Rename x to x", "`x` is the name already"),
    ("x = z = 1\n", "Rename x to z", "`z` is used already"),
    ("def f(x, z): pass\n", "Rename x to z", "`z` is used already"),
    ("def f(x): return z\nz = 1\n", "Rename x to z", "`z` is used already"),
    ("x = 1\ndef f(z): return x\n", "Rename x to z", "`z` is used already"),
    ("def f(x): return print(x)\n", "Rename x to print", "`print` is used already"),
    ("def f(x): return [x for z in x]\n", "Rename x to z", "`z` is used already"),
    ("class A:\n    def f(self): self.x = self.z\n", "Rename x to z", "`.z` is used already"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "instruction", "message"), REFUSED)
def test_refused(text: str, instruction: str, message: str) -> None:
    with pytest.raises(EditRefused) as caught:
        edit(text, instruction)
    assert message in str(caught.value)
    assert ":" in str(caught.value)  # and the remedy
    assert "\n" not in str(caught.value)


def test_a_name_that_is_not_in_the_selection() -> None:
    with pytest.raises(EditRefused, match="`n` is not in the selection"):
        edit(LOAD, "Rename n to count", lines="open(path)")


def test_a_selection_reaches_as_far_as_the_binding() -> None:
    text = "def f(x):\n    return x\n\ndef g(x):\n    return x\n"
    assert edit(text, "Rename x to z", lines="return x") == text.replace("x", "z", 2)
    assert edit(text, "Rename x to z") == text.replace("x", "z")


def test_a_part_is_what_is_selected() -> None:
    text = "def f(x): pass\ndef g(x): pass\n"
    assert edit(text, "Rename x to z in this function") is None
    assert edit(text, "Rename x to z in this function", lines="def g(x)") == (
        "def f(x): pass\ndef g(z): pass\n"
    )


def test_several_renames_one_after_the_other() -> None:
    text = "def f(long, b):\n    return long + b\n\ndef g(b):\n    return b\n"
    new = edit(text, "Rename long to a and b to c", lines="def f(long, b):\n    return long + b\n")
    assert new == "def f(a, c):\n    return a + c\n\ndef g(b):\n    return b\n"
    with pytest.raises(EditRefused):
        edit(text, "Rename long to b and b to long")


def test_what_the_user_should_know() -> None:
    made = by_rule(Request("edit", LOAD, "a.py", instruction="Rename load to read"))
    assert made is not None
    assert made.rule == "`load` renamed to `read` in 2 places"
    assert made.notes == ("other files that use `load` are unchanged",)


OF_FOO = [
    "def f(x: 'Foo') -> 'list[Foo]':\n    return [x]\n",
    "# Foo and Foo\n",
    "x = 'Foo Foo'\n",
    "x = 'a\\nFoo'\n",
    "x = f'{Foo} \\t{Foo}Foo'\n",
    'def g(a: Foo):\n    """Foo.\n\n    Foo\n    """\n',
    "__all__ = ['Foo']\n",
    "def h(Foo):\n    # Foo\n    return Foo\n",
    "x = Foo()  # a Foo\n",
]


@given(st.lists(st.sampled_from(OF_FOO), max_size=4), st.lists(st.sampled_from(OF_FOO), max_size=4))
@example([OF_FOO[0]], [])
def test_the_count_of_what_is_left_is_right(before: list[str], after: list[str]) -> None:
    """All that is left of the name is in comments and strings, but for another thing's own name."""
    text = "".join([*before, "class Foo:\n    pass\n", *after])
    made = by_rule(Request("edit", text, "a.py", instruction="Rename the class Foo to Bar"))
    assert made is not None
    bare = re.sub(r"\\[nt]", " ", made.text.replace("h(Foo):", "").replace("return Foo", ""))
    count = len(re.findall(r"\bFoo\b", bare))
    left = f"`Foo` is still in {count} place{'s' * (count != 1)} of comments or strings"
    assert [note for note in made.notes if "still" in note] == [left] * (count > 0)


@pytest.mark.parametrize(
    ("path", "text", "count"),
    [
        ("a.py", "class C:\n    def foo(self):\n        pass\n\n# C.foo\n# foo\n", 2),
        ("a.py", 'def f(foo):\n    """Do.\n\n    Args:\n        foo: a foo.\n    """\n# foo\n', 1),
        ("a.js", "const foo = `${x} foo` // foo\nuse({ foo }, 'foo')\n", 3),
    ],
)
def test_what_is_left_in_each_language(path: str, text: str, count: int) -> None:
    made = by_rule(Request("edit", text, path, instruction="Rename foo to bar"))
    assert made is not None
    left = f"`foo` is still in {count} place{'s' * (count != 1)} of comments or strings"
    assert left in made.notes


def test_only_edits_have_rules_and_only_short_instructions() -> None:
    request = Request("chat", LOAD, "a.py", instruction="Rename load to read")
    assert by_rule(request) is None
    assert edit(LOAD, f"Rename load to {'a' * 1000}") is None


# -- against Python itself ---------------------------------------------------------------------

NAMES = ["a", "b", "c", "f"]
VALUES = (
    *["N"] * 6, "1", "1", "(V + V)", "(lambda N=V: V)", "[V for N in [V] if V]", "N(N=V)", "N(V)",
    "(N := V)", "f'{N}'", "show(V)",
)  # fmt: skip
LINES = (
    "N = V", "N = V", "show(V)", "show(V)", "global N", "del N", "for N in [V]: show(V)",
    "def N(N):B", "def N(N, N=V):B", "class N:B",
)  # fmt: skip
IN_FUNCTIONS = (*LINES, "return V", "nonlocal N")


def program(choices: bytes) -> str:
    """A program in this grammar: each choice is the next byte or, after the last, the simplest."""
    rest = iter(choices)

    def pick(options: Sequence[str]) -> str:
        return options[next(rest, 0) % len(options)]

    def lines(of: Sequence[str]) -> list[str]:
        """One to four lines, where these are allowed."""
        return [line for _ in range(1 + next(rest, 0) % 4) for line in write(pick(of)).split("\n")]

    def part(of: str, template: str) -> str:
        if of == "B":
            body = lines(IN_FUNCTIONS if template.startswith("def") else LINES)
            return "".join(f"\n  {line}" for line in body)
        return pick(NAMES) if of == "N" else write(pick(VALUES))

    def write(template: str) -> str:
        return re.sub("[NVB]", lambda found: part(found[0], template), template)

    return "\n".join([*lines(LINES), *lines(LINES)]) + "\n"


def compiles(text: str) -> bool:
    try:
        compile(text, "text", "exec")
    except SyntaxError:
        return False
    return True


programs = st.binary(min_size=20, max_size=60).map(program).filter(compiles)


def meaning(text: str) -> list[tuple[str | None, int | None]]:
    """What each name refers to, by number; the names of those that refer to nothing here."""
    numbers: dict[Any, int] = {}
    return [
        (name, None) if refers_to is None else (None, numbers.setdefault(refers_to, len(numbers)))
        for _, (name, refers_to) in sorted(PythonOracle(text).found.items())
    ]


def behaviour(text: str) -> list[str]:
    """What a program shows, and how it ends."""
    shown: list[str] = []

    def show(value: object) -> object:
        if isinstance(value, str):  # A function in an f-string has its name and its address.
            shown.append(re.sub("<.*>", "an object", value))
        else:
            shown.append(str(value) if isinstance(value, int) else type(value).__name__)
        return value

    try:
        exec(compile(text, "text", "exec"), {"show": show})
    except Exception as error:
        shown.append(type(error).__name__)
    return shown


def tokens(text: str) -> list[str]:
    return [each.string for each in tokenize.generate_tokens(io.StringIO(text).readline)]


@settings(max_examples=200)
@given(programs, st.sampled_from(NAMES), st.sampled_from([*NAMES, "z", "len"]))
@example("def b(a, c=1):\n  show(1)\nshow(f'{b}')\n", "a", "b")
@example("def b():\n  show(1)\nshow(f'{b}')\n", "b", "z")
@example("a = [a for c in [1] if (b := c)]\n", "b", "c")
@example("a = [a for c in [1] if (b := c)]\n", "c", "b")
def test_programs_mean_and_do_what_they_did(text: str, old: str, new: str) -> None:
    try:
        renamed = edit(text, f"Rename `{old}` to `{new}`")
    except EditRefused:
        return
    if renamed is None:
        return
    assert compiles(renamed)
    assert meaning(renamed) == meaning(text)
    assert behaviour(renamed) == behaviour(text)
    changed = {
        pair for pair in zip(tokens(text), tokens(renamed), strict=True) if pair[0] != pair[1]
    }
    assert {pair for pair in changed if pair[0][0] != "f" or pair[0] == "f"} == {(old, new)} or all(
        was.replace(old, new) == now for was, now in changed
    )


@given(programs)
@settings(max_examples=200)
@example("def a(c):\n  class b:\n    global c\n    show([c for a in [1]])\n")
def test_names_refer_to_what_python_says(text: str) -> None:
    assert_agrees(text)


SOURCES = sorted(path for folder in ("engine", "tests") for path in (ROOT / folder).rglob("*.py"))
UNKNOWN = "def top("  # `symtable`, the oracle, takes a function of this name for the module


@pytest.mark.parametrize("path", SOURCES[::7], ids=lambda path: path.stem)
def test_real_names_refer_to_what_python_says(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert_agrees(text.replace(UNKNOWN, "def top_("))


def assert_agrees(text: str) -> None:
    """Our names are Python's, and two of them refer to one thing where Python says so."""
    tree = parse("a.py", text)
    assert tree is not None and tree.errors == 0
    ours = PythonNames(tree)
    ours.read()
    partner: dict[Any, Any] = {}
    for at, (name, refers_to) in PythonOracle(text).found.items():
        use, binding = ours.at[at]
        assert use.name == name
        assert partner.setdefault(refers_to, binding) is binding
        assert (refers_to is None) == (binding is None)
    assert len(set(partner.values())) == len(partner)


@given(
    st.sampled_from([*NAMES, *keyword.kwlist, *keyword.softkwlist, "é", "ﬁ", "a b", "_", "1a", ""])
)
def test_identifiers_are_pythons(word: str) -> None:
    tree = parse("a.py", "")
    assert tree is not None
    try:
        node = ast.parse(f"{word} = 1").body[0]
        is_name = isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
    except SyntaxError:
        is_name = False
    assert PythonNames(tree).is_identifier(word) == is_name


@pytest.mark.parametrize("word", ["it", "variables", "everything"])
def test_words_that_may_not_be_names(word: str) -> None:
    assert edit("x = 1\n", f"Rename {word} to z") is None
    assert edit(f"{word} = 1\n", f"Rename {word} to z") == "z = 1\n"
