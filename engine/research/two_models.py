"""Speculative decoding of batches with two transformers models, for experiments.

    from engine.research.two_models import agreement, load, speculative_decoding

    pair = load("smollm2-135m", "smollm2-360m")
    agreement(pair, "def add(left, right):", 20)      # leading tokens on which both agree
    speculative_decoding(pair, ["One, two,", "To be"], 40).texts
    speculative_decoding(pair, ["One, two,"], 40, temperature=0.8, seed=1)

See `examples/two_models.py`. A little model drafts and a big one verifies. Prompts of a batch are
left-padded; rows end and are verified independently. Greedy texts, and texts sampled with a fixed
seed, equal what the big model writes alone (row n of a batch uses seed + n), up to the rounding of
transformers' kernels; `engine.Engine` is exact and much faster. With verification="rejection"
sampled texts only follow the big model's distribution. `engine.research.comparison` compares
methods.
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
from engine.research.model_pair import ModelPair, load, max_context
from engine.sampling.rejection_sampling import DRAFTING, Dice
from engine.sampling.verify import Verdict, cut

__all__ = [
    "DRAFT_TOKENS",
    "ModelPair",
    "agreement",
    "generate_and_check",
    "load",
    "speculative_decoding",
]
DRAFT_TOKENS = 5  # per round


class Round(NamedTuple):
    """What one pass of the big model committed to a row."""

    drafted: int
    accepted: int
    tokens: list[int]  # accepted ones, then the big model's own unless the text ended


class BatchResult(NamedTuple):
    """The texts and their statistics. Lists have one entry per row."""

    texts: list[str]  # with the prompts
    passes: int  # of the big model, each over all rows
    tokens: list[list[int]]  # without the prompt and the end token
    reasons: list[str]  # "eos" or "length"
    drafted: list[int]
    accepted: list[int]
    rounds: list[list[Round]]


# -- functions -----------------------------------------------------------------------------------


def generate_and_check(
    pair: ModelPair, prompts: Sequence[str], new_tokens: int
) -> list[str] | None:
    """Draft greedily and verify in one pass. Returns prompts and drafts if the big model would have
    written the same in every row, else None."""
    rows = [pair.tokenizer.encode(prompt) for prompt in prompts]
    drafts, paths = _checked(pair, rows, new_tokens)
    if any(agreed < len(draft) for draft, agreed in zip(drafts, paths, strict=True)):
        return None
    return [pair.tokenizer.decode([*row, *draft]) for row, draft in zip(rows, drafts, strict=True)]


def agreement(
    pair: ModelPair, prompt: str, most: int, show: Callable[[str], None] = lambda line: None
) -> int:
    """The number of leading tokens, up to `most`, on which both models agree after `prompt`, an end
    token included. `show` receives a line for each."""
    row = pair.tokenizer.encode(prompt)
    ((draft,), (agreed,)) = _checked(pair, [row], most)
    for count in range(1, agreed + 1):
        show(f"{count} {pair.tokenizer.decode([*row, *draft[:count]])!r}")
    return agreed


def speculative_decoding(
    pair: ModelPair,
    prompts: Sequence[str],
    max_new_tokens: int,
    draft: int = DRAFT_TOKENS,
    **options: Any,
) -> BatchResult:
    """The big model's texts in fewer passes. `options`: temperature, top_k, top_p and seed (greedy
    by default), verification and cached, as in `BatchSpeculation`."""
    rows = [pair.tokenizer.encode(prompt) for prompt in prompts]
    batch = BatchSpeculation(pair, rows, max_new_tokens, draft, **options)
    while batch.round():
        pass
    return batch.written()


def _checked(
    pair: ModelPair, rows: list[list[int]], count: int
) -> tuple[list[list[int]], list[int]]:
    """Greedy drafts of the little model and, per row, how many of their tokens the big one
    accepts."""
    batch = BatchSpeculation(pair, rows, count + 1, count)
    drafts = batch.drafts()
    return [one.tokens for one in drafts], [len(path) for path, _ in batch.verdicts(drafts)]


# -- a batch -------------------------------------------------------------------------------------


@dataclass(slots=True)
class BatchRow:
    """One prompt and its continuation."""

    prompt: list[int]
    request: Request  # sampling parameters
    judge: Verdict
    dice: Dice | None  # random numbers for drafts
    tokens: list[int] = field(default_factory=list)
    reason: str = ""  # why it ended; "" while it continues
    rounds: list[Round] = field(default_factory=list)


class BatchSpeculation:
    """Decodes a batch round by round: draft, verify, commit."""

    def __init__(
        self,
        pair: ModelPair,
        prompts: list[list[int]],
        max_new_tokens: int,
        draft: int = DRAFT_TOKENS,
        seed: int = 0,
        verification: Verification = "match",
        cached: bool = True,
        **sampling: Any,
    ) -> None:
        """Without `cached` everything is recomputed at each step. Raises ValueError if a prompt is
        empty or too long."""
        if not prompts or not all(prompts):
            raise ValueError("a prompt is empty: give at least one token")
        if draft < 0 or max_new_tokens < 0:
            raise ValueError(f"draft {draft}, max_new_tokens {max_new_tokens}: give 0 or more")
        longest, most = max(map(len, prompts)) + max_new_tokens, max_context(pair)
        if most is not None and longest > most:
            raise ValueError(
                f"prompt and text need {longest} tokens, the models' context has "
                f"{most}: shorten the prompt, or ask for fewer tokens"
            )
        self.pair, self.most, self.ahead = pair, max_new_tokens, draft
        self.rows = []
        for n, prompt in enumerate(prompts):
            request = Request("complete", seed=seed + n, **sampling)
            dice = Dice(request.seed, DRAFTING) if verification == "rejection" else None
            self.rows.append(BatchRow(prompt, request, verdict(verification, request), dice))
        self.little, self.big = (
            CachedModel(one, len(prompts), cached) for one in (pair.little, pair.big)
        )
        self.ids = pair.big.get_input_embeddings().num_embeddings  # the little model may have more
        self.passes = 0
        for row in self.rows:
            row.reason = "" if max_new_tokens else "length"

    def round(self) -> bool:
        """One pass of the big model, which commits at least one token per unfinished row. Returns
        False if all rows have ended."""
        if all(row.reason for row in self.rows):
            return False
        drafts = self.drafts()
        for row, draft, found in zip(self.rows, drafts, self.verdicts(drafts), strict=True):
            if row.reason:
                continue
            path, token = found
            left = self.most - len(row.tokens)
            new, ended = cut([*draft.tokens[: len(path)], token], self.pair.tokenizer.eos, left)
            row.tokens += new
            row.reason = ended or ""
            row.rounds.append(Round(len(draft), min(len(path), len(new)), new))
        return True

    def drafts(self) -> list[Draft]:
        """Draft for every unfinished row, stopping at an end token."""
        drafts = [Draft() for _ in self.rows]
        room = [
            0 if row.reason else min(self.ahead, self.most - len(row.tokens) - 1)
            for row in self.rows
        ]
        for _ in range(max(room)):
            going = [
                len(draft) < room[n] and self.pair.tokenizer.eos.isdisjoint(draft.tokens[-1:])
                for n, draft in enumerate(drafts)
            ]
            if not any(going):
                break
            texts = self._texts(drafts)
            for n, logits in self.little.after(texts, going).items():
                row, known = self.rows[n], logits[-1, : self.ids]
                extend(drafts[n], known, len(texts[n]), row.request, row.dice, "little")
        return drafts

    def verdicts(self, drafts: list[Draft]) -> list[tuple[list[int], int]]:
        """Verify the drafts: accepted nodes and the big model's next token, per row. Ended rows are
        skipped."""
        texts = self._texts(drafts)
        going = [not row.reason for row in self.rows]
        self.passes += 1
        found: list[tuple[list[int], int]] = [([], -1)] * len(texts)
        for n, logits in self.big.after(texts, going).items():
            start = len(texts[n]) - len(drafts[n])
            found[n] = self.rows[n].judge(drafts[n], logits[-len(drafts[n]) - 1 :], start)
        return found

    def _texts(self, drafts: list[Draft]) -> list[list[int]]:
        pairs = zip(self.rows, drafts, strict=True)
        return [[*row.prompt, *row.tokens, *draft.tokens] for row, draft in pairs]

    def written(self) -> BatchResult:
        """The result so far."""
        decode = self.pair.tokenizer.decode
        return BatchResult(
            [decode([*row.prompt, *row.tokens]) for row in self.rows],
            self.passes,
            [row.tokens for row in self.rows],
            [row.reason for row in self.rows],
            [sum(one.drafted for one in row.rounds) for row in self.rows],
            [sum(one.accepted for one in row.rounds) for row in self.rows],
            [row.rounds for row in self.rows],
        )


class CachedModel:
    """A model with the KV cache of a batch. Rejected tokens are masked rather than removed, since
    rows are rolled back by different lengths."""

    def __init__(self, model: Any, rows: int, cached: bool = True) -> None:
        self.model, self.rows, self.cached = model, rows, cached
        self._reset()

    def _reset(self) -> None:
        self.cache: Any = None
        self.read: list[list[int]] = [
            [] for _ in range(self.rows)
        ]  # tokens per row, without rejected ones
        self.columns: list[list[int]] = [
            [] for _ in range(self.rows)
        ]  # per row: their columns in the cache
        self.width = 0  # columns of the cache

    @torch.inference_mode()
    def after(self, texts: list[list[int]], going: list[bool]) -> dict[int, Tensor]:
        """For each row that is `going`: logits [n, vocabulary] after the last n tokens of its text,
        those that were not read yet. The last one is always read."""
        if not self.cached:
            self._reset()
        fresh: list[list[int]] = [[] for _ in texts]
        for n, text in enumerate(texts):
            if going[n]:
                kept = min(common_prefix(self.read[n], text), len(text) - 1)
                del self.read[n][kept:], self.columns[n][kept:]
                fresh[n] = text[kept:]
        self._crop()
        logits = self._run(fresh)
        return {n: logits[n, -len(fresh[n]) :] for n in range(len(texts)) if going[n]}

    def _run(self, fresh: list[list[int]]) -> Tensor:
        """Read left-padded tokens. Returns logits [rows, width, vocabulary]."""
        width = max(map(len, fresh))
        device = next(one.device for one in self.model.parameters() if not one.is_meta)
        ids = torch.zeros(len(fresh), width, dtype=torch.int64)
        positions = torch.zeros_like(ids)
        mask = torch.zeros(len(fresh), self.width + width, dtype=torch.int64)
        for n, tokens in enumerate(fresh):
            start, place = width - len(tokens), len(self.read[n])
            ids[n, start:] = torch.tensor(tokens, dtype=torch.int64)
            positions[n, start:] = torch.arange(place, place + len(tokens))
            self.read[n] += tokens
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
