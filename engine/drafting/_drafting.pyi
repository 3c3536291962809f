"""The native drafter (engine/drafting/core). Written by hand.

Token ids are int32 arrays; -1 is a border between texts and equals no token. A `Drafter` and the
`Weights` it updates may be used by one thread at a time; `Vocabulary` and `Ngram` are read-only.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.int32]

def weight_count() -> int:
    """Return the number of weights of the model."""

def layout() -> str:
    """Identify the feature layout: weights of another layout cannot be used."""

class Vocabulary:
    """Features of tokens that do not depend on their ids."""

    def __init__(self, hashes: NDArray[np.uint32], looks: NDArray[np.uint8]) -> None:
        """Take the UTF-8 bytes' hash and the class of each token, by id.

        `looks`: 0 blank, 1 line end, 2 punctuation, 3 word after a blank, 4 word, 5 other; + 8 if a
        line starts after it.
        """

class Ngram:
    """An n-gram table: the most frequent successors of one, two or three tokens.

    It is built once; counting again raises ValueError.
    """

    def __init__(self) -> None: ...
    def count(self, tokens: Ids, least: int) -> None:
        """Count a text and build the table.

        Contexts seen less often than `least` are dropped. Releases the GIL.
        """

    def add(self, tokens: Ids, least: tuple[int, int, int], part: int, parts: int) -> None:
        """Count slice `part` of `parts`, with `least` by order; `finish` builds the table.

        Releases the GIL.
        """

    def finish(self) -> None:
        """Build the table after all slices were added. Releases the GIL."""

    @staticmethod
    def mapped(table: NDArray[np.uint8]) -> Ngram:
        """Make an n-gram over the `table` of another one, which is not copied."""

    @property
    def table(self) -> NDArray[np.uint8]:
        """The whole table; a view."""

    @property
    def slots(self) -> int:
        """Capacity in entries."""

class Recycling:
    """Token Recycling's table (Luo et al., 2024).

    It has a model's most recent likely successors of each token.
    """

    def __init__(self, vocabulary: int, width: int = 8) -> None:
        """Empty rows of `width` tokens (at most 64) for each id below `vocabulary`."""

    def update(self, tokens: Ids, logits: NDArray[np.float32]) -> None:
        """Replace each token's row by the most likely tokens of its logits [tokens, any].

        Ties go by id. Of duplicate tokens the last one counts. Releases the GIL.
        """

    def put(self, tokens: Ids, ids: NDArray[np.int32], logits: NDArray[np.float32]) -> None:
        """Replace rows by precomputed `ids` and `logits` [tokens, n], best first."""

    def clear(self) -> None:
        """Clear all rows."""

    @property
    def table(self) -> Ids:
        """[vocabulary, width], padded with -1; a view."""

class Weights:
    """A weight per feature, and AdaGrad's sums of squared gradients."""

    def __init__(self, values: NDArray[np.float32] | None = None) -> None:
        """Zeros by default."""

    def reset(self, square: float, hashed: float) -> None:
        """Start learning with these sums of squares; `hashed`: for the hashed features."""

    @property
    def values(self) -> NDArray[np.float32]:
        """[weight_count()]; a view."""

    @staticmethod
    def recycling() -> list[tuple[int, int]]:
        """[first, last) ranges of the weights of the Token Recycling source."""

    @property
    def squares(self) -> NDArray[np.float32]:
        """[weight_count()], parallel to `values`; a view."""

class Drafter:
    """The drafter of one answer."""

    def __init__(self, vocabulary: Vocabulary, ngram: Ngram, weights: Weights) -> None: ...
    def begin(self, expected: Ids, start: int, before: Ids) -> None:
        """Begin an answer.

        `expected`: the text to be repeated, from `start` on. `before`: the text before the answer,
        which may be copied, too.
        """

    def align(self, position: int) -> None:
        """Go on at this token of the expected text."""

    def files(self, tokens: Ids, parents: Ids, probs: NDArray[np.float64], match: int) -> None:
        """Give continuations from other files as a tree, for the next `propose` only.

        See index._core.Tree.
        """

    def recycle(self, table: Recycling) -> None:
        """Use a Token Recycling table from now on."""

    def propose(
        self, capacity: int, costs: NDArray[np.float64]
    ) -> tuple[list[int], list[int], list[float], list[str], list[int]]:
        """Propose a tree of at most `capacity` nodes.

        It is expanded best first by path probability until a node is not worth its time
        (`least_worth` in drafter.cpp). `costs`: seconds of a pass over 1, 2, ... room + 1 tokens.
        Returns tokens, parents, conditional probabilities, sources, and positions in the source's
        text (-1: none).
        """

    def commit(self, tokens: Sequence[int], learning: float) -> None:
        """Append tokens to the answer. `learning`: rate of the online update, 0 for none."""

    def fit(
        self,
        tokens: Ids,
        learning: float,
        files: NDArray[np.int32] | None = None,
        probs: NDArray[np.float32] | None = None,
        matches: Ids | None = None,
    ) -> float:
        """Teacher-forced training on an answer, one update per token.

        Returns its cost in bits, each token scored before its update. `files`, `probs` [tokens,
        width]: continuations from other files, padded with -1; `matches`: their match lengths.
        """

    def leave_out(self, part: str) -> None:
        """Disable one part, for ablation.

        It is one of near, zero, substitutions, far, output, files, library, recycling, form,
        around, siblings.
        """

    @property
    def run(self) -> int:
        """Tokens matched without a gap at the end of the answer; 0 in a gap."""
