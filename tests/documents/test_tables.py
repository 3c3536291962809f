"""Tables of a text: every row of a long one is found with the names of its columns."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from index.documents.chunking import split_chunks
from index.documents.documents import Documents
from index.documents.formats import ParsedDocument
from index.documents.tables import find_tables, heads_at, labelled

LINES = st.sampled_from(["| a | b |", "|---|:-:|", "a | b", "- | -", "text", "", "|", "x, y"])


@settings(max_examples=100)
@given(st.sampled_from(["md", "html", "csv", "code"]), st.lists(LINES, max_size=12).map("\n".join))
def test_tables_are_in_order_and_have_a_head_and_rows(kind: str, text: str) -> None:
    end = 0
    for table in find_tables(kind, text):
        assert end <= table.start < table.head_stop <= table.stop <= len(text)
        end = table.stop
        assert kind != "code"


@given(st.lists(LINES, max_size=80).map("\n".join), st.integers(1, 60))
def test_the_head_of_a_chunk_is_that_of_the_table_it_starts_inside_of(text: str, size: int) -> None:
    tables = find_tables("md", text)
    for chunk in split_chunks("id", "md", ParsedDocument(text), size):
        heads = [
            text[one.start : one.head_stop].strip()
            for one in tables
            if one.head_stop <= chunk.start < one.stop
        ]
        assert [chunk.table_head] == (heads or [""])


def html(rows: list[list[str]]) -> str:
    cells = ("".join(f"<td>{cell}</td>" for cell in row) for row in rows)
    return "<table>" + "".join(f"<tr>{row}</tr>" for row in cells) + "</table>"


@pytest.mark.parametrize("kind", ["md", "html", "csv", "tsv"])
def test_every_row_is_found_by_the_name_of_a_column(kind: str) -> None:
    rows = [["Article", "Weight", "Colour"]]
    rows += [[f"ART{n:03}", f"{n} kg", "red"] for n in range(120)]
    sign = {"csv": ",", "tsv": "\t"}.get(kind, " | ")
    lines = [sign.join(row) for row in rows]
    if kind == "md":
        lines.insert(1, "---|---|---")
    text = html(rows) if kind == "html" else "\n".join(lines)
    with Documents() as documents:
        document = documents.add_data(f"list.{kind}", text.encode())
        assert document.kind == kind
        chunks = documents.chunks(document.id)
        assert len(chunks) > 2 and not chunks[0].table_head
        assert all(chunk.table_head.lstrip("| ").startswith("Article") for chunk in chunks[1:])
        for number in (0, 60, 119):
            hit = documents.search(f"weight of ART{number:03}", 1)[0]
            assert f"ART{number:03}" in hit.chunk.text and not hit.missing


ROWS = st.lists(st.sampled_from(["ab", "1.5 m", "x\\|y"]), min_size=3, max_size=3)


@given(st.lists(ROWS, min_size=2, max_size=5), st.booleans())
def test_each_cell_of_a_row_follows_the_name_of_its_column(
    grid: list[list[str]], cut: bool
) -> None:
    """Also in a text that starts inside of the table."""
    first, *rows = [f"| {' | '.join(row)} |" for row in grid]
    head = f"{first}\n|---|---|---|"
    text = "\n".join([*([] if cut else [head]), *rows, "", "The end."])
    starts = [0 if cut else len(head) + 1]
    for row in rows:
        starts.append(starts[-1] + len(row) + 1)
    found = heads_at("md", text, starts, head if cut else "")
    assert found == [*[head] * len(rows), ""]
    for row, cells in zip(rows, grid[1:], strict=True):
        pairs = zip(grid[0], cells, strict=True)
        assert labelled(head, row) == "; ".join(f"{name}: {cell}" for name, cell in pairs)


def test_rows_without_a_head_of_as_many_cells_stay_as_they_are() -> None:
    assert labelled("| a | b |", "| 1 | | 3 |") == "| 1 | | 3 |"
    assert labelled("| a | b | c |", "| 1 | | 3 |") == "a: 1; c: 3"
    assert labelled("", "prose") == "prose" and labelled("a,b", "1,2") == "1,2"
