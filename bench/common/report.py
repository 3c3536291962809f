"""Reports of benchmarks: progress on stderr, tables and JSON on stdout, a results file."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

VALUE_CHARS = 100  # characters; shorter values of a record stay on one line
ROW_CHARS = 1000  # characters; so do shorter rows of its tables

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table


def say(text: str) -> None:
    """Print a line on stderr."""
    print(text, file=sys.stderr, flush=True)


def progress(what: str, index: int, total: int, task: str, method: str) -> None:
    """Show the current step: a single line that is overwritten on a terminal, lines elsewhere."""
    line = f"{index + 1}/{total} {task}, {method}, {what}"
    if sys.stderr.isatty():
        print(f"\r\x1b[K{line}", end="", file=sys.stderr, flush=True)
    else:
        say(line)


def clear_progress() -> None:
    """Erase the progress line of a terminal."""
    if sys.stderr.isatty():
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def console(width: int) -> Console:
    """Make a console on stdout, `width` characters wide where stdout is not a terminal."""
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else width)


def console_with_header(record: dict[str, Any], width: int, how: str) -> Console:
    """Make a console, and print the model, the machine and the method on it."""
    clear_progress()
    found, known = console(width), record["machine"]
    found.print(
        f"{record['model']} on {known.get('gpu') or known['cpu']}, {record['threads']} threads, "
        f"{known['instructions']}; {how}"
    )
    return found


def table(title: str, heads: str, lines: list[list[str]]) -> Table:
    """Make a table whose column titles are the words of `heads`."""
    from rich.markup import escape
    from rich.table import Table

    made = Table(title=title, title_justify="left")
    for name in heads.split():
        made.add_column(name, overflow="fold")
    for line in lines:
        made.add_row(*map(escape, line))
    return made


def interval(line: dict[str, Any], value: str, prefix: str) -> str:
    """Write a value and its confidence interval, "1.50 [1.40, 1.60]"; "" if not measured."""
    if line[value] is None:
        return ""
    return f"{line[value]:.2f} [{line[prefix + 'low']:.2f}, {line[prefix + 'high']:.2f}]"


def write_json(path: Path, record: dict[str, Any]) -> None:
    """Write a record to a file atomically."""
    write_text(path, formatted(record) + "\n")


def formatted(value: Any, levels: int = 2, indent: str = "") -> str:
    """JSON with a row of each table on a line: long values of the upper levels are split."""
    line = json.dumps(value)
    if not isinstance(value, dict | list) or len(line) <= (VALUE_CHARS if levels else ROW_CHARS):
        return line
    deeper, below = indent + " ", max(levels - 1, 0)
    if isinstance(value, dict):
        parts = [f"{json.dumps(key)}: {formatted(value[key], below, deeper)}" for key in value]
    else:
        parts = [formatted(each, below, deeper) for each in value]
    opening, closing = "{}" if isinstance(value, dict) else "[]"
    return f"{opening}\n{deeper}" + f",\n{deeper}".join(parts) + f"\n{indent}{closing}"


def write_text(path: Path, text: str) -> None:
    """Write a file atomically, and its folder if there is none."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name)
    with os.fdopen(handle, "w", encoding="utf-8") as out:
        out.write(text)
    Path(temporary).chmod(0o644)
    Path(temporary).replace(path)
    say(f"wrote {path}")


def print_json_line(record: dict[str, Any]) -> None:
    """Print the record as the last line of stdout."""
    print(json.dumps(record), flush=True)
