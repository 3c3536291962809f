"""An update of whole definitions replaces these and nothing else, or it is left to the model."""

from __future__ import annotations

import contextlib
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.editing.apply_answer import apply_answer, merged
from engine.editing.apply_snippet import merge
from engine.editing.edits import EditRefused
from engine.records import Request
from tests.editing.test_apply_snippet import update_of

MARK = "# ... existing code ..."
FILE = '''import os

LIMIT = 10


# Reads a file.
def load(path):
    return open(path).read()


class Store:
    """A store."""

    size = 3

    def get(self, key):
        return self.items[key]

    @property
    def first(self):
        return self.items[0]

    def put(self, key, value):
        self.items[key] = value


@cache
def save(path, text):
    open(path, "w").write(text)


if __name__ == "__main__":
    save("b", load("a"))
'''
TYPESCRIPT = """import { a } from "./a";

export function load(path: string): string {
  return a(path);
}

export class Store {
  get(key: string) {
    return this.items[key];
  }

  put(key: string, value: number) {
    this.items[key] = value;
  }
}
"""
GO = """package a

import "fmt"

func (s *Store) Get(key string) int {
	return s.items[key]
}

func Load() {
	fmt.Println("a")
}
"""
RUST = """use std::fs;

impl Store {
    fn get(&self) -> u8 {
        self.first
    }

    fn put(&mut self, value: u8) {
        self.first = value;
    }
}
"""
PUT = "    def put(self, key, value):\n        self.items[key] = [value]\n"
LOAD = "def load(path):\n    with open(path) as file:\n        return file.read()\n"


def merge_of(text: str, update: str, path: str = "a.py") -> str | None:
    """The file with the update merged into it, checked; None where it takes a model."""
    found = merge(text, update, path).text
    request = Request("edit", text, path=path, update=update)
    return None if found is None else apply_answer(request, merged(found))


@pytest.mark.parametrize(
    ("path", "text", "update", "old", "new"),
    [
        ("a.py", FILE, LOAD, "    return open(path).read()", LOAD[LOAD.index("\n") + 1 : -1]),
        ("a.py", FILE, f"class Store:\n{PUT}", "] = value", "] = [value]"),
        ("a.py", FILE, f"class Store:\n    {MARK}\n\n{PUT}", "] = value", "] = [value]"),
        ("a.py", FILE, PUT, "] = value", "] = [value]"),  # a method alone
        ("a.py", FILE, PUT.replace("\n    ", "\n")[4:], "] = value", "] = [value]"),
        ("a.py", FILE, "LIMIT = 20\n", "LIMIT = 10", "LIMIT = 20"),
        ("a.py", FILE, f"import json\n\n{MARK}\n", "import os", "import json\nimport os"),
        ("a.py", FILE, f"import json\n\n\n{LOAD}\n\ndef more():\n    return json\n",
         FILE[: FILE.index("\n\nclass")],
         f"import json\nimport os\n\nLIMIT = 10\n\n\n# Reads a file.\n{LOAD}\n\ndef more():\n"
         "    return json\n"),
        ("a.ts", TYPESCRIPT, "function load(path: string): string {\n  return a(path, 1);\n}\n",
         "a(path)", "a(path, 1)"),
        ("a.ts", TYPESCRIPT, "export class Store {\n  put(key: string, value: number) {\n    f();"
         "\n  }\n}\n", "this.items[key] = value;", "f();"),
        ("a.ts", TYPESCRIPT, "export class Store {\n  // ... existing code ...\n\n  put(key: "
         "string, value: number) {\n    f();\n  }\n}\n// ... existing code ...\n",
         "this.items[key] = value;", "f();"),
        ("a.go", GO, "func (s *Store) Get(key string) int {\n\treturn 1\n}\n",
         "s.items[key]", "1"),
        ("a.rs", RUST, "impl Store {\n    fn put(&mut self, value: u8) {\n        f(value);\n"
         "    }\n}", "self.first = value;", "f(value);"),
    ],
)  # fmt: skip
def test_whole_definitions(path: str, text: str, update: str, old: str, new: str) -> None:
    assert old in text
    assert merge_of(text, update, path) == text.replace(old, new)


@pytest.mark.parametrize(
    "update",
    [
        "def save(path, text):\n    print(path)\n",  # without its decorator
        "def load(path):\n    pass\n",
        "def load(path):\n    ...\n",
        f"def load(path):\n    {MARK}\n    return 1\n",
        "class Store(dict):\n    def put(self, key, value):\n        return 1\n",
        f"{LOAD}\nprint(load('x'))\n",
        "def more():\n    return 1\n",
        "    def more(self):\n        return 1\n",
        f"{LOAD}\nVALUE = 1\n",
        f"{MARK}\n{LOAD}\n\n@cache\ndef save(path, text):\n    return 1\n",  # is Store gone?
        "import os\nimport json\n",
        f"{LOAD}\n{PUT}",  # a method of Store, or a function inside the other one?
    ],
)
def test_what_may_mean_anything_else_is_left_to_the_model(update: str) -> None:
    try:
        assert merge(FILE, update, "a.py").text is None
    except EditRefused as error:
        assert "nowhere" in str(error)


BODIES = ["return a", "x = 1\n{}return x", "for y in a:\n{}    print(y)", "# a remark\n{}return 2"]


@st.composite
def modules(draw: st.DrawFn) -> tuple[str, str, str]:
    """A module, an update of some of its definitions, and the module after it."""
    old, new, shown = ["import os", "LIMIT = 3"], ["import os", "LIMIT = 3"], list[str]()
    names = draw(st.lists(st.sampled_from("fghABC"), min_size=1, max_size=5, unique=True))
    for name in names:
        if name.islower():
            before, after = draw(functions(name, ""))
            shown += [after] * (before != after)
        else:
            members = [draw(functions(name.lower() * n, "    ")) for n in (2, 3, 4)]
            before, after = (
                "\n\n".join((f"class {name}:", *each)) for each in zip(*members, strict=True)
            )
            own = [each[1] for each in members if each[0] != each[1]]
            mark = draw(st.sampled_from([f"    {MARK}", ""]))
            shown += [f"\n{mark}\n".join([f"class {name}:", *own])] * bool(own)
        old.append(before)
        new.append(after)
    mark = draw(st.sampled_from([f"\n\n{MARK}\n\n", "\n\n"]))
    return "\n\n\n".join(old) + "\n", mark.join(shown), "\n\n\n".join(new) + "\n"


@st.composite
def functions(draw: st.DrawFn, name: str, margin: str) -> tuple[str, str]:
    """A function and what an edit makes of it."""
    first = "self, a" if margin else "a"
    bodies = [body.format(f"{margin}    ") for body in BODIES]
    found = draw(st.sampled_from(bodies))
    other = draw(st.sampled_from([found, *bodies]))
    one, two = (f"{margin}def {name}({first}):\n{margin}    {body}" for body in (found, other))
    return one, two


@given(modules())
def test_the_definitions_of_an_update_are_replaced_and_all_else_stays(
    case: tuple[str, str, str],
) -> None:
    old, update, new = case
    if update:
        with contextlib.suppress(EditRefused):  # a remark is lost
            assert merge_of(old, update) in (None, new)
        if MARK not in update:  # a remark may stand for code
            found = merge(old, update, "a.py").text
            assert found == new.rstrip("\n") or (found is None and "# a remark" in update)


@given(modules(), modules())
def test_no_definition_is_ever_lost(one: tuple[str, str, str], two: tuple[str, str, str]) -> None:
    with contextlib.suppress(EditRefused):
        found = merge(one[0], two[1], "a.py").text
        if found is not None and MARK not in two[1]:
            heads = [
                line for line in one[0].split("\n") if line.lstrip().startswith(("def", "cla"))
            ]
            assert all(line in found for line in heads)


SHOP = """import os


def load(path):
    return open(path).read()


def save(path, text):
    with open(path, "w") as f:
        f.write(text)


class Store:
    # by key
    def put(self, key, value):
        check(key)
        self.found[key] = value

    def get(self, key):
        return self.found[key]
"""
PUT = (
    "class Store:\n    # by key\n    def put(self, key, value):{}\n\n"
    "    def get(self, key):\n        return 1\n"
)


@pytest.mark.parametrize(
    "remark",
    ["as before", "your existing save logic here", "(keep the rest)", "snip", "no changes", "etc.",
     "previous code", "see above", "do not change", "the body as in the original", "anything"],
)  # fmt: skip
def test_a_remark_may_stand_for_code(remark: str) -> None:
    update = f"def save(path, text):\n    os.makedirs(path)\n    # {remark}\n"
    assert merge(SHOP, update, "a.py").text is None


@pytest.mark.parametrize(
    "update",
    [
        PUT.format(" ..."),
        PUT.format("\n        # same as before\n        self.found[key] = value"),
        PUT.format("\n        # (no change)\n        pass"),
        "def load(path):\n    return 1\n\n\nclass Sub(Store):\n    pass\n",
        "def load(path):\n    return 1\n\n\n@Store\ndef two():\n    pass\n",
        "def load(path):\n    return 1\n\n\ndef two(one=Store):\n    pass\n",
        "def load(path):\n    return 1\n\n# save is gone: nobody needs it\n",
        "def load(path):\n    return 1\n\n# save removed\n\nclass Bag:\n    pass\n",
    ],
)
def test_what_may_be_a_stub_an_early_use_or_a_deletion_is_left_to_the_model(update: str) -> None:
    assert merge(SHOP, update, "a.py").text is None


def test_a_remark_beside_all_of_the_code_is_one() -> None:
    new = SHOP.replace("    with open", "    # make the file\n    with open")
    update = new[new.index("def save") : new.index("class Store")]
    assert merge(SHOP, update, "a.py").text == new.rstrip("\n")


LINE = "// ... existing code ..."
MAIN = FILE[FILE.index("if __name__") :]
DROP = "    def drop(self, key):\n        del self.items[key]\n"


@pytest.mark.parametrize(
    ("path", "text", "update", "old", "new"),
    [  # a new member, at the end of its kind
        ("a.py", FILE, f"class Store:\n    {MARK}\n\n{DROP}", "] = value\n",
         f"] = value\n\n{DROP}"),
        ("a.py", FILE, f"class Store:\n{MARK}\n{DROP}\n{MARK}\n", "] = value\n",
         f"] = value\n\n{DROP}"),
        ("a.py", FILE, f"class Store:\n{DROP}\n    {MARK}\n", "    def get",
         f"{DROP}\n    def get"),
        ("a.py", FILE, f"class Store:\n    {MARK}\n    age = 1\n", "size = 3",
         "size = 3\n    age = 1"),
        ("a.py", FILE, f"class Store(dict):\n    {MARK}\n", "class Store:", "class Store(dict):"),
        ("a.py", FILE, f"{MARK}\n\ndef more():\n    return 1\n\n{MARK}\n", MAIN,
         f"def more():\n    return 1\n\n\n{MAIN}"),
        ("a.ts", TYPESCRIPT,
         f"export class Store {{\n  {LINE}\n\n  drop() {{\n    f();\n  }}\n}}\n",
         "value;\n  }\n", "value;\n  }\n\n  drop() {\n    f();\n  }\n"),
        ("a.rs", RUST, f"impl Store {{\n    {LINE}\n    fn drop(&self) {{}}\n}}\n",
         "value;\n    }\n", "value;\n    }\n\n    fn drop(&self) {}\n"),
        ("a.go", "type A struct {\n\tB int\n}\n", f"type A struct {{\n    {LINE}\n    C int\n}}\n",
         "B int\n", "B int\n\tC int\n"),
        ("a.ts", "export type A = {\n  b: number;\n};\n\nexport const c = 1;\n",
         f"export type A = {{\n  {LINE}\n  d?: string;\n}};\n",
         "number;\n", "number;\n  d?: string;\n"),
        # lines of a function
        ("a.py", FILE, f"class Store:\n    {MARK}\n    def put(self, key, value, more=()):\n"
         f"        {MARK}\n        self.more = more\n",
         "value):\n        self.items[key] = value\n",
         "value, more=()):\n        self.items[key] = value\n        self.more = more\n"),
        ("a.ts", TYPESCRIPT, f"export function load(path: string): string {{\n  if (!path) f();\n"
         f"  {LINE}\n}}\n", "  return a(path);", "  if (!path) f();\n  return a(path);"),
        ("a.py", "def f(a):\n    b = a\n    return b\n",
         f"def f(a):\n    {MARK}\n    return b + 1\n", "return b", "return b + 1"),
        ("a.py", FILE, f"import sys\n\n{MARK}\n\n{MAIN.splitlines()[0]}\n    sys.exit(load('a'))\n",
         FILE, FILE.replace("import os\n", "import os\nimport sys\n").replace(
             'save("b", load("a"))', "sys.exit(load('a'))")),
    ],
)  # fmt: skip
def test_definitions_that_are_shown_in_part(
    path: str, text: str, update: str, old: str, new: str
) -> None:
    assert old in text
    assert merge_of(text, update, path) == text.replace(old, new)


@pytest.mark.parametrize(
    ("text", "update", "doubt"),
    [
        (FILE, f"class Store:\n    {MARK}\n    def more(self):\n        {MARK}\n", "has a mark"),
        (FILE.replace("Store:", "Store(A):"), f"class Store:\n    {MARK}\n\n{DROP}", "the head"),
        (FILE, "def put(self, key):\n    return 1\n\n\ndef save(path):\n    pass\n",
         "`save` has no code"),
        (FILE + FILE, LOAD, "`load` is not one definition"),
        ("def f():\n    pass\n", "def f():\n", "`f` has no code"),
        ("def f(a):\n    g(a)\n    h(a)\n",
         f"def f(a):\n    {MARK}\n    h(a, 1)\n    g(a)\n", "or add"),
        ("def f(a):\n    for b in a:\n        g(b)\n        h(b)\n",
         f"def f(a):\n    for c in a:\n        k(c)\n    {MARK}\n", "new lines"),
        ('A = [\n    "a",\n    "b"\n]\n', f'A = [\n    {MARK}\n    "c",\n]\n', "with commas"),
        ("def f(a):\n    # why\n    g(a)\n    h(a)\n",
         "def f(a):\n    g(a)\n    h(a, 1)\n", "# why"),
        (FILE, "print(load('x'))\nimport os\n", "the place of `print"),
    ],
)  # fmt: skip
def test_the_true_reason_is_given(text: str, update: str, doubt: str) -> None:
    found = merge(text, update, "a.py")
    assert found.text is None and doubt in found.doubt and "\n" not in found.doubt


@pytest.mark.parametrize(
    ("path", "head", "old", "new"),
    [
        ("a.js", "function f(a) {", "const b = a.b;", "const { b } = a;"),
        ("a.js", "function f(a) {", "const b = a();", "const [b] = a();"),
        ("a.ts", "function f(a: A) {", "console.log('begin');", "logger.debug('begin');"),
        ("a.py", "def f(a):", "b, c = g(a)", "b, c, d = g(a)"),
        ("a.py", "def f(a):", "b, c = a.split()", "b, _, c = a.partition(' ')"),
        ("a.py", "def f(a):", 'log("begin")', 'logger.info("begin")'),
        ("a.py", "def f(a):", "a.b = c", "a._b = c"),
    ],
)
def test_a_line_that_may_stand_for_another_is_left_to_the_model(
    path: str, head: str, old: str, new: str
) -> None:
    """It would be added beside the old one, which it was meant for."""
    mark, close = (f"    {MARK}", "") if path == "a.py" else (f"    {LINE}", "}\n")
    text = f"{head}\n    {old}\n    h(a)\n    return k(a)\n{close}"
    found = merge(text, f"{head}\n    {new}\n{mark}\n    return k(a)\n{close}", path)
    assert found.text is None and "new lines, which may replace" in found.doubt


def test_another_clause_is_left_to_the_model() -> None:
    text = "def f(a):\n    try:\n        g(a)\n    except KeyError:\n        h(a)\n"
    update = f"def f(a):\n    try:\n        {MARK}\n    except ValueError:\n        k(a)\n"
    assert merge(text, update, "a.py").text is None


@pytest.mark.parametrize("more", ["", "from typing import Any\n"])
@pytest.mark.parametrize("shown", ["import json", "from b import C"])
def test_an_import_inside_of_try_or_if_is_not_added_again(shown: str, more: str) -> None:
    text = (
        "import os\nfrom typing import TYPE_CHECKING\n\ntry:\n    import json\n"
        "except ImportError:\n"
        f"    json = None\n\nif TYPE_CHECKING:\n    from b import C, D\n\n\n{LOAD}"
    )
    new = LOAD.replace("path)", "path, C)")
    found = merge(text, f"{shown}\n{more}\n{MARK}\n\n{new}", "a.py").text or ""
    assert found.count(shown) == 1 and "path, C)" in found
    assert ("Any" in found) == bool(more)


@given(
    modules(), st.sampled_from(["new()", "if new:\n        return 2", "return new"]), st.booleans()
)
def test_lines_of_a_function_are_added_or_left_to_the_model(
    case: tuple[str, str, str], line: str, at_end: bool
) -> None:
    """All lines of the file stay, but for the one that a new one must replace."""
    old = case[0]
    heads = [row for row in old.split("\n") if row.startswith("def ")]
    for head in heads:
        part = [f"    {MARK}", f"    {line}"]
        found = merge(old, "\n".join([head, *(part if at_end else part[::-1])]), "a.py").text
        if found is not None:
            lost = [row for row in old.split("\n") if row not in found.split("\n")]
            assert len(lost) <= (line == "return new" and at_end)
            assert all(row.strip().startswith("return") for row in lost)


@given(modules(), st.booleans(), st.booleans())
def test_a_new_method_is_added_to_its_class_and_all_else_stays(
    case: tuple[str, str, str], mark_above: bool, import_it: bool
) -> None:
    old = case[0]
    names = [row[6] for row in old.split("\n") if row.startswith("class ")]
    for name in names:
        method = "    def fresh(self):\n        return json\n"
        parts = [f"    {MARK}\n", method] if mark_above else [method, f"    {MARK}\n"]
        parts.append("\ndef other():\n    return 4\n")
        update = "\n".join(["import json\n\n"[: 13 * import_it] + f"class {name}:", *parts])
        found = merge(old, update, "a.py").text or ""
        block = found[found.index(f"class {name}:") :].partition("\n\n\n")[0]
        assert block.count("def fresh") == found.count("def fresh") == 1
        assert ("import json" in found) == import_it
        kept = [row for row in found.split("\n") if row.strip()]
        rows = [*method.rstrip().split("\n"), "def other():", "    return 4"]
        for row in [*rows, *["import json"] * import_it]:
            kept.remove(row)
        assert kept == [row for row in old.split("\n") if row.strip()]


@given(st.integers(0, 10**6), st.integers(1, 4))
def test_lines_of_a_definition_above_a_mark_are_not_taken_for_all_of_it(
    seed: int, context: int
) -> None:
    chance = random.Random(seed)
    old = list[str]()
    for name in "fgh"[: chance.randint(1, 3)]:
        size = chance.randint(2, 8)
        body = [f"    {name}{n} = a + {n}" for n in range(size)]
        old += [f"def {name}(a):", *body, f"    return {name}0", "", ""]
    new = [*old]
    at = chance.choice([n for n, line in enumerate(old) if line.startswith("    ")])
    new[at : at + chance.randint(0, 1)] = ["    b = 0"]
    update = update_of(old[:-2], new[:-2], context)
    if MARK in update:
        found = merge("\n".join(old), update, "a.py").text
        assert found is None or found.split() == "\n".join(new).split()


@pytest.mark.parametrize(
    ("gap", "last", "is_merged"),
    [("", "b = 2", True), ("\n", "b = 2", True), ("\n", "a = 1", False), ("", "c = 3", True)],
)
def test_a_mark_below_a_definition_may_stand_for_its_last_lines(
    gap: str, last: str, is_merged: bool
) -> None:
    old = "def f():\n    z = 0\n    a = 1\n    c = 3\n\n\ndef g():\n    return 1\n"
    update = f"def f():\n    z = 9\n    {last}\n{gap}{MARK}\ndef h():\n    return 2\n"
    new = old.replace("    z = 0\n    a = 1\n    c = 3\n", f"    z = 9\n    {last}\n")
    new += "\n\ndef h():\n    return 2\n"
    assert merge_of(old, update) == (new if is_merged else None)


def test_a_method_is_not_taken_for_a_function_of_its_name() -> None:
    old = FILE.replace("def get(", "def load(")
    new = old.replace("self, key):\n", "self, key):\n        self.uses += 1\n")
    update = update_of(old.split("\n"), new.split("\n"), 1)
    assert merge_of(old, update) in (None, new)
