"""Token Recycling as published: its templates, how they are filled, what the table keeps."""

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
from engine.drafting.methods.token_recycling import (
    RecyclingDrafter,
    Template,
    flatten,
    template,
    update_table,
)
from engine.generate import Generation, generate
from engine.model.torch_target import TorchTarget
from engine.prompts.builder import Prompt
from engine.prompts.tokenizer import Tokenizer
from engine.records import Draft, Request, Scores, Step


def depths(shape: Template) -> list[int]:
    """How many nodes each depth has."""
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
    """The published numbers of nodes by depth."""
    shape = template(name)
    assert depths(shape) == counts
    assert all(parent < node for node, (parent, _) in enumerate(shape))
    children = Counter(parent for parent, _ in shape)
    assert all(rank < children[parent] for parent, rank in shape)


def by_hand(rows: dict[int, list[int]], last: int, paths: list[list[int]]) -> list[list[int]]:
    """The oracle: each path's tokens, where the table has them all, in the template's order."""
    found = []
    for path in sorted(paths, key=lambda path: (len(path), path)):
        tokens, at = [], last
        for rank in path:
            row = rows.get(at, [])
            if rank >= len(row):
                break
            at = row[rank]
            tokens.append(at)
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
    rows: dict[int, list[int]], last: int, room: int
) -> None:
    drafter = RecyclingDrafter(filled(rows, 6), flatten(PATHS))
    draft = drafter.propose(DraftContext([1, last], room=room), None)
    found: list[list[int]] = []
    for token, parent in zip(draft.tokens, draft.parents, strict=True):
        found.append([*(found[parent] if parent >= 0 else []), token])
    assert found == by_hand(rows, last, PATHS)[:room]


def test_rows_of_all_nodes_are_kept_accepted_or_not() -> None:
    """The last committed token, an accepted node and a refused one; of equal tokens the last."""
    drafter = RecyclingDrafter(Recycling(50, 2), template("samd"))
    context = DraftContext([3], room=20)
    assert len(drafter.propose(context, None)) == 0, "nothing is known yet"
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


def test_the_prompts_rows_are_learnt_where_that_is_asked_for(tiny: Any) -> None:
    """As if each of its tokens had been decoded; the answer is drafted from them at once."""
    target = TorchTarget(tiny(), Config(dtype="f32", threads=2))
    tokenizer, request = Tokenizer(tiny()), Request("complete", max_tokens=4)
    prompt = Prompt([5, 6, 7, 8, 5], max_tokens=4)
    for asked in (False, True):
        target.pool.sequences.clear()
        drafter = RecyclingDrafter(Recycling(target.vocab, 8), template("samd"), asked)
        steps = [
            event
            for event in generate(
                Generation(request, prompt, tokenizer, target.context), target, drafter
            )
            if isinstance(event, Step) and event.prefill is None
        ]
        assert (steps[0].drafted > 0) == asked
    read, expected = (RecyclingDrafter(Recycling(target.vocab, 8), []) for _ in range(2))
    target.pool.sequences.clear()
    target.begin(prompt.ids, 100)
    for _ in target.prefill(prompt.ids, 100, partial(read.observe_prompt, target)):
        pass
    target.pool.sequences.clear()
    target.begin(prompt.ids, 100)
    for token in prompt.ids[:-1]:
        scores = target.forward(token, Draft())
        target.keep([])
        update_table(expected.table, [token], scores.logits)
    assert (read.table.table == expected.table.table).all()
    assert (read.table.table[[5, 6, 7, 8]] >= 0).all()


def test_a_wide_table_takes_wide_rows_on_every_device() -> None:
    """A table of another width than the engine's own, filled as a GPU's rows are."""

    class Elsewhere:
        """Logits that say they are on a GPU."""

        def __init__(self, logits: torch.Tensor) -> None:
            self.logits, self.shape = logits, logits.shape
            self.device = torch.device("cuda")

        def topk(self, count: int) -> Any:
            return self.logits.topk(count)

    logits = torch.randn(3, 40, generator=torch.Generator().manual_seed(1))
    here, there = Recycling(9, 12), Recycling(9, 12)
    update_table(here, [1, 2, 1], logits)
    update_table(there, [1, 2, 1], Elsewhere(logits))
    assert (here.table == there.table).all() and (here.table[1] >= 0).all()


def test_tables_belong_to_a_client_and_a_width() -> None:
    memory = AnswerHistory(9)
    table = memory.recycling("a", 3)
    assert memory.recycling("a", 3) is table, "hot: it goes on"
    assert memory.recycling("a") is not table and memory.recycling("b", 3) is not table
    memory.forget(client="a")
    assert memory.recycling("a", 3) is not table


def test_a_template_of_ones_own(tmp_path: Path) -> None:
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
def test_other_templates_are_refused(tmp_path: Path, text: str, why: str) -> None:
    file = tmp_path / "mine.json"
    file.write_text(text)
    with pytest.raises(ValueError, match=why) as caught:
        template(str(file))
    assert str(caught.value).startswith(f"template {file}: ") and "\n" not in str(caught.value)
    with pytest.raises(ValueError, match=r"template gone: No such file .*: choose 2\.2\.2 or samd"):
        template("gone")
