"""The suffix automaton in C++ (index/core). Written by hand; index/naive.py is its oracle.

Token ids are 0 to 2^31 - 1, as an int32 array (taken as it is) or a sequence of ints (copied). A
bad argument raises ValueError with one line; what is no list of int32 raises TypeError.

Threads: any number may read at once. A call that meets a writer, or a writer that meets any other
call, raises RuntimeError at once; it never waits. `add` and `extend` of 1024 tokens or more release
the GIL, and so do `freeze`, `check`, and `match` and `tree` where a scan may be long.
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
        """Occurrences in all: exact, frozen or not."""

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
    def tokens(self) -> NDArray[np.int32]: ...
    @property
    def parents(self) -> NDArray[np.int32]:
        """Index of each node's parent; -1: it follows the tail."""

    @property
    def probs(self) -> NDArray[np.float64]:
        """count(node) / count(parent), where both are counts of occurrences (SPEC 1.3)."""

class Automaton:
    """A generalized suffix automaton over documents, which match and draft apart: nothing crosses
    a document's border."""

    def __init__(self) -> None: ...
    def add(self, tokens: NDArray[np.int32] | Sequence[int]) -> int:
        """Add a whole document, which is then the last one; its index."""

    def open(self) -> int:
        """Start an empty document, which `extend` appends to; its index."""

    def extend(self, tokens: NDArray[np.int32] | Sequence[int]) -> None:
        """Append to the last document, opened or added."""

    def freeze(self) -> None:
        """End growth, in one pass: queries of common text become faster and spare memory is given
        back. Answers stay the same. Later `add`, `open`, `extend` and `freeze` raise ValueError."""

    def match(
        self,
        tail: NDArray[np.int32] | Sequence[int],
        k: int = 8,
        limit: int = 64,
        *,
        followed: bool = False,
    ) -> Match:
        """The longest suffix of the last `limit` tokens of `tail` that occurs, with its k newest
        occurrences. `followed`: only occurrences that a token follows are looked at, in length,
        count and list; so a text that ends in `tail` does not match itself by its own end."""

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

    def continuation(self, doc: int, end: int, n: int) -> NDArray[np.int32]:
        """The tokens end:end + n of a document, fewer at its border; a copy."""

    def tokens(self, doc: int) -> NDArray[np.int32]:
        """All tokens of a document; a copy."""

    def check(self) -> str:
        """ "" when every invariant holds, else the first that does not. Slow: for tests."""

    @property
    def frozen(self) -> bool: ...
    @property
    def documents(self) -> int:
        """How many documents there are, empty ones included."""

    @property
    def size(self) -> int:
        """Tokens of all documents."""

    @property
    def states(self) -> int:
        """States of the minimal automaton, the root included. Takes linear time."""

    @property
    def nbytes(self) -> int:
        """Memory that the core holds for it: capacities, not only what is in use."""
