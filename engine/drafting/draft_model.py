"""Drafting with a smaller model.

Leviathan et al., "Fast Inference from Transformers via Speculative Decoding" (2022, arXiv
2211.17192) and Chen et al., "Accelerating Large Language Model Decoding with Speculative Sampling"
(2023, arXiv 2302.01318). When sampling, both models choose their tokens with the same noise
(`engine.sampling.verify`), so that they agree as often as possible and the answer is exact; with
verification "rejection" the draft is drawn from the smaller model's own distribution. Draft lengths
are decided by `draft_length`.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from time import perf_counter
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from engine.drafting import DraftContext, NullDrafter, chain
from engine.drafting.draft_length import ConstantLength
from engine.drafting.reduced_head import ReducedHead, reduced_head
from engine.records import Draft, Request
from engine.sampling.rejection_sampling import DRAFTING, Dice, probabilities
from engine.sampling.verify import choose, values_of

if TYPE_CHECKING:
    from engine.config import Config
    from engine.model.native.native_target import NativeTarget
    from engine.model.torch.torch_target import TorchTarget
    from engine.prompts.tokenizer import Tokenizer

    Model = NativeTarget | TorchTarget

log = logging.getLogger(__name__)

MAX_CATCH_UP_TOKENS = 16  # tokens; committed ones that are read in the next draft token's pass


class PairError(ValueError):
    """Two models cannot work together. The message is one line: both names and the remedy."""


def ignored(tokens: list[int], states: Any) -> None:
    """Ignore a chunk of a prompt; where chunks are announced, a target leaves no token unread."""


class DraftSource(Protocol):
    """Drafts a chain token by token."""

    head: ReducedHead | None
    needs_states: bool  # whether it is shown the model's states

    def prepare(self, text: list[int], capacity: int) -> int:
        """Synchronise with the committed `text`, and return how many tokens may be drafted."""
        ...

    def step(self, token: int) -> tuple[Any, Any]:
        """Read one token, and return logits [vocabulary] and hidden state [width] behind it."""
        ...

    def observe_prompt(self, target: Any, tokens: list[int], states: Any) -> None:
        """Receive a chunk of the prompt, as a `Drafter` does."""

    def observe(self, path: list[int], scores: Any) -> None:
        """Receive the Scores of a pass and the nodes that were accepted."""


class SeparateModel:
    """A model with a KV cache of its own.

    Rows of rejected tokens are dropped from the cache; the last token of a fully accepted draft is
    read in the next round."""

    needs_states = False

    def __init__(self, model: Model) -> None:
        self.model = model
        self.head = reduced_head(model.vocab, model.head_tile)
        self.unread: list[int] = []  # committed tokens to read in the next pass
        self.warning = ""  # the last one, so that it is logged once

    def prepare(self, text: list[int], capacity: int) -> int:
        """Synchronise with the committed `text`, whose last token is not read yet.

        Returns how many tokens may be drafted: `capacity` at most, 0 while still prefilling, which
        takes one chunk per round, so that a long prompt does not delay cancellation.
        """
        left = min(capacity, self.model.context - len(text))
        if left <= 0:
            return self._give_up(f"its context of {self.model.context} tokens is full")
        cached = self.model.begin(text, left)
        if max(text[cached:]) >= self.model.vocab:
            return self._give_up(f"it has only {self.model.vocab} tokens")
        if self.head is not None:
            self.head.follow(text)
        self.unread = text[cached:-1]
        if len(self.unread) > MAX_CATCH_UP_TOKENS:
            self.unread = []
            next(self.model.prefill(text, left, ignored), None)
        return left if len(self.model.tokens) + len(self.unread) == len(text) - 1 else 0

    def observe_prompt(self, target: Any, tokens: list[int], states: Any) -> None:
        pass

    def observe(self, path: list[int], scores: Any) -> None:
        pass

    def _give_up(self, why: str) -> int:
        if self.warning != why:
            log.warning("the draft model cannot continue: %s; decoding without it", why)
            self.warning = why
        return 0

    def step(self, token: int) -> tuple[Any, Any]:
        """Read one token, and return logits [vocabulary] and hidden state [width] behind it.

        They are as the model's runtime gives them: arrays or tensors.
        """
        first, *rest = *self.unread, token
        self.unread = []
        some: dict[str, Any] = {} if self.head is None else {"tiles": self.head.tiles}
        scores = self.model.forward(first, chain(rest, "committed"), hidden=True, **some)
        self.model.keep(list(range(len(rest))))
        return scores.logits[-1], scores.hidden[-1]


class DraftModel(NullDrafter):
    """Drafts one chain per round. Serves one answer."""

    def __init__(
        self,
        source: DraftSource,
        lengths: ConstantLength | None = None,
        label: str = "draft model",
    ) -> None:
        """Start without a draft.

        `lengths` may be shared by requests, which then learn from each other. `label`: the source
        named in drafts.
        """
        self.source, self.lengths, self.label = source, lengths or ConstantLength(), label
        self.drafting = 0.0  # seconds spent drafting this round
        self.needs_prompt_states = self.needs_states = source.needs_states

    def observe_prompt(self, target: Any, tokens: list[int], states: Any) -> None:
        self.source.observe_prompt(target, tokens, states)

    def begin(self, context: DraftContext) -> None:
        self.dice = Dice(context.request.seed, DRAFTING)
        if self.source.head is not None:
            self.source.head.add(context.eos_ids)

    def propose(self, context: DraftContext, target: Any) -> Draft:
        """Propose a chain as long as `lengths` allows; it stops at an end token."""
        start = perf_counter()
        draft, most = Draft(), min(self.lengths.begin(), context.capacity)
        if most > 0:
            text = [*context.prompt, *context.output]
            most = min(most, self.source.prepare(text, context.capacity))
            token = context.last
            while len(draft) < most and token not in context.eos_ids:
                logits, hidden = self.source.step(token)
                token = self._add(draft, logits[: target.vocab], len(text), context)
                if not self.lengths.should_continue(len(draft), draft.probs[-1], hidden):
                    break
        self.drafting = perf_counter() - start
        return draft

    def observe(
        self, draft: Draft, path: list[int], committed: list[int], scores: Any, seconds: float
    ) -> None:
        self.source.observe(path, scores)
        self.lengths.record(len(draft), len(path), self.drafting, seconds - self.drafting)

    def _add(self, draft: Draft, logits: Any, position: int, context: DraftContext) -> int:
        """Append the next token of the chain and return it."""
        dice = self.dice if context.verification == "rejection" else None
        return extend(draft, logits, position + len(draft), context.request, dice, self.label)


def extend(
    draft: Draft, logits: Any, position: int, request: Request, dice: Dice | None, source: str
) -> int:
    """Append the next token of a chain and return it.

    The token is chosen as a model chooses it at `position`. With `dice`, and a temperature above 0,
    it is drawn with them and its distribution is recorded."""
    node = len(draft)
    if dice is not None and request.temperature > 0:
        drawn = probabilities(logits, request)
        token = dice.pick(drawn)
        draft.drawn[node] = drawn
        prob = float(drawn[token])
    elif isinstance(logits, np.ndarray) or logits.device.type == "cpu":
        row = values_of(logits)
        token = choose(row, position, request)
        shares = np.exp(row - row.max())
        prob = float(shares[token] / shares.sum())
    else:
        from engine.sampling.batched import choose_on_device  # torch takes a second

        token, prob = choose_on_device(logits, position, request)
    draft.add(token, node - 1, prob, source)
    return token


def draft_model(model: Model, lengths: ConstantLength | None = None) -> DraftModel:
    """Make a drafter for one answer; `model` (from `load_draft`) and `lengths` are shared."""
    return DraftModel(SeparateModel(model), lengths)


def load_draft(name: str, config: Config, tokenizer: Tokenizer, tensors: bool = False) -> Any:
    """Load the draft model `name` for the model of `config`, whose tokenizer is given.

    `tensors`: its logits and hidden states must be torch's. Raises PairError if their tokenizers
    differ, else whatever `locate` and `open_target` raise.
    """
    from engine.model.opening import open_target
    from engine.prompts.tokenizer import Tokenizer as DraftTokenizer
    from engine.weights import locate

    folder = locate(name)
    check_pair(config.model, tokenizer, name, DraftTokenizer(folder))
    return open_target(folder, replace(config, model=name), tensors=tensors)


def check_pair(model: str, tokenizer: Tokenizer, draft: str, other: Tokenizer) -> None:
    """Raise PairError, naming the first difference, unless both vocabularies are equal."""
    ours, theirs = tokenizer.words, other.words
    if ours == theirs:
        return
    number = min(number for _, number in ours.items() ^ theirs.items())
    left, right = (
        next((repr(word) for word, at in words.items() if at == number), "missing")
        for words in (ours, theirs)
    )
    raise PairError(
        f"{draft} cannot draft for {model}: their tokenizers differ (token {number} is {right} in "
        f"{draft}, {left} in {model}): choose a draft model of the same tokenizer"
    )
