"""Documents as people have them: each has the text that a reader sees, in the same order.

The kinds of what was read wrongly are marked: headings of a pdf (D1), forms, automatic numbers,
tables, values separated by commas, signs with several forms, encodings, layout (D8).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from reportlab.pdfbase.pdfmetrics import stringWidth

from engine.rag.outline import find_outline
from index.documents.documents import Documents
from index.documents.formats import DocumentError, ParsedDocument
from index.documents.formats.parser import DocumentParser
from tests.support.sample_documents import archive, raw_pdf, stream
from tests.support.word_documents import OFFICE, levels, pack, paragraph, relations

CASES = Path(__file__).with_name("cases")
SHEETS = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"


@pytest.fixture(scope="module")
def parser() -> Iterator[DocumentParser]:
    with DocumentParser() as opened:
        yield opened


def case(name: str) -> bytes:
    """The content of a case; that of a docx is packed."""
    if not name.endswith(".docx"):
        return (CASES / name).read_bytes()
    parts: dict[str, bytes | str] = {
        "document.xml": (CASES / f"{name.removesuffix('.docx')}.document.xml").read_bytes(),
        "numbering.xml": (CASES / "numbering.xml").read_bytes(),
        "styles.xml": STYLES,
    }
    if name == "parts.docx":
        parts |= {part: (CASES / part).read_bytes() for part in ("header1.xml", "footer1.xml")}
    return pack(parts)


STYLES = "".join(
    f'<w:style w:type="paragraph" w:styleId="{name.replace(" ", "")}"><w:name w:val="{name}"/>'
    "</w:style>"
    for name in ("Title", "Subtitle", "heading 1")
).replace('"heading1"', '"Heading1"')


def table(*rows: str) -> str:
    """A Markdown table of rows such as "a, b"."""
    lines = [f"| {' | '.join(row.split(', '))} |" for row in rows]
    lines.insert(1, "|" + " --- |" * len(rows[0].split(", ")))
    return "\n".join(lines)


# -- D1, D8: pdf -----------------------------------------------------------------------------------

TITLES = ["Introduction", "Related work on apples", "The method we use", "Results of the trial"]
LINES = ["The apple harvest of this year was larger than the", "last one, and the price fell."]


def titles(parsed: ParsedDocument) -> list[str]:
    return [heading.title for heading in parsed.headings]


def drawn(
    *lines: tuple[str, int, str], more: bytes = b"", objects: tuple[bytes, ...] = ()
) -> bytes:
    """A page of text; a line is (font size and place in the text matrix, -, text)."""
    content = "\n".join(f"BT /F 1 Tf {matrix} Tm ({text}) Tj ET" for matrix, _, text in lines)
    font = b"<< /F << /Type /Font /Subtype /Type1 /BaseFont /Helvetica >> >>"
    page = b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Contents 4 0 R /Resources "
    return raw_pdf(
        [
            b"<< /Type /Catalog /Pages 2 0 R >>",
            b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
            page + b"<< /Font %s >> %s >>" % (font, more),
            stream(content.encode()),
            *objects,
        ]
    )


def word_by_word() -> bytes:
    """As TeX draws: sizes in the text matrix, and each word at its place, without blanks."""
    words, top = list[tuple[str, int, str]](), 800.0
    for title in TITLES:
        for size, line in ((18, title), *((10, line) for line in LINES * 3)):
            left = 60.0
            for word in line.split():
                words.append((f"{size} 0 0 {size} {left:.2f} {top:.2f}", size, word))
                left += stringWidth(f"{word} ", "Helvetica", size)
            top -= 1.4 * size
        top -= 20
    return drawn(*words)


def test_headings_of_a_pdf_drawn_by_cairo(parser: DocumentParser) -> None:
    parsed = parser.parse("a.pdf", case("cairo_headings.pdf"))
    assert titles(parsed) == ["Rent", "Deposit", "Termination", "Liability"]


def test_headings_of_a_pdf_drawn_word_by_word(parser: DocumentParser) -> None:
    parsed = parser.parse("a.pdf", word_by_word())
    assert titles(parsed) == TITLES
    assert " ".join(parsed.text.split()).count(" ".join(LINES)) == 3 * len(TITLES)


def test_columns_are_read_one_after_the_other_and_have_no_headings(parser: DocumentParser) -> None:
    parsed = parser.parse("a.pdf", case("twocol_rows.pdf"))
    assert titles(parsed) == []
    assert " ".join(parsed.text.split()) == (
        "The tenant pays the rent on the first day of each month. Late payment costs ten euro per "
        "week that it is late. Payment is by bank transfer. The landlord repairs the heating "
        "within three days of a written notice. The tenant may end the lease in May with a notice "
        "of two months."
    )


def test_a_page_that_is_missing_leaves_the_others_in_place(parser: DocumentParser) -> None:
    parsed = parser.parse("a.pdf", case("broken_kids_missing.pdf"))
    assert [parsed.text[start:stop] for start, stop in parsed.pages] == [
        "This is page 0: rent 000 euro",
        "",
        "This is page 2: rent 200 euro",
    ]


@pytest.mark.parametrize("turn", [90, 270])
def test_a_turned_page_is_read_from_top_to_bottom(parser: DocumentParser, turn: int) -> None:
    lines = ["First line of the table", "Second line says 42", "Third line is the last"]
    place = "0 12 -12 0 {} 72" if turn == 90 else "0 -12 12 0 {} 700"
    at = [100 + 20 * n if turn == 90 else 200 - 20 * n for n in range(3)]
    made = [(place.format(x), 12, line) for x, line in zip(at, lines, strict=True)]
    parsed = parser.parse("a.pdf", drawn(*made, more=b"/Rotate %d" % turn))
    assert " ".join(parsed.text.split()) == " ".join(lines)


def test_words_split_by_a_hyphen_of_unicode_are_joined(parser: DocumentParser) -> None:
    assert "The rules of politics and" in parser.parse("a.pdf", case("eol_hyphen2010.pdf")).text


# -- D2: forms -------------------------------------------------------------------------------------


def test_values_of_a_pdfs_fields_stand_beside_their_labels(parser: DocumentParser) -> None:
    lines = parser.parse("a.pdf", case("form.pdf")).text.split("\n")
    assert lines[-4:] == [
        "Name of tenant: Ada Lovelace",
        "Monthly rent: 1,250 euro",
        "Pets allowed: ☒",
        "Country: Norway",
    ]


def test_notes_on_a_pdfs_page_are_read(parser: DocumentParser) -> None:
    note = b"<< /Type /Annot /Subtype /%s /Rect [300 690 320 710] /Contents (%s) >>"
    notes = (note % (b"Text", b"Deposit returned"), note % (b"FreeText", b"Key handed over"))
    line = ("12 0 0 12 72 700", 12, "The rent is due monthly.")
    made = drawn(line, more=b"/Annots [5 0 R 6 0 R]", objects=notes)
    assert parser.parse("a.pdf", made).text == (
        "The rent is due monthly.\n\nNote: Deposit returned\nNote: Key handed over"
    )


# -- the whole text of others ----------------------------------------------------------------------

RUNS = """The rent is 650 euro.
kept
AB
The notice period is
two months.
stay
Moved text.
Energy: $E=mc^{2}$.
Temp 20°C; softhyphen; non-break after ptab
Visible.
☒ Pets allowed
Name: Ada
☒ Smoking allowed
Country: Sweden
1 May 2031
small shown as caps
smart tag text
CO2"""
PARTS = """Contract no. 4711
Body only.
Before box.
In the VML box: 77
After box.
In the DrawingML box: 88
Page footer: ACME Ltd"""
TABLES = "\n\n".join(
    [
        table("City, Winter, Summer", "Oslo, , 90", ", 11, 12"),
        "between",
        table("Merged, Merged, Third", "a, b, c"),
        "vmerge",
        table("Region, Sum", "North, 5", "North, 6"),
        "nested",
        table("outer, n1 / n2<br>n3 / n4"),
        "multi-paragraph and list in cell",
        table("Pro, Mail<br>Chat<br>Line1<br>Line2"),
        "# H in doc",
        table("Heading in a cell, x"),
    ]
)
TEXTS = {
    # D2: forms of Word and html
    "runs.docx": RUNS.replace("\n", "\n\n"),
    "form.html": "Name Ada Green My comment ☒ Agree",
    # D3: automatic numbers, and none where no list is
    "steps.html": "# Recipe\n\n1. Mix flour and water\n2. Add salt and yeast\n"
    "3. Rest for one hour\n4. Bake for forty minutes\n5. Cool on a rack",
    "num0.docx": "Numbering switched off here.\n\nA subtitle\n\nx☑\n\n"
    + table("2023, 2023, 2024", "rent, heat, rent", "500, 90, 520"),
    "styles.docx": "German heading\n\nBody\n\n# A Title\n\nSub",
    # D4: tables
    "p_in_td.html": table("City, Price", "Oslo, 90", "Bergen, 70"),
    "br_in_td.html": table("City, Address, Price", "Oslo, Street 1 0150 Oslo, 90"),
    "empty_corner.html": table(", Basic, Pro", "Price, 10 euro, 25 euro", "Seats, 1, 5"),
    "colspan.html": table("Region, 2023, 2023, 2024", "North, 1, 2, 3", "North, 4, 5, 6"),
    "img_only_cell.html": table("Feature, Free, Paid", "Backup, no, yes", "Sync, yes, yes"),
    "tables.docx": TABLES,
    # D5: values separated by commas
    "comment.csv": "# exported 2024\n# by X\n\n" + table("city, price", "Oslo, 90"),
    "semi.csv": table("name, price", "Oslo, 1,5"),
    # D7: encodings
    "gb2312.html": "价格是五百元，朱镕基",
    "sjis.html": "価格①第一髙",
    "xmlenc.xhtml": "цена 5",
    "cp1252.csv": table("name, price", "café, 5"),
    # D8: formulas, hidden text, headers and footers, other formats
    "math.html": "Area is a=3 here.\n\nlink text A chart of sales",
    "hidden.html": "Price is 10.\n\nPrice is 98.",  # hidden from screen readers is seen
    "parts.docx": PARTS.replace("\n", "\n\n"),
    "prices.xls": table("Variety, Tonnes, Euros", "Boskoop, 40, 385", "Elstar, 90, 410.5"),
    "doc.rtf": "The rent is **500 euro** per month.\n\nThe lease ends on 1 May 2031. Café",
    "mail.eml": "**Subject**: Hello\n\nThe rent is 500 euro.",
    "nb.ipynb": "# Sales\nThe \"best\" region is Oslo.\n\n```\nx = 1\nprint('total', x)\n```",
}


@pytest.mark.parametrize("name", TEXTS)
def test_the_text_of_a_file(parser: DocumentParser, name: str) -> None:
    assert parser.parse(name, case(name)).text == TEXTS[name]


MHTML = b"""MIME-Version: 1.0
Subject: Saved page
Content-Type: multipart/related; type="text/html"; boundary="b"

--b
Content-Type: text/html; charset="utf-8"
Content-Transfer-Encoding: quoted-printable

<html><body><h1>Prices</h1><p>The rent is 500=E2=82=AC.</p></body></html>
--b--
""".replace(b"\n", b"\r\n")
OLD_NOTEBOOK = json.dumps(  # version 3
    {"worksheets": [{"cells": [
        {"cell_type": "heading", "level": 2, "source": ["Sales"]},
        {"cell_type": "code", "input": "total", "outputs": [
            {"output_type": "pyout", "text": ["77"], "html": ["<b>77</b>"]},
            {"output_type": "display_data", "png": "AAAA"},
        ]},
    ]}]}
)  # fmt: skip
FENCED = "````\n# no heading\n```\n````"
NOTEBOOK = json.dumps(
    {"cells": [
        {"cell_type": "markdown", "source": ["# A\n"]},
        {"cell_type": "code", "source": "# no heading\n```", "outputs": [
            {"output_type": "error", "traceback": ["\x1b[0;31m# no heading\x1b[0m", "```"]},
        ]},
    ]}
)  # fmt: skip
ROWS = [["City", "Fees"], ["Oslo", "<ul><li>rent 90</li><li>heat 12</li></ul>"]]
LIST_IN_CELL = "".join(f"<tr><td>{'<td>'.join(row)}" for row in ROWS)


@pytest.mark.parametrize(
    ("name", "data", "text"),
    [
        ("a.html", f"<table>{LIST_IN_CELL}", table("City, Fees", "Oslo, rent 90 heat 12")),
        (
            "a.html",
            "<ol><li>a<li value=5>b<ol><li>x<li value=3>y</ol><li>c</ol><ol start=2><li>d</ol>",
            "1. a\n\n5. b\n   1. x\n\n   3. y\n6. c\n\n2. d",
        ),
        ("a.html", "<p>1) a<p>* b<p>- c<p>> d", "1) a\n\n* b\n\n- c\n\n> d"),
        (
            "a.rtf",
            r"{\rtf1 {\b\v no \{no\}}{\v0 yes}{\deleted no}{\viewkind4 , yes}{\*\x no}\par}",
            "yes, yes",
        ),
        ("a.csv", 'city,"price\nin euro"\nOslo,90', table("city, price in euro", "Oslo, 90")),
        ("a.csv", "city,price\rOslo,90", table("city, price", "Oslo, 90")),
        ("a.tsv", "city\tprice\nOslo\t9|0", table("city, price", r"Oslo, 9\|0")),
        ("a.csv", "Sales 2024\n\na;b\n1;2\n3;4", "Sales 2024\n\n" + table("a, b", "1, 2", "3, 4")),
        ("a.html", b'<meta charset="iso-8859-1"><p>\x93quoted\x94 \x80 5', "“quoted” € 5"),
        ("a.html", b'<meta charset="euc-kr"><p>' + "똠방각하".encode("cp949"), "똠방각하"),
        ("a.txt", "Café für 5".encode("cp1252"), "Café für 5"),
        ("a.ipynb", OLD_NOTEBOOK, "## Sales\n\n```\ntotal\n```\n\n```\n77\n```"),
        ("a.ipynb", NOTEBOOK, f"# A\n\n{FENCED}\n\n{FENCED}"),
        ("a.mht", MHTML, "**Subject**: Saved page\n\n# Prices\n\nThe rent is 500€."),
    ],
)  # fmt: skip
def test_the_text_of_a_short_file(
    parser: DocumentParser, name: str, data: bytes | str, text: str
) -> None:
    data = data.encode() if isinstance(data, str) else data
    assert parser.parse(name, data).text == text


@pytest.mark.parametrize("kind", ["plain", "html"])
@pytest.mark.parametrize("charset", ["us-ascii", "iso-8859-1", "utf-8", "unknown"])
@pytest.mark.parametrize("real", ["utf-8", "cp1252"])
def test_mail_is_read_in_its_real_encoding(
    parser: DocumentParser, kind: str, charset: str, real: str
) -> None:
    """Programs say ASCII or Latin-1 without looking."""
    head = f"Content-Type: text/{kind}; charset={charset}\nContent-Transfer-Encoding: 8bit\n\n"
    assert parser.parse("a.eml", head.encode() + "5 € für Öl".encode(real)).text == "5 € für Öl"


FORWARDED = """Subject: =?iso-8859-1?Q?Gr=FC=DFe?=
From: Ann <ann@example.org>
MIME-Version: 1.0
Content-Type: multipart/mixed; boundary=m

--m
Content-Type: multipart/alternative; boundary=a

--a
Content-Type: text/plain

The plain form.
--a
Content-Type: text/html

Main Street 5<br>1010 Wien<br><br>Bye
--a--
--m
Content-Type: text/csv
Content-Disposition: attachment; filename="list.csv"

a,b
--m
Content-Type: message/rfc822

Subject: M\u00fcll
Content-Type: text/plain; format=flowed

A line that 
goes on.
> quoted
* an item
--m--
"""  # noqa: W291
READ = """**Subject**: Gr\u00fc\u00dfe

**From**: Ann <ann@example.org>

Main Street 5
1010 Wien

Bye

Attachment: list.csv

**Subject**: M\u00fcll

A line that goes on.
> quoted
* an item"""


def test_mail_keeps_its_lines_and_what_it_forwards(parser: DocumentParser) -> None:
    assert parser.parse("a.eml", FORWARDED.encode()).text == READ


@pytest.mark.parametrize("name", ["=?utf-8?b?a?=", "=?x?q?a", "=?evil?q?a?="])
def test_headers_of_mail_may_be_malformed(parser: DocumentParser, name: str) -> None:
    assert "body" in parser.parse("a.eml", f"Subject: {name}\n\nbody".encode()).text


def test_mail_in_letters_of_seven_bits(parser: DocumentParser) -> None:
    head = b"Content-Type: text/plain; charset=iso-2022-jp\n\n"
    assert parser.parse("a.eml", head + "価格は五百".encode("iso-2022-jp")).text == "価格は五百"


@pytest.mark.parametrize(
    ("inside", "text"),
    [
        (  # words with their reading above
            "<w:p><w:r><w:ruby><w:rt><w:r><w:t>Tokyo</w:t></w:r></w:rt><w:rubyBase><w:r>"
            "<w:t>東京</w:t></w:r></w:rubyBase></w:ruby></w:r></w:p>",
            "東京(Tokyo)",
        ),
        *(
            (  # numbers that no program should write
                f'<w:tbl><w:tr><w:tc><w:tcPr><w:gridSpan w:val="{span}"/></w:tcPr>'
                f"{paragraph('rent')}</w:tc><w:tc>{paragraph('90')}</w:tc></w:tr></w:tbl>",
                table("rent, 90"),
            )
            for span in ("0", "-3", "x", "")
        ),
        ('<w:p><w:r><w:sym w:char="FFFFFFFF"/><w:t>5</w:t></w:r></w:p>', "\ufffd5"),
        ('<w:p><w:r><w:sym w:font="Symbol" w:char="F0B3"/><w:t>5</w:t></w:r></w:p>', "≥5"),
    ],
)  # fmt: skip
def test_parts_of_a_docx(parser: DocumentParser, inside: str, text: str) -> None:
    assert parser.parse("a.docx", pack({"document.xml": inside})).text == text


def test_cells_of_a_table_in_a_table_are_repeated_too(parser: DocumentParser) -> None:
    wide = f'<w:tc><w:tcPr><w:gridSpan w:val="2"/></w:tcPr>{paragraph("x")}</w:tc>'
    inner = f"<w:tbl><w:tr>{wide}</w:tr></w:tbl>{paragraph('')}"
    outer = f"<w:tbl><w:tr><w:tc>{inner}</w:tc><w:tc>{paragraph('y')}</w:tc></w:tr></w:tbl>"
    assert parser.parse("a.docx", pack({"document.xml": outer})).text == table("x / x, y")


def test_a_row_has_no_more_columns_than_word_gives_it(parser: DocumentParser) -> None:
    cell = f'<w:tc><w:tcPr><w:gridSpan w:val="63"/></w:tcPr>{paragraph("x")}</w:tc>'
    row = f"<w:tr>{cell * 9}</w:tr>"
    made = parser.parse("a.docx", pack({"document.xml": f"<w:tbl>{row}</w:tbl>"})).text
    assert made.split("\n")[0].count("x") == 63 + 8


@pytest.mark.parametrize(
    ("name", "data", "why"),
    [
        ("a.txt", b"{\\rtf1 text}", "an rtf file; rename it to end in .rtf"),
        ("a.txt", "价格是五百元".encode("gbk"), "not UTF-8; save it as UTF-8"),
        ("a.png", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "a binary file; pdf, docx, doc, docm, odt"),
        ("a.pages", b"PK\x03\x04", "a zip archive or an Office file; pdf, docx"),
    ],
)
def test_what_cannot_be_read_is_refused_by_name(
    parser: DocumentParser, name: str, data: bytes, why: str
) -> None:
    with pytest.raises(DocumentError, match=f"^{name}: {why}"):
        parser.parse(name, data)


# -- D3: automatic numbers -------------------------------------------------------------------------


def test_the_automatic_numbers_of_a_docx(parser: DocumentParser) -> None:
    numbering = (
        levels(5, ("decimal", "%1."), ("decimal", "%1.%2"), ("lowerLetter", "(%3)"))
        + levels(6, ("upperRoman", "Article %1"))
        + '<w:num w:numId="3"><w:abstractNumId w:val="5"/></w:num>'
        '<w:num w:numId="4"><w:abstractNumId w:val="6"/></w:num>'
        '<w:num w:numId="5"><w:abstractNumId w:val="5"/><w:lvlOverride w:ilvl="0">'
        '<w:startOverride w:val="7"/></w:lvlOverride></w:num>'
    )
    styles = (
        '<w:style w:type="paragraph" w:styleId="H1"><w:name w:val="heading 1"/>'
        '<w:pPr><w:numPr><w:numId w:val="3"/></w:numPr></w:pPr></w:style>'
    )
    body = [
        paragraph("Subject", "H1"),
        paragraph("The first rule.", number=3, level=1),
        paragraph("The second rule.", number=3, level=1),
        paragraph("A case of it.", number=3, level=2),
        paragraph("Another case.", number=3, level=2),
        paragraph("Fees", "H1"),
        paragraph("A fee of 5.", number=3, level=1),
        paragraph("Scope", number=4),
        paragraph("Law", number=4),
        paragraph("Late start", number=5),
    ]
    parts = {"document.xml": "".join(body), "numbering.xml": numbering, "styles.xml": styles}
    parsed = parser.parse("a.docx", pack(dict(parts)))
    assert [line.strip() for line in parsed.text.split("\n") if line.strip()] == [
        "# 1. Subject",
        "1.1 The first rule.",
        "1.2 The second rule.",
        "(a) A case of it.",
        "(b) Another case.",
        "# 2. Fees",
        "2.1 A fee of 5.",
        "Article I Scope",
        "Article II Law",
        "7. Late start",
    ]


CHAPTERS = [
    "Subject",
    "Term",
    "Fees",
    "Delivery",
    "Warranty",
    "Liability",
    "Secrecy",
    "Notice",
    "Law",
]


@pytest.mark.parametrize("name", ["contract_plain.docx", "contract_plain.txt"])
def test_chapters_of_a_contract_without_styles(name: str) -> None:
    with Documents() as library:
        outline = find_outline(library.add_data(name, case(name)))
    assert [chapter.title.lstrip("1234567890. ") for chapter in outline.chapters][-9:] == CHAPTERS


def test_headings_of_a_contract(parser: DocumentParser) -> None:
    found = titles(parser.parse("a.docx", case("contract.docx")))
    assert len(found) == 15 and found[:3] == ["Service agreement", "Subject", "Term"]


# -- D5, D6: searches ------------------------------------------------------------------------------


def test_rows_below_a_long_head_have_it() -> None:
    head = [f"a column with a long name, number {n}".replace(",", "") for n in range(20)]
    rows = [",".join(head), *(",".join(f"{row}x{n}" for n in range(20)) for row in range(40))]
    with Documents() as library:
        document = library.add_data("a.csv", "\n".join(["# by X", *rows]).encode())
        chunks = library.chunks(document.id)
    assert len(chunks) > 2
    assert all(head[-1] in chunk.table_head for chunk in chunks[1:])


@pytest.mark.parametrize("question", ["office", "Mietvertrag", "人口", "deposit", "ｏｆｆｉｃｅ"])
def test_signs_with_several_forms_are_found(question: str) -> None:
    with Documents() as library:
        library.add_data("a.txt", case("compat_chars.txt"))
        (hit,) = library.search(question, 1)
    assert not hit.missing and hit.coverage == 1


# -- formats that come with the library ------------------------------------------------------------

SHEET = (
    f'<worksheet xmlns="{SHEETS}"><sheetData>'
    '<row r="1"><c r="A1" t="inlineStr"><is><t>city</t></is></c>'
    '<c r="B1" t="inlineStr"><is><t>price</t></is></c></row>'
    '<row r="2"><c r="A2" t="inlineStr"><is><t>Oslo</t></is></c><c r="B2"><v>90</v></c></row>'
    "</sheetData></worksheet>"
)
WORKBOOK = (
    f'<workbook xmlns="{SHEETS}" xmlns:r="{OFFICE}"><sheets>'
    '<sheet name="Prices" sheetId="1" r:id="rId1"/></sheets></workbook>'
)
ODF = "urn:oasis:names:tc:opendocument:xmlns"
TEXT_CONTENT = (
    f'<o:document-content xmlns:o="{ODF}:office:1.0" xmlns:t="{ODF}:text:1.0"><o:body><o:text>'
    '<t:h t:outline-level="1">Prices</t:h><t:p>Oslo is 90.</t:p>'
    "</o:text></o:body></o:document-content>"
)
CONTAINER = (
    '<container xmlns="urn:oasis:names:tc:opendocument:xmlns:container" version="1.0"><rootfiles>'
    '<rootfile full-path="a.opf" media-type="application/oebps-package+xml"/></rootfiles>'
    "</container>"
)
BOOK = (
    '<package xmlns="http://www.idpf.org/2007/opf" version="3.0"><metadata/><manifest>'
    '<item id="a" href="a.xhtml" media-type="application/xhtml+xml"/></manifest>'
    '<spine><itemref idref="a"/></spine></package>'
)
CHAPTER = (
    '<html xmlns="http://www.w3.org/1999/xhtml"><body><h1>Prices</h1><p>Oslo is 90.</p></body>'
    "</html>"
)
TYPES = (
    '<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types">'
    '<Default Extension="xml" ContentType="application/xml"/><Override PartName="/xl/workbook.xml" '
    'ContentType="application/vnd.openxmlformats-officedocument.spreadsheetml.sheet.main+xml"/>'
    "</Types>"
)
PACKED = {
    "a.xlsx": {
        "[Content_Types].xml": TYPES,
        "_rels/.rels": relations({"xl/workbook.xml": "officeDocument"}).decode(),
        "xl/workbook.xml": WORKBOOK,
        "xl/_rels/workbook.xml.rels": relations({"worksheets/sheet1.xml": "worksheet"}).decode(),
        "xl/worksheets/sheet1.xml": SHEET,
    },
    "a.odt": {"mimetype": "application/vnd.oasis.opendocument.text", "content.xml": TEXT_CONTENT},
    "a.epub": {
        "mimetype": "application/epub+zip",
        "META-INF/container.xml": CONTAINER,
        "a.opf": BOOK,
        "a.xhtml": CHAPTER,
    },
}


@pytest.mark.parametrize("name", PACKED)
def test_spreadsheets_and_books_are_read(parser: DocumentParser, name: str) -> None:
    parsed = parser.parse(
        name, archive({path: text.encode() for path, text in PACKED[name].items()})
    )
    assert titles(parsed) == ([] if name == "a.xlsx" else ["Prices"])  # of one sheet
    assert (table("city, price", "Oslo, 90") if name == "a.xlsx" else "Oslo is 90.") in parsed.text
