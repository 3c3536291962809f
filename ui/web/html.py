"""Answers as HTML: colored by draft source, with citations that open their passages, and figures.

Pure functions of plain values. All text of documents, models and users is escaped here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING

from engine.rag.citations import answer_parts
from ui.web.transcript import Quote, figures_of, location

if TYPE_CHECKING:
    from engine.rag.citations import Citation
    from engine.records import Piece
    from index.records import Span
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
    return f'<div class="sources">{"".join(out)}</div>'


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
    pieces = progress.pieces
    return (
        f'<article class="turn" aria-busy="true">{_heading(title)}{figures(progress)}'
        f"{colored(pieces, streaming=True)}"
        f"{legend(piece.source for piece in pieces) if pieces else ''}</article>"
    )


def finished_answer(entry: Entry, name: str, heading: bool = True) -> str:
    """A finished answer, with a switch between citations and draft sources, and the cited passages
    below. `name` is unique on the page."""
    head = _heading(entry.title) if heading else ""
    notes = "".join(note(text) for text in entry.notes)
    if not entry.found:
        return f'<article class="turn">{head}{note(entry.text, "nothing")}{notes}</article>'
    body = cited(entry.text, entry.citations, name) + coverage(entry.covered, bool(entry.citations))
    if entry.pieces:
        by_source = colored(entry.pieces, False, entry.citations, name)
        body = (
            f'{_switch()}<div class="view cited">{body}</div><div class="view drafted">'
            f"{by_source}{legend(piece.source for piece in entry.pieces)}</div>"
        )
    below = sources(entry.citations, entry.quotes, name) if entry.citations else ""
    return (
        f'<article class="turn" data-view="cited">{head}{_entry_figures(entry)}{body}{notes}{below}'
        "</article>"
    )


def collapsed_entries(entries: Iterable[tuple[int, Entry]], name: str) -> str:
    """Earlier entries, collapsed at first."""
    return "".join(
        f'<details class="earlier" id="{name}-turn-{number}"><summary>'
        f"{escape(' '.join(entry.title.split()))}</summary>"
        f"{finished_answer(entry, f'{name}-{number}', heading=False)}</details>"
        for number, entry in entries
    )


def _heading(text: str) -> str:
    return f'<h3 class="asked" dir="auto">{escape(text)}</h3>'


def _switch() -> str:
    buttons = "".join(
        f'<button type="button" data-show="{view}" aria-pressed="{pressed}">{text}</button>'
        for view, pressed, text in (
            ("cited", "true", "citations"),
            ("drafted", "false", "how it was drafted"),
        )
    )
    return f'<div class="switch" role="group" aria-label="what the colors show">{buttons}</div>'


def _citation_of(span: Span | None, citations: Sequence[Citation]) -> int | None:
    """The number of the citation whose passage overlaps a span of a document."""
    if span is not None:
        for number, citation in enumerate(citations, 1):
            overlaps = citation.source_start < span.stop and span.start < citation.source_stop
            if citation.document == span.path and overlaps:
                return number
    return None


# -- figures ---------------------------------------------------------------------------------------


def figures(progress: AnswerProgress) -> str:
    """Phase, time, speed, speedup over plain decoding, and the plot of tokens per pass."""
    phase = f"{progress.phase} {progress.detail}".strip()
    busy = progress.done is None
    return _figures(phase, figures_of(progress), progress.tokens_per_pass, busy)


def _entry_figures(entry: Entry) -> str:
    return _figures("", entry.figures, entry.tokens_per_pass) if entry.figures else ""


def _figures(
    phase: str, values: Mapping[str, float], tokens_per_pass: Sequence[int], busy: bool = False
) -> str:
    rows = [("phase", phase)] if phase else []
    rows.append(("time", f"{values.get('seconds', 0.0):.1f} s"))
    if tokens := values.get("tokens"):
        rows += [
            ("speed", f"{values.get('tokens_per_second', 0.0):.0f} tokens/s"),
            ("speedup", f"about {values.get('ratio_to_plain', 0.0):.1f}\u00d7"),
            ("tokens per pass", f"{tokens / max(1, values.get('passes', 0)):.1f}"),
        ]
    if prompt := values.get("prompt_tokens"):
        cached = f"{values.get('cached_tokens', 0):.0f} cached"
        rows.append(("prompt", f"{prompt:.0f} tokens, {cached}"))
    items = "".join(f"<div><dt>{name}</dt><dd>{escape(value)}</dd></div>" for name, value in rows)
    css_class = "figures busy" if busy else "figures"
    return f'<div class="{css_class}"><dl>{items}</dl>{plot(tokens_per_pass)}</div>'


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
