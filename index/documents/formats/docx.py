"""A docx's paragraphs, tables and headings: a zip of XML, read by the standard library.

An archive that would unpack to too much is refused before it is unpacked, and XML that declares
anything of its own (a document type: entities) is refused too: Word writes none. Pictures, comments
and text that was deleted are left out; notes come last. Only child.py and tests import this.
"""

from __future__ import annotations

import io
import posixpath
import re
import zipfile
from collections.abc import Callable
from xml.parsers import expat

from index.documents.formats.blocks import Block, Read, joined

ENTRIES = 10_000  # files in the archive
UNPACKED = 256 << 20  # bytes of one of them
RATIO = 400  # unpacked to packed, of one over a MiB
PIECE = 1 << 16
NAMESPACES = (
    "http://schemas.openxmlformats.org/wordprocessingml/2006/main ",
    "http://purl.oclc.org/ooxml/wordprocessingml/main ",
)
MAIN = "word/document.xml"
NOTES = ("footnotes.xml", "endnotes.xml")
HEADING = re.compile(r"heading (\d)$", re.IGNORECASE)
LEFT_OUT = ("moveFrom", "Fallback", "instrText", "delText")
BREAKS = {"tab": "\t", "br": "\n", "cr": "\n", "noBreakHyphen": "-"}

Attributes = dict[str, str]


def read(data: bytes, longest: int) -> Read:
    """Text, no pages, headings. ValueError with a remedy, or an error of zip or XML."""
    archive = zipfile.ZipFile(io.BytesIO(data))
    _check(archive)
    main = _main(archive)
    folder, names = posixpath.dirname(main), set(archive.namelist())
    styles = _Styles()
    if (path := posixpath.join(folder, "styles.xml")) in names:
        _walk(archive, path, styles.start)
    body = _Body(styles, longest)
    for path in (main, *(posixpath.join(folder, name) for name in NOTES)):
        if path in names:
            _walk(archive, path, body.start, body.end, body.text)
    return joined(body.blocks)


def _check(archive: zipfile.ZipFile) -> None:
    """Whether it can be unpacked without harm."""
    entries = archive.infolist()
    if len(entries) > ENTRIES:
        raise ValueError(f"an archive of {len(entries)} files, at most {ENTRIES}; save it anew")
    for entry in entries:
        ratio = entry.file_size / max(entry.compress_size, 1)
        if entry.file_size > UNPACKED or (entry.file_size > 1 << 20 and ratio > RATIO):
            raise ValueError(f"unpacks to {entry.file_size >> 20} MiB: a zip bomb?; save it anew")
        if entry.flag_bits & 1:
            raise ValueError("needs a password; save it without one")


def _main(archive: zipfile.ZipFile) -> str:
    """The path of the text itself, which the archive's relations name."""
    found: list[str] = []

    def start(tag: str, attributes: Attributes) -> None:
        if attributes.get("Type", "").endswith("/officeDocument"):
            found.append(attributes.get("Target", "").lstrip("/"))

    if "_rels/.rels" in archive.namelist():
        _walk(archive, "_rels/.rels", start)
    path = next((each for each in [*found, MAIN] if each in archive.namelist()), None)
    if path is None:
        raise ValueError("not a docx inside; give it the ending of what it is")
    return path


def _walk(
    archive: zipfile.ZipFile,
    path: str,
    start: Callable[[str, Attributes], None],
    end: Callable[[str], None] | None = None,
    text: Callable[[str], None] | None = None,
) -> None:
    """Tell the elements and texts of one XML file. The size that the archive states is kept to."""

    def refuse(*_: object) -> None:
        raise ValueError("its XML declares a document type; save it anew")

    parser = expat.ParserCreate(namespace_separator=" ")
    parser.buffer_text = True
    parser.StartDoctypeDeclHandler = refuse
    parser.StartElementHandler = start
    parser.EndElementHandler = end
    parser.CharacterDataHandler = text
    with archive.open(path) as file:
        while piece := file.read(PIECE):
            parser.Parse(piece)
        parser.Parse(b"", True)


def _word(tag: str) -> str:
    """The name of one of Word's own elements or attributes."""
    for namespace in NAMESPACES:
        if tag.startswith(namespace):
            return tag[len(namespace) :]
    return "Fallback" if tag.endswith(" Fallback") else ""


def _value(attributes: Attributes, name: str = "val") -> str:
    return next((value for key, value in attributes.items() if _word(key) == name), "")


class _Styles:
    """Which styles are headings, and how deep."""

    def __init__(self) -> None:
        self._style = ""
        self._level: dict[str, int] = {}
        self._listed: dict[str, int] = {}
        self._parent: dict[str, str] = {}

    def start(self, tag: str, attributes: Attributes) -> None:
        name = _word(tag)
        if name == "style":
            self._style = _value(attributes, "styleId")
        elif name == "name":
            value = _value(attributes)
            heading = HEADING.match(value)
            if heading:
                self._level[self._style] = int(heading[1]) + 1
            elif value.lower() == "title":
                self._level[self._style] = 1
        elif name == "basedOn":
            self._parent[self._style] = _value(attributes)
        elif name == "outlineLvl":
            self._level.setdefault(self._style, _outline_level(attributes))
        elif name == "numPr":
            self._listed[self._style] = 1

    def level(self, style: str) -> int:
        """How deep a heading it is; 0: none."""
        return self._inherited(self._level, style)

    def listed(self, style: str) -> bool:
        """Whether it is for what is in a list."""
        return bool(self._inherited(self._listed, style))

    def _inherited(self, known: dict[str, int], style: str) -> int:
        """What is known of a style, or of the one that it is based on."""
        seen = {""}
        while style not in known and style not in seen:
            seen.add(style)
            style = self._parent.get(style, "")
        return known.get(style, 0)


def _outline_level(attributes: Attributes) -> int:
    """0 for body text, which Word calls 9."""
    value = _value(attributes)
    return int(value) + 2 if value in tuple("012345678") else 0


class _Paragraph:
    def __init__(self) -> None:
        self.pieces: list[str] = []
        self.level = 0
        self.listed = False


class _Body:
    """Paragraphs and rows of tables, in order."""

    def __init__(self, styles: _Styles, longest: int) -> None:
        self.blocks: list[Block] = []
        self._styles = styles
        self._left = longest  # characters that may still come
        self._open: list[_Paragraph] = []  # a text box is a paragraph inside one
        self._rows: list[list[list[str]]] = []  # open rows: their cells: their paragraphs
        self._silent = 0  # elements open whose text is left out
        self._writing = False

    def start(self, tag: str, attributes: Attributes) -> None:
        name = _word(tag)
        if self._silent or name in LEFT_OUT:
            self._silent += 1
        elif name == "p":
            self._open.append(_Paragraph())
        elif name == "t":
            self._writing = True
        elif name == "tr":
            self._rows.append([])
        elif name == "tc" and self._rows:
            self._rows[-1].append([])
        elif self._open:
            self._inside(name, attributes)

    def _inside(self, name: str, attributes: Attributes) -> None:
        """What a paragraph says of itself, and what is a character."""
        paragraph = self._open[-1]
        if name == "pStyle":
            paragraph.level = self._styles.level(_value(attributes))
            paragraph.listed = self._styles.listed(_value(attributes))
        elif name == "outlineLvl":
            paragraph.level = _outline_level(attributes)
        elif name == "numPr":
            paragraph.listed = True
        elif name in BREAKS and not (name == "tab" and _value(attributes)):  # that is a tab stop
            paragraph.pieces.append(BREAKS[name])

    def text(self, text: str) -> None:
        if self._writing and self._open and not self._silent:
            self._left -= len(text)
            if self._left < 0:
                raise ValueError("holds too much text; split it")
            self._open[-1].pieces.append(text)

    def end(self, tag: str) -> None:
        name = _word(tag)
        if self._silent:
            self._silent -= 1
        elif name == "t":
            self._writing = False
        elif name == "p" and self._open:
            self._put(self._open.pop())
        elif name == "tr" and self._rows:
            cells = [" ".join(cell) for cell in self._rows.pop()]
            self._line(" | ".join(cells) if any(cells) else "", 0, True)

    def _put(self, paragraph: _Paragraph) -> None:
        text = "".join(paragraph.pieces)
        if paragraph.listed and not paragraph.level and text.strip():
            text = "- " + text.strip()
        self._line(text, paragraph.level, paragraph.listed)

    def _line(self, text: str, level: int, tight: bool) -> None:
        """A block of its own, or part of the cell that is open."""
        if self._rows:
            if self._rows[-1] and text.strip():
                self._rows[-1][-1].append(text.strip())
        else:
            self.blocks.append(Block(text, level, tight))
