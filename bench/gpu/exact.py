"""Compare the exact mode with the fast one: cost, and whether choices depend on the bucket.

On a GPU a row must give the same result whatever rows are in its pass. In the exact mode this holds
bit for bit; in the fast mode a choice may flip if the two best logits are closer than rounding.
Random weights have many such near ties, so their rate of flips is an upper bound.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from bench.gpu import steps
from engine.drafting import chain
from engine.model.torch.torch_target import TorchTarget

CONTEXT = 2048
TIE_STEPS = 8.0  # steps of bf16: closer logits are a tie


def compare(
    fast: TorchTarget, exact: TorchTarget, buckets: Sequence[int]
) -> Iterator[dict[str, Any]]:
    """Measure, for each bucket, step times, and how both modes differ from steps of one row."""
    context = min(CONTEXT, fast.context)
    alone = {name: logits_of(one, 1) for name, one in (("fast", fast), ("exact", exact))}
    for bucket in buckets:
        line: dict[str, Any] = {"bucket": bucket, "context": context}
        for name, one in (("fast", fast), ("exact", exact)):
            line[f"{name}_ms"] = round(steps.step_ms(one, bucket, context), 4)
            line[name] = differences(alone[name], logits_of(one, bucket))
            steps.clear(one)
        yield line | {"ratio": round(line["exact_ms"] / line["fast_ms"], 3)}


def logits_of(target: TorchTarget, bucket: int) -> Tensor:
    """Logits [64, vocabulary], f32, of a fixed text run `bucket` rows at a time."""
    before, text = [3 + n * 7 % 1000 for n in range(128)], [5 + n * 31 % 1000 for n in range(64)]
    prompt = [*before, text[0]]
    steps.clear(target)
    target.begin(prompt, 2 * len(text))
    for _ in target.prefill(prompt, 2 * len(text)):
        pass
    rows: list[Tensor] = []
    for start in range(0, len(text), bucket):
        last, *rest = text[start : start + bucket]
        draft = chain(rest, "bench")
        rows.append(target.forward(last, draft).logits.float().clone())
        target.keep(list(range(len(draft))))
    return torch.cat(rows)


def differences(alone: Tensor, together: Tensor) -> dict[str, Any]:
    """Count bitwise equal rows, flipped choices, and flips that were not near ties."""
    one, other = alone.argmax(-1), together.argmax(-1)
    rows = torch.arange(len(alone), device=alone.device)
    gap = alone[rows, one] - alone[rows, other]
    tie = TIE_STEPS * 2.0**-8 * alone[rows, one].abs()
    return {
        "positions": len(alone),
        "same_bits": int((alone == together).all(-1).sum()),
        "flips": int((one != other).sum()),
        "flips_beyond_ties": int((gap > tie).sum()),
    }
