"""The encoding of a text file, and whether it is a text file.

A label in a page or in XML stands for the encoding that the WHATWG's standard gives it, as in a
browser: Python's codecs of the same names lack characters. Errors are ValueErrors with a remedy,
without the file's name.
"""

from __future__ import annotations

import codecs
import re

import webencodings

SUPPORTED = (
    "pdf, docx, doc, odt, rtf, pptx, ppt, odp, xlsx, ods, epub, html, mhtml, eml, ipynb, md, rst, "
    "txt, csv and source code are supported"
)
BYTE_ORDER_MARKS = {
    b"\xef\xbb\xbf": "utf-8",
    b"\xff\xfe": "utf-16-le",
    b"\xfe\xff": "utf-16-be",
}
DECLARED = re.compile(
    rb"""<(?:meta[^>]{0,200}?charset|\?xml[^>]{0,200}?encoding)\s*=\s*["']?\s*([\w.:-]{1,40})""",
    re.IGNORECASE,
)
WHATWG = {
    "gbk": "gb18030", "shift_jis": "cp932", "euc-kr": "cp949", "big5": "big5hkscs",
}  # fmt: skip
UNDECLARED = "cp1252"  # of a text that is not UTF-8, as in a browser
FOREIGN = re.compile(rb"[\x80-\xff]{3}")  # three such letters in a row are of no western language
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
    mark = next((each for each in BYTE_ORDER_MARKS if data.startswith(each)), b"")
    try:
        return _reject_nul(data[len(mark) :].decode(BYTE_ORDER_MARKS.get(mark, "utf-8")))
    except UnicodeDecodeError as error:
        declared = DECLARED.search(data[:2048]) if kind == "html" and not mark else None
        if not declared and (mark or FOREIGN.search(data)):
            raise ValueError(f"not UTF-8; save it as UTF-8. {SUPPORTED}") from error
    label = declared[1].decode("ascii") if declared else UNDECLARED
    try:
        return _reject_nul(_codec(label).decode(data)[0])
    except (UnicodeDecodeError, LookupError) as error:
        raise ValueError(f"not valid {label}; save it as UTF-8") from error


def _codec(label: str) -> codecs.CodecInfo:
    """Return the codec for a label. Raises LookupError."""
    encoding = webencodings.lookup(label)
    if encoding is None:
        raise LookupError(label)
    return codecs.lookup(WHATWG.get(encoding.name, encoding.codec_info.name))


def _reject_nul(text: str) -> str:
    if "\0" in text:
        raise ValueError(f"a binary file; {SUPPORTED}")
    return text
