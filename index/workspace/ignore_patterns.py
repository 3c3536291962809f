"""The patterns of ignore files, as git matches them: bytes of paths, in linear time.

The patterns of a file become a few regular expressions of RE2, whose time is linear in the length
of a path, whatever the patterns are. A path is given without a "/" at its end; NUL, which no path
has, marks a folder.
"""

from __future__ import annotations

import string
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import re2

MAX_PATTERN_BYTES = 4096  # bytes of one line; the longest path has as many
# Wildcards: the cost of trying one path, where REGEX_WORK stands for a regular expression, and one
# for WILDCARD_BYTES.
MAX_WORK = 16_000
REGEX_WORK = 16
WILDCARD_BYTES = 128
CHUNK_BYTES = 4096  # bytes of patterns in one regular expression, so that each is small
MAX_REGEX_BYTES = 2 << 20  # bytes of memory for one regular expression and its matches
SMALL_BYTES = 8192  # bytes; a larger ignore file takes a place among MAX_LARGE
MAX_SMALL, MAX_LARGE = 32, 2  # compiled ignore files that are kept
BOM = b"\xef\xbb\xbf"
FOLDER = b"\0"

WILDCARDS = (b"*", b"?", b"[")
ANY = rb"[^/\x00]"  # a byte of a name
ANY_FOLDERS = rb"(?:[^\x00]*/)?"
EVERYTHING = rb"[^\x00]*"
# The bytes in each class of characters. git knows ASCII ones only.
CLASSES = {
    "alnum": string.ascii_letters + string.digits,
    "alpha": string.ascii_letters,
    "blank": " \t",
    "cntrl": "".join(map(chr, [*range(32), 127])),
    "digit": string.digits,
    "graph": string.ascii_letters + string.digits + string.punctuation,
    "lower": string.ascii_lowercase,
    "print": string.ascii_letters + string.digits + string.punctuation + " ",
    "punct": string.punctuation,
    "space": " \t\n\r",
    "upper": string.ascii_uppercase,
    "xdigit": string.hexdigits,
}


@dataclass(frozen=True, slots=True)
class IgnorePatterns:
    """The patterns of one ignore file."""

    runs: tuple[tuple[Any, bool], ...]  # (regex of neighbouring lines, whether they ignore)
    ignore_case: bool
    work: int  # at most `MAX_WORK`

    def decide(self, path: bytes) -> bool | None:
        """Return whether the last line that matches a path ignores it; None if none matches.

        The path is relative to the file's folder, and ends in `FOLDER` for a folder.
        """
        path = path.lower() if self.ignore_case else path
        for regex, ignores in self.runs:
            if regex.fullmatch(path):
                return ignores
        return None


def compile_patterns(data: bytes, ignore_case: bool = False) -> IgnorePatterns:
    """Compile the contents of an ignore file.

    ValueError if a line is too long, or matching takes too much work.
    """
    return (_small if len(data) <= SMALL_BYTES else _large)(data, ignore_case)


def _compile(data: bytes, ignore_case: bool) -> IgnorePatterns:
    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1  # every byte is a character
    options.max_mem = MAX_REGEX_BYTES
    options.log_errors = False  # RE2 names a lack of memory, and goes on in another way
    runs: list[tuple[Any, bool]] = []
    work = 0
    for run in _runs(data):
        work += run.wildcards + REGEX_WORK + run.size // WILDCARD_BYTES
        if work > MAX_WORK:
            raise ValueError("too many wildcards, or lines with and without ! by turns")
        if regex := run.regex(ignore_case):
            runs.append((re2.compile(regex, options), run.ignores))
    return IgnorePatterns(tuple(runs), ignore_case, work)


_small, _large = lru_cache(MAX_SMALL)(_compile), lru_cache(MAX_LARGE)(_compile)


@dataclass(slots=True)
class _Run:
    """Neighbouring lines that all ignore, or all do not."""

    ignores: bool
    size: int = 0  # bytes
    wildcards: int = 0
    lines: list[bytes] = field(default_factory=list)

    def add(self, line: bytes) -> None:
        self.lines.append(line)
        self.size += len(line)
        self.wildcards += sum(map(line.count, WILDCARDS))

    def regex(self, ignore_case: bool) -> bytes:
        """Return the regular expression of all lines; empty if none can match."""
        names: list[bytes] = []
        paths: list[bytes] = []
        for line in self.lines:
            text = line.removesuffix(b"/")
            end = rb"\x00?" if text == line else rb"\x00"  # a folder only
            if regex := _regex(text, ignore_case):
                (paths if b"/" in text else names).append(regex + end)
        if names:
            paths.append(ANY_FOLDERS + b"(?:" + b"|".join(names) + b")")
        return b"|".join(paths)


def _runs(data: bytes) -> Iterator[_Run]:
    """Yield the lines of an ignore file, the last ones first."""
    run = _Run(True)
    for line in reversed([*_lines(data)]):
        ignores, text = not line.startswith(b"!"), line.removeprefix(b"!")
        if run.lines and (ignores != run.ignores or run.size + len(text) > CHUNK_BYTES):
            yield run
            run = _Run(ignores)
        run.ignores = ignores
        run.add(text)
    if run.lines:
        yield run


def _lines(data: bytes) -> Iterator[bytes]:
    """Yield the lines that are patterns."""
    for number, raw in enumerate(data.removeprefix(BOM).split(b"\n"), 1):
        line = raw.removesuffix(b"\r").partition(b"\0")[0]  # git's lines end at a NUL
        if not line or line.startswith(b"#"):
            continue
        text = line.rstrip(b" ")
        if text != line and (len(text) - len(text.rstrip(b"\\"))) % 2:
            text += b" "  # escaped
        if len(text) > MAX_PATTERN_BYTES:
            raise ValueError(f"line {number} is over {MAX_PATTERN_BYTES:,} bytes")
        yield text


def _regex(text: bytes, ignore_case: bool) -> bytes:
    """Return the regular expression of a pattern; empty if it matches nothing."""
    in_path = b"/" in text
    text = text.removeprefix(b"/")
    start = min((at for at in map(text.find, (*WILDCARDS, b"\\")) if at >= 0), default=0)
    parts: list[bytes] = []
    at = 0
    while at < len(text):
        char, end = text[at : at + 1], at + 1
        if char == b"*":
            end = len(text) - len(text[at:].lstrip(b"*"))
            # After a literal start, too, git before 2.52 takes "**" for folders.
            free = at == start or text[at - 1 : at] == b"/"
            follows = text[end : end + 2]
            if not in_path or end == at + 1 or not free:
                parts.append(ANY + b"*")
            elif follows.startswith(b"/"):
                parts.append(ANY_FOLDERS)
                end += 1
            else:
                parts.append(EVERYTHING if follows in (b"", b"\\/") else ANY + b"*")
        elif char == b"?":
            parts.append(ANY)
        elif char == b"[":
            found = _bracket(text, at + 1, ignore_case)
            if found is None:
                return b""
            members, end = found
            parts.append(b"[" + b"".join(rb"\x%02x" % member for member in sorted(members)) + b"]")
        elif char == b"\\":
            if end == len(text):
                return b""
            parts.append(rb"\x%02x" % text[end])
            end += 1
        else:
            parts.append(rb"\x%02x" % (char.lower() if ignore_case else char)[0])
        at = end
    return b"".join(parts)


def _bracket(text: bytes, at: int, ignore_case: bool) -> tuple[set[int], int] | None:
    """Return the bytes that a bracket expression matches, and where it ends.

    None if it never matches. `at` is after its "[".
    """
    negated = text[at : at + 1] in (b"!", b"^")
    at += negated
    start, before = at, 0  # the byte before, which may start a range
    members: set[int] = set()
    while at == start or text[at : at + 1] != b"]":
        char = text[at : at + 1]
        if char == b"-" and before and text[at + 1 : at + 2] not in (b"", b"]"):
            at += 1 + (text[at + 1 : at + 2] == b"\\")
            if at >= len(text):
                return None
            members.update(range(before, text[at] + 1))
            if ignore_case:
                members.update(bytes(range(before, text[at] + 1)).lower())
            before = 0
        elif char == b"[" and (name := _class_name(text, at)) is not None:
            if name not in CLASSES:
                return None
            letters = CLASSES[name]
            members.update((letters.lower() + letters if ignore_case else letters).encode())
            at, before = at + len("[:") + len(name) + len(":"), 0
        else:
            at += char == b"\\"
            if at >= len(text):
                return None
            before = text[at]
            members.add(before)
        at += 1
    if negated:
        members = set(range(256)) - members
    members -= {0, ord("/")}
    return (members, at + 1) if members else None


def _class_name(text: bytes, at: int) -> str | None:
    """Return the name in "[:name:]"; None if this is none, and "" if "]" is missing."""
    if text[at + 1 : at + 2] != b":":
        return None
    end = text.find(b"]", at + 2)
    if end < 0:
        return ""
    inside = text[at + 2 : end]
    return inside[:-1].decode("latin-1") if inside.endswith(b":") else None
