"""Blend: many chains in, the one tree that pays best out.

Chains are merged into a tree, best first by path probability. The probability that a copied token
is right, given how many before it agreed, is counted online for every (source, kind, match), also
for guesses that were not drafted; so a source that starts to be right comes back by itself. The
tree ends where accepted tokens a second are highest: the time of a pass over n tokens is this
machine's, measured (`engine.cost`).
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Any

from engine.cost import Cost
from engine.drafting import Chain, Context, Source
from engine.records import Draft
from index.records import Span

STEPS = (0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48)  # match lengths counted together, up to the next
STRENGTH = 8.0  # how many observations the first guess of a probability is worth
MEMORY = 400.0  # observations after which older ones fade
BEST = 0.995  # no copied token is surer than this
HOPED = 2.0  # times plain decoding that an answer with a prediction is expected to reach
LEAST = 0.02  # path probability below which nothing is drafted
PACE = 0.2  # weight of a new step in the running rate of tokens a second
FIRST = {  # P(right) before anything was seen: (at no match, match at which half is missing)
    "prediction follow": (0.75, 1.0),
    "prediction ahead": (0.3, 2.0),
    "prediction behind": (0.1, 4.0),
    "prediction replaced1": (0.5, 1.0),
    "prediction inserted1": (0.2, 2.0),
    "context alone": (0.05, 3.0),
    "context shared": (0.05, 4.0),
    "workspace any": (0.05, 4.0),
}
UNKNOWN = (0.1, 3.0)


def step_of(match: int) -> int:
    """Index of the bucket of a match length."""
    low = 0
    for n, start in enumerate(STEPS):
        if match < start:
            break
        low = n
    return low


BUCKET = [step_of(match) for match in range(STEPS[-1] + 1)]


def bucket(match: int) -> int:
    """The same by table; everything past the last bucket's start is in it."""
    return BUCKET[match] if match < len(BUCKET) else len(STEPS) - 1


class Calibration:
    """How often a copied token was right, by (source and kind, match). Kept across requests."""

    def __init__(self) -> None:
        self.counts: dict[str, list[list[float]]] = {}

    def row(self, name: str) -> list[list[float]]:
        """[right, seen] by bucket; starts as `STRENGTH` imagined observations."""
        counts = self.counts.get(name)
        if counts is None:
            zero, half = FIRST.get(name, UNKNOWN)
            first = [zero + (1 - zero) * match / (match + half) for match in STEPS]
            counts = [[min(p, BEST) * STRENGTH, STRENGTH] for p in first]
            self.counts[name] = counts
        return counts

    def probs(self, name: str) -> list[float]:
        """P(right) by bucket."""
        return [min(BEST, right / seen) for right, seen in self.row(name)]

    def saw(self, name: str, match: int, right: bool) -> None:
        count = self.row(name)[bucket(match)]
        if count[1] > MEMORY:
            count[0] *= 0.5
            count[1] *= 0.5
        count[0] += right
        count[1] += 1


class Blend:
    """The drafter in use: sources, one calibration, one cost."""

    def __init__(
        self, sources: list[Source], calibration: Calibration, cost: Cost, budget: int
    ) -> None:
        self.sources, self.calibration, self.cost = sources, calibration, cost
        self.budget = budget
        self.chains: list[Chain] = []
        self.rate = 1.0 / cost(1)  # tokens a second, lately; drafting must pay against it

    def begin(self, context: Context) -> None:
        if context.predictions:
            self.rate = HOPED / self.cost(1)
        for source in self.sources:
            source.begin(context)

    def propose(self, context: Context, target: Any) -> Draft:
        """The tree that makes accepted tokens less time at the running rate largest."""
        room = min(self.budget, context.room)
        self.chains = []
        if room <= 0:
            return Draft()
        for source in self.sources:
            self.chains += source.chains(context, room)
        draft = self._grow(room)
        gain, best, count = 0.0, -self.rate * self.cost(1), 0
        for n, reach in enumerate(self.reach, 1):
            gain += reach
            worth = gain - self.rate * self.cost(1 + n)
            if worth > best:
                best, count = worth, n
        return draft.first(count)

    def _grow(self, room: int) -> Draft:
        """All chains as one tree of at most `room` nodes, best first by path probability."""
        draft = Draft()
        self.reach: list[float] = []  # path probability of each node
        children: dict[tuple[int, int], int] = {}
        taken: dict[int, float] = {}  # path probability already given to children, by parent
        probs = {one: self.calibration.probs(one) for one in {name_of(c) for c in self.chains}}
        heap: list[tuple[float, int, int, int]] = []  # (-path probability, chain, depth, parent)

        def push(n: int, depth: int, parent: int) -> None:
            chain = self.chains[n]
            if depth < len(chain.tokens):
                here = probs[name_of(chain)][bucket(chain.match + depth)]
                above = self.reach[parent] if parent >= 0 else 1.0
                if above * here >= LEAST:
                    heappush(heap, (-above * here, n, depth, parent))

        for n in range(len(self.chains)):
            push(n, 0, -1)
        while heap and len(draft) < room:
            reach, n, depth, parent = heappop(heap)
            chain = self.chains[n]
            token = chain.tokens[depth]
            node = children.get((parent, token))
            if node is None:
                above = self.reach[parent] if parent >= 0 else 1.0
                left = above - taken.get(parent, 0.0)  # siblings share their parent's whole
                reach = min(-reach, left)
                if reach < LEAST:
                    continue
                span: Span | None = chain.span(depth, depth + 1) if chain.span else None
                node = draft.add(token, parent, reach / above, chain.source, span)
                children[parent, token] = node
                taken[parent] = taken.get(parent, 0.0) + reach
                self.reach.append(reach)
            push(n, depth + 1, node)
        return draft

    def observe(
        self, draft: Draft, path: list[int], committed: list[int], scores: Any, seconds: float
    ) -> None:
        """Count every guess, drafted or not, against what was committed; then move the sources."""
        seen: set[tuple[str, int]] = set()
        for chain in self.chains:
            name = name_of(chain)
            for depth, (guess, token) in enumerate(zip(chain.tokens, committed, strict=False)):
                if (name, depth) in seen:  # only the best guess of a kind counts
                    break
                seen.add((name, depth))
                self.calibration.saw(name, chain.match + depth, guess == token)
                if guess != token:
                    break
        for source in self.sources:
            source.extend(committed)
        self.cost.saw(1 + len(draft), seconds)
        now = len(committed) / self.cost(1 + len(draft))
        self.rate = max(self.rate + PACE * (now - self.rate), 1.0 / self.cost(1))


def name_of(chain: Chain) -> str:
    """What a chain's tokens are counted under."""
    return f"{chain.source} {chain.kind}"
