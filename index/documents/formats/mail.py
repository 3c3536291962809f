"""Mail, and pages that are saved as mail, as one page: headers, texts, and names of attachments.

Of several forms of a text, the page is taken; a forwarded mail has its own headers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from email import message_from_bytes
from email.errors import HeaderParseError
from email.header import decode_header
from email.message import Message
from html import escape

import webencodings
from selectolax.lexbor import LexborHTMLParser

from index.documents.formats.decoding import UNDECLARED

HEADERS = ("Subject", "From", "To", "Cc", "Date")
# Ends of lines that go on in the next one
FLOWED = re.compile(r"(?<!^--) \r?\n(?!>)", re.MULTILINE)


def page(data: bytes) -> str:
    """Return what a reader of a mail sees, as html."""
    return "\n".join(_message(message_from_bytes(data)))


def _message(message: Message) -> Iterator[str]:
    found = {name.title(): value for name, value in reversed([*message.raw_items()])}
    for name in filter(found.__contains__, HEADERS):
        yield f"<p><b>{name}</b>: {escape(_header(found[name]))}</p>"
    yield from _body(message)


def _body(part: Message) -> Iterator[str]:
    kind, content = part.get_content_type(), part.get_payload(decode=True)
    if part.is_multipart():
        parts = [each for each in part.get_payload() if isinstance(each, Message)]
        if kind == "multipart/alternative":
            parts = [each for each in parts if _has(each, "text/html")][:1] or parts[:1]
        for each in parts:
            yield from _message(each) if kind == "message/rfc822" else _body(each)
    elif part.get_content_disposition() == "attachment" or kind not in ("text/html", "text/plain"):
        if name := part.get_filename():
            yield f"<p>Attachment: {escape(_header(name))}</p>"
    elif isinstance(content, bytes):
        text = _decoded(content, part.get_content_charset("utf-8"))
        yield _inside(text) if kind == "text/html" else _lines(text, part)


def _has(part: Message, kind: str) -> bool:
    return any(each.get_content_type() == kind for each in part.walk())


def _inside(text: str) -> str:
    """Return the inside of a page, whatever it lacks or has too much of."""
    body = LexborHTMLParser(text).body
    return f"<div>{body.inner_html}</div>" if body is not None else ""


def _lines(text: str, part: Message) -> str:
    if part.get_param("format") == "flowed":
        text = FLOWED.sub(" ", text)
    return f"<p>{'<br>'.join(escape(text.strip()).splitlines())}</p>"


def _header(value: str) -> str:
    """Return a header's text; a malformed one as it is."""
    line = _decoded(value.encode(errors="surrogateescape"), "utf-8")
    line = line.replace("\r", "").replace("\n", "")
    try:
        words = decode_header(line)
    except HeaderParseError:
        return line
    return "".join(
        each if isinstance(each, str) else _decoded(each, label or "utf-8") for each, label in words
    )


def _decoded(content: bytes, label: str) -> str:
    """Return a part's text: UTF-8 too where a program says ASCII or Latin-1 without looking."""
    western = webencodings.lookup(UNDECLARED)
    declared = webencodings.lookup(label) or western
    if declared in (webencodings.UTF8, western):
        try:
            return content.decode()
        except UnicodeDecodeError:
            declared = western
    text: str = webencodings.decode(content, declared)[0]
    return text
