"""Sections cover a document in order and fit into their budget."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from engine.rag.sections import split_sections
from index.documents.documents import Document, Heading

LINES = ["", "", "word " * 3, "# Title", "x" * 90, "caf\u00e9 \U0001f600", "One. Two. Three.", " "]


def encode(text: str) -> list[int]:
    """One token per byte."""
    return list(text.encode())


def document(text: str, pages: tuple[tuple[int, int], ...] = ()) -> Document:
    starts = [at for at in range(len(text)) if text.startswith("# ", at)]
    return Document(
        "d", "d.md", "md", text, pages, tuple(Heading(at, 1, f"T{at}") for at in starts)
    )


@given(
    st.lists(st.sampled_from(LINES), max_size=60).map("\n".join) | st.text(max_size=300),
    st.integers(8, 200),
    st.lists(st.integers(0, 400), max_size=4),
)
def test_sections_cover_the_text_in_order(text: str, room: int, cuts: list[int]) -> None:
    starts = sorted({0, *(cut for cut in cuts if cut < len(text))})
    pages = tuple(zip(starts, [*starts[1:], len(text)], strict=True))
    at = 0
    for section in split_sections(document(text, pages), room, encode):
        assert text[at : section.start].strip() == ""
        assert section.start < section.stop and text[section.start : section.stop].strip()
        assert len(encode(text[section.start : section.stop])) <= room
        assert "page" in section.title
        at = section.stop
    assert text[at:].strip() == ""


def test_a_section_ends_before_a_heading_and_has_its_own_title() -> None:
    text = "intro\n" + "a line\n" * 10 + "# One\n" + "text of one\n" * 6 + "# Two\nend\n"
    one = text.index("# One")
    found = split_sections(document(text), 100, encode)
    assert [(section.start, section.stop) for section in found] == [(0, one), (one, len(text))]
    assert [section.title for section in found] == ["", f"T{one}"]


def test_titles_name_pages() -> None:
    text = "one\n" * 10 + "two\n" * 10 + "three\n" * 10
    pages = ((0, 40), (40, 80), (80, len(text)))
    titles = [section.title for section in split_sections(document(text, pages), 85, encode)]
    assert titles == ["pages 1 to 2", "page 3"]
