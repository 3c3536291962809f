"""Texts as tokens, so that answers are compared without regard to layout.

One scanner for all languages of the samples. White space, line breaks inside brackets, commas
before closing brackets and the kind of quotes do not count; in Python and Markdown the lines and
their indentation do. Neighbouring comment lines are one token.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import PurePath
from typing import NamedTuple

COMMENT, DOCSTRING, STRING, WORD, MARK, LINE, INDENT = (
    "comment", "docstring", "string", "word", "mark", "line", "indent",
)  # fmt: skip

_STRINGS = r"""(?P<string>(?i:\b[rbfu]{1,2})?(?:"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'))"""
_REST = r"""|(?P<word>\d[\w.]*|\w+)|(?P<line>\n[ \t\n]*)|(?P<space>[ \t\r]+)|(?P<mark>{marks}.)"""
_MARKS = r"=>|->|::|:=|==|!=|<=|>=|\+\+|--|&&|\|\||\?\?|\?\.|\*\*|//|\.\.\.|\.\.|[-+*/%&|^]=|"
_SLASHES = r"(?P<comment>//[^\n]*|/\*(?s:.*?)\*/)|"
_PYTHON = (
    r'(?P<comment>\#[^\n]*)|(?P<long>(?i:\b[rbfu]{1,2})?(?:"""(?s:.*?)"""|' + r"'''(?s:.*?)'''))|"
)
_TEMPLATE = r"(?P<template>`(?:[^`\\]|\\(?s:.))*`)|"
_RUST_CHARS = r"""(?P<string>b?"(?:[^"\\]|\\(?s:.))*"|b?'(?:[^'\\\n]|\\.)[^']{0,8}'(?!\w))"""
_SCANNERS = {
    "python": _PYTHON + _STRINGS,
    "typescript": _SLASHES + _TEMPLATE + _STRINGS,
    "go": _SLASHES + _TEMPLATE + _STRINGS,
    "c": _SLASHES + _STRINGS,
    "rust": _SLASHES + _RUST_CHARS,
}
SCANNERS = {
    language: re.compile(start + _REST.format(marks=_MARKS))
    for language, start in _SCANNERS.items()
}
LANGUAGES = {
    ".py": "python", ".ts": "typescript", ".go": "go", ".rs": "rust", ".c": "c",
    ".md": "markdown",
}  # fmt: skip
STRING_GROUPS = ("string", "long", "template")
OPENERS, CLOSERS = "([{", ")]}"


class Token(NamedTuple):
    kind: str
    text: str


def language_of(path: str) -> str:
    """Return the language of a sample, by its suffix."""
    return LANGUAGES[PurePath(path).suffix]


def tokens(language: str, text: str, free: Iterable[str] = ()) -> list[Token]:
    """Return the tokens of a text.

    The wording of comments or docstrings that are `free` is left out.
    """
    if language == "markdown":
        return _markdown(text)
    found = _scan(language, text)
    if language == "python":
        found = _docstrings(found)
    return [Token(one.kind, "...") if one.kind in free else one for one in _joined(found)]


def words(text: str) -> list[str]:
    """Return all words and numbers of a text, those of comments and strings included."""
    return re.findall(r"\w+", text)


def string_spans(language: str, text: str) -> list[tuple[int, int]]:
    """Return where the string literals of a text start, at the quote, and end."""
    if language == "markdown":
        return []
    strings = (one for one in SCANNERS[language].finditer(text) if one.lastgroup in STRING_GROUPS)
    return [(re.search("[\"'`]", one[0]).start() + one.start(), one.end()) for one in strings]


def _scan(language: str, text: str) -> list[Token]:
    found: list[Token] = []
    depth = 0
    for match in SCANNERS[language].finditer(f"\n{text}\n"):
        kind, what = match.lastgroup or "", match[0]
        if kind == "space":
            continue
        if kind == "line":
            if language == "python" and not depth:
                _end_line(found, what)
            continue
        if kind in STRING_GROUPS:
            found.append(Token(STRING, _quoted(what)))
        elif kind == "comment":
            found.append(Token(COMMENT, " ".join(what.split())))
        else:
            if what in CLOSERS:
                depth = max(0, depth - 1)
                if found and found[-1].text == ",":
                    found.pop()
            depth += what in OPENERS
            found.append(Token(WORD if kind == "word" else MARK, what))
    while found and found[-1].kind in (LINE, INDENT):
        found.pop()
    return found


def _end_line(found: list[Token], what: str) -> None:
    """Add a line's end and the indentation of the next one."""
    while found and found[-1].kind in (LINE, INDENT):
        found.pop()
    if found:
        found.append(Token(LINE, "\n"))
    width = len(what.rpartition("\n")[2].expandtabs(4))
    found.append(Token(INDENT, " " * width))


def _quoted(text: str) -> str:
    """Return a string literal with double quotes, where that is only a matter of style."""
    start = re.match(r"\w*", text)
    prefix = start[0].lower() if start else ""
    body = text[len(prefix) :]
    if body[:1] == "'" and body[:3] != "'''" and '"' not in body and "\\" not in body:
        body = f'"{body[1:-1]}"'
    return prefix + body


def _docstrings(found: list[Token]) -> list[Token]:
    """Strings that are statements of their own are docstrings."""
    made = []
    for at, one in enumerate(found):
        before, after = found[at - 1 : at], found[at + 1 : at + 2]
        alone = before and before[0].kind == INDENT and (not after or after[0].kind == LINE)
        made.append(Token(DOCSTRING, one.text) if one.kind == STRING and alone else one)
    return made


def _joined(found: list[Token]) -> list[Token]:
    """Comments that follow one another, as one."""
    made: list[Token] = []
    pending: list[Token] = []  # line ends since the last comment
    for one in found:
        if one.kind in (LINE, INDENT) and (pending or (made and made[-1].kind == COMMENT)):
            pending.append(one)
            continue
        if one.kind == COMMENT and made and made[-1].kind == COMMENT:
            made[-1] = Token(COMMENT, f"{made[-1].text} {one.text}")
            pending = []
            continue
        made += [*pending, one]
        pending = []
    return made + pending


def _markdown(text: str) -> list[Token]:
    """Return the lines of a Markdown text.

    Blank lines and the width of table cells do not count.
    """
    made = []
    for line in text.split("\n"):
        if not line.strip():
            continue
        indent = len(line) - len(line.lstrip())
        made.append(Token(INDENT, " " * indent))
        if line.lstrip().startswith("|"):
            cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
            line = " | ".join("---" if re.fullmatch(r":?-+:?", cell) else cell for cell in cells)
        made += [Token(WORD, word) for word in line.split()]
        made.append(Token(LINE, "\n"))
    return made
