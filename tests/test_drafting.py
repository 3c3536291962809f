"""Drafting: what is guessed is text that exists, within bounds, and it learns. Speed, not truth:
the law is tested elsewhere, so here drafters are asked directly."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
from drafters import Steady, real
from encoders import Bytes
from hypothesis import given
from hypothesis import strategies as st

from engine.cost import GRID, Cost
from engine.drafting import Context, Drafter
from engine.drafting.blend import STEPS, Blend, Calibration, bucket
from engine.drafting.context import ContextSource
from engine.drafting.prediction import Prediction
from engine.drafting.workspace import WorkspaceSource
from index import Workspace
from index.naive import Automaton as Naive

tokens = st.lists(st.integers(0, 6), max_size=40)


def replay(drafter: Drafter, context: Context, text: list[int]) -> int:
    """Feed `text` as the model's answer; how many passes it takes."""
    passes = 0
    drafter.begin(context)
    while len(context.output) < len(text):
        context.room = 40
        draft = drafter.propose(context, None)
        assert len(draft) <= context.room
        at, path = -1, []
        for depth in range(len(context.output), len(text)):
            found = [
                n for n, parent in enumerate(draft.parents)
                if parent == at and draft.tokens[n] == text[depth]
            ]  # fmt: skip
            if not found:
                break
            at = found[0]
            path.append(at)
        new = text[len(context.output) : len(context.output) + len(path) + 1]
        context.output += new
        drafter.observe(draft, path, new, None, 0.01)
        passes += 1
    return passes


def edited(old: list[int], seed: int) -> list[int]:
    """`old` with a few tokens replaced, inserted and deleted."""
    chance, new = random.Random(seed), []
    for token in old:
        kind = chance.random()
        if kind < 0.02:
            new += [1000 + chance.randrange(50)]
        elif kind < 0.04:
            new += [token, *(1000 + chance.randrange(50) for _ in range(chance.randrange(1, 6)))]
        elif kind > 0.02 * 3:
            new.append(token)
    return new


@pytest.mark.parametrize("seed", range(4))
def test_an_edit_of_a_prediction_takes_few_passes(seed: int) -> None:
    """About one pass a change and a few more; without the prediction it takes many."""
    chance = random.Random(seed)
    old = [chance.randrange(300) for _ in range(800)]
    new = edited(old, seed)
    changes = sum(token >= 1000 for token in new) + len(old) - sum(t < 1000 for t in new)
    assert replay(real(), Context([1, 2], [old]), new) <= len(new) / 30 + 2.5 * changes
    assert replay(real(), Context([1, 2]), new) > 0.9 * len(new)


@given(tokens, tokens)
def test_chains_of_a_prediction_are_its_own_text(old: list[int], new: list[int]) -> None:
    source, context = Prediction(), Context([0], [old, old[::-1]])
    source.begin(context)
    for n, token in enumerate(new):
        source.extend([token])
        context.output.append(token)
        for chain in source.chains(context, 5):
            assert 0 < len(chain.tokens) <= 5
            assert any(is_inside(chain.tokens, whole) for whole in (old, old[::-1]))
            assert chain.match <= n + 1 + (chain.kind == "follow")


def is_inside(part: list[int], whole: list[int]) -> bool:
    return any(whole[n : n + len(part)] == part for n in range(len(whole)))


@given(st.lists(st.integers(0, 3), min_size=1, max_size=40), tokens)
def test_chains_of_the_context_follow_its_longest_repeated_end(
    prompt: list[int], output: list[int]
) -> None:
    source, context = ContextSource(), Context(prompt, output=output)
    source.begin(context)
    source.extend(output)
    oracle = Naive()
    oracle.open()
    oracle.extend(prompt + output)
    match = oracle.match(context.tail(64), k=3, followed=True)
    chains = source.chains(context, 6)
    assert [chain.match for chain in chains] == [match.length] * len(chains)
    text = prompt + output
    assert [chain.tokens for chain in chains] == [
        text[end : end + 6] for end in (match.ends if match.length else [])
    ]


@given(st.integers(0, 500))
def test_buckets_are_the_steps(match: int) -> None:
    assert bucket(match) == max(n for n, start in enumerate(STEPS) if start <= match)


def test_calibration_learns_what_is_right() -> None:
    calibration = Calibration()
    first = calibration.probs("x y")[bucket(4)]
    for n in range(2000):
        calibration.saw("x y", 4, n % 5 == 0)
    assert abs(calibration.probs("x y")[bucket(4)] - 0.2) < 0.05 < abs(first - 0.2)
    assert calibration.probs("x y")[bucket(0)] == Calibration().probs("x y")[bucket(0)]


def test_drafting_that_does_not_pay_turns_itself_down_and_comes_back() -> None:
    """Where a pass over two tokens costs as much as two passes, drafting stops; text that repeats
    brings it back, for wrong guesses are counted though they are not drafted."""
    chance = random.Random(0)
    noise = [chance.randrange(4) for _ in range(600)]  # always some match, seldom a right one
    blend = Blend([ContextSource()], Calibration(), Steady([float(n) for n in GRID]), 40)
    context = Context([1, 2])
    drafted: list[int] = []
    propose = blend.propose

    def counted(context: Context, target: None) -> object:
        draft = propose(context, target)
        drafted.append(len(draft))
        return draft

    blend.propose = counted  # type: ignore[method-assign, assignment]
    replay(blend, context, noise)
    assert sum(drafted[-200:]) <= 10
    cheap = Blend([ContextSource()], blend.calibration, Steady([1 + 0.02 * n for n in GRID]), 40)
    assert replay(cheap, Context([1, 2]), list(range(100)) * 4) < 220


def test_cost_is_linear_between_what_was_measured_and_never_falls() -> None:
    cost = Cost([10.0, 9.0, 12.0, 12.0, 20.0, 30.0, 60.0])
    assert [cost(n) for n in (1, 4, 6, 8, 12, 64, 128)] == [10, 12, 12, 12, 16, 60, 120]
    assert all(cost(n + 1) >= cost(n) - 1e-9 for n in range(3, 200))
    for _ in range(100):
        cost.saw(8, 24.0)
    assert cost(8) == pytest.approx(24.0, rel=0.05)
    assert cost(64) > 60


def test_the_pace_of_reading_is_learnt_from_long_passes() -> None:
    cost = Cost([1.0] * 6 + [6.4])
    assert cost.reading == pytest.approx(0.1)
    cost.read(8, 100.0)  # too few to tell
    assert cost.reading == pytest.approx(0.1)
    for _ in range(6):
        cost.read(128, 128 * 0.2)  # busy for a moment
    assert cost.reading < 0.14
    for _ in range(400):
        cost.read(128, 128 * 0.4)  # slow for good
    assert cost.reading == pytest.approx(0.4, rel=0.05)
    for _ in range(30):
        cost.read(128, 128 * 0.1)
    assert cost.reading == pytest.approx(0.1, rel=0.05)


def test_a_tree_s_siblings_share_their_parent() -> None:
    blend = real()
    context = Context([5, 1, 9, 5, 2, 9, 5, 3, 9, 5], [[5, 4, 4, 4]])
    blend.begin(context)
    context.room = 30
    draft = blend.propose(context, None)
    assert len(draft) > 3
    for parent in {-1, *range(len(draft))}:
        children = [n for n, p in enumerate(draft.parents) if p == parent]
        assert sum(draft.probs[n] for n in children) <= 1 + 1e-9
        assert len({draft.tokens[n] for n in children}) == len(children)


def test_text_near_the_edited_file_comes_first(tmp_path: Path) -> None:
    for age, path in enumerate(("here/edited.py", "here/beside.py", "far/newest.py")):
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(f"same {path}")
        os.utime(tmp_path / path, (age, age))
    with Workspace(tmp_path, Bytes()) as workspace:
        workspace.build()
        source = WorkspaceSource(workspace)
        for path in ("", str(tmp_path / "here/edited.py"), str(tmp_path / "here/new.py")):
            context = Context(list(b"same "), path=path)
            source.begin(context)
            first = bytes(source.chains(context, 99)[0].tokens).decode()
            expected = {
                "": "far/newest.py",
                "edited.py": "here/edited.py",
                "new.py": "here/beside.py",
            }
            assert first == expected[Path(path).name]
