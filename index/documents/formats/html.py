"""The visible text of an html page, parsed by selectolax: blocks, lists, table rows, headings.

Scripts, styles and hidden elements are left out; nothing is fetched.
"""

from __future__ import annotations

import re

from selectolax.lexbor import LexborHTMLParser, LexborNode

from index.documents.formats.blocks import Block, ParsedDocument, join_blocks

HEADINGS = frozenset({"h1", "h2", "h3", "h4", "h5", "h6"})
# fmt: off
SKIPPED = frozenset({
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


def read(data: bytes, max_chars: int) -> ParsedDocument:
    """Text and headings of a page in UTF-8. Raises ValueError with a remedy."""
    page = _Page(max_chars)
    root = LexborHTMLParser(data.decode()).root
    stack: list[tuple[LexborNode, bool]] = [(root, True)] if root is not None else []
    while stack:  # no recursion: nesting may be deep
        node, entering = stack.pop()
        tag = node.tag or "-"
        if not entering:
            page.leave(tag)
        elif tag == "-text":
            page.text(node.text_content or "")
        elif not tag.startswith("-") and not _is_hidden(node):
            page.enter(tag)
            stack.append((node, False))
            stack += [(child, True) for child in reversed(_children(node))]
    page.flush()
    return join_blocks(page.blocks)


def _children(node: LexborNode) -> list[LexborNode]:
    children = []
    child = node.child
    while child is not None:
        children.append(child)
        child = child.next
    return children


def _is_hidden(node: LexborNode) -> bool:
    if node.tag in SKIPPED:
        return True
    attributes = node.attributes
    # Sphinx puts a ¶ link with this class after each heading.
    return "hidden" in attributes or "headerlink" in (attributes.get("class") or "").split()


class _Page:
    """Collects the blocks of a page."""

    def __init__(self, max_chars: int) -> None:
        self.blocks: list[Block] = []
        self._chars_left = max_chars
        self._pieces: list[str] = []  # the open block's
        self._pre_depth = 0
        self._level = 0  # the open heading's
        self._prefix = ""  # the next block's
        self._tight = False

    def enter(self, tag: str) -> None:
        if tag in BLOCKS:
            self.flush()
            self._tight = self._tight or tag in TIGHT
        if tag == "li":
            self._prefix = "- "
        elif tag == "pre":
            self._pre_depth += 1
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
            self._pre_depth -= 1
        elif tag in HEADINGS:
            self._level = 0
        elif tag in TIGHT:
            self._tight, self._prefix = False, ""

    def text(self, text: str) -> None:
        self._chars_left -= len(text)
        if self._chars_left < 0:
            raise ValueError("contains too much text; split it")
        self._pieces.append(text if self._pre_depth else BLANK.sub(" ", text))

    def flush(self) -> None:
        """End the open block."""
        text = "".join(self._pieces)
        self._pieces = []
        if not self._pre_depth:
            text = "\n".join(re.sub(" {2,}", " ", line).strip() for line in text.split("\n"))
        if text.strip():
            self.blocks.append(Block(self._prefix + text, self._level, self._tight))
            self._prefix, self._level, self._tight = "", 0, False
