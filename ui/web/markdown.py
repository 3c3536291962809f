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

# Two characters for private use mark where each copy begins and ends; a text's own are left out.
PRIVATE = re.compile("[\ue000-\uf8ff]")
FIRST_MARK, MAX_LINKS = 0xE000, 3000
# What begins a line and is markup: the mark of a copy that begins there comes after it.
LINE_MARKUP = re.compile(
    r"[ \t]*(?:(?:[-*+>|]|#{1,6}|\d{1,9}[.)])[ \t]+|\|)*(?:(?:```|~~~)[^\n]*\n)?"
)
PARTS = re.compile(f'(<div class="block">.*?</div>|<[^>]*>|{PRIVATE.pattern})', re.DOTALL)
LANGUAGES = {
    *("bash", "c", "c++", "cpp", "css", "diff", "go", "html", "java", "javascript", "js", "json"),
    *("kotlin", "php", "py", "python", "ruby", "rust", "sh", "shell", "sql", "toml", "ts", "xml"),
    *("typescript", "yaml"),
}
OFF = ("autolink", "entity", "html_block", "html_inline", "image", "link", "reference")


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

    def closed(self) -> str:
        return f"<sup>{self.number}</sup></a>"


def rendered(text: str, links: Sequence[CitationLink] = (), code: str | None = None) -> str:
    """Render a text. `links`: in order, without overlap; `code`: the language if it is all code."""
    if code is not None:
        return _code(text, code) + "".join(f"{link.opened()}{link.closed()}" for link in links)
    links = links[:MAX_LINKS]
    tokens = PARSER.parse(_with_marks(text, links))
    for token in tokens:
        if token.type.startswith("heading_"):  # the page's own come first
            token.tag = f"h{min(6, int(token.tag[1]) + 2)}"
        token.attrs.pop("style", None)  # how a column is aligned
    return _linked(PARSER.renderer.render(tokens, PARSER.options, {}), links)


def _with_marks(text: str, links: Sequence[CitationLink]) -> str:
    """Put marks around the words of each copy that has words."""
    out, at = [], 0
    for number, link in enumerate(links):
        line = LINE_MARKUP.match(text, text.rfind("\n", 0, link.start) + 1)
        start, stop = max(link.start, line.end() if line else 0), link.stop
        while start < stop and not text[start].isalnum():
            start += 1
        while start < stop and not text[stop - 1].isalnum():
            stop -= 1
        if start < stop:
            begin, end = (chr(FIRST_MARK + 2 * number + which) for which in (0, 1))
            out += [_own(text[at:start]), begin, _own(text[start:stop]), end]
            at = stop
    return "".join([*out, _own(text[at:])])


def _own(text: str) -> str:
    """Return a text without marks."""
    return PRIVATE.sub("", text)


def _linked(html: str, links: Sequence[CitationLink]) -> str:
    """Replace the marks in HTML by links around the words between them, numbered at their ends.

    Words outside of them are marked as the answer's own, if there are any links.
    """
    out: list[str] = []
    link: CitationLink | None = None
    last = -1  # where `out` has the end of the last words of the link
    for part in PARTS.split(html):
        if PRIVATE.fullmatch(part):
            number, is_end = divmod(ord(part) - FIRST_MARK, 2)
            if not is_end:
                link = links[number]
                continue
            if last < 0:
                out += [links[number].opened(), ""]
            out[last] = links[number].closed()
            link, last = None, -1
        elif part.startswith("<") or not any(map(str.isalnum, part)):
            out.append(part)
        elif link:
            last = len(out) + 2
            out += [link.opened(), part, "</a>"]
        else:
            out.append(f'<span class="own">{part}</span>' if links else part)
    return "".join(out)


def _code(text: str, language: str) -> str:
    """Return a block of code with its colors and a button that copies it."""
    shown = escape(text)
    if language.lower() in LANGUAGES:
        lexer = get_lexer_by_name(language.lower(), stripnl=False, ensurenl=False)
        shown = highlight(text, lexer, COLORS)
    return (
        '<div class="block"><button type="button" class="copy">Copy</button>'
        f'<pre tabindex="0"><code>{shown}</code></pre></div>'
    )


def _block(_: Any, tokens: Sequence[Token], number: int, options: Any, env: Any) -> str:
    """Render a block of code; the marks in it follow it."""
    info, content = tokens[number].info, tokens[number].content
    marks = "".join(PRIVATE.findall(info + content))
    return f"{_code(_own(content), _own(info).strip())}{marks}"


COLORS = HtmlFormatter(nowrap=True, classprefix="t-")
PARSER = MarkdownIt("commonmark", {"html": False, "breaks": True}).enable("table").disable([*OFF])
PARSER.add_render_rule("fence", _block)
PARSER.add_render_rule("code_block", _block)
