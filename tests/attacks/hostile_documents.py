"""Files that attack a parser: loops, bombs, deep nesting and repetition, of a given size."""

from __future__ import annotations

import io
import random
import struct
import zipfile
import zlib
from collections.abc import Callable

from tests.support.sample_documents import (
    archive,
    pdf,
    pdf_of,
    pdf_of_forms,
    raw_pdf,
    stream,
    word_xml,
)

Make = Callable[[int], bytes]  # argument: about how many bytes the attack unpacks to

FONT = b"/Font << /F << /Type /Font /Subtype /Type1 /BaseFont /Helvetica >> >>"
CATALOG = b"<< /Type /Catalog /Pages 2 0 R >>"
PAGES = b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>"
PAGE = b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 99 99] /Contents 4 0 R /Resources << %s >> >>"
WORDS = b"BT /F 9 Tf 9 9 Td (words of the page) Tj ET\n"


def page_pdf(*objects: bytes, resources: bytes = FONT, catalog: bytes = CATALOG) -> bytes:
    """A page whose content is object 4, the first of `objects`."""
    return raw_pdf([catalog, PAGES, PAGE % resources, *objects])


# -- pdf -------------------------------------------------------------------------------------------


def text_bomb(size: int) -> bytes:
    """Text packed a thousand times."""
    return pdf_of(b"BT /F 9 Tf 9 9 Td " + b"(aaaaaaaaa) Tj " * (size // 15) + b"ET")


def double_flate(size: int) -> bytes:
    """Content that was compressed three times."""
    data = WORDS + b" " * size
    for _ in range(3):
        data = zlib.compress(data, 9)
    return page_pdf(stream(data, b" /Filter [/FlateDecode /FlateDecode /FlateDecode]"))


def outline_loop(size: int) -> bytes:
    """Two entries, each the next and the child of the other."""
    entry = b"<< /Title (entry) /Parent 5 0 R /Next %d 0 R /First %d 0 R /Dest [3 0 R /Fit] >>"
    return page_pdf(
        stream(WORDS),
        b"<< /Type /Outlines /First 6 0 R /Last 7 0 R /Count 2 >>",
        entry % (7, 7),
        entry % (6, 6),
        catalog=b"<< /Type /Catalog /Pages 2 0 R /Outlines 5 0 R >>",
    )


def long_outline(size: int) -> bytes:
    """Very many entries for one page, each to be searched for in its text."""
    count = size // 100
    entries = [
        b"<< /Title (none %d) /Parent 5 0 R /Next %d 0 R /Dest [3 0 R /Fit] >>" % (n, 7 + n)
        for n in range(count)
    ]
    lines = b"".join(b"0 -9 Td (line %d) Tj\n" % n for n in range(1000))
    return page_pdf(
        stream(b"BT /F 9 Tf 9 9 Td " + lines + b"ET", packed=True),
        b"<< /Type /Outlines /First 6 0 R /Last %d 0 R /Count %d >>" % (5 + count, count),
        *entries,
        catalog=b"<< /Type /Catalog /Pages 2 0 R /Outlines 5 0 R >>",
    )


def xref_loop(size: int) -> bytes:
    """A cross-reference table that names itself as the one before it."""
    data = page_pdf(stream(WORDS))
    return data.replace(b"trailer <<", b"trailer << /Prev %d" % data.rindex(b"xref\n0"))


def xref_far_away(size: int) -> bytes:
    """A cross-reference table that claims two billion objects."""
    data = page_pdf(stream(WORDS))
    return data.replace(b"xref\n0 5", b"xref\n0 2147483647").replace(
        b"/Size 5", b"/Size 2147483647"
    )


def form_loop(size: int) -> bytes:
    """A form that draws itself twice."""
    resources = FONT + b" /XObject << /X 5 0 R >>"
    head = b" /Type /XObject /Subtype /Form /BBox [0 0 99 99] /Resources << %s >>" % resources
    form = stream(WORDS + b"/X Do /X Do", head)
    return page_pdf(stream(b"/X Do /X Do"), form, resources=resources)


def glyph_loop(size: int) -> bytes:
    """A Type 3 font whose glyph shows itself."""
    font = (
        b"<< /Type /Font /Subtype /Type3 /FontBBox [0 0 9 9] /FontMatrix [1 0 0 1 0 0]"
        b" /FirstChar 97 /LastChar 97 /Widths [9] /CharProcs << /a 6 0 R >>"
        b" /Resources << /Font << /F 5 0 R >> >>"
        b" /Encoding << /Type /Encoding /Differences [97 /a] >> >>"
    )
    shown = b"BT /F 9 Tf 9 9 Td (aa) Tj ET"
    return page_pdf(
        stream(shown), font, stream(b"9 0 d0 " + shown), resources=b"/Font << /F 5 0 R >>"
    )


def page_tree_loop(size: int) -> bytes:
    loop = b"<< /Type /Pages /Kids [2 0 R 2 0 R] /Count 2147483647 >>"
    return raw_pdf([CATALOG, loop, stream(b"")])


def deep_page_tree(size: int) -> bytes:
    depth = size // 100
    nodes = [b"<< /Type /Pages /Kids [%d 0 R] /Count 1 >>" % (3 + n) for n in range(depth)]
    return raw_pdf([CATALOG, *nodes, PAGE % FONT])


def many_pages(size: int) -> bytes:
    """Every page is the same object."""
    count = size // 6
    kids = b"<< /Type /Pages /Kids [%s] /Count %d >>" % (b"3 0 R " * count, count)
    return raw_pdf([CATALOG, kids, PAGE % FONT, stream(WORDS)])


def repeated_content(size: int) -> bytes:
    """A page whose content is one stream, thousands of times."""
    content = stream(WORDS * 1000, packed=True)
    page = (PAGE % FONT).replace(b"4 0 R", b"[" + b"4 0 R " * (size // 1000) + b"]")
    return raw_pdf([CATALOG, PAGES, page, content])


def deep_array(size: int) -> bytes:
    return page_pdf(stream(WORDS), b"[" * size)


def deep_content_array(size: int) -> bytes:
    return page_pdf(stream(b"[" * size + WORDS, packed=True))


def many_filters(size: int) -> bytes:
    filters = b" /Filter [%s]" % (b"/FlateDecode " * (size // 100))
    return page_pdf(stream(zlib.compress(WORDS), filters))


def wide_predictor(size: int) -> bytes:
    parameters = b" /Filter /FlateDecode /DecodeParms << /Predictor 15 /Columns 2147483647 >>"
    return page_pdf(stream(zlib.compress(WORDS), parameters))


def length_loop(size: int) -> bytes:
    """A stream whose length is the stream itself."""
    return page_pdf(b"<< /Length 4 0 R >>\nstream\n" + WORDS + b"endstream")


def unicode_bomb(size: int) -> bytes:
    """Every character of the font stands for hundreds."""
    letters = b"0061" * 250
    table = b"/CIDInit /ProcSet findresource begin 1 begincmap\n1 begincodespacerange <00> <FF> "
    table += b"endcodespacerange\n1 beginbfrange <00> <FF> <%s> endbfrange\nendcmap end" % letters
    font = b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /ToUnicode 6 0 R >>"
    shown = b"BT /F 9 Tf 9 9 Td (%s) Tj ET" % (b"b" * (size // 250))
    return page_pdf(
        stream(shown, packed=True), font, stream(table), resources=b"/Font << /F 5 0 R >>"
    )


# -- docx ------------------------------------------------------------------------------------------


def word(body: str, styles: str = "") -> bytes:
    """A docx that is not compressed, which no limit of the ratio refuses."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as made:
        made.writestr("word/document.xml", word_xml(body))
        made.writestr("word/styles.xml", word_xml(styles))
    return out.getvalue()


def run(text: str) -> str:
    return f"<w:p><w:r><w:t>{text}</w:t></w:r></w:p>"


def zip_bomb(size: int) -> bytes:
    """Packed just below the ratio at which an archive is refused."""
    noise = random.Random(0).randbytes(size // 500).hex().encode()
    comment = b"<!--" + noise + b" " * size + b"-->"
    return archive({"word/document.xml": word_xml(run("words")) + comment})


def overlapping_zip(size: int) -> bytes:
    """Thousands of entries of the directory that share one packed file."""
    data = archive({"word/document.xml": word_xml(run("words"))})
    directory, end = data.index(b"PK\x01\x02"), data.index(b"PK\x05\x06")
    entry, count = data[directory:end], min(size // 100, 60_000)
    entries = [entry.replace(b"document.xml", b"%012d" % n) for n in range(count)]
    record = bytearray(data[end:])
    listed = entry + b"".join(entries)
    struct.pack_into("<HHI", record, 8, count + 1, count + 1, len(listed))
    return data[:directory] + listed + bytes(record)


def many_entries(size: int) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as made:
        made.writestr("word/document.xml", word_xml(run("words")))
        for number in range(size // 100):
            made.writestr(str(number), b"")
    return out.getvalue()


def nested_zip(size: int) -> bytes:
    data = word(run("words"))
    for _ in range(9):
        data = archive({"word/document.xml": data})
    return data


def entity_bomb(size: int) -> bytes:
    entities = '<!ENTITY a "text">' + "".join(
        f'<!ENTITY {chr(98 + n)} "{f"&{chr(97 + n)};" * 10}">' for n in range(9)
    )
    return archive({"word/document.xml": word_xml(run("&j;"), f"<!DOCTYPE d [{entities}]>")})


def external_entity(size: int) -> bytes:
    before = '<!DOCTYPE d [<!ENTITY x SYSTEM "file:///none-such">]>'
    return archive({"word/document.xml": word_xml(run("&x;"), before)})


def deep_xml(size: int) -> bytes:
    depth = size // 20
    return word("<w:tbl><w:tr>" * depth + run("words") + "</w:tr></w:tbl>" * depth)


def nested_tables(size: int) -> bytes:
    """The text of each table is joined into a cell of the one around it."""
    depth, row = size // 100, "<w:tbl><w:tr><w:tc>"
    body = (row + run("words")) * depth + "</w:tc></w:tr></w:tbl>" * depth
    return word(body)


def style_chain(size: int) -> bytes:
    """Every paragraph's style is based on thousands of others."""
    count = size // 100
    styles = "".join(
        f'<w:style w:styleId="s{n}"><w:basedOn w:val="s{n + 1}"/></w:style>' for n in range(count)
    )
    body = "<w:p><w:pPr><w:pStyle w:val='s0'/></w:pPr></w:p>" * count + run("words")
    return word(body, styles)


def one_huge_paragraph(size: int) -> bytes:
    return word(run("words of it. " * (size // 13)))


def huge_attribute(size: int) -> bytes:
    return word(f'<w:p w:rsid="{"a" * size}"/>' + run("words"))


# -- html ------------------------------------------------------------------------------------------


def deep_html(size: int) -> bytes:
    return b"<div>" * (size // 5) + b"words"


def misnested_html(size: int) -> bytes:
    """Every paragraph reopens all the formatting elements before it."""
    return b"".join(b"<b id=%d><i id=%d><p>w" % (n, n) for n in range(size // 25))


def nested_html_tables(size: int) -> bytes:
    return b"<table><tr><td>words" * (size // 20)


def many_attributes(size: int) -> bytes:
    return b"<p " + b"".join(b"a%d=1 " % n for n in range(size // 8)) + b">words"


def many_entities(size: int) -> bytes:
    return b"&CounterClockwiseContourIntegral;" * (size // 33)


def open_comment(size: int) -> bytes:
    return b"words <!--" + b"-<!-" * (size // 4)


def deep_foreign_html(size: int) -> bytes:
    return b"words" + b"<svg><math>" * (size // 11)


def html_in_utf16(size: int) -> bytes:
    return ("<p>" + "\u6f22" * (size // 2)).encode("utf-16")


# -- other formats that libraries read -------------------------------------------------------------

ODF = "urn:oasis:names:tc:opendocument:xmlns"


def repeated_cells(size: int) -> bytes:
    """A spreadsheet whose one cell stands for all that there may be."""
    content = (
        f'<o:document-content xmlns:o="{ODF}:office:1.0" xmlns:t="{ODF}:table:1.0" '
        f'xmlns:x="{ODF}:text:1.0"><o:body><o:spreadsheet><t:table>'
        '<t:table-row t:number-rows-repeated="1048576">'
        '<t:table-cell t:number-columns-repeated="16384"><x:p>words</x:p></t:table-cell>'
        "</t:table-row></t:table></o:spreadsheet></o:body></o:document-content>"
    )
    kind = b"application/vnd.oasis.opendocument.spreadsheet"
    return archive({"mimetype": kind, "content.xml": content.encode()})


def repeated_chapters(size: int) -> bytes:
    """A book that shows the same chapter again and again."""
    container = (
        '<container xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><rootfiles>'
        '<rootfile full-path="a.opf" media-type="application/oebps-package+xml"/></rootfiles>'
        "</container>"
    )
    book = (
        '<package xmlns="http://www.idpf.org/2007/opf"><manifest><item id="a" href="a.xhtml" '
        'media-type="application/xhtml+xml"/></manifest><spine>'
        + '<itemref idref="a"/>' * (size // 20)
        + "</spine></package>"
    )
    chapter = (
        f'<html xmlns="http://www.w3.org/1999/xhtml"><body>{"<p>words</p>" * 1000}</body></html>'
    )
    parts = {"META-INF/container.xml": container, "a.opf": book, "a.xhtml": chapter}
    kind = {"mimetype": b"application/epub+zip"}
    return archive(kind | {name: part.encode() for name, part in parts.items()})


def nested_mail(size: int) -> bytes:
    """Every part has one part."""
    parts = "".join(
        f'Content-Type: multipart/mixed; boundary="{n}"\n\n--{n}\n' for n in range(size // 55)
    )
    return f"Subject: a\nMIME-Version: 1.0\n{parts}Content-Type: text/plain\n\nwords".encode()


# -- Markdown, reStructuredText, code and plain text ----------------------------------------------


def repeated(text: str) -> Make:
    unit = text.encode()
    return lambda size: unit * (size // len(unit))


def with_start(start: str, text: str) -> Make:
    return lambda size: start.encode() + repeated(text)(size)


def reference_bomb(size: int) -> bytes:
    return b"".join(b"[a%d]: /b\n[a%d]\n\n" % (n, n) for n in range(size // 20))


def nested_list(size: int) -> bytes:
    """Each item is indented more than the one before."""
    lines, total = [], 0
    while total < size:
        lines.append(b"  " * len(lines) + b"- a\n")
        total += len(lines[-1])
    return b"".join(lines)


def rst_titles(size: int) -> bytes:
    """Every adornment is a style of its own, or the same as one before."""
    marks = b"!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"
    return b"".join(b"a\n%c%c%c%c\n\n" % ((marks[n % 32],) * 4) for n in range(size // 8))


def long_titles(size: int) -> bytes:
    """Chunks of a few lines below six headings as long as they may be."""
    top = b"".join(b"#" * level + b" " + b"title " * 30 + b"\n\n" for level in range(1, 6))
    return top + (b"###### " + b"title " * 30 + b"\n\n" + b"w " * 110 + b"\n\n") * (size // 410)


ATTACKS: dict[str, tuple[str, Make]] = {
    "pdf: nested forms": ("a.pdf", lambda size: pdf_of_forms(12, 12)),
    "pdf: a form draws itself": ("a.pdf", form_loop),
    "pdf: a glyph shows itself": ("a.pdf", glyph_loop),
    "pdf: text bomb": ("a.pdf", text_bomb),
    "pdf: compressed three times": ("a.pdf", double_flate),
    "pdf: outline loop": ("a.pdf", outline_loop),
    "pdf: long outline": ("a.pdf", long_outline),
    "pdf: xref loop": ("a.pdf", xref_loop),
    "pdf: xref of two billion": ("a.pdf", xref_far_away),
    "pdf: page tree loop": ("a.pdf", page_tree_loop),
    "pdf: deep page tree": ("a.pdf", deep_page_tree),
    "pdf: many pages": ("a.pdf", many_pages),
    "pdf: repeated content": ("a.pdf", repeated_content),
    "pdf: deep array": ("a.pdf", deep_array),
    "pdf: deep array in the content": ("a.pdf", deep_content_array),
    "pdf: many filters": ("a.pdf", many_filters),
    "pdf: wide predictor": ("a.pdf", wide_predictor),
    "pdf: length loop": ("a.pdf", length_loop),
    "pdf: Unicode bomb": ("a.pdf", unicode_bomb),
    "pdf: half of one": ("a.pdf", lambda size: pdf(["words"])[:-200]),
    "docx: zip bomb": ("a.docx", zip_bomb),
    "docx: overlapping entries": ("a.docx", overlapping_zip),
    "docx: many entries": ("a.docx", many_entries),
    "docx: nested archives": ("a.docx", nested_zip),
    "docx: entities": ("a.docx", entity_bomb),
    "docx: external entity": ("a.docx", external_entity),
    "docx: deep rows": ("a.docx", deep_xml),
    "docx: nested tables": ("a.docx", nested_tables),
    "docx: chain of styles": ("a.docx", style_chain),
    "docx: one paragraph": ("a.docx", one_huge_paragraph),
    "docx: one attribute": ("a.docx", huge_attribute),
    "html: deep": ("a.html", deep_html),
    "html: misnested": ("a.html", misnested_html),
    "html: nested tables": ("a.html", nested_html_tables),
    "html: attributes": ("a.html", many_attributes),
    "html: entities": ("a.html", many_entities),
    "html: open comment": ("a.html", open_comment),
    "html: deep foreign elements": ("a.html", deep_foreign_html),
    "html: UTF-16": ("a.html", html_in_utf16),
    "ods: repeated cells": ("a.ods", repeated_cells),
    "odt: nested archives": ("a.odt", nested_zip),
    "epub: repeated chapters": ("a.epub", repeated_chapters),
    "rtf: deep groups": ("a.rtf", lambda size: b"{\\rtf1" * (size // 6)),
    "rtf: one word": ("a.rtf", lambda size: b"{\\rtf1 " + b"a" * size),
    "eml: parts in parts": ("a.eml", nested_mail),
    "eml: one header": ("a.eml", with_start("Subject: ", "a")),
    "ipynb: deep lists": ("a.ipynb", with_start('{"nbformat": 4, "cells": ', "[")),
    "csv: one quotation": ("a.csv", with_start('"', "a\n")),
    "csv: rows of many widths": ("a.csv", lambda size: b"\n".join(b"a," * n for n in range(99))),
    "csv: one row": ("a.csv", repeated("a,")),
    "md: deep quotes": ("a.md", repeated(">")),
    "md: quotes with blanks": ("a.md", repeated("> ")),
    "md: brackets": ("a.md", repeated("[")),
    "md: emphasis": ("a.md", repeated("*a_ ")),
    "md: references": ("a.md", reference_bomb),
    "md: nested list": ("a.md", nested_list),
    "md: list markers": ("a.md", repeated("- ")),
    "md: numbered lists": ("a.md", repeated("1. a\n2) b\n")),
    "md: tags": ("a.md", repeated("<a\n")),
    "md: fences": ("a.md", repeated("```\n~~~\n")),
    "md: headings": ("a.md", repeated("# a\n")),
    "md: long titles": ("a.md", long_titles),
    "md: front matter": ("a.md", with_start("---\n", "a: b\n")),
    "md: blank lines": ("a.md", with_start("a", "\n")),
    "rst: titles": ("a.rst", rst_titles),
    "rst: adornments": ("a.rst", repeated("====\n")),
    "rst: one line": ("a.rst", with_start("a\n", "=")),
    "code: blanks": ("a.py", repeated("class" + " " * 390 + "\n")),
    "code: modifiers": ("a.ts", repeated("public static async ")),
    "code: definitions": ("a.py", repeated("def f(): 1\n")),
    "code: tabs": ("a.py", repeated("\t" * 390 + "def f(): 1\n")),
    "txt: empty lines": ("a.txt", with_start("a", "\n \t\r\n")),
    "txt: one word": ("a.txt", repeated("a")),
    "txt: one line": ("a.txt", repeated("a ")),
    "txt: brackets": ("a.txt", with_start(".", ")")),
    "txt: joined names": ("a.txt", repeated("aB.cD->eF/gH:")),
    "txt: Chinese": ("a.txt", repeated("\u6f22\u5b57")),
    "txt: combining characters": ("a.txt", with_start("a", "\u0301")),
    "txt: one wide character": ("a.txt", with_start("\U0001f60b", "ab ")),
    "txt: UTF-16": ("a.txt", lambda size: ("a " * (size // 2)).encode("utf-16")),
    "txt: NUL at the end": ("a.txt", lambda size: b"a " * (size // 2) + b"\0"),
}
