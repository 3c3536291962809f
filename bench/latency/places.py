"""Places in a document: positions as the protocol counts them, and function bodies taken out."""

from __future__ import annotations

import ast
import random
import re
from dataclasses import dataclass

SEED = 20261121
STROKE = re.compile(r"\n[\n \t]*|[^\n]")  # a line break includes the next line's indentation


@dataclass(frozen=True)
class Stretch:
    """A part of a text that was taken out."""

    text: str  # the whole
    start: int
    stop: int

    @property
    def removed(self) -> str:
        return self.text[: self.start] + self.text[self.stop :]

    def strokes(self) -> list[str]:
        """Return the text of each keystroke."""
        return STROKE.findall(self.text[self.start : self.stop])


def position(text: str, offset: int) -> dict[str, int]:
    """Return the LSP position of an offset, in UTF-16; lines end in "\\n" only."""
    start = text.rfind("\n", 0, offset) + 1
    column = len(text[start:offset].encode("utf-16-le")) // 2
    return {"line": text.count("\n", 0, offset), "character": column}


def bodies(text: str, least: int) -> list[Stretch]:
    """Find function bodies without docstrings of at least `least` keystrokes."""
    starts = [0]
    for line in text.split("\n"):
        starts.append(starts[-1] + len(line) + 1)

    def offset(line: int, column: int) -> int:  # ast counts lines from 1 and bytes of UTF-8
        start = starts[line - 1]
        return start + len(text[start : starts[line]].encode()[:column].decode())

    found = []
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        body = node.body[1:] if ast.get_docstring(node) is not None else node.body
        if body:
            first, last = body[0], body[-1]
            assert last.end_lineno and last.end_col_offset is not None
            start = offset(first.lineno, first.col_offset)
            stretch = Stretch(text, start, offset(last.end_lineno, last.end_col_offset))
            if len(stretch.strokes()) >= least:
                found.append(stretch)
    return sorted(found, key=lambda one: one.start)


def sample_stretches(text: str, count: int, least: int) -> list[Stretch]:
    """Return a fixed sample of `count` bodies. Raises ValueError if the file has too few."""
    found = bodies(text, least)
    if len(found) < count:
        raise ValueError(f"{len(found)} function bodies of {least} keystrokes, {count} needed")
    return random.Random(SEED).sample(found, count)
