"""Removes from mail, and from pages that are saved as mail, the text that a reader does not see.

xberg leaves it out of pages only.
"""

from __future__ import annotations

import re
from email import message_from_bytes

import webencodings
from selectolax.lexbor import LexborHTMLParser

UNSEEN = "script, style, noscript, template, [hidden]"
UNSEEN_STYLE = re.compile(
    r"display\s*:\s*none|visibility\s*:\s*hidden|(?:font-size|opacity)\s*:\s*0(?![.\d]*[1-9])", re.I
)


def complete(data: bytes) -> bytes:
    """Return a mail whose pages have only what is seen of them."""
    message = message_from_bytes(data)
    is_changed = False
    for part in message.walk():
        content = part.get_payload(decode=True)
        if part.get_content_type() != "text/html" or not isinstance(content, bytes):
            continue
        declared = webencodings.lookup(part.get_content_charset("utf-8"))
        text, _ = webencodings.decode(content, declared or webencodings.UTF8)
        tree = LexborHTMLParser(text)
        for node in reversed(tree.css(f"{UNSEEN}, [style]")):  # inner ones first
            if node.css_matches(UNSEEN) or UNSEEN_STYLE.search(node.attributes["style"] or ""):
                node.decompose()
        del part["Content-Transfer-Encoding"]
        part.set_payload(tree.html or "", "utf-8")
        is_changed = True
    return message.as_bytes() if is_changed else data
