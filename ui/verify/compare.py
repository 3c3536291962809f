"""Comparing texts: which differ, where first, what stood there, and how near the choice was."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ui.verify.rates import wilson
from ui.verify.reply import Reply
from ui.verify.tasks import VerifyTask

Texts = dict[str, str]  # the texts of one condition by the names of their requests
# Rows of the table, in each mode and between the modes
AGAIN, WARMED, BATCHED = "asked again", "first and second time", "alone and four at once"
FOUR, SEEDED = "four at once", "by chance, with a seed"
NEAR_TIE = 0.1  # natural logarithm of how many times as likely: rounding may decide
BEFORE_CHARS, AFTER_CHARS = 24, 16  # characters that are shown of a differing place


class TextPlace(NamedTuple):
    """The first place at which two texts of one request differ."""

    task: str  # the request's name
    first: str  # both texts
    second: str

    @property
    def start(self) -> int:
        """The number of characters before the place, which both texts share."""
        pairs = zip(self.first, self.second, strict=False)
        shortest = min(len(self.first), len(self.second))
        return next((at for at, (one, other) in enumerate(pairs) if one != other), shortest)

    @property
    def before(self) -> str:
        """The last characters that both texts share."""
        return self.first[max(0, self.start - BEFORE_CHARS) : self.start]

    @property
    def then(self) -> tuple[str, str]:
        """What each text has there."""
        start = self.start
        return self.first[start : start + AFTER_CHARS], self.second[start : start + AFTER_CHARS]


@dataclass(frozen=True, slots=True)
class Comparison:
    """A row of the table: how many requests have differing texts."""

    mode: str  # with, without, both: with against without speculation
    name: str
    of_kind: dict[str, int]  # how many were compared, by kind
    differing_of_kind: dict[str, int]
    differing: tuple[TextPlace, ...]  # one a request

    @property
    def is_sampled(self) -> bool:
        """Whether the texts were drawn by chance."""
        return self.name == SEEDED

    @property
    def of(self) -> int:
        """How many requests were compared."""
        return sum(self.of_kind.values())

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval of the share that differs."""
        return wilson(len(self.differing), self.of)


def compare(
    tasks: Sequence[VerifyTask], mode: str, name: str, pairs: Sequence[tuple[Texts, Texts]]
) -> Comparison:
    """Compare pairs of conditions; a request differs if it does in any of them."""
    of_kind: dict[str, int] = {}
    differing_of_kind: dict[str, int] = {}
    places = []
    for task in tasks:
        texts = [
            (first[task.name], second[task.name])
            for first, second in pairs
            if task.name in first and task.name in second
        ]
        if not texts:
            continue
        of_kind[task.kind] = of_kind.get(task.kind, 0) + 1
        unequal = [TextPlace(task.name, *pair) for pair in texts if pair[0] != pair[1]]
        if unequal:
            differing_of_kind[task.kind] = differing_of_kind.get(task.kind, 0) + 1
            places.append(unequal[0])
    return Comparison(mode, name, of_kind, differing_of_kind, tuple(places))


def margin(reply: Reply, place: TextPlace) -> float | None:
    """Return how many times as likely the model held one token as the other, as a logarithm.

    `reply` is a further answer to the same request with its probabilities. None where it took
    another way before the place, or where the other token was not among the likeliest. A text that
    ends has no token there that is seen, so neither has its place a margin.
    """
    ways = ((place.first, place.second), (place.second, place.first))
    others = [other for way, other in ways if _follows(reply.text, way, place.start)]
    starts = _starts(reply)
    covering = [number for number, start in enumerate(starts) if start <= place.start]
    for number in reversed(covering[-2:] if others else []):  # texts may part within a token
        token, rest = reply.odds[number], others[0][starts[number] :]
        found = [
            chance
            for text, chance in token.others.items()
            if rest.startswith(text) and starts[number] + len(text) > place.start
        ]
        if found:
            return abs(token.logprob - max(found))
    return None


def _follows(text: str, way: str, start: int) -> bool:
    """Return whether a text goes the way of another up to and including a place."""
    return text[: start + 1] == way[: start + 1] and len(text) > start


def _starts(reply: Reply) -> list[int]:
    """Return where each token starts in the text; none where they do not make it."""
    starts, end = [], 0
    for token in reply.odds:
        if not reply.text.startswith(token.text, end):
            break
        starts.append(end)
        end += len(token.text)
    return starts
