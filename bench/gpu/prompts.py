"""The time to the first token: prompts of several lengths, and a few tokens behind a cached one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from bench.gpu.steps import GREEDY, clear, seconds_of
from engine.model.torch.torch_target import TorchTarget
from engine.records import Draft
from engine.sampling.verify import matching

LENGTHS = (32, 128, 300, 512, 2048, 8192, 30000)  # tokens
CACHED, BEHIND = 2048, (1, 8, 40, 60)  # tokens in a cached prompt, tokens typed behind it
ANSWER_TOKENS = 300  # tokens
FEW_RUNS = 3  # runs of a prompt: long ones take a second


def times(target: TorchTarget) -> Iterator[dict[str, Any]]:
    """Milliseconds to the first token, by the tokens that were cached and those that were read."""
    longest = target.context - ANSWER_TOKENS
    cached = min(CACHED, longest // 2)
    base = [7 * n % (target.vocab - 1) + 1 for n in range(cached)]
    for more in BEHIND:
        yield line(target, cached, base + [5 + 31 * n % 1000 for n in range(more)])
    for count in LENGTHS:
        if count <= longest:
            yield line(target, 0, [7 * n % (target.vocab - 1) + 1 for n in range(count)])


def line(target: TorchTarget, cached: int, prompt: list[int]) -> dict[str, Any]:
    """Return the time of one prompt, of which `cached` tokens were read before."""
    clear(target)
    if cached:
        first_token(target, prompt[:cached])

    def run() -> None:
        if cached:
            del target.tokens[cached:]
        else:
            target.pool.sequences.clear()
        first_token(target, prompt)

    seconds = seconds_of(run, target.device, FEW_RUNS)
    return {"cached": cached, "read": len(prompt) - cached, "ms": round(1000 * seconds, 4)}


def first_token(target: TorchTarget, prompt: list[int]) -> None:
    """Read a prompt and choose the token behind it."""
    target.begin(prompt, ANSWER_TOKENS)
    for _ in target.prefill(prompt, ANSWER_TOKENS):
        pass
    scores, nothing = target.forward(prompt[-1], Draft()), Draft()
    if scores.chosen is None:
        matching(GREEDY)(nothing, scores.logits, len(prompt))
    else:
        scores.chosen(GREEDY, len(prompt))
