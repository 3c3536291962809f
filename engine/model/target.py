"""What decoding needs of a runtime: the interface between `engine.generate` and a model.

`NativeTarget` (engine/model/native/native_target.py) fulfils it with our own kernels and numpy's
arrays, `TorchTarget` (engine/model/torch/torch_target.py) with torch's tensors, our own forward
passes and transformers'. Another runtime needs nothing else. Logits and hidden states are arrays or
tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol

from engine.records import Draft, Scores


class Target(Protocol):
    """The model whose text the user gets, and the KV cache of the sequence it is writing.

    The cache holds the committed tokens but the last: every forward pass runs that one and the
    draft behind it, and `keep` drops the rows of what was not accepted.
    """

    vocab: int  # size of the vocabulary
    context: int  # tokens
    epoch: int  # changes whenever another sequence becomes current

    @property
    def tokens(self) -> list[int]:
        """The tokens of the current sequence whose rows are in the cache."""
        ...

    def begin(self, prompt: list[int], capacity: int, owner: str = "") -> int:
        """Make a sequence of an owner current that starts as `prompt` does.

        It has space for `capacity` more rows. Returns how many of the prompt's tokens are cached
        already, at most all but one; those of other owners do not count.
        """
        ...

    def prefill(
        self,
        prompt: list[int],
        capacity: int,
        on_chunk: Callable[[list[int], Any], None] | None = None,
        owner: str = "",
    ) -> Iterator[int]:
        """Read `prompt` but its last token, chunk by chunk, after `begin`.

        Yields how many of its tokens are cached. Between two chunks the caller may stop or run
        another request. `on_chunk` gets the tokens of each chunk and their hidden states [tokens,
        width].
        """
        ...

    def resume(self, tokens: list[int], capacity: int, owner: str = "") -> None:
        """Make the sequence of `tokens` current again after another request ran.

        What is no longer cached is read again.
        """
        ...

    def capacity(self) -> int:
        """Count the draft nodes that the cache of the current sequence can still take."""
        ...

    def forward(self, last: int, draft: Draft, hidden: bool = False) -> Scores:
        """Run the last committed token and the draft behind it; `keep` must follow.

        Fewer nodes may be run than given: as many as the scores have rows for, less one. `hidden`:
        also return hidden states.
        """
        ...

    def keep(self, path: list[int]) -> None:
        """Commit the last forward's first token and the draft's nodes on `path`, in order."""
        ...

    def logits(self, states: Any) -> Any:
        """Compute the logits [rows, vocabulary] of hidden states that `prefill` gave."""
        ...
