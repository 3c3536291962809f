"""What a model answers to an update is what the update says, or it is refused: lines of the file
that the update does not show stay, each once and in its place. The oracle is the merged file, of
which the answers are made."""

from __future__ import annotations

import itertools
import random
import re
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.editing.apply_answer import apply_answer, apply_outcome, merged
from engine.editing.apply_snippet import ways_of
from engine.editing.edits import EditRefused
from engine.editing.merged_text import refusal
from engine.records import Done, Request

MARK = "... existing code ..."
NEXT = "\n\n"  # between two definitions
MANY = settings(max_examples=300, deadline=None)


# -- generated ---------------------------------------------------------------------------------


class Edit(NamedTuple):
    """A file, an update of some of its blocks, and the new file."""

    path: str
    text: str
    update: str
    new: str = ""
    free: tuple[int, ...] = ()  # lines of the new file that the update does not show


FILE = """import os

LIMIT = 10


def first(x):
    return x + 1


# The second one
def second(x):
    y = x
    return y + 2


def third(x):
    return x + 3
"""
HEAD, REST = FILE.split("# The second one\n")
REST, THIRD = REST.split("\n\n\n")
PY = f"# {MARK}\n"
CHANGED = "def second(x):\n    y = x\n    return y * 2\n"
INSERTED = "def second(x):\n    z = 0\n    y = x\n"


def answered(edit: Edit, new: str) -> str:
    """The file's new text after the answer of a model, of which an engine elsewhere tells no
    figures."""
    done = Done("stop", new.strip("\n"), matched="\n```")
    return apply_answer(Request("edit", edit.text, edit.path, update=edit.update), done)


@pytest.mark.parametrize("update", [CHANGED, f"{PY}{CHANGED}{PY}", f"{PY}{CHANGED}"])
def test_what_a_model_drops_beside_a_change_is_missed(update: str) -> None:
    """With marks and without: above, below, on both sides, a comment, and the rest of a body."""
    edit, right = Edit("a.py", FILE, update), FILE.replace("y + 2", "y * 2")
    assert answered(edit, right) == right
    for bad in (
        CHANGED,
        HEAD + CHANGED,
        f"{CHANGED}\n\n{THIRD}",
        right.replace("# The second one\n", ""),
        right.replace("import os\n\n", ""),
        right.replace("\n    return x + 3", ""),
        right.replace("LIMIT = 10\n", ""),
        right + "\n\n" + CHANGED,
        right.replace("LIMIT = 10", "LIMIT = 10\nLIMIT = 10"),
        right.replace("import os\n\nLIMIT = 10", "LIMIT = 10\n\nimport os"),
        f"{THIRD}\n\n{HEAD}# The second one\n{CHANGED}",
    ):
        with pytest.raises(EditRefused) as raised:
            answered(edit, bad)
        assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("new", "rest"),
    [
        ("    z = 0\n", "    return y + 2\n"),
        ("    z = 0\n", "    y = x\n"),
        ("    z = 0\n", ""),
        ("    y = 3\n", ""),
    ],
)
def test_the_rest_of_a_body_is_missed_behind_a_last_line_that_is_new(new: str, rest: str) -> None:
    """It may be a version of one line, but of no more."""
    edit = Edit("a.py", FILE, f"{PY}def second(x):\n{new}{PY}")
    with pytest.raises(EditRefused, match="leaves out"):
        answered(edit, FILE.replace("    y = x\n    return y + 2\n", new + rest))


def test_a_body_that_returns_replaces_the_whole_old_one() -> None:
    """What follows a return would not be reached."""
    edit = Edit("a.py", FILE, f"{PY}def second(x):\n    return 2\n{PY}")
    new = FILE.replace("    y = x\n    return y + 2", "    return 2")
    assert answered(edit, new) == new
    with pytest.raises(EditRefused, match="leaves out the lines"):
        answered(edit, new.replace(f"\n\n\n{THIRD}", "\n"))


def test_two_far_lines_without_a_mark_between_them_are_no_order_to_delete() -> None:
    functions = [f"def f{n}(x):\n    return x + {n}" for n in range(8)]
    text, changed = "\n\n\n".join(functions), [f"def f{n}(x):\n    return x - {n}" for n in (1, 6)]
    short = "\n\n\n".join([functions[0], *changed, functions[7]])
    for between in ("\n\n\n", f"\n{PY}"):
        edit = Edit("a.py", text, f"{PY}{between.join(changed)}\n{PY}")
        with pytest.raises(EditRefused, match="leaves out"):
            answered(edit, short)


def test_a_chunk_without_its_indentation_gets_that_of_the_file() -> None:
    text = "class A:\n    def f(self):\n        x()\n        return 1\n\n    y = 2\n"
    update = f"{PY}def f(self):\n    x()\n    z()\n    return 1\n{PY}"
    new = text.replace("        x()\n", "        x()\n        z()\n")
    flat = new.replace("        ", "    ").replace("    def f", "def f")
    assert answered(Edit("a.py", text, update), flat) == new
    with pytest.raises(EditRefused, match="indented"):
        answered(Edit("a.py", text, update), new.replace("        z()", "            z()"))


# -- whoever merges ----------------------------------------------------------------------------

FUNCTIONS = {
    "a.py": "def f{0}(x):\n    y = x\n    return y + {0}",
    "a.ts": "export function f{0}(x: number) {{\n  const y = x\n  return y + {0}\n}}",
    "a.go": "func f{0}(x int) int {{\n\ty := x\n\treturn y + {0}\n}}",
    "a.rs": "fn f{0}(x: i32) -> i32 {{\n    let y = x;\n    y + {0}\n}}",
    "a.sh": "function f{0}() {{\n  y=$1\n  echo $y + {0}\n}}",
}


@pytest.mark.parametrize("path", FUNCTIONS)
@MANY
@given(st.integers(0, 3), st.integers(1, 3), st.booleans(), st.booleans(), st.booleans())
def test_a_definition_between_two_shown_ones_goes_only_if_the_instruction_names_it(
    path: str, first: int, gone: int, changed: bool, noted: bool, by_model: bool
) -> None:
    """An update of two whole functions shows none of those between them, and has no mark there."""
    functions = [FUNCTIONS[path].format(n) for n in range(8)]
    shown = [functions[first], functions[first + gone + 1].replace("+", "-" if changed else "+")]
    between = ["x = 1" if path == "a.py" else "// A note"] if noted else []
    mark = "// ... existing code ...\n"
    update = f"{mark}{NEXT.join([shown[0], *between, shown[1]])}\n{mark}"
    rest = functions[first + gone + 2 :]
    new = NEXT.join([*functions[:first], shown[0], *between, shown[1], *rest]) + "\n"
    names = [f"f{n}" for n in range(first + 1, first + gone + 1)]
    done = Done("stop", new.strip(), matched="\n```") if by_model else merged(new.strip())
    text = NEXT.join(functions) + "\n"

    def answer(instruction: str) -> str:
        request = Request("edit", text, path, update=update, instruction=instruction)
        return apply_answer(request, done)

    with pytest.raises(EditRefused, match=r"would be lost|leaves out"):
        answer("")
    with pytest.raises(EditRefused, match=r"would be lost|leaves out"):
        answer(f"Remove {' and '.join(names[1:])}")
    if not by_model:
        assert answer(f"Remove {', '.join(names)}") == new


def test_a_definition_in_the_place_of_another_is_no_loss() -> None:
    text = "\n\n\n".join(FUNCTIONS["a.py"].format(n) for n in range(3)) + "\n"
    new = text.replace("f1(", "renamed(")
    update = new.replace("def f0(x):\n    y = x\n", PY)
    request = Request("edit", text, "a.py", update=update)
    assert apply_answer(request, merged(new.strip())) == new


SHOP = """class Cart:
    def add(self, item):
        self.items.append(item)
        self.log("added", item)
        self.save()

    def remove(self, item):
        self.items.remove(item)  # one of them
        self.save()


class Wishlist:
    def clear(self):
        self.items.clear()
        self.save()
"""


def kinds(update: str, new: str, instruction: str = "") -> list[str]:
    """The checks that a text which was merged without a model fails."""
    request = Request("edit", SHOP, "shop.py", instruction=instruction, update=update)
    return [check.kind for check in apply_outcome(request, merged(new)).failed]


def test_a_definition_that_vanishes_is_missed_unless_the_instruction_names_it() -> None:
    head = "class Cart:\n    def add(self, item):\n        self.items.append(item)\n"
    update = f"{head}        self.save()\n\n    {PY}"
    right = SHOP.replace('        self.log("added", item)\n', "")
    assert kinds(update, right) == []
    wrong = head + SHOP[SHOP.rindex("        self.save()") :]
    assert "definitions" in kinds(update, wrong)
    asked = "Remove `remove`, `Wishlist` and `clear`"
    assert "definitions" not in kinds(update, wrong, asked)
    with pytest.raises(EditRefused, match=r"`Wishlist`.* would be lost.*instruction"):
        apply_answer(Request("edit", SHOP, "shop.py", update=update), merged(wrong))
    whole = SHOP[: SHOP.index("    def remove")] + "\n" + SHOP[SHOP.index("class Wishlist") :]
    above = (
        '        self.items.append(item)\n        self.log("added", item)\n        self.save()\n'
    )
    below = "class Wishlist:\n    def clear(self):\n        self.items.clear()\n"
    shown = f"{PY}{above}\n\n{below}{PY}"
    assert kinds(shown, whole) == ["definitions"]  # it may have forgotten the mark between them
    assert kinds(shown, whole, "Remove the method remove") == []


def test_a_comment_and_the_syntax_are_missed() -> None:
    line = "        self.items.remove(item)"
    shown = f"{PY}    def remove(self, item):\n{line}{{}}\n        self.save()\n{PY}"
    comment = "  # one of them"
    assert kinds(shown.format(""), SHOP.replace(comment, "")) == []  # its line was written anew
    end = f"{comment})\n        ("
    assert kinds(shown.format(end), SHOP.replace(comment, end)) == ["syntax"]
    assert kinds(shown.format(end), SHOP) == []
    elsewhere = f"{PY}class Wishlist:\n    def clear(self):\n{PY}"
    assert kinds(elsewhere, SHOP.replace(comment, "")) == ["comments"]


def test_a_comment_goes_with_new_lines_in_its_place_only() -> None:
    old = SHOP.replace("        self.items.clear()", "        # all\n        self.items.clear()")
    for new, kind in (("", ["comments"]), ("        log()\n", [])):
        update = f"{PY}    def clear(self):\n{new}        self.items.clear()\n{PY}"
        request = Request("edit", old, "shop.py", update=update)
        found = apply_outcome(request, merged(old.replace("        # all\n", new)))
        assert [check.kind for check in found.failed] == kind


def test_long_texts_take_no_time() -> None:
    """Quadratic work would take hours."""
    lines = [f"line {n}" for n in range(20_000)]
    edit = Edit("", "\n".join(lines), f"{PY}line 7\nnew\nline 8\n{PY}")
    new = "\n".join([*lines[:8], "new", *lines[8:]])
    assert answered(edit, new) == new
    with pytest.raises(EditRefused):
        answered(edit, "\n".join([*lines[:8], "new", *lines[8:10_000], *lines[10_001:]]))
    same = Edit("", "}\n" * 5_000, f"{PY}}}\nnew\n}}\n{PY}}}\n{PY}}}")
    with pytest.raises(EditRefused):
        answered(same, "}\n" * 2_000 + "new\n" + "}\n" * 2_900)


# -- generated ---------------------------------------------------------------------------------


class Language(NamedTuple):
    """How its files look. Blocks have lines in common, as those of real files."""

    mark: str
    between: str  # blank lines between blocks
    block: str  # by its number and a value in it
    added: str  # a new line of a block, behind its first one


LANGUAGES = {
    "a.py": Language(
        "# {}", "\n\n", "def f{n}(x):\n    y = g(x)\n    return y + {v}", "    h{v}()"
    ),
    "b.py": Language(
        "# {}",
        "\n",
        "class C{n}:\n    # {n}\n    def run(self):\n        self.n = {v}\n        self.save()",
        "    x{v} = 1",
    ),
    "a.js": Language(
        "// {}", "\n", "function f{n}(x) {{\n  log(x);\n  return x + {v};\n}}", "  h{v}();"
    ),
    "a.go": Language(
        "// {}", "\n", "func f{n}() int {{\n\tx := g()\n\treturn x + {v}\n}}", "\th{v}()"
    ),
    "a.css": Language(
        "/* {} */", "\n", ".c{n} {{\n  margin: {v}px;\n  padding: 4px;\n}}", "  x{v}: 1px;"
    ),
    "a.json": Language(
        "// {}", "", '  "k{n}": {{\n    "port": {v},\n    "tls": true\n  }},', '    "x{v}": 1,'
    ),
    "a.toml": Language("# {}", "\n", "[s{n}]\nport = {v}\ntls = true", "x{v} = 1"),
    "a.yaml": Language("# {}", "", "s{n}:\n  image: {v}\n  restart: always", "  x{v}: 1"),
    "a.md": Language(
        "<!-- {} -->", "\n", "## Part {n}\n\nIt takes {v} s.\n\nSee above.", "So {v}."
    ),
    "a.txt": Language("# {}", "", "key{n} = {v}", "other{v} = 1"),
}


def lines_of(text: str) -> list[str]:
    return [line.strip() for line in text.split("\n") if line.strip()]


@st.composite
def edits(draw: st.DrawFn) -> Edit:
    """Edits of one or two blocks, which the update shows whole."""
    path = draw(st.sampled_from([*LANGUAGES]))
    mark, between, block, added = LANGUAGES[path]
    count = draw(st.integers(3, 7))
    changed = draw(st.sets(st.integers(0, count - 1), min_size=1, max_size=2))
    old, new, shown = [], [], []
    for number in range(count):
        lines = block.format(n=number, v=number * 11).split("\n") + [""] * len(between)
        old += lines
        if number in changed:
            lines = block.format(n=number, v=1000 + number).split("\n")
            lines[1:1] = [added.format(v=n) for n in range(draw(st.integers(0, 4)))]
            lines += [""] * len(between)
        new += lines
        shown += [number in changed] * len(lines)
    update = []
    for is_shown, lines in itertools.groupby(zip(new, shown, strict=True), lambda one: one[1]):
        update += [line for line, _ in lines] if is_shown else [mark.format(MARK)]
    free = tuple(at for at, is_shown in enumerate(shown) if not is_shown)
    name = draw(st.sampled_from([path, ""]))  # without one no grammar checks the answer
    return Edit(name, "\n".join(old), "\n".join(update), "\n".join(new), free)


@given(edits(), st.randoms(use_true_random=False))
@MANY
def test_an_answer_that_loses_repeats_or_moves_lines_is_refused(
    edit: Edit, chance: random.Random
) -> None:
    lines = edit.new.split("\n")
    start = chance.choice(edit.free)
    stop = start + chance.choice((1, 2, 3, 5, 20))
    stop = next((at for at in range(start, stop) if at not in edit.free), stop)
    run, rest = lines[start:stop], lines[:start] + lines[stop:]
    where = chance.randrange(len(rest))
    for bad in (rest, lines[:stop] + lines[start:], rest[:where] + run + rest[where:]):
        try:
            found = answered(edit, "\n".join(bad))
        except EditRefused as error:
            assert "\n" not in str(error)
        else:
            assert lines_of(found) == lines_of(edit.new), bad


@given(edits())
@MANY
def test_the_right_answer_is_accepted_with_the_lines_that_stay_as_they_are(edit: Edit) -> None:
    """Where each new last line is a version of the old one, as here."""
    assert answered(edit, edit.new) == edit.new
    dense = "\n".join(line for line in edit.new.split("\n") if line)
    assert lines_of(answered(edit, dense)) == lines_of(edit.new)


def test_an_update_whose_every_way_would_be_refused() -> None:
    """It lacks the file's first line, wherever its second chunk is placed."""
    block = ["open()", "read()", "close()"]
    old = ["first()", "second()", "third()", "one()", *block, "two()", *block, "three()"]
    chunk = [MARK, "open()", "read(1)", "close()", MARK]

    def why(lines: list[str]) -> str:
        text, update = ("\n".join(each) + "\n" for each in (old, lines))
        ways = ways_of(text, update)
        assert ways and len(ways.texts(9)) == 2
        return refusal(Request("edit", text, update=update), ways)

    assert re.search(
        r"the likeliest since the merge leaves out line 1 of the file.*: repeat more lines",
        why(["second()", "third()", "new()", "one()", *chunk]),
    )
    assert why(["first()", "second()", "third()", "new()", "one()", *chunk]) == ""
