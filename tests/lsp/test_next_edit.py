"""Next-edit rules for renames: which lines become candidates. No model is run."""

from __future__ import annotations

import re
from itertools import islice
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lsp_server.next_edit.candidate import rejection_reason
from lsp_server.next_edit.edit_history import EditHistory, RecentEdit, whole_lines
from lsp_server.next_edit.rules import MAX_CANDIDATES, find_candidates
from lsp_server.next_edit.source_text import MAX_CANDIDATE_CHARS, SourceText, is_identifier_char
from tests.support.edited_files import OPEN, SHAPES, A, B, candidate_lines, edited, expected_changes

# -- properties --------------------------------------------------------------------------------

WORDS = ["foo", "foo_2", "food", "bar", "é", "foo\u0301", "$foo", "x", "def f(", "foo(", ")", ":"]
MARKS = ["\n", "\n    ", "\r\n", "\r", " ", ", ", " = ", ".", "#", '"', "'", "{", "}", "1", "😋"]
texts = st.lists(st.sampled_from(WORDS + MARKS), max_size=40).map("".join)
names = st.sampled_from(["a.py", "b.js", "c.go", "d.txt", "e.c"])
changes = st.tuples(
    st.floats(0, 1), st.integers(0, 5), st.lists(st.sampled_from(WORDS), max_size=2)
)
LINES = [
    "foo = 1",
    "x = foo + 2",
    "def foo(x):",
    "    return foo(x, 3)",
    "print(foo, x)",
    "# foo",
    "",
]
programs = st.lists(st.sampled_from(LINES), max_size=12).map("\n".join)


@given(programs | texts, programs | texts, names, st.lists(changes, max_size=2), st.floats(0, 1))
def test_candidates_are_few_disjoint_whole_lines_of_open_documents(
    text: str, other: str, name: str, steps: list[tuple[float, int, list[str]]], where: float
) -> None:
    history = EditHistory()
    for at in islice(SourceText(name, text).find_words("foo"), 1):  # a rename, most often
        history.record(name, text, at, at + 3, "total", 0.0)
        text = text[:at] + "total" + text[at + 3 :]
    for part, length, pieces in steps:
        start = round(part * len(text))
        stop, new = min(start + length, len(text)), "".join(pieces)
        history.record(name, text, start, stop, new, 0.0)
        text = text[:start] + new + text[stop:]
    documents = {name: text, "other.py": other}
    found = find_candidates(history.edits(), documents, name, round(where * len(text)))
    assert len(found) <= MAX_CANDIDATES
    for n, one in enumerate(found):
        whole = documents[one.uri]
        assert 0 <= one.start <= one.stop <= len(whole)
        assert (one.start, one.stop) == whole_lines(whole, one.start, one.stop)
        assert one.stop - one.start <= MAX_CANDIDATE_CHARS
        assert one.expected != whole[one.start : one.stop]
        assert rejection_reason(one, whole[one.start : one.stop], whole[one.start : one.stop])
        assert not any(
            one.uri == two.uri and one.start <= two.stop and two.start <= one.stop
            for two in found[:n]
        )
        if one.kind == "rename":
            assert occurs_as_word(one.old, whole[one.start : one.stop])


def occurs_as_word(name: str, text: str) -> bool:
    """A plain reference: no character next to the word could be part of an identifier."""
    found = [match.start() for match in re.finditer(f"(?={re.escape(name)})", text)]
    around = [(text[at - 1 : at], text[at + len(name) : at + len(name) + 1]) for at in found]
    return any(not any(c and (f"a{c}".isidentifier() or c == "$") for c in s) for s in around)


@given(texts, st.sampled_from(["foo", "x", "bar"]))
def test_only_whole_words_are_found(text: str, name: str) -> None:
    spots = list(SourceText("a.py", text).find_words(name))
    for at in spots:
        assert text[at : at + len(name)] == name
        assert not is_identifier_char(text[max(at - 1, 0) : at])
        assert not is_identifier_char(text[at + len(name) :][:1])
    assert bool(spots) == occurs_as_word(name, text)


@given(texts, texts, names, st.integers(0, 99))
def test_no_candidates_without_edits_or_after_undoing_them(
    text: str, other: str, name: str, cursor: int
) -> None:
    assert find_candidates([], {name: text, "b.py": other}, name, min(cursor, len(text))) == []
    history, at = EditHistory(), min(cursor, len(text))
    history.record(name, text, at, at, "foo", 0.0)
    history.record(name, text[:at] + "foo" + text[at:], at, at + 3, "", 9.0)
    assert find_candidates(history.edits(), {name: text, "b.py": other}, name, at) == []


@given(texts, names)
def test_edits_that_do_not_match_the_text_are_ignored(text: str, name: str) -> None:
    edit = RecentEdit(name, len(text), "foo = 1", "bar = 1", 0.0)
    assert find_candidates([edit], {name: text + "!"}, name, 0) == []
    assert find_candidates([edit], {}, name, 0) == []


@settings(max_examples=40)
@given(st.sampled_from(["width, height", "LIMIT", "size: int", "def area(", "by):"]), st.data())
def test_accepting_every_candidate_terminates_and_removes_the_old_name(
    old: str, data: st.DataObject
) -> None:
    """In any order."""
    new = old.replace(word := re.findall(r"\w+", old)[-1 if "def" in old else 0], "renamed")
    edits, now, uri, cursor = edited(OPEN, (A, old, new))
    history = EditHistory()
    at = SHAPES.index(old)
    history.record(A, SHAPES, at, at + len(old), new, 0.0)
    for _ in range(20):
        found = [one for one in find_candidates(history.edits(), now, uri, cursor) if one.expected]
        if not found:
            break
        one = data.draw(st.sampled_from(found))
        text = now[one.uri]
        history.record(one.uri, text, one.start, one.stop, one.expected, 0.0)
        now[one.uri] = text[: one.start] + one.expected + text[one.stop :]
        uri, cursor = one.uri, one.start
    else:
        pytest.fail("there are always more candidates")
    assert edits and not re.search(rf"^[^#\"]*\b{word}\b", _reachable(now, old), re.MULTILINE)


def _reachable(now: dict[str, str], old: str) -> str:
    """The text in which the old name referred to what was renamed."""
    text = now[A]
    if old == "width, height":
        return text[text.index("def area") : text.index("def other")]
    if old == "by):":
        return text[text.index("def grow") : text.index("def area")]
    return text if old != "size: int" else text + now[B].replace("size = 3", "")


# -- rename ------------------------------------------------------------------------------------


def test_a_parameter_is_renamed_in_its_function_only() -> None:
    assert expected_changes(OPEN, (A, "width, height", "breadth, height")) == [
        ("result = width * height", "result = breadth * height"),
        ("# width times height", "# breadth times height"),
    ]


def test_a_constant_is_renamed_everywhere_with_code_before_comments() -> None:
    assert expected_changes(OPEN, (A, "LIMIT = 3", "MOST = 3")) == [
        ("if result > LIMIT:", "if result > MOST:"),
        ("result = LIMIT", "result = MOST"),
        (
            'print(area(1, 2), f"{LIMIT} LIMIT", Box().size)',
            'print(area(1, 2), f"{MOST} LIMIT", Box().size)',
        ),
        ("from shapes import area, LIMIT, Box", "from shapes import area, MOST, Box"),
        (
            "y = min(LIMIT, Box().size) + shapes.area(5, 6)",
            "y = min(MOST, Box().size) + shapes.area(5, 6)",
        ),
        ('"""Grow by `by`, up to LIMIT."""', '"""Grow by `by`, up to MOST."""'),
    ]


def test_a_word_of_a_string_is_no_use() -> None:
    uri = "file:///w/order.ts"
    text = 'function f(key: string) {\n  // by key\n  return { key: "id", other: "key" }[key];\n}\n'
    assert expected_changes({uri: text}, (uri, "f(key:", "f(field:")) == [
        ('return { key: "id", other: "key" }[key];', 'return { key: "id", other: "key" }[field];'),
        ("// by key", "// by field"),
    ]


def test_a_variable_of_a_shell_is_its_name_behind_a_dollar() -> None:
    uri = "file:///w/run.sh"
    text = 'dir=/tmp/x\ntouch "$dir/a"\nls $dir\necho "dir: ${dir##*/}"\n'
    assert expected_changes({uri: text}, (uri, "dir=/tmp", "folder=/tmp")) == [
        ('touch "$dir/a"', 'touch "$folder/a"'),
        ("ls $dir", "ls $folder"),
        ('echo "dir: ${dir##*/}"', 'echo "dir: ${folder##*/}"'),
    ]


def test_an_attribute_is_not_the_variable_of_the_same_name() -> None:
    found = candidate_lines(OPEN, (A, "size: int", "extent: int"))
    assert found == [
        "self.size = self.size + by",
        "return self.size",
        'print(area(1, 2), f"{LIMIT} LIMIT", Box().size)',
        "y = min(LIMIT, Box().size) + shapes.area(5, 6)",
    ]


def test_a_line_with_another_old_name_comes_first_once_the_cursor_left_the_word() -> None:
    edits, now, uri, cursor = edited(OPEN, (A, "self.size", "self.extent"))
    away = now[A].index("size + by")
    assert now[A][find_candidates(edits, now, uri, away)[0].start :].startswith(
        "        self.extent = "
    )
    assert all(
        not one.start <= cursor <= one.stop
        for one in find_candidates(edits, now, uri, cursor)
        if one.uri == uri
    )


def test_a_function_is_renamed_with_its_imports() -> None:
    found = candidate_lines(OPEN, (A, "def area(", "def surface("))
    assert found[0].startswith("return area(width, 2) + area(") and found[0].endswith(")")
    assert found[2:] == [
        "from shapes import area, LIMIT, Box",
        "x = area(3, 4)",
        "y = min(LIMIT, Box().size) + shapes.area(5, 6)",
    ]


def test_candidates_below_the_cursor_come_before_those_above() -> None:
    edits, now, _, _ = edited(OPEN, (A, "LIMIT = 3", "MOST = 3"))
    lines = [
        now[A][one.start : one.stop].strip()
        for one in find_candidates(edits, now, A, now[A].index("return result"))
        if one.uri == A
    ]
    assert lines[0].startswith("print(") and lines[1] == "if result > LIMIT:"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("return result", "return width"),  # refers to another existing variable
        ("return area(", "return max("),  # another function
        ("class Box", "klass Box"),  # a keyword
        ("LIMIT = 3", "LIMIT = 4"),  # a number
        ("if result", "while result"),
        ('"""Grow', '"""Shrink'),  # words of a string
    ],
)
def test_edits_that_are_not_renames(old: str, new: str) -> None:
    assert expected_changes(OPEN, (A, old, new)) == []


def test_a_single_letter_is_renamed_in_its_function_only() -> None:
    text = "n = 1\ndef f(k):\n    return k + n\nprint(n, k)\n"
    assert candidate_lines({A: text}, (A, "f(k)", "f(key)")) == ["return k + n"]
    assert candidate_lines({A: text}, (A, "n = 1", "count = 1")) == []


def test_a_rename_that_was_reverted_elsewhere_is_not_proposed_again() -> None:
    text = "foo = 1\nprint(foo)\nprint(bar)\nuse(foo)\n"
    assert "use(foo)" in candidate_lines({A: text}, (A, "foo = 1", "bar = 1"))
    again = expected_changes({A: text}, (A, "foo = 1", "bar = 1"), (A, "print(bar)", "print(foo)"))
    assert ("print(foo)", "print(bar)") not in again and ("bar = 1", "foo = 1") not in again


# -- other languages ---------------------------------------------------------------------------

JS = """\
export function total(items) {
  let sum = 0; // sum of all
  for (const item of items) {
    sum += item.price;
  }
  return `${sum} sum`;
}

const all = total(things);
class Cart {
  count = 0;
  add(n) {
    this.count += n;
  }
}
"""
GO = """\
package a

func Load(path string) (int, error) {
\tdata, err := os.ReadFile(path)
\treturn len(data), wrap(err, path)
}

func main() {
\tpath := os.Args[1]
\tn, err := Load(path)
}
"""


def test_javascript() -> None:
    u = "file:///w/cart.js"
    assert expected_changes({u: JS}, (u, "let sum", "let amount")) == [
        ("sum += item.price;", "amount += item.price;"),
        ("return `${sum} sum`;", "return `${amount} sum`;"),
    ]
    assert candidate_lines({u: JS}, (u, "count = 0", "number = 0")) == ["this.count += n;"]
    assert candidate_lines({u: JS}, (u, "total(items)", "total(items, tax)")) == [
        "const all = total(things);"
    ]
    assert candidate_lines({u: JS}, (u, "total(items)", "total(items, tax = 0)")) == []


def test_go() -> None:
    u = "file:///w/load.go"
    assert candidate_lines({u: GO}, (u, "path string", "file string")) == [
        "data, err := os.ReadFile(path)",
        "return len(data), wrap(err, path)",
    ]
    assert candidate_lines({u: GO}, (u, "path string", "path string, limit int")) == [
        "n, err := Load(path)"
    ]


def test_c() -> None:
    u = "file:///w/a.c"
    text = (
        "int add(int a, int b) {\n    return a + b;\n}\n\n"
        "int main(void) {\n    return add(1, 2);\n}\n"
    )
    assert candidate_lines({u: text}, (u, "int b)", "int b, int c)")) == ["return add(1, 2);"]
    assert candidate_lines({u: text}, (u, "int add", "int plus")) == ["return add(1, 2);"]


def test_a_name_of_another_scope_is_another_name() -> None:
    u = "file:///w/a.c"
    text = (
        "int add(int a)\n{\n    int n = a;\n    return n;\n}\n"
        "int sub(int a)\n{\n    int n = a;\n    return n;\n}\n"
    )
    (change,) = expected_changes({u: text}, (u, "int n = a", "int sum = a"))
    assert change == ("return n;", "return sum;")
    other = "from shapes import area\n\ndef own(area):\n    return area\n"
    found = candidate_lines({A: SHAPES, B: other}, (A, "def area(", "def surface("))
    assert "from shapes import area" in found and "return area" not in found


def test_a_property_in_short_keeps_its_name() -> None:
    u = "file:///w/a.ts"
    text = "function f() {\n  const sum = 1;\n  return { sum };\n}\n"
    assert expected_changes({u: text}, (u, "const sum", "const total")) == [
        ("return { sum };", "return { sum: total };")
    ]


def test_a_member_that_is_replaced_by_another_one_is_not_renamed() -> None:
    text = "class A:\n    size: int\n    area: int\n\ndef f(a, b):\n    return a.size + b.size\n"
    assert expected_changes({A: text}, (A, "a.size", "a.area")) == []


def test_calls_inside_a_macro_of_rust() -> None:
    u = "file:///w/a.rs"
    text = "fn area(w: f64) -> f64 {\n    w\n}\n\nfn main() {\n    assert!(area(1.0) > 0.5);\n}\n"
    assert candidate_lines({u: text}, (u, "w: f64)", "w: f64, h: f64)")) == [
        "assert!(area(1.0) > 0.5);"
    ]


@pytest.mark.parametrize("typed", ["x = foo(", "def g(a, b"])
def test_a_line_that_is_being_written_hides_nothing_below_it(typed: str) -> None:
    """An open bracket would swallow the functions that follow."""
    text = "y = 1\n\ndef f(a):\n    return a\n\ndef h(a):\n    return f(a)\n"
    assert candidate_lines({A: text}, (A, "y = 1", typed), (A, "def f(a", "def f(count")) == [
        "return a"
    ]
    found = candidate_lines({A: text}, (A, "y = 1", typed), (A, "def f(a", "def f(a, b"))
    assert "return f(a)" in found


elements = st.recursive(
    st.sampled_from(["div", "<br />\n", "<div />\n"]),
    lambda inner: st.builds(
        lambda name, inside: f"<{name}>\n{''.join(inside)}\n</{name}>\n",
        st.sampled_from(["div", "p"]),
        st.lists(inner, max_size=3),
    ),
    max_leaves=6,
)


@given(elements, st.lists(elements, max_size=2), st.booleans(), st.data())
def test_of_renamed_tags_the_other_end_is_offered(
    inner: str, others: list[str], is_last: bool, data: st.DataObject
) -> None:
    """The parser of XML is the oracle: only then is the text well-formed again."""
    text = f"<all>\n<div>\n{inner}\n</div>\n{''.join(others)}\n</all>\n"
    tag = "</div>" if is_last else "<div>"
    at = data.draw(st.sampled_from([found.start() for found in re.finditer(tag, text)]))
    u, head = "file:///w/a.html", text[:at]
    step = (u, head + tag, head + tag.replace("div", "main"))
    edits, now, uri, cursor = edited({u: text}, step)
    (offered,) = find_candidates(edits, now, uri, cursor)
    made = now[u][: offered.start] + offered.expected + now[u][offered.stop :]
    assert len(list(ElementTree.fromstring(made).iter("main"))) == 1


CSS = """\
.card {
  color: red;
}
.card-title {
}
a.card-title {
}
.my-card {
}
.card:hover {
}
"""


def test_plain_text() -> None:
    u = "file:///w/notes.txt"
    text = "It's the colour of the wall.\nIt's the colour of the door.\nNo colourful thing.\n"
    assert expected_changes({u: text}, (u, "colour", "shade")) == [
        ("It's the colour of the door.", "It's the shade of the door.")
    ]


@pytest.mark.parametrize(
    ("name", "text", "step", "changed"),
    [
        ("a.css", CSS, ("card", "tile"), [(".card:hover {", ".tile:hover {")]),
        ("a.css", CSS, ("card-title", "tile-title"), [("a.card-title {", "a.tile-title {")]),
        ("a.yml", "my-key: 1\nmy: 2\n- my\n", ("my: 2", "own: 2"), [("- my", "- own")]),
        (
            "a.el",
            "(setq foo 1)\n(foo-bar foo)\n",
            ("foo", "baz"),
            [("(foo-bar foo)", "(foo-bar baz)")],
        ),
        ("a.txt", "my-key\nthe my\n", ("my", "own"), [("the my", "the own")]),
    ],
)
def test_hyphens_belong_to_names_in_css_lisp_and_yaml(
    name: str, text: str, step: tuple[str, str], changed: list[tuple[str, str]]
) -> None:
    u = f"file:///w/{name}"
    assert expected_changes({u: text}, (u, *step)) == changed


def test_a_version_belongs_to_the_name_before_it() -> None:
    u = "file:///w/ci.yml"
    text = (
        "- uses: actions/checkout@v3\n- uses: actions/cache@v3\n"
        "- run: v3\n- uses: actions/checkout@v3\n"
    )
    assert expected_changes({u: text}, (u, "checkout@v3", "checkout@v4")) == [
        ("- uses: actions/checkout@v3", "- uses: actions/checkout@v4")
    ]
