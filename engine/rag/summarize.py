"""Summaries of whole documents.

They have an overall statement, and every chapter in a few of its own sentences.

Only the overall statement is the model's. One with numbers or many words that the document does not
have is replaced by the document's first sentence. All else is copied, so it can be cited, and
instructions inside the document have no effect.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from engine.rag.citations import Citation, Source, cite, coverage
from engine.rag.sentences import find_sentences
from engine.rag.summary_plan import SectionSummary, SummaryOptions, SummaryPlan
from engine.records import Done, Step
from engine.remote.secret_texts import check_document

if TYPE_CHECKING:
    from engine.rag.response_cache import ResponseCache
    from engine.remote.any_engine import AnyEngine
    from engine.worker import Submitted
    from index.documents.documents import Document


MASK = "\0"  # replaces characters that are not cited; no document has it


class SummaryBody(NamedTuple):
    """The first event: the summary without its overall statement, and the chapters.

    The model is still to write the statement.
    """

    text: str
    sections: tuple[SectionSummary, ...]


@dataclass(frozen=True, slots=True)
class Summary:
    """The last event. A stopped summary has no overall statement."""

    text: str
    whole: bool  # False if it was stopped
    citations: tuple[Citation, ...]
    covered: float  # share of its words that is cited; titles do not count
    sections: tuple[SectionSummary, ...]


class SummarySegment(NamedTuple):
    """Text of a summary, and whether it is cited; titles and labels are not."""

    text: str
    citable: bool


SummaryEvent = SummaryBody | Step | Summary


def summarize(
    engine: AnyEngine,
    document: Document,
    options: SummaryOptions | None = None,
    cache: ResponseCache | None = None,
    stopped: Callable[[], bool] = lambda: False,
    speculation: bool = True,
    client: str = "",
    attach: Callable[[Submitted], None] = lambda job: None,
) -> Iterator[SummaryEvent]:
    """Summarize a document: a SummaryBody, the steps of the overall statement, then the Summary.

    `stopped` is polled after each step; `attach` receives the job, which may be cancelled. Raises
    RequestError if there is no text, no room for it, or an engine elsewhere must not read it,
    RuntimeError if the model fails."""
    check_document(engine, document.name, document.text)
    plan = SummaryPlan(document, options or SummaryOptions(), engine.encoder, engine.context)
    yield SummaryBody(_text(_compose(plan, "")), plan.sections)
    statement = cache.get(plan.request) if cache else None
    if statement is None and not stopped():
        job = engine.submit(plan.request, speculation, client=client)
        attach(job)
        try:
            statement = yield from _statement(job, stopped)
        finally:
            job.cancel()
        if cache and statement is not None:
            cache.put(plan.request, statement)
    yield _finish(plan, statement)


def _statement(job: Submitted, stopped: Callable[[], bool]) -> Generator[Step, None, str | None]:
    """Yield the steps of a job; return its first sentence, which may be "".

    None if it was stopped. The job is cancelled once the sentence is complete.
    """
    text = ""
    cancelled = False
    for event in job:
        if isinstance(event, Done):
            if event.reason == "failed":
                raise RuntimeError(event.error)
            found = find_sentences(text, 1, event.reason == "stop")
            if not found.complete and event.reason not in ("stop", "length"):
                return None
            return " ".join(" ".join(text[start:stop].split()) for start, stop in found.spans)
        yield event
        text += event.text
        if not cancelled and (stopped() or find_sentences(text, 1, False).complete):
            cancelled = True
            job.cancel()
    return None


def _finish(plan: SummaryPlan, statement: str | None) -> Summary:
    """Make the summary; `statement` is None if it was stopped."""
    shown = ""
    if statement is not None:
        shown = statement if plan.is_supported(statement) else plan.lead
    document = plan.document
    segments = _compose(plan, shown)
    citable = "".join(one if citable else len(one) * MASK for one, citable in segments)
    source = Source(document.id, document.name, document.text, 0, document.pages)
    citations = cite(citable, [source])
    covered = coverage(citable, citations)
    return Summary(_text(segments), statement is not None, tuple(citations), covered, plan.sections)


def _text(segments: Sequence[SummarySegment]) -> str:
    return "".join(text for text, _ in segments)


def _compose(plan: SummaryPlan, statement: str) -> list[SummarySegment]:
    """Compose a summary's title, overall statement and chapters."""
    long, bullets = plan.options.length == "long", plan.options.style == "bullets"
    mark = "- " if bullets else ""
    items = []
    for section in _without(plan.sections, statement):
        title = section.title
        if not section.sentences:
            start, between = f"{mark}{title}", ""
        elif long and title:
            start, between = f"{title}\n\n{mark}", f"\n{mark}" if bullets else " "
        else:
            start, between = f"{mark}{title}: " if title else mark, " "
        items.append(_item(start, section.sentences, between))
    paragraph = "\n" if bullets and not long else "\n\n"
    parts = [
        [SummarySegment(plan.title, False)],
        [SummarySegment(statement, True)],
        _joined(items, paragraph),
    ]
    return _joined([part for part in parts if _text(part)], "\n\n")


def _item(start: str, sentences: Sequence[str], between: str) -> list[SummarySegment]:
    return [
        SummarySegment(start, False),
        *_joined([[SummarySegment(sentence, True)] for sentence in sentences], between),
    ]


def _joined(items: Sequence[list[SummarySegment]], between: str) -> list[SummarySegment]:
    """Join all segments of the items, with `between` between two items."""
    joined: list[SummarySegment] = []
    for item in items:
        joined += [SummarySegment(between, not between.strip()), *item] if joined else item
    return joined


def _without(sections: Sequence[SectionSummary], statement: str) -> Iterator[SectionSummary]:
    """Yield the sections; the text before the first chapter does not repeat the statement."""
    for section in sections:
        if not section.heading:
            sentences = tuple(sentence for sentence in section.sentences if sentence != statement)
            section = section._replace(sentences=sentences)
        if section.heading or section.sentences:
            yield section
