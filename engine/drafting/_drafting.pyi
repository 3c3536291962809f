"""The native drafter (engine/drafting/core). Written by hand.

Token ids are int32 arrays; -1 is a border between texts and equals no token. One thread at a time
may use a `Drafter` and the `Weights` it learns; `Vocabulary` and `Ngram` only are read.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.int32]

def weight_count() -> int:
    """Weights of the model."""

def layout() -> str:
    """What the weights mean: equal where files of weights can be exchanged."""

class Vocabulary:
    """What is known of each token beside its id."""

    def __init__(self, hashes: NDArray[np.uint32], looks: NDArray[np.uint8]) -> None:
        """By id. Hashes of the UTF-8 bytes. Looks: 0 blank, 1 blank with a line end, 2 punctuation,
        3 word after a blank, 4 word, 5 other; + 8 where a line starts after the token."""

class Ngram:
    """What follows one, two or three tokens in a language's library. It is counted once: more after
    that is a ValueError."""

    def __init__(self) -> None: ...
    def count(self, tokens: Ids, least: int) -> None:
        """Count a text; what was seen less often than `least` is left out. Releases the GIL."""

    def add(self, tokens: Ids, least: tuple[int, int, int], part: int, parts: int) -> None:
        """One of `parts` slices of the counting, `least` by order; `finish` makes the table."""

    def finish(self) -> None:
        """After every slice was added. Releases the GIL, as `add` does."""

    @staticmethod
    def mapped(table: NDArray[np.uint8]) -> Ngram:
        """From another one's table, which is kept and not copied."""

    @property
    def table(self) -> NDArray[np.uint8]:
        """All of it; a view."""

    @property
    def slots(self) -> int:
        """Entries it has room for."""

class Recycling:
    """What a model itself last held likely after each token (Token Recycling, Luo et al.)."""

    def __init__(self, vocabulary: int, width: int = 8) -> None:
        """Empty rows of `width` tokens (64 at most) for each id below `vocabulary`."""

    def update(self, tokens: Ids, logits: NDArray[np.float32]) -> None:
        """Overwrite each token's row by the likeliest of the logits [tokens, any] that followed it,
        the lowest id first among equals; of equal tokens the last one's stays. Releases the GIL."""

    def put(self, tokens: Ids, ids: NDArray[np.int32], logits: NDArray[np.float32]) -> None:
        """The same where they were found elsewhere: ids [tokens, n], their logits, best first."""

    def clear(self) -> None:
        """Forget every row."""

    @property
    def table(self) -> Ids:
        """[vocabulary, width], -1: no more; a view."""

class Weights:
    """One number a feature, and how much each has learnt (AdaGrad's sums of squares)."""

    def __init__(self, values: NDArray[np.float32] | None = None) -> None:
        """Zeros where nothing is given."""

    def reset(self, square: float, hashed: float) -> None:
        """Learn from here on, as if so much had been seen; `hashed`: by the hashed features."""

    @property
    def values(self) -> NDArray[np.float32]:
        """[weight_count()]; a view."""

    @staticmethod
    def recycling() -> list[tuple[int, int]]:
        """Where the weights of the model's own table lie: first, one past the last."""

    @property
    def squares(self) -> NDArray[np.float32]:
        """Beside them; a view."""

class Drafter:
    """One answer being drafted."""

    def __init__(self, vocabulary: Vocabulary, ngram: Ngram, weights: Weights) -> None: ...
    def begin(self, expected: Ids, start: int, before: Ids) -> None:
        """`expected`: the text to be repeated, from `start` on. `before`: what the answer follows;
        it may be copied, too."""

    def files(self, tokens: Ids, parents: Ids, probs: NDArray[np.float64], match: int) -> None:
        """What other files say follows now, as a tree (index._core.Tree), for one `propose`."""

    def recycle(self, table: Recycling) -> None:
        """Offer the model's own successors from now on."""

    def propose(
        self, room: int, costs: NDArray[np.float64]
    ) -> tuple[list[int], list[int], list[float], list[str], list[int]]:
        """The tree of at most `room` nodes, best first by path probability, up to the first that is
        not worth its time (`least_worth` in drafter.cpp). `costs`: seconds of a pass over 1, 2, ...
        room + 1 tokens. Tokens, parents, probabilities given the parent, sources, and places in the
        source's text (-1: none)."""

    def commit(self, tokens: Sequence[int], learning: float) -> None:
        """The answer went on so. `learning`: rate of the update, 0: none."""

    def fit(
        self,
        tokens: Ids,
        learning: float,
        files: NDArray[np.int32] | None = None,
        probs: NDArray[np.float32] | None = None,
        matches: Ids | None = None,
    ) -> float:
        """Go through a whole answer, one update a token; its bits under the model before each.
        `files`, `probs` [tokens, width]: what other files say there, -1: no more; `matches`."""

    def leave_out(self, part: str) -> None:
        """Draft without one part from now on, to see what it is worth: near, zero, substitutions,
        far, output, files, library, recycling, form, around, siblings."""

    @property
    def run(self) -> int:
        """Tokens that agreed with the expected text without a gap; 0 in a gap."""
