"""Drafters for the tests of the law, each of which tries to break it differently."""

from __future__ import annotations

import random
from collections.abc import Iterable
from functools import cache, lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from engine.config import Config
from engine.drafting import DraftContext, Drafter, NullDrafter
from engine.drafting._drafting import Drafter as Native
from engine.drafting._drafting import Ngram, Recycling, Vocabulary, Weights, weight_count
from engine.drafting.answer_history import AnswerHistory
from engine.drafting.builders import DrafterFactory, EngineParts, RequestParts
from engine.drafting.next_token import NextTokenDrafter, NextTokenModel
from engine.drafting.registry import drafter_names, drafter_spec, parse_choice
from engine.model.cost_model import GRID
from engine.prompts.tokenizer import Tokenizer
from engine.records import Draft
from index import Workspace
from research.methods import datastore
from tests.conftest import HashTarget, byte_bpe
from tests.support.python_start.given_costs import Steady


class Scripted(NullDrafter):
    """Knows the true answer (`truth`). Base class."""

    def __init__(self, truth: list[int], vocab: int, seed: int = 0) -> None:
        self.truth, self.vocab, self.random = truth, vocab, random.Random(seed)

    def ahead(self, context: DraftContext, count: int) -> list[int]:
        start = len(context.output)
        return self.truth[start : start + count]


class Right(Scripted):
    """Always right."""

    def propose(self, context: DraftContext, target: Any) -> Draft:
        draft = Draft()
        for n, token in enumerate(self.ahead(context, 7)):
            draft.add(token, n - 1, 1.0, "right")
        return draft


class Wrong(Scripted):
    """Always wrong at the root, then right."""

    def propose(self, context: DraftContext, target: Any) -> Draft:
        draft = Draft()
        for n, token in enumerate(self.ahead(context, 5)):
            draft.add((token + 1) % self.vocab if n == 0 else token, n - 1, 1.0, "wrong")
        return draft


class Trees(Scripted):
    """Random trees with the truth among siblings, duplicates and end tokens."""

    eos = 0

    def propose(self, context: DraftContext, target: Any) -> Draft:
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
    """Ignores `context.capacity`."""

    def propose(self, context: DraftContext, target: Any) -> Draft:
        draft = Draft()
        for n, token in enumerate(self.ahead(context, 50) + [1] * 20):
            draft.add(token, n - 1, 1.0, "long")
        return draft


CHEAP = [1 + 0.02 * n for n in GRID]  # drafting pays
DEAR = [float(n) for n in GRID]  # a node costs as much as a pass


# -- the drafter in use ----------------------------------------------------------------------------

WORDS = 300  # ids that the vocabulary knows; every seventh ends a line


def made_up(size: int = WORDS) -> Vocabulary:
    """A vocabulary without a tokenizer."""
    looks = [1 + 8 if n % 7 == 6 else n % 6 for n in range(size)]
    hashes = [n * 0x9E3779B1 & 0xFFFFFFFF for n in range(size)]
    return Vocabulary(np.array(hashes, np.uint32), np.array(looks, np.uint8))


def ids(tokens: Iterable[int]) -> NDArray[np.int32]:
    """As the native drafter expects them."""
    return np.array(list(tokens), np.int32)


def edited(old: list[int], seed: int, changes: float = 0.06) -> list[int]:
    """`old` with a few tokens replaced, inserted and deleted."""
    chance, new = random.Random(seed), []
    for token in old:
        kind = chance.random() / changes
        if kind < 0.3:
            new += [1000 + chance.randrange(50)]
        elif kind < 0.6:
            new += [token, *(1000 + chance.randrange(50) for _ in range(chance.randrange(1, 6)))]
        elif kind > 1:
            new.append(token)
    return new


def renamed(seed: int) -> tuple[list[int], list[int]]:
    """A text, and the same with every occurrence of some tokens replaced."""
    chance = random.Random(seed)
    one, by = ([chance.randrange(WORDS) for _ in range(chance.randrange(n, 4))] for n in (1, 0))
    old, new = [0], [0]
    for _ in range(12):
        between = [chance.randrange(WORDS) for _ in range(chance.randrange(3, 25))]
        old += [*between, *one]
        new += [*between, *by]
    return old, new


def some_text(seed: int, size: int = 300) -> list[int]:
    """Random tokens from a small or large alphabet with repeated pieces."""
    chance = random.Random(seed)
    kinds, text = chance.choice([6, 40, WORDS]), [0]
    while len(text) < size:
        if chance.random() < 0.1:
            start = chance.randrange(len(text))
            text += text[start : start + chance.randrange(20)]
        else:
            text.append(chance.randrange(kinds))
    return text[:size]


@cache
def trained() -> NDArray[np.float32]:
    """Weights fitted on random edits."""
    weights, vocabulary, ngram = Weights(), made_up(), Ngram()
    pairs = [(text, edited(text, seed)) for seed in range(60) for text in [some_text(seed)]]
    pairs += [renamed(seed) for seed in range(30)]
    random.Random(0).shuffle(pairs)
    for rate in (0.1, 0.1, 0.04):
        for old, new in pairs:
            drafter = Native(vocabulary, ngram, weights)
            drafter.begin(ids([*old, -1]), 0, ids([1, 2]))
            drafter.fit(ids(new), rate)
    return np.array(weights.values)


def weights_of(kind: str, seed: int = 0) -> Weights:
    """Trained weights, and others that no training produces."""
    chance, count = np.random.default_rng(seed), weight_count()
    values = {
        "trained": trained,
        "zero": lambda: np.zeros(count),
        "random": lambda: chance.standard_normal(count),
        "huge": lambda: chance.standard_normal(count) * 1e37,
        "broken": lambda: np.full(count, chance.choice([np.nan, np.inf, -np.inf])),
        "patchy": lambda: chance.choice([0.0, 1.0, np.nan, np.inf, -np.inf], count),
    }[kind]()
    weights = Weights(values.astype(np.float32))
    weights.reset(10.0, 100.0)
    return weights


KINDS_OF_WEIGHTS = ("trained", "zero", "random", "huge", "broken", "patchy")


class Node(NamedTuple):
    token: int
    parent: int
    prob: float
    source: str
    place: int


class Tree(list[Node]):
    """A proposed tree, node by node."""

    def paths(self) -> list[float]:
        """Path probability of each node, in float32 as the drafter computes it."""
        found: list[np.float32] = []
        for node in self:
            above = np.float32(1) if node.parent < 0 else found[node.parent]
            found.append(above * np.float32(node.prob))
        return [float(one) for one in found]


def tree_of(columns: tuple[list[Any], ...]) -> Tree:
    """The native drafter's proposal as a Tree."""
    return Tree(Node(*row) for row in zip(*columns, strict=True))


def propose(drafter: Native, capacity: int, price: float = 0.0) -> Tree:
    """Propose with a cost of `price` plain steps per node."""
    return tree_of(drafter.propose(capacity, 1.0 + price * np.arange(capacity + 1)))


class NoLibrary:
    """An empty n-gram."""

    ngram = Ngram()


def real(
    kind: str = "trained",
    costs: list[float] = CHEAP,
    workspace: Workspace | None = None,
    words: int = WORDS,
    seed: int = 0,
    budget: int = 48,
    recycling: Recycling | None = None,
) -> NextTokenDrafter:
    """The default drafter, by default with costs that make drafting pay."""
    weights: dict[Any, Weights] = {one: weights_of(kind, seed) for one in ("file", "hunk")}
    model = NextTokenModel(made_up(words), NoLibrary(), weights)  # type: ignore[arg-type]
    return NextTokenDrafter(model, Steady(costs), budget, workspace, recycling)


# -- the drafters that can be chosen by name -------------------------------------------------------

TOYS = [
    name for name in drafter_names() if not drafter_spec(name).runs_model
]  # those that a hash can try
VARIANTS = (
    "prompt-lookup:longest=2,tokens=3,whole=no",
    "sam:bias=0,across=2",
    "recycling:template=samd,width=3,cold=yes,prompt=yes",
    "sam+recycling:threshold=1,bias=0,run=4,prompt=yes",
    "rest:least=1,nodes=5,deep=2",
)


@cache
def toy_tokenizer() -> Tokenizer:
    """A small real tokenizer; only its fingerprint matters."""
    with TemporaryDirectory() as folder:
        byte_bpe(Path(folder))
        return Tokenizer(Path(folder))


@lru_cache(64)
def maker(text: str, vocab: int, documents: tuple[tuple[int, ...], ...]) -> DrafterFactory:
    """The factory of a drafter by its `--drafter` name, from toy parts. `documents`: the corpus, if
    it uses one."""
    choice = parse_choice(text)
    weights: dict[Any, Weights] = {one: weights_of("trained") for one in ("file", "hunk")}
    model = NextTokenModel(made_up(), NoLibrary(), weights)  # type: ignore[arg-type]
    with TemporaryDirectory() as folder:
        file = Path(folder) / "corpus" if choice.spec.uses_corpus else None
        if file is not None:
            made = datastore.build([ids(one) for one in documents])
            datastore.save(made, file, toy_tokenizer().fingerprint, {})
        config = Config(drafter=text, corpus=file)
        target = HashTarget(vocab)
        return choice.load(
            EngineParts(config, target, toy_tokenizer(), Steady(CHEAP), model, AnswerHistory(vocab))
        )


def registered(truth: list[int], vocab: int) -> dict[str, Drafter]:
    """One drafter per name and variant. The corpus is close to the truth."""
    texts = [truth[::-1], truth[5:25], truth[20:], [*truth[:9], 0, *truth[9:30]]]
    documents = tuple(map(tuple, texts))
    asked = RequestParts(None, lambda width: Recycling(vocab, width))
    return {text: maker(text, vocab, documents)(asked) for text in (*TOYS, *VARIANTS)}


def drafters(truth: list[int], vocab: int) -> dict[str, Drafter]:
    """One fresh drafter of each kind."""
    return {**registered(truth, vocab), **trying(truth, vocab)}


def trying(truth: list[int], vocab: int) -> dict[str, Drafter]:
    """Those that try to break the law, and the one in use."""
    return {
        "nothing": NullDrafter(),
        "right": Right(truth, vocab),
        "wrong": Wrong(truth, vocab),
        "trees": Trees(truth, vocab),
        "more trees": Trees(truth, vocab, seed=1),
        "long": Long(truth, vocab),
        "next token": real(),
        "next token, recycling": real(recycling=Recycling(vocab)),
        "next token, untrained": real("zero", words=5, budget=16),
        "next token, broken": real("patchy", budget=16, recycling=Recycling(vocab // 2, 3)),
    }
