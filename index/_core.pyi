"""The native index (index/core). tests/oracles/naive.py is a brute-force implementation of it.

There are two kinds of segments: an `Automaton` grows, a `Frozen` suffix array is smaller and
immutable. `Segments` queries several as one. Token ids are 0 to 2^31 - 1, passed as an int32 array
(not copied) or a sequence of ints (copied). Invalid values raise ValueError with one line, invalid
types TypeError.

Threads: any number of readers. A call on an automaton that conflicts with a writer, or a writer
that conflicts with any other call, raises RuntimeError instead of waiting. That is only possible in
calls that release the GIL: `add` and `extend` of at least 2048 tokens, `check`, and `match` and
`tree` of a large automaton. `Frozen()` releases it, too; calls on `Segments` never do.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

def stop_builds(stop: bool) -> None:
    """Stop `Frozen()` calls in this process, running and new ones, while True.

    They raise RuntimeError soon. For the exit of the interpreter, which must not end under native
    code of another thread.
    """

class Match:
    """The longest suffix of a tail that occurs. Without a match, length and count are 0."""

    @property
    def length(self) -> int:
        """Tokens of the match."""

    @property
    def count(self) -> int:
        """Number of living occurrences."""

    @property
    def docs(self) -> NDArray[np.int32]:
        """Documents of the newest occurrences: later documents first, then later positions."""

    @property
    def ends(self) -> NDArray[np.int32]:
        """Parallel to `docs`: the position after the match, so that document[end] follows it."""

class Tree:
    """Continuations of a tail, best first, as parallel arrays. Parents precede children."""

    def __len__(self) -> int: ...
    @property
    def length(self) -> int:
        """Tokens of the match that the tree continues; 0 if there is none."""

    @property
    def tokens(self) -> NDArray[np.int32]: ...
    @property
    def parents(self) -> NDArray[np.int32]:
        """Index of each node's parent; -1 for children of the tail."""

    @property
    def probs(self) -> NDArray[np.float64]:
        """count(node) / count(parent), in occurrences."""

class Documents:
    """The base class of segments.

    No match crosses the border of a document. Deleting a document ("kill") keeps its tokens but
    hides them from queries.
    """

    def continuation(self, doc: int, end: int, n: int) -> NDArray[np.int32]:
        """Copy the tokens end:end + n of a document, fewer at its end."""

    def tokens(self, doc: int) -> NDArray[np.int32]:
        """Copy all tokens of a document, deleted or not."""

    def kill(self, doc: int) -> None:
        """Delete a document."""

    def label(self, doc: int, changed: int, path: int, folder: int) -> None:
        """Set the ordering criteria of `Segments.match`.

        Documents with a larger `changed` are newer; `path` and `folder` are ids chosen by the
        caller, -1 for none.
        """

    @property
    def documents(self) -> int:
        """Number of documents, including deleted and empty ones."""

    @property
    def size(self) -> int:
        """Tokens of all documents, including deleted ones."""

    @property
    def living(self) -> int:
        """Tokens of the living documents."""

class Automaton(Documents):
    """A generalized suffix automaton over documents: text can be found as soon as it is added.

    Blumer et al., "The smallest automaton recognizing the subwords of a text" (1985).
    """

    def __init__(self) -> None: ...
    def add(
        self,
        tokens: NDArray[np.int32] | Sequence[int],
        changed: int = 0,
        path: int = -1,
        folder: int = -1,
    ) -> int:
        """Add a whole document; returns its number."""

    def open(self, changed: int = 0, path: int = -1, folder: int = -1) -> int:
        """Add an empty document for `extend`; returns its number."""

    def extend(self, tokens: NDArray[np.int32] | Sequence[int]) -> None:
        """Append to the last document."""

    def match(
        self,
        tail: NDArray[np.int32] | Sequence[int],
        k: int = 8,
        limit: int = 64,
        *,
        followed: bool = False,
    ) -> Match:
        """Find the longest suffix of `tail` that occurs in a living document.

        Considers the last `limit` tokens of `tail`, and returns the k newest occurrences.
        `followed`: consider only occurrences followed by a token, so that a text that ends in
        `tail` does not match its own end.
        """

    def tree(
        self,
        tail: NDArray[np.int32] | Sequence[int],
        nodes: int = 64,
        width: int = 8,
        limit: int = 64,
        *,
        most: int = 1024,
    ) -> Tree:
        """Return the continuations of `match(tail, most, limit, followed=True)` as a tree.

        It has at most `nodes` of them, and `width` per parent. A node's count is the number of
        these occurrences that continue with its path. Nodes are ordered by falling count, which is
        falling path probability; ties by parent, then by token.
        """

    def check(self) -> str:
        """Return the first violated invariant, or "". Slow; for tests."""

    @property
    def states(self) -> int:
        """States of the minimal automaton, including the root. Takes linear time."""

    @property
    def nbytes(self) -> int:
        """Allocated memory."""

class Frozen(Documents):
    """Immutable documents: the suffix array of their reversed text, in 12.3 bytes per token.

    In `Segments` it answers exactly like an automaton of the same documents.

    Built by SA-IS: Nong, Zhang and Chan, "Two Efficient Algorithms for Linear Time Suffix Array
    Construction" (2011).
    """

    def __init__(
        self,
        documents: Sequence[NDArray[np.int32]],
        changed: NDArray[np.int64] | None = None,
        paths: NDArray[np.int32] | None = None,
        folders: NDArray[np.int32] | None = None,
    ) -> None:
        """Freeze documents, from oldest to newest.

        `changed` must ascend and defaults to 0, 1, 2, ...
        """

    @staticmethod
    def mapped(
        text: NDArray[np.int32],
        starts: NDArray[np.uint32],
        order: NDArray[np.uint32],
        ranks: NDArray[np.uint32],
        keys: NDArray[np.uint64] | None = None,
        followed: NDArray[np.uint64] | None = None,
        tops: NDArray[np.uint32] | None = None,
        changed: NDArray[np.int64] | None = None,
        paths: NDArray[np.int32] | None = None,
        folders: NDArray[np.int32] | None = None,
    ) -> Frozen:
        """Make a segment on the arrays of another one, which are kept alive and not copied.

        All its documents are living, and unlabelled without `changed`. ValueError if the arrays are
        inconsistent. With `keys`, `followed` and `tops` only `starts` and what is a 64th of the
        others' size is read: queries of damaged arrays are wrong, but memory-safe, and `check`
        finds the damage.
        """

    def check(self) -> None:
        """Raise ValueError if the arrays contradict each other. Reads all of them."""

    @property
    def text(self) -> NDArray[np.int32]:
        """A view of all tokens, with a border (-1) before each document and after the last."""

    @property
    def starts(self) -> NDArray[np.uint32]:
        """A view of the indices in `text` of the borders before each document."""

    @property
    def order(self) -> NDArray[np.uint32]:
        """A view of the index in `text` of each rank.

        Ranks order the positions by the text that ends there, read backwards.
        """

    @property
    def ranks(self) -> NDArray[np.uint32]:
        """A view of the rank of each position, 0 for borders."""

    @property
    def keys(self) -> NDArray[np.uint64]:
        """A view of the sort keys of every 64th rank."""

    @property
    def followed(self) -> NDArray[np.uint64]:
        """A view of one bit for each rank: whether a token follows it in its document."""

    @property
    def tops(self) -> NDArray[np.uint32]:
        """A view of the largest position of every 64 ranks."""

    @property
    def nbytes(self) -> int:
        """Memory, including mapped arrays."""

class Segments:
    """Segments queried as one. Only living occurrences that are followed by a token count."""

    def __init__(self, parts: list[Documents]) -> None: ...
    def match(
        self,
        tail: NDArray[np.int32] | Sequence[int],
        k: int = 8,
        limit: int = 64,
        path: int = -1,
        folder: int = -1,
    ) -> tuple[int, int, list[tuple[int, int, int, float]]]:
        """Find the longest suffix of the last `limit` tokens of `tail` that occurs.

        Returns its length, the number of occurrences, and the k best ones as (part, document, end,
        probability). The order is: the document labelled `path`, then those labelled `folder`, then
        by falling (changed, part, position). The probability is the share of the 64 newest
        occurrences that continue with the same token.
        """

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
        """Like `Automaton.tree`, over the `most` newest occurrences in all segments.

        Empty if the match has fewer than `least` tokens, which is faster: short matches are
        frequent.
        """
