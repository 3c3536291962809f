"""Parses possibly hostile files one by one. A script that parser.py runs, never imported.

Arguments, all limits: bytes of text, number of headings, bytes of memory, seconds of CPU time per
file. A request on stdin is a line with the kind and the size of a file, then the file. A reply on
stdout is the sizes of a header and a text, then both. The header is JSON: {"pages": [[start, stop],
...], "headings": [[start, level, title], ...]}, or {"error": reason and remedy} without a text,
with "scanned": true where a pdf has pages that are pictures. The kind `scan` is a pdf of which they
are to be recognized. A "file" of the kind `picture` is a line of JSON, [page, [[text, share],
...]], and a pdf; the reply is {} and a PNG.
"""

from __future__ import annotations

import json
import os
import struct
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from index.documents.formats import ParsedDocument

DAMAGED = "damaged; save it again"


def main(max_text: int, max_headings: int, max_memory: int, max_seconds: int) -> None:
    """Parse files until stdin ends."""
    # Imported before memory is limited: Python may try forever to import with too little of it.
    import index.documents.formats.decoding
    import index.documents.formats.headings  # noqa: F401

    limit_cpu_time = _limit_resources(max_memory, max_seconds)
    requests = sys.stdin.buffer
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # a library's output is no reply
    while request := requests.readline():
        kind, size = request.decode().split()
        data = requests.read(int(size))
        limit_cpu_time()
        fields, text = _reply(kind, data, max_text, max_headings)
        header = json.dumps(fields, ensure_ascii=False).encode(errors="replace")
        replies.write(struct.pack(">II", len(header), len(text)) + header + text)
        replies.flush()


def _limit_resources(max_memory: int, max_seconds: int) -> Callable[[], None]:
    """Limit memory, and return a function that limits the CPU time of the next file.

    macOS refuses a limit of memory below what is mapped at start, and has none.
    """
    import resource  # Windows has no such limits, and no process that parses (parser.py)

    def limit(what: int, most: int, may_grow: bool = False) -> None:
        inherited = resource.getrlimit(what)[1]
        most = most if inherited == resource.RLIM_INFINITY else min(most, inherited)
        resource.setrlimit(what, (most, inherited if may_grow else most))

    def limit_cpu_time() -> None:
        # In case the parent dies, which otherwise enforces the timeout.
        limit(resource.RLIMIT_CPU, int(time.process_time()) + 1 + max_seconds, may_grow=True)

    if sys.platform != "darwin":
        limit(resource.RLIMIT_AS, max_memory)
    limit(resource.RLIMIT_CORE, 0)
    return limit_cpu_time


def _reply(
    kind: str, data: bytes, max_text: int, max_headings: int
) -> tuple[dict[str, Any], bytes]:
    """Return the header's fields and the text of a reply."""
    from index.documents.formats.headings import INVALID, top_levels

    scanned = False
    try:
        if kind == "picture":
            from index.documents.formats import page_picture

            what, _, file = data.partition(b"\n")
            return {}, page_picture.picture(file, *json.loads(what))
        parsed = _parse(kind, data, max_text)
        text = INVALID.sub("\ufffd", parsed.text).encode()
        if len(text) > max_text:
            raise ValueError(f"over {max_text >> 20} MiB of text; split it")
        if kind == "pdf":
            from index.documents.formats import pdf

            scanned = pdf.has_scanned_pages(data, parsed)
        if not parsed.text.strip():
            remedy = "to read scanned pages, pip install 'draftline[page,ocr]'"
            reason = f"contains no text; {remedy if scanned else 'remove it'}"
            return {"error": reason, "scanned": scanned}, b""
    except MemoryError:
        return {"error": "parsing takes too much memory; split it"}, b""
    except ModuleNotFoundError as error:
        remedy = f"needs {error.name}; pip install 'draftline[page]'"
        return {"error": remedy}, b""
    except Exception as error:  # each library has its own, whose words would help nobody
        is_ours = type(error) is ValueError and ";" in str(error)
        return {"error": str(error) if is_ours else DAMAGED}, b""
    headings = top_levels(parsed.headings, max_headings)
    return {"pages": parsed.pages, "headings": headings, "scanned": scanned}, text


def _parse(kind: str, data: bytes, max_text: int) -> ParsedDocument:
    """Import only the libraries that are needed."""
    from index.documents.formats import MAIL_KINDS, OFFICE_KINDS, ParsedDocument
    from index.documents.formats.decoding import decode
    from index.documents.formats.headings import find_headings

    if kind in ("pdf", "scan"):
        from index.documents.formats import ocr, pdf

        return pdf.read(data, max_text, ocr.load() if kind == "scan" else None)
    if kind in OFFICE_KINDS:
        from index.documents.formats import office

        text = office.read(kind, data)
    elif kind in MAIL_KINDS:
        from index.documents.formats import html, mail

        text = html.read(mail.page(data))
    else:
        text = decode(kind, data)
        if len(text) > max_text:
            raise ValueError(f"over {max_text >> 20} MiB of text; split it")
        if kind == "html":
            from index.documents.formats import html

            text = html.read(text)
        elif kind == "ipynb":
            from index.documents.formats import notebook

            text = notebook.read(text)
        elif kind in ("csv", "tsv"):
            from index.documents.formats import separated_values

            text = separated_values.read(text)
    is_markdown = kind in ("html", "ipynb", *OFFICE_KINDS, *MAIL_KINDS)
    return ParsedDocument(text, (), find_headings("md" if is_markdown else kind, text))


if __name__ == "__main__":
    sys.path.append(str(Path(__file__).resolve().parents[3]))  # if the package is not installed
    main(*map(int, sys.argv[1:]))
    os._exit(0)  # xberg's threads would crash a Python that ends
