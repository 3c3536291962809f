"""A diff without the changes of files that may hold secrets, whatever options git made it with."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import pairwise, takewhile

Why = Callable[[str, str], str | None]  # (name, text) -> why it may hold secrets

COLOUR = re.compile(r"\x1b\[[0-9;]*[mK]")
FILE = re.compile(r"^diff |^--- .+\n\+\+\+ .+\n@@", re.MULTILINE)  # where a file's part begins
CHANGES = re.compile(r"^(?:@@|GIT binary patch$)", re.MULTILINE)  # what follows a file's head
# Lines of a file's head: one name follows, or two with a blank between them
NAME = re.compile(
    r"^(?:---|\+\+\+|(?:rename|copy) (?:from|to)|diff --(?:cc|combined)) (.+)$", re.MULTILINE
)
NAMES = re.compile(r"^(?:diff --git (.+)|Binary files (.+) differ)$", re.MULTILINE)
PREFIX = re.compile(r"[a-z]/")  # git writes it before names
QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"')
ESCAPE = re.compile(rb"\\([0-7]{1,3}|.)", re.DOTALL)
CONTROL = dict(zip(b"abtnvfr", b"\a\b\t\n\v\f\r", strict=True))  # letter of an escape -> character
LINE = re.compile(r" in line \d+$")  # in a reason: a line of the diff, not of the file
MAX_BLANKS = 64  # blanks at which a line of two names may be split
MIN_LINE_CHARS = 8  # characters; shorter lines do not tell where they were copied from


def without_secrets(diff: str, why: Why) -> tuple[str, list[str]]:
    """Drop the changes of files that may hold secrets by their names or in what has changed.

    Returns the rest of the diff, "" if nothing else is left, and a line for each of these files.
    Binary changes are left out as well.
    """
    diff = COLOUR.sub("", diff)
    parts = [_Part(part) for part in _parts(diff)]
    named = {part: found for part in parts if (found := part.why_named(why))}
    secrets = {line for part in named for line in part.lines()}
    kept: list[str] = []
    left_out: dict[str, None] = {}
    for part in parts:
        found = named.get(part) or part.why_text(why)
        if not found and not secrets.isdisjoint(part.lines()):
            found = "has lines of a file that may hold secrets"
        if found:
            left_out[f"{part.shown}: {LINE.sub('', found)}"] = None
        else:
            kept.append(part.text if part.is_text else part.head)
    left = "".join(kept)
    return left if left.strip() else "", [*left_out]


def _parts(diff: str) -> Iterator[str]:
    """Cut a diff before each file, so that what precedes the first one is a part as well."""
    starts = [0]
    for found in FILE.finditer(diff):
        follows_head = not CHANGES.search(diff, starts[-1], found.start())
        if found[0] == "diff " or not follows_head:
            starts.append(found.start())
    for start, stop in pairwise([*starts, len(diff)]):
        yield diff[start:stop]


class _Part:
    """The part of a file in a diff."""

    def __init__(self, text: str) -> None:
        changes = CHANGES.search(text)
        self.text, self.is_text = text, changes is None or changes[0] == "@@"
        self.head = text[: changes.start()] if changes else text
        self._names = [*_names(self.head)]

    @property
    def shown(self) -> str:
        """The file's name for the user."""
        return _shown(self.head)

    def why_named(self, why: Why) -> str | None:
        """Say why the file may hold secrets by one of what may be its names.

        None if it does not seem to.
        """
        reasons = (why(name, "") for name in self._names)
        return next((reason for reason in reasons if reason), None)

    def why_text(self, why: Why) -> str | None:
        """Say why the lines may hold secrets: as in the diff, as they were, or as they are now.

        None if they do not seem to, or if the file is exempt.
        """
        lines = self.text.split("\n")
        old, new = (
            "\n".join(line[1:] for line in lines if line[:1] in ("", " ", mark)) for mark in "-+"
        )
        for text in (self.text, old, new):
            found = why("", text)
            if found and all(why(name, text) for name in self._names):
                return found
        return None

    def lines(self) -> set[str]:
        """Collect the lines that tell where they come from."""
        changes = self.text[len(self.head) :].split("\n")
        lines = {change[1:].strip() for change in changes if change[:1] in ("+", "-", " ")}
        return {line for line in lines if len(line) >= MIN_LINE_CHARS}


def _names(head: str) -> Iterator[str]:
    """Find what may be the names of a file, with and without git's prefixes."""
    for line in NAME.findall(head):
        yield from _forms(_unquoted(line))
    for line in _pairs(head):
        for one, other in _parted(line):
            yield from (*_forms(one), *_forms(other), _common_end(one, other))


def _pairs(head: str) -> list[str]:
    return [one or other for one, other in NAMES.findall(head)]


def _parted(line: str) -> list[tuple[str, str]]:
    """List the ways to read a line as two names."""
    blanks = [*re.finditer(r" (?:and )?", line)][:MAX_BLANKS]
    parts = [(line[: blank.start()], line[blank.end() :]) for blank in blanks]
    return [(_unquoted(one), _unquoted(other)) for one, other in (*parts, (line, line))]


def _forms(name: str) -> list[str]:
    """Return a name as it is written, and without its first folder, which may be a prefix."""
    return [name, name.partition("/")[2]] if "/" in name else [name]


def _common_end(one: str, other: str) -> str:
    """Return the common end of two names, which is without their prefixes."""
    pairs = zip(reversed(one), reversed(other), strict=False)
    same = takewhile(lambda pair: pair[0] == pair[1], pairs)
    return "".join(char for char, _ in same)[::-1]


def _unquoted(name: str) -> str:
    """Decode a name that git may have quoted, in UTF-8."""
    name = name.rstrip("\t\r")
    found = QUOTED.fullmatch(name)
    return ESCAPE.sub(_unescaped, found[1].encode()).decode("utf-8", "replace") if found else name


def _unescaped(found: re.Match[bytes]) -> bytes:
    escape = found[1]
    is_number = escape[0] in b"01234567"
    return bytes([int(escape, 8) & 0xFF if is_number else CONTROL.get(escape[0], escape[0])])


def _shown(head: str) -> str:
    """Find a file's name for the user."""
    names = [name for line in NAME.findall(head) if (name := _unquoted(line)) != "/dev/null"]
    for line in () if names else _pairs(head):
        pairs = [(one, other) for one, other in _parted(line) if one != other or " " not in one]
        names += [max(pairs, key=lambda pair: len(_common_end(*pair)))[1]] if pairs else []
    return PREFIX.sub("", names[-1], count=1) if names else "the diff"
