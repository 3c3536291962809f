"""Headings of Markdown, reStructuredText and source code."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from index.documents.formats.headings import Heading, find_headings, top_levels


@given(st.sampled_from(["md", "rst", "code"]), st.text("#=-~> `ab\n\r.:(", max_size=80))
def test_headings_start_at_lines_in_order(kind: str, text: str) -> None:
    headings = find_headings(kind, text)
    starts = [heading.start for heading in headings]
    assert starts == sorted(set(starts))
    assert all(at == 0 or text[at - 1] in "\r\n" for at in starts)
    assert all(heading.title and "\n" not in heading.title for heading in headings)


def found(kind: str, text: str) -> list[tuple[int, str, str]]:
    """Level, title, and the line at the heading's position."""
    return [
        (each.level, each.title, text[each.start :].split("\n")[0].strip())
        for each in find_headings(kind, text)
    ]


def test_markdown() -> None:
    text = (
        "---\ntitle: front matter\n---\n# A [link](to.md) and `code` #\r\n\r\nText\n----\n"
        "```\n# no heading\n```\n- item\n---\n| a |\n|---|\n\n- 1\n\n      # no heading\n\n# \u00e9"
    )
    assert found("md", text) == [
        (1, "A link and code", "# A [link](to.md) and `code` #"),
        (2, "Text", "Text"),
        (1, "\u00e9", "# \u00e9"),
    ]
    assert found("md", "two\nlines\n===\n\n\r# One\n") == [
        (1, "two lines", "two"),
        (1, "One", "# One"),
    ]


def test_front_matter_is_only_at_the_top_and_closed() -> None:
    assert found("md", "text\n\n---\n# a\n---\n") == [(1, "a", "# a")]
    assert found("md", "---\n# a\n") == [(1, "a", "# a")]
    assert found("md", "---\n# a\n---") == []


def test_restructuredtext() -> None:
    text = (
        "=====\nTitle\n=====\n\nOne\n===\n\n``Two`` of :ref:`two`\n---------------------\n\n"
        "Text that\n========= is no title\n\nThree\n=====\n\n+---+\n| a |\n+---+\n"
    )
    assert found("rst", text) == [
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


def test_source_code() -> None:
    assert [(level, title) for level, title, _ in found("code", CODE)] == [
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
def test_other_kinds_have_none(kind: str) -> None:
    assert find_headings(kind, "# One\n\nTwo\n===\n") == ()


def test_the_deepest_levels_are_left_out_where_there_are_too_many() -> None:
    headings = tuple(Heading(at, 1 + at % 3, "a") for at in range(9))
    assert top_levels(headings, 9) == headings
    assert [each.level for each in top_levels(headings, 8)] == [1, 2, 1, 2, 1, 2]
    assert [each.level for each in top_levels(headings, 3)] == [1, 1, 1]
    assert top_levels(headings, 2) == top_levels((), 2) == ()


@pytest.mark.parametrize("kind", ["md", "rst", "code"])
def test_long_lines_do_not_backtrack(kind: str) -> None:
    """Quadratic matching of these lines would take days."""
    for line in ("#" + " " * 1_000_000 + "x", "=" * 1_000_000, "[" * 1_000_000, "class " * 200_000):
        assert len(find_headings(kind, f"a\n{line}\nb")) <= 2
