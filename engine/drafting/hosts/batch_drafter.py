"""Drafts for the requests of a batch, which a host passes as rows of token ids without names.

A request is recognised by its tokens: all of those that are known must be in its row, before the
newly sampled ones. So rows may move, prompts may be equal, and a request that was preempted is
found again when it returns. Of a request that is missing, only its tokens are kept, up to a limit;
from these its drafter is made again.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from engine.drafting.hosts.chain_drafter import ChainDrafter
from engine.drafting.hosts.prompt_blocks import TokenTexts
from engine.drafting.hosts.shared_text import SharedText
from engine.drafting.next_token import LEARNING_RATE, NextTokenModel
from engine.model.cost_model import CostModel

Ids = NDArray[np.int32]

KEY_TOKENS = 16  # tokens at a request's end, by which it is looked up
MISSING_STEPS = 4  # steps that a request may miss before its drafter is dropped
MAX_PARKED_TOKENS = 1 << 18  # tokens of missing requests together, prompts included


class Answer:
    """A request and what was written for it."""

    def __init__(self, prompt: Ids) -> None:
        self._tokens = prompt.astype(np.int32)  # a copy, with spare capacity at the end
        self.size = self.prompt_size = self.remembered = len(prompt)
        self.drafter: ChainDrafter | None = None
        self.seen = 0  # the step in which it was last in the batch
        self.key = b""  # under which it is known
        self.drafted = 0  # tokens of its last draft

    @property
    def tokens(self) -> Ids:
        """Prompt and answer so far."""
        return self._tokens[: self.size]

    def append(self, new: Ids) -> None:
        """Add tokens of the answer."""
        size = self.size + len(new)
        if size > len(self._tokens):
            grown = np.empty(size + size // 2, np.int32)
            grown[: self.size] = self.tokens
            self._tokens = grown
        self._tokens[self.size : size] = new
        self.size = size


@dataclass(frozen=True, slots=True)
class DraftingLimits:
    """The limits that a host sets."""

    tokens: int  # tokens of a draft
    context: int  # tokens of a request, prompt included
    vocabulary: int  # ids are below it
    ends: frozenset[int] = frozenset()  # tokens that end an answer


class BatchDrafter:
    """Drafts for all requests of a host. One thread at a time."""

    def __init__(
        self,
        model: NextTokenModel,
        texts: TokenTexts,
        shared: SharedText,
        cost: CostModel,
        limits: DraftingLimits,
        learning: float = LEARNING_RATE,
        clock: Callable[[], float] = perf_counter,
    ) -> None:
        """Start without requests.

        `cost`: that of the host's passes by their rows, in any unit; it is corrected by the time
        between two calls of `propose`, which `clock` gives in seconds.
        """
        self._model, self._texts, self._shared, self._cost = model, texts, shared, cost
        self._limits, self._learning, self._clock = limits, learning, clock
        self._live: list[Answer] = []  # requests with a drafter
        self._parked: OrderedDict[int, Answer] = OrderedDict()  # by id(), the oldest first
        self._parked_tokens = 0
        self._known: dict[bytes, list[Answer]] = {}
        self._step = 0
        self._last: tuple[set[int], float] | None = None  # the requests of the last step, its time

    @property
    def live(self) -> int:
        """Requests that have a drafter."""
        return len(self._live)

    @property
    def parked_tokens(self) -> int:
        """Tokens that are kept of requests that are missing."""
        return self._parked_tokens

    @property
    def filed(self) -> int:
        """Requests that can be recognised."""
        return sum(map(len, self._known.values()))

    def propose(
        self, sampled: Sequence[Sequence[int]], sizes: Sequence[int] | Ids, rows: NDArray[np.int32]
    ) -> list[list[int]]:
        """Propose a draft for each row, [] for none.

        `sampled`: the tokens that the last pass added to each row, none for a partial prefill.
        `sizes`: tokens of each row with these. `rows`: [at least as many, any], token ids.
        """
        self._step += 1
        answers: list[Answer | None] = []
        for place, new in enumerate(sampled):
            size = int(sizes[place])
            fits = 0 < len(new) < size <= rows.shape[1]
            answers.append(self._advance(rows[place, :size], len(new)) if fits else None)
        self._observe_pass(answers)
        batch = sum(answer is not None for answer in answers)
        drafts = [
            self._draft(answer, new, batch) if answer else []
            for answer, new in zip(answers, sampled, strict=True)
        ]
        for answer in [live for live in self._live if self._step - live.seen > MISSING_STEPS]:
            self._park(answer)
        return drafts

    # -- one request ---------------------------------------------------------------------------

    def _advance(self, row: Ids, count: int) -> Answer:
        """Return the request of a row whose last `count` tokens are new; commit these."""
        before, new = row[:-count], row[-count:]
        answer = self._recognised(before)
        if answer is None:
            answer = Answer(before)
        if answer.drafter is None:
            self._begin(answer)
        assert answer.drafter is not None
        answer.drafter.commit(new.tolist(), self._learning)
        answer.append(new)
        answer.seen = self._step
        self._know(answer)
        return answer

    def _recognised(self, before: Ids) -> Answer | None:
        """Find a request that has exactly these tokens, and was not found in this step yet."""
        for answer in self._known.get(_key(before), []):
            if answer.seen != self._step and np.array_equal(answer.tokens, before):
                return answer
        return None

    def _begin(self, answer: Answer) -> None:
        """Give a request a drafter that has seen its tokens."""
        self._unpark(answer)
        prompt = answer.tokens[: answer.prompt_size]
        answer.drafter = ChainDrafter(self._model, self._texts, self._shared, prompt)
        written = answer.tokens[answer.prompt_size :].tolist()
        if written:
            answer.drafter.commit(written)
        self._live.append(answer)

    def _draft(self, answer: Answer, new: Sequence[int], batch: int) -> list[int]:
        """Draft a chain for a request in a batch of so many, after `new` tokens."""
        answer.drafted = 0
        if not self._limits.ends.isdisjoint(new):
            self._park(answer)
            return []
        capacity = min(self._limits.tokens, self._limits.context - answer.size - 1)
        if capacity <= 0:
            return []
        assert answer.drafter is not None
        chain = answer.drafter.propose(capacity, self._costs(batch, capacity))
        # Shared texts may hold ids that the model lacks: they end the chain.
        wrong = (n for n, token in enumerate(chain) if not 0 <= token < self._limits.vocabulary)
        chain = chain[: next(wrong, len(chain))]
        answer.drafted = len(chain)
        return chain

    def _know(self, answer: Answer) -> None:
        """File a request under its newest tokens."""
        self._forget(answer)
        answer.key = _key(answer.tokens)
        self._known.setdefault(answer.key, []).append(answer)

    def _forget(self, answer: Answer) -> None:
        """Remove a request from where it is filed."""
        filed = [other for other in self._known.get(answer.key, []) if other is not answer]
        if filed:
            self._known[answer.key] = filed
        else:
            self._known.pop(answer.key, None)

    # -- requests that are missing -------------------------------------------------------------

    def _park(self, answer: Answer) -> None:
        """Drop a request's drafter, but keep its tokens.

        Those that it wrote are shared from now on.
        """
        answer.drafter = None
        self._live.remove(answer)
        self._shared.add(answer.tokens[answer.remembered :])
        answer.remembered = answer.size
        self._parked[id(answer)] = answer
        self._parked_tokens += answer.size
        while self._parked_tokens > MAX_PARKED_TOKENS:
            oldest = next(iter(self._parked.values()))
            self._unpark(oldest)
            self._forget(oldest)

    def _unpark(self, answer: Answer) -> None:
        if self._parked.pop(id(answer), None) is not None:
            self._parked_tokens -= answer.size

    # -- what a pass costs ---------------------------------------------------------------------

    def _costs(self, batch: int, capacity: int) -> NDArray[np.float64]:
        """Return a request's share of a pass by the tokens that each request drafts.

        Every request of the batch drafts 0, 1, ... `capacity` tokens. So drafts are shorter where
        the batch alone fills a pass.
        """
        return self._cost.table(0, batch * (capacity + 1))[batch - 1 :: batch] / batch

    def _observe_pass(self, answers: Sequence[Answer | None]) -> None:
        """Correct the costs, if the same requests were decoded in the last two passes.

        A pass that prefills does not count.
        """
        now = self._clock()
        found = {id(answer) for answer in answers if answer is not None}
        if self._last is not None and None not in answers and found == self._last[0]:
            rows = sum(1 + answer.drafted for answer in answers if answer is not None)
            self._cost.observe(rows, 0, now - self._last[1])
        self._last = (found, now) if found else None


def _key(tokens: Ids) -> bytes:
    """Return the common key of requests with equal tokens: their number and the last ones."""
    return len(tokens).to_bytes(8, "little") + tokens[-KEY_TOKENS:].tobytes()
