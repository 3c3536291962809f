"""The drafters that `python -m bench replay` compares: other systems' rules, a bound, and ours.

Each rule is a plain implementation of its publication. All see the same texts: the prediction, the
output so far, other files. All but arctic's tree and ours draft a single sequence per step.
"""

from __future__ import annotations

import importlib
from array import array
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.replay.run import Rule, Seat
from engine.drafting import DraftContext, Drafter, NullDrafter, chain
from engine.drafting._drafting import Vocabulary, Weights
from engine.drafting.drafter_weights import INITIAL_SQUARES
from engine.drafting.next_token import NextTokenDrafter, NextTokenModel, WeightKind
from engine.drafting.stdlib_ngram import StdlibNgram
from engine.model.cost_model import GRID, CostModel
from engine.records import Draft
from index._core import Automaton

BORDER = -1  # between the prediction and the rest of a text
WIDTH = 4  # bytes of a token
LIMIT = 64  # tokens that a match may have at most
BIAS = 5  # SAM-Decoding: a match in other files counts so much less than one in the text itself
BRANCHES = 8  # SAM-Decoding: nodes under one parent
LEAST = 0.1  # arctic: probability below which it drafts nothing
FACTORS = (0, 4, 2, 1)  # drafts are at most so many times as long as their match; 0: any length


class Text:
    """Tokens as bytes, so that the first place of a run is found by bytes.find."""

    def __init__(self, tokens: list[int]) -> None:
        self.tokens = tokens
        self.bytes = bytearray(array("i", tokens).tobytes())

    def extend(self, tokens: list[int]) -> None:
        self.tokens += tokens
        self.bytes += array("i", tokens).tobytes()

    def find(self, run: list[int], stop: int | None = None, start: int = 0) -> int:
        """Where `run` stands first, from the token `start` on and before `stop`; -1: nowhere."""
        what = array("i", run).tobytes()
        end = len(self.bytes) if stop is None else stop * WIDTH
        at = self.bytes.find(what, start * WIDTH, end)
        while at % WIDTH and at >= 0:  # inside of tokens
            at = self.bytes.find(what, at + 1, end)
        return at // WIDTH


class Copying(NullDrafter):
    """A rule over the prediction, a border, the prompt and the output so far."""

    def __init__(self, seat: Seat) -> None:
        self.seat = seat
        self.text = Text([*seat.replay.prediction, BORDER, *seat.prompt])

    def propose(self, context: DraftContext, target: Any) -> Draft:
        tail = context.tail(LIMIT)
        return chain(self.run(tail, context.room), "copy")

    def run(self, tail: list[int], room: int) -> list[int]:
        """At most `room` tokens that may follow."""
        raise NotImplementedError

    def after(self, place: int, count: int) -> list[int]:
        """So many tokens of the text from `place` on, up to the border."""
        tokens = self.text.tokens[place : place + count]
        return tokens[: tokens.index(BORDER)] if BORDER in tokens else tokens

    def elsewhere(self, tail: list[int], count: int) -> list[int]:
        """What follows the tail's longest match in other files, where it is newest."""
        found = self.seat.workspace.match(tail, 1)
        return found[0].continuation(count).tolist() if found else []

    def observe(
        self, draft: Draft, path: list[int], committed: list[int], scores: Any, seconds: float
    ) -> None:
        self.text.extend(committed)


class Lookup(Copying):
    """The first place of the longest n-gram that ends the text; other files where there is none.

    Prompt lookup takes 3 to 1 tokens and only places that have the whole draft after them; vLLM
    takes 5 to 2 and any place."""

    def __init__(self, seat: Seat, most: int, least: int, whole: bool) -> None:
        super().__init__(seat)
        self.most, self.least, self.whole = most, least, whole

    def run(self, tail: list[int], room: int) -> list[int]:
        size = len(self.text.tokens)
        for count in range(min(self.most, len(tail)), self.least - 1, -1):
            stop = size - room if self.whole else size - 1  # where the n-gram may end at most
            place = self.text.find(tail[-count:], max(stop, 0))
            if place >= 0:
                return self.after(place + count, room)
        return self.elsewhere(tail[-self.most :], room)


class Sam(Copying):
    """SAM-Decoding: after the longest match, as many tokens as `factor` x its length. In the text
    a run, from its first or `last` place; in other files, where that is longer by BIAS, a tree."""

    def __init__(self, seat: Seat, last: bool, factor: int) -> None:
        super().__init__(seat)
        self.last, self.factor = last, factor
        self.old = automaton(seat)
        self.new = Automaton()
        self.new.open()
        self.new.extend(list(seat.prompt))

    def propose(self, context: DraftContext, target: Any) -> Draft:
        tail = np.array(context.tail(LIMIT), np.int32)
        length, place = self.match(tail)
        others = self.seat.workspace.match(tail, 1, LIMIT)
        bonus = others[0].length - BIAS if others else 0
        if bonus > length:
            tree = self.seat.workspace.tree(
                tail, self.reach(bonus, context.room), BRANCHES, limit=LIMIT
            )
            return draft_of(tree.tokens.tolist(), tree.parents.tolist(), tree.probs.tolist())
        return chain(self.after(place, self.reach(length, context.room)) if length else [], "copy")

    def match(self, tail: np.ndarray[Any, np.dtype[np.int32]]) -> tuple[int, int]:
        """The longest match in the text, and what place follows it."""
        old = self.old.match(tail, 1, LIMIT, followed=True)
        new = self.new.match(tail, 1, LIMIT, followed=True)
        length = max(old.length, new.length)
        if not length:
            return 0, 0
        border, run = len(self.seat.replay.prediction), tail[-length:].tolist()
        if self.last:
            is_new = new.length == length
            return length, border + 1 + int(new.ends[0]) if is_new else int(old.ends[0])
        if old.length == length:
            return length, self.text.find(run, border - 1) + length
        return length, self.text.find(run, start=border + 1) + length

    def reach(self, length: int, room: int) -> int:
        return min(room, self.factor * length) if self.factor else room

    def observe(
        self, draft: Draft, path: list[int], committed: list[int], scores: Any, seconds: float
    ) -> None:
        super().observe(draft, path, committed, scores, seconds)
        self.new.extend(committed)


def automaton(seat: Seat) -> Automaton:
    """Over the prediction; nobody changes it."""
    if "automaton" not in seat.made:
        seat.made["automaton"] = Automaton()
        seat.made["automaton"].add(seat.replay.prediction)
    known: Automaton = seat.made["automaton"]
    return known


def draft_of(tokens: list[int], parents: list[int], probs: list[float]) -> Draft:
    return Draft(tokens, parents, probs, ["copy"] * len(tokens))


class Arctic(NullDrafter):
    """arctic-inference's suffix decoding: a tree over the prediction and the output so far, one
    over other files; of their drafts the one with the higher score."""

    def __init__(self, seat: Seat, factor: int, branches: bool) -> None:
        self.factor, self.branches = float(factor or LIMIT), branches
        new = importlib.import_module("arctic_inference.suffix_decoding._C").SuffixTree
        if "arctic" not in seat.files.made:
            seat.files.made["arctic"] = new(LIMIT)
            for number, ids in enumerate(seat.files.ids()):
                seat.files.made["arctic"].extend(number, ids)
        if "arctic" not in seat.made:
            seat.made["arctic"] = new(LIMIT)
            seat.made["arctic"].extend(0, seat.replay.prediction)
        else:
            seat.made["arctic"].remove(1)  # what the rule before has put out
        self.tree, self.others = seat.made["arctic"], seat.files.made["arctic"]
        self.tree.extend(1, list(seat.prompt))

    def propose(self, context: DraftContext, target: Any) -> Draft:
        tail = np.array(context.tail(LIMIT), np.int32)
        asked = (context.room, self.factor, 0.0, LEAST, self.branches)
        ours, theirs = (one.speculate_ndarray(tail, *asked) for one in (self.tree, self.others))
        best = ours if ours.score >= theirs.score else theirs
        return draft_of(best.token_ids, best.parents, best.probs)

    def observe(
        self, draft: Draft, path: list[int], committed: list[int], scores: Any, seconds: float
    ) -> None:
        self.tree.extend(1, committed)


class Bound(Copying):
    """Knows the answer: the longest single copy from the text there is, and nothing wrong. The last
    token is never drafted: it comes by itself."""

    def propose(self, context: DraftContext, target: Any) -> Draft:
        done = len(context.output)
        ahead = self.seat.replay.output[done:-1][: context.room]
        low, high = 0, len(ahead)
        while low < high:  # what begins a copy is one, too
            middle = (low + high + 1) // 2
            if self.text.find(ahead[:middle]) >= 0:
                low = middle
            else:
                high = middle - 1
        return chain(ahead[:low], "future")


class Linear(CostModel):
    """A pass costs 1 + beta x nodes."""

    def __init__(self, beta: float) -> None:
        super().__init__([1.0 + beta * (rows - 1) for rows in GRID])
        self.beta = beta
        self._tables: dict[int, NDArray[np.float64]] = {}

    def table(self, context: int, most: int) -> NDArray[np.float64]:
        if most not in self._tables:  # making it is no part of a step
            self._tables[most] = 1.0 + self.beta * np.arange(most)
        return self._tables[most]

    def observe(self, rows: int, context: int, seconds: float) -> None:
        pass


@dataclass(frozen=True, slots=True)
class Ours:
    """The engine's drafter, as it is made for an edit. Nothing is remembered between answers."""

    vocabulary: Vocabulary
    library: StdlibNgram
    weights: dict[str, dict[WeightKind, Weights]]  # by package, "" for those that are not named
    without: str = ""  # a part that is left out

    def __call__(self, seat: Seat) -> Drafter:
        known = self.weights.get(seat.replay.package) or self.weights[""]
        kind: WeightKind = "file" if seat.replay.whole else "hunk"
        fresh = Weights(known[kind].values)
        fresh.reset(*INITIAL_SQUARES)
        model = NextTokenModel(self.vocabulary, self.library, {kind: fresh})
        cost = Linear(seat.beta)
        return NextTokenDrafter(model, cost, seat.budget, seat.workspace, without=self.without)


def rules(ours: Ours | None = None, without: Iterable[str] = ()) -> list[Rule]:
    """All of them, ours first, in full and then `without` a part."""
    sizes = {factor: f"{factor}x" if factor else "fixed" for factor in FACTORS}
    sam = [
        Rule(f"{family}-{size}", family, partial(Sam, last=last, factor=factor))
        for last, family in ((False, "sam-first"), (True, "sam-last"))
        for factor, size in sizes.items()
    ]
    arctic = [
        Rule(f"{name}-{size}", "arctic", partial(Arctic, factor=factor, branches=branches))
        for branches, name in ((False, "arctic"), (True, "arctic-tree"))
        for factor, size in sizes.items()
    ]
    return [
        *([Rule("draftline", "draftline", ours, by_beta=True)] if ours else []),
        *(
            Rule(f"without {part}", f"without {part}", replace(ours, without=part), by_beta=True)
            for part in without
            if ours
        ),
        Rule("prompt-lookup", "prompt-lookup", partial(Lookup, most=3, least=1, whole=True)),
        Rule("vllm", "vllm", partial(Lookup, most=5, least=2, whole=False)),
        *sam,
        *(arctic if find_spec("arctic_inference") else []),
        Rule("bound", "bound", Bound),
        Rule("nothing", "nothing", lambda seat: NullDrafter()),
    ]
