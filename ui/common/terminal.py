"""Text for stdout and for people: lines, JSON, counts and sizes.

On a terminal the control characters of files, models and file names are made visible, so that none
of them can drive the terminal; in a pipe or a file the text is exact. rich is imported only where
something is shown on a terminal.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
import textwrap
from pathlib import Path
from typing import Any

_COLUMNS = re.compile(r"\s*\S.*\s{2,}(?=\S)|\s*")  # of a table's line, all but the last one
_CONTROL_PICTURES = {code: 0x2400 + code for code in range(32) if chr(code) not in "\n\t"}
_CONTROL_PICTURES |= {0x7F: 0x2421} | dict.fromkeys(range(0x80, 0xA0), 0xFFFD)


def visible(text: str) -> str:
    """Replace control characters, other than line feeds and tabs, by Unicode pictures."""
    return text.translate(_CONTROL_PICTURES)


def one_line(text: str) -> str:
    """Make a text `visible` and put it on one line; broken UTF-8 becomes U+FFFD."""
    decoded = text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    return visible(decoded).replace("\n", "\u240a").replace("\t", " ")


def write(text: str) -> None:
    """Write exactly this text to stdout, whatever the locale."""
    if sys.stdout:
        sys.stdout.flush()
        sys.stdout.buffer.write(text.encode("utf-8", "surrogateescape"))
        sys.stdout.buffer.flush()


def write_line(text: str) -> None:
    """Write one line to stdout: exact, or `one_line` on a terminal, broken at its width."""
    if sys.stdout and sys.stdout.isatty():
        text = hung(one_line(text), shutil.get_terminal_size().columns)
    write(f"{text}\n")


def hung(line: str, width: int) -> str:
    """Break a line of a table at a width; what does not fit goes below its last column."""
    if len(line) <= width:
        return line
    columns = _COLUMNS.match(line)
    start = columns.group() if columns else ""
    return textwrap.fill(
        line[len(start) :],
        width,
        initial_indent=start,
        subsequent_indent=" " * (len(start) if 2 * len(start) <= width else 2),
        break_long_words=False,
        break_on_hyphens=False,
    )


def write_json(value: dict[str, Any]) -> None:
    """Write one JSON object to stdout, on one line."""
    write(json.dumps(value) + "\n")


def plural(number: int, noun: str, nouns: str = "") -> str:
    """Write a number with its noun: `1 file`, `3,000 files`."""
    return f"{number:,} {noun if number == 1 else nouns or noun + 's'}"


def format_bytes(number: int) -> str:
    """Write a size in powers of 1000: `270 MB`, `1.3 GB`."""
    for unit, name in ((10**9, "GB"), (10**6, "MB"), (10**3, "kB")):
        if number >= unit:
            return f"{number / unit:.{0 if number >= 10 * unit else 1}f} {name}"
    return f"{number} bytes"


def relative_to_cwd(path: str) -> str:
    """Make a path inside the current folder relative to it; leave others as they are."""
    return path.removeprefix(f"{str(Path.cwd()).rstrip('/')}/")


def ratio(count: float, over: float) -> float:
    """Divide `count` by `over`; 0 if `over` is 0."""
    return count / over if over else 0.0
