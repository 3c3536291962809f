"""What an html page shows, by selectolax: blocks, lists, rows of tables, headings.

Scripts, styles and hidden parts are left out, and nothing is fetched. Only formats/child.py and
tests import this.
"""

from __future__ import annotations

import re

from selectolax.lexbor import LexborHTMLParser, LexborNode

from index.documents.formats.blocks import Block, Read, joined

HEADINGS = frozenset({"h1", "h2", "h3", "h4", "h5", "h6"})
# fmt: off
LEFT_OUT = frozenset({
    "head", "script", "style", "noscript", "template", "svg", "math", "iframe", "object", "audio",
    "video", "canvas", "select", "textarea", "datalist",
})
BLOCKS = frozenset({
    "html", "body", "address", "article", "aside", "blockquote", "caption", "center", "dd",
    "details", "dialog", "div", "dl", "dt", "fieldset", "figcaption", "figure", "footer", "form",
    "header", "hr", "legend", "li", "main", "nav", "ol", "p", "pre", "search", "section",
    "summary", "table", "tbody", "tfoot", "thead", "tr", "ul",
}) | HEADINGS
# fmt: on
TIGHT = frozenset({"li", "tr", "dt", "dd"})
BLANK = re.compile(r"[ \t\n\r\f]+")


def read(data: bytes, longest: int) -> Read:
    """Text, no pages, headings. ValueError with a remedy."""
    page = _Page(longest)
    root = LexborHTMLParser(data.decode()).root
    left: list[tuple[LexborNode, bool]] = [(root, True)] if root is not None else []
    while left:  # no recursion: nesting has no limit
        node, entering = left.pop()
        tag = node.tag or "-"
        if not entering:
            page.leave(tag)
        elif tag == "-text":
            page.text(node.text_content or "")
        elif not tag.startswith("-") and not _hidden(node):
            page.enter(tag)
            left.append((node, False))
            left += [(child, True) for child in reversed(_children(node))]
    page.flush()
    return joined(page.blocks)


def _children(node: LexborNode) -> list[LexborNode]:
    found = []
    child = node.child
    while child is not None:
        found.append(child)
        child = child.next
    return found


def _hidden(node: LexborNode) -> bool:
    if node.tag in LEFT_OUT:
        return True
    attributes = node.attributes
    return "hidden" in attributes or "headerlink" in (attributes.get("class") or "").split()


class _Page:
    """The blocks so far, and the one being written."""

    def __init__(self, longest: int) -> None:
        self.blocks: list[Block] = []
        self._left = longest  # characters that may still come
        self._pieces: list[str] = []
        self._plain = 0  # open <pre>
        self._level = 0  # of the open heading
        self._mark = ""  # what the next block begins with
        self._tight = False

    def enter(self, tag: str) -> None:
        if tag in BLOCKS:
            self.flush()
            self._tight = self._tight or tag in TIGHT
        if tag == "li":
            self._mark = "- "
        elif tag == "pre":
            self._plain += 1
        elif tag == "br":
            self._pieces.append("\n")
        elif tag in ("td", "th") and any(map(str.strip, self._pieces)):
            self._pieces.append(" | ")
        elif tag in HEADINGS:
            self._level = int(tag[1])

    def leave(self, tag: str) -> None:
        if tag in BLOCKS:
            self.flush()
        if tag == "pre":
            self._plain -= 1
        elif tag in HEADINGS:
            self._level = 0
        elif tag in TIGHT:
            self._tight, self._mark = False, ""

    def text(self, text: str) -> None:
        self._left -= len(text)
        if self._left < 0:
            raise ValueError("holds too much text; split it")
        self._pieces.append(text if self._plain else BLANK.sub(" ", text))

    def flush(self) -> None:
        """End the block that is being written."""
        text = "".join(self._pieces)
        self._pieces = []
        if not self._plain:
            text = "\n".join(re.sub(" {2,}", " ", line).strip() for line in text.split("\n"))
        if text.strip():
            self.blocks.append(Block(self._mark + text, self._level, self._tight))
            self._mark, self._level, self._tight = "", 0, False
