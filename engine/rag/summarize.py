"""Summaries of whole documents: the sentences that tell most of each part, then of those again.

They are the document's own (engine/rag/summary_plan.py), so a summary is true to the text and can be cited
(engine/rag/citations.py). Every text that was finished can be kept (engine/rag/response_cache.py), so a summary
that was stopped goes on where it was. What a document says is only text here, whatever it asks for.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from engine.rag.citations import Citation, Source, cite, covered
from engine.rag.sentences import on_one_line, points, said_as
from engine.rag.summary_plan import LENGTHS, Asked, Choices, Length, Plan, Style
from engine.records import Done, Piece, Step

if TYPE_CHECKING:
    from engine.engine import Engine
    from engine.rag.response_cache import Finished
    from engine.worker import Job
    from index.documents.documents import Document

KEPT = "kept"  # the source of a piece that was written before

__all__ = [
    "LENGTHS",
    "Choices",
    "Grown",
    "Length",
    "Plan",
    "Said",
    "Style",
    "Summary",
    "Task",
    "summarize",
]


class Task(NamedTuple):
    """Part `number` of `of`, from 1, comes next, or is known from before."""

    number: int
    of: int
    parts: int  # of the document: so many of the tasks are about one
    known: bool
    asked: Asked
    start: float  # shares of the whole work: what is before it,
    stop: float  # and what is behind it

    @property
    def title(self) -> str:
        return self.asked.title


class Said(NamedTuple):
    """The sentences that a task gave, on one line each, with where their words came from."""

    task: Task
    points: tuple[tuple[Piece, ...], ...]

    @property
    def texts(self) -> list[str]:
        return ["".join(piece.text for piece in one) for one in self.points]


class Grown(NamedTuple):
    """What the summary has more now. All of them together are the text of a whole summary."""

    pieces: tuple[Piece, ...]


class Told(NamedTuple):
    """A part of the document and its summary."""

    title: str
    start: int  # code points of the document
    stop: int
    text: str


@dataclass(frozen=True, slots=True)
class Summary:
    """The end of every stream. A summary that was stopped holds the parts that were finished."""

    text: str
    whole: bool
    citations: tuple[Citation, ...]
    covered: float  # share of its words
    parts: tuple[Told, ...]
    done: int  # of the tasks
    of: int


def summarize(
    engine: Engine,
    document: Document,
    choices: Choices | None = None,
    finished: Finished | None = None,
    stopped: Callable[[], bool] = lambda: False,
    speculation: bool = True,
    client: str = "",
    attach: Callable[[Job], None] = lambda job: None,
) -> Iterator[Task | Step | Said | Grown | Summary]:
    """Tasks, each with its steps and what it Said, then exactly one Summary. `stopped` is asked
    after each step; `attach` is told of each job, which may be cancelled. RequestError where there
    is nothing to summarize or no room for it."""
    plan = Plan(document, choices or Choices(), engine.encoder, engine.context)
    told: list[Said] = []  # of the parts, in order
    growing = Growing(plan.choices)
    done = 0

    def tell(asked: Asked) -> Generator[Task | Step | Said, None, Said | None]:
        """One task; None where it was stopped."""
        nonlocal done
        text = finished.get(asked.request) if finished else None
        task = Task(
            done + 1, plan.tasks, len(plan.sections), text is not None, asked, *plan.shares(done)
        )
        yield task
        if text is not None:
            said = Said(task, tuple((Piece(one, KEPT),) for one in text.splitlines()))
        elif stopped():
            return None
        else:
            job = engine.submit(asked.request, speculation, client=client)
            attach(job)
            try:
                found = yield from points_of(job, asked, stopped)
            finally:
                job.cancel()
            if found is None:
                return None
            said = Said(task, found)
            if finished:
                finished.put(asked.request, "\n".join(said.texts))
        done += 1
        yield said
        return said

    for section, sentences in zip(plan.sections, plan.sentences, strict=True):
        found = yield from tell(plan.of_section(section, sentences))
        if found is None:
            yield ended(plan, told, growing, done)
            return
        told.append(found)
        if not plan.rounds:
            yield growing.add(found.points, section.title)
    texts = told
    for groups in plan.rounds:
        last = groups is plan.rounds[-1]
        joined: list[Said] = []
        for start, stop in groups:
            found = texts[start]
            if stop - start > 1:
                found = yield from tell(
                    plan.of_group([one.texts for one in texts[start:stop]], last)
                )
            if found is None:
                yield ended(plan, told, growing, done)
                return
            joined.append(found)
            if last:
                yield growing.add(found.points[:1])
        texts = joined
    yield ended(plan, told, growing, done)


def points_of(
    job: Job, asked: Asked, stopped: Callable[[], bool]
) -> Generator[Step, None, tuple[tuple[Piece, ...], ...] | None]:
    """The steps of a job, and the points that it was asked for; None where it was stopped. It is
    ended when it has written them all, or repeats itself."""
    pieces: list[Piece] = []
    halted = False
    for event in job:
        if isinstance(event, Done):
            if event.reason == "failed":
                raise RuntimeError(event.error)
            text = "".join(piece.text for piece in pieces)
            ended = event.reason in ("stop", "length")
            places = points(text, asked.sentences, event.reason == "stop", asked.titles)
            if not places.full and not ended:
                return None
            if not places.places and text.strip():  # no sentence: all of it, and that it is cut
                cut = [Piece("\u2026", "model")] if event.reason == "length" else []
                return (on_one_line([*pieces, *cut], 0, len(text) + 1),)
            return tuple(on_one_line(pieces, start, stop) for start, stop in places.places)
        pieces += event.pieces
        yield event
        text = "".join(piece.text for piece in pieces)
        if not halted and (stopped() or points(text, asked.sentences, False, asked.titles).full):
            halted = True
            job.cancel()
    return None


class Growing:
    """A summary's text, put together from points; each stands in it once."""

    def __init__(self, choices: Choices) -> None:
        self.text = ""
        self._above = ""  # the last title
        self._titled, self._style = choices.length == "long", choices.style
        self._said: set[str] = set()

    def add(self, points: Iterable[tuple[Piece, ...]], title: str = "") -> Grown:
        """More of it, with a title where it is long."""
        out: list[Piece] = []
        begins = not self.text
        if self._titled:
            begins = True
            self._said.clear()
            above = f"{title}\n\n" if title and title != self._above else ""
            self._above = title
            out.append(Piece(("\n\n" if self.text else "") + above, "model"))
        for point in points:
            said = said_as("".join(piece.text for piece in point))
            if said not in self._said:
                self._said.add(said)
                between, mark = ("\n", "- ") if self._style == "bullets" else (" ", "")
                out += [Piece(("" if begins else between) + mark, point[0].source), *point]
                begins = False
        grown = tuple(piece for piece in out if piece.text)
        self.text += "".join(piece.text for piece in grown)
        return Grown(grown)


def ended(plan: Plan, told: Sequence[Said], growing: Growing, done: int) -> Summary:
    """The end. Where parts were still to be joined, each stands behind its title."""
    document, choices = plan.document, plan.choices
    parts = []
    for section, said in zip(plan.sections, told, strict=False):
        alone = Growing(replace(choices, length="short"))
        alone.add(said.points)
        parts.append(Told(section.title, section.start, section.stop, alone.text))
    whole = done == plan.tasks
    text = growing.text
    if plan.rounds and not whole:
        text = "\n\n".join(f"{one.title}\n\n{one.text}".strip() for one in parts)
    source = Source(document.id, document.name, document.text, 0, document.pages)
    citations = cite(text, [source])
    share = covered(text, citations)
    if choices.length == "long" or (plan.rounds and not whole):  # the titles are ours
        body = "\n\n".join(one.text for one in parts)
        share = covered(body, cite(body, [source]))
    return Summary(text, whole, tuple(citations), share, tuple(parts), done, plan.tasks)
