"""Edits moved to a document's latest version. The oracle knows characters by their identity: each
occurs once in the text and in all that is typed."""

from __future__ import annotations

from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.editing.edits import Change
from lsp_server.editing.rebase import Conflict, Rebase

LENGTH = 12
TEXT = "".join(map(chr, range(ord("a"), ord("a") + LENGTH)))
TYPED = 0x4E00  # the first character that is typed; each is typed once


def edited(text: str, change: Change) -> str:
    return text[: change.start] + change.text + text[change.stop :]


@st.composite
def typing(draw: st.DrawFn, keep: tuple[int, int] | None = None) -> list[tuple[int, int, str]]:
    """Changes (start, stop, latest text) in order, some undone at once; with `keep`, those that
    leave the characters of that span of TEXT side by side, but for what is undone at once."""
    text, fresh, made = TEXT, count(TYPED), []
    for _ in range(draw(st.integers(0, 8))):
        start = draw(st.integers(0, len(text)))
        stop = draw(st.integers(start, min(len(text), start + 4)))
        new = "".join(chr(next(fresh)) for _ in range(draw(st.integers(0, 3))))
        after = text[:start] + new + text[stop:]
        undone = draw(st.booleans())
        if keep and TEXT[slice(*keep)] not in after:
            undone = True
        made.append((start, stop, after))
        if undone:
            made.append((start, start + len(new), text))
        else:
            text = after
    return made


def rebased(span: tuple[int, int], steps: list[tuple[int, int, str]]) -> Rebase:
    rebase = Rebase(TEXT, span)
    for step in steps:
        rebase.record(*step)
        assert rebase.latest == step[2]
    return rebase


SPANS = st.tuples(st.integers(0, LENGTH), st.integers(0, LENGTH)).map(lambda ends: sorted(ends))


@given(typing(), SPANS, st.lists(st.integers(0, LENGTH), min_size=2, max_size=2))
def test_a_change_is_moved_to_the_characters_that_it_replaces(
    steps: list[tuple[int, int, str]], span: list[int], ends: list[int]
) -> None:
    """Or it is refused, if one of them is gone or something was typed between them."""
    first, last = span
    start, stop = sorted(ends)
    rebase, latest = rebased((first, last), steps), steps[-1][2] if steps else TEXT
    old, kept = TEXT[start:stop], TEXT[start:stop] in latest
    try:
        (moved,) = rebase.moved([Change(start, stop, "!")])
    except Conflict:
        assert steps
        return
    assert kept and latest[moved.start : moved.stop] == old
    assert TEXT[first:last] in latest
    # What surrounds it is text that was there before it and behind it, or was typed there.
    before, behind = latest[: moved.start], latest[moved.stop :]
    assert not set(before) & set(TEXT[stop:]) and not set(behind) & set(TEXT[:start])


@given(st.data(), SPANS.filter(lambda ends: ends[0] < ends[1]))
def test_changes_outside_never_conflict_and_those_inside_do_until_they_are_undone(
    data: st.DataObject, span: list[int]
) -> None:
    first, last = span
    rebase = Rebase(TEXT, (first, last))
    for start, stop, text in data.draw(typing((first, last))):
        rebase.record(start, stop, text)
        assert rebase.has_conflict == (TEXT[first:last] not in text)
    inside = Change(first, last, "!")
    (moved,) = rebase.moved([inside])
    assert edited(rebase.latest, moved) == rebase.latest.replace(TEXT[first:last], "!")


@given(st.data(), SPANS)
def test_the_whole_text_is_replaced_as_by_the_smallest_change(
    data: st.DataObject, span: list[int]
) -> None:
    """As clients do that send no ranges; characters are unique, so the smallest one is known."""
    one, other = Rebase(TEXT, (span[0], span[1])), Rebase(TEXT, (span[0], span[1]))
    for start, stop, text in data.draw(typing()):
        one.record(start, stop, text)
        other.record(0, len(other.latest), text)
    assert one.regions == other.regions


@pytest.mark.parametrize("at", [2, 5])
def test_an_insertion_at_an_end_of_the_span_is_outside(at: int) -> None:
    """And so are the answer's insertions at the same ends: inside the span."""
    rebase = Rebase("ab\ncd\n", (2, 5))
    rebase.record(at, at, "ab\ncd\n"[:at] + "XY" + "ab\ncd\n"[at:])
    found = [Change(2, 2, "<"), Change(3, 4, "-"), Change(5, 5, ">")]
    text = rebase.latest
    for change in reversed(rebase.moved(found)):
        text = edited(text, change)
    assert text == ("abXY<\n-d>\n" if at == 2 else "ab<\n-d>XY\n")


def test_a_change_elsewhere_is_refused_where_the_user_changed_the_same_place() -> None:
    """As an import that moves to the imports."""
    for start, stop, new in [(4, 4, "x"), (3, 5, ""), (3, 5, "y"), (4, 6, "")]:
        rebase = Rebase("0123456789", (8, 9))
        rebase.record(start, stop, "0123456789"[:start] + new + "0123456789"[stop:])
        assert not rebase.has_conflict
        inserted, replaced = Change(4, 4, "!"), Change(4, 5, "!")
        for change in (inserted, replaced):
            same = change is inserted and (start, stop) != (3, 5) and new == ""
            typed_before = change is replaced and new == "x"
            if same or typed_before:
                rebase.moved([change])
            else:
                with pytest.raises(Conflict):
                    rebase.moved([change])


def test_no_change_is_moved_into_a_line_end() -> None:
    """Where no client has a position: a "\\n" typed behind the "\\r" that ends a line."""
    rebase = Rebase("a\rb", (0, 2))
    rebase.record(2, 2, "a\r\nb")
    with pytest.raises(Conflict):
        rebase.moved([Change(2, 2, "c\r")])


def test_undoing_joins_with_what_was_typed_beside_it() -> None:
    rebase = Rebase("one two three", (4, 7))
    rebase.record(4, 4, "one big two three")
    rebase.record(8, 11, "one big  three")
    assert rebase.has_conflict
    rebase.record(8, 8, "one big two three")
    assert not rebase.has_conflict
    assert rebase.moved([Change(4, 7, "2")]) == [Change(8, 11, "2")]
