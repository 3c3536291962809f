"""Damaged, locked, mislabelled and hostile files: one clear line, and nothing is stored."""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from index.documents.documents import DocumentError, Documents
from index.documents.formats import (
    ParsedDocument,
    html,
    mail,
    office,
    parser,
    sandbox,
    separated_values,
    word,
)
from tests.support.sample_documents import (
    archive,
    docx,
    parse,
    pdf,
    pdf_of,
    pdf_of_forms,
    raw_pdf,
    stream,
    word_xml,
)


@pytest.fixture
def documents() -> Iterator[Documents]:
    """A library that must end with the document that it starts with."""
    with Documents() as opened:
        before = opened.add_data("before.md", b"words that were stored before")
        yield opened
        assert opened.list() == [before]
        assert len(opened.search("words text page a", 99)) == 1


def refusal(documents: Documents, name: str, data: bytes) -> str:
    """The error message: one line with the file's name and a remedy."""
    with pytest.raises(DocumentError) as caught:
        documents.add_data(name, data)
    message = str(caught.value)
    assert re.fullmatch(re.escape(name) + r": [^\n]+; [^\n]+", message), message
    return message


def xml_bomb() -> bytes:
    entities = '<!ENTITY a "text">' + "".join(
        f'<!ENTITY {chr(98 + n)} "{f"&{chr(97 + n)};" * 10}">' for n in range(9)
    )
    return word_xml("<w:p><w:r><w:t>&j;</w:t></w:r></w:p>", f"<!DOCTYPE d [{entities}]>")


def lying_zip() -> bytes:
    """An entry that unpacks to more than it states."""
    data = bytearray(archive({"word/document.xml": word_xml("<w:p/>" * 9) + b" " * (1 << 20)}))
    for mark, at in ((b"PK\x03\x04", 22), (b"PK\x01\x02", 24)):
        struct.pack_into("<I", data, data.index(mark) + at, 1000)
    return bytes(data)


def locked_zip() -> bytes:
    """An entry marked as encrypted."""
    data = bytearray(archive({"word/document.xml": word_xml("<w:p/>")}))
    data[data.index(b"PK\x01\x02") + 8] |= 1
    return bytes(data)


OLD_OFFICE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(512)
PAGE_LOOP = [
    b"<< /Type /Catalog /Pages 2 0 R >>",
    b"<< /Type /Pages /Kids [2 0 R 2 0 R] /Count 2 >>",
    stream(b""),
]
DAMAGED = r"^a\.\w+: damaged; save it again$"  # without the words of the library that read it
FAULTS: dict[str, tuple[str, Callable[[], bytes], str]] = {
    "empty": ("a.md", lambda: b"", "contains no text"),
    "blank": ("a.txt", lambda: b" \n\t\n", "contains no text"),
    "nul": ("a.txt", lambda: b"text\0more", "binary file"),
    "not utf-8": ("a.md", lambda: "文字列".encode("cp932"), "not UTF-8"),
    "half of utf-16": ("a.txt", lambda: b"\xff\xfea\0b", "not UTF-8"),
    "picture": ("a.png", lambda: b"\x89PNG\r\n\x1a\n\0\0", "a binary file; pdf, docx"),
    "pdf as text": ("a.txt", lambda: pdf(["text"]), r"rename it to end in \.pdf"),
    "zip as text": ("a.pages", lambda: archive({"a": b"text"}), "a zip archive"),
    "zip as xlsx": ("a.xlsx", lambda: archive({"a": b"text"}), DAMAGED),
    "old office": ("a.doc", lambda: OLD_OFFICE, DAMAGED),
    "old office as text": ("a.wps", lambda: OLD_OFFICE, "or encrypted"),
    "docx with a password": ("a.docx", lambda: OLD_OFFICE, "needs a password"),
    "text as pdf": ("a.pdf", lambda: b"text", "not a pdf file"),
    "docx as pdf": ("a.pdf", lambda: docx(["text"]), "not a pdf file"),
    "text as docx": ("a.docx", lambda: b"text", "not a docx file"),
    "zip as docx": ("a.docx", lambda: archive({"a": b"text"}), "not a docx file"),
    "binary as html": ("a.html", lambda: b"<p>\0\0", "binary file"),
    "pdf with a password": ("a.pdf", lambda: pdf(["text"], password="x"), "needs a password"),
    "half a pdf": ("a.pdf", lambda: pdf(["text"])[:300], DAMAGED),
    "pdf without text": ("a.pdf", lambda: pdf(["", ""]), "contains no text; remove it"),
    "pdf whose page tree is a cycle": ("a.pdf", lambda: raw_pdf(PAGE_LOOP), f"{DAMAGED}|no text"),
    "half a docx": ("a.docx", lambda: docx(["text"])[:-400], DAMAGED),
    "docx without text": ("a.docx", lambda: docx([]), "contains no text"),
    "docx of broken xml": ("a.docx", lambda: archive({"word/document.xml": b"<a"}), DAMAGED),
    "docx with entities": (
        "a.docx", lambda: archive({"word/document.xml": xml_bomb()}), "declares a document type",
    ),
    "docx with a wrong size": ("a.docx", lying_zip, DAMAGED),
    "docx marked as encrypted": ("a.docx", locked_zip, "needs a password"),
    "html without text": ("a.html", lambda: b"<script>text</script>", "contains no text"),
}  # fmt: skip


@pytest.mark.parametrize("what", FAULTS)
def test_a_bad_file_is_refused_in_one_line(documents: Documents, what: str) -> None:
    name, make, message = FAULTS[what]
    assert re.search(message, refusal(documents, name, make()))


def test_a_missing_library_is_no_damage(monkeypatch: pytest.MonkeyPatch) -> None:
    def parse(*_: object) -> ParsedDocument:
        raise ModuleNotFoundError("No module named 'expat'", name="expat")

    monkeypatch.setattr(sandbox, "_parse", parse)
    reply, _ = sandbox._reply("docx", b"text", 99, 9)
    assert reply["error"] == "needs expat; pip install 'draftline[page]'"


def test_a_large_file_is_refused(documents: Documents, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parser, "MAX_FILE_BYTES", 1 << 20)
    assert "over 1 MiB" in refusal(documents, "a.txt", b"a" * ((1 << 20) + 1))


def test_an_archive_that_unpacks_to_too_much_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(word, "MAX_UNPACKED_BYTES", 1 << 20)
    bomb = archive({"word/document.xml": word_xml(""), "b": bytes(2 << 20)})
    with pytest.raises(ValueError, match="unpacks to 2 MiB, perhaps a zip bomb; save it again"):
        word.complete(bomb)


def test_parsing_stops_at_the_timeout(
    documents: Documents, monkeypatch: pytest.MonkeyPatch
) -> None:
    """12 ** 12 nested forms on one page never come to an end."""
    monkeypatch.setattr(parser, "TIMEOUT_S", 0.5)
    assert "not parsed within" in refusal(documents, "a.pdf", pdf_of_forms(12, 12))


def test_a_file_may_be_large_and_odd(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parser, "TIMEOUT_S", 300.0)  # however slow the machine is
    words = b"BT /F 9 Tf 9 9 Td (word) Tj ET\n"
    huge = pdf_of(words + words.replace(b"9 9", b"9 50"), b"[0 0 99999999 99999999]")
    assert parse("a.pdf", huge).text.count("word") == 2
    assert parse("a.pdf", pdf_of(b"0 0 m " * 200_000 + words)).text == "word", "200 times packed"
    assert parse("a.html", b"<div>" * 1000 + b"text").text == "text"
    deep = "<w:sdt><w:sdtContent>" * 100
    body = f"{deep}<w:p><w:r><w:t>text</w:t></w:r></w:p>" + "</w:sdtContent></w:sdt>" * 100
    assert parse("a.docx", archive({"word/document.xml": word_xml(body)})).text == "text"


@pytest.mark.parametrize("name", ["a.pdf", "a.docx", "a.html", "a.md", "a.txt"])
def test_too_little_memory_is_no_crash(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """However the process that parses ends; the texts are larger than what is free there."""
    made = {"a.pdf": pdf(["a"]), "a.docx": docx(["a"])}
    text = b"a b c d\n\n" * 100_000
    monkeypatch.setattr(parser, "MAX_MEMORY_BYTES", 16 << 20)
    with Documents() as documents:
        assert re.search("memory|failed|damaged", refusal(documents, name, made.get(name, text)))
        assert not documents.list()


def test_too_much_text_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parser, "MAX_TEXT_BYTES", 10_000)
    long = " ".join(map(str, range(3000)))
    made = {"a.txt": long.encode(), "a.html": long.encode(), "a.docx": docx([long])}
    lines = "\n".join(long[at : at + 100] for at in range(0, 10_000, 100))
    made["a.pdf"] = pdf([lines] * 2)
    for name, data in made.items():
        with pytest.raises(DocumentError, match=f"{name}: .*; split it"):
            parse(name, data)


@pytest.mark.parametrize(
    "name",
    ["", " ", "..", "../a.md", "a/../../b.md", "..\\a.md", "a\0.md", "a\n.md", "a" * 300, "\ud800"],
)
def test_a_bad_name_is_refused(documents: Documents, tmp_path: Path, name: str) -> None:
    file = tmp_path / "fine.md"
    file.write_text("text")
    for add in (lambda: documents.add_data(name, b"text"), lambda: documents.add(file, name)):
        with pytest.raises(DocumentError) as caught:
            add()
        assert "not a valid document name; use one" in str(caught.value)
        assert str(caught.value).isprintable()


def test_only_regular_files_are_read(documents: Documents, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.md")
    (tmp_path / "folder.md").mkdir()
    (tmp_path / "loop.md").symlink_to("loop.md")
    for name in ("pipe.md", "folder.md", "loop.md", "none.md", "a\0/b.md"):
        with pytest.raises(DocumentError, match=r"^(pipe|folder|loop|none|b)\.md: [^\n]+; [^\n]+$"):
            documents.add(tmp_path / name)


def test_a_bad_file_does_not_stop_the_others(tmp_path: Path) -> None:
    with Documents() as documents:
        for name, data in (("a.md", b"one"), ("b.pdf", b"two"), ("c.md", b"three")):
            (tmp_path / name).write_bytes(data)
            if name == "b.pdf":
                with pytest.raises(DocumentError):
                    documents.add(tmp_path / name)
            else:
                documents.add(tmp_path / name)
        assert [each.name for each in documents.list()] == ["a.md", "c.md"]


# -- fuzzing --------------------------------------------------------------------------------------

READERS = {
    "docx": lambda data: office.read("docx", data),
    "csv": lambda data: separated_values.read(data.decode("latin-1")),
    "page": lambda data: html.complete(data.decode("latin-1")),
    "mail": mail.page,
}
GOOD = {
    "pdf": pdf(["# Title\nsome text", "more of it"], [("Title", 0, 0)]),
    "docx": docx(["# Title", "some text", [["a", "b"]]]),
    "csv": b'# by X\nsep=;\na;"b\nc"\n1;2\n',
    "page": b"<table><tr><td rowspan=2>a<td colspan=3>b<tr><td><select><option>x</table><img>",
    "mail": b"Subject: =?utf-8?q?a?=\nContent-Type: multipart/mixed; boundary=m\n\n--m\n\na\n--m\n"
    b"Content-Type: message/rfc822\n\nContent-Type: text/html; charset=x\n\n<p>a</p>\n--m--\n",
    "html": b"<h1>Title</h1><p>some text<table><tr><td>a<td>b</table><pre>x</pre>",
}


CHANGES = st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.binary(max_size=9)), max_size=6)


def damaged(kind: str, changes: list[tuple[float, bytes]]) -> bytes:
    data = bytearray(GOOD[kind])
    for place, new in changes:
        at = int(place * len(data))
        data[at : at + len(new)] = new
    return bytes(data)


@settings(max_examples=60)
@given(kind=st.sampled_from(sorted(READERS)), changes=CHANGES)
def test_a_damaged_file_gives_no_error_of_ours(
    kind: str, changes: list[tuple[float, bytes]]
) -> None:
    """Read in this process."""
    try:
        READERS[kind](damaged(kind, changes))
    except Exception as error:
        assert not isinstance(error, (IndexError, TypeError, AttributeError)), "a bug of ours"


@settings(max_examples=20)
@given(kind=st.sampled_from(["pdf", "docx", "html"]), changes=CHANGES)
def test_a_damaged_file_gives_text_or_an_expected_error(
    kind: str, changes: list[tuple[float, bytes]]
) -> None:
    try:
        text, pages, headings = parse(f"a.{kind}", damaged(kind, changes))
    except DocumentError as error:
        assert "failed" not in str(error), "it crashed"
        return
    assert text.encode().decode() == text and "\0" not in text
    assert all(0 <= start <= stop <= len(text) for start, stop in pages)
    assert all(0 <= heading.start <= len(text) for heading in headings)
