"""Rewrites mail, and pages that are saved as mail, so that xberg reads what a reader sees.

Hidden text is removed, which xberg leaves out of pages only, and texts get their real encoding.
"""

from __future__ import annotations

import re
from email import message_from_bytes

import webencodings
from selectolax.lexbor import LexborHTMLParser

from index.documents.formats.decoding import UNDECLARED

UNSEEN = "script, style, noscript, template, [hidden]"
UNSEEN_STYLE = re.compile(
    r"display\s*:\s*none|visibility\s*:\s*hidden|(?:font-size|opacity)\s*:\s*0(?![.\d]*[1-9])", re.I
)


def complete(data: bytes) -> bytes:
    """Return a mail whose texts are UTF-8, and whose pages have only what is seen of them."""
    message = message_from_bytes(data)
    is_changed = False
    for part in message.walk():
        content = part.get_payload(decode=True)
        kind = part.get_content_type()
        if kind not in ("text/html", "text/plain") or not isinstance(content, bytes):
            continue
        text = _decoded(content, part.get_content_charset("utf-8"))
        if kind == "text/html":
            tree = LexborHTMLParser(text)
            for node in reversed(tree.css(f"{UNSEEN}, [style]")):  # inner ones first
                if node.css_matches(UNSEEN) or UNSEEN_STYLE.search(node.attributes["style"] or ""):
                    node.decompose()
            text = tree.html or ""
        del part["Content-Transfer-Encoding"]
        part.set_payload(text, "utf-8")
        is_changed = True
    return message.as_bytes() if is_changed else data


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
