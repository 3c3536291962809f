"""Check that drafts change no text where the model chooses freely.

Random weights of real shapes choose every token themselves, greedily and by sampling. A text
written with drafts must equal the plain one: always in the exact mode; in the fast mode near ties
may flip, and the first place that differs is recorded. The logits of the fast mode are compared
with transformers' in f32 on the same weights.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from bench.gpu.steps import clear
from engine.drafting import chain
from engine.model.torch.torch_target import TorchTarget
from engine.records import Draft, Request
from engine.sampling.verify import agreed, matching

WRITTEN, PROMPT, COMPARED = 96, 300, 400  # tokens
ROWS = (1, 16, 64)  # rows of the passes whose logits are compared
WIDEST_DRAFT = 250  # nodes
REQUESTS = {
    "greedy": Request("complete"),
    "top-k, top-p": Request("complete", temperature=0.8, top_k=20, top_p=0.95, seed=3),
    "temperature": Request("complete", temperature=1.0, seed=5),
}
DraftOf = Callable[[list[int]], Draft]  # the output so far -> a draft behind it


def texts(target: TorchTarget) -> Iterator[dict[str, Any]]:
    """Return one line for each request and kind of draft: its passes, and its difference.

    That is where its text first differs from plain decoding (None: nowhere).
    """
    prompt = arbitrary(PROMPT, target.vocab)
    capacity = min(WIDEST_DRAFT, target.max_rows - 1)
    for name, request in REQUESTS.items():
        truth, _ = write(target, prompt, request, lambda output: Draft())
        for kind, draft_of in {"none": lambda output: Draft(), **drafts(truth, target)}.items():
            text, passes = write(
                target, prompt, request, lambda output, made=draft_of: made(output).first(capacity)
            )
            apart = (n for n, pair in enumerate(zip(text, truth, strict=True)) if len({*pair}) > 1)
            yield {"request": name, "draft": kind, "tokens": len(truth), "passes": passes,
                   "distinct": len(set(truth)), "differs_at": next(apart, None)}  # fmt: skip


def arbitrary(count: int, vocab: int) -> list[int]:
    """Token ids that repeat no short pattern."""
    return [(11 * n * n + 7 * n) % (vocab - 1) + 1 for n in range(count)]


def start(target: TorchTarget, prompt: list[int], capacity: int) -> None:
    """Read a prompt into an empty cache."""
    clear(target)
    target.begin(prompt, capacity)
    for _ in target.prefill(prompt, capacity):
        pass


def write(
    target: TorchTarget, prompt: list[int], request: Request, draft_of: DraftOf
) -> tuple[list[int], int]:
    """WRITTEN tokens behind a prompt, and the passes that they took."""
    start(target, prompt, WRITTEN + WIDEST_DRAFT + 1)
    output: list[int] = []
    passes = 0
    while len(output) < WRITTEN:
        draft, place = draft_of(output), len(prompt) + len(output)
        scores = target.forward((prompt + output)[-1], draft)
        if scores.chosen is None:
            path, token = matching(request)(draft, scores.logits, place)
        else:
            path, token = agreed(draft, scores.chosen(request, place))
        target.keep(path)
        output += [*(draft.tokens[node] for node in path), token]
        passes += 1
    return output[:WRITTEN], passes


def drafts(truth: Sequence[int], target: TorchTarget) -> dict[str, DraftOf]:
    """Drafts that know the text: chains, and trees whose right path has wrong siblings."""
    chance, vocab = random.Random(7), target.vocab

    def right(count: int) -> DraftOf:
        return lambda output: chain(list(truth[len(output) : len(output) + count]), "law")

    def tree(depth: int, wrong: int) -> DraftOf:
        def made(output: list[int]) -> Draft:
            draft, parent = Draft(), -1
            for token in truth[len(output) : len(output) + depth]:
                here = parent
                for n in range(wrong):
                    if n == wrong // 2:
                        here = draft.add(token, parent, 0.5, "law")
                    other = (token + 1 + chance.randrange(vocab - 1)) % vocab
                    sibling = draft.add(other, parent, 0.1, "law")
                    draft.add(chance.randrange(vocab), sibling, 0.1, "law")
                parent = here
            return draft

        return made

    return {"chain": right(15), "long chain": right(40), "deep tree": tree(8, 3),
            "broad tree": tree(3, 7)}  # fmt: skip


@torch.inference_mode()
def compare_logits(target: TorchTarget, theirs: Any) -> Iterator[dict[str, Any]]:
    """Compare the logits of passes of several widths with those of transformers' model.

    Returns the relative error, and the share of rows with the same likeliest token.
    """
    ids = arbitrary(COMPARED, target.vocab)
    expected = theirs(torch.tensor([ids], device=target.device)).logits[0].float()
    for rows in ROWS:
        first = len(ids) - rows
        start(target, ids[: first + 1], rows + 1)
        got = target.forward(ids[first], chain(ids[first + 1 :], "law")).logits.float()
        want = expected[first:]
        same = (got.argmax(-1) == want.argmax(-1)).float().mean()
        yield {"rows": rows, "error": round(float((got - want).norm() / want.norm()), 5),
               "same_choice": round(float(same), 3)}  # fmt: skip
