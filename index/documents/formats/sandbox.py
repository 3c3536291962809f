"""Run as a process by formats/__init__.py, never imported: reads one file that may be hostile.

Arguments: kind; then the most characters, bytes of memory and seconds of work. The file comes on
stdin; what it says goes to stdout as JSON, or {"error": why not}.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any


def main(kind: str, longest: int, memory: int, seconds: int) -> dict[str, Any]:
    """What the file on stdin says."""
    if sys.platform != "win32":
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))  # should our parent die
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    data = sys.stdin.buffer.read()
    if kind == "pdf":
        from index.documents.formats.pdf import read
    elif kind == "docx":
        from index.documents.formats.docx import read
    else:
        from index.documents.formats.html import read
    text, pages, headings = read(data, longest)
    return {
        "text": text,
        "pages": pages,
        "headings": [(each.start, each.level, each.title) for each in headings],
    }


if __name__ == "__main__":
    sys.path.append(str(Path(__file__).resolve().parents[3]))  # where it is not installed
    try:
        said = main(sys.argv[1], *map(int, sys.argv[2:]))
    except MemoryError:
        said = {"error": "takes too much memory to read; split it"}
    except Exception as error:  # the libraries have many of their own; the parent wants one line
        lines = str(error).strip().splitlines() or [""]
        reason = lines[0] if type(error) is ValueError else f"{type(error).__name__}: {lines[0]}"
        said = {"error": reason if ";" in reason else f"broken ({reason}); save it anew"}
    sys.stdout.write(json.dumps(said))
