"""The completion cache: typing into a completion keeps it, and each state is counted once."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from lsp_server.completion.completion_cache import (
    MAX_COMPLETIONS,
    Completion,
    CompletionCache,
    context_around,
)

TEXT = st.text("ab(\n \r😋é", max_size=12)
ANSWER = st.text("abc()\n 😋", min_size=1, max_size=12)


def offer(
    cache: CompletionCache, before: str, after: str, *answers: str, uri: str = "u"
) -> list[str]:
    return [one.id for one in cache.add(uri, before + after, len(before), [*answers], True)]


def remainder(cache: CompletionCache, before: str, after: str, uri: str = "u") -> str | None:
    one = cache.find(uri, before + after, len(before))
    return one.text if one else None


@given(TEXT, TEXT, ANSWER, st.data())
def test_the_typed_text_and_the_remainder_are_the_completion(
    before: str, after: str, answer: str, data: st.DataObject
) -> None:
    cache = CompletionCache()
    offer(cache, before, after, answer)
    places = data.draw(st.lists(st.integers(0, len(answer) - 1), max_size=8))
    for typed in places:  # forward and back: deleting characters brings them back
        assert remainder(cache, before + answer[:typed], after) == answer[typed:]
    assert cache.counts["made"] == 1 and cache.counts["kept"] == len(places)


@given(TEXT, TEXT, ANSWER, st.data())
def test_any_other_change_or_document_has_no_completion(
    before: str, after: str, answer: str, data: st.DataObject
) -> None:
    cache = CompletionCache()
    offer(cache, before, after, answer)
    typed = data.draw(st.integers(0, len(answer) - 1))
    assert remainder(cache, before + answer[:typed] + "#", after) is None
    assert remainder(cache, before + answer[:typed], after, uri="v") is None
    assert remainder(cache, before + answer[:typed], "#" + after) is None
    assert remainder(cache, "#" + before + answer[:typed], after) is None
    assert remainder(cache, before + answer, after) is None  # nothing is left


def test_a_closing_bracket_from_the_editor_keeps_the_completion() -> None:
    cache = CompletionCache()
    offer(cache, "x = ", "", "f(a, [b])")
    assert remainder(cache, "x = f(", ")") == "a, [b]"
    assert remainder(cache, "x = f(a, [", "])") == "b"
    assert remainder(cache, "x = f(a, [b])", "") is None
    assert remainder(cache, "x = f(a, [b]", "") == ")"  # typed over
    assert remainder(cache, "x = f(", "0)") is None


def test_crlf_from_the_editor_matches_lf_in_the_completion() -> None:
    cache = CompletionCache()
    offer(cache, "if a:\r\n    ", "\r\n", "b()\n    c()")
    assert remainder(cache, "if a:\r\n    b()\r\n    ", "\r\n") == "c()"


def test_the_best_of_several_is_found_first_and_another_once_it_is_typed() -> None:
    cache = CompletionCache()
    offer(cache, "", "", "abc", "abd", "xyz")
    assert remainder(cache, "", "") == "abc"
    assert remainder(cache, "ab", "") == "c"
    assert remainder(cache, "abd"[:2], "") == "c"
    assert remainder(cache, "x", "") == "yz"
    offer(cache, "", "", "xya")  # the newer one wins
    assert remainder(cache, "xy", "") == "a"


@given(st.lists(st.tuples(TEXT, ANSWER), max_size=40), st.integers(0, 200))
def test_memory_is_bounded(offers: list[tuple[str, str]], times: int) -> None:
    cache = CompletionCache()
    for before, answer in offers:
        offer(cache, before, "", answer)
    for n in range(times):
        offer(cache, "x" * n, "", "y")
    assert len(cache._by_id) <= MAX_COMPLETIONS
    long = CompletionCache()
    offer(long, "a" * 10**6, "b" * 10**6, "c")
    (one,) = long._by_id.values()
    assert len(one.before) + len(one.after) < 5000


def test_a_long_completion_survives_being_typed_to_its_end() -> None:
    cache, answer = CompletionCache(), "abcdefghij" * 20
    offer(cache, "x", "", answer)
    for n in range(len(answer)):
        assert remainder(cache, "x" + answer[:n], "") == answer[n:]


def test_each_state_and_accepted_character_counts_once() -> None:
    cache = CompletionCache()
    (first,) = offer(cache, "", "", "ab😋 cd")
    for _ in range(2):
        cache.record_state(first, "shown")
    cache.record_state(first, "partly", 1)
    cache.record_state(first, "partly", 2)  # from the start of the text
    assert cache.accepted == 2
    kept = cache.find("u", "ab", 2)
    assert kept
    cache.record_state(kept.id, "shown")  # still the same completion
    cache.record_state(kept.id, "partly", 10**9)
    assert cache.accepted == 2 + len("😋 cd") + 1  # UTF-16
    cache.record_state(kept.id, "accepted")
    cache.record_state(kept.id, "accepted")
    cache.record_state("c0", "accepted")  # of another client, or evicted
    assert cache.accepted == 7
    assert dict(cache.counts) == {"made": 1, "shown": 1, "partly": 1, "kept": 1, "accepted": 1}


@given(TEXT, TEXT, ANSWER, ANSWER)
def test_what_was_written_is_expected_from_where_something_else_is_typed(
    before: str, after: str, written: str, typed: str
) -> None:
    cache, place = CompletionCache(), len(before)
    sides = context_around(before + after, place)
    cache.written.append(Completion("u", place, *sides, written, True))
    same = 0
    while written[same : same + 1] == typed[same : same + 1] != "":
        same += 1
    rest = written[same:]
    now, cursor = before + typed + after, place + len(typed)
    assert cache.expected("u", now, cursor) == ((rest,) if rest.strip() else ())
    assert cache.expected("v", now, cursor) == ()
    if before:
        assert cache.expected("u", "#" + now, cursor + 1) == ()


def test_the_latest_of_what_was_written_is_expected_first() -> None:
    cache = CompletionCache()
    for place, written in ((0, "old"), (2, "count + 1"), (3, "")):
        cache.written.append(Completion("u", place, "self."[:place], "", written, False))
    assert cache.expected("u", "selx", 4) == ("count + 1",)
    cache.written[-1].text = "y = 2"  # it grows while the model writes
    assert cache.expected("u", "selx", 4) == ("y = 2", "count + 1")
