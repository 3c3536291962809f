"""SDSAT: unchanged answers with any adaptive tokens, a round by hand, templates, and training."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.drafting import NullDrafter
from engine.model.torch.torch_target import TorchTarget
from engine.prompts.builder import Prompt
from engine.prompts.tokenizer import Tokenizer
from engine.records import Done, Draft
from research.methods import sdsat
from research.methods.head_checkpoint import CheckpointError
from research.methods.sdsat import (
    TEMPLATES,
    SdsatDrafter,
    check_reserved,
    grow_levels,
    install_embeddings,
)
from research.train import self_distill
from research.train.adaptive_tokens import (
    FrozenTransformer,
    SlotEmbeddings,
    draw_cuts,
    loss_of,
    slot_blocks,
    train,
)
from research.train.loop import TrainingPlan, generator
from research.train.sample_file import SampleError
from research.train.self_distill import TrainingText
from tests.model.test_target import begin, load
from tests.support.heads import Killed, calm, kill_at, same_wherever_it_ends
from tests.support.law import SAMPLED, answer, run

PROMPT = [40, 41, 42, 43]
PLAN = TrainingPlan(epochs=4, batch=2, rate=0.3, warmup=0.1, patience=99)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return calm(tmp_path_factory.mktemp("sdsat") / "model", 0.3)


@pytest.fixture(scope="module")
def target(folder: Path) -> TorchTarget:
    return load(folder, threads=1)


@pytest.fixture(scope="module")
def ids(target: TorchTarget) -> list[int]:
    return install_embeddings(target, torch.randn(2, 32, generator=generator(0, 0)))


@pytest.fixture(scope="module")
def endless(folder: Path, target: TorchTarget) -> Tokenizer:
    tokenizer = Tokenizer(folder)
    tokenizer.eos = frozenset()
    return tokenizer


@pytest.fixture(scope="module")
def texts(endless: Tokenizer) -> list[TrainingText]:
    """A cycle of tokens in which one token recurs: at least that one can be learned."""
    cycle = [60, 70, 60, 80, 60, 90]
    found = []
    for n in range(12):
        rotated = cycle[n % 6 :] + cycle * 6
        found.append(TrainingText(rotated[:4], rotated[4:34]))
    return found


# -- unchanged answers -----------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, SAMPLED, {"temperature": 1.0, "seed": 9}], ids=str)
@pytest.mark.parametrize(("slots", "tree"), [(0, False), (1, False), (5, False), (9, False),
                                             (5, True), (13, True)])  # fmt: skip
def test_no_adaptive_tokens_change_the_answer(
    target: TorchTarget, ids: list[int], endless: Tokenizer, slots: int, tree: bool, options: Any
) -> None:
    for prompt_ids in (PROMPT, [60], PROMPT[:2]):
        prompt = Prompt(prompt_ids, max_tokens=24)
        _, expected = run(target, endless, prompt, NullDrafter(), **options)
        _, done = run(target, endless, prompt, SdsatDrafter(ids, slots, tree), **options)
        assert answer(done) == answer(expected)
        assert not slots or done.usage.accepted >= 10  # the certain token of each round


def test_answers_match_at_every_end_position_and_length(
    target: TorchTarget, ids: list[int]
) -> None:
    def drafters() -> list[SdsatDrafter]:
        return [SdsatDrafter(ids, 5, tree) for tree in (False, True)]

    same_wherever_it_ends(target, PROMPT, drafters, {})


def test_adaptive_tokens_leave_the_model_bit_identical(
    folder: Path, target: TorchTarget, ids: list[int]
) -> None:
    """The rows of a text next to rows of adaptive tokens, compared with a model without them."""
    plain = load(folder, threads=1)
    text = [5, 6, 7, 8]
    draft = Draft()
    for n, token in enumerate([*text, ids[0], ids[1], ids[0]]):
        draft.add(token, n - 1 if n < 6 else 1, 0.5, "test")
    rows = []
    for model, tree in ((target, draft), (plain, draft.first(4))):
        begin(model, PROMPT)
        rows.append(model.forward(PROMPT[-1], tree).logits[:5])
        model.keep([])
    assert torch.equal(rows[0], rows[1])


def test_a_round_by_hand(target: TorchTarget, ids: list[int], endless: Tokenizer) -> None:
    """As published: a0 .. ak from the first pass, b0 .. bk from the second."""
    begin(target, PROMPT)
    blank = Draft([ids[0], ids[1], ids[1]], [-1, 0, 1], [0.0] * 3, [""] * 3)
    a = target.forward(PROMPT[-1], blank).logits.argmax(-1).tolist()
    target.keep([])
    begin(target, PROMPT)
    chain = Draft(a, [-1, 0, 1, 2], [0.5] * 4, [""] * 4)
    b = target.forward(PROMPT[-1], chain).logits.argmax(-1).tolist()[1:]
    target.keep([])
    agreed = next((n for n in range(3) if a[n + 1] != b[n]), 3)
    steps, done = run(target, endless, Prompt(PROMPT, max_tokens=20), SdsatDrafter(ids, 3))
    first = next(step for step in steps if step.prefill is None)
    assert (first.drafted, first.accepted) == (4, agreed + 1)
    rounds = [step for step in steps if step.prefill is None]
    single = sum(step.drafted == 0 for step in rounds)
    assert done.usage.forwards == 2 * len(rounds) - single


def test_rejection_sampling_always_accepts_the_certain_token(
    target: TorchTarget, ids: list[int], endless: Tokenizer
) -> None:
    for tree in (False, True):
        prompt, drafter = Prompt(PROMPT, max_tokens=24), SdsatDrafter(ids, 5, tree)
        rejection: dict[str, Any] = {"verification": "rejection", "temperature": 1.0, "seed": 2}
        steps, done = run(target, endless, prompt, drafter, **rejection)
        assert isinstance(done, Done) and done.usage.completion_tokens == 24
        assert all(step.accepted for step in steps if step.drafted)  # type: ignore[union-attr]


# -- templates and ids -----------------------------------------------------------------------------


@pytest.mark.parametrize("slots", TEMPLATES)
def test_templates_have_the_published_levels(slots: int) -> None:
    draft = Draft()
    draft.add(0, -1, 1.0, "certain")
    levels = [[(100 * n + rank, 0.1) for rank in range(8)] for n in range(1, slots + 1)]
    grow_levels(draft, levels, TEMPLATES[slots], frozenset())
    depth = [0]
    for node, parent in enumerate(draft.parents[1:], 1):
        assert parent < node
        depth.append(depth[parent] + 1)
    assert tuple(depth.count(n + 1) for n in range(slots)) == TEMPLATES[slots]
    for parent in range(len(draft)):  # children are the first tokens of their level
        children = [
            token for token, p in zip(draft.tokens, draft.parents, strict=True) if p == parent
        ]
        if parent >= 0 and children and draft.parents[parent] >= -1:
            level = 100 * (depth[parent] + 1)
            assert sorted(children) == list(range(level, level + len(children)))


def test_nothing_follows_an_end_token() -> None:
    draft = Draft()
    draft.add(0, -1, 1.0, "certain")
    grow_levels(draft, [[(1, 0.5), (2, 0.4)], [(3, 0.5), (4, 0.1)]], (2, 3), frozenset({1}))
    assert list(zip(draft.tokens, draft.parents, strict=True)) == [
        (0, -1), (1, 0), (2, 0), (3, 2), (4, 2)
    ]  # fmt: skip


def test_ids_in_use_are_rejected(target: TorchTarget, endless: Tokenizer, tiny: Any) -> None:
    words = {number: word for word, number in endless.words.items()}
    with pytest.raises(ValueError, match=r"adaptive token 70 is .* in model: choose unused ids"):
        check_reserved([70], endless, target)
    with pytest.raises(ValueError, match="adaptive token 9999: model has 300 ids: choose others"):
        check_reserved([9999], endless, target)
    free = [number for number in range(target.vocab) if number not in words]
    assert check_reserved(free, endless, target) == free
    with pytest.raises(ValueError, match="SDSAT trees of 6 slots: there are templates for 5, 7, 9"):
        SdsatDrafter([1], 6, tree=True)
    with pytest.raises(ValueError, match="SDSAT with -1 slots"):
        SdsatDrafter([1], -1)
    with pytest.raises(CheckpointError, match="Llama family only"):
        install_embeddings(load(tiny("gpt2")), torch.zeros(1, 32))


# -- training --------------------------------------------------------------------------------------


def test_slot_blocks_predict_later_tokens() -> None:
    """Label alignment: slot i after token r has position r + i and predicts token r + 1 + i."""
    tokens = [10, 11, 12, 13, 14, 15]
    blocks = slot_blocks(6, [1, 3], 3, tokens)
    assert blocks.positions.tolist() == [[2, 3, 4], [4, 5, 6]]
    assert blocks.labels.tolist() == [[13, 14, 15], [15, -100, -100]]
    visible = [[int(n) for n in row.nonzero()[:, 0]] for row in blocks.mask]
    assert visible == [[0, 1, 6], [0, 1, 6, 7], [0, 1, 6, 7, 8],
                    [0, 1, 2, 3, 9], [0, 1, 2, 3, 9, 10], [0, 1, 2, 3, 9, 10, 11]]  # fmt: skip


def test_cuts_are_inside_the_answer() -> None:
    for count in range(6):
        text = TrainingText([1, 2, 3], list(range(count)))
        cuts = draw_cuts(text, 99, generator(0, 0))
        # after the cut come the certain token and at least one for a slot to predict
        assert cuts == list(range(2, 2 + max(0, count - 1)))


def test_training_logits_match_the_engine(
    folder: Path, target: TorchTarget, ids: list[int]
) -> None:
    """Each block's logits are those of the engine's own pass over the start of the text."""
    reader = FrozenTransformer(folder)
    text = [5, 9, 13, 17, 21, 25, 29]
    extra = torch.randn(2, 32, generator=generator(0, 0))
    blocks = slot_blocks(len(text), [2, 4], 3, text)
    logits = reader.logits(text, blocks, SlotEmbeddings(extra).rows(3)).view(2, 3, -1)
    for n, cut in enumerate((2, 4)):
        begin(target, text[: cut + 1])
        blank = Draft([ids[0], ids[1], ids[1]], [-1, 0, 1], [0.0] * 3, [""] * 3)
        rows = target.forward(text[cut], blank).logits[1:]
        target.keep([])
        assert torch.allclose(logits[n], rows, atol=1e-3)


def test_trained_tokens_beat_untrained_ones(
    folder: Path, target: TorchTarget, texts: list[TrainingText], tmp_path: Path
) -> None:
    """On held-out texts; the saved embeddings are the trained ones."""
    found = train(texts, target, tmp_path, replace(PLAN, epochs=12), 3, 3)
    record = json.loads((tmp_path / "report.json").read_text())
    assert record["loss"] < 0.8 * record["loss_untrained"]
    assert sum(record["accuracy"]) > sum(record["accuracy_untrained"])
    assert record["losses"][-1] < record["losses"][0]
    assert torch.equal(sdsat.load(tmp_path, folder, 32), found)
    with pytest.raises(
        CheckpointError, match="not adaptive tokens of hidden size 64, as model needs"
    ):
        sdsat.load(tmp_path, folder, 64)


def test_one_token_may_serve_all_slots(folder: Path, texts: list[TrainingText]) -> None:
    slots = SlotEmbeddings(FrozenTransformer(folder).start(1, 0))
    rows = slots.rows(4)
    assert all(torch.equal(rows[0], row) for row in rows)
    loss = loss_of(FrozenTransformer(folder), texts[0], slots, 4, [5, 9])
    loss.backward()  # type: ignore[no-untyped-call]
    assert slots.embedding.grad is not None and bool(slots.embedding.grad.any())


def test_a_resumed_training_gives_the_same_tokens(
    folder: Path, target: TorchTarget, texts: list[TrainingText], tmp_path: Path
) -> None:
    uninterrupted, killed = tmp_path / "whole", tmp_path / "killed"
    train(texts, target, uninterrupted, PLAN, 3, 2)
    lines = [json.dumps({"prefix": text.prefix, "tokens": text.tokens}) for text in texts]
    (tmp_path / "texts.jsonl").write_text("\n".join(lines))
    with pytest.raises(Killed):
        train(texts, target, killed, PLAN, 3, 2, report=kill_at("epoch 2 of"))
    assert not (killed / "config.json").exists()
    loaded = self_distill.load(tmp_path / "texts.jsonl", Tokenizer(folder), 500)
    train(loaded, target, killed, PLAN, 3, 2)
    for name in ("model.safetensors", "config.json", "report.json"):
        assert (uninterrupted / name).read_bytes() == (killed / name).read_bytes(), name


def test_training_rejects_unusable_input(target: TorchTarget, tiny: Any, tmp_path: Path) -> None:
    with pytest.raises(SampleError, match="0 answers: at least two are needed"):
        train([TrainingText([1], [2])] * 5, target, tmp_path)
    with pytest.raises(SampleError, match="token 9999: made with another tokenizer"):
        train([TrainingText([1], [9999, 1, 2])] * 2, target, tmp_path)
    with pytest.raises(CheckpointError, match="Llama family only"):
        train([TrainingText([1], [1, 2, 3])] * 2, load(tiny("gpt2")), tmp_path)
