"""A smaller model of the same tokenizer writes ahead, a token at a time; the model verifies.

Leviathan et al. and Chen et al. Where the answer is sampled, both models choose their tokens with
the same noise (`engine.sampling.verify`), so they agree as often as they can and the law holds; with
verification "rejection" the draft is drawn from the smaller model's own distribution instead. The
smaller model has a cache of its own, which is taken back to the committed text at every round, or
it is the first layers of the model itself, on the model's own cache. How long drafts are is
`lengths.py`'s.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from time import perf_counter
from typing import TYPE_CHECKING, Any, Protocol

from engine.drafting import DraftContext, NullDrafter, chain
from engine.drafting.draft_length import ConstantLength
from engine.records import Draft, Request
from engine.sampling.rejection_sampling import DRAFTING, Dice, probabilities
from engine.sampling.verify import choose

if TYPE_CHECKING:
    from torch import Tensor

    from engine.config import Config
    from engine.model.torch_target import TorchTarget
    from engine.prompts.tokenizer import Tokenizer

log = logging.getLogger(__name__)

MAX_CATCH_UP_TOKENS = 16  # committed tokens at most that are read with the next one


class PairError(ValueError):
    """A draft model that cannot draft for a model: one line that names both, and the remedy."""


class DraftSource(Protocol):
    """Whatever can write ahead: it reads the committed text, then what it wrote itself."""

    def ready(self, text: list[int], room: int, target: Any) -> int:
        """Take up the committed `text`, whose last token is yet to be read: how many tokens may be
        drafted, `room` at most; 0 while it is still reading."""
        ...

    def step(self, token: int) -> tuple[Tensor, Tensor]:
        """Read one token: logits [vocabulary] and hidden state [width] behind it."""
        ...


class SeparateModel:
    """A model with a cache of its own, which holds what is common with the last round's text: a
    refused draft's rows are forgotten, and the last token of a wholly accepted one is read now."""

    def __init__(self, model: TorchTarget) -> None:
        self.model = model
        self.unread: list[int] = []  # committed tokens that go into the next pass
        self.said = ""

    def ready(self, text: list[int], room: int, target: Any) -> int:
        """Reads one chunk a round, so that a long prompt does not hold up cancelling."""
        left = min(room, self.model.context - len(text))
        if left <= 0:
            return self._plainly(f"its context of {self.model.context} tokens is full")
        cached = self.model.begin(text, left)
        if max(text[cached:]) >= self.model.vocab:
            return self._plainly(f"it has only {self.model.vocab} tokens")
        self.unread = text[cached:-1]
        if len(self.unread) > MAX_CATCH_UP_TOKENS:
            self.unread = []
            next(self.model.prefill(text, left), None)
        return left if len(self.model.tokens) + len(self.unread) == len(text) - 1 else 0

    def _plainly(self, why: str) -> int:
        if self.said != why:
            log.warning("the draft model cannot read on, %s: decoding plainly", why)
            self.said = why
        return 0

    def step(self, token: int) -> tuple[Tensor, Tensor]:
        """With what was committed beside this model's own draft: that is not worth a pass."""
        first, *rest = *self.unread, token
        self.unread = []
        scores = self.model.forward(first, chain(rest, "committed"), hidden=True)
        self.model.keep(list(range(len(rest))))
        return scores.logits[-1], scores.hidden[-1]


class EarlyExit:
    """The first layers of the model itself, then its norm and head. What it reads is in the model's
    cache already, and what it writes there stands behind the committed text, where the
    verification writes next; so nothing is read twice and no memory is taken."""

    def __init__(self, count: int) -> None:
        self.count, self.ahead = count, 0
        self.target: Any = None

    def ready(self, text: list[int], room: int, target: Any) -> int:
        """PairError where the model has no more layers than that, or cannot stop early."""
        layers = target.model.layers
        if not target.model.stops_early:
            raise PairError(
                "self-draft: this model cannot stop early: name a draft model, or choose a model "
                "of Llama's family"
            )
        if not 0 < self.count < layers:
            raise PairError(
                f"self-draft of {self.count} layers: the model has {layers}: "
                f"choose 1 to {layers - 1}"
            )
        self.target, self.ahead = target, 0
        return room

    def step(self, token: int) -> tuple[Tensor, Tensor]:
        hidden = self.target.skim(token, self.ahead, self.count)
        self.ahead += 1
        return self.target.model.head(hidden)[0], hidden[0]


class DraftModel(NullDrafter):
    """Drafts one answer: a chain a round."""

    def __init__(
        self,
        reader: DraftSource,
        lengths: ConstantLength | None = None,
        source: str = "draft model",
    ) -> None:
        """`lengths` may be shared by requests, which then learn from each other."""
        self.reader, self.lengths, self.source = reader, lengths or ConstantLength(), source
        self.drafting = 0.0  # seconds of this round

    def begin(self, context: DraftContext) -> None:
        self.dice = Dice(context.request.seed, DRAFTING)

    def propose(self, context: DraftContext, target: Any) -> Draft:
        """A chain of as many tokens as `lengths` says, to an end token at most."""
        began = perf_counter()
        draft, most = Draft(), min(self.lengths.begin(), context.room)
        if most > 0:
            text = [*context.prompt, *context.output]
            most = min(most, self.reader.ready(text, context.room, target))
            token = context.last
            while len(draft) < most and token not in context.eos_ids:
                logits, hidden = self.reader.step(token)
                token = self._add(draft, logits[: target.vocab], len(text), context)
                if not self.lengths.should_continue(len(draft), draft.probs[-1], hidden):
                    break
        self.drafting = perf_counter() - began
        return draft

    def observe(
        self, draft: Draft, path: list[int], committed: list[int], scores: Any, seconds: float
    ) -> None:
        """What became of the round decides how long the next ones are."""
        self.lengths.record(len(draft), len(path), self.drafting, seconds - self.drafting)

    def _add(self, draft: Draft, logits: Tensor, position: int, context: DraftContext) -> int:
        """The next token of the chain, which it returns."""
        dice = self.dice if context.verification == "rejection" else None
        return extend(draft, logits, position + len(draft), context.request, dice, self.source)


def extend(
    draft: Draft, logits: Tensor, position: int, request: Request, dice: Dice | None, source: str
) -> int:
    """Add the next token of a chain, which is returned: as a model chooses it at that position; or,
    where the answer is sampled and there are `dice`, drawn with them."""
    node = len(draft)
    if dice is not None and request.temperature > 0:
        drawn = probabilities(logits, request)
        token = dice.pick(drawn)
        draft.drawn[node] = drawn
        prob = float(drawn[token])
    else:
        token = choose(logits, position, request)
        prob = float(logits[token].sub(logits.logsumexp(0)).exp())
    draft.add(token, node - 1, prob, source)
    return token


def draft_model(model: TorchTarget, lengths: ConstantLength | None = None) -> DraftModel:
    """The drafter of one answer; `model` (of `load_draft`) and `lengths` serve many."""
    return DraftModel(SeparateModel(model), lengths)


def self_draft(layers: int, lengths: ConstantLength | None = None) -> DraftModel:
    """The same with the model's own first layers."""
    return DraftModel(EarlyExit(layers), lengths, "self-draft")


def load_draft(name: str, config: Config, tokenizer: Tokenizer) -> TorchTarget:
    """The draft model `name` for the model of `config`, whose tokenizer that is. PairError where
    they read different tokens; else as `Target` and `locate`."""
    from engine.model.torch_target import TorchTarget
    from engine.prompts.tokenizer import Tokenizer as Reading
    from engine.weights import locate

    folder = locate(name)
    check_pair(config.model, tokenizer, name, Reading(folder))
    return TorchTarget(folder, replace(config, model=name))


def check_pair(model: str, tokenizer: Tokenizer, draft: str, other: Tokenizer) -> None:
    """PairError, with the first difference, unless both tokenizers have the same words."""
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
