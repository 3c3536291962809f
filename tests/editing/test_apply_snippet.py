"""Updates with `... existing code ...` are merged exactly, or not without a model.

The oracle tries every place for every chunk. Tasks are made from random edits of random files."""

from __future__ import annotations

import difflib
import itertools
import random
from collections import Counter
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.editing.apply_answer import apply_answer, merged
from engine.editing.apply_snippet import END, START, chunks, is_mark, merge, snippet
from engine.editing.edits import EditRefused, plain
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


Places = tuple[tuple[int, int], ...]  # the lines that each chunk replaces


def results(file: list[str], update: str) -> list[str]:
    """What the update can mean: the file after every arrangement of its chunks, in their order,
    in which each begins and ends with a line of the file, in the longest runs that there are."""
    return [text for _, text in arrangements(file, update)]


def arrangements(file: list[str], update: str) -> list[tuple[Places, str]]:
    parts = [part.lines for part in chunks(snippet(update).split("\n"))]
    lines = [START, *file, END]
    options = [[*spans(lines, part)] for part in parts]
    found = []
    for chosen in itertools.product(*options):
        if all(one[1] <= other[0] for one, other in itertools.pairwise(chosen)):
            out, at = [], 0
            for part, (start, stop) in zip(parts, chosen, strict=True):
                out += [*lines[at:start], *part]
                at = stop
            kept = [line for line in [*out, *lines[at:]] if line not in (START, END)]
            found.append((chosen, "\n".join(kept)))
    return found


def likely(file: list[str], update: str) -> list[str]:
    """`results` without those in which a chunk replaces lines of the file, but has one place in
    which it only adds some."""
    found = arrangements(file, update)
    lines, known = [START, *file, END], Counter(map(str.strip, file))
    for number, part in enumerate(chunks(snippet(update).split("\n"))):
        several = len({places[number] for places, _ in found}) > 1
        adding = [
            (start, stop)
            for start, stop in spans(lines, part.lines)
            if stop - start < len(part.lines)
            and run(lines[start:], part.lines) + run(lines[stop - 1 :: -1], part.lines[::-1])
            == stop - start
        ]
        if several and len(adding) == 1 and not part.is_common(lines, known):
            found = [one for one in found if one[0][number] == adding[0]] or found
    return [text for _, text in found]


def spans(lines: list[str], part: tuple[str, ...]) -> Iterator[tuple[int, int]]:
    """The lines that a chunk may replace."""
    for start, stop in itertools.combinations(range(len(lines) + 1), 2):
        inside = lines[start:stop]
        if (len(inside) == 1) == (len(part) == 1):
            head = max(run(lines[at:], part) for at in range(len(lines)))
            tail = max(run(lines[at::-1], part[::-1]) for at in range(len(lines)))
            ours = run(lines[start:], part), run(lines[stop - 1 :: -1], part[::-1])
            if 0 not in ours and ours == (head, tail):
                yield start, stop


def run(lines: list[str], part: tuple[str, ...]) -> int:
    """How many lines of two texts are equal, from the first."""
    pairs = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(lines, part, strict=False))
    return len([*pairs])


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
def test_a_merge_is_the_only_one_that_there_is(case: tuple[list[str], str]) -> None:
    file, update = case
    text = "\n".join(file)
    try:
        found = merge(text, update)
    except EditRefused:
        assert all(line == MARK for line in update.split("\n")) or len(results(file, update)) != 1
        return
    if found.text is not None:
        assert likely(file, update) == [found.text]
    elif "fits in several places" in found.doubt or "order" in found.doubt:
        assert len(results(file, update)) != 1


# -- tasks from edits --------------------------------------------------------------------------


@given(st.integers(0, 10**6), st.integers(1, 4), st.integers(3, 60))
@MANY
def test_updates_made_from_edits_of_files_without_repetitions_are_merged_exactly(
    seed: int, context: int, size: int
) -> None:
    """What is merged is the edit. Every line is there once, so every anchor is unique."""
    chance = random.Random(seed)
    old = [f"line {n}" for n in range(size)]
    new = [*old]
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(1, len(new) - 1) if len(new) > 2 else 1
        new[at : at + chance.randint(0, 2)] = [f"new {chance.random()}"] * chance.randint(0, 2)
    new = [old[0], *[line for line in new if line not in (old[0], old[-1])], old[-1]]
    update = update_of(old, new, context)
    if new != old and MARK in update:
        assert merge("\n".join(old) + "\n", update).text == "\n".join(new)


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
        (f"{MARK}\nimport os\n{MARK}", ("", "")),
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
    assert alone.text is None  # single lines that the file has twice


def test_a_longer_run_further_away_is_no_better_place() -> None:
    """The change is that of `b`, or the lines up to the second `b` are deleted."""
    text = "a\nu\nb 1\nc\nd\nx\ny\nz\nb\nc\nd\ne\n"
    found = merge(text, f"{MARK}\na\nu\nb\nc\nd\n{MARK}")
    assert (found.text, found.doubt) == (
        None,
        "the chunk at line 2 of the update may fit in several places",
    )


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
    with pytest.raises(EditRefused, match="several places"):
        merge(text, f"{MARK}\n" + "\n".join(lines[1:]) + "\nx")
    text = "\n".join(["a", *(f"line {n}" for n in range(100_000)), "b"])
    assert merge(text, f"{MARK}\na\nnew\nb\n{MARK}").text == "a\nnew\nb"


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
        (ADDED.replace("        return file.read()\n", ""), "left out line 9 of the file"),
        (FILE, "did not write the chunk at line 2 of the update"),
        (FILE.replace("LIMIT = 10\n", "LIMIT = 10\nimport sys\n"), "did not write the chunk"),
        (FILE.replace('    save("b", load("a"))\n', MARK), "left `... existing code ...` in line"),
        ("", "delete everything"),
    ],
)
def test_an_answer_that_changes_something_else_is_refused(new: str, message: str) -> None:
    with pytest.raises(EditRefused, match=message):
        answered(new, UPDATE)
