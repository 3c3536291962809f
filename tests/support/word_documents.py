"""docx files packed from their parts, and the XML of paragraphs and numbering."""

from __future__ import annotations

from tests.support.sample_documents import archive

WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
PACKAGE = "http://schemas.openxmlformats.org/package/2006"
OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
TYPE = "application/vnd.openxmlformats-officedocument.wordprocessingml"
PARTS = {
    "document.xml": "document.main", "styles.xml": "styles", "numbering.xml": "numbering",
    "header1.xml": "header", "footer1.xml": "footer",
}  # fmt: skip


def pack(parts: dict[str, bytes | str]) -> bytes:
    """A docx of parts such as "document.xml"; a str is the content of the part's root."""
    files = {
        f"word/{name}": part if isinstance(part, bytes) else part_xml(name, part)
        for name, part in parts.items()
    }
    types = "".join(
        f'<Override PartName="/word/{name}" ContentType="{TYPE}.{PARTS[name]}+xml"/>'
        for name in parts
    )
    files["[Content_Types].xml"] = (
        f'<Types xmlns="{PACKAGE}/content-types">'
        '<Default Extension="rels" '
        'ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
        f'<Default Extension="xml" ContentType="application/xml"/>{types}</Types>'
    ).encode()
    files["_rels/.rels"] = relations({"word/document.xml": "officeDocument"})
    others = {name: PARTS[name] for name in parts if name != "document.xml"}
    files["word/_rels/document.xml.rels"] = relations(others)
    return archive(files)


def relations(targets: dict[str, str]) -> bytes:
    each = "".join(
        f'<Relationship Id="rId{n}" Type="{OFFICE}/{kind}" Target="{target}"/>'
        for n, (target, kind) in enumerate(targets.items(), start=1)
    )
    return f'<Relationships xmlns="{PACKAGE}/relationships">{each}</Relationships>'.encode()


def part_xml(name: str, content: str) -> bytes:
    root = name.removesuffix(".xml")
    inside = f"<w:body>{content}</w:body>" if root == "document" else content
    return f'<w:{root} xmlns:w="{WORD}">{inside}</w:{root}>'.encode()


def paragraph(text: str, style: str = "", number: int = 0, level: int = 0) -> str:
    """A paragraph; `number`: the id of its automatic numbers."""
    properties = f'<w:pStyle w:val="{style}"/>' if style else ""
    if number:
        properties += f'<w:numPr><w:ilvl w:val="{level}"/><w:numId w:val="{number}"/></w:numPr>'
    return f"<w:p><w:pPr>{properties}</w:pPr><w:r><w:t>{text}</w:t></w:r></w:p>"


def levels(number: int, *formats: tuple[str, str]) -> str:
    """The definition of automatic numbers: a format and a text such as "%1.%2" for each level."""
    each = "".join(
        f'<w:lvl w:ilvl="{level}"><w:start w:val="1"/><w:numFmt w:val="{kind}"/>'
        f'<w:lvlText w:val="{text}"/></w:lvl>'
        for level, (kind, text) in enumerate(formats)
    )
    return f'<w:abstractNum w:abstractNumId="{number}">{each}</w:abstractNum>'
