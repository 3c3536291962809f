"""An answer while it streams: its text by draft source, its figures and its phase."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter

from engine.records import Done, Piece, Step

WAITING, SEARCHING, READING = "waiting for the model", "looking for passages", "reading"
WRITING, DONE, STOPPED = "writing", "done", "stopped"


@dataclass
class AnswerProgress:
    """The state of one streaming answer."""

    pass_seconds: Sequence[float] = (1.0,)  # cost of a pass over 1, 2, ... tokens
    phase: str = WAITING
    detail: str = ""  # what the phase is about
    pieces: list[Piece] = field(default_factory=list)
    tokens_per_pass: list[int] = field(default_factory=list)
    drafted: int = 0
    decode_s: float = 0.0
    plain_s: float = 0.0  # estimate for the same tokens without speculation
    started: float = field(default_factory=perf_counter)
    ended: float | None = None
    done: Done | None = None

    @property
    def text(self) -> str:
        return self.done.text if self.done else "".join(piece.text for piece in self.pieces)

    @property
    def tokens(self) -> int:
        return sum(self.tokens_per_pass)

    @property
    def elapsed_s(self) -> float:
        """The seconds since the request."""
        return (self.ended or perf_counter()) - self.started

    @property
    def tokens_per_second(self) -> float:
        """The tokens per second while decoding."""
        return self.tokens / self.decode_s if self.decode_s else 0.0

    @property
    def speedup(self) -> float:
        """The speedup over plain decoding, estimated from the costs of passes."""
        return self.plain_s / self.decode_s if self.decode_s else 0.0

    def add(self, step: Step) -> None:
        """Record a forward pass."""
        if step.prefill is not None:
            self.phase, self.detail = READING, "{} of {} tokens".format(*step.prefill)
        else:
            self.phase, self.detail = WRITING, ""
            tokens = step.accepted + 1
            rows = min(step.drafted, len(self.pass_seconds) - 1)
            self.tokens_per_pass.append(tokens)
            self.drafted += step.drafted
            self.decode_s += step.seconds
            self.plain_s += tokens * step.seconds * self.pass_seconds[0] / self.pass_seconds[rows]
        for piece in step.pieces:
            merged = merge(self.pieces[-1], piece) if self.pieces else None
            if merged is None:
                self.pieces.append(piece)
            else:
                self.pieces[-1] = merged

    def finish(self, done: Done) -> None:
        """Record the end; text that a stop string cut off is removed.

        What was written before a failure stays.
        """
        if done.reason == "failed":
            done = replace(done, text=self.text)
        self.done, self.ended, self.detail = done, perf_counter(), ""
        self.phase = STOPPED if done.reason == "cancelled" else DONE
        left = len(done.text)
        for index, piece in enumerate(self.pieces):
            self.pieces[index] = piece._replace(text=piece.text[:left])
            left -= len(self.pieces[index].text)
        self.pieces = [piece for piece in self.pieces if piece.text]


def cut(pieces: Sequence[Piece], text: str) -> list[Piece]:
    """Return the pieces of `text`, which is a part of their text; none where it is not."""
    start, at = "".join(piece.text for piece in pieces).find(text), 0
    found = []
    for piece in pieces if start >= 0 else ():
        part = piece.text[max(0, start - at) : max(0, start + len(text) - at)]
        at += len(piece.text)
        if part:
            found.append(piece._replace(text=part))
    return found


def merge(first: Piece, second: Piece) -> Piece | None:
    """Two consecutive pieces as one; None if they come from different sources."""
    if first.source != second.source:
        return None
    before, after = first.span, second.span
    if before is not None and after is not None:
        if (before.path, before.version, before.stop) != (after.path, after.version, after.start):
            return None
        after = replace(before, stop=after.stop)
    elif before is not after:
        return None
    return Piece(first.text + second.text, first.source, after)
