"""Citations name positions with the quoted words: properties, a brute-force oracle, examples."""

from __future__ import annotations

import unicodedata

from hypothesis import given, settings
from hypothesis import strategies as st

from engine.rag.citations import (
    GAP,
    MIN_IDENTIFIER_CHARS,
    MIN_PASSAGE_WORDS,
    MIN_WHOLE_ANSWER_WORDS,
    NOT_PROSE,
    QUOTES_AND_SIGNS,
    PassageFinder,
    PassageMatch,
    Source,
    TextUnits,
    answer_parts,
    cite,
    coverage,
)

WORDS = ["the", "value", "of", "A_KEY", "is", "x", "caf\u00e9", "cafe\u0301", "10", "500kB", "The"]
SIGNS = [".", ",", "`", "(", "\u65e5\u672c", "\u8a9e", "\u0301", "\U0001f600", "\x1b"]
GAPS = [" ", " ", " ", "  ", "\n", "\r\n    ", "\u00a0", "\u2003", ""]

texts = st.lists(st.tuples(st.sampled_from(WORDS + SIGNS), st.sampled_from(GAPS)), max_size=40).map(
    lambda found: "".join(word + gap for word, gap in found)
)


@st.composite
def answers(draw: st.DrawFn) -> tuple[str, list[Source]]:
    """An answer composed of passages from some sources and of other words."""
    sources = [
        Source(f"d{number}", "name", text, draw(st.integers(0, 99)))
        for number, text in enumerate(draw(st.lists(texts, max_size=4)))
    ]
    answer = ""
    for _ in range(draw(st.integers(0, 4))):
        text = draw(st.sampled_from([source.text for source in sources])) if sources else ""
        start = draw(st.integers(0, len(text)))
        answer += text[start : draw(st.integers(start, len(text)))]
        answer += draw(st.sampled_from(GAPS)) + draw(texts)[: draw(st.integers(0, 12))]
    return answer, sources


def plain(text: str) -> str:
    """A text with single blanks and composed characters, an independent way to compare."""
    return " ".join(unicodedata.normalize("NFC", text).split())


@settings(max_examples=100)
@given(answers())
def test_citations_have_the_quoted_words_and_are_in_order(
    case: tuple[str, list[Source]],
) -> None:
    answer, sources = case
    texts_of = {source.document: " " * source.start + source.text for source in sources}
    at = 0
    for one in cite(answer, sources):
        assert at <= one.start < one.stop <= len(answer)
        at = one.stop
        quote = answer[one.start : one.stop]
        span = texts_of[one.document][one.source_start : one.source_stop]
        assert plain(quote) == plain(span) != ""


@settings(max_examples=100)
@given(answers())
def test_the_parts_make_up_the_answer(case: tuple[str, list[Source]]) -> None:
    answer, sources = case
    citations = cite(answer, sources)
    found = answer_parts(answer, citations)
    assert "".join(part.text for part in found) == answer
    assert [part.citation for part in found if part.citation] == citations
    assert all(part.text for part in found)
    assert 0 <= coverage(answer, citations) <= 1


@settings(max_examples=100)
@given(answers(), texts)
def test_citations_equal_brute_force(case: tuple[str, list[Source]], question: str) -> None:
    answer, sources = case
    found = [
        (one.start, one.stop, one.document, one.source_start, one.source_stop)
        for one in cite(answer, sources, question)
    ]
    assert found == brute_force(answer, sources, question)


@settings(max_examples=100)
@given(
    st.lists(st.lists(st.sampled_from("abc "), max_size=12), max_size=4),
    st.text("abcd ", max_size=12),
)
def test_longest_passages_equal_brute_force(texts: list[list[str]], keys: str) -> None:
    finder = PassageFinder(texts)
    assert finder.longest(keys) == [longest(list(keys), at, texts) for at in range(len(keys))]
    for size in range(1, 4):
        assert (
            finder.count(keys[:size])
            == sum(
                "".join(text[at : at + size]) == keys[:size]
                for text in texts
                for at in range(len(text))
            )
            or len(keys) < size
        )


def longest(keys: list[str], at: int, texts: list[list[str]]) -> PassageMatch:
    """By comparing at every position of every text."""
    best = PassageMatch(0, -1, -1)
    for number, text in enumerate(texts):
        for place in range(len(text)):
            length = 0
            while (
                at + length < len(keys)
                and place + length < len(text)
                and keys[at + length] == text[place + length]
            ):
                length += 1
            if length > best.length:
                best = PassageMatch(length, number, place)
    return best


def brute_force(
    answer: str, sources: list[Source], question: str
) -> list[tuple[int, int, str, int, int]]:
    """The citations of an answer by their definition: the longest passage at each position."""
    whole = TextUnits.of(answer)
    texts = [TextUnits.of(source.text) for source in sources]
    repeated = {word.strip(QUOTES_AND_SIGNS).lower() for word in question.split()}
    found = []
    at = 0
    while at < len(whole.keys):
        match = longest(whole.keys, at, [text.keys for text in texts])
        keys = whole.keys[at : at + match.length]
        if keys and keys[-1] == GAP:
            keys.pop()
        if not keys or keys[0] == GAP or (keys[0] in ",.;:!?)]}" and keys[1:2] == [GAP]):
            at += 1
            continue
        start, stop = whole.starts[at], whole.stops[at + len(keys) - 1]
        size, whole_size = (
            sum(0.5 if key >= "\u3040" else 1.0 for key in some if key[0].isalnum() and key != GAP)
            for some in (keys, whole.keys)
        )
        new = [each.strip(QUOTES_AND_SIGNS) for each in answer[start:stop].split()]
        new = [word for word in new if word and word.lower() not in repeated]
        identifying = [
            word for word in new if len(word) >= MIN_IDENTIFIER_CHARS and NOT_PROSE.search(word)
        ]
        whole_answer = new and size >= MIN_WHOLE_ANSWER_WORDS and size == whole_size
        places = sum(
            text.keys[place : place + len(keys)] == keys
            for text in texts
            for place in range(len(text.keys))
        )
        if size >= MIN_PASSAGE_WORDS or ((identifying or whole_answer) and places == 1):
            source, text = sources[match.source], texts[match.source]
            first, last = text.starts[match.at], text.stops[match.at + len(keys) - 1]
            place = (source.start + first, source.start + last)
            found.append((start, stop, source.document, *place))
            at += len(keys)
        else:
            at += 1
    return found


@given(texts)
def test_a_copy_is_fully_covered(text: str) -> None:
    words = sum(key[0].isalnum() and not key >= "\u3040" for key in TextUnits.of(text).keys)
    citations = cite(text, [Source("d", "n", text)])
    if words >= MIN_PASSAGE_WORDS:
        assert coverage(text, citations) == 1
        assert len(citations) == 1


# -- what counts -------------------------------------------------------------------------------

TEXT = (
    "Debugging\n=========\n\nThe variable ``FLASK_DEBUG`` turns\nthe debugger on. Forms may have "
    "``500kB`` at most.  Be sure to always quote your attributes."
)


def quoted(answer: str, text: str = TEXT, question: str = "") -> list[str]:
    return [
        answer[one.start : one.stop] for one in cite(answer, [Source("d", "n", text)], question)
    ]


def test_only_gaps_may_differ() -> None:
    assert quoted("So be sure to always\nquote your attributes!") == [
        "sure to always\nquote your attributes"
    ]
    assert quoted("turns the  debugger on. Forms may") == ["turns the  debugger on. Forms may"]
    assert quoted("sure toalways quote yourattributes") == []
    assert quoted("The variable FLASK_DEBUG turns the debugger") == ["FLASK_DEBUG"]


def test_short_passages_count_if_they_identify_their_source() -> None:
    assert quoted("It is 500kB.") == ["500kB"]
    assert quoted("FLASK_DEBUG, I think", question="What does flask_debug do?") == []
    assert quoted("500kB", text=TEXT + " 500kB") == []
    assert quoted("the debugger, they say") == []


def test_a_short_answer_counts_if_it_occurs_once_as_a_whole() -> None:
    assert quoted("the debugger.") == ["the debugger"]
    assert quoted("the debugger on.", text=TEXT + " So the debugger on.") == []
    assert quoted("the debugger", question="What is the debugger?") == []
    assert quoted("debugger") == []


def test_a_passage_does_not_start_with_closing_punctuation() -> None:
    text = "Yes, it is: one two three four five six. Not :exc:`Error` of seven eight nine ten"
    assert quoted("No: one two three four five", text) == ["one two three four five"]
    assert quoted("As :exc:`Error` of seven eight nine", text) == [
        ":exc:`Error` of seven eight nine"
    ]


def test_composed_and_decomposed_characters_are_the_same() -> None:
    text = "a re\u0301sume\u0301 of the de\u0301ja\u0300 vu"
    answer = unicodedata.normalize("NFC", text)
    (one,) = cite(answer, [Source("d", "n", text)])
    assert (one.start, one.stop) == (0, len(answer))
    assert (one.source_start, one.source_stop) == (0, len(text))


def test_scripts_without_spaces_are_compared_by_character() -> None:
    text = "\u65e5\u672c\u8a9e\u306e\u6587\u7ae0\u306f\u7a7a\u767d\u304c\u306a\u3044\u3002"
    answer = f"\u305d\u306e{text[:12]}\u3068"
    assert quoted(answer, text) == [text[:12]]
    assert quoted(answer[:8], text) == []


def test_pages_and_positions_are_those_of_the_document() -> None:
    words = "one two three four five six"
    document = f"first page here\n{words}\nlast"
    pages = ((0, 15), (16, 16 + len(words)), (17 + len(words), len(document)))
    source = Source("d", "n", document[10:], 10, pages)
    (one,) = cite(f"It says: {words}", [source])
    assert (one.page, document[one.source_start : one.source_stop]) == (2, words)
    assert cite(words, [Source("d", "n", document)])[0].page is None


def test_the_first_of_equal_sources_is_cited() -> None:
    words = "one two three four five six"
    sources = [Source("a", "a", "nothing"), Source("b", "b", words), Source("c", "c", words)]
    assert [one.document for one in cite(words, sources)] == ["b"]
    twice = Source("d", "d", f"{words}. {words}.")
    assert cite(words, [twice])[0].source_start == 0
