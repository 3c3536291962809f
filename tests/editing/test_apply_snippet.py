"""Updates with `... existing code ...` are merged exactly, or not without a model.

The oracle tries every place for every chunk. Tasks are made from random edits of random files."""

from __future__ import annotations

import contextlib
import difflib
import random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from engine.editing.apply_answer import apply_answer, merged
from engine.editing.apply_snippet import END, START, chunks, merge
from engine.editing.edits import EditRefused, plain
from engine.editing.readings import FREE
from engine.editing.snippet import snippet
from engine.editing.update_marks import is_mark
from engine.records import Done, Request, Usage

MARK = "# ... existing code ..."
FILE = """import os
import re

LIMIT = 10


def load(path):
    with open(path) as file:
        return file.read()


def save(path, text):
    with open(path, "w") as file:
        file.write(text)


def main():
    save("b", load("a"))
"""
MANY = settings(max_examples=300)


def update_of(old: list[str], new: list[str], context: int, ends: bool = True) -> str:
    """An update with `context` lines around every change and marks for the other lines."""
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    out: list[str] = []
    at = 0  # in the new lines, up to which they are shown or stand behind a mark
    for group in matcher.get_grouped_opcodes(context):
        if group[0][3] > at:
            out.append(MARK)
        out += new[group[0][3] : group[-1][4]]
        at = group[-1][4]
    if at < len(new) and ends:
        out.append(MARK)
    return "\n".join(out) + "\n"


# -- the oracle --------------------------------------------------------------------------------


def is_reading(file: list[str], update: str, text: str) -> bool:
    """Whether a text is the file with every chunk of the update, whole and in their order, in place
    of some lines. Tries every place for every chunk."""
    lines, new = [START, *file, END], (START, *text.split("\n"), END)
    ends = {(0, 0)}  # lines of the file and of the text that are read
    for part in chunks(snippet(update).split("\n")):
        size = len(part.lines)
        ends = {
            (stop, at + size)
            for line, at in copied(lines, new, ends)
            if new[at : at + size] == part.lines
            for stop in range(line, len(lines) + 1)
        }
    return (len(lines), len(new)) in copied(lines, new, ends)


def copied(
    lines: list[str], new: tuple[str, ...], ends: set[tuple[int, int]]
) -> set[tuple[int, int]]:
    """Where equal lines lead to from some places in two texts."""
    found = set()
    for line, at in ends:
        found.add((line, at))
        while line < len(lines) and at < len(new) and lines[line] == new[at]:
            line, at = line + 1, at + 1
            found.add((line, at))
    return found


LINES = st.sampled_from(["a", "b", "c", "d", "e", "  a", "}"])
FILES = st.lists(LINES, min_size=1, max_size=9)


@st.composite
def updates(draw: st.DrawFn) -> tuple[list[str], str]:
    """A file, and lines of it, new ones and marks in some order."""
    file = draw(FILES)
    pick = st.one_of(st.sampled_from(file), st.just(MARK), st.just("new"), st.just("added"))
    return file, "\n".join([MARK, *draw(st.lists(pick, min_size=1, max_size=7)), MARK])


@given(updates())
@MANY
def test_a_merge_is_the_file_with_all_chunks_in_their_order(case: tuple[list[str], str]) -> None:
    file, update = case
    with contextlib.suppress(EditRefused):
        found = merge("\n".join(file), update)
        assert (found.text is None) == bool(found.doubt)
        assert found.text is None or is_reading(file, update, found.text)


# -- tasks from edits --------------------------------------------------------------------------


@given(st.integers(0, 10**6), st.integers(1, 4), st.integers(9, 60))
@MANY
def test_updates_made_from_edits_of_files_without_repetitions_are_merged_exactly(
    seed: int, context: int, size: int
) -> None:
    """What is merged is the edit. Every line is there once, so every anchor is unique."""
    chance = random.Random(seed)
    old = [f"line {n}" for n in range(size)]
    new = [*old]
    for at in range(size - chance.randint(3, 6), 2, -chance.randint(3, 20)):
        new[at : at + chance.randint(0, 2)] = [f"new {chance.random()}"] * chance.randint(0, 2)
    update = update_of(old, new, context)
    if new != old and MARK in update:
        assert merge("\n".join(old) + "\n", update).text == "\n".join(new)


@st.composite
def repeating(draw: st.DrawFn) -> tuple[list[str], list[str], int]:
    """A file of small blocks with the same few lines, an edit of it, and lines of context."""
    body = st.lists(
        st.sampled_from(["    a()", "    b()", "    return a", "", "        c()"]), max_size=4
    )
    blocks = [[f"def {name}():", "    x = 1", *draw(body), ""] for name in "fgh"]
    old = [line for block in blocks[: draw(st.integers(1, 3))] for line in block]
    lines = st.sampled_from([*old, "    new()", "    return b", "    x = 2"])
    new = [*old]
    for _ in range(draw(st.integers(1, 2))):
        at = draw(st.integers(0, len(new)))
        new[at : at + draw(st.integers(0, 2))] = draw(st.lists(lines, max_size=2))
    old, new = ("\n".join(lines).strip("\n").split("\n") for lines in (old, new))
    return old, new, draw(st.integers(1, 3))


@given(repeating())
@example(
    (
        ["def f():", "    x = 1", *["    b()"] * 3, "    a()"],
        ["    b()", "def f():", *["    b()"] * 3, "    a()"],
        3,
    )
)
@settings(max_examples=400)
def test_a_merge_is_as_near_to_the_file_as_the_right_one(
    case: tuple[list[str], list[str], int],
) -> None:
    """It is the right one, unless equal lines make one update of two edits: then the merge has no
    more changes, of which three deleted lines are as much as a new one."""
    old, new, context = case
    update = update_of(old, new, context)
    with contextlib.suppress(EditRefused):
        found = merge("\n".join(old), update).text
        if found is not None and update_of(old, found.split("\n"), context) != update:
            assert changes(old, found.split("\n")) <= changes(old, new)


def changes(old: list[str], new: list[str]) -> float:
    """The fewest new lines of an edit, and a third of those deleted with no new ones in their
    place, blank ones aside."""
    before, after = (list(filter(str.strip, lines)) for lines in (old, new))
    common = [0] * (len(after) + 1)  # the longest common subsequence, by lines of `after`
    for line in before:
        last = [*common]
        for at, other in enumerate(after):
            common[at + 1] = last[at] + 1 if line == other else max(last[at + 1], common[at])
    added, deleted = len(after) - common[-1], len(before) - common[-1]
    return added + max(0, deleted - added) / FREE


@pytest.mark.parametrize("language", ["python", "json", "go"])
@given(st.integers(2, 9), st.integers(0, 8), st.integers(1, 8), st.booleans(), st.booleans())
@example(5, 0, 4, False, False)
@example(5, 0, 4, False, True)
@settings(max_examples=60)
def test_a_last_line_that_stands_further_down_is_no_order_to_delete(
    language: str, size: int, first: int, second: int, added: bool, shown: bool
) -> None:
    """The value of one block becomes that of another one below, or is added."""
    opener, middle, last, closer = {
        "python": ("def test_{0}(client):", '    r = get("/{0}")', "    return {0}0", ""),
        "json": ('  "host{0}": {{', '    "name": "{0}",', '    "port": {0}0', "  }},"),
        "go": ("func f{0}() int {{", "\tw := {0}", "\treturn w * {0}", "}}"),
    }[language]
    blocks = [
        [line.format(n) for line in (opener, middle, last, closer)] for n in range(1, size + 1)
    ]
    first, second = sorted((first % size, (first + second) % size))
    own, other = blocks[first], blocks[second]
    new = [*own[:2], *([own[2]] if added else []), other[2], own[3]]
    update = "\n".join([MARK, *new[: None if shown else -1], MARK])
    old, after = (
        "\n".join(line for block in every for line in block).rstrip("\n")
        for every in (blocks, [*blocks[:first], new, *blocks[first + 1 :]])
    )
    with contextlib.suppress(EditRefused):
        assert merge(old, update).text in (None, after)
    if (first, second, size, added) == (0, 4, 5, False) and shown != (language == "python"):
        assert merge(old, update).text == after


@given(st.integers(0, 10**6))
@MANY
def test_a_merge_of_a_real_looking_edit_is_exact_or_left_to_the_model(seed: int) -> None:
    """Files with repeated lines: what is merged is the edit."""
    chance = random.Random(seed)
    old = FILE.rstrip().split("\n")
    new = [*old]
    at = chance.randrange(len(new))
    new[at : at + chance.randint(0, 1)] = [f"    new_{n}()" for n in range(chance.randint(1, 3))]
    try:
        found = merge(FILE, update_of(old, new, 3))
    except EditRefused:
        return
    assert found.text in (None, "\n".join(new))


def test_most_edits_of_a_real_looking_file_are_merged() -> None:
    """Or the test before this one would be empty."""
    old = FILE.rstrip().split("\n")
    exact = 0
    for at in range(1, len(old)):
        new = [*old[:at], "    new()", *old[at:]]
        exact += merge(FILE, update_of(old, new, 3)).text == "\n".join(new)
    assert exact >= len(old) // 2


@pytest.mark.parametrize(
    ("update", "new"),
    [
        (f"{MARK}\nimport re\n\nLIMIT = 20\n\n\ndef load(path):\n{MARK}", ("T = 10", "T = 20")),
        (f"import sys\nimport os\n{MARK}", ("import os", "import sys\nimport os")),
        (f"#!/usr/bin/python3\n{MARK}", ("import os", "#!/usr/bin/python3\nimport os")),
        (f"{MARK}\n\n\nmain()\n", ('load("a"))\n', 'load("a"))\n\n\nmain()\n')),
        (f"{MARK}\n    x = 1\n    file.write(text)\n    more()", None),  # before what?
        (f"{MARK}\nimport os\n\nLIMIT = 10\n{MARK}", ("import re\n", "")),
        (f"```python\n{MARK}\nimport os\nx\nimport re\n{MARK}\n```", ("import re", "x\nimport re")),
        (f"{MARK}\nimport os\nimport re\n{MARK}", None),  # are blank lines deleted?
        (f"{MARK}\n    with open(path) as file:\n        x()\n        file.write(text)\n", None),
        (f"{MARK}\nimport os\n{MARK}", None),  # no change
        ("import os\nimport io", None),  # the new file, or a part of it?
        ("# ...\nimport os\nimport io\nimport re\n# ...", None),
        (f"{MARK}\nLIMIT = 20\n{MARK}", None),  # like LIMIT = 10
        (f"{MARK}\n\ndef load(path, mode):\n    return 1\n\n{MARK}", None),
        (f"from os import path\n{MARK}", ("import os", "from os import path\nimport os")),
        (f"import io\n{MARK}", None),  # for `import os`, or before it?
        (f"{MARK}\nimport os\nx = 1  {MARK}\nimport re\n{MARK}", None),
        (f"{MARK}\ndef main():\n    pass\n{MARK}\nimport os\n{MARK}", None),
    ],
)  # fmt: skip
def test_examples(update: str, new: tuple[str, str] | None) -> None:
    """`new`: what is replaced in the file by what; None where it takes a model."""
    found = merge(FILE, update)
    if new is None:
        assert found.text is None and found.doubt and "\n" not in found.doubt
        return
    done = merged(found.text or "")
    assert apply_answer(Request("edit", FILE, update=update), done) == FILE.replace(*new, 1)


SCRIPT = '#!/bin/python\n"""Doc."""\n\nimport re\nimport sys\n\n\ndef f():\n    return 1\n'


@pytest.mark.parametrize(
    ("update", "new"),
    [
        (f"import os\n{MARK}", ("import re\n", "import os\nimport re\n")),
        (f"{MARK}\nimport os\n{MARK}", ("import re\n", "import os\nimport re\n")),
        (f"import re\nimport json\nimport sys\n{MARK}",
         ("import re\n", "import json\nimport re\n")),
        (f"from a import b\n{MARK}\ndef f():\n    return 2\n",
         ("\n\ndef f():\n    return 1\n", "\nfrom a import b\n\n\ndef f():\n    return 2\n")),
        (f"from os import sys\n{MARK}", None),  # in place of the other one?
    ],
)  # fmt: skip
def test_a_new_import_goes_among_the_others(update: str, new: tuple[str, str] | None) -> None:
    found = merge(SCRIPT, update, "a.py").text
    if new:
        assert found == SCRIPT.replace(*new).rstrip("\n")
    else:
        assert found is None or "import sys\nfrom os" not in found


BRACES = (
    "class A {\n  f() {\n    a();\n  }\n\n  g() {\n    b();\n  }\n}\n\nfunction h() {\n  c();\n}\n"
)


@pytest.mark.parametrize(
    "update",
    [
        f"{MARK}\n  g() {{\n    b(1);\n  }}\n{MARK}\n}}\n{MARK}\n",
        f"{MARK}\n    a();\n  }}\n\n  g() {{\n    b(1);\n  }}\n{MARK}\n\n}}\n\n{MARK}\n",
        f"class A {{\n{MARK}\n  g() {{\n    b(1);\n  }}\n{MARK}\n}}\n\n{MARK}\n",
        f"{MARK}\n  }}\n{MARK}\n  g() {{\n    b(1);\n  }}\n{MARK}\n",
    ],
)
def test_a_chunk_of_closing_brackets_says_only_where_the_next_one_is(update: str) -> None:
    assert merge(BRACES, update).text == BRACES.replace("b()", "b(1)").rstrip("\n")


@pytest.mark.parametrize(
    "mark",
    [
        "# ... existing code ...", "// ... existing code ...", "    // ... existing code ...",
        "/* ... existing code ... */", "<!-- ... existing code ... -->", "-- ... existing code ...",
        "{/* ... existing code ... */}", "... existing code ...", "# \u2026 existing code \u2026",
        "# ... existing imports ...", "# ... rest of the file ...", "// ...existing code...",
        "{# ... existing code ... #}", "; ... existing code ...", "# ... Existing Code (main) ...",
    ],
)  # fmt: skip
def test_marks(mark: str) -> None:
    assert is_mark(mark)
    found = merge(FILE, f"{mark}\nimport os\nimport io\nimport re\n{mark}\n")
    assert found.text == plain(FILE).rstrip().replace("import re", "import io\nimport re", 1)


@pytest.mark.parametrize(
    "line", ["existing code", "# existing code", "x = ... existing", "...", "a ... existing ..."]
)
def test_lines_that_are_no_marks(line: str) -> None:
    assert not is_mark(line)


def test_line_ends_and_the_byte_order_mark_stay() -> None:
    text = "\ufeff" + FILE.replace("\n", "\r\n")
    update = f"{MARK}\nimport os\nimport io\nimport re\n{MARK}\n"
    new = apply_answer(Request("edit", text, update=update), merged(merge(text, update).text or ""))
    assert new == text.replace("import re", "import io\r\nimport re", 1)


PATCH = """--- a/f.py
+++ b/f.py
@@ -100,4 +100,5 @@ def load(path):
     with open(path, "w") as file:
-        file.write(text)
+        file.write(text + "!")
+        file.flush()

"""


@pytest.mark.parametrize("text", [PATCH, f"Here it is:\n\n```diff\n{PATCH}```\n\nIt works.\n"])
def test_a_diff_is_applied_where_its_lines_are(text: str) -> None:
    new = FILE.replace("write(text)", 'write(text + "!")\n        file.flush()')
    assert apply_answer(
        Request("edit", FILE, update=text), merged(merge(FILE, text).text or "")
    ) == (new)


@given(st.integers(0, 10**6), st.integers(1, 4))
def test_a_diff_of_two_texts_leads_from_the_one_to_the_other(seed: int, context: int) -> None:
    """Or a part of it fits in several places."""
    chance = random.Random(seed)
    old = FILE.rstrip().split("\n")
    new = [*old]
    for at in sorted({chance.randrange(len(old)) for _ in range(2)}, reverse=True):
        new[at : at + chance.randint(0, 2)] = ["    new()"] * chance.randint(0, 2)
    lines = [*difflib.unified_diff(old, new, "a/f.py", "b/f.py", lineterm="", n=context)]
    with contextlib.suppress(EditRefused):
        found = merge(FILE, "\n".join(lines)).text if lines else "\n".join(new)
        assert found == "\n".join(new).strip("\n")


@pytest.mark.parametrize(
    ("hunk", "message"),
    [
        ("-        return nothing", "fits in no place"),
        (" \n+import io", "fits in several places"),
        ("+import io", "fits in several places"),
        ("-import os\n+++ b/g.py\nimport io", "line 4 of the update is none of the diff's"),
    ],
)
def test_a_diff_that_fits_nowhere_or_in_several_places_is_refused(hunk: str, message: str) -> None:
    with pytest.raises(EditRefused, match=message):
        merge(FILE, f"@@ -1,2 +1,2 @@\n{hunk}\n")


def test_a_fenced_block_in_prose_is_the_update() -> None:
    update = f"Sure!\n\n```python\n{MARK}\nimport os\nimport io\nimport re\n{MARK}\n```\nBye."
    assert merge(FILE, update).text == FILE.rstrip().replace("import re", "import io\nimport re", 1)
    text = "# A\n\n```\na\n```\n\nb\n"
    assert snippet(f"# A\n\n```\nc\n```\n\n{MARK}", text).startswith("# A")
    assert snippet("a = 1\n```\nc\n```\nb", "a = 1\n").startswith("a = 1")


@pytest.mark.parametrize(
    "line",
    ["# rest unchanged", "# ... existing methods", "// (rest of the class is unchanged)",
     "/* remaining methods */", "# ... other imports", "# unchanged",
     "# ... other imports ..."],
)  # fmt: skip
def test_marks_in_plain_words(line: str) -> None:
    assert is_mark(line)


@pytest.mark.parametrize(
    "line",
    ["# the rest of them is skipped", "# rest", "# existing code", "rest unchanged", "# Other"],
)
def test_remarks_are_no_marks(line: str) -> None:
    assert not is_mark(line)


# -- what is refused ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("update", "message"),
    [
        (f"{MARK}\n    nothing like it\n{MARK}", "fits nowhere"),
        ("x\ny\n", "fits nowhere"),
        (f"{MARK}\nSIZE = 20\n{MARK}", "fits nowhere"),  # it could be added anywhere
        (f"{MARK}\n    more()", "fits nowhere"),  # to which function?
        ("", "would empty the file"),
        ("\n \n", "would empty the file"),
        ("```\n\n```", "would empty the file"),
        (f"{MARK}\n", "nothing but"),
        (f"{MARK}\n<<<<<<< SEARCH\nimport os\n", "line 2 of the update belongs to search"),
        ("*** Begin Patch\n*** Update File: x\n", "line 1 of the update belongs to a patch"),
        ("--- a/x\n+++ b/x\n@@ -1 +1 @@\n", "line 1 of the update belongs to a diff"),
        ("import os\n<|marker_1|>\n", "line 2 of the update belongs to a prompt of another model"),
        ("<updated-code>\nimport os\n</updated-code>", "a prompt of another model"),
    ],
)  # fmt: skip
def test_bad_updates_are_refused(update: str, message: str) -> None:
    with pytest.raises(EditRefused, match=message) as raised:
        merge(FILE, update)
    assert "\n" not in str(raised.value)


def test_an_update_that_fits_in_several_places_names_the_lines() -> None:
    text = "\n\nif a:\n    x = 1\n    y()\nif b:\n    x = 1\n    y()\nif c:\n    z()\n"
    with pytest.raises(EditRefused, match=r"lines 4, 7 of the file"):
        merge(text, f"{MARK}\n    x = 1\n    new()\n    y()\n{MARK}")
    with pytest.raises(EditRefused, match=r"lines 4, 7 of the file"):
        merge(text, f"{MARK}\n    x = 1\n    new()\n{MARK}")
    assert merge(text, f"{MARK}\n    x = 1\n    z(2)\n{MARK}").text is None  # like z()
    found = merge(text, f"{MARK}\nif b:\n    x = 1\n    new()\n    y()\nif c:\n{MARK}").text
    assert found == text.strip().replace("if b:\n    x = 1", "if b:\n    x = 1\n    new()")


def test_a_chunk_that_only_adds_lines_is_in_the_only_place_for_that() -> None:
    """Its last line is also further down."""
    text = "a = 1\nreturn a\nb = 2\nreturn a"
    added = merge(text, f"{MARK}\na = 1\nc = 3\nreturn a\n{MARK}")
    assert added.text == "a = 1\nc = 3\nreturn a\nb = 2\nreturn a"
    twice = f"{text}\na = 1\nreturn a"
    with pytest.raises(EditRefused, match="several places"):
        merge(twice, f"{MARK}\na = 1\nc = 3\nreturn a\n{MARK}")


def test_an_order_decides_between_equal_places() -> None:
    text = "a\nv\nw\nx\ny\nb\nv\nw\nx\ny\nc\n"
    found = merge(text, f"{MARK}\nb\n{MARK}\nv\nw\nnew\nx\ny\n{MARK}").text
    assert found == "a\nv\nw\nx\ny\nb\nv\nw\nnew\nx\ny\nc"
    alone = merge(text, f"{MARK}\nb\n{MARK}\nw\nnew\nx\n{MARK}")
    assert alone.text == found


def test_a_longer_run_further_away_is_no_better_place() -> None:
    """The change is that of `b`, or the lines up to the second `b` are deleted."""
    text = "a\nu\nb 1\nc\nd\nx\ny\nz\nb\nc\nd\ne\n"
    found = merge(text, f"{MARK}\na\nu\nb\nc\nd\n{MARK}").text
    assert found in (None, text.strip().replace("b 1", "b"))


def test_far_lines_without_a_mark_between_them_are_a_doubt() -> None:
    text = "\n".join(["a", *(f"line {n}" for n in range(30)), "b", "c"])
    found = merge(text, f"{MARK}\na\nb\n{MARK}")
    assert found.text is None
    assert merge("a\nx\nb\nc", f"{MARK}\na\nb\n{MARK}").text == "a\nb\nc"


CART = """class Cart:
    def add(self, item):
        self.items.append(item)
        self.log("added", item)
        self.save()

    def remove(self, item):
        self.items.remove(item)
        self.save()


class Wishlist:
    def add(self, item):
        self.items.append(item)
        self.save()
"""


@pytest.mark.parametrize(
    "update",
    [
        "{0}        self.save()\n\n    {1}",
        "    {1}\n{2}        self.save()\n\n    def remove(self, item):\n    {1}",
    ],
)
def test_a_line_that_is_left_out_is_all_that_goes(update: str) -> None:
    head = CART.partition('        self.log("')[0]
    update = update.format(head, MARK, head.partition("\n")[2])
    new = CART.replace('        self.log("added", item)\n', "").strip()
    assert merge(CART, update).text in (new, None) if update[0] == " " else new


BLOCKS = {  # a block's first line, by its name, and its inner lines, by a number
    "py": ("    def {}(self, rows):", "        rows.add_{}()", ""),
    "js": ("  {}(rows) {{", "    rows.add{}();", "  }"),
    "css": (".{} {{", "  width: {}px;", "}"),
    "make": ("{}:", "\t./run {}", ""),
    "yaml": ("      - name: {}", "        run{}: yes", ""),
    "elif": ('    elif "{}" in name:', "        shell = {}", ""),
}


@given(
    st.sampled_from(sorted(BLOCKS)),
    st.lists(st.lists(st.integers(1, 9), min_size=1, max_size=4), min_size=3, max_size=6),
    st.lists(st.integers(1, 9), min_size=1, max_size=4),
    st.data(),
)
@MANY
def test_a_new_block_that_ends_as_the_next_one_does_not_replace_it(
    kind: str, bodies: list[list[int]], body: list[int], data: st.DataObject
) -> None:
    first, inner, last = BLOCKS[kind]

    def block(name: str, numbers: list[int]) -> list[str]:
        lines = [first.format(name), *map(inner.format, numbers), *([last] if last else [])]
        return lines if kind == "elif" else [*lines, ""]

    blocks = [block(f"old{n}", numbers) for n, numbers in enumerate(bodies)]
    at = data.draw(st.integers(1, len(blocks) - 1))
    same = data.draw(st.integers(1, len(bodies[at])))  # last lines that both have
    added = block("fresh", [*body, *bodies[at][-same:]])
    shown = data.draw(st.integers(0, len(blocks[at - 1])))  # lines of the block before
    above = blocks[at - 1][len(blocks[at - 1]) - shown :]
    update = "\n".join([MARK, *above, *added, MARK]) + "\n"
    old = "\n".join(line for lines in blocks for line in lines) + "\n"
    with contextlib.suppress(EditRefused):
        if (text := merge(old, update).text) is not None:
            kept = text.split("\n")
            assert all(first.format(f"old{n}") in kept for n in range(len(blocks)))


def test_a_new_block_that_begins_and_ends_as_the_next_one_does_does_not_replace_it() -> None:
    text = "a:\n\t./run 1\n\nb:\n\t./run 1\n\t./run 1\n\t./run 1\n"
    update = f"{MARK}\na:\n\t./run 1\n\nfresh:\n\t./run 1\n\t./run 1\n\n{MARK}\n"
    found = merge(text, update)
    assert found.text is None and "may add a block before a similar one" in found.doubt


def test_a_mark_that_would_stand_for_no_line_is_a_doubt() -> None:
    """Where lines would go: they may be what the mark stands for."""
    text = "def f():\n    x = 1\n    a()\n    a()\n    a()\n    a()\n\ndef g():\n    x = 1\n"
    head = "def f():\ndef f():\n    a()\ndef g():\ndef f():\n    x = 1\n"
    found = merge(text, head + MARK)
    assert found.text is None and found.doubt.endswith("would leave no line for the mark after it")


def test_an_update_in_spaces_is_written_in_tabs() -> None:
    text = "all: main.o\n\tgcc main.o\n\nclean:\n\trm -f main\n\ninstall: all\n\tcp main /usr\n"
    update = f"{MARK}\nclean:\n    rm -f main main.o\n\ninstall: all\n{MARK}\n"
    assert merge(text, update).text == text.strip().replace("rm -f main", "rm -f main main.o")
    deep = "if a {\n\tif b {\n\t\tc()\n\t}\n}"
    update = f"{MARK}\n  if b {{\n    c()\n    d()\n  }}\n{MARK}"
    assert merge(deep, update).text == deep.replace("c()\n", "c()\n\t\td()\n")


TABS = "/*\n * old\n */\nlet b = 1;\nfunction f() {\n\t/*\n\t * a\n\t */\n\treturn 1;\n}"


@pytest.mark.parametrize("lines", [(0, 4), (0, 5), (3, 10)])
def test_an_update_of_a_file_in_tabs_keeps_the_spaces_of_its_comments(
    lines: tuple[int, int],
) -> None:
    new = TABS.replace("old", "new").replace("b = 1", "b = 2") if lines[0] == 0 else TABS
    new = new.replace("return 1", "return 2") if lines[1] == 10 else new
    first, last = lines
    marks = ["// ... existing code ..."] * (first > 0), ["// ... existing code ..."] * (last < 10)
    update = [*marks[0], *new.split("\n")[first:last], *marks[1]]
    assert merge(TABS, "\n".join(update), "a.js").text == new


def test_a_comment_above_a_definition_that_is_merged_by_name_is_not_left_out() -> None:
    new = TABS.replace("let b = 1;\n", "").replace("old", "new").replace("return 1", "return 2")
    update = new.replace("\t/*\n\t * a\n\t */", "\t// ... existing code ...")
    found = merge(TABS.replace("let b = 1;\n", ""), update, "a.js")
    assert found.text in (None, new)
    assert found.text or found.doubt == "nothing tells the place of line 2 of the update"


def test_fences_in_fences_are_taken_off() -> None:
    assert snippet("```\n" * 100_000 + "a\n" + "```\n" * 100_000) == "a"


@pytest.mark.parametrize(
    "header", ["# f.py", "# File: src/f.py", "// src/f.tsx", "/* a/f.css */", "#  `b/f.toml`"]
)
@pytest.mark.parametrize("fence", [False, True])
def test_the_path_above_the_code_is_not_part_of_it(header: str, fence: bool) -> None:
    mark = f"{header.split()[0]} ... existing code ..."
    update = f"{header}\n{mark}\nb\nx\nc\n{mark}"
    update = f"```\n{update}\n```" if fence else update
    assert merge("a\nb\nc\nd", update).text == "a\nb\nx\nc\nd"
    with_it = merge(f"{header}\na\nb\nc\nd", update.replace(f"{mark}\nb", "a\nb", 1)).text
    assert with_it == f"{header}\na\nb\nx\nc\nd"  # a line of the file stays one


@pytest.mark.parametrize("header", ["# os.path", "# a note in f.py", "# 3.11", "#!/bin/sh", "## f"])
def test_other_comments_above_the_code_are_part_of_it(header: str) -> None:
    assert snippet(f"{header}\na\n{MARK}") == f"{header}\na\n{MARK}"
    assert snippet("# setup.py\n\na\n<!-- ... existing code ... -->")[:10] == "# setup.py"


def test_a_file_with_a_mark_is_left_to_the_model() -> None:
    assert merge(f"{MARK}\na\nb\n", f"{MARK}\na\nx\nb\n").text is None


def test_an_empty_file_is_the_update() -> None:
    update = "a\n\nb\n"
    found = merge("\n", update).text
    assert found == "a\n\nb"
    assert apply_answer(Request("edit", "", update=update), merged(found)) == "a\n\nb\n"


def test_huge_updates_take_no_time() -> None:
    """Quadratic work would take hours."""
    lines = ["}"] * 300_000
    text = "\n".join(lines)
    update = "\n".join(f"{MARK}\n}}" for _ in lines)
    assert merge(text, update).text is None
    assert merge(text, f"{MARK}\n" + "\n".join(lines[1:]) + "\nx").text is None
    text = "\n".join(["a", *(f"line {n}" for n in range(100_000)), "b"])
    added = merge(text, f"{MARK}\nline 70\nnew\nline 71\n{MARK}").text
    assert added == text.replace("line 71\n", "new\nline 71\n", 1)


# -- answers of a model ------------------------------------------------------------------------


def answered(new: str, update: str, text: str = FILE) -> str:
    done = Done("stop", new.strip("\n"), matched="\n```", usage=Usage(forwards=1))
    return apply_answer(Request("edit", text, update=update), done)


UPDATE = (
    f"{MARK}\nimport re\nimport sys\n{MARK}\ndef save(path, text):\n{MARK}\ndef main():\n{MARK}"
)

ADDED = FILE.replace("import re\n", "import re\nimport sys\n")


def test_an_answer_with_lines_of_the_file_and_the_update_is_accepted() -> None:
    assert answered(ADDED, UPDATE) == ADDED


@pytest.mark.parametrize(
    ("new", "message"),
    [
        (FILE.replace("LIMIT = 10", "LIMIT = 11"), "line 4, which is neither"),
        (ADDED.replace("        return file.read()\n", ""), "leaves out line 9 of the file"),
        (FILE, "did not write the chunk at line 2 of the update"),
        (FILE.replace("LIMIT = 10\n", "LIMIT = 10\nimport sys\n"), "did not write the chunk"),
        (FILE.replace('    save("b", load("a"))\n', MARK), "left `... existing code ...` in line"),
        ("", "delete everything"),
    ],
)
def test_an_answer_that_changes_something_else_is_refused(new: str, message: str) -> None:
    with pytest.raises(EditRefused, match=message):
        answered(new, UPDATE)


def test_a_line_replaced_by_one_of_another_function_deletes_nothing_between() -> None:
    """Both functions begin alike, so the update could also join them."""
    one = "def load(\n    path,\n    mode,\n) -> str:\n    a()\n    return read(path)\n"
    two = "def loads(\n    path,\n    mode,\n) -> bytes:\n    b()\n    return read(mode)\n"
    text = f"x()\n\n\n{one}\n\n{two}"
    renamed = two.replace("def loads", "def load")
    assert merge(text, f"{MARK}\n{renamed}{MARK}").text is None


def test_the_nearest_places_are_compared_also_behind_many_worse_ones() -> None:
    """The body that is repeated stands once, behind 30 that begin alike."""
    body = "    def same(self, other):\n        if not is_{}(other):\n            return False\n"
    methods = [f"class C{n}:\n{body.format(n)}        return self.a{n}\n\n" for n in range(32)]
    update = f"{MARK}\n{body.format(30)}        return self.a31\n{MARK}"
    assert merge("".join(methods), update).text is None


def test_lines_of_blanks_around_the_file_stay() -> None:
    found = merge("  \na\nb\nc\n\t\n \n\n", f"{MARK}\nb\nnew\nc\n{MARK}").text
    assert found == "  \na\nb\nnew\nc\n\t\n "


def test_blank_lines_alone_do_not_show_that_nothing_is_deleted() -> None:
    """A tool that shows two lines around each change shows two blank ones after a deletion."""
    old = FILE.split("\n")
    start = old.index("def save(path, text):")
    new = [*old[:start], *old[start + 5 :]]
    new.insert(start + 2, "    # twice")
    new[0] = "import io"
    update = update_of(old, new, 2)
    assert merge(FILE, update).text in (None, "\n".join(new).strip("\n"))
    chunk = f"{MARK}\n\n\ndef save(path, text):\n    with open(path, 'w') as file:\n"
    text = FILE.replace('"w"', "'w'")
    tail = f"        file.write(text + text)\n\n\n{MARK}\n"
    assert merge(text, chunk + tail).text is None
