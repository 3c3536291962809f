"""Outlines: the chapters cover a document in order, and are those that a reader would name."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.rag.outline import MAX_CHAPTERS, find_outline
from index.documents.documents import Document
from index.documents.formats.headings import find_headings

LINES = ["", "# Title", "## Part", "### Small part", "1. First", "2. Second", "§ 3 Third"]
LINES += ["Article 4", "第五条 付款", "A sentence of some words.", "x" * 90, "Contents"]


def document(text: str, kind: str = "md") -> Document:
    return Document("d", f"d.{kind}", kind, text, (), find_headings(kind, text))


def titles(text: str, kind: str = "md") -> list[str]:
    return [one.title for one in find_outline(document(text, kind)).chapters]


@given(
    st.lists(st.sampled_from(LINES), max_size=80).map("\n".join) | st.text(max_size=300),
    st.sampled_from(["md", "txt", "code"]),
)
def test_chapters_are_disjoint_and_in_order(text: str, kind: str) -> None:
    chapters = find_outline(document(text, kind)).chapters
    assert len(chapters) <= MAX_CHAPTERS and bool(chapters) >= bool(kind == "txt" and text.strip())
    at = 0
    for one in chapters:
        assert at <= one.start < one.stop <= len(text) and text[one.start : one.stop].strip()
        at = one.stop


@given(st.integers(2, 200))
def test_every_heading_is_in_a_title(count: int) -> None:
    text = "# Book\n\n" + "".join(f"## Chapter {n} end\n\nIts text.\n\n" for n in range(count))
    joined = "; ".join(titles(text))
    assert all(f"Chapter {n} end" in joined for n in range(count))


def test_the_only_heading_of_the_top_level_is_the_title() -> None:
    text = "# Book\n\nPreface.\n\n## One\n\na\n\n### Deep\n\nb\n\n## Two\n\nc\n"
    outline = find_outline(document(text))
    assert (outline.title, titles(text)) == ("Book", ["", "One", "Two"])
    start, stop, _ = outline.chapters[1]
    assert text[start:stop] == "## One\n\na\n\n### Deep\n\nb\n\n"


def test_a_chapter_that_is_most_of_the_text_is_divided() -> None:
    long = "A line of text.\n" * 50
    text = f"# One\n\nshort\n\n# Two\n\n## Two a\n\n{long}\n## Two b\n\n{long}\n"
    assert titles(text) == ["One", "Two a", "Two b"]


def test_tables_of_contents_are_no_chapters() -> None:
    text = "# Book\n\n## Contents\n\nOne .... 1\n\n## One\n\na\n\n## Two\n\nb\n"
    assert titles(text) == ["One", "Two"]


@pytest.mark.parametrize(
    "marks",
    [
        ("§ 1 Mietsache", "§ 2 Mietzeit"),
        ("Article 1: Scope", "Article 2: Term"),
        ("1. Scope", "2. Term"),
        ("1 Scope", "2 Term"),
        ("第一章 总则", "第二章 期限"),
        ("CHAPTER IV", "CHAPTER V"),
    ],
)
def test_numbered_lines_of_a_plain_text_are_headings(marks: tuple[str, str]) -> None:
    text = f"Agreement\n\n{marks[0]}\nIts words.\n\n{marks[1]}\n3 more words.\nAnd others.\n"
    assert titles(text, "txt") == ["", *marks]


def test_a_numbered_list_has_no_chapters() -> None:
    assert titles("Buy:\n1. apples\n2. pears\n3. plums\n", "txt") == [""]


def test_a_long_text_without_headings_has_parts() -> None:
    text = "A paragraph of words.\n\n" * 900
    parts = find_outline(document(text, "txt")).chapters
    assert 3 < len(parts) <= 12 and {one.title for one in parts} == {""}
    assert "".join(text[one.start : one.stop] for one in parts) == text


def test_a_first_chapter_is_not_the_title() -> None:
    text = "# One\n\n## One a\n\na\n\n# Two\n\n## Two a\n\n" + "b\n" * 200 + "\n## Two b\n\nc\n"
    outline = find_outline(document(text))
    assert outline.title == "" and "Two a" in [one.title for one in outline.chapters]
