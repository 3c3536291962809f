"""Decode a recorded edit: Draftline and transformers, forced to write the recorded answer.

Draftline runs the engine's own loop with the product's drafter and shipped weights, without the
library's n-gram counts, which need a tokenizer. Decoding is timed without the prompt: Draftline's
time is the engine's own count; in transformers the prompt's pass yields the first token, so it
counts neither as a token nor as time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import torch

from bench.gpu.edits import FORCED_LOGIT, ForcedTarget, RecordedAnswer, RecordedEdits
from bench.gpu.steps import synchronize
from engine.drafting import Drafter, NullDrafter
from engine.drafting._drafting import Ngram, Recycling
from engine.drafting.drafter_weights import load_weights
from engine.drafting.next_token import NextTokenDrafter, NextTokenModel
from engine.drafting.recycling import WIDTH
from engine.generate import Generation, generate
from engine.model.cost_model import CostModel, guess, measure
from engine.model.torch.torch_target import TorchTarget
from engine.prompts.builder import Prompt
from engine.records import Done, Request, Step

LOOKUP_TOKENS_PER_PASS = 10  # tokens; transformers' prompt_lookup_num_tokens


@dataclass(frozen=True)
class ForcedRun:
    """`tokens` in `passes` took `seconds`, prompt excluded."""

    tokens: int
    passes: int
    seconds: float

    @property
    def tokens_per_s(self) -> float:
        return self.tokens / self.seconds


Method = Callable[[RecordedAnswer], ForcedRun]


class ForcedDraftline:
    """Draftline's decoding loop, plain or with its drafter."""

    def __init__(self, target: TorchTarget, recorded: RecordedEdits) -> None:
        self.target, self.recorded = target, recorded
        self.cost: CostModel = measured_cost(target)

    def plain(self, answer: RecordedAnswer) -> ForcedRun:
        return self._play(answer, NullDrafter())

    def draftline(self, answer: RecordedAnswer) -> ForcedRun:
        model = NextTokenModel(self.recorded.vocabulary, EmptyLibrary(), load_weights())  # type: ignore[arg-type]
        table = Recycling(self.target.vocab, WIDTH)
        return self._play(
            answer, NextTokenDrafter(model, self.cost, self.target.budget, None, table)
        )

    def _play(self, answer: RecordedAnswer, drafter: Drafter) -> ForcedRun:
        """Decode an answer. Raises RuntimeError if the text is not the recorded one."""
        prompt = Prompt(
            answer.prompt, answer.predictions, max_tokens=len(answer.output), whole=answer.whole
        )
        forced = ForcedTarget(self.target, answer)
        written = Generation(Request("complete"), prompt, self.recorded, forced.context)  # type: ignore[arg-type]
        passes = 0
        with self.target.within():
            for event in generate(written, forced, drafter):
                if isinstance(event, Step) and event.prefill is None:
                    passes += 1
                elif isinstance(event, Done):
                    usage = event.usage
        if not written.finished or written.output != answer.output:
            raise RuntimeError(f"{answer.id}: the text differs from the recorded one")
        return ForcedRun(usage.completion_tokens, passes, usage.decode_seconds)


class EmptyLibrary:
    """No n-gram counts."""

    ngram = Ngram()


def measured_cost(target: TorchTarget) -> CostModel:
    """Return the cost of passes here, measured as the idle engine does."""
    cost = guess(target)
    if target.device.type == "cuda":  # on a CPU this would take long
        for _ in measure(target, cost):
            pass
    return cost


class ForcedTransformers:
    """transformers' `generate`, greedy, with a logits processor that forces the recorded token.

    lookup: use prompt lookup. room: use a static cache of that many tokens, with which generation
    runs under torch.compile (reduce-overhead) on a GPU.
    """

    def __init__(self, model: Any, lookup: bool = False, capacity: int = 0) -> None:
        self.model, self.lookup, self.cache = model, lookup, None
        if capacity:
            from transformers import StaticCache

            self.cache = StaticCache(config=model.config, max_cache_len=capacity)

    def __call__(self, answer: RecordedAnswer) -> ForcedRun:
        from transformers import GenerationConfig

        device = self.model.device
        ids = torch.tensor([answer.prompt], device=device)
        times: list[float] = []
        lengths: list[int] = []

        def clock(ids: Any, scores: Any, **_: Any) -> Any:
            if not times or ids.shape[1] >= len(answer.prompt) + len(answer.output):
                synchronize(device)
            times.append(perf_counter())
            lengths.append(ids.shape[1])
            return torch.zeros(ids.shape[0], dtype=torch.bool, device=device)

        settings = GenerationConfig(
            do_sample=False,
            max_new_tokens=len(answer.output),
            prompt_lookup_num_tokens=LOOKUP_TOKENS_PER_PASS if self.lookup else None,
        )
        kept = {}
        with torch.inference_mode():
            if self.cache is not None:
                self.cache.reset()
                kept = {"past_key_values": self.cache}  # a new one would be compiled for again
            out = self.model.generate(
                ids,
                **kept,
                attention_mask=torch.ones_like(ids),
                generation_config=settings,
                logits_processor=[self._forcing(answer, device)],
                stopping_criteria=[clock],
            )
        if out[0, len(answer.prompt) :].tolist() != answer.output:
            raise RuntimeError(f"{answer.id}: transformers' text differs from the recorded one")
        # The first token comes with the prompt's own pass.
        first = lengths[0] - len(answer.prompt)
        return ForcedRun(len(answer.output) - first, len(times) - 1, times[-1] - times[0])

    @staticmethod
    def _forcing(answer: RecordedAnswer, device: torch.device) -> Any:
        """Return a processor that raises the recorded token's logit.

        Forbidding all others would reveal the answer to prompt lookup, which applies processors to
        its candidates.
        """
        truth, start = torch.tensor(answer.output, device=device), len(answer.prompt)

        def force(ids: Any, scores: Any) -> Any:
            place = ids.shape[1] - start
            if place < len(truth):
                scores.index_fill_(1, truth[place : place + 1], FORCED_LOGIT)
            return scores

        return force
