"""Splitting a byte stream into messages.

A message is `Content-Length: N`, other headers, an empty line, N bytes.

pygls's reader matches one spelling of the header, waits forever for the rest of a truncated body,
and reads lines of any length. This one resumes at the next header after garbage, a truncated header
or body, or a body that is too large: a header cannot be part of a JSON body, where line ends in
strings are escaped. Does no I/O.
"""

from __future__ import annotations

import re

MAX_BODY_BYTES = 16 << 20
MAX_LINE_BYTES = 1 << 13  # bytes of a header's line; a longer one keeps only its end
TAIL_BYTES = 1 << 7  # bytes at the end of garbage that may be the start of a header
# Possessive quantifiers: no input makes these backtrack.
LENGTH = re.compile(rb"content-length[ \t]*+:[ \t]*+([^ \t]*+)[ \t]*+\Z", re.IGNORECASE)
NEXT_HEADER = re.compile(rb"content-length[ \t]*+:[ \t]*+\d++\r?+\n", re.IGNORECASE)
OTHER_HEADER = re.compile(rb"[!-9;-~]++[ \t]*+:[^\0]*+")


class NotLsp(ConnectionError):
    """The client speaks HTTP: it may be a web page, which must not connect."""


class Unreadable(ValueError):
    """Bytes that are no message. Reported once for everything up to the next message."""


class Frames:
    """The reading side of one connection."""

    def __init__(self) -> None:
        self._data = bytearray()
        self._length: int | None = None  # bytes of the body, once a header gave it
        self._in_body = False
        self._scanned = 0  # bytes of the body known to contain no header
        self._skipping = False  # bytes were skipped since the last body

    def feed(self, data: bytes) -> list[bytes | Unreadable]:
        """Return the bodies completed by `data`.

        Raises NotLsp.
        """
        self._data += data
        found: list[bytes | Unreadable] = []
        at = 0
        while True:
            if self._in_body:
                stop = at + (self._length or 0)
                if (header := self._header_within(at, stop)) is not None:
                    at, self._length, self._in_body = header, None, False
                    found += self._skip("a message is shorter than its Content-Length")
                    continue
                if len(self._data) < stop:
                    break
                found.append(bytes(self._data[at:stop]))
                at, self._length, self._in_body, self._skipping = stop, None, False, False
                self._scanned = 0
                continue
            stop = self._data.find(b"\n", at, at + MAX_LINE_BYTES)
            if stop < 0:
                if len(self._data) - at < MAX_LINE_BYTES:
                    break
                found += self._skip("a header line is too long")
                at += MAX_LINE_BYTES - TAIL_BYTES
                continue
            found += self._header(bytes(self._data[at:stop]).removesuffix(b"\r"))
            at = stop + 1
        del self._data[:at]
        return found

    def _header_within(self, start: int, stop: int) -> int | None:
        """Find a header inside what should be a body: the body was truncated.

        Returns its position.
        """
        end = self._data.find(b"\n", start + self._scanned, stop)  # few bodies have any
        begin = max(start, end - TAIL_BYTES)
        header = NEXT_HEADER.search(self._data, begin, stop) if end >= 0 else None
        seen = min(len(self._data), stop) - start - TAIL_BYTES
        self._scanned = 0 if header else max(0, seen)
        return header.start() if header else None

    def _header(self, line: bytes) -> list[Unreadable]:
        """Handle one line of a header, or of garbage."""
        words = line.split(b" ")
        if len(words) > 2 and words[0].isupper() and words[-1].startswith(b"HTTP/"):
            raise NotLsp("HTTP, not the language server protocol")
        if not line:
            if self._length is not None:
                self._in_body = True
                return []
            return self._skip("a header has no Content-Length")
        if match := LENGTH.search(line):  # garbage may precede it in its line
            problems = self._skip("bytes before a header") if match.start() else []
            self._length = None
            if not match[1].isdigit() or len(match[1]) > 18:
                return problems + self._skip("Content-Length is not a number")
            if int(match[1]) > MAX_BODY_BYTES:
                return problems + self._skip(f"a message is over {MAX_BODY_BYTES >> 20} MB")
            self._length = int(match[1])
            return problems
        return [] if OTHER_HEADER.fullmatch(line) else self._skip("bytes that are no header")

    def _skip(self, reason: str) -> list[Unreadable]:
        """Report the first of the problems since the last body."""
        if self._skipping:
            return []
        self._skipping = True
        return [Unreadable(f"{reason}: send `Content-Length: N`, an empty line and N bytes")]


def framed(body: bytes) -> bytes:
    """Prefix a body with its header."""
    return b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
