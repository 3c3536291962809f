"""Documents for tests: ordinary ones written by libraries, hostile ones written by hand."""

from __future__ import annotations

import io
import random
import re
import zipfile
import zlib
from collections.abc import Iterable, Sequence
from contextlib import suppress

import psutil

from index.documents.formats import ParsedDocument
from index.documents.formats.parser import DocumentParser

SYLLABLES = [first + last for first in "bdklm" for last in "aeiou"]
COMMON = re.findall(
    r"\w+", "the of and a to in is that it was for on are with as his they be at one have this"
)
LARGE, SMALL = 18, 9  # points


def parse(name: str, data: bytes) -> ParsedDocument:
    """The text of one file, by a parser of its own. Raises DocumentError."""
    with DocumentParser() as parser:
        return parser.parse(name, data)


def rare_word(source: random.Random) -> str:
    return "".join(source.choices(SYLLABLES, k=5))


def sentence(source: random.Random, rare: int = 3) -> str:
    """Common words, a few that likely occur nowhere else, and a full stop."""
    words = [*source.choices(COMMON, k=9), *(rare_word(source) for _ in range(rare))]
    source.shuffle(words)
    return " ".join(words).capitalize() + "."


def prose(source: random.Random, sentences: int, each: int = 5) -> str:
    """Paragraphs of `each` sentences."""
    made = [sentence(source) for _ in range(sentences)]
    return "\n\n".join(" ".join(made[at : at + each]) for at in range(0, sentences, each))


def texts(count: int, sentences: int = 30, seed: int = 0) -> list[str]:
    """Different texts, the same in every run."""
    return [prose(random.Random((seed << 16) + n), sentences) for n in range(count)]


def pdf(
    pages: Sequence[str], outline: Sequence[tuple[str, int, int]] = (), password: str = ""
) -> bytes:
    """One page per text; lines that start with "# " are in a large font. `outline`: (title, level
    from 0, page from 0)."""
    from reportlab.pdfgen.canvas import Canvas

    out = io.BytesIO()
    canvas = Canvas(out, encrypt=password or None)
    for number, page in enumerate(pages):
        for title, level, at in outline:
            if at == number:
                canvas.bookmarkPage(title)
                canvas.addOutlineEntry(title, title, level)
        height = 800.0
        for line in page.split("\n"):
            large = line.startswith("# ")
            height -= LARGE if large else 0
            canvas.setFont("Helvetica", LARGE if large else SMALL)
            canvas.drawString(40, height, line.removeprefix("# "))
            height -= 1.2 * (LARGE if large else SMALL)
        canvas.showPage()
    canvas.save()
    return out.getvalue()


def raw_pdf(objects: Sequence[bytes]) -> bytes:
    """A pdf of objects numbered from 1; the first is the catalog."""
    out, places = bytearray(b"%PDF-1.7\n"), []
    for number, body in enumerate(objects, start=1):
        places.append(len(out))
        out += b"%d 0 obj\n%s\nendobj\n" % (number, body)
    table = len(out)
    out += b"xref\n0 %d\n0000000000 65535 f \n" % (len(places) + 1)
    for place in places:
        out += b"%010d 00000 n \n" % place
    out += b"trailer << /Size %d /Root 1 0 R >>\n" % (len(places) + 1)
    return bytes(out + b"startxref\n%d\n%%%%EOF\n" % table)


def stream(data: bytes, more: bytes = b"", packed: bool = False) -> bytes:
    """A pdf's stream object."""
    if packed:
        data, more = zlib.compress(data, 9), more + b" /Filter /FlateDecode"
    return b"<< /Length %d%s >>\nstream\n%s\nendstream" % (len(data), more, data)


def pdf_of_forms(depth: int, times: int) -> bytes:
    """A page of nested forms, each drawing the next `times` times: times ** depth words."""
    font = b"/Font << /F << /Type /Font /Subtype /Type1 /BaseFont /Helvetica >> >>"
    first = 4
    forms = []
    for level in range(depth):
        last = level == depth - 1
        inner = b"" if last else b"/XObject << /X %d 0 R >>" % (first + level + 1)
        drawn = b"BT /F 9 Tf 9 9 Td (word) Tj ET " if last else b"/X Do " * times
        head = b" /Type /XObject /Subtype /Form /BBox [0 0 99 99] /Resources << %s %s >>"
        forms.append(stream(drawn, head % (font, inner)))
    return raw_pdf(
        [
            b"<< /Type /Catalog /Pages 2 0 R >>",
            b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
            b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 99 99] /Contents %d 0 R"
            b" /Resources << %s /XObject << /X %d 0 R >> >> >>" % (first + depth, font, first),
            *forms,
            stream(b"/X Do"),
        ]
    )


def pdf_of(content: bytes, box: bytes = b"[0 0 99 99]") -> bytes:
    """One page with compressed content."""
    font = b"/Font << /F << /Type /Font /Subtype /Type1 /BaseFont /Helvetica >> >>"
    return raw_pdf(
        [
            b"<< /Type /Catalog /Pages 2 0 R >>",
            b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
            b"<< /Type /Page /Parent 2 0 R /MediaBox %s /Contents 4 0 R /Resources << %s >> >>"
            % (box, font),
            stream(content, packed=True),
        ]
    )


def docx(parts: Iterable[str | list[list[str]]]) -> bytes:
    """Paragraphs, headings ("# ", "## "), list items ("- ") and tables (lists of rows)."""
    import docx

    document = docx.Document()
    for part in parts:
        if isinstance(part, list):
            table = document.add_table(rows=len(part), cols=len(part[0]))
            for row, texts in zip(table.rows, part, strict=True):
                for cell, text in zip(row.cells, texts, strict=True):
                    cell.text = text
        elif part.startswith("#"):
            marks, _, title = part.partition(" ")
            document.add_heading(title, len(marks))
        elif part.startswith("- "):
            document.add_paragraph(part[2:], style="List Bullet")
        else:
            document.add_paragraph(part)
    out = io.BytesIO()
    document.save(out)
    return out.getvalue()


def archive(files: dict[str, bytes]) -> bytes:
    """A zip."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as made:
        for name, data in files.items():
            made.writestr(name, data)
    return out.getvalue()


def word_xml(body: str, before: str = "") -> bytes:
    """The content of word/document.xml."""
    space = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
    compatible = "http://schemas.openxmlformats.org/markup-compatibility/2006"
    head = f'<?xml version="1.0" encoding="UTF-8"?>{before}<w:document xmlns:w="{space}"'
    return f'{head} xmlns:mc="{compatible}"><w:body>{body}</w:body></w:document>'.encode()


def parsing_processes() -> set[int]:
    """The parsing processes of this process."""
    found = set()
    for each in psutil.Process().children():
        with suppress(psutil.NoSuchProcess):  # it is one that has just ended
            if "sandbox.py" in " ".join(each.cmdline()):
                found.add(each.pid)
    return found
