"""Chunks cover their document without overlap and follow its structure."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from index.documents import chunking
from index.documents.chunking import MAX_CHUNK_CHARS, MIN_SECTION_CHARS, split_chunks
from index.documents.formats import ParsedDocument
from index.documents.formats.headings import find_headings
from tests.support.sample_documents import prose

KINDS = st.sampled_from(["md", "rst", "code", "txt"])
LINES = st.sampled_from(
    [
        "",
        "",
        "# One",
        "## Two",
        "Title",
        "=====",
        "-----",
        "def f(x):",
        "    return x",
        "```",
        "a b c",
    ]
)
LONG = st.text("ab .\n\t\u00e9\u6f22\U0001f60b\u3002", max_size=400)
TEXTS = st.lists(LINES | LONG, max_size=30).map("\n".join)


@st.composite
def parsed(draw: st.DrawFn) -> ParsedDocument:
    """A text with its headings, sometimes with pages."""
    kind, text = draw(KINDS), draw(TEXTS)
    if not draw(st.booleans()):
        return ParsedDocument(text, (), find_headings(kind, text))
    cuts = sorted(draw(st.lists(st.integers(0, len(text)), max_size=4)))
    texts = [text[a:b].strip() for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    pages, at = [], 0
    for each in texts:
        pages.append((at, at + len(each)))
        at += len(each) + 2
    joined = "\n\n".join(texts)
    return ParsedDocument(joined, tuple(pages), find_headings(kind, joined))


@given(parsed(), st.integers(5, 120))
def test_chunks_cover_the_text_without_overlap(document: ParsedDocument, size: int) -> None:
    end, left = 0, set(range(len(document.text)))
    for number, chunk in enumerate(split_chunks("id", "txt", document, size)):
        assert chunk.document == "id" and chunk.number == number
        assert chunk.text == document.text[chunk.start : chunk.stop]
        assert end <= chunk.start < chunk.stop and len(chunk.text) <= size
        assert chunk.text.strip() and chunk.text == chunk.text.rstrip()
        end = chunk.stop
        left -= set(range(chunk.start, chunk.stop))
    assert not "".join(document.text[at] for at in left).strip()


@given(parsed(), st.integers(5, 120))
def test_no_chunk_crosses_a_page_border(document: ParsedDocument, size: int) -> None:
    for chunk in split_chunks("id", "txt", document, size):
        if document.pages:
            assert chunk.page
            start, stop = document.pages[chunk.page - 1]
            assert start <= chunk.start and chunk.stop <= stop
        else:
            assert chunk.page is None


@given(parsed(), st.integers(5, 120))
def test_the_heading_of_a_chunk_starts_before_its_end(document: ParsedDocument, size: int) -> None:
    for chunk in split_chunks("id", "txt", document, size):
        before = [each for each in document.headings if each.start < chunk.stop]
        at_start = [each for each in before if each.start <= chunk.start]
        if chunk.heading:
            last = chunk.heading.split(" > ")[-1]
            assert last in [each.title for each in before[max(0, len(at_start) - 1) :]]
        else:
            assert not at_start


def test_a_section_starts_a_chunk() -> None:
    source = random.Random(0)
    titles = ["First", "Second", "Third", "Fourth"]
    text = "\n\n".join(f"## {title}\n\n{prose(source, 6)}" for title in titles)
    found = split_chunks(
        "id", "md", ParsedDocument("# Top\n\n" + text, (), find_headings("md", "# Top\n\n" + text))
    )
    starts = [each for each in found if each.text.startswith("#")]
    assert [each.heading for each in starts] == [f"Top > {title}" for title in titles]
    assert starts[0].text.startswith("# Top\n\n## First\n\n"), "titles stay with the text below"
    assert {each.heading for each in found} == {each.heading for each in starts}


def test_short_sections_share_a_chunk() -> None:
    text = "".join(f"# Part {number}\n\nA short line.\n\n" for number in range(40))
    found = split_chunks("id", "md", ParsedDocument(text, (), find_headings("md", text)))
    assert len(found) < 10 and all(len(each.text) >= MIN_SECTION_CHARS for each in found[:-1])
    assert found[0].heading == "Part 0"


def test_paragraphs_stay_whole_where_they_fit() -> None:
    text = prose(random.Random(1), 60)
    paragraphs = text.split("\n\n")
    assert max(map(len, paragraphs)) < MAX_CHUNK_CHARS
    found = split_chunks("id", "txt", ParsedDocument(text))
    assert 3 < len(found) < len(paragraphs)
    for paragraph in paragraphs:
        assert sum(paragraph in each.text for each in found) == 1


def test_long_paragraphs_are_split_between_sentences() -> None:
    text = prose(random.Random(2), 100, each=100)
    found = split_chunks("id", "txt", ParsedDocument(text))
    assert len(found) > 5 and all(each.text.endswith(".") for each in found)
    assert min(len(each.text) for each in found) > MAX_CHUNK_CHARS / 3, "pieces are about equal"


def test_code_keeps_the_indentation_of_a_first_line() -> None:
    text = "\n\n    first = 1\n    second = 2\n"
    (chunk,) = split_chunks("id", "txt", ParsedDocument(text))
    assert chunk.text == "    first = 1\n    second = 2"


def test_very_long_paragraphs_are_cut_where_they_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before they are searched for sentences: after a line, else after a word, else anywhere."""
    monkeypatch.setattr(chunking, "MAX_SEARCH_CHARS", 200)
    for line in ("some words of a line\n", "words ", "a"):
        text = (line * 3000).strip()
        found = split_chunks("id", "txt", ParsedDocument(text))
        assert sum(len(each.text.split()) for each in found) == max(len(found), len(text.split()))
        assert all(each.text.endswith(line.strip()) for each in found)
        assert min(len(each.text) for each in found[:-1]) > MAX_CHUNK_CHARS / 3


@pytest.mark.parametrize("text", ["", " \n\t\n", "\ufeff \n"[1:]])
def test_blank_text_has_no_chunks(text: str) -> None:
    assert split_chunks("id", "txt", ParsedDocument(text)) == []


def test_large_texts_are_split_in_linear_time() -> None:
    """Quadratic splitting of these texts would take hours."""
    for text in ("# a\n" * 8_000, "a" * 400_000, "\n" * 100_000, "(" * 400_000 + ".\n"):
        parsed = ParsedDocument(text, (), find_headings("md", text))
        assert sum(len(each.text) for each in split_chunks("id", "txt", parsed)) <= len(text)
