"""A docx's paragraphs, tables and headings: a zip of XML, streamed through expat.

python-docx would not do: it leaves out tracked insertions, content controls, text boxes and notes,
and builds every part of the file as a tree. An archive that would unpack to too much is refused
before it is unpacked, and so is XML with a document type declaration (entities), which Word never
writes. Pictures, comments and deleted text are left out; notes come last.
"""

from __future__ import annotations

import io
import posixpath
import re
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field
from xml.parsers import expat

from index.documents.formats.blocks import Block, ParsedDocument, join_blocks

MAX_ENTRIES = 10_000  # files in the archive
MAX_ENTRY_BYTES = 256 << 20  # bytes of one file, unpacked
MAX_COMPRESSION_RATIO = 400  # bytes unpacked per byte packed; for files over a MiB
READ_BYTES = 1 << 16
NAMESPACES = (
    "http://schemas.openxmlformats.org/wordprocessingml/2006/main ",
    "http://purl.oclc.org/ooxml/wordprocessingml/main ",
)
DEFAULT_MAIN = "word/document.xml"
NOTES = ("footnotes.xml", "endnotes.xml")
HEADING_STYLE = re.compile(r"heading (\d)$", re.IGNORECASE)
SKIPPED = ("moveFrom", "Fallback", "instrText", "delText")
CHARACTERS = {"tab": "\t", "br": "\n", "cr": "\n", "noBreakHyphen": "-"}

Attributes = dict[str, str]


def read(data: bytes, max_chars: int) -> ParsedDocument:
    """Text and headings. Raises ValueError with a remedy, or an error of zipfile or expat."""
    archive = zipfile.ZipFile(io.BytesIO(data))
    _check_size(archive)
    main = _main_part(archive)
    folder, names = posixpath.dirname(main), set(archive.namelist())
    styles = _Styles()
    if (path := posixpath.join(folder, "styles.xml")) in names:
        _parse_xml(archive, path, styles.start)
    body = _Body(styles, max_chars)
    for path in (main, *(posixpath.join(folder, name) for name in NOTES)):
        if path in names:
            _parse_xml(archive, path, body.start, body.end, body.text)
    return join_blocks(body.blocks)


def _check_size(archive: zipfile.ZipFile) -> None:
    """Raise ValueError where unpacking the archive could do harm, or needs a password."""
    entries = archive.infolist()
    if len(entries) > MAX_ENTRIES:
        raise ValueError(f"an archive of {len(entries)} files, over {MAX_ENTRIES}; save it again")
    for entry in entries:
        size, ratio = entry.file_size, entry.file_size / max(entry.compress_size, 1)
        if size > MAX_ENTRY_BYTES or (size > 1 << 20 and ratio > MAX_COMPRESSION_RATIO):
            raise ValueError(f"unpacks to {size >> 20} MiB, perhaps a zip bomb; save it again")
        if entry.flag_bits & 1:
            raise ValueError("needs a password; save it without one")


def _main_part(archive: zipfile.ZipFile) -> str:
    """Return the path of the document's body, which the archive's relationships name."""
    targets: list[str] = []

    def start(tag: str, attributes: Attributes) -> None:
        if attributes.get("Type", "").endswith("/officeDocument"):
            targets.append(attributes.get("Target", "").lstrip("/"))

    if "_rels/.rels" in archive.namelist():
        _parse_xml(archive, "_rels/.rels", start)
    path = next((each for each in [*targets, DEFAULT_MAIN] if each in archive.namelist()), None)
    if path is None:
        raise ValueError("not a docx file; give it the suffix of its real format")
    return path


def _parse_xml(
    archive: zipfile.ZipFile,
    path: str,
    start: Callable[[str, Attributes], None],
    end: Callable[[str], None] | None = None,
    text: Callable[[str], None] | None = None,
) -> None:
    """Pass one file's elements and text to callbacks. zipfile enforces the entry's stated size."""

    def refuse(*_: object) -> None:
        raise ValueError("its XML declares a document type; save it again")

    parser = expat.ParserCreate(namespace_separator=" ")
    parser.buffer_text = True
    parser.StartDoctypeDeclHandler = refuse
    parser.StartElementHandler = start
    parser.EndElementHandler = end
    parser.CharacterDataHandler = text
    with archive.open(path) as file:
        while piece := file.read(READ_BYTES):
            parser.Parse(piece)
        parser.Parse(b"", True)


def _local_name(tag: str) -> str:
    """Return the name of a WordprocessingML element or attribute.

    It is "" for other namespaces.
    """
    for namespace in NAMESPACES:
        if tag.startswith(namespace):
            return tag[len(namespace) :]
    return "Fallback" if tag.endswith(" Fallback") else ""


def _attribute(attributes: Attributes, name: str = "val") -> str:
    return next((value for key, value in attributes.items() if _local_name(key) == name), "")


class _Styles:
    """The heading levels of paragraph styles, and which of them number or bullet paragraphs."""

    def __init__(self) -> None:
        self._style = ""  # the one being parsed
        self._levels: dict[str, int] = {}
        self._in_list: dict[str, int] = {}
        self._parents: dict[str, str] = {}

    def start(self, tag: str, attributes: Attributes) -> None:
        name, value = _local_name(tag), _attribute(attributes)
        if name == "style":
            self._style = _attribute(attributes, "styleId")
        elif name == "name":
            if heading := HEADING_STYLE.match(value):
                self._levels[self._style] = int(heading[1]) + 1
            elif value.lower() == "title":
                self._levels[self._style] = 1
        elif name == "basedOn":
            self._parents[self._style] = value
        elif name == "outlineLvl":
            self._levels.setdefault(self._style, _outline_level(value))
        elif name == "numPr":
            self._in_list[self._style] = 1

    def level(self, style: str) -> int:
        """Return the heading level of a style; 0 for body text."""
        return self._inherited(self._levels, style)

    def in_list(self, style: str) -> bool:
        return bool(self._inherited(self._in_list, style))

    def _inherited(self, values: dict[str, int], style: str) -> int:
        """Return the value of a style, or of the nearest style that it is based on."""
        seen = {""}
        while style not in values and style not in seen:
            seen.add(style)
            style = self._parents.get(style, "")
        return values.get(style, 0)


def _outline_level(value: str) -> int:
    """Return the heading level of an outline level; 0 for body text, which is outline level 9."""
    return int(value) + 2 if value in tuple("012345678") else 0


@dataclass
class _Paragraph:
    pieces: list[str] = field(default_factory=list)
    level: int = 0
    in_list: bool = False


class _Body:
    """Collects paragraphs and table rows in order."""

    def __init__(self, styles: _Styles, max_chars: int) -> None:
        self.blocks: list[Block] = []
        self._styles = styles
        self._chars_left = max_chars
        self._open: list[_Paragraph] = []  # nested: a text box holds paragraphs inside one
        self._rows: list[list[list[str]]] = []  # open rows: cells: paragraphs
        self._skipping = 0  # depth inside a skipped element
        self._in_text = False

    def start(self, tag: str, attributes: Attributes) -> None:
        name = _local_name(tag)
        if self._skipping or name in SKIPPED:
            self._skipping += 1
        elif name == "p":
            self._open.append(_Paragraph())
        elif name == "t":
            self._in_text = True
        elif name == "tr":
            self._rows.append([])
        elif name == "tc" and self._rows:
            self._rows[-1].append([])
        elif self._open:
            self._start_in_paragraph(self._open[-1], name, _attribute(attributes))

    def _start_in_paragraph(self, paragraph: _Paragraph, name: str, value: str) -> None:
        """Take a paragraph's properties, and elements that are one character."""
        if name == "pStyle":
            paragraph.level = self._styles.level(value)
            paragraph.in_list = self._styles.in_list(value)
        elif name == "outlineLvl":
            paragraph.level = _outline_level(value)
        elif name == "numPr":
            paragraph.in_list = True
        elif name in CHARACTERS and not (name == "tab" and value):  # a tab with a value is a stop
            paragraph.pieces.append(CHARACTERS[name])

    def text(self, text: str) -> None:
        if self._in_text and self._open and not self._skipping:
            self._chars_left -= len(text)
            if self._chars_left < 0:
                raise ValueError("contains too much text; split it")
            self._open[-1].pieces.append(text)

    def end(self, tag: str) -> None:
        name = _local_name(tag)
        if self._skipping:
            self._skipping -= 1
        elif name == "t":
            self._in_text = False
        elif name == "p" and self._open:
            self._end_paragraph(self._open.pop())
        elif name == "tr" and self._rows:
            cells = [" ".join(cell) for cell in self._rows.pop()]
            self._add(" | ".join(cells) if any(cells) else "", 0, True)

    def _end_paragraph(self, paragraph: _Paragraph) -> None:
        text = "".join(paragraph.pieces)
        if paragraph.in_list and not paragraph.level and text.strip():
            text = "- " + text.strip()
        self._add(text, paragraph.level, paragraph.in_list)

    def _add(self, text: str, level: int, tight: bool) -> None:
        """Add a block, or a part of the open table cell."""
        if self._rows:
            if self._rows[-1] and text.strip():
                self._rows[-1][-1].append(text.strip())
        else:
            self.blocks.append(Block(text, level, tight))
