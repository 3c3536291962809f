"""Answers as HTML: coloured by source, with citations that open their passages, and figures.

Pure functions of plain values. All text of documents, models and users is escaped here; nothing
else makes HTML of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING

from engine.rag.citations import answer_parts as parts
from ui.web.transcript import Quoted, figures_of, passages, place

if TYPE_CHECKING:
    from engine.rag.citations import Citation
    from engine.records import Piece
    from index.records import Span
    from ui.web.streaming import Live
    from ui.web.transcript import Entry

SOURCES = {  # source of a piece -> its name for a person; the colours stand in style.css
    "documents": "the documents",
    "prediction": "your text",
    "context": "the prompt, and what is written",
    "workspace": "workspace",
    "model": "the model alone",
}
OTHER = "other drafts"
BARS = 120  # passes that the plot shows


# -- texts -----------------------------------------------------------------------------------------


def coloured(
    pieces: Iterable[Piece],
    writing: bool = False,
    citations: Sequence[Citation] = (),
    name: str = "",
) -> str:
    """The text, each piece in the colour of where it was drafted from. What was drafted from a
    passage that is cited is a link to it, as in `cited`."""
    out = []
    for one in pieces:
        colour = f"from-{one.source if one.source in SOURCES else 'other'}"
        number = _cited_from(one.span, citations)
        if number is None:
            out.append(f'<span class="{colour}">{escape(one.text)}</span>')
        else:
            where = escape(place(citations[number - 1]), quote=True)
            out.append(
                f'<a class="{colour} open" href="#{name}-{number}" data-source="{name}-{number}" '
                f'title="{where}">{escape(one.text)}</a>'
            )
    caret = '<span class="caret" aria-hidden="true"></span>' if writing else ""
    return f'<div class="answer" dir="auto">{"".join(out)}{caret}</div>'


def legend(sources: Iterable[str]) -> str:
    """What the colours mean, of those that occur."""
    found = dict.fromkeys(one if one in SOURCES else "other" for one in sources)
    items = "".join(
        f'<li><span class="swatch from-{one}"></span>{SOURCES.get(one, OTHER)}</li>'
        for one in (*SOURCES, "other")
        if one in found
    )
    return f'<ul class="legend" aria-label="where the text was drafted from">{items}</ul>'


def cited(answer: str, citations: Sequence[Citation], name: str) -> str:
    """The whole answer; each copied passage is a link to its source `NAME-1`, `NAME-2`, ..."""
    out, number = [], 0
    for part in parts(answer, citations):
        if part.citation is None:
            # Blanks between two passages are nobody's words.
            kind = ' class="own"' if part.text.strip() else ""
            out.append(f"<span{kind}>{escape(part.text)}</span>")
            continue
        number += 1
        where = escape(place(part.citation), quote=True)
        out.append(
            f'<a class="cite" href="#{name}-{number}" data-source="{name}-{number}" '
            f'title="{where}">{escape(part.text)}<sup>{number}</sup></a>'
        )
    return f'<div class="answer" dir="auto">{"".join(out)}</div>'


def sources(citations: Sequence[Citation], text_of: Callable[[str], str], name: str) -> str:
    """Each citation's passage, marked, in the text around it; closed until it is asked for."""
    return opened(citations, passages(citations, text_of), name)


def opened(citations: Sequence[Citation], found: Sequence[Quoted], name: str) -> str:
    """`sources`, of passages that were looked up before."""
    out = []
    for number, (one, passage) in enumerate(zip(citations, found, strict=True), 1):
        out.append(
            f'<details class="source" id="{name}-{number}"><summary><b>{number}</b> '
            f'<span class="where">{escape(place(one))}</span> '
            f'<span class="quote">{escape(" ".join(passage.quote.split()))}</span></summary>'
            f'<div class="passage" dir="auto" tabindex="0">{escape(passage.before)}'
            f"<mark>{escape(passage.quote)}</mark>{escape(passage.after)}</div></details>"
        )
    return f'<div class="sources">{"".join(out)}</div>'


def coverage(covered: float, cited: bool = True) -> str:
    """What a text's citations are worth, in a line."""
    if not cited:
        return note("No passage of this is copied from the documents: check it.", "warning")
    if covered >= 1:
        return note("All of its words are copied from the documents.")
    return note(
        f"{covered:.0%} of the words are copied from the documents; what is underlined with "
        "dots is not: check it."
    )


# -- whole answers ---------------------------------------------------------------------------------


def writing(asked: str, live: Live) -> str:
    """An answer while it is written."""
    return (
        f'<article class="turn" aria-busy="true">{_asked(asked)}{figures(live)}'
        f"{coloured(live.pieces, writing=True)}"
        f"{legend(one.source for one in live.pieces) if live.pieces else ''}</article>"
    )


def written(entry: Entry, name: str, heading: bool = True) -> str:
    """An answer that is kept: cited, or by source of drafting, and its sources below. `name`: what
    nothing else on the page is called."""
    head = _asked(entry.asked) if heading else ""
    notes = "".join(note(one) for one in entry.notes)
    if not entry.found:
        told = note(entry.text, "nothing")
        return f'<article class="turn">{head}{told}{notes}</article>'
    body = cited(entry.text, entry.citations, name) + coverage(entry.covered, bool(entry.citations))
    if entry.pieces:
        by_source = coloured(entry.pieces, False, entry.citations, name)
        body = (
            f'{_switch()}<div class="view cited">{body}</div><div class="view drafted">'
            f"{by_source}{legend(one.source for one in entry.pieces)}</div>"
        )
    below = opened(entry.citations, entry.passages, name) if entry.citations else ""
    return (
        f'<article class="turn" data-view="cited">{head}{took(entry)}{body}{notes}{below}</article>'
    )


def earlier(entries: Iterable[tuple[int, Entry]], name: str) -> str:
    """Entries that are closed until they are asked for, newest first."""
    return "".join(
        f'<details class="earlier" id="{name}-turn-{number}"><summary>'
        f"{escape(' '.join(entry.asked.split()))}</summary>"
        f"{written(entry, f'{name}-{number}', heading=False)}</details>"
        for number, entry in entries
    )


def _asked(text: str) -> str:
    return f'<h3 class="asked" dir="auto">{escape(text)}</h3>'


def _switch() -> str:
    buttons = "".join(
        f'<button type="button" data-show="{view}" aria-pressed="{pressed}">{text}</button>'
        for view, pressed, text in (
            ("cited", "true", "citations"),
            ("drafted", "false", "how it was drafted"),
        )
    )
    return f'<div class="switch" role="group" aria-label="what the colours show">{buttons}</div>'


def _cited_from(span: Span | None, citations: Sequence[Citation]) -> int | None:
    """The number of the citation whose passage a span of a document lies in."""
    if span is not None:
        for number, one in enumerate(citations, 1):
            inside = one.source_start < span.stop and span.start < one.source_stop
            if one.document == span.path and inside:
                return number
    return None


# -- figures ---------------------------------------------------------------------------------------


def figures(live: Live) -> str:
    """Phase, time, speed beside plain decoding, and the plot of tokens a pass."""
    phase = f"{live.phase} {live.detail}".strip()
    return _figures(phase, figures_of(live), live.passes, busy=live.done is None)


def took(entry: Entry) -> str:
    """`figures` of an answer that is kept."""
    return _figures("", entry.figures, entry.passes) if entry.figures else ""


def _figures(
    phase: str, found: Mapping[str, float], passes: Sequence[int], busy: bool = False
) -> str:
    rows = [("phase", phase)] if phase else []
    rows.append(("time", f"{found.get('seconds', 0.0):.1f} s"))
    if tokens := found.get("tokens"):
        rows += [
            ("speed", f"{found.get('tokens_per_second', 0.0):.0f} tokens/s"),
            ("beside plain", f"about {found.get('ratio_to_plain', 0.0):.1f}\u00d7"),
            ("tokens a pass", f"{tokens / max(1, found.get('passes', 0)):.1f}"),
        ]
    if read := found.get("prompt_tokens"):
        known = f"{found.get('cached_tokens', 0):.0f} known from before"
        rows.append(("prompt", f"{read:.0f} tokens, {known}"))
    items = "".join(f"<div><dt>{name}</dt><dd>{escape(value)}</dd></div>" for name, value in rows)
    return f'<div class="figures{" busy" if busy else ""}"><dl>{items}</dl>{plot(passes)}</div>'


def plot(passes: Sequence[int]) -> str:
    """Tokens that each of the last passes gave, as bars: one is plain decoding's."""
    if not passes:
        return ""
    last = passes[-BARS:]
    top = max(4, *last)
    bars = "".join(
        f'<rect x="{at}" y="{top - one}" width="0.8" height="{one}"/>'
        for at, one in enumerate(last)
    )
    told = f"tokens of each pass, the last {len(last)}: {max(last)} at most"
    return (
        f'<svg class="plot" viewBox="0 0 {max(BARS // 2, len(last))} {top}" '
        f'preserveAspectRatio="none" role="img" aria-label="{told}"><title>{told}</title>'
        f"{bars}</svg>"
    )


def note(text: str, kind: str = "note") -> str:
    """A line of ours: `kind` is note, warning, nothing or error."""
    return f'<p class="{kind}" role="status">{escape(text)}</p>' if text else ""
