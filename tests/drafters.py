"""Drafters for the tests of the law: each tries to break it in a way of its own."""

from __future__ import annotations

import random
from typing import Any

from engine.cost import GRID, Cost
from engine.drafting import Context, Drafter, Nothing
from engine.drafting.blend import Blend, Calibration
from engine.drafting.context import ContextSource
from engine.drafting.prediction import Prediction
from engine.records import Draft


class Scripted(Nothing):
    """Knows the true text (`truth`), and proposes by it."""

    def __init__(self, truth: list[int], vocab: int, seed: int = 0) -> None:
        self.truth, self.vocab, self.random = truth, vocab, random.Random(seed)

    def ahead(self, context: Context, count: int) -> list[int]:
        start = len(context.output)
        return self.truth[start : start + count]


class Right(Scripted):
    """Always right, as far as there is room."""

    def propose(self, context: Context, target: Any) -> Draft:
        draft = Draft()
        for n, token in enumerate(self.ahead(context, 7)):
            draft.add(token, n - 1, 1.0, "right")
        return draft


class Wrong(Scripted):
    """Always wrong at the root, right behind it."""

    def propose(self, context: Context, target: Any) -> Draft:
        draft = Draft()
        for n, token in enumerate(self.ahead(context, 5)):
            draft.add((token + 1) % self.vocab if n == 0 else token, n - 1, 1.0, "wrong")
        return draft


class Trees(Scripted):
    """Random trees in which the truth hides among siblings, duplicates and end tokens."""

    eos = 0

    def propose(self, context: Context, target: Any) -> Draft:
        draft = Draft()
        truth = self.ahead(context, 6)
        on_path = {-1: 0}
        for _ in range(self.random.randrange(24)):
            parent = self.random.randrange(-1, len(draft))
            depth = on_path.get(parent)
            if depth is not None and depth < len(truth) and self.random.random() < 0.6:
                on_path[draft.add(truth[depth], parent, 0.5, "tree")] = depth + 1
            else:
                token = self.random.choice([self.eos, self.random.randrange(self.vocab)])
                draft.add(token, parent, 0.5, "tree")
        return draft


class Long(Scripted):
    """Ignores the room left."""

    def propose(self, context: Context, target: Any) -> Draft:
        draft = Draft()
        for n, token in enumerate(self.ahead(context, 50) + [1] * 20):
            draft.add(token, n - 1, 1.0, "long")
        return draft


class Steady(Cost):
    """Costs that stay as they are, so that tests do not depend on the clock."""

    def saw(self, rows: int, seconds: float) -> None:
        pass


def real(predictions: bool = True) -> Blend:
    """The drafter in use, with costs that make drafting pay."""
    sources = [Prediction(), ContextSource()] if predictions else [ContextSource()]
    return Blend(sources, Calibration(), Steady([1 + 0.02 * n for n in GRID]), 48)


def drafters(truth: list[int], vocab: int) -> dict[str, Drafter]:
    """One fresh drafter of each kind."""
    return {
        "nothing": Nothing(),
        "right": Right(truth, vocab),
        "wrong": Wrong(truth, vocab),
        "trees": Trees(truth, vocab),
        "more trees": Trees(truth, vocab, seed=1),
        "long": Long(truth, vocab),
        "blend": real(),
    }
