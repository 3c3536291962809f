"""The encoding of a text file, and whether a file's content matches its suffix.

Errors are ValueErrors with a remedy, without the file's name.
"""

from __future__ import annotations

import re

SUPPORTED = "pdf, docx, html, md, rst, txt, csv and source code are supported"
BYTE_ORDER_MARKS = {
    b"\xef\xbb\xbf": "utf-8",
    b"\xff\xfe": "utf-16-le",
    b"\xfe\xff": "utf-16-be",
}
META_CHARSET = re.compile(
    rb"""<meta[^>]{0,200}?charset\s*=\s*["']?\s*([\w.:-]{1,40})""", re.IGNORECASE
)
# Character encodings that an html page may name; Python has codecs of other kinds, such as zlib.
HTML_ENCODINGS = re.compile(
    r"(?:iso-?8859|windows-12|cp\d|latin|koi8|gb|big5|shift|sjis|euc|mac|us-ascii|ascii)",
    re.IGNORECASE,
)


def check_signature(kind: str, data: bytes) -> None:
    """Raise ValueError where the first bytes contradict the file's suffix."""
    is_pdf = b"%PDF-" in data[:1024]
    if kind in ("pdf", "scan"):
        if not is_pdf:
            raise ValueError("not a pdf file; give it the suffix of its real format")
    elif data.startswith(b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"):
        raise ValueError("an old Office file, or encrypted; save it as docx without a password")
    elif kind == "docx":
        if not data.startswith(b"PK\x03\x04"):
            raise ValueError("not a docx file; give it the suffix of its real format")
    elif is_pdf and data.startswith(b"%PDF-"):
        raise ValueError("a pdf file; rename it to end in .pdf")
    elif data.startswith(b"PK\x03\x04"):
        raise ValueError(f"a zip archive or an Office file; {SUPPORTED}")


def decode(kind: str, data: bytes) -> str:
    """Return the text of a text file without its byte order mark; line ends are kept."""
    mark = next((each for each in BYTE_ORDER_MARKS if data.startswith(each)), b"")
    charset = META_CHARSET.search(data[:2048]) if kind == "html" and not mark else None
    encoding = BYTE_ORDER_MARKS.get(mark, "utf-8")
    try:
        return _reject_nul(data[len(mark) :].decode(encoding))
    except UnicodeDecodeError as error:
        if not charset:
            raise ValueError(f"not UTF-8; save it as UTF-8. {SUPPORTED}") from error
    declared = charset[1].decode("ascii")
    try:
        if HTML_ENCODINGS.match(declared):
            return _reject_nul(data.decode(declared))
        raise LookupError(declared)
    except (UnicodeDecodeError, LookupError) as error:
        raise ValueError(f"not valid {declared}; save it as UTF-8") from error


def _reject_nul(text: str) -> str:
    if "\0" in text:
        raise ValueError(f"a binary file; {SUPPORTED}")
    return text
