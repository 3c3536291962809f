"""Token Recycling as published: its templates, how they are filled, and what the table keeps."""

from __future__ import annotations

import json
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.config import Config
from engine.drafting import DraftContext
from engine.drafting._drafting import Recycling
from engine.drafting.answer_history import AnswerHistory
from engine.generate import Generation, generate
from engine.model.torch.torch_target import TorchTarget
from engine.prompts.builder import Prompt
from engine.prompts.tokenizer import Tokenizer
from engine.records import Draft, Request, Scores, Step
from research.methods.token_recycling import (
    RecyclingDrafter,
    Template,
    flatten,
    template,
    update_table,
)


def depths(shape: Template) -> list[int]:
    """The number of nodes at each depth."""
    found: list[int] = []
    for parent, _ in shape:
        found.append(found[parent] + 1 if parent >= 0 else 1)
    return [count for _, count in sorted(Counter(found).items())]


def filled(rows: dict[int, list[int]], size: int, width: int = 8) -> Recycling:
    table = Recycling(size, width)
    for token, row in rows.items():
        best = np.array([row], np.int32)
        table.put(np.array([token], np.int32), best, -np.arange(len(row), dtype=np.float32)[None])
    return table


@pytest.mark.parametrize(
    ("name", "counts"), [("2.2.2", [8, 21, 25, 15, 8, 3]), ("samd", [7, 20, 21, 8, 4])]
)
def test_golden_templates(name: str, counts: list[int]) -> None:
    """The published numbers of nodes at each depth."""
    shape = template(name)
    assert depths(shape) == counts
    assert all(parent < node for node, (parent, _) in enumerate(shape))
    children = Counter(parent for parent, _ in shape)
    assert all(rank < children[parent] for parent, rank in shape)


def reference_paths(
    rows: dict[int, list[int]], last: int, paths: list[list[int]]
) -> list[list[int]]:
    """The oracle: tokens of the paths that the table has in full, in the template's order."""
    found = []
    for path in sorted(paths, key=lambda path: (len(path), path)):
        tokens, current = [], last
        for rank in path:
            row = rows.get(current, [])
            if rank >= len(row):
                break
            current = row[rank]
            tokens.append(current)
        else:
            found.append(tokens)
    return found


PATHS = [[0], [1], [2], [0, 0], [0, 2], [1, 0], [2, 1], [0, 0, 1], [1, 0, 0], [0, 0, 1, 0]]


@settings(max_examples=100)
@given(
    st.dictionaries(
        st.integers(0, 5), st.lists(st.integers(0, 5), min_size=1, max_size=3, unique=True)
    ),
    st.integers(0, 7),
    st.integers(0, 12),
)
def test_a_template_is_filled_level_by_level(
    rows: dict[int, list[int]], last: int, capacity: int
) -> None:
    drafter = RecyclingDrafter(filled(rows, 6), flatten(PATHS))
    draft = drafter.propose(DraftContext([1, last], capacity=capacity), None)
    found: list[list[int]] = []
    for token, parent in zip(draft.tokens, draft.parents, strict=True):
        found.append([*(found[parent] if parent >= 0 else []), token])
    assert found == reference_paths(rows, last, PATHS)[:capacity]


def test_rows_of_all_nodes_are_kept_accepted_or_not() -> None:
    """Of the last committed token, an accepted node and a rejected one; of equal tokens, the last
    one's."""
    drafter = RecyclingDrafter(Recycling(50, 2), template("samd"))
    context = DraftContext([3], capacity=20)
    assert len(drafter.propose(context, None)) == 0, "the table is empty"
    draft = Draft([7, 9, 7], [-1, -1, 1], [1.0] * 3, ["recycling"] * 3)
    logits = torch.zeros(4, 50)
    for row, token in enumerate((5, 6, 8, 4)):
        logits[row, token] = 9.0
    drafter.observe(draft, [0], [7, 6], Scores(logits), 0.01)
    rows = drafter.table.table
    assert [rows[token][0] for token in (3, 7, 9)] == [5, 4, 8]
    logits[:, 20] = 20.0
    drafter.observe(draft, [0], [7, 6], Scores(logits), 0.01)
    assert [rows[token].tolist() for token in (3, 7, 9)] == [[20, 5], [20, 4], [20, 8]]


def test_prompt_rows_are_recorded_on_request(tiny: Any) -> None:
    """As if each prompt token had been decoded; the first draft already uses them."""
    target = TorchTarget(tiny(), Config(dtype="f32", threads=2))
    tokenizer, request = Tokenizer(tiny()), Request("complete", max_tokens=4)
    prompt = Prompt([5, 6, 7, 8, 5], max_tokens=4)
    for with_prompt in (False, True):
        target.pool.sequences.clear()
        drafter = RecyclingDrafter(Recycling(target.vocab, 8), template("samd"), with_prompt)
        steps = [
            event
            for event in generate(
                Generation(request, prompt, tokenizer, target.context), target, drafter
            )
            if isinstance(event, Step) and event.prefill is None
        ]
        assert (steps[0].drafted > 0) == with_prompt
    actual, expected = (RecyclingDrafter(Recycling(target.vocab, 8), []) for _ in range(2))
    target.pool.sequences.clear()
    target.begin(prompt.ids, 100)
    for _ in target.prefill(prompt.ids, 100, partial(actual.observe_prompt, target)):
        pass
    target.pool.sequences.clear()
    target.begin(prompt.ids, 100)
    for token in prompt.ids[:-1]:
        scores = target.forward(token, Draft())
        target.keep([])
        update_table(expected.table, [token], scores.logits)
    assert (actual.table.table == expected.table.table).all()
    assert (actual.table.table[[5, 6, 7, 8]] >= 0).all()


def test_a_wide_table_accepts_wide_rows_from_any_device() -> None:
    """A table wider than the engine's default, filled with the rows that a GPU returns."""

    class FakeGpuLogits:
        """Logits that claim to be on a GPU."""

        def __init__(self, logits: torch.Tensor) -> None:
            self.logits, self.shape = logits, logits.shape
            self.device = torch.device("cuda")

        def topk(self, count: int) -> Any:
            return self.logits.topk(count)

    logits = torch.randn(3, 40, generator=torch.Generator().manual_seed(1))
    from_cpu, from_gpu = Recycling(9, 12), Recycling(9, 12)
    update_table(from_cpu, [1, 2, 1], logits)
    update_table(from_gpu, [1, 2, 1], FakeGpuLogits(logits))
    assert (from_cpu.table == from_gpu.table).all() and (from_cpu.table[1] >= 0).all()


def test_tables_belong_to_a_client_and_a_width() -> None:
    history = AnswerHistory(9)
    table = history.recycling("a", 3)
    assert history.recycling("a", 3) is table, "hot: the table is reused"
    assert history.recycling("a") is not table and history.recycling("b", 3) is not table
    history.forget(client="a")
    assert history.recycling("a", 3) is not table


def test_a_custom_template(tmp_path: Path) -> None:
    file = tmp_path / "mine.json"
    file.write_text(json.dumps([[1], [0], [0, 3]]))
    assert template(str(file)) == [(-1, 0), (-1, 1), (0, 3)]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "Expecting value"),
        ("{}", "expected a list of 1 to 1024 paths"),
        ("[]", "expected a list of 1 to 1024 paths"),
        ("[[0], [1, 0]]", "its parent path is missing"),
        ("[[0], [0]]", "is a duplicate"),
        ("[[0], [-1]]", "is not a path of ranks"),
        ("[[true]]", "is not a path of ranks"),
        ("[[]]", "is not a path of ranks"),
        ("[0]", "not iterable"),
        ('[["a"]]', "is not a path of ranks"),
        ("[" * 100_000, "recursion"),
    ],
)
def test_invalid_templates_are_rejected(tmp_path: Path, text: str, why: str) -> None:
    file = tmp_path / "mine.json"
    file.write_text(text)
    with pytest.raises(ValueError, match=why) as caught:
        template(str(file))
    assert str(caught.value).startswith(f"template {file}: ") and "\n" not in str(caught.value)
    with pytest.raises(ValueError, match=r"template gone: No such file .*: choose 2\.2\.2 or samd"):
        template("gone")
