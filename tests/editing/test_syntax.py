"""Texts of many languages become trees, whose spans are code points of the text."""

from __future__ import annotations

import ast
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.editing.syntax import LANGUAGES, MAX_PARSE_CHARS, Tree, language_of, parse

RIGHT = {
    "a.py": "def f(a, *, b=1):\n    return [x async for x in a if (y := x)]\n",
    "a.js": "const f = (a) => ({ b: `${a}` }); class A { #x = 1 }\n",
    "a.jsx": "const A = () => <b c={1}>text</b>;\n",
    "a.ts": "function f<T>(a: T[], b?: number): a is U { return <any>a; }\n",
    "a.tsx": "const A = (p: P) => <b c={p.c}>text</b>;\n",
    "a.go": "package a\n\nfunc (t *T[K]) F(a, b int) (c int, err error) { return a + b, nil }\n",
    "a.rs": "fn f<'a, T: Into<String>>(a: &'a T) -> Option<&'a str> { None? }\n",
    "a.c": "static int f(const char *a) { return a ? (int)*a : 0; }\n",
    "a.h": "template <typename T> class A { public: A() = default; };\n",
    "a.cpp": "auto f = [](auto&&... a) { return (a + ...); };\n",
    "a.java": "class A<T> { int f(List<T> a) { return a.stream().map(x -> x + 1); } }\n",
    "a.json": '{"a": [1, -2.5e3, true, null, "\\u00e9"]}\n',
    "a.sh": 'f() { local a="$1"; [[ -n $a ]] && echo "${a%.*}" <<<x; }\n',
}
WRONG = {
    "a.py": "def f(a:\n    return 1\n",
    "a.js": "const f = (a => { return 1;\n",
    "a.ts": "function f(a: { return 1; }\n",
    "a.tsx": "const A = () => <b>text</c;\n",
    "a.go": "package a\n\nfunc f( { return 1 }\n",
    "a.rs": "fn f(a: &str -> i32 { 1 }\n",
    "a.c": "int f(int a { return a; }\n",
    "a.cpp": "class A { public: int f( };\n",
    "a.java": "class A { int f( { return 1; }\n",
    "a.json": '{"a": [1, 2}\n',
    "a.sh": "if true; then echo 'a\n",
}
HOSTILE = [
    ("a.go", "*,"),
    ("a.go", "<-;"),
    ("a.js", "${:"),
    ("a.rs", "&>"),
]
TEXTS = st.text(
    st.sampled_from("ab1_ é\u0301😀\ud800\0\t\n\r\"'`#/*\\(){}[]<>:;,.=+-&|@$"), max_size=60
)


@pytest.mark.parametrize("name", RIGHT)
def test_right_text_has_no_errors(name: str) -> None:
    tree = parse(name, RIGHT[name])
    assert tree is not None
    assert (tree.errors, tree.text_of(tree.root).strip()) == (0, RIGHT[name].strip())


@pytest.mark.parametrize("name", WRONG)
def test_wrong_text_has_errors(name: str) -> None:
    tree = parse(name, WRONG[name])
    assert tree is not None
    assert tree.errors > 0


def test_every_language_is_tried() -> None:
    assert {language_of(name) for name in RIGHT} == set(LANGUAGES.values())


@pytest.mark.parametrize("name", ["a.txt", "a", "py", ".py", "", "a.md"])
def test_other_files_have_no_tree(name: str) -> None:
    assert (language_of(name), parse(name, "a = 1\n")) == (None, None)


def test_the_extension_decides_in_any_case_and_folder() -> None:
    assert language_of("C:\\a\\B.PY") == language_of("/a.b/c.Py") == "python"


def test_a_text_that_is_too_long_has_no_tree() -> None:
    assert parse("a.py", "#" * MAX_PARSE_CHARS) is not None
    assert parse("a.py", "#" * (MAX_PARSE_CHARS + 1)) is None


@pytest.mark.parametrize(
    ("name", "unit"),
    [("a.sh", "a|"), ("a.sh", "a|\n"), ("a.cpp", "a<"), ("a.go", "a["), ("a.py", "lambda "),
     ("a.sh", "<<a\n"), ("a.rs", "\u00e9|")],
)  # fmt: skip
def test_a_text_that_repeats_itself_without_end_has_no_tree(name: str, unit: str) -> None:
    """tree-sitter would need memory that grows with the square of such a text's length."""
    for head in ("", "b = 1\n" * 3):
        assert parse(name, head + unit * 100_000) is None
    assert parse(name, unit * 20) is not None


@pytest.mark.parametrize("unit", ["#", "-", " ", "\n", "(", "["])
def test_a_run_of_one_character_has_a_tree(unit: str) -> None:
    assert parse("a.py", f"a = 1\n{unit * 9000}\na = 1\n") is not None


def test_code_has_a_tree_however_alike_its_lines_are() -> None:
    lines = [f"    {n}: '{n:04x}',  # {n}" for n in range(5000)]
    assert parse("a.py", "\n".join(["names = {", *lines, "}"])) is not None


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_any_line_end_ends_a_line(end: str) -> None:
    tree = parse("a.py", f"# é{end}a = 1{end}if a:{end}    b = '😀'{end}")
    assert tree is not None
    comment, a, _ = tree.root.children
    assert (tree.errors, tree.text_of(comment).rstrip("\r"), tree.text_of(a)) == (0, "# é", "a = 1")


@given(TEXTS, st.sampled_from(sorted(LANGUAGES)))
def test_spans_are_the_texts_code_points(text: str, suffix: str) -> None:
    tree = parse(f"a{suffix}", text)
    if tree is None:
        return
    assert tree.root.has_error or not tree.errors
    wrong = [node for node in nodes(tree) if node.is_error or node.is_missing]
    assert tree.errors == sum(not any(_holds(other, node) for other in wrong) for node in wrong)
    for node in nodes(tree):
        start, stop = tree.span(node)
        assert text[:start].encode("utf-8", "replace") == data(text)[: node.start_byte]
        assert text[start:stop].encode("utf-8", "replace") == data(text)[slice(*node.byte_range)]


@given(TEXTS)
def test_names_are_where_python_says(text: str) -> None:
    """Against Python's own parser."""
    source = f"é = {text!r}; name.é\n"
    expression = ast.parse(source).body[-1]
    before = source.encode()[: expression.col_offset].decode()
    tree = parse("a.py", source)
    assert tree is not None
    (found,) = [
        node for node in nodes(tree) if tree.text_of(node) == "name.é" and node.parent.parent
    ]
    assert tree.span(found) == (len(before), len(source) - 1)


@pytest.mark.parametrize(("name", "pattern"), HOSTILE)
def test_hostile_text_is_given_up(name: str, pattern: str) -> None:
    """Without a limit these take minutes."""
    assert parse(name, pattern * 20_000) is None
    assert parse(name, pattern) is not None


def data(text: str) -> bytes:
    return text.encode("utf-8", "replace")  # lone surrogates are one byte


def _holds(outer: Any, node: Any) -> bool:
    """Whether a node is somewhere below another one."""
    while node := node.parent:
        if node == outer:
            return True
    return False


@pytest.mark.parametrize("text", ["#define A", "#include <a.h>", "#1:", "int a;\n#pragma once"])
def test_the_line_end_that_a_file_lacks_is_no_error(text: str) -> None:
    """The grammar of C wants one after a directive; tree-sitter shows no node for it."""
    tree = parse("a.c", text)
    assert tree is not None
    assert (tree.errors, tree.root.has_error) == (0, True)


def nodes(tree: Tree) -> list[Any]:
    found, todo = [], [tree.root]
    while todo:
        node = todo.pop()
        found.append(node)
        todo += node.children
    return found
