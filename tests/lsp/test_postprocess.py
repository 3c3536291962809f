"""Post-processing of completions: the end does not depend on how the answer was streamed; nothing
after the cursor is repeated; brackets stay balanced; the completion stays in its block."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from engine.editing.brackets import OPENER_OF, scan
from lsp_server.completion.indentation import indent_width, line_after, line_before
from lsp_server.completion.postprocess import (
    find_end,
    fit_to_context,
    repeated_part,
    truncate,
    wants_multiline,
)

SIGNS = [*"()[]{}:;,=ab \"'`\\\n\té😋", "\n\n", "    ", "        ", "\n    ", "\n        ", "\r\n"]
PIECES = st.sampled_from(
    [
        *(*SIGNS, "f(", "end", "fi", "done", "x=1", "return", "don't", "\n}", "case 1:"),
        *("} else {", "\n    repeat(x)", "repeat(x)\n", "'repeated', "),
    ]
)
ANSWERS = st.lists(PIECES, max_size=14).map("".join)
SIDES = st.lists(PIECES, max_size=8).map("".join)


@given(ANSWERS, SIDES, SIDES, st.booleans())
@example('a, "x)"', "f(", ")", False)
@example("\n    x\nend\n", "while y do", "", True)
@example("x\n    end)\n", "    ", ")", True)
@example(")\n[)((\n    ", "((]", ")\n[)((", True)
def test_the_end_of_an_answer_does_not_depend_on_what_follows(
    answer: str, before: str, after: str, lines: bool
) -> None:
    ends = [find_end(answer[:n], before, after, lines) for n in range(len(answer) + 1)]
    known = [(n, end) for n, end in enumerate(ends) if end is not None]
    assert all(end <= n for n, end in known)
    assert len({end for _, end in known}) <= 1
    if known:
        assert None not in ends[known[0][0] :]


@given(ANSWERS, SIDES, SIDES, st.booleans())
@example("a;;", "", ";", False)
def test_the_inserted_text_is_part_of_the_answer_and_fitting_is_idempotent(
    answer: str, before: str, after: str, lines: bool
) -> None:
    text = fit_to_context(answer, before, after, lines)
    assert len(text) <= len(answer)
    assert text == "" or text.strip()
    letters = iter(answer)
    assert all(char in letters for char in text)  # in the answer's order
    assert fit_to_context(text, before, after, lines) == text
    if not line_after(after).strip():
        assert text == text.rstrip()


@given(ANSWERS, SIDES, SIDES, st.booleans(), st.booleans())
def test_truncation_keeps_a_prefix_up_to_the_end(
    answer: str, before: str, after: str, lines: bool, ended: bool
) -> None:
    text = truncate(answer, before, after, lines, ended)
    assert answer.startswith(text)
    stop = find_end(answer, before, after, lines)
    part = repeated_part(answer[:stop], line_before(before))
    assert stop is None or text == answer[: stop if part is None else part]
    if not lines and stop is None and not ended and text != answer:
        assert text.strip()


WORDS = st.text("abcxyz", min_size=1, max_size=5)
LINES = st.sampled_from(["repeat(x)", "self.value = value", "if value:", "    return value", "b"])


@given(st.lists(LINES, min_size=1, max_size=5), st.lists(LINES, max_size=3))
def test_lines_that_repeat_themselves_end_an_answer(block: list[str], above: list[str]) -> None:
    """A block of lines, and all of its copies but the first, whatever stands above it."""
    once = [*above, *block]
    text = "".join(f"    {line}\n" for line in [*once, *block, *block])
    kept = truncate(text[4:], "def f():\n    ", "", True, True)
    rows = ("    " + kept).split("\n")
    assert len(rows) < len(once + block) or len("".join(block)) < 6
    assert not any(one == two and len(one.strip()) > 6 for one, two in pairwise(rows))
    assert truncate(kept, "def f():\n    ", "", True, True) == kept


@given(st.integers(0, 5), st.sampled_from(["x{0} = {0}", "case {0}: return {0}", "('{0}', {0}),"]))
def test_counting_up_is_no_repetition(first: int, pattern: str) -> None:
    text = "".join(f"    {pattern.format(n)}\n" for n in range(first, first + 6))
    assert truncate(text[4:], "def f():\n    ", "", True, True) == text[4:]


@pytest.mark.parametrize(
    ("line", "answer", "kept"),
    [
        ("names = [", "'one', 'two', 'mupad', 'mupad', 'mupad', '", "'one', 'two', 'mupad'"),
        ("names = ['", "one', 'mupad', 'mupad', 'mupad', 'mupad', '", "one', 'mupad'"),
        ("names = [", '"infinitesimal", "infinitesimal", "infinit', '"infinitesimal", '),
        ("x = [", "0, 0, 0, 0, 0, 0, 0]", "0, 0, 0, 0, 0, 0, 0]"),
        ("x = (", "None, None, None, None)", "None, None, None, None)"),
        ("x = [", "'x1', 'x2', 'x3', 'x4']", "'x1', 'x2', 'x3', 'x4']"),
        ("x = ", "'-' * 20 + '-' * 20", "'-' * 20 + '-' * 20"),
    ],
)
def test_a_part_of_a_line_is_offered_once(line: str, answer: str, kept: str) -> None:
    for stop in range(len(answer) + 1):
        assert kept.startswith(truncate(answer[:stop], line, "", False, True)[: len(kept)])
    assert truncate(answer, line, "", False, True) == kept


def nested(depth: int) -> st.SearchStrategy[str]:
    """Balanced text."""
    if not depth:
        return WORDS
    inner = nested(depth - 1)
    return st.one_of(
        WORDS,
        st.builds(lambda pair, one: pair[0] + one + pair[1], st.sampled_from(["()", "[]"]), inner),
        st.builds(lambda one, two: f"{one}, {two}", inner, inner),
        WORDS.map(lambda word: f'"{word}) ("'),
    )


@given(nested(3), st.sampled_from([("f(", ")"), ("f(g(", "))"), ("x = [", "]"), ("if (", ") {")]))
def test_closing_brackets_from_the_editor_are_not_doubled(
    inner: str, sides: tuple[str, str]
) -> None:
    before, after = sides
    whole = fit_to_context(inner, before, after, False)
    assert whole == inner
    assume(truncate(inner, before, "", False, True) == inner)  # parts are offered once
    for end in range(len(after) + 1):  # the model closes none, some or all of them
        answer = inner + after[:end] + ("\nnext()" if end == len(after) else "")
        text = fit_to_context(truncate(answer, before, after, False, True), before, after, False)
        assert text.rstrip() == inner
        left = scan(before + text + after)
        assert not left.unmatched_closers and len(left.open) == after.count("{")


@pytest.mark.parametrize(
    ("before", "after", "answer", "inserted"),
    [
        ("print(", ")", "name)", "name"),  # Python
        ("print(", ")", "f(name))", "f(name)"),
        ("print(", ")", "name", "name"),
        ("    if check(", "):", "a, b):\n        return 1", "a, b"),
        ('print("', '")', 'hello")', "hello"),
        ('print("', '")', "it's {name}", "it's {name}"),
        ('x = "', '"', 'a" + b + "', 'a" + b + "'),
        ("f(", ", b)", "a, b)", "a"),
        ("f(", "a, b)", "a, b", ""),
        ("f(", "a, b)", "a", ""),
        ("f(g(", ")", "a)", "a)"),  # the editor closed one of two
        ("f(", "", "a)", "a)"),  # and none here
        ("x = ", " + 1", "y + 1", "y"),
        ("x = ", "name", "other_name", "other_"),
        ("const f = (", ") => {", "a, b) => {", "a, b"),  # JavaScript
        ("foo(", ");", "() => bar());", "() => bar()"),
        ("for i := 0; i < ", " {", "len(s); i++ {", "len(s); i++"),  # Go
        ("if (", ") {", "x > 0) {\n", "x > 0"),  # C
        ("int a[", "];", "SIZE];", "SIZE"),
        ("x = ", "", " 5", " 5"),
        ("x =\t", "", " 5", "5"),
        ("    thi", "", " this.a = a", "s.a = a"),  # a word begun anew
        ("    return", "", " returned", "ed"),
        ("    return", "", " value", " value"),
    ],
)
def test_a_single_line_repeats_nothing_after_the_cursor(
    before: str, after: str, answer: str, inserted: str
) -> None:
    if before == "x = ":
        inserted = inserted.lstrip()  # the line has the blank already
    assert (
        fit_to_context(truncate(answer, before, after, False, True), before, after, False)
        == inserted
    )


def complete(text: str, answer: str, ended: bool = True) -> str:
    """The text with the completion inserted at its `|`."""
    before, after = text.split("|")
    lines = wants_multiline(before, after, "auto")
    whole = truncate(answer, before, after, lines, ended)
    return before + fit_to_context(whole, before, after, lines) + after


METHOD = "class A:\n    def f(self):\n        |\n"
SCOPES = [
    # text, answer, result
    (METHOD, "return 1\n\n    def g(self):\n        return 2\n", METHOD.replace("|", "return 1")),
    (METHOD, "return 1\n\nclass B:\n    pass\n", METHOD.replace("|", "return 1")),
    (METHOD, "return 1\n    x = 1\n", METHOD.replace("|", "return 1")),
    (METHOD, "        return 1\n", METHOD.replace("|", "return 1")),  # indented twice
    (METHOD, " return 1\n        b\n", METHOD.replace("|", "return 1\n        b")),
    (METHOD, "if a:\n            b\n        c\n", METHOD.replace(
        "|", "if a:\n            b\n        c")),
    ("def f(a):|\n", "\n    return a\n\ndef g(b):\n", "def f(a):\n    return a\n"),
    ("def f(a):\n|\n", "    return a\n\ndef g(b):\n", "def f(a):\n    return a\n"),
    ("x = 1\n|\n", "y = 2\n\nz = 3\n", "x = 1\ny = 2\n"),
    ("x = [|\n", "\n    1,\n    2,\n]\ny = 1\n", "x = [\n    1,\n    2,\n]\n"),
    ("x = [|\n]\n", "\n    1,\n    2,\n]\ny = 1\n", "x = [\n    1,\n    2,\n]\n"),
    ("x = [|]\n", "\n    1,\n    2,\n]\ny = 1\n", "x = [\n    1,\n    2,\n]\n"),
    ("f(|)\n", "a,\n  b)\nc\n", "f(a,\n  b)\n"),
    # braces
    ("if (a) {|\n", "\n  b();\n}\nfunction c() {\n", "if (a) {\n  b();\n}\n"),
    ("if (a) {|\n}\n", "\n  b();\n}\nc();\n", "if (a) {\n  b();\n}\n"),
    ("if (a) {|}\n", "\n  b();\n}\nc();\n", "if (a) {\n  b();\n}\n"),
    ("if (a) {|\n", "\n  b();\n} else {\n  c();\n}\n", "if (a) {\n  b();\n}\n"),
    ("use(() => {|\n", "\n  b();\n}, [c]);\nd\n", "use(() => {\n  b();\n}, [c]);\n"),
    ("if (a) {\n  |\n", "b();\n}\n\nc();\n", "if (a) {\n  b();\n}\n"),
    ("if (a) {\n  |\n}\n", "b();\n}\n\nc();\n", "if (a) {\n  b();\n}\n"),
    ("if (a) {\n  |\n  c();\n}\n", "b();\n  c();\n}\n", "if (a) {\n  b();\n  c();\n}\n"),
    ("{\n  if (a) {\n    |\n}\n", "b();\n  }\n}\n", "{\n  if (a) {\n    b();\n  }\n}\n"),
    ("{\n  |\n}\n", "if (a) {\n    b();\n  }\n}\n", "{\n  if (a) {\n    b();\n  }\n}\n"),
    ("func f() int {|\n", "\n\treturn 1\n}\n\nfunc g() {\n", "func f() int {\n\treturn 1\n}\n"),
    ("\tswitch x {|\n", "\n\tcase 1:\n\t\ta()\n\t}\n\tb()\n",
     "\tswitch x {\n\tcase 1:\n\t\ta()\n\t}\n"),
    ("while x do|\n", "\n  y()\nend\nz()\n", "while x do\n  y()\nend\n"),
    ("while x do|\nend\n", "\n  y()\nend\nz()\n", "while x do\n  y()\nend\n"),
    # a block indented too deeply as a whole
    ("\tfor {\n\t\t|\n\t}\n", "\tif a {\n\t\t\t\tb()\n\t\t\t}\n",
     "\tfor {\n\t\tif a {\n\t\t\tb()\n\t\t}\n\t}\n"),
    (METHOD, "    if a:\n            b\n", METHOD.replace("|", "if a:\n            b")),
    # two lines that occur together below the cursor are not repeated
    ('def f():\n    """One\n    |\n    three\n    """\n    return 1\n',
     'two\n    """\n    return 1\n',
     'def f():\n    """One\n    two\n    three\n    """\n    return 1\n'),
    # an empty block at the end is dropped
    (METHOD, "a()\n        if b:\n    def g(self):\n", METHOD.replace("|", "a()")),
    (METHOD, "if b:\n    def g(self):\n", METHOD.replace("|", "")),
    ("|\n    a()\n", "if b:\n", "if b:\n    a()\n"),
    ("if (|\n", "a) {\n", "if (a) {\n"),
    # CRLF around the cursor
    ("if (a) {\r\n  |\r\n}\r\n", "b();\n}\n", "if (a) {\r\n  b();\r\n}\r\n"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "answer", "result"), SCOPES)
def test_a_completion_stays_in_its_block(text: str, answer: str, result: str) -> None:
    assert complete(text, answer) == result
    before, after = text.split("|")
    lines = wants_multiline(before, after, "auto")
    for stop in range(len(answer)):  # however it was streamed
        if find_end(answer[:stop], before, after, lines) is not None:
            assert complete(text, answer[:stop]) == result


@given(
    st.lists(st.sampled_from(["a()", "b = 1", "if c:", "    d()"]), min_size=1, max_size=5),
    st.sampled_from(["\n\n    def g(self):\n        pass", "\ndef g():\n    pass", "\n\nx = 1"]),
)
def test_a_completion_in_a_method_does_not_write_what_follows_it(
    body: list[str], follows: str
) -> None:
    answer = "\n        ".join(body) + follows
    written = complete(METHOD, answer)
    assert "def g" not in written and "x = 1" not in written
    assert all(indent_width(line) >= 8 for line in written.split("\n")[2:] if line.strip())


@given(st.lists(WORDS, min_size=1, max_size=6, unique=True), st.data())
def test_lines_below_the_cursor_are_not_repeated(own: list[str], data: st.DataObject) -> None:
    """The answer continues with the lines that are already below."""
    count = data.draw(st.integers(0, len(own) - 1))
    below = "\n".join(f"    {line}" for line in own[count:])
    text = f"def f():\n    |\n{below}\n"
    answer = "\n    ".join(own)
    wanted = "".join(f"    {line}\n" for line in own[:count]) or "    \n"
    assert complete(text, answer) == f"def f():\n{wanted}{below}\n"


def test_when_several_lines_are_completed() -> None:
    for before, after, wanted in [
        ("", "", True), ("    ", "\nx", True), ("x = 1\n", "", True), ("def f():", "", True),
        ("if (a) {", "", True), ("if (a) {", "}", True), ("f(", ")", True), ("f(", "", True),
        ("f = () =>", "", True), ("x do", "", True), ("redo", "", False), ("x = ", "", False),
        ("f(", "a)", False), ("    ", "x", False), ("x: ", '"', False), ("# text", "", False),
    ]:  # fmt: skip
        assert wants_multiline(before, after, "auto") is wanted, (before, after)
        assert wants_multiline(before, after, "always") and not wants_multiline(
            before, after, "never"
        )


def test_a_cut_off_answer_ends_with_a_complete_statement() -> None:
    def left(answer: str, lines: bool = True) -> str:
        return truncate(answer, "    " if lines else "x = ", "", lines, ended=False)

    assert left("a = 1\n    b = 2\n    c = f(") == "a = 1\n    b = 2"
    assert left("a = 1\n    b = f(\n        1,\n        2") == "a = 1"
    assert left("a = 1\n    if b:\n        c") == "a = 1"
    assert left("a();\n    if (b) {\n        c();\n        d") == "a();"
    assert left("if (b) {\n        c();\n        d") == "if (b) {\n        c();"
    assert left("a = 1") == "a = 1"  # nothing in it is complete
    assert left("total + coun", lines=False) == "total +"
    assert left("total", lines=False) == "total"


def test_trailing_white_space_is_dropped() -> None:
    assert fit_to_context("a   \n\n", "", "", True) == "a"
    assert fit_to_context("a \ufffd", "", "", False) == "a"
    assert fit_to_context(" \n \n", "", "", True) == ""
    assert line_before("a\rb") == "b" and line_after("a\r\nb") == "a"


@given(st.lists(PIECES, max_size=12).map("".join))
def test_matched_brackets_stay_matched_as_the_text_grows(text: str) -> None:
    found = scan(text)
    places = [at for at, _ in found.closed] + [at for _, at in found.closed if at >= 0] + found.open
    assert len(set(places)) == len(places)
    assert all(text[at] in OPENER_OF for at, _ in found.closed)
    assert all(text[one] == OPENER_OF[text[at]] for at, one in found.closed if one >= 0)
    growing = scan(text, complete=False)
    assert growing.closed == scan(text + 'a"b\n)', complete=False).closed[: len(growing.closed)]


def test_brackets_in_strings_are_ignored() -> None:
    assert scan("f(')', \")\", `)`)").unmatched_closers == []
    assert scan("don't)").unmatched_closers == [5] and scan("&'a str)").unmatched_closers == [7]
    assert scan("f'(' f'('").open == [] and scan('"\\")"').unmatched_closers == []
