"""The index's core in C++ (index/core). Written by hand; tests/oracles/naive.py is its oracle.

Two forms of a segment: `Automaton` grows, `Frozen` is smaller and does not. `Segments` asks several
as one. Token ids are 0 to 2^31 - 1, as an int32 array (taken as it is) or a sequence of ints
(copied). A bad argument raises ValueError with one line; what is no list of int32 raises TypeError.

Threads: any number may read at once. A call on an automaton that meets a writer, or a writer that
meets any other call, raises RuntimeError at once; it never waits. That can happen only where a call
releases the GIL: `add` and `extend` of 2048 tokens or more, `check`, and `match` and `tree` of a
large automaton. Making a `Frozen` releases it too. All calls on `Segments` keep it.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

class Match:
    """The longest suffix of a tail that occurs. Nothing found: length and count 0."""

    @property
    def length(self) -> int:
        """Tokens of the tail's end that were found."""

    @property
    def count(self) -> int:
        """Living occurrences in all."""

    @property
    def docs(self) -> NDArray[np.int32]:
        """Documents of the newest occurrences, newest first: the later document, then the later
        position in it."""

    @property
    def ends(self) -> NDArray[np.int32]:
        """Beside `docs`: the position after the matched text, so document[end] follows it."""

class Tree:
    """What follows a tail, best first; parallel arrays, parents precede children."""

    def __len__(self) -> int: ...
    @property
    def length(self) -> int:
        """Tokens of the tail's end that were found; 0: the tree is of everything or nothing."""

    @property
    def tokens(self) -> NDArray[np.int32]: ...
    @property
    def parents(self) -> NDArray[np.int32]:
        """Index of each node's parent; -1: it follows the tail."""

    @property
    def probs(self) -> NDArray[np.float64]:
        """count(node) / count(parent), where both are counts of occurrences (SPEC 1.3)."""

class Documents:
    """What both forms of a segment share: documents, which match and draft apart. Nothing crosses a
    document's border. A document that was killed stays where it is, but no question finds it."""

    def continuation(self, doc: int, end: int, n: int) -> NDArray[np.int32]:
        """The tokens end:end + n of a document, fewer at its border; a copy."""

    def tokens(self, doc: int) -> NDArray[np.int32]:
        """All tokens of a document, which may be dead; a copy."""

    def kill(self, doc: int) -> None:
        """From now on its text is found no more."""

    def label(self, doc: int, changed: int, path: int, folder: int) -> None:
        """What `Segments.match` orders it by: documents with a larger `changed` are newer; `path`
        and `folder` are numbers of the caller's, -1 for none."""

    @property
    def documents(self) -> int:
        """How many documents there are, dead and empty ones included."""

    @property
    def size(self) -> int:
        """Tokens of all documents, dead ones included."""

    @property
    def living(self) -> int:
        """Tokens of the living documents."""

class Automaton(Documents):
    """A generalized suffix automaton over documents: any text is found as soon as it is added."""

    def __init__(self) -> None: ...
    def add(
        self,
        tokens: NDArray[np.int32] | Sequence[int],
        changed: int = 0,
        path: int = -1,
        folder: int = -1,
    ) -> int:
        """Add a whole document, which is then the last one; its index."""

    def open(self, changed: int = 0, path: int = -1, folder: int = -1) -> int:
        """Start an empty document, which `extend` appends to; its index."""

    def extend(self, tokens: NDArray[np.int32] | Sequence[int]) -> None:
        """Append to the last document, opened or added."""

    def match(
        self,
        tail: NDArray[np.int32] | Sequence[int],
        k: int = 8,
        limit: int = 64,
        *,
        followed: bool = False,
    ) -> Match:
        """The longest suffix of the last `limit` tokens of `tail` that occurs in a living document,
        with its k newest occurrences. `followed`: only occurrences that a token follows are looked
        at, in length, count and list; so a text that ends in `tail` does not match its own end."""

    def tree(
        self,
        tail: NDArray[np.int32] | Sequence[int],
        nodes: int = 64,
        width: int = 8,
        limit: int = 64,
        *,
        most: int = 1024,
    ) -> Tree:
        """Continuations of `match(tail, most, limit, followed=True)`, at most `nodes` of them and
        `width` under each parent. A node's count is how many of those occurrences continue with
        its path. Nodes come by falling count, which is falling path probability; of equals, the one
        whose parent came first, then the smaller token."""

    def check(self) -> str:
        """ "" when every invariant holds, else the first that does not. Slow: for tests."""

    @property
    def states(self) -> int:
        """States of the minimal automaton, the root included. Takes linear time."""

    @property
    def nbytes(self) -> int:
        """Memory that the core holds for it: capacities, not only what is in use."""

class Frozen(Documents):
    """Documents that grow no more: the suffix array of their reversed text, 12 bytes a token. To
    `Segments` it answers as an automaton of the same documents would."""

    def __init__(
        self,
        documents: Sequence[NDArray[np.int32]],
        changed: NDArray[np.int64] | None = None,
        paths: NDArray[np.int32] | None = None,
        folders: NDArray[np.int32] | None = None,
    ) -> None:
        """From the oldest to the newest; `changed` must rise, it counts from 0 where left out."""

    @staticmethod
    def mapped(
        text: NDArray[np.int32],
        starts: NDArray[np.uint32],
        order: NDArray[np.uint32],
        ranks: NDArray[np.uint32],
    ) -> Frozen:
        """From these four arrays of another one, which it keeps and does not copy. All documents
        live and have no label. ValueError where they are no segment."""

    @property
    def text(self) -> NDArray[np.int32]:
        """All tokens, with a border (-1) before each document and after the last; a view."""

    @property
    def starts(self) -> NDArray[np.uint32]:
        """Where in `text` the border before each document stands; a view."""

    @property
    def order(self) -> NDArray[np.uint32]:
        """The position in `text` of each rank: by the text that ends there, backwards; a view."""

    @property
    def ranks(self) -> NDArray[np.uint32]:
        """The rank of each position, 0 for borders; a view."""

    @property
    def nbytes(self) -> int:
        """Memory, mapped arrays included."""

class Segments:
    """Segments asked as one, always about occurrences in living documents that a token follows."""

    def __init__(self, parts: list[Documents]) -> None: ...
    def match(
        self,
        tail: NDArray[np.int32] | Sequence[int],
        k: int = 8,
        limit: int = 64,
        path: int = -1,
        folder: int = -1,
    ) -> tuple[int, int, list[tuple[int, int, int, float]]]:
        """The longest suffix of the last `limit` tokens of `tail` that occurs: its length, how
        often it does, and its k best occurrences, as (part, document, end, probability). Best: the
        document labelled `path`, then those labelled `folder`, then by falling (changed, part,
        position). The probability is the share of the 64 newest occurrences that continue with the
        same token."""

    def tree(
        self,
        tail: NDArray[np.int32] | Sequence[int],
        nodes: int = 64,
        width: int = 8,
        limit: int = 64,
        *,
        most: int = 1024,
        least: int = 1,
    ) -> Tree:
        """As `Automaton.tree`, over the `most` newest occurrences in all segments. Where fewer than
        `least` tokens agree it is empty, which takes less time: short texts occur everywhere."""
