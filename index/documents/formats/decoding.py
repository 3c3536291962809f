"""The encoding of a text file, and whether it is a text file.

A label in a page or in XML stands for the encoding that the WHATWG's standard gives it, as in a
browser: Python's codecs of the same names lack characters. Errors are ValueErrors with a remedy,
without the file's name.
"""

from __future__ import annotations

import re

import webencodings

from index.documents.formats import FORMATS

DECLARED = re.compile(
    rb"""<(?:meta[^>]{0,200}?charset|\?xml[^>]{0,200}?encoding)\s*=\s*["']?\s*([\w.:-]{1,40})""",
    re.IGNORECASE,
)
UNDECLARED = "windows-1252"  # of a text that is not UTF-8, as in a browser
# A mark of UTF-16, or three such letters in a row, which are of no western language
FOREIGN = re.compile(rb"\A(?:\xff\xfe|\xfe\xff)|[\x80-\xff]{3}")
SUPPORTED = f"{FORMATS} are supported"
SIGNATURES = {
    b"%PDF-": "a pdf file; rename it to end in .pdf",
    b"PK\x03\x04": f"a zip archive or an Office file; {SUPPORTED}",
    b"\xd0\xcf\x11\xe0": f"an old Office file, or encrypted; {SUPPORTED}",
    b"{\\rtf": "an rtf file; rename it to end in .rtf",
}


def decode(kind: str, data: bytes) -> str:
    """Return the text of a text file without its byte order mark; line ends are kept."""
    if reason := next((SIGNATURES[each] for each in SIGNATURES if data.startswith(each)), ""):
        raise ValueError(reason)
    declared = DECLARED.search(data[:2048]) if kind == "html" else None
    text: str
    try:
        text, _ = webencodings.decode(data, "utf-8", "strict")
    except UnicodeDecodeError as error:
        if not declared and FOREIGN.search(data):
            raise ValueError(f"not UTF-8; save it as UTF-8. {SUPPORTED}") from error
        label = declared[1].decode("ascii") if declared else UNDECLARED
        try:
            text, _ = webencodings.decode(data, label, "strict")
        except (UnicodeDecodeError, LookupError) as other:
            raise ValueError(f"not valid {label}; save it as UTF-8") from other
    if "\0" in text:
        raise ValueError(f"a binary file; {SUPPORTED}")
    return text
