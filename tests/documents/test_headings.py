"""Headings of Markdown, reStructuredText and code, by how their lines look."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from index.documents.formats.headings import headings

MARKDOWN = st.lists(
    st.sampled_from(
        [
            "# A",
            "## B ##",
            "#no",
            "###### C",
            "Title",
            "=====",
            "-----",
            "",
            "",
            "text",
            "```",
            "~~~",
        ]
    ),
    max_size=14,
)


@given(MARKDOWN)
def test_markdown_is_read_as_commonmark_says(lines: list[str]) -> None:
    """The oracle says where a heading ends; a title of several lines is its last one to us."""
    text = "x\n\n" + "\n".join(lines)  # x: no settings at the front
    rows = text.split("\n")
    expected = [
        (token.map[1] - 1, int(token.tag[1]))
        for token in MarkdownIt("commonmark").parse(text)
        if token.type == "heading_open" and token.map
    ]
    found = []
    for heading in headings("md", text):
        row = text.count("\n", 0, heading.start)
        found.append((row if rows[row].startswith(("# ", "##")) else row + 1, heading.level))
    assert found == expected


@given(st.sampled_from(["md", "rst", "code"]), st.text("#=-~ `ab\n\r.:(", max_size=80))
def test_places_are_starts_of_lines_in_order(kind: str, text: str) -> None:
    places = [heading.start for heading in headings(kind, text)]
    assert places == sorted(set(places))
    assert all(at == 0 or text[at - 1] == "\n" for at in places)
    assert all(heading.title and "\n" not in heading.title for heading in headings(kind, text))


def seen(kind: str, text: str) -> list[tuple[int, str, str]]:
    """Level, title, and the line at the place."""
    return [
        (each.level, each.title, text[each.start :].split("\n")[0].strip())
        for each in headings(kind, text)
    ]


def test_markdown() -> None:
    text = (
        "---\ntitle: settings\n---\n# A [link](to.md) and `code` #\r\n\r\nText\n----\n"
        "```\n# no heading\n```\n- item\n---\n| a |\n|---|\n"
    )
    assert seen("md", text) == [
        (1, "A link and code", "# A [link](to.md) and `code` #"),
        (2, "Text", "Text"),
    ]


def test_restructuredtext() -> None:
    text = (
        "=====\nTitle\n=====\n\nOne\n===\n\n``Two`` of :ref:`two`\n---------------------\n\n"
        "Text that\n========= is no title\n\nThree\n=====\n\n+---+\n| a |\n+---+\n"
    )
    assert seen("rst", text) == [
        (1, "Title", "====="),
        (2, "One", "One"),
        (3, "Two of two", "``Two`` of :ref:`two`"),
        (2, "Three", "Three"),
    ]


CODE = """
class Shop(Base):
    kind: str

    async def open(self) -> None:
        # def no
        return

def main() -> None:
    type of thing
export default class View extends Base {
  private static function paint<T>(x) {
pub(crate) fn parse<'a>(text: &'a str) -> Parsed {
func (s *Server) Serve() {
struct Point {
"""


def test_code() -> None:
    assert [(level, title) for level, title, _ in seen("code", CODE)] == [
        (1, "Shop"),
        (2, "open"),
        (1, "main"),
        (1, "View"),
        (2, "paint"),
        (1, "parse"),
        (1, "Serve"),
        (1, "Point"),
    ]


@pytest.mark.parametrize("kind", ["txt", "pdf"])
def test_plain_text_has_none(kind: str) -> None:
    assert headings(kind, "# One\n\nTwo\n===\n") == ()


def test_long_lines_take_no_time() -> None:
    for line in ("#" + " " * 3_000_000 + "x", "=" * 3_000_000, "[" * 3_000_000, "class " * 500_000):
        for kind in ("md", "rst", "code"):
            assert len(headings(kind, f"a\n{line}\nb")) <= 2
