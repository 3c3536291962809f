"""The text, pages and headings of pdf, docx, html and text files."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from index.documents.formats import FORMATS, DocumentError, ParsedDocument, kind_of
from index.documents.formats import pdf as pdf_format
from index.documents.formats.parser import DocumentParser
from tests.support.sample_documents import docx, parse, pdf, prose, word_xml
from tests.support.word_documents import pack

MAX_CHARS = 1 << 24
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def parser() -> Iterator[DocumentParser]:
    with DocumentParser() as opened:
        yield opened


def word(body: str) -> str:
    return parse("a.docx", pack({"document.xml": word_xml(body)})).text


# -- pdf -------------------------------------------------------------------------------------------


def test_the_pages_of_a_pdf() -> None:
    texts = [prose(random.Random(seed), 8, each=1).replace("\n\n", "\n") for seed in range(5)]
    parsed = parse("some.pdf", pdf([*texts, ""]))
    assert len(parsed.pages) == 6
    found = [parsed.text[start:stop].split() for start, stop in parsed.pages]
    assert found == [text.split() for text in [*texts, ""]]


def test_large_lines_are_headings_of_a_pdf() -> None:
    plain = "\n".join(f"Line {n} of plain text, which is longer than a title." for n in range(9))
    pages = [f"# Title\n{plain}", f"{plain}\n# Second part\n{plain}"]
    parsed = parse("some.pdf", pdf(pages))
    assert [(each.level, each.title) for each in parsed.headings] == [
        (1, "Title"),
        (1, "Second part"),
    ]
    assert parsed.text[parsed.headings[1].start :].startswith("# Second part\n")


def test_an_outline_takes_precedence_over_large_lines() -> None:
    pages = ["# Large\nplain", "text\n1.2 Inner part\nmore text", "nothing like it"]
    outline = [("Chapter", 0, 0), ("Inner Part", 1, 1), ("Elsewhere", 0, 2)]
    parsed = parse("some.pdf", pdf(pages, outline))
    assert [(each.level, each.title) for each in parsed.headings] == [
        (1, "Chapter"),
        (2, "Inner Part"),
        (1, "Elsewhere"),
    ]
    places = [each.start for each in parsed.headings]
    assert places[0] == 0 and places[2] == parsed.pages[2][0]
    assert parsed.text[places[1] :].startswith("1.2 Inner part")


def test_words_split_over_two_lines_are_joined() -> None:
    parsed = parse("some.pdf", pdf(["This is an exam-\nple of the Anglo-\nSaxon kind"]))
    assert "an example of the Anglo-Saxon kind" in parsed.text


def test_a_pdf_may_have_so_many_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pdf_format, "MAX_PAGES", 3)
    with pytest.raises(ValueError, match="has 4 pages, over 3; split it"):
        pdf_format.read(pdf(["a"] * 4), MAX_CHARS)


# -- docx ------------------------------------------------------------------------------------------


def test_paragraphs_tables_and_headings_of_a_docx() -> None:
    data = docx(
        ["# One", "A line.", "- first", "- second", "## Two", [["a", "b"], ["c", "d"]], "End"]
    )
    parsed = parse("some.docx", data)
    assert parsed.text == (
        "# One\n\nA line.\n\n- first\n- second\n\n## Two\n\n"
        "| a | b |\n| --- | --- |\n| c | d |\n\nEnd"
    )
    assert parsed.pages == ()
    assert [(each.level, each.title) for each in parsed.headings] == [(1, "One"), (2, "Two")]
    assert [parsed.text[each.start :][:5] for each in parsed.headings] == ["# One", "## Tw"]


def test_tabs_and_breaks_of_a_docx() -> None:
    run = "<w:r><w:t>a</w:t><w:tab/><w:t xml:space='preserve'>b </w:t><w:br/><w:t>c</w:t></w:r>"
    stops = "<w:pPr><w:tabs><w:tab w:val='left' w:pos='9'/></w:tabs></w:pPr>"
    assert word(f"<w:p>{stops}{run}</w:p>").split() == ["a", "b", "c"]


def test_tracked_changes_and_content_controls_are_read_once() -> None:
    changed = (
        "<w:p><w:ins><w:r><w:t>new</w:t></w:r></w:ins><w:del><w:r><w:delText>old</w:delText></w:r>"
        "</w:del><w:moveFrom><w:r><w:t>moved</w:t></w:r></w:moveFrom></w:p>"
    )
    control = "<w:sdt><w:sdtContent><w:p><w:r><w:t>control</w:t></w:r></w:p></w:sdtContent></w:sdt>"
    assert word(changed + control).split("\n\n") == ["new", "control"]


# -- html ------------------------------------------------------------------------------------------


def test_blocks_lists_tables_and_headings_of_html() -> None:
    text, pages, headings = parse(
        "a.html",
        b"<!doctype html><title>T</title><h1>One<a class=headerlink>\xc2\xb6</a></h1>\n"
        b"<p>Some <b>bold</b>\n text &amp; more<br>next<ul><li>a<li><p>b</p><ul><li>c</ul></ul>"
        b"<h3></h3><p>x</p><table><tr><th>h<th>i<tr><td>1<td><td>2</table><h2>T w o</h2>"
        b"<pre>  def f():\n\n    pass\n</pre>end",
    )
    assert [line.strip() for line in text.split("\n") if line.strip()] == [
        *("# One", "Some **bold** text & more", "next", "- a", "- b", "* c", "x"),
        *("| h | i |  |", "| --- | --- | --- |", "| 1 |  | 2 |", "## T w o"),
        *("```", "def f():", "pass", "```", "end"),
    ]
    assert pages == () and [(each.level, each.title) for each in headings] == [
        (1, "One"),
        (2, "T w o"),
    ]


def test_hidden_elements_of_html_are_left_out() -> None:
    text, *_ = parse(
        "a.html",
        b"<head><style>p{}</style></head><script>alert(1)</script><p hidden>no</p><!-- no -->"
        b"<template>no</template><noscript>no</noscript><svg><text>no</text></svg><p>yes",
    )
    assert text == "yes"


@pytest.mark.parametrize("charset", ["utf-8", "unknown"])
def test_hidden_elements_of_mail_are_left_out(charset: str) -> None:
    seen = "<p style='font-size:0.9em'>seen</p>"
    styles = ("display:none", "visibility: hidden", "font-size:0", "DISPLAY : NONE")
    unseen = "".join(f"<div style='{style}'>no<b hidden>no</b></div>" for style in styles)
    mail = f"Subject: Hello\nContent-Type: text/html; charset={charset}\n\n{unseen}{seen}"
    assert parse("a.eml", mail.encode()).text == "**Subject**: Hello\n\nseen"


@settings(max_examples=20)
@given(st.text("<>/!-&;=\"' abdhiloprtuv123\n\u00e9\0", min_size=1, max_size=200))
def test_any_mail_can_be_parsed(parser: DocumentParser, html: str) -> None:
    parser.parse("a.eml", f"Subject: x\nContent-Type: text/html\n\n{html}".encode())


@settings(max_examples=20)
@given(st.text("<>/!-&;=\"' abdhiloprtuv123\n\u00e9\0", min_size=1, max_size=200))
def test_any_html_can_be_parsed(parser: DocumentParser, html: str) -> None:
    try:
        text, _, headings = parser.parse("a.html", f"x {html}".encode())
    except DocumentError as error:
        assert "binary file" in str(error) and "\0" in html
        return
    assert text == text.strip("\n") and "\0" not in text
    assert all(0 <= heading.start < len(text) for heading in headings)


def test_html_may_declare_its_encoding() -> None:
    html = '<meta charset="windows-1252"><p>caf\u00e9 \u201cquoted\u201d'
    assert parse("a.html", html.encode("cp1252")).text == "caf\u00e9 \u201cquoted\u201d"
    assert parse("a.html", html.encode("utf-8")).text == "caf\u00e9 \u201cquoted\u201d"
    for name in ("punycode", "zlib", "utf-7", "none-such"):  # no encodings of the web
        with pytest.raises(DocumentError, match=f"a.html: not valid {name}; save it as"):
            parse("a.html", b"<meta charset=" + name.encode() + b">\xe9")


# -- text ------------------------------------------------------------------------------------------


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1))
def test_a_text_file_is_kept_as_it_is(parser: DocumentParser, text: str) -> None:
    if text.strip() and not text.startswith(("%PDF-", "PK\x03\x04", "\ufeff")):
        for name in ("a.txt", "a.md", "a.rst", "a.py", "a", "a.unknown"):
            assert parser.parse(name, text.encode()).text == text
        for encoding in ("utf-8-sig", "utf-16"):
            assert parser.parse("a.txt", text.encode(encoding)).text == text


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("A.PDF", "pdf"), ("b.docx", "docx"), ("c.htm", "html"), ("d.md", "md"), ("e.rst", "rst"),
        ("f.py", "code"), ("g.tar.rs", "code"), ("h.log", "txt"), ("Makefile", "txt"),
        (".py", "txt"),
    ],
)  # fmt: skip
def test_the_kind_of_a_file_name(name: str, kind: str) -> None:
    assert kind_of(name) == kind


def test_the_documentation_lists_every_format() -> None:
    lines = (ROOT / "docs" / "indexing.md").read_text("utf-8").lower().split("\n")
    listed = " ".join(line for line in lines if line.startswith("|"))
    named = {"md": "markdown", "rst": "restructuredtext"}
    formats = FORMATS.replace(" and ", ", ").split(", ")
    assert len(formats) > 20
    assert [
        each for each in formats if not re.search(rf"\b{named.get(each, each)}\b", listed)
    ] == []


def test_headings_of_text_are_found(parser: DocumentParser) -> None:
    assert [each.title for each in parser.parse("a.md", b"# One\r\n").headings] == ["One"]
    assert [each.title for each in parser.parse("a.py", b"def one(): 1").headings] == ["one"]
    assert parser.parse("a.txt", b"# One") == ParsedDocument("# One")
