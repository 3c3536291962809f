"""What of a completion is offered: it breaks nothing, repeats nothing, and ends nowhere inside."""

from __future__ import annotations

import ast
import textwrap
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.editing.syntax import parse
from lsp_server.completion import checks
from lsp_server.completion.checks import checked, unfit_place
from lsp_server.completion.postprocess import fit_to_context

SOURCES = sorted(Path(checks.__file__).parent.glob("[a-z]*.py"))
BODY = "def f(self, name):\n    |\n    return name\n"


def offered(text: str, answer: str, path: str = "a.py", complete: bool = True) -> tuple[str, str]:
    """What is offered of an answer at the `|` of a text, and why not more."""
    before, after = text.split("|")
    multiline = "\n" in answer
    fitted = fit_to_context(answer, before, after, multiline)
    return checked(fitted, before, after, path, multiline, complete)


@pytest.mark.parametrize(
    ("text", "answer", "path"),
    [
        (BODY, "name = name.strip()", "a.py"),
        (BODY, "if not name:\n        raise ValueError(name)", "a.py"),
        ("print(|)\n", 'f"{name}"', "a.py"),
        ('print("|")\n', "hello", "a.py"),
        ("x = |\n", "[1, 2]", "a.py"),
        ("x = |\n", 'f"{y // 100}.{y % 100}"', "a.py"),  # no comment
        ("f(|\n", "a)", "a.py"),
        ("if (a) {\n  |\n}\n", "b();", "a.ts"),
        ("if (a) {|\n", "\n  b();\n}", "a.ts"),
        ("It is |\n", 'a "quoted (text', "a.md"),  # prose
        ("a.b = |\n", "c(d", "a.md"),
        ("# don't |\n", "say 'no", "a.py"),
        ("local a = |\n", "f(1)", "a.lua"),  # no grammar
        ("const a = `x\n|\n`;\n", "say (", "a.ts"),
        ("def f(a):\n    |\n        b = a\n", "if a:", "a.py"),
        ("def |\n    a,\n    b,\n):\n    pass\n", "f(", "a.py"),
        ("x = |\n    1,\n)\n", "f(a, b,", "a.py"),
        ("def f(n):\n    |\n        print(n)\n", "for n in range(n // 2):", "a.py"),
        ('x = f(\n    a |\n        "b"\n)\n', "%", "a.py"),
        ('"""Words.\n\nArgs:\n|\n    a: b\n"""\n', "More", "a.py"),
        ("if (a)|\n  b();\n}\n", " {", "a.ts"),
        ("const a = |\n  .map(f);\n", "b", "a.ts"),
    ],
)
def test_a_good_completion_is_offered_whole(text: str, answer: str, path: str) -> None:
    assert offered(text, answer, path) == (answer, "")


@given(st.sampled_from(SOURCES), st.data())
def test_what_a_file_has_opens_the_lines_below(path: Path, data: st.DataObject) -> None:
    lines = path.read_text("utf-8").split("\n")
    row = data.draw(st.sampled_from([n for n, line in enumerate(lines) if line.strip()]))
    blank = len(lines[row]) - len(lines[row].lstrip())
    before = "\n".join([*lines[:row], lines[row][:blank]])
    after = "\n".join(["", *lines[row + 1 :]])
    _, why = checked(lines[row][blank:], before, after, str(path), False)
    assert "below" not in why


@pytest.mark.parametrize(
    ("text", "answer", "left", "why"),
    [
        ("x = |\n", "f(a", "", "syntax"),
        ("x = |\n", '"abc', "", "string"),
        ("print(|)\n", '"abc', "", "string"),
        (BODY, "name = g(name)\n    other = g(", "name = g(name)", "syntax"),
        (BODY, 'name = g(name)\n    other = "g', "name = g(name)", "string"),
        (BODY, "return name", "", "the model would repeat"),
        ("def f():\n    first_call()\n    |\n    x = 1\n", "first_call()", "", "nearby"),
        (BODY, "name = 1\n    return name", "name = 1", "the model would repeat"),
        ("page|.open(path)\n", ".get(path)", "", "behind the cursor"),
        ("page|(path)\n", "s", "", "behind the cursor"),
        ("return| name\n", " other", "", "syntax"),
        (BODY, "name = = 2", "", "syntax"),
        (BODY, "x = 1\n    name = = 2", "x = 1", "syntax"),
        ("local a = |\n", "f(1", "", "brackets"),
        ("a = [b for b in c if |]\n", "b > 1:", "b > 1", "syntax"),
        ('a = "%s %s" % (|\n', "b, c))", "b, c)", "unbalanced"),
        ("elapsed = |\n", "elapsed = 1", "", "the beginning of the line"),
        (BODY, "return 1", "", "not be reached"),
        (BODY, "a = 1\n    return a", "a = 1", "not be reached"),
        ("for a in b:\n    |\n    print(a)\n", "continue", "", "not be reached"),
        ("def f(a):\n    |\n        b = a\n", "c = iter(a)", "", "indented below"),
        ("def |\n    a,\n    b,\n):\n    pass\n", "f(a, b):", "", "would"),
    ],
)
def test_what_would_have_to_be_undone_is_not_offered(
    text: str, answer: str, left: str, why: str
) -> None:
    path = "a.lua" if text.startswith("local") else "a.py"
    before, after = text.split("|")
    found, reason = checked(answer, before, after, path, "\n" in answer)
    assert (found, why in reason) == (left, True), (found, reason)


@pytest.mark.parametrize(
    ("text", "answer", "path", "reached"),
    [
        ("if (a) {\n  |\n}\nb();\n", "return;", "a.ts", True),
        ("if (a) {\n  |\n  b();\n}\n", "return;", "a.ts", False),
        ("if (a) {\n  |\n  b();\n}\n", "if (c) {\n    return;\n  }", "a.ts", True),
        ("if (a) {\n  |\n  function b() {}\n}\n", "throw c;", "a.ts", True),  # hoisted
        ("switch (a) {\n  case 1:\n    |\n  case 2:\n    b();\n}\n", "break;", "a.ts", True),
        ("func f() int {\n\t|\n\treturn 2\n}\n", "return 1", "a.go", False),
        ("func f() int {\n\treturn |\n\tg()\n}\n", "1", "a.go", True),  # the user's `return`
        ("fn f() -> u8 {\n    |\n    2\n}\n", "return 1;", "a.rs", False),
        ("fn f() -> u8 {\n    |\n    // done\n}\n", "return 1;", "a.rs", True),
        ("int f() {\n  |\n  g();\n}\n", "return 1;", "a.c", False),
        ("class A { int f() {\n  |\n  g();\n} }\n", "throw e;", "A.java", False),
    ],
)
def test_code_below_stays_reachable(text: str, answer: str, path: str, reached: bool) -> None:
    found, why = offered(text, answer, path)
    assert (found, bool(why)) == ((answer, False) if reached else ("", True))


@pytest.mark.parametrize(
    ("answer", "left"), [("b | c |", "b | c |"), ("| | |", ""), ("b |", ""), ("b | c | d |", "")]
)
def test_a_row_of_a_table_has_the_cells_of_the_others(answer: str, left: str) -> None:
    before = "| x | y | z |\n|---|---|---|\n| a | "
    assert checked(answer, before, "\n", "a.md", False)[0] == left
    assert checked(answer, "A | ", "\n", "a.md", False)[0] == answer  # no table


@pytest.mark.parametrize("word", ["if", "return", "for ", " const"])
def test_a_keyword_alone_is_offered_only_if_the_model_ended_there(word: str) -> None:
    assert offered(BODY, word, complete=False) == ("", "the answer was cut off behind a keyword")
    assert offered(BODY, "name", complete=False) == ("name", "")


@pytest.mark.parametrize(
    "before", ['print(f"{self.', '    raise E(f"{self.', '  return f("<F {self.', "f(\"it's {self."]
)
@pytest.mark.parametrize("end", ['}")', '}")\n', '}"'])
def test_a_closing_that_is_there_is_not_repeated(before: str, end: str) -> None:
    for closed in range(len(end.strip()) + 1):  # the model repeats none, some or all of it
        answer = "import_name" + end[:closed]
        assert fit_to_context(answer, before, end, False) == "import_name"


@pytest.mark.parametrize(
    ("text", "answer", "left", "path"),
    [
        ("<p>|</p>\n", "Hello</p>\n", "Hello", "a.html"),
        ("<p>Hello|</p>\n", " there", " there", "a.html"),
        ("<p>|</p>\n", "a<br>b <b>c</b>", "a<br>b <b>c</b>", "a.html"),
        ("<p>|</p>\n", "a</p><p>b", "a</p><p>b", "a.html"),
        ("<p>|</p>\n", "a <b>c", "", "a.html"),
        ("return <p>|</p>;\n", "{title}", "{title}", "a.jsx"),
        ("return <p>|</p>;\n", "<A b={{c: () => 1}}>d</A>", "<A b={{c: () => 1}}>d</A>", "a.jsx"),
        ("return <p>|</p>;\n", "<>a</b>", "", "a.jsx"),
        ("return <Button |/>;\n", "onClick={() => go()}", "onClick={() => go()}", "a.tsx"),
        ("<Button |/>\n", "@click='go'>", "@click='go'", "a.vue"),
        ('printf("sum: |\\n", s);\n', '%d\\n", s);\n', "%d", "a.c"),
        ('printf("sum: \\|\\n", s);\n', "n", "", "a.c"),  # inside of an escape
        ("a = b|\\x\n", "c", "", "a.tex"),  # no string
        ('open("/home/|/x")\n', "me", "me", "a.py"),
        ("/* |*/\nint x;\n", "a counter ", "a counter ", "a.c"),
        ("p|->x = 1;\n", "q", "", "a.c"),
        ("a |/ b\n", "c", "", "a.py"),
    ],
)
def test_between_tags_and_before_an_escape_something_is_offered(
    text: str, answer: str, left: str, path: str
) -> None:
    before, after = text.split("|")
    assert offered(text, answer, path)[0] == left
    if left:
        assert not unfit_place(before, after)


@pytest.mark.parametrize(
    ("text", "answer", "left"),
    [
        ('{\n  "a": |\n}\n', "1,", "1"),
        ('{\n  "a": |\n}\n', '"b, }",', '"b, }"'),
        ('{\n  "a": 1,\n  |\n}\n', '"b": [2],', '"b": [2]'),
        ('{\n  "a": [1, |]\n}\n', "2, 3,", "2, 3"),
        ('{"a": |}\n', "[1,]", ""),
        ('[\n  {"id": 1},\n  |\n', "]", ""),
        ("[\n  |\n  2\n]\n", "1,", "1,"),
    ],
)
def test_json_has_no_comma_before_a_closing_bracket(text: str, answer: str, left: str) -> None:
    assert offered(text, answer, "a.json")[0] == left
    assert offered("x = [\n    |\n]\n", "1,")[0] == "1,"  # Python may have one


LINES = st.lists(
    st.sampled_from([
        "a = b", "call(a)", "if a:", "    call(b)", 'a = "text"', "for a in b:", "    pass", "",
        "call(", "a)", 'b = "', "]", "return [a]", "# don't", "a = [", "    1,", "else:", "x.",
    ]),
    max_size=6,
)  # fmt: skip


@given(LINES, LINES, LINES, st.booleans(), st.booleans())
def test_what_is_offered_is_a_part_and_breaks_nothing(
    above: list[str], answer: list[str], below: list[str], multiline: bool, complete: bool
) -> None:
    before = "def f(a, b):\n" + textwrap.indent("\n".join([*above, ""]), "    ") + "    "
    after = "\n" + textwrap.indent("\n".join(below), "    ") + "\n    return a\n"
    text = "\n    ".join(answer)
    fitted = fit_to_context(text, before, after, multiline)
    found, why = checked(fitted, before, after, "a.py", multiline, complete) if fitted else ("", "")
    assert fitted.startswith(found)
    assert bool(why) == (found != fitted)
    old, new = parse("a.py", before + after), parse("a.py", before + found + after)
    assert old and new and new.errors <= old.errors
    if found and not why:  # it passes again
        assert checked(found, before, after, "a.py", multiline, complete) == (found, "")


@given(st.sampled_from(["a = b", "call(a)", 'a = "text"', "a = [b, (a)]", "del [a]"]), st.data())
def test_a_true_line_is_offered_and_no_broken_part_of_it(line: str, data: st.DataObject) -> None:
    before, after = "def f(a, b):\n    ", "\n    assert a\n"
    ast.parse(before + line + after)
    assert checked(line, before, after, "a.py", False) == (line, "")
    cut = line[: data.draw(st.integers(1, len(line)))]
    found, _ = checked(cut, before, after, "a.py", False)
    if found:
        ast.parse(before + found + after)
