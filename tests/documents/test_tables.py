"""Tables of a text: every row of a long one is found with the names of its columns."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from index.documents.chunking import MAX_CHUNK_CHARS, split_chunks
from index.documents.documents import Documents
from index.documents.formats import ParsedDocument
from index.documents.tables import Tables, find_tables
from tests.support.sample_documents import parse

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
        assert all(chunk.table_head.startswith("Article") for chunk in chunks[1:])
        for number in (0, 60, 119):
            hit = documents.search(f"weight of ART{number:03}", 1)[0]
            assert f"ART{number:03}" in hit.chunk.text and not hit.missing


def test_text_of_csv_files_is_as_it_was() -> None:
    text = 'name,"a, b"\nx,1\n'
    assert parse("a.csv", text.encode()).text == text


CELLS = (
    st.text("ab 1.", min_size=1, max_size=6).map(lambda cell: " ".join(cell.split())).filter(bool)
)


@st.composite
def grids(draw: st.DrawFn) -> list[list[str]]:
    """The head and the rows of a table."""
    columns = draw(st.integers(2, 4))
    row = st.lists(CELLS, min_size=columns, max_size=columns)
    return draw(st.lists(row, min_size=2, max_size=5))


@given(grids(), st.sampled_from(["md", "html", "csv", "tsv"]), st.booleans(), st.data())
def test_each_cell_of_a_row_follows_the_name_of_its_column(
    grid: list[list[str]], kind: str, cut: bool, data: st.DataObject
) -> None:
    """Also in a text that starts inside of the table."""
    head, *rows = grid
    if kind == "csv":
        lines = [",".join(f'"{cell}"' for cell in row) for row in grid]
    elif kind == "tsv":
        lines = ["\t".join(row) for row in grid]
    else:
        lines = [f"| {' | '.join(row)} |" for row in grid]
    above = [lines[0], *(["|---" * len(head) + "|"] if kind == "md" else [])]
    first = data.draw(st.integers(0, len(rows) - 1)) if cut else 0
    body = lines[1 + first :]
    after = "" if kind in ("csv", "tsv") else "\n\nThe end."
    text = "\n".join([*([] if cut else above), *body]) + after
    tables = Tables(kind, text, "\n".join(above) if cut else "")
    named = [zip(head, row, strict=True) for row in rows[first:]]
    expected = "\n".join("; ".join(f"{name}: {cell}" for name, cell in row) for row in named)
    assert tables.as_rows() == f"{expected}{after}"
    for row, cells in zip(tables.rows, rows[first:], strict=True):
        assert [text[start:stop] for start, stop in row.cells] == cells
        assert row.start <= row.cells[0][0] and row.cells[-1][1] <= row.stop


@given(st.sampled_from(["md", "csv", "tsv"]), st.lists(LINES, max_size=12).map("\n".join))
def test_rows_and_prose_are_apart_and_in_order(kind: str, text: str) -> None:
    tables = Tables(kind, text)
    spans = sorted([*tables.prose, *((row.start, row.stop) for row in tables.rows)])
    ends = [0, *(stop for _, stop in spans)]
    assert all(end <= start < stop for end, (start, stop) in zip(ends, spans, strict=False))
    left = tables.as_rows()
    for start, stop in tables.prose:
        assert text[start:stop] in left


def test_quoted_cells_and_empty_ones() -> None:
    text = 'name;price;note\n"a; b";"1,5";\n"two\nlines";2;"say ""no"""\n'
    rows = Tables("csv", text).as_rows()
    assert rows == 'name: a; b; price: 1,5\nname: two lines; price: 2; note: say ""no""\n'
    assert Tables("md", "| a |\n|---|\n| x \\| y |").as_rows() == "a: x \\| y"
    assert Tables("code", "| a |\n|---|\n| 1 |").as_rows() == "| a |\n|---|\n| 1 |"


def test_the_rows_of_a_chunk_with_their_heads_are_no_longer_than_a_chunk_of_prose() -> None:
    head = "| Item number | Price per unit in euros | Days until it is delivered |\n|---|---|---|\n"
    rows = "".join(f"| A-{n} | {n}.50 | {n % 9} |\n" for n in range(300))
    text = head + rows
    chunks = split_chunks("id", "md", ParsedDocument(text))
    for chunk in chunks:
        shown = Tables("md", chunk.text, chunk.table_head).as_rows()
        assert len(shown) <= 1.1 * MAX_CHUNK_CHARS
    assert len(chunks[1].text) > 200
