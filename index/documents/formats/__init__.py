"""Turns the bytes of a file into its text, pages and headings; rich formats become Markdown.

Every format is parsed in a child process with limits of time, memory and output: parser.py is the
parent's side, sandbox.py the child's. A malformed or hostile file that hangs, exhausts memory or
crashes a library costs one error message. No file is opened.
"""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import NamedTuple

from index.documents.formats.headings import Heading

MAX_FILE_BYTES = 64 << 20

# fmt: off
OFFICE_KINDS = (
    "docx", "doc", "docm", "odt", "rtf", "pptx", "ppt", "odp", "xlsx", "xlsm", "xls",
    "ods", "epub",
)
MAIL_KINDS = ("eml", "mhtml")
KINDS = {
    f".{kind}": kind
    for kind in ("pdf", *OFFICE_KINDS, "html", *MAIL_KINDS, "ipynb", "md", "rst", "csv", "tsv")
} | {
    ".htm": "html", ".xhtm": "html", ".xhtml": "html", ".markdown": "md", ".mdx": "md",
    ".mht": "mhtml", ".rest": "rst",
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
FORMATS = f"{', '.join(dict.fromkeys(KINDS.values()))}, plain text and source code"
IN_WORDS = (
    "PDF, Word, spreadsheets, presentations, e-books, web pages, mail, notebooks, Markdown, text "
    "and code"
)


class ParsedDocument(NamedTuple):
    """The text of a file. Positions are code points of `text`."""

    text: str
    pages: tuple[tuple[int, int], ...] = ()  # (start, stop) of each page; only a pdf has pages
    headings: tuple[Heading, ...] = ()  # in order


class DocumentError(ValueError):
    """A file that cannot be read; the message is one line with the file's name and the remedy."""


def kind_of(name: str) -> str:
    """Return the kind that a file name's suffix indicates: a value of KINDS, code, else txt."""
    suffix = PurePosixPath(name.lower()).suffix
    return "code" if suffix in CODE_SUFFIXES else KINDS.get(suffix, "txt")
