"""Tokens in, pieces of text out: characters whole, stop strings cut exactly, origin kept."""

from __future__ import annotations

from engine.prompts.detokenizer import Detokenizer
from engine.prompts.tokenizer import Tokenizer
from engine.records import Piece
from index.records import Span

Origin = tuple[str, Span | None]  # where a token was drafted from


class TextStream:
    """The text of one answer. What may be the start of a stop string is held back until it is
    known not to be; tokens go in one by one, so the result does not depend on the steps' sizes."""

    def __init__(self, tokenizer: Tokenizer, stop: tuple[str, ...]) -> None:
        self.detokenizer = Detokenizer(tokenizer)
        self.stop = tuple(one for one in stop if one)
        self.held: list[Piece] = []
        self.released: list[str] = []
        self.matched: str | None = None
        self.origin: Origin | None = None  # of the tokens since the last whole character

    @property
    def text(self) -> str:
        """What was released so far."""
        return "".join(self.released)

    def push(self, tokens: list[int], origins: list[Origin]) -> tuple[int, list[Piece]]:
        """How many of `tokens` were used (fewer where a stop string ends the text) and the text
        that is now certain."""
        out: list[Piece] = []
        for used, (token, origin) in enumerate(zip(tokens, origins, strict=True), 1):
            self.origin = of_both(self.origin, origin) if self.origin else origin
            out += self._add(self.detokenizer.push(token))
            if self.matched is not None:
                return used, joined(out)
        return len(tokens), joined(out)

    def finish(self) -> list[Piece]:
        """What was held back, at the end of the answer."""
        if self.matched is not None:
            return []
        out = self._add(self.detokenizer.flush())
        if self.matched is None:
            out += self._release(sum(len(piece.text) for piece in self.held))
        return joined(out)

    def _add(self, text: str) -> list[Piece]:
        if text:
            self.held.append(Piece(text, *(self.origin or ("model", None))))
            self.origin = None
        waiting = "".join(piece.text for piece in self.held)
        hits = [(waiting.find(one), -len(one), one) for one in self.stop if one in waiting]
        if hits:
            at, _, self.matched = min(hits)
            out = self._release(at)
            self.held = []
            return out
        return self._release(len(waiting) - self._overlap(waiting))

    def _overlap(self, waiting: str) -> int:
        """Length of the longest end of `waiting` that a stop string starts with."""
        for count in range(min(len(waiting), max(map(len, self.stop), default=1) - 1), 0, -1):
            if any(one.startswith(waiting[-count:]) for one in self.stop):
                return count
        return 0

    def _release(self, count: int) -> list[Piece]:
        """Take the first `count` held characters out."""
        out: list[Piece] = []
        while self.held and count > 0:
            piece = self.held.pop(0)
            if len(piece.text) > count:
                piece, rest = parted(piece, count)
                self.held.insert(0, rest)
            count -= len(piece.text)
            out.append(piece)
        self.released += [piece.text for piece in out]
        return out


def of_both(one: Origin, other: Origin) -> Origin:
    """Of tokens that make a character together: the model's own, where they are of two places."""
    if one == other:
        return one
    (source, first), (_, second) = one, other
    if source != other[0] or first is None or second is None:
        return ("model", None)
    if (first.path, first.version) != (second.path, second.version):
        return ("model", None)
    if not first.start <= second.start < first.stop:
        return ("model", None)
    return source, Span(first.path, first.start, max(first.stop, second.stop), first.version)


def parted(piece: Piece, count: int) -> tuple[Piece, Piece]:
    """A piece before and from that character on; its Span, too, where it has as many."""
    one, other = piece._replace(text=piece.text[:count]), piece._replace(text=piece.text[count:])
    span = piece.span
    if span is not None and span.stop - span.start == len(piece.text):
        at = span.start + count
        one = one._replace(span=Span(span.path, span.start, at, span.version))
        other = other._replace(span=Span(span.path, at, span.stop, span.version))
    return one, other


def joined(pieces: list[Piece]) -> list[Piece]:
    """Neighbours of one source as one piece; Spans that follow one another grow together."""
    out: list[Piece] = []
    for piece in pieces:
        if out and out[-1].source == piece.source:
            span = follow(out[-1].span, piece.span)
            if span is not None or out[-1].span is piece.span is None:
                out[-1] = Piece(out[-1].text + piece.text, piece.source, span)
                continue
        out.append(piece)
    return out


def follow(one: Span | None, other: Span | None) -> Span | None:
    """The Span of both, where `other` starts where `one` ends; else None."""
    if one is None or other is None:
        return None
    if (one.path, one.version, one.stop) != (other.path, other.version, other.start):
        return None
    return Span(one.path, one.start, other.stop, one.version)
