"""Word, OpenDocument, rich text, presentations, spreadsheets and e-books as Markdown, by anydoc.

anydoc counts Word's automatic numbers; word.py gives it what it would leave out.
"""

from __future__ import annotations

import re

import anydoc

from index.documents.formats import library, word

BULLET_AND_NUMBER = re.compile(r"^ *(?:- )+(?=\(?\w{1,5}[.)]|\d+\.\d|[A-Z]\w+ [\dIVX]+\b)", re.M)
BOLD_LINE = re.compile(r"^(?:- )?((?:\d[\d.)]* )?)\*\*([^*\n]{1,80})\*\*$", re.MULTILINE)
# A table whose head is not marked gets an empty one.
EMPTY_HEAD = re.compile(r"^\|(?:  \|)+\n(\|[ |:-]+\n)(\|.*\n?)", re.MULTILINE)
# In rtf, a group whose first words say that it is hidden or deleted.
RTF_UNSEEN = re.compile(
    rb"\{(?:\\(?!(?:v|deleted)(?![a-z\d]))[a-z]+-?\d*|\s)*+\\(?:v|deleted)(?![a-z\d])"
    rb"(?:[^{}\\]|\\.)*+\}",
    re.DOTALL,
)
HEADING = re.compile(r"^#+ ", re.MULTILINE)


def read(kind: str, data: bytes) -> str:
    """Return a file as Markdown. Raises ValueError with a remedy, or an error of anydoc."""
    is_old = data.startswith(b"\xd0\xcf\x11\xe0")  # or encrypted
    if not is_old and not data.startswith((b"PK\x03\x04", b"{\\rtf")):
        raise ValueError(f"not a {kind} file; give it the suffix of its real format")
    if kind in ("docx", "docm") and not is_old:
        data = word.complete(data)
    if kind == "rtf":
        data = RTF_UNSEEN.sub(b"", data)
    try:
        if is_old and kind not in ("doc", "ppt", "xls"):
            raise anydoc.EncryptedError
        # Another `ocr` would send the file to the library's makers.
        text = anydoc.to_markdown_bytes(data, anydoc.format_from_extension(kind), ocr="reject")
    except anydoc.EncryptedError as error:
        raise ValueError("needs a password; save it without one") from error
    except anydoc.ResourceLimitError as error:
        raise ValueError(f"too large or too deeply nested ({error.limit}); split it") from error
    text = EMPTY_HEAD.sub(r"\2\1", BULLET_AND_NUMBER.sub("", library.plain(text)))
    if len(HEADING.findall(text)) < 2:  # written without styles: bold lines are the headings
        text = BOLD_LINE.sub(r"## \1\2", text)
    return text.strip("\n")
