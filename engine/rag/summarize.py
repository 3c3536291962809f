"""Extractive summaries of whole documents: the key sentences of each section, then of those.

All sentences are the document's own, so a summary can be cited. Finished tasks can be cached
(response_cache.py), so that a stopped summary resumes. Instructions inside the document have no
effect: its text is only quoted.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from engine.rag.citations import Citation, Source, cite, coverage
from engine.rag.sentences import find_sentences, join_lines, normalize
from engine.rag.summary_plan import SummaryOptions, SummaryPlan, SummaryPrompt
from engine.records import Done, Piece, Step

if TYPE_CHECKING:
    from engine.engine import Engine
    from engine.rag.response_cache import ResponseCache
    from engine.remote.remote_engine import RemoteEngine, RemoteJob
    from engine.worker import Job
    from index.documents.documents import Document

CACHED_SOURCE = "kept"  # `Piece.source` of cached sentences


class SummaryTask(NamedTuple):
    """The start of task `number` of `total`, counted from 1."""

    number: int
    total: int
    sections: int  # of the document, each of which is one of the tasks
    cached: bool
    prompt: SummaryPrompt
    start: float  # shares of the whole work: before this task
    stop: float  # and after it

    @property
    def title(self) -> str:
        return self.prompt.title


class TaskResult(NamedTuple):
    """The sentences that a task gave, on one line each."""

    task: SummaryTask
    sentences: tuple[tuple[Piece, ...], ...]

    @property
    def texts(self) -> list[str]:
        return ["".join(piece.text for piece in one) for one in self.sentences]


class SummaryDelta(NamedTuple):
    """Text appended to the summary. A complete summary's text is all of them concatenated."""

    pieces: tuple[Piece, ...]


class SectionSummary(NamedTuple):
    """A section of the document and its summary."""

    title: str
    start: int  # code points of the document
    stop: int
    text: str


@dataclass(frozen=True, slots=True)
class Summary:
    """The last event. A stopped summary has the sections that were finished."""

    text: str
    whole: bool  # False if it was stopped
    citations: tuple[Citation, ...]
    covered: float  # share of its words that is cited
    sections: tuple[SectionSummary, ...]
    done: int  # finished tasks
    total: int


SummaryEvent = SummaryTask | Step | TaskResult | SummaryDelta | Summary


def summarize(
    engine: Engine | RemoteEngine,
    document: Document,
    options: SummaryOptions | None = None,
    cache: ResponseCache | None = None,
    stopped: Callable[[], bool] = lambda: False,
    speculation: bool = True,
    client: str = "",
    attach: Callable[[Job | RemoteJob], None] = lambda job: None,
) -> Iterator[SummaryEvent]:
    """Summarize a document: tasks, each followed by its steps and its result, then one Summary.

    `stopped` is polled after each step; `attach` receives each job, which may be cancelled. Raises
    RequestError if there is no text or no room for it, RuntimeError if the model fails."""
    plan = SummaryPlan(document, options or SummaryOptions(), engine.encoder, engine.context)
    section_results: list[TaskResult] = []
    builder = SummaryBuilder(plan.options)
    done = 0

    def run(
        prompt: SummaryPrompt,
    ) -> Generator[SummaryTask | Step | TaskResult, None, TaskResult | None]:
        """One task; None if it was stopped."""
        nonlocal done
        text = cache.get(prompt.request) if cache else None
        sections, cached = len(plan.sections), text is not None
        task = SummaryTask(done + 1, plan.tasks, sections, cached, prompt, *plan.progress(done))
        yield task
        if text is not None:
            sentences = tuple((Piece(one, CACHED_SOURCE),) for one in text.splitlines())
            result = TaskResult(task, sentences)
        elif stopped():
            return None
        else:
            job = engine.submit(prompt.request, speculation, client=client)
            attach(job)
            try:
                found = yield from collect_sentences(job, prompt, stopped)
            finally:
                job.cancel()
            if found is None:
                return None
            result = TaskResult(task, found)
            if cache:
                cache.put(prompt.request, "\n".join(result.texts))
        done += 1
        yield result
        return result

    for section, count in zip(plan.sections, plan.sentences, strict=True):
        result = yield from run(plan.section_prompt(section, count))
        if result is None:
            yield _finish(plan, section_results, builder, done)
            return
        section_results.append(result)
        if not plan.rounds:
            yield builder.add(result.sentences, section.title)
    results = section_results
    for groups in plan.rounds:
        final = groups is plan.rounds[-1]
        merged: list[TaskResult] = []
        for start, stop in groups:
            result = results[start]
            if stop - start > 1:
                texts = [one.texts for one in results[start:stop]]
                result = yield from run(plan.merge_prompt(texts, final))
            if result is None:
                yield _finish(plan, section_results, builder, done)
                return
            merged.append(result)
            if final:
                yield builder.add(result.sentences[:1])
        results = merged
    yield _finish(plan, section_results, builder, done)


def collect_sentences(
    job: Job | RemoteJob, prompt: SummaryPrompt, stopped: Callable[[], bool]
) -> Generator[Step, None, tuple[tuple[Piece, ...], ...] | None]:
    """The steps of a job, then the sentences that it was asked for; None if it was stopped. The
    job is cancelled once it has written them all or repeats itself."""
    pieces: list[Piece] = []
    cancelled = False
    for event in job:
        text = "".join(piece.text for piece in pieces)
        if isinstance(event, Done):
            if event.reason == "failed":
                raise RuntimeError(event.error)
            ended = event.reason == "stop"
            found = find_sentences(text, prompt.sentences, ended, prompt.titles)
            if not found.complete and event.reason not in ("stop", "length"):
                return None
            if not found.spans and text.strip():  # no sentence: all of the text
                ellipsis = [Piece("\u2026", "model")] if event.reason == "length" else []
                return (join_lines([*pieces, *ellipsis], 0, len(text) + 1),)
            return tuple(join_lines(pieces, start, stop) for start, stop in found.spans)
        pieces += event.pieces
        yield event
        text += "".join(piece.text for piece in event.pieces)
        if not cancelled and (
            stopped() or find_sentences(text, prompt.sentences, False, prompt.titles).complete
        ):
            cancelled = True
            job.cancel()
    return None


class SummaryBuilder:
    """Concatenates sentences into a summary, each of them once."""

    def __init__(self, options: SummaryOptions) -> None:
        self.text = ""
        self._last_title = ""
        self._with_titles, self._style = options.length == "long", options.style
        self._seen: set[str] = set()

    def add(self, sentences: Iterable[tuple[Piece, ...]], title: str = "") -> SummaryDelta:
        """Append sentences, in a long summary below the section's title."""
        out: list[Piece] = []
        at_start = not self.text
        if self._with_titles:
            at_start = True
            self._seen.clear()
            heading = f"{title}\n\n" if title and title != self._last_title else ""
            self._last_title = title
            out.append(Piece(("\n\n" if self.text else "") + heading, "model"))
        for sentence in sentences:
            words = normalize("".join(piece.text for piece in sentence))
            if words not in self._seen:
                self._seen.add(words)
                separator, marker = ("\n", "- ") if self._style == "bullets" else (" ", "")
                prefix = ("" if at_start else separator) + marker
                out += [Piece(prefix, sentence[0].source), *sentence]
                at_start = False
        pieces = tuple(piece for piece in out if piece.text)
        self.text += "".join(piece.text for piece in pieces)
        return SummaryDelta(pieces)


def _finish(
    plan: SummaryPlan, results: Sequence[TaskResult], builder: SummaryBuilder, done: int
) -> Summary:
    """The summary so far. If it was stopped before merging, its text is that of the sections."""
    document, options = plan.document, plan.options
    sections = []
    for section, result in zip(plan.sections, results, strict=False):
        alone = SummaryBuilder(replace(options, length="short"))
        alone.add(result.sentences)
        sections.append(SectionSummary(section.title, section.start, section.stop, alone.text))
    whole = done == plan.tasks
    unmerged = bool(plan.rounds) and not whole
    text = builder.text
    if unmerged:
        text = "\n\n".join(f"{one.title}\n\n{one.text}".strip() for one in sections)
    source = Source(document.id, document.name, document.text, 0, document.pages)
    citations = cite(text, [source])
    covered = coverage(text, citations)
    if options.length == "long" or unmerged:  # titles are not part of what can be cited
        body = "\n\n".join(one.text for one in sections)
        covered = coverage(body, cite(body, [source]))
    return Summary(text, whole, tuple(citations), covered, tuple(sections), done, plan.tasks)
