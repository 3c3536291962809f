"""Copying or a draft model, whichever is faster: the choice, and that neither changes an answer."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.drafting import NullDrafter
from engine.drafting.draft_length import AdaptiveLength
from engine.drafting.draft_model import draft_model
from engine.drafting.hybrid import HybridDrafter, expected_accepted
from engine.model.torch.torch_target import TorchTarget
from engine.prompts.builder import Prompt
from engine.prompts.tokenizer import Tokenizer
from engine.records import Draft, Step
from tests.conftest import tiny_model
from tests.model.test_target import load
from tests.oracles.probability import Enumerated, distribution
from tests.support.drafters import CHEAP, real
from tests.support.law import SAMPLED, answer, run

PROMPT = [40, 41, 42, 43]


class Paced(AdaptiveLength):
    """Fixed seconds per token and draft length, so that nothing depends on measured times."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds = seconds

    def expected_seconds_per_token(self, guess: float) -> float:
        return self.seconds

    def begin(self) -> int:
        return 4

    def should_continue(self, drafted: int, prob: float, hidden: Any) -> bool:
        return True


class Recorder(NullDrafter):
    """Plain decoding that records the answer's tokens."""

    def __init__(self) -> None:
        self.tokens: list[int] = []

    def observe(self, draft: Any, path: Any, committed: Any, scores: Any, seconds: Any) -> None:
        self.tokens += committed


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[TorchTarget, TorchTarget, Tokenizer]:
    """The same model twice, so that the draft model is always right; answers never end early."""
    folder = tiny_model(tmp_path_factory.mktemp("pair") / "model")
    tokenizer = Tokenizer(folder)
    tokenizer.eos = frozenset()
    return load(folder, threads=1), load(folder, threads=1), tokenizer


def hybrid(draft: TorchTarget, lengths: AdaptiveLength) -> HybridDrafter:
    """A hybrid drafter for which a pass takes one second."""
    copying = real("trained", CHEAP)
    return HybridDrafter(copying, draft_model(draft, lengths), lengths, copying.cost)


def sources(steps: list[Step]) -> set[str]:
    return {piece.source for step in steps for piece in step.pieces}


@pytest.mark.parametrize("options", [{}, SAMPLED], ids=str)
@pytest.mark.parametrize("seconds", [1e-9, 0.4, 1e9])
def test_the_faster_drafter_is_used_and_the_answer_is_unchanged(
    pair: tuple[TorchTarget, TorchTarget, Tokenizer], seconds: float, options: Any
) -> None:
    target, draft, tokenizer = pair
    plain = Recorder()
    _, done = run(target, tokenizer, Prompt(PROMPT, max_tokens=60), plain, **options)
    prompt = Prompt(PROMPT, [plain.tokens[:30]], max_tokens=60)
    for _ in range(2):  # state left over from the first would show
        drafter = hybrid(draft, Paced(seconds))
        steps, found = run(target, tokenizer, prompt, drafter, **options)
        assert answer(found) == answer(done)
        used = sources(steps)
        assert ("draft model" in used) == (seconds < 1)
        assert "prediction" in used or seconds < 1e-3


def test_a_draft_model_is_tried_until_its_pace_is_measured(
    pair: tuple[TorchTarget, TorchTarget, Tokenizer],
) -> None:
    """With nothing to copy; its measured pace is used from then on."""
    target, draft, tokenizer = pair
    lengths = AdaptiveLength()
    steps, _ = run(target, tokenizer, Prompt(PROMPT, max_tokens=20), hybrid(draft, lengths))
    assert "draft model" in sources(steps) and lengths.seconds_per_token > 0


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 4)), max_size=6))
def test_expected_accepted_tokens_match_exact_enumeration(nodes: list[tuple[int, int]]) -> None:
    """At most one child of a node is accepted."""
    tree = Draft()
    for n, (parent, quarter) in enumerate(nodes):
        parent = min(parent, n) - 1
        taken = sum(tree.probs[m] for m in range(n) if tree.parents[m] == parent)
        tree.add(n, parent, min(quarter / 4, 1 - taken), "made up")

    def accepted_depth(chance: Enumerated) -> int:
        node, depth = -1, 0
        while True:
            children = [n for n, parent in enumerate(tree.parents) if parent == node]
            probs = [tree.probs[n] for n in children]
            found = chance.pick([1 - sum(probs), *probs])
            if not found:
                return depth
            node, depth = children[found - 1], depth + 1

    mean = sum(depth * prob for depth, prob in distribution(accepted_depth).items())
    assert expected_accepted(tree) == pytest.approx(float(mean))
