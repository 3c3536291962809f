"""Replacing of a text, and adding of a first line, by rule."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.editing.dialogue import by_rule
from engine.editing.edits import EditRefused
from engine.records import Request

PIECES = st.text(st.sampled_from('ab.( \n\r"é'), max_size=30)


def made(instruction: str, text: str, selection: tuple[int, int] | None = None) -> str | None:
    """The text that the rule makes; None if it leaves it to the model."""
    done = by_rule(
        Request("edit", text, path="a.txt", selection=selection, instruction=instruction)
    )
    return done.text if done else None


@given(PIECES, PIECES, PIECES)
def test_all_occurrences_are_replaced_as_by_python(before: str, part: str, after: str) -> None:
    text, span = before + "(x.)" + part + after, (len(before), len(before + "(x.)" + part))
    new = made("Replace `(x.)` by `y y` everywhere.", text, span)
    assert new == before + text[slice(*span)].replace("(x.)", "y y") + after


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


def test_a_part_of_a_word_and_a_quoted_text_are_left_to_the_model() -> None:
    assert made("Replace `a` by `b` everywhere", "a ab") is None
    assert made("Replace all occurrences of 'a' with 'b'", "'a' + a") is None
    assert made("Replace all occurrences of 'a' with 'b'", "'a' + 'a'") == "'b' + 'b'"


def test_what_cannot_be_replaced_is_refused() -> None:
    for instruction in ("Replace `x` by `y` everywhere", "Replace `a` by `a` everywhere"):
        with pytest.raises(EditRefused):
            made(instruction, "a")
