"""Parses the bytes of a file into its text, pages and headings.

pdf, docx and html (and large Markdown) are parsed in a child process with limits of time and
memory (sandbox.py), so that a malformed or hostile file that hangs, exhausts memory or crashes a
library costs one error message. Other text is decoded here. No file is opened.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path, PurePosixPath

from index.documents.formats.blocks import ParsedDocument
from index.documents.formats.headings import Heading, find_headings

__all__ = ["MAX_FILE_BYTES", "DocumentError", "ParsedDocument", "kind_of", "parse"]

MAX_FILE_BYTES = 64 << 20
MAX_TEXT_CHARS = 16 << 20
TIMEOUT_S = 30.0  # to parse one file
MAX_MEMORY_BYTES = 2 << 30  # address space of the child process
MAX_INLINE_MARKDOWN_CHARS = 256 << 10  # longer Markdown is parsed in the child process

SANDBOX = Path(__file__).with_name("sandbox.py")
SANDBOXED = ("pdf", "docx", "html")
SUPPORTED = "pdf, docx, html, md, rst, txt and source code are supported"

# fmt: off
KINDS = {
    ".pdf": "pdf", ".docx": "docx", ".html": "html", ".htm": "html", ".xhtml": "html",
    ".md": "md", ".markdown": "md", ".mdx": "md", ".rst": "rst", ".rest": "rst",
}
CODE_SUFFIXES = frozenset(
    re.findall(
        r"\S+",
        ".bash .c .cc .clj .cpp .cs .css .cu .cxx .dart .erl .ex .exs .f90 .go .h .hh .hpp .hs "
        ".hxx .java .jl .js .jsx .kt .lua .m .mjs .ml .mm .php .pl .pm .proto .ps1 .py .pyi "
        ".pyx .r .rb .rs .scala .scss .sh .sql .svelte .swift .ts .tsx .vb .vue .zig",
    )
)
# fmt: on
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


class DocumentError(ValueError):
    """A file that cannot be read; the message is one line with the file's name and the remedy."""


def kind_of(name: str) -> str:
    """The kind that a file name's suffix indicates: pdf, docx, html, md, rst, code, else txt."""
    suffix = PurePosixPath(name.lower()).suffix
    return "code" if suffix in CODE_SUFFIXES else KINDS.get(suffix, "txt")


def parse(name: str, data: bytes) -> ParsedDocument:
    """The text of a file, with its pages and headings. Raises DocumentError."""
    kind = kind_of(name)
    if len(data) > MAX_FILE_BYTES:
        raise DocumentError(f"{name}: over {MAX_FILE_BYTES >> 20} MiB; split it")
    _check_signature(name, kind, data)
    if kind in SANDBOXED:
        plain = _decode(name, kind, data).encode() if kind == "html" else data
        parsed = _parse_in_sandbox(name, kind, plain)
    else:
        text = _decode(name, kind, data)
        if len(text) > MAX_TEXT_CHARS:
            raise DocumentError(f"{name}: over {MAX_TEXT_CHARS >> 20} million characters; split it")
        if kind == "md" and len(text) > MAX_INLINE_MARKDOWN_CHARS:
            parsed = _parse_in_sandbox(name, kind, text.encode())
        else:
            parsed = ParsedDocument(text, (), find_headings(kind, text))
    if not parsed.text.strip():
        remedy = "scanned pages need text recognition (OCR) first" if kind == "pdf" else "remove it"
        raise DocumentError(f"{name}: contains no text; {remedy}")
    return parsed


def _check_signature(name: str, kind: str, data: bytes) -> None:
    """Raise DocumentError where the first bytes contradict the file's suffix."""
    is_pdf = b"%PDF-" in data[:1024]
    if kind == "pdf":
        if not is_pdf:
            raise DocumentError(f"{name}: not a pdf file; give it the suffix of its real format")
    elif data.startswith(b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"):
        raise DocumentError(
            f"{name}: an old Office file, or encrypted; save it as docx without a password"
        )
    elif kind == "docx":
        if not data.startswith(b"PK\x03\x04"):
            raise DocumentError(f"{name}: not a docx file; give it the suffix of its real format")
    elif is_pdf and data.startswith(b"%PDF-"):
        raise DocumentError(f"{name}: a pdf file; rename it to end in .pdf")
    elif data.startswith(b"PK\x03\x04"):
        raise DocumentError(f"{name}: a zip archive or an Office file; {SUPPORTED}")


def _decode(name: str, kind: str, data: bytes) -> str:
    """The text of a text file without its byte order mark; line ends are kept."""
    mark = next((each for each in BYTE_ORDER_MARKS if data.startswith(each)), b"")
    charset = META_CHARSET.search(data[:2048]) if kind == "html" and not mark else None
    encoding = BYTE_ORDER_MARKS.get(mark, "utf-8")
    try:
        return _reject_nul(name, data[len(mark) :].decode(encoding))
    except UnicodeDecodeError as error:
        if not charset:
            raise DocumentError(f"{name}: not UTF-8; save it as UTF-8. {SUPPORTED}") from error
    declared = charset[1].decode("ascii")
    try:
        if HTML_ENCODINGS.match(declared):
            return _reject_nul(name, data.decode(declared))
        raise LookupError(declared)
    except (UnicodeDecodeError, LookupError) as error:
        raise DocumentError(f"{name}: not valid {declared}; save it as UTF-8") from error


def _reject_nul(name: str, text: str) -> str:
    if "\0" in text:
        raise DocumentError(f"{name}: a binary file; {SUPPORTED}")
    return text


def _parse_in_sandbox(name: str, kind: str, data: bytes) -> ParsedDocument:
    """Parse in a child process, which replies in JSON."""
    limits = [str(MAX_TEXT_CHARS), str(MAX_MEMORY_BYTES), str(int(TIMEOUT_S) + 1)]
    # -P: import nothing from the working directory
    command = [sys.executable, "-P", str(SANDBOX), kind, *limits]
    try:
        done = subprocess.run(command, input=data, capture_output=True, timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired as error:
        raise DocumentError(
            f"{name}: not parsed within {TIMEOUT_S:.0f} seconds; print it to a new file or split it"
        ) from error
    except OSError as error:
        raise DocumentError(f"{name}: cannot start the parser ({error}); try again") from error
    try:
        reply = json.loads(done.stdout)
    except ValueError as error:  # killed, or out of memory
        raise DocumentError(
            f"{name}: the parser failed (exit status {done.returncode}); print it to a new file"
        ) from error
    if "error" in reply:
        raise DocumentError(f"{name}: {reply['error']}")
    return ParsedDocument(
        reply["text"],
        tuple((start, stop) for start, stop in reply["pages"]),
        tuple(Heading(*each) for each in reply["headings"]),
    )
