"""Prediction: the text expected to be repeated, followed as the answer follows it.

A pointer keeps the place where the answer stands in the prediction. After a token that departs
from it, guesses go on side by side: one token replaced, text inserted, text deleted up to where the
answer's last tokens occur again; the pointer settles where enough of them agree.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict

from engine.drafting import Chain, Context

LOOK_BACK = 12  # tokens compared when looking for the place again
NEARBY = 48  # occurrences of a token that are looked at, nearest first
BRANCHES = 4  # guesses that need evidence, beside the ones that need none


class Prediction:
    """Chains from the predictions of one request. Positions count into their concatenation, with
    a border token that equals no id between them, so that no chain crosses."""

    BORDER = -1

    def __init__(self) -> None:
        self.text: list[int] = []
        self.places: dict[int, list[int]] = defaultdict(list)
        self.output: list[int] = []
        self.pointer = self.run = self.gap = 0

    def begin(self, context: Context) -> None:
        for prediction in context.predictions:
            self.text += [*prediction, self.BORDER]
        for place, token in enumerate(self.text):
            self.places[token].append(place)

    def extend(self, tokens: list[int]) -> None:
        for token in tokens:
            self.output.append(token)
            if self.gap == 0 and self._at(self.pointer) == token:
                self.pointer += 1
                self.run += 1
            else:
                self._find(token)

    def _at(self, place: int) -> int:
        return self.text[place] if 0 <= place < len(self.text) else self.BORDER

    def _agree(self, place: int) -> int:
        """How many tokens up to `place` equal the end of the output, LOOK_BACK at most."""
        count = 0
        limit = min(LOOK_BACK, place + 1, len(self.output))
        while count < limit and self.text[place - count] == self.output[-1 - count]:
            count += 1
        return count

    def _near(self, token: int) -> list[int]:
        places = self.places.get(token, [])
        middle = bisect_left(places, self.pointer)
        return places[max(0, middle - NEARBY // 4) : middle + NEARBY]

    def _need(self, jump: int) -> int:
        """Agreeing tokens without which the pointer does not jump: more, the farther it is."""
        if 0 < self.gap <= 3 and jump == self.gap:
            return 1  # as many tokens replaced as came instead
        if jump < 0:
            return 4 if jump >= -32 else 7
        return 2 + (jump > self.gap + 8) + (jump > 64) + (jump > 256)

    def _find(self, token: int) -> None:
        best: tuple[int, int] | None = None
        for place in self._near(token):
            jump = place - self.pointer
            spare = self._agree(place) - self._need(jump)
            if spare >= 0 and (best is None or (spare, -abs(jump)) > best):
                best = (spare, -abs(jump))
                found = place
        if best is None:
            self.gap += 1
            self.run = 0
        else:
            self.run = self._agree(found)
            self.pointer, self.gap = found + 1, 0

    def chains(self, context: Context, length: int) -> list[Chain]:
        guesses: list[Chain] = []
        seen: set[int] = set()

        def guess(place: int, match: int, kind: str) -> None:
            if place in seen or not 0 <= place < len(self.text):
                return
            seen.add(place)
            stop = min(place + length, len(self.text))
            tokens = self.text[place:stop]
            if self.BORDER in tokens:
                tokens = tokens[: tokens.index(self.BORDER)]
            if tokens:
                guesses.append(Chain(tokens, match, "prediction", kind))

        if self.gap == 0:
            guess(self.pointer, self.run, "follow")
        if self.output:
            agree = [(self._agree(place), place) for place in self._near(self.output[-1])]
            agree = [one for one in agree if one[0] > 0]
            agree.sort(key=lambda one: (-one[0], abs(one[1] + 1 - self.pointer)))
            for match, place in agree[:BRANCHES]:
                ahead = "ahead" if place >= self.pointer else "behind"
                guess(place + 1, match, ahead)
        if self.gap:
            guess(self.pointer + self.gap, 0, f"replaced{min(self.gap, 3)}")
            guess(self.pointer, 0, f"inserted{min(self.gap, 3)}")
            guess(self.pointer + self.gap + 1, 0, f"deleted{min(self.gap, 3)}")
        else:
            guess(self.pointer + 1, 0, "skipped")
        return guesses
