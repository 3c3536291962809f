"""Rewrites a docx so that anydoc reads what it would leave out.

These are headers and footers, signs of symbol fonts, words with their reading above, Word's older
check boxes and lists, and the text of merged cells in each column and row. Hidden text is removed.
"""

from __future__ import annotations

import io
import re
import zipfile
from copy import deepcopy
from xml.etree import ElementTree as xml

MAX_COLUMNS = 63  # of a table in Word
CODE = re.compile("[0-9A-Fa-f]{1,4}")  # of a sign
MAX_UNPACKED_BYTES = 256 << 20
MAIN = re.compile(r"(?:.*/)?document\d*\.xml")
MARGIN = re.compile(r"(?:.*/)?(header|footer)\d*\.xml")
# The signs that fonts show for codes of the private use area, from U+F000.
SYMBOL = dict(
    zip(
        b"\xb0\xb1\xa3\xb3\xb4\xb8\xb9\xbb\xa5\xb7\xae\xac\xad\xafabgdlmpstSDWwqfr",
        "°±≤≥×÷≠≈∞•→←↑↓αβγδλμπστΣΔΩωθφρ",
        strict=True,
    )
)
WINGDINGS = dict(zip(b"\xfe\xfd\xa8o\xfc\xfb\xe0", "☑☒☐☐✓✗→", strict=True))


def complete(data: bytes) -> bytes:
    """Return a docx with its left-out parts in the body. Raises ValueError or an error of XML."""
    archive = zipfile.ZipFile(io.BytesIO(data))
    size = sum(entry.file_size for entry in archive.infolist())
    if size > MAX_UNPACKED_BYTES:
        raise ValueError(f"unpacks to {size >> 20} MiB, perhaps a zip bomb; save it again")
    if any(entry.flag_bits & 1 for entry in archive.infolist()):
        raise ValueError("needs a password; save it without one")
    parts = {name: archive.read(name) for name in archive.namelist()}
    path = next(filter(MAIN.fullmatch, parts), None)
    if path is None:
        raise ValueError("not a docx file; give it the suffix of its real format")
    root = _parse(parts[path])
    seen = {""}
    for body in root.findall("{*}body"):
        for name in filter(MARGIN.fullmatch, parts):
            margin = _parse(parts[name])
            text = "".join(margin.itertext()).strip()
            place = 0 if "header" in name else len(body) - 1  # before the section's properties
            body[place:place] = list(margin) if text not in seen else []
            seen.add(text)
    for parent in list(root.iter()):
        for child in list(parent):
            if _is_on(child.find("{*}rPr/{*}vanish")):
                parent.remove(child)
            elif text := _text(child):
                child.clear()
                child.tag, child.text = f"{parent.tag.partition('}')[0]}}}t", text
    for table in reversed(root.findall(".//{*}tbl")):  # inner ones first
        _unmerge(table)
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as made:
        for name, part in (parts | {path: xml.tostring(root)}).items():
            made.writestr(name, part)
    return out.getvalue()


def _parse(part: bytes) -> xml.Element:
    """Parse a part, and keep its prefixes for writing it."""
    if b"<!DOCTYPE" in part:  # entities, which Word never writes
        raise ValueError("its XML declares a document type; save it again")
    for _, (prefix, uri) in xml.iterparse(io.BytesIO(part), ["start-ns"]):
        if not re.fullmatch(r"ns\d+", prefix):  # reserved by ElementTree
            xml.register_namespace(prefix, uri)
    return xml.fromstring(part)


def _get(element: xml.Element | None, name: str = "val", default: str = "") -> str:
    attributes = {} if element is None else element.attrib
    return next((attributes[key] for key in attributes if key.endswith(f"}}{name}")), default)


def _number(element: xml.Element | None, default: int = 1) -> int:
    """Return an element's number; the default where it has none, or no number."""
    value = _get(element)
    return int(value) if value.isascii() and value.isdecimal() and len(value) < 10 else default


def _is_on(element: xml.Element | None) -> bool:
    return element is not None and _get(element) not in ("0", "false", "off")


def _text(element: xml.Element) -> str:
    """Return what an element without text of its own shows; "" for others."""
    name = element.tag.rpartition("}")[2]
    if name == "noBreakHyphen":
        return "-"
    if name == "ruby":  # words, and above them how they are read
        words, reading = (
            "".join(part.itertext()) if (part := element.find(f"{{*}}{each}")) is not None else ""
            for each in ("rubyBase", "rt")
        )
        return f"{words}({reading})" if words and reading else words
    if name == "sym":
        if not CODE.fullmatch(digits := _get(element, "char")):
            return "\ufffd"
        code = int(digits, 16)
        signs = SYMBOL if _get(element, "font") == "Symbol" else WINGDINGS
        return signs.get(code & 0xFF, chr(code))
    if (box := element.find("{*}ffData/{*}checkBox")) is not None:
        state = box.find("{*}checked")
        return "☒" if _is_on(box.find("{*}default") if state is None else state) else "☐"
    if (choices := element.find("{*}ffData/{*}ddList")) is not None:
        chosen = _number(choices.find("{*}result"), 0)
        return "".join(_get(each) for each in choices.findall("{*}listEntry")[chosen : chosen + 1])
    return ""


def _unmerge(table: xml.Element) -> None:
    """Give every merged cell the content of the cell that it belongs to."""
    above: list[xml.Element] = []
    for row in table.findall("{*}tr"):
        cells: list[xml.Element] = []
        for cell in row.findall("{*}tc"):
            merge, span = (cell.find(f"{{*}}tcPr/{{*}}{name}") for name in ("vMerge", "gridSpan"))
            goes_on = merge is not None and _get(merge) != "restart" and len(cells) < len(above)
            content = deepcopy(above[len(cells)] if goes_on else cell)
            for properties in content.findall("{*}tcPr"):
                content.remove(properties)
            place = list(row).index(cell)
            wide = max(1, min(_number(span), MAX_COLUMNS - len(cells)))
            row[place : place + 1] = copies = [deepcopy(content) for _ in range(wide)]
            cells += copies
        above = cells
