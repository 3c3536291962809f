"""Token Recycling's table: its contents, and drafting from it."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.drafting import DraftContext
from engine.drafting._drafting import Recycling
from engine.drafting.recycling import WIDTH, update_table
from engine.records import Scores
from tests.support.drafters import real

Rows = list[tuple[int, list[float]]]
SIZE = 150  # more than two of the blocks in which logits are scanned
SPECIAL = [0.0, 1.0, -1.0, float("inf"), float("-inf"), float("nan")]


def random_logits(seed: int, share: float) -> list[float]:
    """A row of logits with a share of special values, which also makes ties."""
    rng = random.Random(seed)
    values = (
        rng.choice(SPECIAL) if rng.random() < share else rng.uniform(-20, 20) for _ in range(SIZE)
    )
    return np.array(list(values), np.float32).tolist()


some_logits = st.builds(random_logits, st.integers(0, 1 << 32), st.sampled_from([0, 0.1, 0.9, 1]))


def likeliest(logits: list[float], width: int) -> list[int]:
    """The oracle: best first, ties by lowest id; never -inf or NaN."""
    ids = [n for n, value in enumerate(logits) if value > float("-inf")]
    best = sorted(ids, key=lambda n: (-logits[n], n))[:width]
    return best + [-1] * (width - len(best))


@given(
    rows=st.lists(st.tuples(st.integers(0, 9), some_logits), max_size=6),
    width=st.sampled_from([1, 3, 8]),
)
@settings(max_examples=60)
def test_a_row_has_the_top_tokens_of_its_latest_logits(rows: Rows, width: int) -> None:
    table, expected = Recycling(10, width), {}
    for token, logits in rows:
        expected[token] = likeliest(logits, width)
    if rows:
        tokens = np.array([token for token, _ in rows], np.int32)
        table.update(tokens, np.array([logits for _, logits in rows], np.float32))
    for token in range(10):
        assert table.table[token].tolist() == expected.get(token, [-1] * width)
    table.clear()
    assert (table.table == -1).all()


def test_tokens_outside_the_vocabulary_are_ignored() -> None:
    table = Recycling(4)
    table.update(np.array([-1, 4, 2**31 - 1, 3], np.int32), np.eye(4, 20, dtype=np.float32))
    assert (table.table[:3] == -1).all() and table.table[3][0] == 3


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: Recycling(4, 0),
        lambda: Recycling(4, 65),
        lambda: Recycling(4).update(np.zeros(2, np.int32), np.zeros((1, 9), np.float32)),
        lambda: Recycling(4).put(
            np.zeros(1, np.int32), np.zeros((1, 2), np.int32), np.zeros((1, 3), np.float32)
        ),
    ],
)
def test_mismatched_arguments_are_rejected(wrong: Callable[[], Any]) -> None:
    with pytest.raises(ValueError, match=r"between 1 and 64|one row per token"):
        wrong()


def test_rows_from_a_gpu_are_the_same() -> None:
    """`put` takes the top tokens that a GPU has selected; they give the same table."""
    logits = torch.randn(5, 300, generator=torch.Generator().manual_seed(0))
    tokens = [3, 1, 3, 0, 1]
    from_logits, from_top_tokens = Recycling(4), Recycling(4)
    update_table(from_logits, tokens, logits)
    best = logits.topk(WIDTH)
    from_top_tokens.put(np.array(tokens, np.int32), best.indices.int().numpy(), best.values.numpy())
    assert (from_logits.table == from_top_tokens.table).all() and (from_logits.table[2] == -1).all()
    assert from_logits.table[3].tolist() == best.indices[2].tolist()


def test_likely_tokens_are_learned_from_every_node_and_drafted() -> None:
    """Nothing in the prompt or the answer leads from 7 to 8; only a rejected node's row does."""
    table = Recycling(50)
    drafter = real("zero", recycling=table)
    context = DraftContext([1, 2, 3], capacity=20)
    drafter.begin(context)
    draft = drafter.propose(context, None)
    draft.tokens, draft.parents = [7, 9], [-1, 0]
    draft.probs, draft.sources = [0.5, 0.5], ["context", "context"]
    logits = torch.zeros(3, 50)
    logits[0, 5], logits[1, 8], logits[2, 4] = 9.0, 9.0, 9.0  # after 3, 7 and 9
    context.output += [5]
    drafter.observe(draft, [], [5], Scores(logits), 0.01)
    assert [table.table[token][0] for token in (3, 7, 9)] == [5, 8, 4]
    context.output += [7]
    drafter.native.commit([7], 0.0)
    draft = drafter.propose(context, None)
    assert (8, "recycling") in zip(draft.tokens, draft.sources, strict=True)
    drafter.native.leave_out("recycling")
    assert 8 not in drafter.propose(context, None).tokens


def test_long_copies_need_no_table() -> None:
    """Where the text matches, the table's successors are not even considered."""
    text = list(range(40))
    table = Recycling(50)
    for token in text:
        row = np.full((1, 50), -9.0, np.float32)
        row[0, 49] = 9.0
        table.update(np.array([token], np.int32), row)
    drafter = real(recycling=table)
    context = DraftContext([1], [text], capacity=20)
    drafter.begin(context)
    context.output += text[:20]
    drafter.native.commit(text[:20], 0.0)
    draft = drafter.propose(context, None)
    assert draft.tokens[:5] == text[20:25] and "recycling" not in draft.sources
