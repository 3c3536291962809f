"""Jupyter notebooks as Markdown: the text of cells, code and outputs in fences.

Of several forms of an output, its plain text is read; pictures are left out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

COLOUR = re.compile(r"\x1b\[[\d;]*[A-Za-z]")
BACKTICKS = re.compile("`{3,}")


def read(text: str) -> str:
    """Return the cells of a notebook of any version. Malformed ones raise errors of any kind."""
    notebook = json.loads(text)
    described = notebook.get("metadata", {})
    language = described.get("language_info", {}).get("name", "")
    sheets = notebook.get("worksheets", [notebook])  # of version 3
    cells = [cell for sheet in sheets for cell in sheet["cells"]]
    return "\n\n".join(part for cell in cells for part in _parts(cell, language) if part.strip())


def _parts(cell: dict[str, Any], language: str) -> Iterator[str]:
    kind, text = cell["cell_type"], _text(cell.get("source", cell.get("input", "")))
    if kind != "code":
        yield f"{'#' * cell['level']} {text}" if kind == "heading" else text.strip("\n")
        return
    yield _fenced(text, language)
    for output in cell.get("outputs", []):
        forms = output.get("data", output)
        yield _fenced(_text(forms.get("text/plain", forms.get("text", ""))))
        if output.get("output_type") in ("error", "pyerr"):
            lines = output.get("traceback") or [f"{output['ename']}: {output['evalue']}"]
            yield _fenced("\n".join(lines))


def _text(lines: list[str] | str) -> str:
    return lines if isinstance(lines, str) else "".join(lines)


def _fenced(text: str, language: str = "") -> str:
    text = COLOUR.sub("", text).strip("\n")
    fence = max(BACKTICKS.findall(text), key=len, default="``") + "`"
    return f"{fence}{language}\n{text}\n{fence}" if text.strip() else ""
