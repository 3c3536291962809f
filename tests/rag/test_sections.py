"""A document in parts: all of it, in order, never more than there is room for."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from engine.rag.sections import sections
from index.documents.documents import Document, Heading

LINES = ["", "", "word " * 3, "# Title", "x" * 90, "caf\u00e9 \U0001f600", "One. Two. Three.", " "]


def encode(text: str) -> list[int]:
    """A token a byte."""
    return list(text.encode())


def document(text: str, pages: tuple[tuple[int, int], ...] = ()) -> Document:
    starts = [at for at in range(len(text)) if text.startswith("# ", at)]
    return Document(
        "d", "d.md", "md", text, pages, tuple(Heading(at, 1, f"T{at}") for at in starts)
    )


@settings(deadline=None)
@given(
    st.lists(st.sampled_from(LINES), max_size=60).map("\n".join) | st.text(max_size=300),
    st.integers(8, 200),
    st.lists(st.integers(0, 400), max_size=4),
)
def test_parts_are_the_whole_text_in_order(text: str, room: int, cuts: list[int]) -> None:
    starts = sorted({0, *(cut for cut in cuts if cut < len(text))})
    pages = tuple(zip(starts, [*starts[1:], len(text)], strict=True))
    at = 0
    for part in sections(document(text, pages), room, encode):
        assert text[at : part.start].strip() == ""
        assert part.start < part.stop and text[part.start : part.stop].strip()
        assert len(encode(text[part.start : part.stop])) <= room
        assert "page" in part.title
        at = part.stop
    assert text[at:].strip() == ""


def test_a_part_ends_before_a_heading_and_is_named_by_its_own() -> None:
    text = "intro\n" + "a line\n" * 10 + "# One\n" + "text of one\n" * 6 + "# Two\nend\n"
    one = text.index("# One")
    found = sections(document(text), 100, encode)
    assert [(part.start, part.stop) for part in found] == [(0, one), (one, len(text))]
    assert [part.title for part in found] == ["", f"T{one}"]


def test_pages_are_told() -> None:
    text = "one\n" * 10 + "two\n" * 10 + "three\n" * 10
    pages = ((0, 40), (40, 80), (80, len(text)))
    titles = [part.title for part in sections(document(text, pages), 85, encode)]
    assert titles == ["pages 1 to 2", "page 3"]
