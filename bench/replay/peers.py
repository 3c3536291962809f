"""The drafters that `python -m bench replay` compares: other systems' rules, and ours.

Each rule is a plain implementation of its publication, or the one in research/methods. All see the
same texts (the prediction, the output so far, other files) and may draft as many nodes. sam-tree,
arctic-tree, Token Recycling, LogitSpec and ours draft trees, the others a single sequence.

Token Recycling and LogitSpec also need the model's likely tokens. Recorded are those behind the
answer's own tokens, not those behind rejected ones, from which Token Recycling would learn, too.
Ours does without them here, though it uses them next to a model.
"""

from __future__ import annotations

import importlib
from array import array
from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from itertools import islice
from typing import Any

import numpy as np

from bench.replay.run import ReplaySetup, Rule
from engine.drafting import DraftContext, Drafter, NullDrafter, chain
from engine.drafting._drafting import Recycling, Vocabulary, Weights
from engine.drafting.drafter_weights import INITIAL_SQUARES
from engine.drafting.next_token import NextTokenDrafter, NextTokenModel, WeightKind
from engine.drafting.recycling import WIDTH
from engine.drafting.stdlib_ngram import StdlibNgram
from engine.records import Draft
from research.methods.datastore import WorkspaceDatastore
from research.methods.sam import SamDrafter
from research.methods.suffix_lookup import TOKEN_BYTES, SuffixLookup
from research.methods.token_recycling import TEMPLATES, RecyclingDrafter, template

SAM_BRANCHES = 8  # children of a node of a tree of SAM-Decoding
UNLIMITED = 1e9  # draft length over match length
LOGITSPEC_MATCH, LOGITSPEC_TOKENS = 3, 20  # tokens of a match, of the sequence after the last one
LOGITSPEC_PLACES = 64  # matches of which LogitSpec takes the one with most tokens behind it
MAX_MATCH_TOKENS = 64  # tokens of a match, in arctic
ARCTIC_MIN_PROB = 0.1  # probability below which arctic drafts nothing
LENGTH_FACTORS = (0, 4, 2, 1)  # draft length over match length, at most; 0: unlimited
UNTRAINED, RECYCLING, SINGLE_COPY = "untrained", "token-recycling", "single copy"  # families


class CopyRule(NullDrafter):
    """A rule over the prediction, a border, the prompt and the output so far."""

    def __init__(self, setup: ReplaySetup) -> None:
        self.setup = setup
        self.text = SuffixLookup([setup.replay.prediction], list(setup.prompt))

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

    def propose(self, context: DraftContext, target: Any) -> Draft:
        text, nodes = self.text, context.capacity
        size = len(text.tokens)
        for count in range(min(self.most, size - text.start), self.least - 1, -1):
            stop = size - (nodes if self.whole else 1) - count + 1
            place = text.first(count, max(stop, 0))
            if place >= 0:
                return chain(text.after(place, nodes), "copy")
        files = WorkspaceDatastore(self.setup.workspace)
        return chain(files.after(context.tail(self.most), nodes)[1], "copy")


class SamRule(SamDrafter):
    """SAM-Decoding with other draft lengths: `factor` times the length of the longest match."""

    def __init__(self, setup: ReplaySetup, factor: int) -> None:
        files = WorkspaceDatastore(setup.workspace)
        super().__init__(files, setup.budget + 1, factor or UNLIMITED)


class SamLastRule(SamRule):
    """SAM-Decoding from the last occurrence."""

    def copy(self, length: int) -> Draft:
        return chain(newest(self.text, self.text.tokens[-length:], self.budget(length)), "copy")


class SamTreeRule(SamRule):
    """SAM-Decoding with a tree of what followed all occurrences in the text, as in other files."""

    def copy(self, length: int) -> Draft:
        tail = self.text.tokens[-length:]
        tree = self.text.automaton.tree(tail, self.budget(length), SAM_BRANCHES, length)
        lists = tree.tokens.tolist(), tree.parents.tolist(), tree.probs.tolist()
        return Draft(*lists, ["copy"] * len(tree))


def newest(text: SuffixLookup, tail: list[int], count: int, places: int = 1) -> list[int]:
    """Return up to `count` tokens that followed the longest match of a tail.

    Of the newest `places` it is the newest with most tokens behind it.
    """
    match = text.automaton.match(tail, places, len(tail), followed=True)
    ends = zip(match.docs.tolist(), match.ends.tolist(), strict=True)
    found = [text.automaton.continuation(document, end, count) for document, end in ends]
    return max(found, key=len).tolist() if found else []


class LogitSpecRule(CopyRule):
    """LogitSpec (arXiv 2507.01449): what followed the last tokens, and its guesses of the next one.

    These are the tokens that were likely in place of the last one, each with what followed it, as
    long as its rank allows.
    """

    def propose(self, context: DraftContext, target: Any) -> Draft:
        tail, done = context.tail(LOGITSPEC_MATCH), len(context.output)
        most = min(LOGITSPEC_TOKENS, context.capacity)
        draft = chain(newest(self.text, tail, most, LOGITSPEC_PLACES), "copy")
        for rank, token in enumerate(self.setup.replay.likely[done - 1] if done else []):
            if token != context.last:
                behind = 3 if rank <= 8 else 2  # published: none from rank 33 on
                after = [*tail, token][-LOGITSPEC_MATCH:]
                branch = [token, *newest(self.text, after, behind, LOGITSPEC_PLACES)]
                graft(draft, branch, context.capacity)
        return draft


def graft(draft: Draft, branch: list[int], capacity: int) -> None:
    """Add a branch at the root of a draft, whose nodes it shares, up to `capacity` nodes."""
    edges = zip(draft.parents, draft.tokens, strict=True)
    known, above = {edge: node for node, edge in enumerate(edges)}, -1
    for token in branch:
        if (above, token) not in known and len(draft) >= capacity:
            return
        node = known.get((above, token))
        above = draft.add(token, above, 1.0, "copy") if node is None else node


class RecyclingRule(RecyclingDrafter):
    """Token Recycling, whose table learns from recorded tokens and is kept between answers."""

    def __init__(self, setup: ReplaySetup, shape: str) -> None:
        name, files = f"{shape} {setup.budget}", setup.files
        if name not in files.kept:
            files.kept[name] = Recycling(files.vocabulary, WIDTH)
        super().__init__(files.kept[name], template(shape))
        self.likely = iter(setup.replay.likely)

    def observe(
        self, draft: Draft, path: list[int], committed: list[int], scores: Any, seconds: float
    ) -> None:
        rows = np.array([row[:WIDTH] for row in islice(self.likely, len(committed))], np.int32)
        tokens = np.array([self.last, *committed[:-1]], np.int32)
        self.table.put(tokens, rows, np.zeros(rows.shape, np.float32))


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
        return Draft(best.token_ids, best.parents, best.probs, ["copy"] * len(best.token_ids))

    def observe(
        self, draft: Draft, path: list[int], committed: list[int], scores: Any, seconds: float
    ) -> None:
        self.tree.extend(1, committed)


class BestSingleCopy(CopyRule):
    """The longest correct copy from one place of the text, known from the answer.

    Trees, other files and substitutions can beat it. The last token is never drafted, since the
    model yields it.
    """

    def propose(self, context: DraftContext, target: Any) -> Draft:
        done = len(context.output)
        ahead = self.setup.replay.output[done:-1][: context.capacity]
        # a prefix of a copy is a copy
        count = bisect_left(range(len(ahead)), True, key=lambda n: not self.occurs(ahead[: n + 1]))
        return chain(ahead[:count], "future")

    def occurs(self, run: list[int]) -> bool:
        """Return whether the text has these tokens anywhere."""
        what = array("i", run).tobytes()
        at = self.text.bytes.find(what)
        while at % TOKEN_BYTES and at >= 0:  # not aligned to tokens
            at = self.text.bytes.find(what, at + 1)
        return at >= 0


@dataclass(frozen=True, slots=True)
class DraftlineRule:
    """The engine's drafter as made for an edit, without memory between answers."""

    vocabulary: Vocabulary
    library: StdlibNgram
    weights: dict[str, dict[WeightKind, Weights]]  # by package; "" for all others
    without: str = ""  # the part of the drafter to leave out
    trained: bool = True  # otherwise it starts without learnt weights, and learns from the answer

    def __call__(self, setup: ReplaySetup) -> Drafter:
        known = self.weights.get(setup.replay.package) or self.weights[""]
        kind: WeightKind = "file" if setup.replay.whole else "hunk"
        fresh = Weights(known[kind].values if self.trained else None)
        if self.trained:
            fresh.reset(*INITIAL_SQUARES)
        model = NextTokenModel(self.vocabulary, self.library, {kind: fresh})
        return NextTokenDrafter(
            model, setup.costs, setup.budget, setup.workspace, without=self.without
        )


def rules(ours: DraftlineRule | None = None, without: Iterable[str] = ()) -> list[Rule]:
    """Return all rules, draftline first: in full, untrained, and without each part of `without`."""
    sizes = {factor: f"{factor}x" if factor else "fixed" for factor in LENGTH_FACTORS}
    sam = [
        Rule(f"{family}-{size}", family, partial(kind, factor=factor))
        for family, kind in (
            ("sam-first", SamRule), ("sam-last", SamLastRule), ("sam-tree", SamTreeRule),
        )
        for factor, size in sizes.items()
    ]  # fmt: skip
    arctic = [
        Rule(f"{name}-{size}", "arctic", partial(ArcticRule, factor=factor, branches=branches))
        for branches, name in ((False, "arctic"), (True, "arctic-tree"))
        for factor, size in sizes.items()
    ]
    recycling = [
        Rule(
            f"{RECYCLING}-{shape}",
            RECYCLING,
            partial(RecyclingRule, shape=shape),
            needs_likely=True,
        )
        for shape in TEMPLATES
    ]
    drafters = {}
    if ours:
        drafters = {"draftline": ours, UNTRAINED: replace(ours, trained=False)}
        drafters |= {f"without {part}": replace(ours, without=part) for part in without}
    return [
        *(Rule(name, name, drafter, adapts=True) for name, drafter in drafters.items()),
        Rule(
            "prompt-lookup", "prompt-lookup", partial(PromptLookupRule, most=3, least=1, whole=True)
        ),
        Rule("vllm", "vllm", partial(PromptLookupRule, most=5, least=2, whole=False)),
        *sam,
        *(arctic if find_spec("arctic_inference") else []),
        *recycling,
        Rule("logitspec", "logitspec", LogitSpecRule, needs_likely=True),
        Rule("single-copy", SINGLE_COPY, BestSingleCopy),
        Rule("nothing", "nothing", lambda setup: NullDrafter()),
    ]
