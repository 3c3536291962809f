"""An answer in the terminal: written as it comes, stopped by Ctrl-C, with its sources below.

The text goes to stdout, progress and figures to stderr. On a terminal, text of documents and models
is shown with its control characters made visible; elsewhere it is exact.
"""

from __future__ import annotations

import dataclasses
import signal
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from types import FrameType
from typing import TYPE_CHECKING, Any, Self

from rich.console import Console
from rich.status import Status
from rich.text import Text

from ui.cli.index import Failure, one_line, say
from ui.cli.options import FAILED
from ui.terminal import OTHER, SOURCES, Tally, rate, visible

if TYPE_CHECKING:
    from engine.rag.citations import Citation
    from engine.records import Done, Piece, Step
    from engine.worker import Job
    from index.documents.documents import Document

QUOTE = 72  # characters of a passage that are shown
Paint = Callable[["Step", "Piece"], str]  # -> a colour


def by_source(step: Step, piece: Piece) -> str:
    """The colour of where a piece was drafted from."""
    return SOURCES.get(piece.source, OTHER)


def plainly(step: Step, piece: Piece) -> str:
    """No colour."""
    return ""


class Stop:
    """Ctrl-C while an answer is written: the first one only asks for its end, so that what is there
    is kept; a second one ends the command. A context manager; call it to know."""

    def __init__(self) -> None:
        self.said = False
        self._before: Any = None

    def __call__(self) -> bool:
        return self.said

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGINT, self._caught)
        return self

    def __exit__(self, *_: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)

    def _caught(self, number: int, frame: FrameType | None) -> None:
        if self.said and callable(self._before):
            self._before(number, frame)
        self.said = True


class Writer:
    """Answers on stdout as they come; until then, or where `silent`, progress on stderr."""

    def __init__(self, paint: Paint = plainly, silent: bool = False) -> None:
        self.paint, self.silent = paint, silent
        self.tally = Tally()
        self._console = Console(stderr=True, highlight=False)
        self._out = Console(highlight=False)
        self._status: Status | None = None
        self._stages: set[str] = set()  # that were told
        self._open = False  # a line of stdout is not ended

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.rest()

    def rest(self) -> None:
        """End the line of progress and the line of text."""
        if self._status:
            self._status.stop()
            self._status = None
        if self._open:
            self.write("\n")

    def phase(self, text: str) -> None:
        """Say what is going on, on a terminal."""
        if not self._console.is_terminal or self._open:
            return
        shown = Text(one_line(text))
        if self._status is None:
            self._status = self._console.status(shown)
            self._status.start()
        self._status.update(shown)

    def progress(self, what: str, done: int, total: int) -> None:
        """An engine's progress while it fetches and loads; safe from any thread. Without a
        terminal, a line for each stage that is counted: what is ready is loaded silently."""
        stage = what.split(" (part")[0]
        if total and not self._console.is_terminal and stage not in self._stages:
            self._stages.add(stage)
            say(stage)
        self.phase(f"{what}: {done / total:.0%}" if total else what)

    def legend(self, colours: Mapping[str, str]) -> None:
        """What the colours of the text mean, on stderr."""
        self.rest()
        names = [Text(name, colour) for name, colour in colours.items()]
        self._console.print(Text("text by source: ") + Text(" ").join(names), soft_wrap=True)

    def write(self, text: str, colour: str = "") -> None:
        """Text on stdout."""
        if not text or not sys.stdout:
            return
        if self._status:
            self._status.stop()
            self._status = None
        if sys.stdout.isatty():
            self._out.print(Text(visible(text), colour), end="", soft_wrap=True)
        else:
            sys.stdout.buffer.write(text.encode("utf-8", "surrogateescape"))
        sys.stdout.flush()
        self._open = not text.endswith("\n")

    def step(self, step: Step) -> None:
        """Show one forward pass."""
        self.tally.add(step)
        if step.prefill:
            self.phase("reading {} of {} tokens".format(*step.prefill))
        elif self.silent:
            speed = rate(self.tally.tokens, self.tally.seconds)
            self.phase(f"writing: {self.tally.tokens} tokens, {speed:.0f} tokens/s")
        else:
            for piece in step.pieces:
                self.write(piece.text, self.paint(step, piece))

    def follow(
        self, job: Job, stop: Stop, watch: Callable[[Step], None] = lambda step: None
    ) -> Done:
        """Show a whole answer; Ctrl-C ends it early; `watch` is told of each step. Raises Failure
        where the model fails."""
        from engine import Done

        try:
            for event in job:
                if isinstance(event, Done):
                    self.rest()
                    if event.reason == "failed":
                        raise Failure(FAILED, f"the model failed: {event.error}")
                    return event
                self.step(event)
                watch(event)
                if stop():
                    job.cancel()
        finally:
            job.cancel()
        raise RuntimeError("the stream ended without a Done")


# -- sources -----------------------------------------------------------------------------------


def sources(
    answer: str, citations: Sequence[Citation], covered: float, text_of: Callable[[str], str]
) -> str:
    """What of an answer stands where, in lines. `text_of`: id -> the document's text."""
    if not citations:
        return "no passage of this is copied from the documents: check it\n"
    lines = ["copied from:"]
    for number, one in enumerate(citations, 1):
        quote = " ".join(answer[one.start : one.stop].split())
        quote = quote if len(quote) <= QUOTE else quote[: QUOTE - 1] + "\u2026"
        lines.append(f"  [{number}] {place(one, text_of(one.document))}: {quote}")
    if covered < 1:
        lines.append(f"not from the documents: {1 - covered:.0%} of the words")
    return "\n".join(lines) + "\n"


def place(citation: Citation, text: str) -> str:
    """Where a passage stands, for a person."""
    name = " ".join(citation.name.split())
    if citation.page is not None:
        return f"{name}, page {citation.page}"
    return f"{name}, line {text.count(chr(10), 0, citation.source_start) + 1}"


def citations_as_json(
    answer: str, citations: Sequence[Citation], text_of: Callable[[str], str]
) -> list[dict[str, Any]]:
    """Each with its words, as they stand in the answer and in the document."""
    return [
        dataclasses.asdict(one)
        | {
            "text": answer[one.start : one.stop],
            "quote": text_of(one.document)[one.source_start : one.source_stop],
        }
        for one in citations
    ]


def documents_as_json(documents: Sequence[Document]) -> list[dict[str, Any]]:
    return [{"id": one.id, "name": one.name, "kind": one.kind} for one in documents]


def figures(done: Done, tally: Tally) -> dict[str, Any]:
    """What an answer took."""
    usage = done.usage
    return {
        "usage": dataclasses.asdict(usage),
        "tokens_per_second": rate(usage.completion_tokens, usage.decode_seconds),
        "tokens_per_forward": rate(usage.completion_tokens, usage.forwards),
        "characters_by_source": dict(tally.sources),
    }
