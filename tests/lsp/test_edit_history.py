"""The edit history: undoing every edit restores the original text; edits stay few and small."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsp_server.next_edit.edit_history import (
    MAX_EDIT_CHARS,
    MAX_EDITS,
    SETTLED_AFTER_S,
    EditHistory,
    changed_lines,
    replacements,
    whole_lines,
)

PIECES = ["\n", "\r\n", "\r", " ", "foo", "b", "_x", "(", "é", "😋", "\f", "\u2028", "= 1", "\n\n"]
texts = st.lists(st.sampled_from(PIECES), max_size=25).map("".join)
steps = st.lists(
    st.tuples(st.floats(0, 1), st.integers(0, 6), st.lists(st.sampled_from(PIECES), max_size=3)),
    max_size=MAX_EDITS,
)


def typed(history: EditHistory, text: str, *changes: tuple[str, str], now: float = 0.0) -> str:
    """Type each (old, new): delete the old text, then insert the new one letter by letter."""
    for old, new in changes:
        at = text.index(old)
        for start, stop, piece in [
            (at, at + len(old), ""),
            *((at + n, at + n, char) for n, char in enumerate(new)),
        ]:
            history.record("f", text, start, stop, piece, now)
            text = text[:start] + piece + text[stop:]
    return text


def undone(history: EditHistory, text: str, uri: str = "f") -> str:
    """The text with all edits of the document undone."""
    for edit in sorted(history.edits(), key=lambda edit: -edit.start):
        if edit.uri == uri:
            assert text[edit.start : edit.stop] == edit.after
            text = text[: edit.start] + edit.before + text[edit.stop :]
    return text


@given(texts, steps)
def test_undoing_all_edits_restores_the_original_text(
    text: str, changes: list[tuple[float, int, list[str]]]
) -> None:
    history, first = EditHistory(), text
    for where, length, pieces in changes:
        start = round(where * len(text))
        stop, new = min(start + length, len(text)), "".join(pieces)
        history.record("other", text, start, stop, new, 0.0)
        history.forget("other")
        settled = _meets_older_edit(history, text, start, stop)
        history.record("f", text, start, stop, new, 0.0)
        text = text[:start] + new + text[stop:]
        if settled:  # lines added some edits ago are original text from here on
            first = undone(history, text)
        assert undone(history, text) == first
        assert all(edit.before != edit.after for edit in history.edits())


def _meets_older_edit(history: EditHistory, text: str, start: int, stop: int) -> bool:
    """Whether a change overlaps an edit other than the last one."""
    low, high = whole_lines(text, start, stop)
    return any(low <= edit.stop and edit.start <= high for edit in history.edits()[:-1])


@given(texts, st.integers(0, 60), st.integers(0, 9), texts, st.booleans())
def test_an_undone_change_leaves_no_edit(
    text: str, start: int, length: int, new: str, whole: bool
) -> None:
    """The range is restored, or the whole text where clients send the whole text."""
    history, start = EditHistory(), min(start, len(text))
    stop = min(start + length, len(text))
    changed = text[:start] + new + text[stop:]
    there = (0, len(text), changed) if whole else (start, stop, new)
    back = (0, len(changed), text) if whole else (start, start + len(new), text[start:stop])
    history.record("f", text, *there, 0.0)
    assert (history.edits() == []) == (changed == text)
    history.record("f", changed, *back, 9 * SETTLED_AFTER_S)
    assert history.edits() == []


@given(texts, texts)
def test_a_full_text_change_is_reduced_to_the_changed_lines(old: str, new: str) -> None:
    history = EditHistory()
    history.record("f", old, 0, len(old), new, 0.0)
    assert undone(history, new) == old
    for edit in history.edits():
        assert (edit.start, edit.stop) == whole_lines(new, edit.start, edit.stop)


def test_keystrokes_in_a_line_merge_into_one_edit_which_moves_with_its_line() -> None:
    history = EditHistory()
    text = typed(history, "a\nfoo = 1\nb\n", ("foo", "total"))
    (edit,) = history.edits()
    assert (edit.before, edit.after) == ("foo = 1", "total = 1")
    text = typed(history, text, ("a", "above\nand"))
    assert [edit.after for edit in history.edits()] == ["total = 1", "above\nand"]
    assert undone(history, text) == "a\nfoo = 1\nb\n"


def test_a_reverted_edit_disappears_and_the_most_recent_is_last() -> None:
    history = EditHistory()
    text = typed(history, "one\ntwo\nsix\n", ("one", "1"), ("two", "2"), ("six", "6"))
    text = typed(history, text, ("1", "7"))
    assert [edit.after for edit in history.edits()] == ["2", "6", "7"]
    typed(history, text, ("7", "one"))
    assert [edit.after for edit in history.edits()] == ["2", "6"]


@pytest.mark.parametrize("later", [0.0, 2 * SETTLED_AFTER_S])
def test_a_change_in_lines_added_a_while_ago_is_an_edit_of_its_own(later: float) -> None:
    history = EditHistory()
    text = typed(history, "a\n", ("\n", "\nfoo = 1\n"))
    typed(history, text, ("foo", "bar"), now=later)
    (edit,) = history.edits()
    assert edit.after.strip() == "bar = 1"
    assert edit.before == ("foo = 1" if later else "")


def test_the_history_is_bounded() -> None:
    history, text = EditHistory(), "".join(f"line {n};\n" for n in range(3 * MAX_EDITS))
    for n in range(3 * MAX_EDITS):
        text = typed(history, text, (f"line {n};", f"row {n};"))
    assert len(history.edits()) == MAX_EDITS
    assert history.edits()[-1].after == f"row {3 * MAX_EDITS - 1};"
    history.record("g", "", 0, 0, "x" * (MAX_EDIT_CHARS + 1), 0.0)
    history.record("g", "y" * (MAX_EDIT_CHARS + 1), 7, 7, "x", 0.0)
    assert all(edit.uri == "f" for edit in history.edits())
    history.forget("f")
    assert history.edits() == []


def test_replacements_in_a_line() -> None:
    history = EditHistory()
    text = typed(history, "def f(self, count):\n    pass\n", ("count", "total"), ("f(", "run("))
    (edit,) = history.edits()
    (line,) = changed_lines(edit)
    assert (line.old, line.new) == ("def f(self, count):", "def run(self, total):")
    assert [(old, new) for old, new, _ in replacements(line)] == [("f", "run"), ("count", "total")]
    assert all(text[at : at + len(new)] == new for _, new, at in replacements(line))


@given(texts, texts)
def test_reverting_the_replacements_restores_the_old_line(old: str, new: str) -> None:
    history = EditHistory()
    history.record("f", old, 0, len(old), new, 0.0)
    for edit in history.edits():
        for line in changed_lines(edit):
            assert new[line.at : line.at + len(line.new)] == line.new
            back = line.new
            for before, after, at in reversed(replacements(line)):
                at -= line.at
                assert back[at : at + len(after)] == after
                back = back[:at] + before + back[at + len(after) :]
            assert back == line.old


def test_a_rewritten_line_is_not_a_changed_line() -> None:
    history = EditHistory()
    history.record("f", "alpha = beta\n", 0, 12, "for x in y: z()", 0.0)
    (edit,) = history.edits()
    assert list(changed_lines(edit)) == []
