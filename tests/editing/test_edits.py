"""Edits keep the exact characters of everything else, and bad answers never reach a file."""

from __future__ import annotations

import re
import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from engine.editing.edits import (
    Change,
    EditRefused,
    apply,
    changes,
    common_prefix,
    line_count,
    line_span,
    plain,
    preserve,
    strip_blank_lines,
)
from engine.records import Done, Request, Usage

FRAGMENTS = [
    *("\n", "\r\n", "\r", "\n\n", " ", "    ", "\t", "a", "b", "foo", "(x)", "}", "0"),
    *("\u00e9", "e\u0301", "\u0301", "\u212b", "\u00c5", "\ufeff", "\u2028", "\u0085", "\f", "\v"),
    *("\u1100\u1161", "\uac00", "q\u0323\u0307", "q\u0307\u0323", "\U0001f600", "\u0915\u093c"),
]
texts = st.lists(st.sampled_from(FRAGMENTS), max_size=30).map("".join)
ENDS = st.sampled_from(["\n", "\r\n", "\r"])


def nfc(text: str) -> str:
    return unicodedata.normalize("NFC", text)


def body(text: str) -> str:
    """A text without differences of normalization and final line ends."""
    return nfc(text).rstrip("\n")


def answered(text: str, reason: str = "stop", matched: str | None = "\n```") -> Done:
    return Done(reason, text, matched, Usage(completion_tokens=7))  # type: ignore[arg-type]


# -- plain and preserve -----------------------------------------------------------------------


@given(texts)
def test_plain_is_idempotent_and_touches_only_bom_and_line_ends(text: str) -> None:
    assert plain(plain(text)) == plain(text)
    assert "\r" not in plain(text)
    without = text.lstrip("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    assert plain(text) == without


@given(texts)
@example("\ufeff\ufeffx\r")
@example("\r\n\r")
def test_a_repeated_text_keeps_every_character(text: str) -> None:
    assert preserve(text, plain(text)) == text
    assert preserve(text, nfc(plain(text))) == text
    if plain(text).endswith("\n"):  # the closing fence follows the answer's last line end
        assert preserve(text, plain(text)[:-1]) == text


@given(texts, texts)
@example("a\rb\r", "a\n\n")  # an old "\r" before a new "\n" must not merge into one line end
def test_the_result_is_equivalent_to_the_answer(original: str, answer: str) -> None:
    result = preserve(original, plain(answer))
    assert body(plain(result)) == body(plain(answer))
    plain_original = plain(original)
    if plain_original and plain(answer).strip("\n"):
        assert plain(result).endswith("\n") == plain_original.endswith("\n")


@given(st.lists(st.tuples(texts, ENDS), min_size=1, max_size=12), st.data())
def test_unchanged_lines_keep_their_exact_characters(
    parts: list[tuple[str, str]], data: st.DataObject
) -> None:
    """Some lines are replaced, inserted or deleted; the others stay byte for byte."""
    lines = [
        f"{number}:{plain(text).replace(chr(10), '')}\u0065\u0301" + ends
        for number, (text, ends) in enumerate(parts)
    ]
    at = data.draw(st.integers(0, len(lines)))
    gone = data.draw(st.integers(0, len(lines) - at))
    new = data.draw(st.lists(st.sampled_from(["new one", "caf\u00e9", ""]), max_size=3))
    answer = [nfc(plain(line)) for line in lines]
    answer[at : at + gone] = [line + "\n" for line in new]
    result = preserve("".join(lines), "".join(answer))
    before, after = "".join(lines[:at]), "".join(lines[at + gone :])
    if not answer or (new and new[-1] == "" and not after):
        return  # whether a last line end is kept is another test
    assert result.startswith(before)
    assert result[len(before) :].endswith(after) or after.startswith("\n")


@given(st.lists(st.sampled_from(["a", "b", "foo(x)", "", "  c"]), max_size=20), texts, ENDS)
def test_new_lines_have_the_line_end_of_the_file(lines: list[str], answer: str, end: str) -> None:
    original = "".join(line + end for line in ["first", *lines])
    result = preserve(original, nfc(plain(answer)))
    assert result.replace(end, "") == result.replace("\r", "").replace("\n", "")


def test_within_a_changed_line_untouched_characters_keep_their_form() -> None:
    original = "n\u0061\u0308me = 'cafe\u0301'  # \u212b\r\nx = 1\n"
    answer = "n\u00e4me = 'caf\u00e9s'  # \u00c5!\nx = 2"
    assert preserve(original, answer) == "n\u0061\u0308me = 'cafe\u0301s'  # \u212b!\r\nx = 2\n"


def test_each_line_of_a_mixed_file_keeps_its_own_end() -> None:
    original = "one\r\ntwo\nthree\rfour\r\n"
    assert preserve(original, "one\nTWO\nthree\nfour") == "one\r\nTWO\nthree\rfour\r\n"


def test_a_long_mixed_file_keeps_its_untouched_lines() -> None:
    """Large enough for difflib to ignore very common lines."""
    lines = [
        f"e\u0301 {n}" + ("\r\n" if n % 3 else "\n") if n % 2 else "}\r\n" for n in range(4200)
    ]
    answer = [nfc(plain(line)) for line in lines]
    answer[10], answer[4190] = "changed\n", "changed too\n"
    lines[10], lines[4190] = "changed\r\n", "changed too\r\n"
    original = "".join(lines).replace("changed too", "}").replace("changed", "}")
    assert preserve(original, "".join(answer)) == "".join(lines)


# -- apply -------------------------------------------------------------------------------------


@given(texts, st.data())
def test_an_answer_that_repeats_the_selection_changes_nothing(
    text: str, data: st.DataObject
) -> None:
    start = data.draw(st.integers(0, len(text)))
    stop = data.draw(st.integers(start, len(text)))
    done = answered(plain(text[start:stop]))
    for selection in (None, (start, stop)):
        request = Request("edit", text, selection=selection, instruction="i")
        if selection is None:
            assert apply(request, answered(nfc(plain(text)))) == text
        elif start < stop:  # also where the selection cuts a "\r\n" in two
            assert apply(request, done) == text


@pytest.mark.parametrize("text", ["\n\ufeff\n", "\ufeff\n\ufeff", "\n \ufeff\n\n"])
def test_byte_order_marks_in_a_blank_file_are_not_doubled(text: str) -> None:
    request = Request("edit", text, instruction="i")
    assert apply(request, answered(plain(text))) == text


def edited(text: str, first: int, last: int, answer: str) -> str:
    """Apply `answer` to the lines `first` to `last`, counted from 1."""
    request = Request("edit", text, selection=line_span(text, first, last), instruction="i")
    return apply(request, answered(answer))


METHOD = "    def f(self):\n        return 1"
CLASS = f"class A:\n{METHOD}\n\n    def g(self):\n        return 2\n"


@pytest.mark.parametrize(
    "answer",
    [
        "    def f(self):\n        return 9",  # as it should be
        "def f(self):\n        return 9",  # only the first line lost its indentation
        "def f(self):\n    return 9",  # all lines did
        "  def f(self):\n      return 9",  # all lost a part of it
        "    def f(self):\n        return 9\n",
    ],
)
def test_lost_indentation_is_restored(answer: str) -> None:
    assert edited(CLASS, 2, 3, answer) == CLASS.replace("return 1", "return 9")


def test_lost_indentation_of_one_line_and_of_tabs() -> None:
    assert edited(CLASS, 3, 3, "return 7") == CLASS.replace("return 1", "return 7")
    tabs = CLASS.replace("    ", "\t")
    assert edited(tabs, 2, 3, "def f(self):\n\treturn 9") == tabs.replace("return 1", "return 9")


@pytest.mark.parametrize(
    "answer",
    [
        "def f(self):\n    return 1",  # the dedented original: intended
        "        def f(self):\n            return 9",  # deeper
        "\tdef f(self):\n\t\treturn 9",  # tabs
    ],
)
def test_other_indentation_of_the_answer_is_kept(answer: str) -> None:
    assert edited(CLASS, 2, 3, answer) == CLASS.replace(METHOD, answer)


def test_a_whole_file_is_never_reindented() -> None:
    request = Request("edit", "  a\n  b\n", instruction="i")
    assert apply(request, answered("a\n  c")) == "a\n  c\n"


def test_text_is_inserted_at_an_empty_selection() -> None:
    request = Request("edit", "a\r\nb\r\n", selection=(3, 3), instruction="i")
    assert apply(request, answered("new")) == "a\r\nnew\r\nb\r\n"
    assert apply(Request("edit", "", instruction="i"), answered("new")) == "new\n"


@pytest.mark.parametrize(
    ("done", "says"),
    [
        (answered("y = 1", "length", None), "cut off after 7 tokens"),
        (answered("y = 1", "length"), "cut off after 7 tokens"),
        (answered("y = 1", matched=None), "without closing the code block"),
        (answered("y = 1", "cancelled"), "cancelled"),
        (Done("failed", error="no room: close something"), "no room: close something"),
        (answered(""), "delete everything"),
        (answered(" \n\t"), "delete everything"),
        (answered("x = '\ufffd'"), "U+FFFD"),
        (answered("x = '\0'"), "NUL"),
    ],
)
def test_bad_answers_are_refused_in_one_line(done: Done, says: str) -> None:
    for selection in (None, (0, 6)):
        request = Request("edit", "x = 1\n", selection=selection, instruction="i")
        with pytest.raises(EditRefused, match=says.replace("+", r"\+")) as refused:
            apply(request, done)
        assert "\n" not in str(refused.value)


def test_a_custom_stop_string_is_no_closing_fence() -> None:
    request = Request("edit", "x = 1\n", instruction="i", stop=("END",))
    with pytest.raises(EditRefused, match="without closing"):
        apply(request, answered("y = 1", matched="END"))


def test_a_replacement_character_of_the_original_may_stay() -> None:
    request = Request("edit", "BAD = '\ufffd'\n", instruction="i")
    assert apply(request, answered("WORSE = '\ufffd'")) == "WORSE = '\ufffd'\n"


@given(texts, st.data())
def test_line_spans_are_whole_lines(text: str, data: st.DataObject) -> None:
    lines = re.split(r"(?<=\n)|(?<=\r)(?!\n)", text)  # the oracle: after every line end
    lines = lines[:-1] if lines[-1] == "" else lines
    assert line_count(text) == len(lines)
    if lines:
        first = data.draw(st.integers(1, len(lines)))
        last = data.draw(st.integers(first, len(lines)))
        start, stop = line_span(text, first, last)
        assert text[start:stop] == "".join(lines[first - 1 : last])


@given(texts, st.data())
def test_blank_lines_are_stripped(text: str, data: st.DataObject) -> None:
    """The oracle: regular expressions, which take quadratic time."""
    start = data.draw(st.integers(0, len(text)))
    stop = data.draw(st.integers(start, len(text)))
    inside = text[start:stop]
    if not inside.replace("\ufeff", "").strip():
        assert strip_blank_lines(text, start, stop) == (start, stop)
        return
    blank = re.match(r"(?:[ \t\ufeff]*(?:\r\n|\r|\n))*", inside)
    assert blank
    left = re.sub(r"(?:(?:\r\n|\r|\n)[ \t]*)+\Z", "", inside[blank.end() :])
    first = start + blank.end()
    assert strip_blank_lines(text, start, stop) == (first, first + len(left))


@pytest.mark.parametrize("lines", ["\n" * 1_000_000, "\n \r\n\t" * 300_000, " " * 1_000_000 + "\n"])
def test_stripping_blank_lines_takes_linear_time(lines: str) -> None:
    text = f"{lines}x{lines}y{lines}"
    start, stop = strip_blank_lines(text, 0, len(text))
    assert text[start:stop].strip(" \t") == f"x{lines}y"
    assert line_count(text) >= 3


# -- changes -----------------------------------------------------------------------------------


def applied(old: str, edits: list[Change]) -> str:
    """From the last to the first, so that offsets stay valid."""
    for start, stop, text in reversed(edits):
        old = old[:start] + text + old[stop:]
    return old


@given(texts, texts)
@example("a\r\nb", "a\nb")
@example("a\nb", "a\r\nb")
@example("x\r\n", "x\r")
def test_changes_turn_old_into_new(old: str, new: str) -> None:
    edits = changes(old, new)
    assert applied(old, edits) == new
    borders = [offset for edit in edits for offset in (edit.start, edit.stop)]
    assert borders == sorted(borders)
    assert all(old[offset - 1 : offset + 1] != "\r\n" or not offset for offset in borders)
    assert all(old[edit.start : edit.stop] != edit.text for edit in edits)
    assert (edits == []) == (old == new)


def test_changes_are_small() -> None:
    old = "".join(f"line {n}\n" for n in range(100))
    new = old.replace("line 40\n", "line forty\n").replace("line 7\n", "line 7\nmore\n")
    at = old.index("40")
    after = old.index("line 8\n")
    assert changes(old, new) == [(after, after, "more\n"), (at, at + 2, "forty")]


@given(st.text("ab"), st.text("ab"), st.text("ab"))
def test_a_common_prefix_is_the_longest_one(head: str, one: str, other: str) -> None:
    one, other = head + one, head + other
    size = common_prefix(one, other)
    assert size >= len(head) and one[:size] == other[:size]
    assert one[size : size + 1] != other[size : size + 1] or size == min(len(one), len(other))
    assert common_prefix([*one], [*other]) == size
