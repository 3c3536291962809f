"""Helpers of the tests of the law: speculation never changes the answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from engine.config import Verification
from engine.drafting import Drafter, NullDrafter
from engine.generate import Generation, generate
from engine.prompts.builder import Prompt
from engine.prompts.tokenizer import Tokenizer
from engine.records import Done, Request, Step
from engine.sampling.grammar import GrammarState
from tests.conftest import HashTarget

SAMPLED = {"temperature": 0.8, "top_k": 6, "top_p": 0.9}


@pytest.fixture(scope="module")
def tokenizer(tiny: Any) -> Tokenizer:
    return Tokenizer(tiny("llama"))


@pytest.fixture(scope="module")
def endless(tiny: Any) -> Tokenizer:
    """The same without end tokens."""
    tokenizer = Tokenizer(tiny("llama"))
    tokenizer.eos = frozenset()
    return tokenizer


def run(
    target: Any,
    tokenizer: Tokenizer,
    prompt: Prompt,
    drafter: Drafter,
    history: Sequence[list[int]] = (),
    verification: Verification = "match",
    grammar: GrammarState | None = None,
    **options: Any,
) -> tuple[list[Step], Done]:
    """All events of one request."""
    generation = Generation(
        Request("complete", **options),
        prompt,
        tokenizer,
        target.context,
        history=history,
        verification=verification,
        grammar=grammar,
    )
    *steps, done = generate(generation, target, drafter)
    assert isinstance(done, Done)
    assert "".join(step.text for step in steps) == done.text  # type: ignore[union-attr]
    return steps, done  # type: ignore[return-value]


def answer(done: Done) -> tuple[Any, ...]:
    """All of an answer that a user could notice, but for the time it took."""
    return done.reason, done.text, done.matched, done.usage.completion_tokens


def plain(
    target: HashTarget, tokenizer: Tokenizer, prompt: Prompt, **options: Any
) -> tuple[Done, list[int]]:
    """The answer without speculation, and its tokens (one more than are needed)."""
    _, done = run(target, tokenizer, prompt, NullDrafter(), **options)
    longer = Prompt(prompt.ids, max_tokens=prompt.max_tokens + 60)
    tokenizer_eos, tokenizer.eos = tokenizer.eos, frozenset()
    run(target, tokenizer, longer, NullDrafter(), **options)
    tokenizer.eos = tokenizer_eos
    return done, target.tokens[len(prompt.ids) :]
