"""Answers as HTML: with citations that open their passages, sources, and figures.

Pure functions of plain values. All text of documents, models and users is escaped here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING

from engine.rag.citations import answer_parts
from ui.web.transcript import Quote, location

if TYPE_CHECKING:
    from engine.rag.citations import Citation
    from engine.records import Piece
    from index.records import Span
    from ui.web.history import HistoryEntry
    from ui.web.progress import AnswerProgress
    from ui.web.transcript import Entry

SOURCES = {  # draft source -> its name in the legend; style.css has the colors
    "documents": "the documents",
    "prediction": "your text",
    "context": "the prompt, and the answer so far",
    "workspace": "workspace",
    "model": "the model alone",
}
OTHER = "other drafts"
NEW_TOPIC = '<p class="topic" role="status"><span>New question</span></p>'
MAX_BARS = 120  # of the plot, one per forward pass


# -- texts -----------------------------------------------------------------------------------------


def colored(
    pieces: Iterable[Piece],
    streaming: bool = False,
    citations: Sequence[Citation] = (),
    name: str = "",
) -> str:
    """The text, each piece in the color of its draft source. A piece that was drafted from a cited
    passage links to it, as in `cited`."""
    out = []
    for piece in pieces:
        css_class = f"from-{piece.source if piece.source in SOURCES else 'other'}"
        number = _citation_of(piece.span, citations)
        if number is None:
            out.append(f'<span class="{css_class}">{escape(piece.text)}</span>')
        else:
            title = escape(location(citations[number - 1]), quote=True)
            out.append(
                f'<a class="{css_class} open" href="#{name}-{number}" '
                f'data-source="{name}-{number}" title="{title}">{escape(piece.text)}</a>'
            )
    caret = '<span class="caret" aria-hidden="true"></span>' if streaming else ""
    return f'<div class="answer" dir="auto">{"".join(out)}{caret}</div>'


def written(pieces: Iterable[Piece]) -> str:
    """The text so far, while it is being written."""
    text = escape("".join(piece.text for piece in pieces))
    return (
        f'<div class="answer" dir="auto">{text}<span class="caret" aria-hidden="true"></span></div>'
    )


def legend(sources: Iterable[str]) -> str:
    """What the colors mean, for the sources that occur."""
    occurring = {source if source in SOURCES else "other" for source in sources}
    items = "".join(
        f'<li><span class="swatch from-{source}"></span>{SOURCES.get(source, OTHER)}</li>'
        for source in (*SOURCES, "other")
        if source in occurring
    )
    return f'<ul class="legend" aria-label="where the text was drafted from">{items}</ul>'


def cited(answer: str, citations: Sequence[Citation], name: str) -> str:
    """The answer; each copied passage links to its source `NAME-1`, `NAME-2`, ..."""
    out, number = [], 0
    for part in answer_parts(answer, citations):
        if part.citation is None:
            css_class = ' class="own"' if part.text.strip() else ""
            out.append(f"<span{css_class}>{escape(part.text)}</span>")
            continue
        number += 1
        title = escape(location(part.citation), quote=True)
        out.append(
            f'<a class="cite" href="#{name}-{number}" data-source="{name}-{number}" '
            f'title="{title}">{escape(part.text)}<sup>{number}</sup></a>'
        )
    return f'<div class="answer" dir="auto">{"".join(out)}</div>'


def sources(citations: Sequence[Citation], found: Sequence[Quote], name: str) -> str:
    """Each citation's passage, highlighted in the text around it, collapsed at first."""
    out = []
    for number, (citation, quote) in enumerate(zip(citations, found, strict=True), 1):
        out.append(
            f'<details class="source" id="{name}-{number}"><summary><b>{number}</b> '
            f'<span class="where">{escape(location(citation))}</span> '
            f'<span class="quote">{escape(" ".join(quote.text.split()))}</span></summary>'
            f'<div class="passage" dir="auto" tabindex="0">{escape(quote.before)}'
            f"<mark>{escape(quote.text)}</mark>{escape(quote.after)}</div></details>"
        )
    title = '<h3 class="sources-title">Sources</h3>'
    return f'<section class="sources" aria-label="Sources">{title}{"".join(out)}</section>'


def coverage(covered: float, cited: bool = True) -> str:
    """How much of the answer is cited, in one line."""
    if not cited:
        return note("Nothing is copied from the documents: check the answer.", "warning")
    if covered >= 1:
        return note("All words are copied from the documents.")
    return note(
        f"{covered:.0%} of the words are copied from the documents; check the rest, which has a "
        "dotted underline."
    )


# -- whole answers ---------------------------------------------------------------------------------


def streaming_answer(title: str, progress: AnswerProgress) -> str:
    """An answer while it streams."""
    text = written(progress.pieces) if progress.pieces else ""
    return (
        f'<article class="turn" aria-busy="true">{_heading(title)}'
        f'<div class="said">{status(progress)}{text}</div></article>'
    )


def finished_answer(entry: Entry, name: str) -> str:
    """A finished answer, the passages that it cites, and how it was written. `name` is unique on
    the page."""
    head = _heading(entry.title)
    notes = "".join(note(text) for text in entry.notes)
    if not entry.found:
        said = f'<div class="said">{note(entry.text, "nothing")}{notes}</div>'
        return f'<article class="turn">{head}{said}</article>'
    body = cited(entry.text, entry.citations, name) + coverage(entry.covered, bool(entry.citations))
    below = sources(entry.citations, entry.quotes, name) if entry.citations else ""
    how = how_written(entry.figures, entry.tokens_per_pass, entry.pieces, entry.citations, name)
    return (
        f'<article class="turn">{head}<div class="said">{body}{notes}{how}</div>{below}</article>'
    )


def conversation(entries: Sequence[HistoryEntry], topic: int, name: str) -> str:
    """Answers in order, and a line after those that what follows does not refer to. `topic`: that
    of what follows them all."""
    topics = [one.topic for one in entries] + [topic]
    return "".join(
        finished_answer(one.entry, f"{name}-{one.number}")
        + (NEW_TOPIC if one.topic != following else "")
        for one, following in zip(entries, topics[1:], strict=True)
    )


def _heading(text: str) -> str:
    return f'<h2 class="asked" dir="auto">{escape(text)}</h2>'


def _citation_of(span: Span | None, citations: Sequence[Citation]) -> int | None:
    """The number of the citation whose passage overlaps a span of a document."""
    if span is not None:
        for number, citation in enumerate(citations, 1):
            overlaps = citation.source_start < span.stop and span.start < citation.source_stop
            if citation.document == span.path and overlaps:
                return number
    return None


# -- figures ---------------------------------------------------------------------------------------


def status(progress: AnswerProgress) -> str:
    """What is happening, and for how long, in one line."""
    phase = f"{progress.phase} {progress.detail}".strip()
    shown = f"{phase[:1].upper()}{phase[1:]}"
    return f'<p class="status">{escape(shown)} <span>{progress.elapsed_s:.1f} s</span></p>'


def how_written(
    values: Mapping[str, float],
    tokens_per_pass: Sequence[int],
    pieces: Sequence[Piece] = (),
    citations: Sequence[Citation] = (),
    name: str = "",
) -> str:
    """Time and speed in one line; opened, all figures, and the text by draft source."""
    if not values and not pieces:
        return ""
    head = f"{values.get('seconds', 0.0):.1f} s" if values else "How it was written"
    rows = []
    if tokens := values.get("tokens"):
        head += f" \u00b7 {values.get('tokens_per_second', 0.0):.0f} tokens/s"
        rows += [
            (
                "compared with plain decoding",
                f"about {values.get('ratio_to_plain', 0.0):.1f}\u00d7",
            ),
            ("tokens per pass", f"{tokens / max(1, values.get('passes', 0)):.1f}"),
        ]
    if prompt := values.get("prompt_tokens"):
        cached = f"{values.get('cached_tokens', 0):.0f} cached"
        rows.append(("prompt", f"{prompt:.0f} tokens, {cached}"))
    items = "".join(f"<div><dt>{name}</dt><dd>{escape(value)}</dd></div>" for name, value in rows)
    figures = f"<dl>{items}</dl>{plot(tokens_per_pass)}" if items else ""
    drafted = ""
    if pieces:
        drafted = (
            f'<div class="drafted">{colored(pieces, False, citations, name)}'
            f"{legend(piece.source for piece in pieces)}</div>"
        )
    return f'<details class="figures"><summary>{head}</summary>{figures}{drafted}</details>'


def plot(tokens_per_pass: Sequence[int]) -> str:
    """A bar chart of the tokens of each of the last forward passes; plain decoding gives 1."""
    if not tokens_per_pass:
        return ""
    last = tokens_per_pass[-MAX_BARS:]
    top = max(4, *last)
    bars = "".join(
        f'<rect x="{x}" y="{top - tokens}" width="0.8" height="{tokens}"/>'
        for x, tokens in enumerate(last)
    )
    label = f"tokens per pass, of the last {len(last)}: {max(last)} at most"
    return (
        f'<svg class="plot" viewBox="0 0 {max(MAX_BARS // 2, len(last))} {top}" '
        f'preserveAspectRatio="none" role="img" aria-label="{label}"><title>{label}</title>'
        f"{bars}</svg>"
    )


def note(text: str, kind: str = "note") -> str:
    """A message. `kind`, its CSS class: note, hint, warning, nothing or error."""
    return f'<p class="{kind}" role="status">{escape(text)}</p>' if text else ""
