"""Answers as Markdown, rendered on the server, so that nothing in them becomes other markup.

HTML, links and pictures in a text are shown as they were written; nothing is loaded. Places in the
text that are copied link to their sources.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape
from typing import Any, NamedTuple

from markdown_it import MarkdownIt
from markdown_it.token import Token
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_by_name

# Characters for private use mark where copies begin and end; no word and no markup has them.
BEGIN, END = "\ue000", "\ue001"
MARKS = str.maketrans("", "", BEGIN + END)
# The end of a line of a paragraph that goes on in the next one, such as those of a pdf
SOFT_BREAK = re.compile(r"(?<=[^\n]{40}[^\n.!?:])\n(?=[^\W\d])")
LONG_LINE = 40  # characters; a paragraph's line of so many goes on in the next one
# What begins a line and is markup: a copy begins behind it
LINE_MARKUP = re.compile(
    r"[ \t]*(?:(?:[-*+>|]|#{1,6}|\d{1,9}[.)])[ \t]+|\|)*(?:(?:```|~~~)[^\n]*\n)?"
)
AFTER_WORD = ".,;:!?%)\u20ac\u00b0\u3002\uff0c\uff1b"  # belongs to the word before
PARTS = re.compile(f"(<[^>]*>|[{BEGIN}{END}])")
LANGUAGES = frozenset(
    re.findall(
        r"\S+",
        "bash c c++ cpp css diff go html java javascript js json kotlin php py python ruby rust sh "
        "shell sql toml ts typescript xml yaml",
    )
)
# Nothing of a text is a link, a picture or HTML.
OFF = ("autolink", "entity", "html_block", "html_inline", "image", "link", "reference")
FORMAT = HtmlFormatter(nowrap=True, classprefix="t-")


class CitationLink(NamedTuple):
    """A link of code points `start:stop` of an answer to its source, element `NAME-NUMBER`."""

    start: int
    stop: int
    number: int
    name: str
    title: str

    def opened(self) -> str:
        id, title = f"{self.name}-{self.number}", escape(self.title, quote=True)
        return f'<a class="cite" href="#{id}" data-source="{id}" title="{title}">'


def rendered(text: str, links: Sequence[CitationLink] = (), is_code: bool = False) -> str:
    """Render a text. `links`: in order, without overlap; `is_code`: as one block of code."""
    if is_code:
        html = f"{_code(text.translate(MARKS), '')}{(BEGIN + END) * len(links)}"
        return _linked(html, links)
    marked, shown = _with_marks(text, links)
    tokens = PARSER.parse(marked)
    for token in tokens:
        if token.type.startswith("heading_"):  # the page's own come first
            token.tag = f"h{min(6, int(token.tag[1]) + 2)}"
        if token.type in ("td_open", "th_open"):
            token.attrs = {}
    return _linked(PARSER.renderer.render(tokens, PARSER.options, {}), shown)


def _with_marks(text: str, links: Sequence[CitationLink]) -> tuple[str, list[CitationLink]]:
    """Put marks around the words of each copy; also return the links of those that have words."""
    out, at, shown = [], 0, []
    for link in links:
        start = link.start
        if not text[text.rfind("\n", 0, start) + 1 : start].strip():
            markup = LINE_MARKUP.match(text, start)
            start = markup.end() if markup else start
        while start < link.stop and not text[start].isalnum():
            start += 1
        stop = link.stop
        while stop > start and not text[stop - 1].isalnum():
            stop -= 1
        while stop < link.stop and text[stop] in AFTER_WORD:
            stop += 1
        if start < stop:
            shown.append(link)
            out += [text[at:start].translate(MARKS), BEGIN, text[start:stop].translate(MARKS), END]
            at = stop
    return "".join([*out, text[at:].translate(MARKS)]), shown


def _linked(html: str, links: Sequence[CitationLink]) -> str:
    """Replace the marks in HTML by links around the words between them, numbered at their ends.

    Words outside of them are marked as the answer's own, if there are any links.
    """
    out: list[str] = []
    left = iter(links)
    link: CitationLink | None = None
    last = -1  # where `out` has the end of the last words of the link
    literal = ""  # the tag inside which words are left as they are
    for part in PARTS.split(html):
        if part == BEGIN:
            link, last = next(left, None), -1
        elif part == END:
            if link is not None:
                number = f"<sup>{link.number}</sup></a>"
                if last < 0:
                    out.append(f"{link.opened()}{number}")
                else:
                    out[last] = number
            link = None
        elif part.startswith("<"):
            if part.startswith(("<pre", "<button")):
                literal = part[1:].partition(" ")[0].rstrip(">")
            elif literal and part == f"</{literal}>":
                literal = ""
            out.append(part)
        elif literal or not part.strip():
            out.append(part)
        elif link is not None:
            last = len(out) + 2
            out += [link.opened(), part, "</a>"]
        elif links:
            out.append(f'<span class="own">{part}</span>')
        else:
            out.append(part)
    return "".join(out)


def _code(text: str, language: str) -> str:
    """Return a block of code with its colors and a button that copies it."""
    shown = escape(text)
    if language.lower() in LANGUAGES:
        lexer = get_lexer_by_name(language.lower(), stripnl=False, ensurenl=False)
        shown = highlight(text, lexer, FORMAT)
    return (
        '<div class="block"><button type="button" class="copy">Copy</button>'
        f'<pre tabindex="0"><code>{shown}</code></pre></div>'
    )


def _block(tokens: Sequence[Token], number: int, options: Any, env: Any) -> str:
    """Render a block of code; the marks in it follow it."""
    token = tokens[number]
    marks = "".join(sign for sign in token.content if sign in (BEGIN, END))
    words = token.info.translate(MARKS).split()
    return _code(token.content.translate(MARKS), words[0] if words else "") + marks


def _line_end(tokens: Sequence[Token], number: int, options: Any, env: Any) -> str:
    """Keep the end of a line, unless its paragraph goes on in the next one."""
    line = tokens[number - 1].content.translate(MARKS).rstrip() if number else ""
    return "\n" if len(line) >= LONG_LINE and line[-1] not in ".!?:;" else "<br>\n"


PARSER = MarkdownIt("commonmark", {"html": False}).enable("table").disable(list(OFF))
PARSER.renderer.rules |= {"fence": _block, "code_block": _block, "softbreak": _line_end}
