"""Answers as HTML: with citations that open their passages, sources, and figures.

Pure functions of plain values. All text of documents, models and users is escaped here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING

from engine.rag.evidence import split_sentences
from ui.web import passage_text, pictures
from ui.web.markdown import CitationLink, rendered

if TYPE_CHECKING:
    from engine.records import Piece
    from index.records import Span
    from ui.web.history import HistoryEntry
    from ui.web.progress import AnswerProgress
    from ui.web.transcript import Entry, EvidencePassage

SOURCES = {  # draft source -> its name in the legend; style.css has the colors
    "documents": "the documents",
    "prediction": "your text",
    "context": "the prompt, and the answer so far",
    "workspace": "workspace",
    "model": "the model alone",
}
OTHER = "other drafts"
NEW_TOPIC = '<p class="topic" role="status"><span>New question</span></p>'
MAX_QUOTE_CHARS = 160  # characters of a passage while it is collapsed
MAX_LEAD_CHARS = 80  # characters of them before the longest mark
# The end of a line of a pdf's paragraph, which goes on in the next one
SOFT_BREAK = re.compile(r"(?<=[^\n]{40}[^\n.!?:])\n(?=[^\W\d])")
MAX_BARS = 120  # bars of the plot, one per forward pass


# -- texts -----------------------------------------------------------------------------------------


def colored(
    pieces: Iterable[Piece],
    streaming: bool = False,
    passages: Sequence[EvidencePassage] = (),
    name: str = "",
) -> str:
    """Color each piece of the text by its draft source.

    A piece that was drafted from one of the passages links to it, as in `cited`.
    """
    out = []
    for piece in pieces:
        css_class = f"from-{piece.source if piece.source in SOURCES else 'other'}"
        number = _passage_of(piece.span, passages)
        if number is None:
            out.append(f'<span class="{css_class}">{escape(piece.text)}</span>')
        else:
            title = escape(passages[number - 1].location, quote=True)
            out.append(
                f'<a class="{css_class} open" href="#{name}-{number}" '
                f'data-source="{name}-{number}" title="{title}">{escape(piece.text)}</a>'
            )
    caret = '<span class="caret" aria-hidden="true"></span>' if streaming else ""
    return f'<div class="answer" dir="auto">{"".join(out)}{caret}</div>'


def written(pieces: Iterable[Piece]) -> str:
    """Return the text so far, while it is being written."""
    text = rendered("".join(piece.text for piece in pieces))
    return f'<div class="answer md writing" dir="auto">{text}</div>'


def legend(sources: Iterable[str]) -> str:
    """Explain the colors of the sources that occur."""
    occurring = {source if source in SOURCES else "other" for source in sources}
    items = "".join(
        f'<li><span class="swatch from-{source}"></span>{SOURCES.get(source, OTHER)}</li>'
        for source in (*SOURCES, "other")
        if source in occurring
    )
    return f'<ul class="legend" aria-label="where the text was drafted from">{items}</ul>'


def cited(entry: Entry, name: str) -> str:
    """Return the answer; each copy links to its passage `NAME-1`, `NAME-2`, ...

    What is copied from code alone is code.
    """
    links = [
        CitationLink(one.start, one.stop, index + 1, name, entry.passages[index].location)
        for one, index in zip(entry.citations, entry.cited_passages, strict=True)
    ]
    copied = [entry.passages[index] for index in entry.cited_passages]
    is_code = entry.covered >= 1 and all(passage.is_code for passage in copied)
    language = copied[0].name.rpartition(".")[2] if copied and is_code else None
    return (
        f'<div class="answer md" dir="auto">{rendered(entry.text, links, language)}</div>'
        f'<button type="button" class="copy" data-text="{escape(entry.text, quote=True)}">'
        "Copy</button>"
    )


def sources(passages: Sequence[EvidencePassage], name: str, is_open: bool = True) -> str:
    """Show the passages with the answer's words marked, collapsed; `is_open`: but for the first.

    Those that were read and have none of its words are folded away below the others.
    """
    marked: list[str] = []
    others: list[str] = []
    for number, one in enumerate(passages, 1):
        opened = is_open and number == 1
        (marked if one.marks else others).append(_source(one, number, f"{name}-{number}", opened))
    title = "Sources" if marked else "What was read"
    out = f'<h3 class="sources-title">{title}</h3>{"".join(marked or others)}'
    if marked and others:
        count = "1 other passage" if len(others) == 1 else f"{len(others)} other passages"
        out += (
            f'<details class="others"><summary>Also read: {count}</summary>'
            f"<div>{''.join(others)}</div></details>"
        )
    return f'<div class="sources">{out}</div>'


def _source(passage: EvidencePassage, number: int, id: str, is_open: bool) -> str:
    """Return one passage."""
    css_class = "passage code" if passage.is_code else "passage"
    return (
        f'<details class="source" id="{id}"{" open" if is_open else ""}><summary>'
        f'<b>{number}</b> <span class="where">{escape(passage.location)}</span> '
        f'<span class="quote">{escape(quote(passage))}</span></summary>'
        f'<div class="{css_class}" dir="auto" tabindex="0">{marked_text(passage)}</div>'
        f"{_picture(passage)}</details>"
    )


def quote(passage: EvidencePassage) -> str:
    """Return a line of a passage: from the beginning of the sentence with the longest mark."""
    first, _ = max(passage.marks, key=lambda mark: mark[1] - mark[0], default=(0, 0))
    sentences = split_sentences(passage.text)
    start = next((start for start, stop in sentences if start <= first < stop), first)
    cut = "\u2026 " if first - start > MAX_LEAD_CHARS else ""
    start = max(start, first - MAX_LEAD_CHARS)
    shown = " ".join(passage.text[start : start + 2 * MAX_QUOTE_CHARS].split())
    return f"{cut}{shown[:MAX_QUOTE_CHARS]}"


def _picture(passage: EvidencePassage) -> str:
    """Show the page of a pdf, which a browser loads when it is to be seen.

    It links to the page in full size.
    """
    if passage.page is None:
        return ""
    src, alt = escape(pictures.address(passage), quote=True), escape(passage.location, quote=True)
    image = f'<img class="page" loading="lazy" alt="the page: {alt}" src="{src}">'
    return f'<a href="{src}" target="_blank" rel="noopener">{image}</a>'


def marked_text(passage: EvidencePassage) -> str:
    """Return the text of a passage with its marks. The lines of a pdf's paragraph are joined."""
    text = SOFT_BREAK.sub(" ", passage.text) if passage.page is not None else passage.text
    return passage_text.marked_text(text, passage.marks, passage.is_code)


def support(entry: Entry) -> str:
    """Say what speaks against an answer, and how far it is copied.

    A copy may answer something else: the words of the question that it has come with it.
    """
    warnings = "".join(note(doubt, "warning") for doubt in entry.doubts)
    if not entry.passages:
        return warnings
    if not entry.citations:
        is_marked = any(passage.marks for passage in entry.passages)
        how = f"Not copied word for word{': its words are marked in the sources' * is_marked}."
    elif entry.covered >= 1:
        how = "All words are copied from the documents."
    else:
        how = (
            f"{entry.covered:.0%} of the words are copied from the documents; check the rest, "
            "which has a dotted underline."
        )
    found, missing = (
        ", ".join(f"\u201c{word}\u201d" for word in words)
        for words in (entry.words_found, entry.words_missing)
    )
    if found:
        how += f" Of the question it has {found}{f', but not {missing}' if missing else ''}."
    elif missing:
        how += f" It has none of the question's words: {missing}."
    return f"{warnings}{note(how)}"


# -- whole answers ---------------------------------------------------------------------------------


def streaming_answer(title: str, progress: AnswerProgress, extract: str = "") -> str:
    """Show an answer while it streams.

    `extract`: the documents' own words, shown until it begins.
    """
    text = (
        f'<blockquote class="extract" dir="auto">{escape(extract)}</blockquote>' if extract else ""
    )
    if progress.pieces:
        text = written(progress.pieces)
    return (
        f'<article class="turn" aria-busy="true">{_heading(title)}'
        f'<div class="said">{status(progress)}{text}</div></article>'
    )


def latest_answer(last: HistoryEntry, topic: int, name: str) -> tuple[str, str]:
    """Return the last answer, and its sources, whose first passage is open.

    `topic`: that of what follows it.
    """
    name = f"{name}-{last.number}"
    below = sources(last.entry.passages, name) if last.entry.passages else ""
    return _answer(last.entry, name), below + (NEW_TOPIC if last.topic != topic else "")


def finished_answer(entry: Entry, name: str, is_open: bool = True) -> str:
    """Show a finished answer, the passages that it rests on, and how it was written.

    `name` is unique on the page; `is_open`: the first passage is.
    """
    return _answer(entry, name, sources(entry.passages, name, is_open) if entry.passages else "")


def _answer(entry: Entry, name: str, below: str = "") -> str:
    head = _heading(entry.title, entry.rewritten)
    notes = "".join(note(text) for text in entry.notes)
    if not entry.found:
        body = f'<div class="said">{note(entry.text, "nothing")}{notes}</div>'
        return f'<article class="turn">{head}{body}</article>'
    body = cited(entry, name) + support(entry) if entry.text or entry.passages else ""
    how = how_written(entry.figures, entry.tokens_per_pass, entry.pieces, entry.passages, name)
    return (
        f'<article class="turn">{head}<div class="said">{body}{notes}{how}</div>{below}</article>'
    )


def conversation(entries: Sequence[HistoryEntry], topic: int, name: str) -> str:
    """Show answers in order, and a line after those that what follows does not refer to.

    `topic`: that of what follows them all.
    """
    topics = [entry.topic for entry in entries] + [topic]
    return "".join(
        finished_answer(one.entry, f"{name}-{one.number}", is_open=False)
        + (NEW_TOPIC if one.topic != following else "")
        for one, following in zip(entries, topics[1:], strict=True)
    )


def _heading(text: str, rewritten: str = "") -> str:
    """Return the question, and how it was understood if that is something else."""
    meant = f'<p class="note" dir="auto">Asked as: {escape(rewritten)}</p>' if rewritten else ""
    return f'<header><h2 class="asked" dir="auto">{escape(text)}</h2>{meant}</header>'


def _passage_of(span: Span | None, passages: Sequence[EvidencePassage]) -> int | None:
    """Return the number of the passage that overlaps a span of a document."""
    if span is not None:
        for number, one in enumerate(passages, 1):
            overlaps = one.start < span.stop and span.start < one.start + len(one.text)
            if one.document == span.path and overlaps:
                return number
    return None


# -- figures ---------------------------------------------------------------------------------------


def status(progress: AnswerProgress) -> str:
    """Describe, in one line, the current work and its time."""
    phase = f"{progress.phase} {progress.detail}".strip()
    shown = f"{phase[:1].upper()}{phase[1:]}"
    return f'<p class="status">{escape(shown)} <span>{progress.elapsed_s:.1f} s</span></p>'


def how_written(
    values: Mapping[str, float],
    tokens_per_pass: Sequence[int],
    pieces: Sequence[Piece] = (),
    passages: Sequence[EvidencePassage] = (),
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
            f'<div class="drafted">{colored(pieces, False, passages, name)}'
            f"{legend(piece.source for piece in pieces)}</div>"
        )
    return f'<details class="figures"><summary>{head}</summary>{figures}{drafted}</details>'


def plot(tokens_per_pass: Sequence[int]) -> str:
    """Draw a bar chart of the tokens of each of the last forward passes.

    Plain decoding gives 1.
    """
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
    """Show a message. `kind`, its CSS class: note, hint, warning, nothing or error."""
    return f'<p class="{kind}" role="status">{escape(text)}</p>' if text else ""
