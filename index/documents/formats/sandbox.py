"""Parses one possibly hostile file. A script that formats/__init__.py runs, never imported.

Arguments: the kind, then the limits: characters of text, bytes of memory, seconds of CPU time.
The file comes on stdin; its text, pages and headings go to stdout as JSON, or {"error": reason}.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from index.documents.formats.blocks import ParsedDocument


def main(kind: str, max_chars: int, max_memory: int, max_seconds: int) -> dict[str, Any]:
    """Parse the file on stdin under the given limits."""
    if sys.platform != "win32":
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (max_memory, max_memory))
        # In case the parent dies, which otherwise enforces the timeout.
        resource.setrlimit(resource.RLIMIT_CPU, (max_seconds, max_seconds))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    return _parse(kind, sys.stdin.buffer.read(), max_chars)._asdict()


def _parse(kind: str, data: bytes, max_chars: int) -> ParsedDocument:
    """Import only the one library that is needed."""
    if kind == "pdf":
        from index.documents.formats import pdf

        return pdf.read(data, max_chars)
    if kind == "docx":
        from index.documents.formats import docx

        return docx.read(data, max_chars)
    if kind == "html":
        from index.documents.formats import html

        return html.read(data, max_chars)
    from index.documents.formats.blocks import ParsedDocument
    from index.documents.formats.headings import find_headings

    text = data.decode()
    return ParsedDocument(text, (), find_headings(kind, text))


if __name__ == "__main__":
    sys.path.append(str(Path(__file__).resolve().parents[3]))  # if the package is not installed
    try:
        reply = main(sys.argv[1], *map(int, sys.argv[2:]))
    except MemoryError:
        reply = {"error": "parsing takes too much memory; split it"}
    except Exception as error:  # each library has its own; the parent expects one line
        lines = str(error).strip().splitlines() or [""]
        reason = lines[0] if type(error) is ValueError else f"{type(error).__name__}: {lines[0]}"
        reply = {"error": reason if ";" in reason else f"damaged ({reason}); save it again"}
    sys.stdout.write(json.dumps(reply))
