"""Replacing of a text, and adding of a first line, by rule."""

from __future__ import annotations

from itertools import groupby

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.editing.dialogue import by_rule
from engine.editing.edits import EditRefused
from engine.records import Request

PIECES = st.text(st.sampled_from('ab.( \n\r"é'), max_size=30)


def made(
    instruction: str, text: str, selection: tuple[int, int] | None = None, path: str = "a.txt"
) -> str | None:
    """The text that the rule makes; None if it leaves it to the model."""
    done = by_rule(Request("edit", text, path=path, selection=selection, instruction=instruction))
    return done.text if done else None


@given(PIECES, PIECES, PIECES)
def test_all_occurrences_are_replaced_as_by_python(before: str, part: str, after: str) -> None:
    text, span = before + "(x.)" + part + after, (len(before), len(before + "(x.)" + part))
    new = made("Replace `(x.)` by `y y` everywhere.", text, span)
    assert new == before + text[slice(*span)].replace("(x.)", "y y") + after


@given(
    st.lists(st.sampled_from(["ab", "b", "_", "$", "é", " ", "\n", '"', "."])).map("".join),
    st.data(),
)
def test_a_name_is_replaced_where_it_is_a_whole_word(text: str, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(text)))
    stop = data.draw(st.integers(start, len(text)))
    words, at = [], 0
    for _, chars in groupby(text, lambda char: char.isalnum() or char in "_$"):
        word = "".join(chars)
        words.append("x" if word == "ab" and start <= at <= stop - len(word) else word)
        at += len(word)
    if "x" in words:
        assert made("Replace `ab` by `x` everywhere", text, (start, stop)) == "".join(words)


@given(PIECES)
def test_the_first_line_is_added_and_nothing_else_changes(text: str) -> None:
    new = made("Add the line `# Licence` as the first line.", text)
    assert new is not None and new.startswith("# Licence") and new.endswith(text)
    assert new[len("# Licence") : len(new) - len(text)] in {"\n", "\r", "\r\n"}


def test_a_byte_order_mark_stays_first() -> None:
    assert made("add the line '// x' as the first line", "\ufeffa\r\n") == "\ufeff// x\r\na\r\n"


@pytest.mark.parametrize(
    "instruction",
    [
        "Replace `a` by `b`",  # once, or everywhere
        "Replace a by b everywhere",  # without marks
        "Replace `a` by `b` everywhere and sort the lines",
        "Replace `a` by `b` everywhere but in comments",
        "Replace calls of `a` by `b` everywhere",
        "Replace `a` by `b` everywhere in the function f",
        "Add the line `x` as the first line of f",
        "Add the line x as the first line",
    ],
)
def test_what_asks_for_more_or_less_is_left_to_the_model(instruction: str) -> None:
    assert made(instruction, "a\nf\n") is None


def test_longer_words_stay() -> None:
    asked, text = "Replace `path` by `target` everywhere", "import pathlib\npath = 'path-x'\n"
    assert made(asked, text, path="a.py") == "import pathlib\ntarget = 'target-x'\n"
    assert made("Replace all occurrences of 'a' with 'b'", "'a' + 'a'") == "'b' + 'b'"


@pytest.mark.parametrize(
    ("text", "path"),
    [("ab", "a.py"), (".a-b { }", "a.css"), ("(b-a 1)", "a.el"), ("'a' + a", "a.py")],
)
def test_where_it_may_be_no_whole_name_the_model_is_asked(text: str, path: str) -> None:
    assert made("Replace all occurrences of 'a' with 'b'", text, path=path) is None


def test_what_cannot_be_replaced_is_refused() -> None:
    for instruction in ("Replace `x` by `y` everywhere", "Replace `a` by `a` everywhere"):
        with pytest.raises(EditRefused):
            made(instruction, "a")
