"""The paragraph, list, definition or code around a sentence.

For questions that request a passage as it stands ("Quote the warning about ...", "Give the code of
..."). The model is not involved.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

MAX_BLOCK_CHARS = 1500
FENCES = ("```", "~~~")
WHOLE = re.compile(
    r"\b(?:quote|verbatim|word for word|complete|entire|list of|"  # English
    r"zitier\w*|wörtlich\w*|vollständig\w*|liste (?:der|aller)|"  # German
    r"cite[rz]?|mot (?:à|pour) mot|complète?|liste des)\b|"  # French
    r"引用|原文|全文|完整|列出|逐字",  # Chinese
    re.IGNORECASE,
)
CODE = re.compile(
    r"\b(?:code|snippet|command|line|beispielcode|quelltext|befehl|zeile|commande|ligne)\b|"
    r"代码|源码|命令",
    re.IGNORECASE,
)
BULLET = re.compile(r"[ \t]*(?:[-*+\u2022]|\d{1,9}[.)])[ \t]")


class Paragraph(NamedTuple):
    """Code points `start:stop` of a text, lines without a blank one."""

    start: int
    stop: int
    text: str

    @property
    def indented(self) -> bool:
        return self.text[:1] in " \t"

    @property
    def listed(self) -> bool:
        return bool(BULLET.match(self.text))

    @property
    def is_code_mark(self) -> bool:
        """Return whether code begins here: a directive of reStructuredText, or a fence."""
        return self.text.startswith((".. code", ".. source", *FENCES))


def asks_for_block(question: str) -> bool:
    """Return whether a question is for a passage, a list or code as it stands."""
    return bool(WHOLE.search(question) or asks_for_code(question))


def asks_for_code(question: str) -> bool:
    """Return whether a question is for code or a command."""
    return bool(CODE.search(question))


def block_around(text: str, start: int, stop: int, with_code: bool) -> tuple[int, int]:
    """Return the code points of the block around `start:stop`.

    It is the list or the definition that it is a part of, or its paragraph; `with_code`: and the
    code below it. `start:stop` itself if the block has more than MAX_BLOCK_CHARS.
    """
    near = list(_paragraphs(text, max(0, start - MAX_BLOCK_CHARS), stop + MAX_BLOCK_CHARS))
    inside = [number for number, one in enumerate(near) if one.start < stop and start < one.stop]
    if not inside:
        return start, stop
    above, below = inside[0], inside[-1]
    paragraph = near[above].start, near[below].stop
    while above > 0 and _belong_together(near[above - 1], near[above], with_code):
        above -= 1
    while below + 1 < len(near) and _belong_together(near[below], near[below + 1], with_code):
        below += 1
    end = near[below].stop
    if near[below].text.startswith(FENCES):
        closing = text.find(f"\n{near[below].text[:3]}", near[below].start)
        end = max(end, closing + 4) if closing >= 0 else end
    for first, last in ((near[above].start, end), paragraph):
        first, last = min(first, start), max(last, stop)
        if last - first <= MAX_BLOCK_CHARS:
            return first, last
    return start, stop


def _belong_together(one: Paragraph, after: Paragraph, with_code: bool) -> bool:
    """Return whether two paragraphs in a row are of one list, definition or code."""
    if after.listed:
        return one.listed or one.indented or one.text.rstrip().endswith(":")
    return after.indented or (with_code and after.is_code_mark)


def _paragraphs(text: str, start: int, stop: int) -> Iterator[Paragraph]:
    """Yield the paragraphs of a part of a text; the first and the last one may be cut."""
    begin = None
    at = start
    for line in text[start:stop].splitlines(keepends=True):
        if not line.strip():
            if begin is not None:
                yield Paragraph(begin, at, text[begin:at])
            begin = None
        elif begin is None:
            begin = at
        at += len(line)
    if begin is not None:
        yield Paragraph(begin, at, text[begin:at])
