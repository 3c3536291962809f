"""Speculative decoding of batches with two transformers models, for experiments.

    from research.two_models import agreement, load, speculative_decoding

    pair = load("smollm2-135m", "smollm2-360m")
    agreement(pair, "def add(left, right):", 20)  # number of leading tokens both models agree on
    speculative_decoding(pair, ["One, two,", "To be"], 40).texts
    speculative_decoding(pair, ["One, two,"], 40, temperature=0.8, seed=1)

See `examples/two_models.py`. The draft model proposes tokens and the target model verifies them.
Prompts of a batch are left-padded; rows end and are verified independently. Greedy texts, and texts
sampled with a fixed seed, equal the target model's own (row n of a batch uses seed + n), up to the
rounding of transformers' kernels; `engine.Engine` is exact and much faster. With
verification="rejection" sampled texts only follow the target model's distribution.
`research.comparison` compares methods.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor

from engine.config import Verification
from engine.drafting.draft_model import extend
from engine.generate import verdict
from engine.model.kv_cache import common_prefix
from engine.records import Draft, Request
from engine.sampling.rejection_sampling import DRAFTING, Dice
from engine.sampling.verify import Verdict, cut
from research.model_pair import ModelPair, load, max_context

__all__ = [
    "DRAFT_TOKENS",
    "ModelPair",
    "agreement",
    "generate_and_check",
    "load",
    "speculative_decoding",
]
DRAFT_TOKENS = 5  # tokens per round


class Round(NamedTuple):
    """The tokens that one pass of the target model added to a row, and how they were drafted."""

    drafted: int
    accepted: int
    tokens: list[int]  # accepted ones, then the target's own unless the text ended


class BatchResult(NamedTuple):
    """The texts and their statistics. Lists have one entry per row."""

    texts: list[str]  # with the prompts
    passes: int  # passes of the target model, each over all rows
    tokens: list[list[int]]  # without the prompt and the end token
    reasons: list[str]  # "eos" or "length"
    drafted: list[int]
    accepted: list[int]
    rounds: list[list[Round]]


# -- functions -----------------------------------------------------------------------------------


def generate_and_check(
    pair: ModelPair, prompts: Sequence[str], new_tokens: int
) -> list[str] | None:
    """Draft greedily and verify in one pass.

    Returns prompts and drafts if the target model agrees with every draft, else None.
    """
    rows = [pair.tokenizer.encode(prompt) for prompt in prompts]
    drafts, accepted = _draft_and_verify(pair, rows, new_tokens)
    if any(count < len(draft) for draft, count in zip(drafts, accepted, strict=True)):
        return None
    return [pair.tokenizer.decode([*row, *draft]) for row, draft in zip(rows, drafts, strict=True)]


def agreement(
    pair: ModelPair, prompt: str, new_tokens: int, show: Callable[[str], None] = lambda line: None
) -> int:
    """Count the leading tokens after `prompt` that both models agree on.

    They are at most `new_tokens`, an end token included. `show` receives a line for each.
    """
    row = pair.tokenizer.encode(prompt)
    ((draft,), (accepted,)) = _draft_and_verify(pair, [row], new_tokens)
    for count in range(1, accepted + 1):
        show(f"{count} {pair.tokenizer.decode([*row, *draft[:count]])!r}")
    return accepted


def speculative_decoding(
    pair: ModelPair,
    prompts: Sequence[str],
    max_new_tokens: int,
    draft_tokens: int = DRAFT_TOKENS,
    **options: Any,
) -> BatchResult:
    """Write the target model's texts in fewer passes.

    `options`: temperature, top_k, top_p and seed (greedy by default), verification and cached, as
    in `BatchSpeculation`.
    """
    rows = [pair.tokenizer.encode(prompt) for prompt in prompts]
    batch = BatchSpeculation(pair, rows, max_new_tokens, draft_tokens, **options)
    while batch.round():
        pass
    return batch.result()


def _draft_and_verify(
    pair: ModelPair, rows: list[list[int]], count: int
) -> tuple[list[list[int]], list[int]]:
    """Draft greedily, and count how many tokens of each row's draft the target model accepts."""
    batch = BatchSpeculation(pair, rows, count + 1, count)
    drafts = batch.drafts()
    return [draft.tokens for draft in drafts], [len(path) for path, _ in batch.verify(drafts)]


# -- a batch -------------------------------------------------------------------------------------


@dataclass(slots=True)
class BatchRow:
    """One prompt and its continuation."""

    prompt: list[int]
    request: Request  # sampling parameters
    verdict: Verdict
    dice: Dice | None  # random numbers for drafts
    tokens: list[int] = field(default_factory=list)
    reason: str = ""  # why it ended; "" while it continues
    rounds: list[Round] = field(default_factory=list)


class BatchSpeculation:
    """Speculative decoding of a batch, round by round: draft, verify, commit."""

    def __init__(
        self,
        pair: ModelPair,
        prompts: list[list[int]],
        max_new_tokens: int,
        draft_tokens: int = DRAFT_TOKENS,
        seed: int = 0,
        verification: Verification = "match",
        cached: bool = True,
        **sampling: Any,
    ) -> None:
        """Prepare a row for each prompt.

        Without `cached` everything is recomputed at each step. Raises ValueError if a prompt is
        empty or too long.
        """
        if not prompts or not all(prompts):
            raise ValueError("a prompt is empty: give at least one token")
        if draft_tokens < 0 or max_new_tokens < 0:
            raise ValueError(
                f"draft_tokens {draft_tokens}, max_new_tokens {max_new_tokens}: give 0 or more"
            )
        longest, limit = max(map(len, prompts)) + max_new_tokens, max_context(pair)
        if limit is not None and longest > limit:
            raise ValueError(
                f"prompt and text need {longest} tokens, the models' context has "
                f"{limit}: shorten the prompt, or ask for fewer tokens"
            )
        self.pair, self.max_new_tokens, self.draft_tokens = pair, max_new_tokens, draft_tokens
        self.rows = []
        for n, prompt in enumerate(prompts):
            request = Request("complete", seed=seed + n, **sampling)
            dice = Dice(request.seed, DRAFTING) if verification == "rejection" else None
            self.rows.append(BatchRow(prompt, request, verdict(verification, request), dice))
        self.draft_model, self.target_model = (
            CachedModel(model, len(prompts), cached)
            for model in (pair.draft_model, pair.target_model)
        )
        embeddings = pair.target_model.get_input_embeddings()
        self.vocabulary = embeddings.num_embeddings  # the draft model's may be larger
        self.passes = 0
        for row in self.rows:
            row.reason = "" if max_new_tokens else "length"

    def round(self) -> bool:
        """Run one pass of the target model, which adds at least one token to each unfinished row.

        Returns False if all rows have ended.
        """
        if all(row.reason for row in self.rows):
            return False
        drafts = self.drafts()
        for row, draft, verified in zip(self.rows, drafts, self.verify(drafts), strict=True):
            if row.reason:
                continue
            path, token = verified
            remaining = self.max_new_tokens - len(row.tokens)
            new, reason = cut(
                [*draft.tokens[: len(path)], token], self.pair.tokenizer.eos, remaining
            )
            row.tokens += new
            row.reason = reason or ""
            row.rounds.append(Round(len(draft), min(len(path), len(new)), new))
        return True

    def drafts(self) -> list[Draft]:
        """Draft for every unfinished row, stopping at an end token."""
        drafts = [Draft() for _ in self.rows]
        lengths = [
            0 if row.reason else min(self.draft_tokens, self.max_new_tokens - len(row.tokens) - 1)
            for row in self.rows
        ]
        for _ in range(max(lengths)):
            active = [
                len(draft) < lengths[n] and self.pair.tokenizer.eos.isdisjoint(draft.tokens[-1:])
                for n, draft in enumerate(drafts)
            ]
            if not any(active):
                break
            texts = self._texts(drafts)
            for n, logits in self.draft_model.forward(texts, active).items():
                row, last = self.rows[n], logits[-1, : self.vocabulary]
                extend(drafts[n], last, len(texts[n]), row.request, row.dice, "draft-model")
        return drafts

    def verify(self, drafts: list[Draft]) -> list[tuple[list[int], int]]:
        """Verify the drafts: accepted nodes and the target model's next token, per row.

        Ended rows are skipped.
        """
        texts = self._texts(drafts)
        active = [not row.reason for row in self.rows]
        self.passes += 1
        verified: list[tuple[list[int], int]] = [([], -1)] * len(texts)
        for n, logits in self.target_model.forward(texts, active).items():
            start = len(texts[n]) - len(drafts[n])
            verified[n] = self.rows[n].verdict(drafts[n], logits[-len(drafts[n]) - 1 :], start)
        return verified

    def _texts(self, drafts: list[Draft]) -> list[list[int]]:
        pairs = zip(self.rows, drafts, strict=True)
        return [[*row.prompt, *row.tokens, *draft.tokens] for row, draft in pairs]

    def result(self) -> BatchResult:
        """Return the result so far."""
        decode = self.pair.tokenizer.decode
        return BatchResult(
            [decode([*row.prompt, *row.tokens]) for row in self.rows],
            self.passes,
            [row.tokens for row in self.rows],
            [row.reason for row in self.rows],
            [sum(step.drafted for step in row.rounds) for row in self.rows],
            [sum(step.accepted for step in row.rounds) for row in self.rows],
            [row.rounds for row in self.rows],
        )


class CachedModel:
    """A model with the KV cache of a batch.

    Rejected tokens are masked rather than removed, since rows are rolled back by different lengths.
    """

    def __init__(self, model: Any, rows: int, cached: bool = True) -> None:
        self.model, self.rows, self.cached = model, rows, cached
        self._reset()

    def _reset(self) -> None:
        self.cache: Any = None
        # Per row: the tokens in the cache, without rejected ones, and their columns.
        self.tokens: list[list[int]] = [[] for _ in range(self.rows)]
        self.columns: list[list[int]] = [[] for _ in range(self.rows)]
        self.width = 0  # columns of the cache

    @torch.inference_mode()
    def forward(self, texts: list[list[int]], active: list[bool]) -> dict[int, Tensor]:
        """Compute logits after the tokens of each active row that are not in the cache.

        Returns [n, vocabulary] for each active row, after the last n tokens of its text. The last
        token is always read.
        """
        if not self.cached:
            self._reset()
        new: list[list[int]] = [[] for _ in texts]
        for n, text in enumerate(texts):
            if active[n]:
                kept = min(common_prefix(self.tokens[n], text), len(text) - 1)
                del self.tokens[n][kept:], self.columns[n][kept:]
                new[n] = text[kept:]
        self._crop()
        logits = self._read(new)
        return {n: logits[n, -len(new[n]) :] for n in range(len(texts)) if active[n]}

    def _read(self, new: list[list[int]]) -> Tensor:
        """Read new tokens, left-padded, and return logits [rows, width, vocabulary]."""
        width = max(map(len, new))
        device = next(weight.device for weight in self.model.parameters() if not weight.is_meta)
        ids = torch.zeros(len(new), width, dtype=torch.int64)
        positions = torch.zeros_like(ids)
        mask = torch.zeros(len(new), self.width + width, dtype=torch.int64)
        for n, tokens in enumerate(new):
            start, position = width - len(tokens), len(self.tokens[n])
            ids[n, start:] = torch.tensor(tokens, dtype=torch.int64)
            positions[n, start:] = torch.arange(position, position + len(tokens))
            self.tokens[n] += tokens
            self.columns[n] += range(self.width + start, self.width + width)
            mask[n, self.columns[n]] = 1
        out = self.model(
            input_ids=ids.to(device),
            attention_mask=mask.to(device),
            position_ids=positions.to(device),
            past_key_values=self.cache,
            use_cache=True,
        )
        self.cache, self.width = out.past_key_values, self.width + width
        logits: Tensor = out.logits
        return logits.float()

    def _crop(self) -> None:
        """Crop trailing columns that no row uses."""
        last = max((columns[-1] + 1 for columns in self.columns if columns), default=0)
        if last < self.width:
            self.cache.crop(last - self.width)  # a negative length removes columns
            self.width = last
