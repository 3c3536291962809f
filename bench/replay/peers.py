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

from bench.replay.run import ReplaySetup, Rule
from engine.drafting import DraftContext, Drafter, NullDrafter, chain
from engine.drafting._drafting import Vocabulary, Weights
from engine.drafting.drafter_weights import INITIAL_SQUARES
from engine.drafting.next_token import NextTokenDrafter, NextTokenModel, WeightKind
from engine.drafting.stdlib_ngram import StdlibNgram
from engine.model.cost_model import GRID, CostModel
from engine.records import Draft
from index._core import Automaton

BORDER = -1  # a pseudo token between the prediction and the rest of a text
TOKEN_BYTES = 4  # bytes of a token
MAX_MATCH_TOKENS = 64  # tokens of a match
SAM_BIAS = 5  # tokens that SAM-Decoding takes off a match in other files
SAM_BRANCHES = 8  # children of a node, in SAM-Decoding
ARCTIC_MIN_PROB = 0.1  # probability below which arctic drafts nothing
LENGTH_FACTORS = (0, 4, 2, 1)  # draft length over match length, at most; 0: unlimited


class SearchableText:
    """Tokens as bytes, so that bytes.find locates a sequence."""

    def __init__(self, tokens: list[int]) -> None:
        self.tokens = tokens
        self.bytes = bytearray(array("i", tokens).tobytes())

    def extend(self, tokens: list[int]) -> None:
        self.tokens += tokens
        self.bytes += array("i", tokens).tobytes()

    def find(self, run: list[int], stop: int | None = None, start: int = 0) -> int:
        """Find the first position of `run` between tokens `start` and `stop`; -1 for none."""
        what = array("i", run).tobytes()
        end = len(self.bytes) if stop is None else stop * TOKEN_BYTES
        at = self.bytes.find(what, start * TOKEN_BYTES, end)
        while at % TOKEN_BYTES and at >= 0:  # not aligned to tokens
            at = self.bytes.find(what, at + 1, end)
        return at // TOKEN_BYTES


class CopyRule(NullDrafter):
    """A rule over the prediction, a border, the prompt and the output so far."""

    def __init__(self, setup: ReplaySetup) -> None:
        self.setup = setup
        self.text = SearchableText([*setup.replay.prediction, BORDER, *setup.prompt])

    def propose(self, context: DraftContext, target: Any) -> Draft:
        tail = context.tail(MAX_MATCH_TOKENS)
        return chain(self.run(tail, context.capacity), "copy")

    def run(self, tail: list[int], capacity: int) -> list[int]:
        """Propose at most `capacity` tokens that may follow the tail."""
        raise NotImplementedError

    def after(self, place: int, count: int) -> list[int]:
        """Return at most `count` tokens of the text from `place` on, up to the border."""
        tokens = self.text.tokens[place : place + count]
        return tokens[: tokens.index(BORDER)] if BORDER in tokens else tokens

    def elsewhere(self, tail: list[int], count: int) -> list[int]:
        """Return the continuation of the tail's longest match in other files, the newest first."""
        found = self.setup.workspace.match(tail, 1)
        return found[0].continuation(count).tolist() if found else []

    def observe(
        self, draft: Draft, path: list[int], committed: list[int], scores: Any, seconds: float
    ) -> None:
        self.text.extend(committed)


class PromptLookupRule(CopyRule):
    """Prompt lookup: the first occurrence of the longest n-gram that ends the text.

    Without one in the text, it is one in other files.

    transformers' prompt lookup matches 3 to 1 tokens, only where the whole draft follows; vLLM
    matches 5 to 2 tokens anywhere.
    """

    def __init__(self, setup: ReplaySetup, most: int, least: int, whole: bool) -> None:
        super().__init__(setup)
        self.most, self.least, self.whole = most, least, whole

    def run(self, tail: list[int], capacity: int) -> list[int]:
        size = len(self.text.tokens)
        for count in range(min(self.most, len(tail)), self.least - 1, -1):
            stop = size - capacity if self.whole else size - 1  # the last end of the n-gram
            place = self.text.find(tail[-count:], max(stop, 0))
            if place >= 0:
                return self.after(place + count, capacity)
        return self.elsewhere(tail[-self.most :], capacity)


class SamRule(CopyRule):
    """SAM-Decoding (arXiv 2411.10666): `factor` times the length of the longest match.

    In the text itself it drafts a sequence, from the first or the last occurrence; where a match in
    other files is longer by more than SAM_BIAS, a tree from these.
    """

    def __init__(self, setup: ReplaySetup, last: bool, factor: int) -> None:
        super().__init__(setup)
        self.last, self.factor = last, factor
        self.old = automaton(setup)
        self.new = Automaton()
        self.new.open()
        self.new.extend(list(setup.prompt))

    def propose(self, context: DraftContext, target: Any) -> Draft:
        tail = np.array(context.tail(MAX_MATCH_TOKENS), np.int32)
        length, place = self.match(tail)
        others = self.setup.workspace.match(tail, 1, MAX_MATCH_TOKENS)
        bonus = others[0].length - SAM_BIAS if others else 0
        if bonus > length:
            tree = self.setup.workspace.tree(
                tail, self.reach(bonus, context.capacity), SAM_BRANCHES, limit=MAX_MATCH_TOKENS
            )
            return draft_of(tree.tokens.tolist(), tree.parents.tolist(), tree.probs.tolist())
        return chain(
            self.after(place, self.reach(length, context.capacity)) if length else [], "copy"
        )

    def match(self, tail: np.ndarray[Any, np.dtype[np.int32]]) -> tuple[int, int]:
        """Return the length of the longest match in the text, and the position after it."""
        old = self.old.match(tail, 1, MAX_MATCH_TOKENS, followed=True)
        new = self.new.match(tail, 1, MAX_MATCH_TOKENS, followed=True)
        length = max(old.length, new.length)
        if not length:
            return 0, 0
        border, run = len(self.setup.replay.prediction), tail[-length:].tolist()
        if self.last:
            is_new = new.length == length
            return length, border + 1 + int(new.ends[0]) if is_new else int(old.ends[0])
        if old.length == length:
            return length, self.text.find(run, border - 1) + length
        return length, self.text.find(run, start=border + 1) + length

    def reach(self, length: int, capacity: int) -> int:
        return min(capacity, self.factor * length) if self.factor else capacity

    def observe(
        self, draft: Draft, path: list[int], committed: list[int], scores: Any, seconds: float
    ) -> None:
        super().observe(draft, path, committed, scores, seconds)
        self.new.extend(committed)


def automaton(setup: ReplaySetup) -> Automaton:
    """Build an automaton of the prediction, shared by the rules of a replay."""
    if "automaton" not in setup.made:
        setup.made["automaton"] = Automaton()
        setup.made["automaton"].add(setup.replay.prediction)
    known: Automaton = setup.made["automaton"]
    return known


def draft_of(tokens: list[int], parents: list[int], probs: list[float]) -> Draft:
    return Draft(tokens, parents, probs, ["copy"] * len(tokens))


class ArcticRule(NullDrafter):
    """arctic-inference's suffix decoding: the better of two trees' drafts by score.

    One tree is over the prediction and the output so far, the other over other files.
    """

    def __init__(self, setup: ReplaySetup, factor: int, branches: bool) -> None:
        self.factor, self.branches = float(factor or MAX_MATCH_TOKENS), branches
        new = importlib.import_module("arctic_inference.suffix_decoding._C").SuffixTree
        if "arctic" not in setup.files.made:
            setup.files.made["arctic"] = new(MAX_MATCH_TOKENS)
            for number, ids in enumerate(setup.files.ids()):
                setup.files.made["arctic"].extend(number, ids)
        if "arctic" not in setup.made:
            setup.made["arctic"] = new(MAX_MATCH_TOKENS)
            setup.made["arctic"].extend(0, setup.replay.prediction)
        else:
            setup.made["arctic"].remove(1)  # the previous rule's output
        self.tree, self.others = setup.made["arctic"], setup.files.made["arctic"]
        self.tree.extend(1, list(setup.prompt))

    def propose(self, context: DraftContext, target: Any) -> Draft:
        tail = np.array(context.tail(MAX_MATCH_TOKENS), np.int32)
        asked = (context.capacity, self.factor, 0.0, ARCTIC_MIN_PROB, self.branches)
        ours, theirs = (one.speculate_ndarray(tail, *asked) for one in (self.tree, self.others))
        best = ours if ours.score >= theirs.score else theirs
        return draft_of(best.token_ids, best.parents, best.probs)

    def observe(
        self, draft: Draft, path: list[int], committed: list[int], scores: Any, seconds: float
    ) -> None:
        self.tree.extend(1, committed)


class CopyBound(CopyRule):
    """An upper bound: knowing the answer, drafts the longest correct copy from the text.

    The last token is never drafted, since the model yields it.
    """

    def propose(self, context: DraftContext, target: Any) -> Draft:
        done = len(context.output)
        ahead = self.setup.replay.output[done:-1][: context.capacity]
        low, high = 0, len(ahead)
        while low < high:  # a prefix of a copy is a copy
            middle = (low + high + 1) // 2
            if self.text.find(ahead[:middle]) >= 0:
                low = middle
            else:
                high = middle - 1
        return chain(ahead[:low], "future")


class LinearCost(CostModel):
    """A pass costs 1 + beta x nodes."""

    def __init__(self, beta: float) -> None:
        super().__init__([1.0 + beta * (rows - 1) for rows in GRID])
        self.beta = beta
        self._tables: dict[int, NDArray[np.float64]] = {}

    def table(self, context: int, most: int) -> NDArray[np.float64]:
        if most not in self._tables:  # building the table is not part of a step
            self._tables[most] = 1.0 + self.beta * np.arange(most)
        return self._tables[most]

    def observe(self, rows: int, context: int, seconds: float) -> None:
        pass


@dataclass(frozen=True, slots=True)
class DraftlineRule:
    """The engine's drafter as made for an edit, without memory between answers."""

    vocabulary: Vocabulary
    library: StdlibNgram
    weights: dict[str, dict[WeightKind, Weights]]  # by package; "" for all others
    without: str = ""  # the part of the drafter to leave out

    def __call__(self, setup: ReplaySetup) -> Drafter:
        known = self.weights.get(setup.replay.package) or self.weights[""]
        kind: WeightKind = "file" if setup.replay.whole else "hunk"
        fresh = Weights(known[kind].values)
        fresh.reset(*INITIAL_SQUARES)
        model = NextTokenModel(self.vocabulary, self.library, {kind: fresh})
        cost = LinearCost(setup.beta)
        return NextTokenDrafter(model, cost, setup.budget, setup.workspace, without=self.without)


def rules(ours: DraftlineRule | None = None, without: Iterable[str] = ()) -> list[Rule]:
    """Return all rules, draftline first: in full, then without each part of `without`."""
    sizes = {factor: f"{factor}x" if factor else "fixed" for factor in LENGTH_FACTORS}
    sam = [
        Rule(f"{family}-{size}", family, partial(SamRule, last=last, factor=factor))
        for last, family in ((False, "sam-first"), (True, "sam-last"))
        for factor, size in sizes.items()
    ]
    arctic = [
        Rule(f"{name}-{size}", "arctic", partial(ArcticRule, factor=factor, branches=branches))
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
        Rule(
            "prompt-lookup", "prompt-lookup", partial(PromptLookupRule, most=3, least=1, whole=True)
        ),
        Rule("vllm", "vllm", partial(PromptLookupRule, most=5, least=2, whole=False)),
        *sam,
        *(arctic if find_spec("arctic_inference") else []),
        Rule("bound", "bound", CopyBound),
        Rule("nothing", "nothing", lambda setup: NullDrafter()),
    ]
