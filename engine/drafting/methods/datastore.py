"""Static corpora: texts that are there before the first request, to draft from.

What SAM-Decoding calls its static automaton and REST its datastore. Held as a frozen segment of the
index (a suffix array, 12 bytes a token, mapped), which finds the same matches and counts; nothing
crosses the end of a document. `engine.research.train.datastore` makes them. A workspace can stand in for one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from engine.records import Draft
from index._core import Frozen, Segments, Tree
from index.workspace.array_file import ArrayFile, Damaged, sync, write
from index.workspace.workspace import Workspace

KIND = "corpus"
ARRAYS = ("text", "starts", "order", "ranks")
MAX_MATCH_TOKENS = 256  # tokens that a match has at most
MAX_OCCURRENCES = (
    4096  # occurrences among which the first one is looked for, and which a tree counts
)
MAX_OVERSAMPLING = 16  # so many times the nodes that are kept are looked at
Ids = NDArray[np.int32]


class Datastore(Protocol):
    """What can be copied from and does not grow with the answer."""

    name: str  # of the source in drafts

    def after(self, tail: list[int], count: int) -> tuple[int, list[int]]:
        """How many of the tail's last tokens were found, and what follows them at one place."""
        ...

    def tree(
        self, tail: list[int], nodes: int, width: int, *, limit: int, most: int, least: int
    ) -> Tree:
        """What follows them at `most` places, as index._core.Segments.tree."""
        ...


class Corpus:
    """Texts of one tokenizer, read-only. Any thread may ask."""

    name = "corpus"

    def __init__(self, core: Frozen) -> None:
        self.core, self.segments = core, Segments([core])

    def after(self, tail: list[int], count: int) -> tuple[int, list[int]]:
        """The first place, as published; where there are more than MANY, the first of the last."""
        ids = np.array(tail[-MAX_MATCH_TOKENS:], np.int32)
        length, places, _ = self.segments.match(ids, 1, MAX_MATCH_TOKENS)
        if not length:
            return 0, []
        _, _, found = self.segments.match(ids[-length:], min(places, MAX_OCCURRENCES), length)
        _, document, end, _ = found[-1]  # they come newest first
        return length, self.core.continuation(document, end, count).tolist()

    def tree(
        self, tail: list[int], nodes: int, width: int, *, limit: int, most: int, least: int
    ) -> Tree:
        ids = np.array(tail[-limit:], np.int32)
        return self.segments.tree(ids, nodes, width, limit, most=most, least=least)


class WorkspaceDatastore:
    """A workspace's files as they are this second; the place that changed last counts."""

    name = "workspace"

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace

    def after(self, tail: list[int], count: int) -> tuple[int, list[int]]:
        for match in self.workspace.match(tail[-MAX_MATCH_TOKENS:], 1, MAX_MATCH_TOKENS):
            return match.length, match.continuation(count).tolist()
        return 0, []

    def tree(
        self, tail: list[int], nodes: int, width: int, *, limit: int, most: int, least: int
    ) -> Tree:
        return self.workspace.tree(tail, nodes, width, limit=limit, most=most, least=least)


@dataclass(frozen=True, slots=True)
class TreeShape:
    """Which trees are drafted from a corpus."""

    width: int = 8  # nodes under one parent
    across: int = 1 << 30  # nodes of one depth
    deep: int = 1 << 30  # depths
    limit: int = MAX_MATCH_TOKENS  # tokens of the end that may match
    least: int = 1  # and must
    most: int = MAX_OCCURRENCES  # places that are counted


def best_first_tree(
    static: Datastore, tail: list[int], nodes: int, shape: TreeShape
) -> tuple[int, Draft]:
    """How many tokens matched, and the tree of the `nodes` likeliest that `shape` allows; what is
    left out takes what is below it along. Likelier first, of equals the smaller token."""
    asked = nodes
    while True:
        tree = static.tree(
            tail, asked, shape.width, limit=shape.limit, most=shape.most, least=shape.least
        )
        draft = prune_tree(tree, nodes, shape, static.name)
        if len(draft) >= nodes or len(tree) < asked or asked >= nodes * MAX_OVERSAMPLING:
            return tree.length, draft
        asked *= 4


def prune_tree(tree: Tree, nodes: int, shape: TreeShape, name: str) -> Draft:
    """The first `nodes` of a tree, at most `across` of one depth and `deep` depths."""
    draft = Draft()
    place: dict[int, tuple[int, int]] = {-1: (-1, 0)}  # by node of the tree: its own here, depth
    counts: dict[int, int] = {}  # by depth
    columns = (tree.tokens.tolist(), tree.parents.tolist(), tree.probs.tolist())
    for node, (token, parent, prob) in enumerate(zip(*columns, strict=True)):
        if len(draft) >= nodes:
            break
        if parent not in place:
            continue
        above, depth = place[parent]
        if depth >= shape.deep or counts.get(depth, 0) >= shape.across:
            continue
        counts[depth] = counts.get(depth, 0) + 1
        place[node] = (draft.add(token, above, prob, name), depth + 1)
    return draft


# -- on disk -----------------------------------------------------------------------------------


class CorpusError(ValueError):
    """A file that cannot be drafted from; the message is one line."""


def build(documents: Sequence[Ids]) -> Corpus:
    """From documents' token ids, the one that counts as first first."""
    return Corpus(Frozen(list(documents)))


def save(corpus: Corpus, file: Path, fingerprint: str, about: dict[str, object]) -> None:
    """Write it whole or not at all. `fingerprint`: the tokenizer's. OSError names the file."""
    core = corpus.core
    arrays = {name: np.ascontiguousarray(getattr(core, name)) for name in ARRAYS}
    write(file, fingerprint, {"kind": KIND, "documents": core.documents, **about}, arrays)
    sync(file.resolve().parent)


def load(file: Path, fingerprint: str, vocabulary: int, model: str = "this model") -> Corpus:
    """Map a saved one, for `model`. BadCorpus where it is none, or of another tokenizer."""
    again = "make it with `draftline train corpus`"
    try:
        opened = ArrayFile(file)
        opened.check()
        if opened.about.get("kind") != KIND:
            raise opened.damaged("no corpus")
        core = Frozen.mapped(*(opened.arrays[name] for name in ARRAYS))
    except FileNotFoundError as error:
        raise CorpusError(f"{file}: no such corpus: {again}") from error
    except OSError as error:
        raise CorpusError(f"{file}: unreadable ({error.strerror}): {again}") from error
    except (Damaged, KeyError, TypeError, ValueError) as error:
        why = str(error).removeprefix(f"{file}: ")
        raise CorpusError(f"{file}: no corpus can be read ({why}): {again} again") from error
    if opened.fingerprint != fingerprint:
        made = opened.about.get("model", "another model")
        raise CorpusError(
            f"{file}: made for the tokenizer of {made}, not of {model}: {again} for {model}"
        )
    if core.size and int(core.text.max()) >= vocabulary:
        raise CorpusError(f"{file}: has ids that {model} has not: {again} for {model}")
    return Corpus(core)
