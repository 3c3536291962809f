"""Messages out of a stream of bytes: `Content-Length: N`, other headers, an empty line, N bytes.

After garbage, a header or a body that was cut short, or a body that is too large it goes on at the
next header: none can stand in a JSON body, where line ends in texts are escaped. Does no I/O.
"""

from __future__ import annotations

import re

LARGEST = 64 << 20  # bytes of a body
LINE = 1 << 13  # bytes of a header line at most; of more only the end is kept
TAIL = 1 << 7  # bytes in which the start of a header may stand
LENGTH = re.compile(rb"(.*)content-length[ \t]*:[ \t]*(.*?)[ \t]*", re.IGNORECASE | re.DOTALL)
NEXT = re.compile(rb"content-length[ \t]*:[ \t]*\d+\r?\n", re.IGNORECASE)
HEADER = re.compile(rb"[!-9;-~]+[ \t]*:[^\0]*")
HTTP = re.compile(rb"[A-Z]+ .* HTTP/\d(\.\d)?")


class NotLsp(ConnectionError):
    """The other side speaks HTTP: it may be a web page, which has no business here."""


class Unreadable(ValueError):
    """Bytes that are no message; they are told once, with what comes after them up to the next."""


class Frames:
    """The reading side of one connection."""

    def __init__(self) -> None:
        self._data = bytearray()
        self._length: int | None = None  # of the body, once a header said it
        self._in_body = False
        self._seen = 0  # bytes of the body in which no header stands
        self._lost = False  # bytes were passed over since the last body

    def feed(self, data: bytes) -> list[bytes | Unreadable]:
        """The bodies that are whole now. Raises NotLsp."""
        self._data += data
        found: list[bytes | Unreadable] = []
        at = 0
        while True:
            if self._in_body:
                stop = at + (self._length or 0)
                if (header := self._header_within(at, stop)) is not None:
                    at, self._length, self._in_body = header, None, False
                    found += self._lose("a message is shorter than its Content-Length")
                    continue
                if len(self._data) < stop:
                    break
                found.append(bytes(self._data[at:stop]))
                at, self._length, self._in_body, self._lost = stop, None, False, False
                self._seen = 0
                continue
            stop = self._data.find(b"\n", at, at + LINE)
            if stop < 0:
                if len(self._data) - at < LINE:
                    break
                found += self._lose("a header line is too long")
                at += LINE - TAIL
                continue
            found += self._header(bytes(self._data[at:stop]).removesuffix(b"\r"))
            at = stop + 1
        del self._data[:at]
        return found

    def _header_within(self, start: int, stop: int) -> int | None:
        """Where a header stands in what should be a body; then its own was cut short."""
        end = self._data.find(b"\n", start + self._seen, stop)  # few bodies have any
        header = NEXT.search(self._data, max(start, end - TAIL), stop) if end >= 0 else None
        self._seen = 0 if header else max(0, min(len(self._data), stop) - start - TAIL)
        return header.start() if header else None

    def _header(self, line: bytes) -> list[Unreadable]:
        """Take one line of a header, or of garbage."""
        if HTTP.fullmatch(line):
            raise NotLsp("HTTP, not the language server protocol")
        if not line:
            if self._length is not None:
                self._in_body = True
                return []
            return self._lose("a header has no Content-Length")
        if match := LENGTH.fullmatch(line):  # garbage may stand before it in its line
            wrong = self._lose("bytes before a header") if match[1] else []
            self._length = None
            if not re.fullmatch(rb"\d{1,18}", match[2]):
                return wrong + self._lose("Content-Length is not a number")
            if int(match[2]) > LARGEST:
                return wrong + self._lose(f"a message is over {LARGEST >> 20} MB")
            self._length = int(match[2])
            return wrong
        return [] if HEADER.fullmatch(line) else self._lose("bytes that are no header")

    def _lose(self, reason: str) -> list[Unreadable]:
        """Told once for all that is passed over together."""
        if self._lost:
            return []
        self._lost = True
        return [Unreadable(f"{reason}: send `Content-Length: N`, an empty line and N bytes")]


def framed(body: bytes) -> bytes:
    """A body as it goes over the wire."""
    return b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
