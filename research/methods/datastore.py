"""Datastores to draft from: a static corpus, or a workspace's files.

SAM-Decoding calls them static automata, REST datastores. A corpus is stored as a frozen segment of
the index (a memory-mapped suffix array, 12 bytes per token), which finds the same matches and
counts; matches never cross the end of a document. Corpora are made by
`research.train.datastore`.
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
from index.os_calls import sync_folder
from index.workspace.array_file import ArrayFile, Damaged, write
from index.workspace.workspace import Workspace

KIND = "corpus"
ARRAYS = ("text", "starts", "order", "ranks")
MAX_MATCH_TOKENS = 256
MAX_OCCURRENCES = 4096  # occurrences searched for the first one, and counted in a tree
MAX_OVERSAMPLING = 16  # nodes requested per node of the pruned tree, at most
Ids = NDArray[np.int32]


class Datastore(Protocol):
    """Texts to copy from that do not grow with the answer."""

    name: str  # the source named in drafts

    def after(self, tail: list[int], count: int) -> tuple[int, list[int]]:
        """Find the longest suffix of `tail` that occurs here.

        Returns its length, and `count` tokens that follow it at one occurrence.
        """
        ...

    def tree(
        self, tail: list[int], nodes: int, width: int, *, limit: int, most: int, least: int
    ) -> Tree:
        """Build a tree of the continuations at up to `most` occurrences.

        See index._core.Segments.tree.
        """
        ...


class Corpus:
    """A static corpus of one tokenizer. Read-only and thread-safe."""

    name = "corpus"

    def __init__(self, core: Frozen) -> None:
        self.core, self.segments = core, Segments([core])

    def after(self, tail: list[int], count: int) -> tuple[int, list[int]]:
        """Use the first occurrence, as published, among the last MAX_OCCURRENCES."""
        ids = np.array(tail[-MAX_MATCH_TOKENS:], np.int32)
        length, places, _ = self.segments.match(ids, 1, MAX_MATCH_TOKENS)
        if not length:
            return 0, []
        _, _, found = self.segments.match(ids[-length:], min(places, MAX_OCCURRENCES), length)
        _, document, end, _ = found[-1]  # newest first
        return length, self.core.continuation(document, end, count).tolist()

    def tree(
        self, tail: list[int], nodes: int, width: int, *, limit: int, most: int, least: int
    ) -> Tree:
        ids = np.array(tail[-limit:], np.int32)
        return self.segments.tree(ids, nodes, width, limit, most=most, least=least)


class WorkspaceDatastore:
    """The current files of a workspace; the most recently changed occurrence is used."""

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
    """Limits of the trees drafted from a datastore."""

    width: int = 8  # children of a node
    across: int = 1 << 30  # nodes at one depth
    deep: int = 1 << 30  # levels
    limit: int = MAX_MATCH_TOKENS  # matching tokens at most
    least: int = 1  # matching tokens at least
    most: int = MAX_OCCURRENCES  # occurrences that are counted


def best_first_tree(
    datastore: Datastore, tail: list[int], nodes: int, shape: TreeShape
) -> tuple[int, Draft]:
    """Build the tree of the `nodes` most likely nodes within `shape`.

    Returns the number of matching tokens, and the tree. Nodes are ordered by probability, then by
    token. A node that is pruned takes its subtree along.
    """
    requested = nodes
    while True:
        tree = datastore.tree(
            tail, requested, shape.width, limit=shape.limit, most=shape.most, least=shape.least
        )
        draft = prune_tree(tree, nodes, shape, datastore.name)
        if len(draft) >= nodes or len(tree) < requested or requested >= nodes * MAX_OVERSAMPLING:
            return tree.length, draft
        requested *= 4


def prune_tree(tree: Tree, nodes: int, shape: TreeShape, name: str) -> Draft:
    """Take a tree's first `nodes` nodes, with at most `across` per depth and `deep` levels."""
    draft = Draft()
    place: dict[int, tuple[int, int]] = {
        -1: (-1, 0)
    }  # node of `tree` -> (node of the draft, depth)
    counts: dict[int, int] = {}  # depth -> nodes
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


# -- files -------------------------------------------------------------------------------------


class CorpusError(ValueError):
    """A corpus file that cannot be used. The message is one line."""


def build(documents: Sequence[Ids]) -> Corpus:
    """Build a corpus from the token ids of documents.

    Earlier documents hold earlier occurrences.
    """
    return Corpus(Frozen(list(documents)))


def save(corpus: Corpus, file: Path, fingerprint: str, about: dict[str, object]) -> None:
    """Write a corpus atomically.

    `fingerprint`: of the tokenizer; `about`: extra metadata. Raises OSError.
    """
    core = corpus.core
    arrays = {name: np.ascontiguousarray(getattr(core, name)) for name in ARRAYS}
    write(file, fingerprint, {"kind": KIND, "documents": core.documents, **about}, arrays)
    sync_folder(file.resolve().parent)


def load(file: Path, fingerprint: str, vocabulary: int, model: str = "this model") -> Corpus:
    """Map a saved corpus for use with `model`.

    Raises CorpusError if the file is not a corpus, or of another tokenizer.
    """
    remedy = "make it with `draftline train corpus`"
    try:
        opened = ArrayFile(file)
        opened.check()
        if opened.about.get("kind") != KIND:
            raise opened.damaged("not a corpus")
        core = Frozen.mapped(*(opened.arrays[name] for name in ARRAYS))
    except FileNotFoundError as error:
        raise CorpusError(f"{file}: no such corpus: {remedy}") from error
    except OSError as error:
        raise CorpusError(f"{file}: unreadable ({error.strerror}): {remedy}") from error
    except (Damaged, KeyError, TypeError, ValueError) as error:
        why = str(error).removeprefix(f"{file}: ")
        raise CorpusError(f"{file}: cannot read the corpus ({why}): {remedy}") from error
    if opened.fingerprint != fingerprint:
        made = opened.about.get("model", "another model")
        raise CorpusError(
            f"{file}: made for the tokenizer of {made}, not of {model}: {remedy} for {model}"
        )
    if core.size and int(core.text.max()) >= vocabulary:
        raise CorpusError(
            f"{file}: contains token ids beyond the vocabulary of {model}: {remedy} for {model}"
        )
    return Corpus(core)
