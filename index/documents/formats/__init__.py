"""A file's bytes -> its text, with pages and headings, or one line that says why not.

pdf, docx and html come from anywhere: they are read in a process of its own (child.py), so that a
file made to hang, to fill the memory or to crash a library costs one message. Text is read here.
Nothing is cut into chunks or kept, and no file is opened.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from index.documents.formats.headings import Heading, headings

LARGEST = 64 << 20  # bytes of a file
LONGEST = 16 << 20  # characters of its text
SECONDS = 30.0  # to read one file
MEMORY = 2 << 30  # bytes of address space to do so

CHILD = Path(__file__).with_name("sandbox.py")
RICH = ("pdf", "docx", "html")  # read in a process of its own
READ = "pdf, docx, html, md, rst, txt and source code can be read"

# fmt: off
KINDS = {
    ".pdf": "pdf", ".docx": "docx", ".html": "html", ".htm": "html", ".xhtml": "html",
    ".md": "md", ".markdown": "md", ".mdx": "md", ".rst": "rst", ".rest": "rst",
}
CODE = frozenset(
    re.findall(
        r"\S+",
        ".bash .c .cc .clj .cpp .cs .css .cu .cxx .dart .erl .ex .exs .f90 .go .h .hh .hpp .hs "
        ".hxx .java .jl .js .jsx .kt .lua .m .mjs .ml .mm .php .pl .pm .proto .ps1 .py .pyi "
        ".pyx .r .rb .rs .scala .scss .sh .sql .svelte .swift .ts .tsx .vb .vue .zig",
    )
)
# fmt: on
MARKS = {b"\xef\xbb\xbf": "utf-8", b"\xff\xfe": "utf-16-le", b"\xfe\xff": "utf-16-be"}
CHARSET = re.compile(rb"""<meta[^>]{0,200}?charset\s*=\s*["']?\s*([\w.:-]{1,40})""", re.IGNORECASE)

ENCODINGS = re.compile(  # of html pages; other names may mean anything to Python
    r"(?:iso-?8859|windows-12|cp\d|latin|koi8|gb|big5|shift|sjis|euc|mac|us-ascii|ascii)",
    re.IGNORECASE,
)


class DocumentError(ValueError):
    """A file that cannot be read; one line that names it and the remedy."""


@dataclass(frozen=True, slots=True)
class Parsed:
    """What a file says. Places are code points of `text`."""

    text: str
    pages: tuple[tuple[int, int], ...] = ()  # (start, stop) of each page; only a pdf has them
    headings: tuple[Heading, ...] = ()  # by place


def kind_of(name: str) -> str:
    """What a name promises: pdf, docx, html, md, rst, code, or txt for all else."""
    suffix = PurePosixPath(name.lower()).suffix
    return "code" if suffix in CODE else KINDS.get(suffix, "txt")


def parse(name: str, data: bytes) -> Parsed:
    """The text of a file. Raises DocumentError."""
    kind = kind_of(name)
    if len(data) > LARGEST:
        raise DocumentError(f"{name}: over {LARGEST >> 20} MiB; split it")
    _check(name, kind, data)
    if kind in RICH:
        plain = _decoded(name, kind, data).encode() if kind == "html" else data
        parsed = _in_a_child(name, kind, plain)
    else:
        text = _decoded(name, kind, data)
        if len(text) > LONGEST:
            raise DocumentError(f"{name}: over {LONGEST >> 20} million characters; split it")
        parsed = Parsed(text, (), headings(kind, text))
    if not parsed.text.strip():
        why = "; scanned pages need text recognition (OCR) first" if kind == "pdf" else ""
        raise DocumentError(f"{name}: holds no text{why or '; leave it out'}")
    return parsed


def _check(name: str, kind: str, data: bytes) -> None:
    """Whether the bytes may be what the name says."""
    is_pdf = b"%PDF-" in data[:1024]
    if kind == "pdf":
        if not is_pdf:
            raise DocumentError(f"{name}: not a pdf inside; give it the ending of what it is")
    elif data.startswith(b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"):
        raise DocumentError(
            f"{name}: an old Office file, or one with a password; save it as docx without one"
        )
    elif kind == "docx":
        if not data.startswith(b"PK\x03\x04"):
            raise DocumentError(f"{name}: not a docx inside; give it the ending of what it is")
    elif is_pdf and data.startswith(b"%PDF-"):
        raise DocumentError(f"{name}: a pdf inside; let its name end in .pdf")
    elif data.startswith(b"PK\x03\x04"):
        raise DocumentError(f"{name}: a zip archive or an Office file inside; {READ}")


def _decoded(name: str, kind: str, data: bytes) -> str:
    """The text of a text file, without its byte order mark; line ends stay."""
    mark = next((each for each in MARKS if data.startswith(each)), b"")
    charset = CHARSET.search(data[:2048]) if kind == "html" and not mark else None
    encoding = MARKS.get(mark, "utf-8")
    try:
        return _without_nul(name, data[len(mark) :].decode(encoding))
    except UnicodeDecodeError as error:
        if not charset:
            raise DocumentError(f"{name}: not UTF-8 text; save it as UTF-8. {READ}") from error
    said = charset[1].decode("ascii")
    try:
        if ENCODINGS.match(said):
            return _without_nul(name, data.decode(said))
        raise LookupError(said)
    except (UnicodeDecodeError, LookupError) as error:
        raise DocumentError(f"{name}: not in {said} as it says; save it as UTF-8") from error


def _without_nul(name: str, text: str) -> str:
    if "\0" in text:
        raise DocumentError(f"{name}: binary; {READ}")
    return text


def _in_a_child(name: str, kind: str, data: bytes) -> Parsed:
    """Read by child.py, which answers in JSON."""
    # -P: nothing is imported from the folder that we happen to be in
    bounds = [str(LONGEST), str(MEMORY), str(int(SECONDS) + 1)]
    command = [sys.executable, "-P", str(CHILD), kind, *bounds]
    try:
        done = subprocess.run(command, input=data, capture_output=True, timeout=SECONDS)
    except subprocess.TimeoutExpired as error:
        raise DocumentError(
            f"{name}: not read within {SECONDS:.0f} seconds; print it to a new file, or split it"
        ) from error
    except OSError as error:
        raise DocumentError(f"{name}: no process to read it ({error}); try again") from error
    try:
        said = json.loads(done.stdout)
    except ValueError as error:  # it was killed, or ran out of memory
        raise DocumentError(
            f"{name}: reading it failed (exit status {done.returncode}); print it to a new file"
        ) from error
    if "error" in said:
        raise DocumentError(f"{name}: {said['error']}")
    return Parsed(
        said["text"],
        tuple((start, stop) for start, stop in said["pages"]),
        tuple(Heading(*each) for each in said["headings"]),
    )
