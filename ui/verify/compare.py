"""Comparing texts: which differ, where first, what stood there, and how near the choice was."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ui.verify.rates import wilson
from ui.verify.reply import Reply
from ui.verify.tasks import TaskKind, VerifyTask

Texts = dict[str, str]  # the texts of one condition by the names of their requests
# Rows of the table, in each mode and between the modes
AGAIN, WARMED, BATCHED = "asked again", "new and cached prompt", "alone against four at once"
FOUR, SEEDED = "four at once", "sampled, fixed seed"
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
    """A row of the table: the requests of which two texts were compared."""

    mode: str  # with, without, both: with against without speculation
    name: str
    tasks: tuple[VerifyTask, ...]
    differing: tuple[TextPlace, ...]  # one a request

    @property
    def is_sampled(self) -> bool:
        """Whether the texts were drawn by chance."""
        return self.name == SEEDED

    @property
    def of(self) -> int:
        """How many requests were compared."""
        return len(self.tasks)

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval of the share that differs."""
        return wilson(len(self.differing), self.of)

    def count(self, kind: TaskKind) -> tuple[int, int]:
        """Count the requests of a kind: those that differ, and all."""
        names = {task.name for task in self.tasks if task.kind == kind}
        return sum(place.task in names for place in self.differing), len(names)


def compare(
    tasks: Sequence[VerifyTask], mode: str, name: str, *pairs: tuple[Texts, Texts]
) -> Comparison:
    """Compare pairs of conditions; a request differs if it does in any of them."""
    compared, places = [], []
    for task in tasks:
        found = [(one.get(task.name), two.get(task.name)) for one, two in pairs]
        texts = [(one, two) for one, two in found if one is not None and two is not None]
        compared += [task] if texts else []
        unequal = [TextPlace(task.name, one, two) for one, two in texts if one != two]
        places += unequal[:1]
    return Comparison(mode, name, tuple(compared), tuple(places))


def margin(reply: Reply, place: TextPlace) -> float | None:
    """Return how many times as likely the model held one token as the other, as a logarithm.

    `reply` is a further answer to the same request with its probabilities. None where it took
    another way before the place, or where the other token was not among the likeliest. A text that
    ends has no token there that is seen, so neither has its place a margin.
    """
    start, end, found = place.start, 0, None
    taken = reply.text[: start + 1]
    others = {place.first: place.second, place.second: place.first}
    other = next((others[way] for way in others if way[: start + 1] == taken), "")
    for token in reply.odds if len(taken) > start else ():
        begin, end = end, end + len(token.text)
        if begin > start or not reply.text.startswith(token.text, begin):
            break
        chances = [
            chance
            for text, chance in token.others.items()
            if begin + len(text) > start and other.startswith(text, begin)
        ]
        if chances:  # at the token of the place or, where both share its start, at the one before
            found = abs(token.logprob - max(chances))
    return found
