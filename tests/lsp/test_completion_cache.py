"""Typing into a completion keeps it, and only that; what became of each is counted once."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from lsp_server.completion.completion_cache import MOST, Shown

TEXT = st.text("ab(\n \r😋é", max_size=12)
ANSWER = st.text("abc()\n 😋", min_size=1, max_size=12)


def offer(shown: Shown, before: str, after: str, *answers: str, uri: str = "u") -> list[str]:
    return [one.id for one in shown.add(uri, before + after, len(before), [*answers], True)]


def left(shown: Shown, before: str, after: str, uri: str = "u") -> str | None:
    one = shown.find(uri, before + after, len(before))
    return one.text if one else None


@given(TEXT, TEXT, ANSWER, st.data())
def test_what_is_typed_and_what_is_left_are_the_completion(
    before: str, after: str, answer: str, data: st.DataObject
) -> None:
    shown = Shown()
    offer(shown, before, after, answer)
    places = data.draw(st.lists(st.integers(0, len(answer) - 1), max_size=8))
    for typed in places:  # to and fro: characters that are deleted come back
        assert left(shown, before + answer[:typed], after) == answer[typed:]
    assert shown.counts["made"] == 1 and shown.counts["kept"] == len(places)


@given(TEXT, TEXT, ANSWER, st.data())
def test_another_character_or_document_or_surrounding_has_nothing(
    before: str, after: str, answer: str, data: st.DataObject
) -> None:
    shown = Shown()
    offer(shown, before, after, answer)
    typed = data.draw(st.integers(0, len(answer) - 1))
    assert left(shown, before + answer[:typed] + "#", after) is None
    assert left(shown, before + answer[:typed], after, uri="v") is None
    assert left(shown, before + answer[:typed], "#" + after) is None
    assert left(shown, "#" + before + answer[:typed], after) is None
    assert left(shown, before + answer, after) is None  # nothing is left


def test_a_bracket_that_the_editor_closes_keeps_it() -> None:
    shown = Shown()
    offer(shown, "x = ", "", "f(a, [b])")
    assert left(shown, "x = f(", ")") == "a, [b]"
    assert left(shown, "x = f(a, [", "])") == "b"
    assert left(shown, "x = f(a, [b])", "") is None
    assert left(shown, "x = f(a, [b]", "") == ")"  # typed over
    assert left(shown, "x = f(", "0)") is None


def test_line_ends_that_the_editor_writes_are_no_others() -> None:
    shown = Shown()
    offer(shown, "if a:\r\n    ", "\r\n", "b()\n    c()")
    assert left(shown, "if a:\r\n    b()\r\n    ", "\r\n") == "c()"


def test_the_best_of_several_is_found_first_and_another_when_it_is_typed() -> None:
    shown = Shown()
    offer(shown, "", "", "abc", "abd", "xyz")
    assert left(shown, "", "") == "abc"
    assert left(shown, "ab", "") == "c"
    assert left(shown, "abd"[:2], "") == "c"
    assert left(shown, "x", "") == "yz"
    offer(shown, "", "", "xya")  # a newer one counts
    assert left(shown, "xy", "") == "a"


@given(st.lists(st.tuples(TEXT, ANSWER), max_size=40), st.integers(0, 200))
def test_memory_is_bounded(offers: list[tuple[str, str]], times: int) -> None:
    shown = Shown()
    for before, answer in offers:
        offer(shown, before, "", answer)
    for n in range(times):
        offer(shown, "x" * n, "", "y")
    assert len(shown._by_id) <= MOST
    long = Shown()
    offer(long, "a" * 10**6, "b" * 10**6, "c")
    (one,) = long._by_id.values()
    assert len(one.head) + len(one.tail) < 5000


def test_a_long_completion_that_is_typed_through_is_not_lost() -> None:
    shown, answer = Shown(), "abcdefghij" * 20
    offer(shown, "x", "", answer)
    for n in range(len(answer)):
        assert left(shown, "x" + answer[:n], "") == answer[n:]


def test_each_state_counts_once_and_characters_as_often_as_they_were_accepted() -> None:
    shown = Shown()
    (first,) = offer(shown, "", "", "ab😋 cd")
    for _ in range(2):
        shown.became(first, "shown")
    shown.became(first, "partly", 1)
    shown.became(first, "partly", 2)  # from the start of the text
    assert shown.accepted == 2
    kept = shown.find("u", "ab", 2)
    assert kept
    shown.became(kept.id, "shown")  # the same completion still
    shown.became(kept.id, "partly", 10**9)
    assert shown.accepted == 2 + len("😋 cd") + 1  # UTF-16
    shown.became(kept.id, "accepted")
    shown.became(kept.id, "accepted")
    shown.became("c0", "accepted")  # of another client, or forgotten
    assert shown.accepted == 7
    assert dict(shown.counts) == {"made": 1, "shown": 1, "partly": 1, "kept": 1, "accepted": 1}
