"""Tokens in, pieces of text out: whole characters, exact stop strings, the source of each piece."""

from __future__ import annotations

from collections.abc import Mapping

from engine.prompts.detokenizer import Detokenizer
from engine.prompts.reasoning import ReasoningFilter
from engine.prompts.tokenizer import Tokenizer
from engine.records import Piece
from index.records import Span

Origin = tuple[str, Span | None]  # source and Span that a token was drafted from


class TextStream:
    """The text of one answer.

    Text that may be the start of a stop string is held back until it is known not to be. Stop
    strings do not count in reasoning, which is no part of the text. Tokens are pushed one by one,
    so the result does not depend on step sizes.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        stop: tuple[str, ...],
        reasoning: ReasoningFilter | None = None,
        continues: bool = False,
        marks: Mapping[int, str] | None = None,
    ) -> None:
        """Begin an empty text.

        `stop`: the strings that end it. `continues`: the prompt ends with text that the answer
        continues. `marks`: control tokens that are text here.
        """
        self.marks = marks or {}
        self.detokenizer = Detokenizer(tokenizer, continues)
        self.stop = tuple(text for text in stop if text)
        self._begins_stop = {text[0] for text in self.stop}
        self.filter = reasoning
        self.held: list[Piece] = []
        self.released: list[str] = []
        self.matched: str | None = None
        self.origin: Origin | None = None  # origin of the tokens since the last complete character

    @property
    def text(self) -> str:
        """The text released so far."""
        return "".join(self.released)

    def push(self, tokens: list[int], origins: list[Origin]) -> tuple[int, list[Piece]]:
        """Add tokens, each with its origin, to the text.

        Returns how many of `tokens` were used, fewer where a stop string ends the text, and the
        text that is now final.
        """
        if (final := self._final(tokens)) is not None:
            return len(tokens), joined(pieces_of(final, origins))
        out: list[Piece] = []
        for used, (token, origin) in enumerate(zip(tokens, origins, strict=True), 1):
            if self.filter is not None and self.filter.mark(token):
                continue
            self.origin = merged_origin(self.origin, origin) if self.origin else origin
            if token in self.marks:
                out += self._add(self.detokenizer.flush() + self.marks[token])
            else:
                out += self._add(self.detokenizer.push(token))
            if self.matched is not None:
                return used, joined(out)
        return len(tokens), joined(out)

    def _final(self, tokens: list[int]) -> list[str] | None:
        """Return the text of each token, where it is final at once.

        It is where nothing is held back, and nothing in it begins a stop string. Otherwise this
        returns None, and changes nothing.
        """
        if not tokens or self.filter is not None or self.held or self.origin is not None:
            return None
        texts = self.detokenizer.own_texts(tokens)
        if texts is None or not self._begins_stop.isdisjoint("".join(texts)):
            return None
        self.detokenizer.skip(tokens)
        self.released += texts
        return texts

    def finish(self) -> list[Piece]:
        """Release the text held back, at the end of the answer."""
        if self.matched is not None:
            return []
        out = self._add(self.detokenizer.flush(), last=True)
        if self.matched is None:
            out += self._release(sum(len(piece.text) for piece in self.held))
        return joined(out)

    @property
    def reasoning(self) -> str:
        """The reasoning so far."""
        return "" if self.filter is None else self.filter.text

    def take_reasoning(self) -> str:
        """Return the reasoning since the last call."""
        return "" if self.filter is None else self.filter.take()

    def _add(self, text: str, last: bool = False) -> list[Piece]:
        if text:
            piece = Piece(text, *(self.origin or ("model", None)))
            self.origin = None
            self.held += [piece] if self.filter is None else self.filter.push(piece)
        if last and self.filter is not None:
            self.held += self.filter.finish()
        waiting = "".join(piece.text for piece in self.held)
        hits = [(waiting.find(one), -len(one), one) for one in self.stop if one in waiting]
        if hits:
            at, _, self.matched = min(hits)
            out = self._release(at)
            self.held = []
            return out
        return self._release(len(waiting) - self._overlap(waiting))

    def _overlap(self, waiting: str) -> int:
        """Measure the longest suffix of `waiting` that is a prefix of a stop string."""
        for count in range(min(len(waiting), max(map(len, self.stop), default=1) - 1), 0, -1):
            if any(text.startswith(waiting[-count:]) for text in self.stop):
                return count
        return 0

    def _release(self, count: int) -> list[Piece]:
        """Release the first `count` held characters."""
        out: list[Piece] = []
        while self.held and count > 0:
            piece = self.held.pop(0)
            if len(piece.text) > count:
                piece, rest = split(piece, count)
                self.held.insert(0, rest)
            count -= len(piece.text)
            out.append(piece)
        self.released += [piece.text for piece in out]
        return out


def merged_origin(one: Origin, other: Origin) -> Origin:
    """Merge the origins of two tokens that form one character together.

    Where they differ it is the model, unless their Spans in one text overlap.
    """
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


def split(piece: Piece, count: int) -> tuple[Piece, Piece]:
    """Split a piece at a character, and its Span where both have the same length."""
    one, other = piece._replace(text=piece.text[:count]), piece._replace(text=piece.text[count:])
    span = piece.span
    if span is not None and span.stop - span.start == len(piece.text):
        at = span.start + count
        one = one._replace(span=Span(span.path, span.start, at, span.version))
        other = other._replace(span=Span(span.path, at, span.stop, span.version))
    return one, other


def pieces_of(texts: list[str], origins: list[Origin]) -> list[Piece]:
    """Make pieces of texts with their origins.

    One piece for each run of texts from one source without Spans, and for each text with one.
    """
    out: list[Piece] = []
    start, count = 0, len(texts)
    for stop in range(1, count + 1):
        source, span = origins[stop - 1]
        if stop < count and span is None and origins[stop] == (source, None):
            continue
        if text := "".join(texts[start:stop]):
            out.append(Piece(text, source, span))
        start = stop
    return out


def joined(pieces: list[Piece]) -> list[Piece]:
    """Merge neighbouring pieces of one source whose Spans are adjacent, or that have none."""
    out: list[Piece] = []
    start = 0
    for stop in range(1, len(pieces) + 1):
        if stop < len(pieces) and adjoin(pieces[stop - 1], pieces[stop]):
            continue
        out.append(merged(pieces[start:stop]) if stop - start > 1 else pieces[start])
        start = stop
    return out


def adjoin(one: Piece, other: Piece) -> bool:
    """Return whether two pieces have one source, and adjacent Spans or none."""
    if one.source != other.source:
        return False
    before, after = one.span, other.span
    if before is None or after is None:
        return before is after
    in_one_text = before.path == after.path and before.version == after.version
    return in_one_text and before.stop == after.start


def merged(run: list[Piece]) -> Piece:
    """Merge a run of pieces, each of which adjoins the next, into one."""
    text, (_, source, span), last = "".join([piece.text for piece in run]), run[0], run[-1].span
    if span is None or last is None:
        return Piece(text, source)
    return Piece(text, source, Span(span.path, span.start, last.stop, span.version))
