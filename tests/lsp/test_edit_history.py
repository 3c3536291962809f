"""Recent edits: undoing them all gives the text that was, and they stay few, small and in place."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsp_server.next_edit.edit_history import LARGE, LIMIT, PAUSE, Recent, lines, swaps, whole_lines

PIECES = ["\n", "\r\n", "\r", " ", "foo", "b", "_x", "(", "é", "😋", "\f", "\u2028", "= 1", "\n\n"]
texts = st.lists(st.sampled_from(PIECES), max_size=25).map("".join)
steps = st.lists(
    st.tuples(st.floats(0, 1), st.integers(0, 6), st.lists(st.sampled_from(PIECES), max_size=3)),
    max_size=LIMIT,
)


def typed(recent: Recent, text: str, *changes: tuple[str, str], now: float = 0.0) -> str:
    """Each (old, new) as a person types it: the old text deleted, the new one letter by letter."""
    for old, new in changes:
        at = text.index(old)
        for start, stop, piece in [
            (at, at + len(old), ""),
            *((at + n, at + n, char) for n, char in enumerate(new)),
        ]:
            recent.changed("f", text, start, stop, piece, now)
            text = text[:start] + piece + text[stop:]
    return text


def undone(recent: Recent, text: str, uri: str = "f") -> str:
    """The text before all edits of the file."""
    for edit in sorted(recent.edits(), key=lambda edit: -edit.start):
        if edit.uri == uri:
            assert text[edit.start : edit.stop] == edit.after
            text = text[: edit.start] + edit.before + text[edit.stop :]
    return text


@given(texts, steps)
def test_undoing_all_edits_gives_the_text_that_was(
    text: str, changes: list[tuple[float, int, list[str]]]
) -> None:
    recent, first = Recent(), text
    for where, length, pieces in changes:
        start = round(where * len(text))
        stop, new = min(start + length, len(text)), "".join(pieces)
        recent.changed("other", text, start, stop, new, 0.0)
        recent.forget("other")
        given_up = _given(recent, text, start, stop)
        recent.changed("f", text, start, stop, new, 0.0)
        text = text[:start] + new + text[stop:]
        if given_up:  # lines that were added some edits ago are taken as given from here on
            first = undone(recent, text)
        assert undone(recent, text) == first
        assert all(edit.before != edit.after for edit in recent.edits())


def _given(recent: Recent, text: str, start: int, stop: int) -> bool:
    """Whether a change meets an edit that is not the last one."""
    low, high = whole_lines(text, start, stop)
    return any(low <= edit.stop and edit.start <= high for edit in recent.edits()[:-1])


@given(texts, st.integers(0, 60), st.integers(0, 9), texts, st.booleans())
def test_what_is_undone_leaves_no_edit(
    text: str, start: int, length: int, new: str, whole: bool
) -> None:
    """The same range back, or the whole text back where the whole text was sent."""
    recent, start = Recent(), min(start, len(text))
    stop = min(start + length, len(text))
    changed = text[:start] + new + text[stop:]
    there = (0, len(text), changed) if whole else (start, stop, new)
    back = (0, len(changed), text) if whole else (start, start + len(new), text[start:stop])
    recent.changed("f", text, *there, 0.0)
    assert (recent.edits() == []) == (changed == text)
    recent.changed("f", changed, *back, 9 * PAUSE)
    assert recent.edits() == []


@given(texts, texts)
def test_a_whole_new_text_is_cut_down_to_the_lines_that_changed(old: str, new: str) -> None:
    recent = Recent()
    recent.changed("f", old, 0, len(old), new, 0.0)
    assert undone(recent, new) == old
    for edit in recent.edits():
        assert (edit.start, edit.stop) == whole_lines(new, edit.start, edit.stop)


def test_keystrokes_in_a_line_are_one_edit_and_edits_elsewhere_move_it() -> None:
    recent = Recent()
    text = typed(recent, "a\nfoo = 1\nb\n", ("foo", "total"))
    (edit,) = recent.edits()
    assert (edit.before, edit.after) == ("foo = 1", "total = 1")
    text = typed(recent, text, ("a", "above\nand"))
    assert [edit.after for edit in recent.edits()] == ["total = 1", "above\nand"]
    assert undone(recent, text) == "a\nfoo = 1\nb\n"


def test_an_edit_back_to_the_start_disappears_and_the_last_touched_is_last() -> None:
    recent = Recent()
    text = typed(recent, "one\ntwo\nsix\n", ("one", "1"), ("two", "2"), ("six", "6"))
    text = typed(recent, text, ("1", "7"))
    assert [edit.after for edit in recent.edits()] == ["2", "6", "7"]
    typed(recent, text, ("7", "one"))
    assert [edit.after for edit in recent.edits()] == ["2", "6"]


@pytest.mark.parametrize("later", [0.0, 2 * PAUSE])
def test_a_change_in_lines_added_some_time_ago_is_a_change_of_them(later: float) -> None:
    recent = Recent()
    text = typed(recent, "a\n", ("\n", "\nfoo = 1\n"))
    typed(recent, text, ("foo", "bar"), now=later)
    (edit,) = recent.edits()
    assert edit.after.strip() == "bar = 1"
    assert edit.before == ("foo = 1" if later else "")


def test_edits_are_few_and_small() -> None:
    recent, text = Recent(), "".join(f"line {n};\n" for n in range(3 * LIMIT))
    for n in range(3 * LIMIT):
        text = typed(recent, text, (f"line {n};", f"row {n};"))
    assert len(recent.edits()) == LIMIT
    assert recent.edits()[-1].after == f"row {3 * LIMIT - 1};"
    recent.changed("g", "", 0, 0, "x" * (LARGE + 1), 0.0)
    recent.changed("g", "y" * (LARGE + 1), 7, 7, "x", 0.0)
    assert all(edit.uri == "f" for edit in recent.edits())
    recent.forget("f")
    assert recent.edits() == []


def test_words_of_a_line() -> None:
    recent = Recent()
    text = typed(recent, "def f(self, count):\n    pass\n", ("count", "total"), ("f(", "run("))
    (edit,) = recent.edits()
    (line,) = lines(edit)
    assert (line.old, line.new) == ("def f(self, count):", "def run(self, total):")
    assert [(old, new) for old, new, _ in swaps(line)] == [("f", "run"), ("count", "total")]
    assert all(text[at : at + len(new)] == new for _, new, at in swaps(line))


@given(texts, texts)
def test_swaps_make_the_old_line_the_new_one(old: str, new: str) -> None:
    recent = Recent()
    recent.changed("f", old, 0, len(old), new, 0.0)
    for edit in recent.edits():
        for line in lines(edit):
            assert new[line.at : line.at + len(line.new)] == line.new
            back = line.new
            for before, after, at in reversed(swaps(line)):
                at -= line.at
                assert back[at : at + len(after)] == after
                back = back[:at] + before + back[at + len(after) :]
            assert back == line.old


def test_a_line_written_anew_has_no_words_in_common() -> None:
    recent = Recent()
    recent.changed("f", "alpha = beta\n", 0, 12, "for x in y: z()", 0.0)
    (edit,) = recent.edits()
    assert list(lines(edit)) == []
