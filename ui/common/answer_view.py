"""An answer on the terminal: its text as it is written, progress and figures.

Progress and figures go to stderr. On a terminal the text of documents and models is shown with its
control characters made visible; elsewhere it is exact.
"""

from __future__ import annotations

import dataclasses
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Self, TextIO

from rich.console import Console
from rich.status import Status
from rich.table import Table
from rich.text import Text

from ui.common.errors import say
from ui.common.terminal import one_line, ratio, visible

if TYPE_CHECKING:
    from engine.records import Done, Piece, Step
    from engine.worker import Submitted
    from ui.common.interrupt import AnswerInterrupt

SOURCE_COLOURS = {
    "prediction": "green",
    "context": "cyan",
    "documents": "bright_blue",
    "workspace": "magenta",
    "model": "default",
}
OTHER_COLOUR = "yellow"  # for sources that are not in SOURCE_COLOURS
ColourOf = Callable[["Step", "Piece"], str]


def colour_of_source(step: Step, piece: Piece) -> str:
    """Look up the colour of the source that a piece was drafted from."""
    return SOURCE_COLOURS.get(piece.source, OTHER_COLOUR)


def no_colour(step: Step, piece: Piece) -> str:
    return ""


@dataclasses.dataclass
class Tally:
    """Totals over the steps of an answer, without its prefill; `sources` counts characters."""

    steps: int = 0
    corrections: int = 0  # steps in which a drafted token was rejected
    tokens: int = 0
    seconds: float = 0.0
    sources: Counter[str] = dataclasses.field(default_factory=Counter)

    @property
    def tokens_per_second(self) -> float:
        return ratio(self.tokens, self.seconds)

    def add(self, step: Step) -> None:
        if step.prefill is None:
            self.steps += 1
            self.corrections += step.accepted < step.drafted
            self.tokens += step.accepted + 1
            self.seconds += step.seconds
        for piece in step.pieces:
            self.sources[piece.source] += len(piece.text)


class AnswerView:
    """A context manager that shows answers as they are written.

    Before the text begins, and all the time if `silent`, a live line on stderr shows the progress;
    without a terminal there is none. The text goes to stdout, or to stderr if `on_stderr`.
    """

    def __init__(
        self, colour_of: ColourOf = no_colour, silent: bool = False, on_stderr: bool = False
    ) -> None:
        self.colour_of, self.silent, self.on_stderr = colour_of, silent, on_stderr
        self.tally = Tally()
        self._stderr = Console(stderr=True, highlight=False)
        self._console = self._stderr if on_stderr else Console(highlight=False)
        self._status: Status | None = None
        self._reported: set[str] = set()  # stages that `progress` printed
        self._in_line = False  # the text does not end with a line end

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end_line()

    def end_line(self) -> None:
        """Remove the live line, and end the last line of the text."""
        self._stop_status()
        if self._in_line:
            self.write("\n")

    def phase(self, text: str) -> None:
        """Show on the live line what is being done."""
        if not self._stderr.is_terminal or self._in_line:
            return
        shown = Text(one_line(text))
        if self._status is None:
            self._status = self._stderr.status(shown)
            self._status.start()
        self._status.update(shown)

    def progress(self, stage: str, done: int, total: int) -> None:
        """Show an engine's progress while it fetches and loads.

        Safe to call from any thread. Without a terminal each stage that takes long, which has a
        total, is printed once, unless stderr is for the text.
        """
        name = stage.split(" (part")[0]
        if total and not self._stderr.is_terminal and name not in self._reported:
            self._reported.add(name)
            if not self.on_stderr:
                say(name)
        self.phase(f"{stage}: {done / total:.0%}" if total else stage)

    def legend(self, colours: Mapping[str, str] = SOURCE_COLOURS) -> None:
        """Print on stderr what the colours of the text mean."""
        self.end_line()
        names = [Text(name, colour) for name, colour in colours.items()]
        self._stderr.print(Text("text by source: ") + Text(" ").join(names), soft_wrap=True)

    def write(self, text: str, colour: str = "") -> None:
        """Write a part of the text."""
        stream: TextIO | None = sys.stderr if self.on_stderr else sys.stdout
        if not text or not stream:
            return
        self._stop_status()
        if stream.isatty():
            self._console.print(Text(visible(text), colour), end="", soft_wrap=True)
        else:
            stream.buffer.write(text.encode("utf-8", "surrogateescape"))
        stream.flush()
        self._in_line = not text.endswith("\n")

    def step(self, step: Step) -> None:
        """Show one forward pass."""
        self.tally.add(step)
        if step.prefill:
            self.phase("reading {} of {} tokens".format(*step.prefill))
        elif self.silent:
            speed = self.tally.tokens_per_second
            self.phase(f"writing: {self.tally.tokens} tokens, {speed:.0f} tokens/s")
        else:
            for piece in step.pieces:
                self.write(piece.text, self.colour_of(step, piece))

    def follow(self, job: Submitted, interrupt: AnswerInterrupt | None = None) -> Done:
        """Show a whole answer as it is written, and return its Done.

        The interrupt cancels the answer. The Done of an answer that fails midway has the text that
        was written until then.
        """
        from engine import Done

        written: list[str] = []
        try:
            for event in job:
                if isinstance(event, Done):
                    self.end_line()
                    failed = event.reason == "failed"
                    return dataclasses.replace(event, text="".join(written)) if failed else event
                written.append(event.text)
                self.step(event)
                if interrupt and interrupt.received:
                    job.cancel()
        finally:
            job.cancel()
        raise RuntimeError("the stream ended without a Done")

    def _stop_status(self) -> None:
        if self._status:
            self._status.stop()
            self._status = None


# -- figures -----------------------------------------------------------------------------------


def figures(done: Done, tally: Tally) -> dict[str, Any]:
    """Collect the figures of an answer's cost, for JSON."""
    usage = done.usage
    return {
        "usage": dataclasses.asdict(usage),
        "tokens_per_second": ratio(usage.completion_tokens, usage.decode_seconds),
        "tokens_per_forward": ratio(usage.completion_tokens, usage.forwards),
        "characters_by_source": dict(tally.sources),
    }


def print_stats(done: Done, tally: Tally) -> None:
    """Print a short table of figures on stderr."""
    usage = done.usage
    rows = {
        "prompt": f"{usage.prompt_tokens} tokens ({usage.cached_tokens} cached), "
        f"{usage.prefill_seconds:.2f} s",
        "answer": f"{usage.completion_tokens} tokens, {usage.decode_seconds:.2f} s, "
        f"{ratio(usage.completion_tokens, usage.decode_seconds):.1f} tokens/s",
        "forward passes": f"{usage.forwards}, "
        f"{ratio(usage.completion_tokens, usage.forwards):.2f} tokens each",
        "drafted": f"{usage.drafted} tokens in {usage.draft_seconds:.2f} s, "
        f"{usage.accepted} accepted",
        "text by source": ", ".join(
            f"{source} {count / tally.sources.total():.0%}"
            for source, count in tally.sources.most_common()
            if count
        ),
    }
    table = Table.grid(padding=(0, 2))
    for name, value in rows.items():
        table.add_row(name, value)
    Console(stderr=True, highlight=False).print(table)
