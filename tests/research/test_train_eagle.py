"""Training EAGLE heads: loss, texts, accuracy, reproducible weights."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.model.torch.torch_target import TorchTarget
from engine.prompts.builder import Prompt
from engine.prompts.tokenizer import Tokenizer
from research.methods.eagle import eagle, embed
from research.methods.eagle_head import EagleHead, shape_of, untrained_head
from research.methods.head_checkpoint import CheckpointError
from research.train import self_distill
from research.train.eagle import (
    EagleLesson,
    FrozenEnds,
    accuracy,
    chain_accuracy,
    lesson,
    loss_of,
    losses,
    predict_states,
    train,
)
from research.train.loop import TrainingPlan, fit, generator
from research.train.sample_file import SampleError
from research.train.self_distill import TrainingText, ask
from tests.conftest import CORPUS
from tests.model.test_target import load
from tests.support.heads import Killed, calm, kill_at, written
from tests.support.law import run

PLAN = TrainingPlan(epochs=6, batch=4, rate=1e-2, clip=0.5, betas=(0.9, 0.95), patience=9)
QUESTIONS = [f"{line} {n}" for n, line in enumerate(CORPUS[:6] * 5)]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> TorchTarget:
    """A model whose next token depends mostly on the last one."""
    return load(calm(tmp_path_factory.mktemp("eagle") / "model", 0.05), threads=1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("texts")


@pytest.fixture(scope="module")
def texts(model: TorchTarget, folder: Path) -> list[TrainingText]:
    return ask(QUESTIONS, model, Tokenizer(model.folder), folder / "answers.jsonl", 60)


def test_the_loss_by_hand(model: TorchTarget) -> None:
    """For two rows: the mean smooth L1 loss, plus a tenth of the cross entropy."""
    frozen = FrozenEnds(model)
    frozen.head = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    predicted = torch.tensor([[0.0, 0.0], [2.0, 1.0]])
    true = torch.tensor([[0.5, 3.0], [2.0, 1.0]])
    state_loss = [(0.5 * 0.5**2 + (3.0 - 0.5)) / 2, 0.0]
    expected = []
    for row in range(2):
        logits, true_logits = (
            torch.tensor([state[0], state[1], state.sum()]) for state in (predicted[row], true[row])
        )
        cross_entropy = -(true_logits.softmax(0) * logits.log_softmax(0)).sum()
        expected.append(state_loss[row] + 0.1 * float(cross_entropy))
    assert losses(predicted, true, frozen).tolist() == pytest.approx(expected, abs=1e-6)


def test_targets_are_one_token_ahead_and_only_answers_count(
    model: TorchTarget, texts: list[TrainingText]
) -> None:
    """The true states give the model's own logits."""
    prepared, frozen = lesson(texts[0], model), FrozenEnds(model)
    count = len(texts[0].prefix) + len(texts[0].tokens)
    assert (
        len(prepared.tokens) == len(prepared.states) == count and len(prepared.counts) == count - 1
    )
    assert prepared.counts.tolist() == [n >= len(texts[0].prefix) for n in range(count - 1)]
    model.begin([*prepared.tokens, 0], 2)
    for _ in model.prefill([*prepared.tokens, 0], 2):
        pass
    assert torch.allclose(
        frozen.logits(prepared.states), model.model.head(prepared.states), atol=1e-4
    )
    head = untrained_head(shape_of(model.settings), 0)
    loss = float(loss_of(head, [prepared], frozen).detach())
    rows = losses(predict_states(head, prepared, frozen), prepared.states[1:], frozen)
    assert loss == pytest.approx(float(rows[prepared.counts].mean().detach()), rel=1e-5)
    noisy = [float(loss_of(head, [prepared], frozen, generator(0, n)).detach()) for n in (1, 1, 2)]
    assert noisy[0] == noisy[1] != noisy[2] and noisy[0] != loss


@torch.no_grad()
def chain_correct(
    head: EagleHead, text: EagleLesson, frozen: FrozenEnds, row: int, depth: int
) -> list[bool]:
    """Whether each token drafted after a row is right, computed from scratch, up to the first wrong
    one or to where the text differs from the model's own tokens."""
    true = [int(frozen.logits(state).argmax()) for state in text.states]
    states, tokens = list(text.states[: row + 1]), list(text.tokens[1 : row + 2])
    correct: list[bool] = []
    for at in range(row + 1, row + 1 + depth):
        if at >= len(true) or (correct and text.tokens[at] != true[at - 1]):
            break
        mask = torch.ones(len(states), len(states), dtype=torch.bool).tril()
        inputs = embed(frozen.model, tokens), torch.stack(states), torch.arange(len(states))
        out = head(*inputs, head.empty(), mask)[0][-1]
        drafted = int(frozen.logits(out).argmax())
        correct.append(drafted == true[at])
        if not correct[-1]:
            break
        states.append(out)
        tokens.append(drafted)
    return correct


@pytest.mark.full
def test_chain_accuracy_equals_drafting_one_token_at_a_time(
    model: TorchTarget, texts: list[TrainingText]
) -> None:
    """On a sampled text, which soon departs from the model's greedy tokens, and on a greedy one,
    with an untrained head and one that is often right."""
    frozen, greedy = FrozenEnds(model), written(model, texts[0].prefix, 40, {})
    lessons = [lesson(text, model) for text in (texts[0], TrainingText(texts[0].prefix, greedy))]
    head = untrained_head(shape_of(model.settings), 0)

    def loss(rows: list[int], noise: Any) -> torch.Tensor:
        return loss_of(head, [lessons[row] for row in rows], frozen)

    for epochs in (0, 30):
        fit(head, len(lessons), loss, lambda: 0.0, replace(PLAN, epochs=epochs))
        hits, tried = [0] * 4, [0] * 4
        for text in lessons:
            for row in text.counts.nonzero()[:, 0].tolist():
                correct = chain_correct(head, text, frozen, row, 4)
                correct += [False] * (4 - len(correct)) if correct and not correct[-1] else []
                for step, right in enumerate(correct):
                    hits[step] += right
                    tried[step] += 1
        shares = [hit / max(total, 1) for hit, total in zip(hits, tried, strict=True)]
        assert chain_accuracy(head, lessons, frozen, 4) == pytest.approx(shares, abs=1e-6)
        assert shares[0] == pytest.approx(accuracy(head, lessons, frozen, 1)[0], abs=1e-6)
    assert 1 > shares[0] > 0 and shares[3] > 0 and tried[3] < tried[0]


def test_training_and_drafting_predict_the_same_tokens(
    model: TorchTarget, texts: list[TrainingText]
) -> None:
    """The first level of a draft tree equals the most likely tokens of the row in training."""
    prepared, head, frozen = (
        lesson(texts[1], model),
        untrained_head(shape_of(model.settings), 0),
        FrozenEnds(model),
    )
    rows = frozen.logits(predict_states(head, prepared, frozen)).detach()
    tokenizer = Tokenizer(model.folder)
    tokenizer.eos = frozenset()
    first_level: list[list[int]] = []
    drafter = eagle(model, head, total=6, depth=1, width=5)
    propose = drafter.propose

    def recording(context: Any, target: Any) -> Any:
        draft = propose(context, target)
        first_level.append([t for t, p in zip(draft.tokens, draft.parents, strict=True) if p < 0])
        return draft

    drafter.propose = recording  # type: ignore[method-assign]
    run(model, tokenizer, Prompt(prepared.tokens, max_tokens=8), drafter)
    best = rows[-1].topk(5).indices.tolist()
    assert first_level[0] and first_level[0] == best[: len(first_level[0])]


@pytest.mark.full
def test_a_trained_head_beats_an_untrained_one(
    model: TorchTarget, texts: list[TrainingText], tmp_path: Path
) -> None:
    """In accuracy on held-out answers, and in passes when drafting."""
    head = train(texts, model, tmp_path, PLAN)
    record = json.loads((tmp_path / "report.json").read_text())
    assert record["accuracy"][0] > record["accuracy_untrained"][0] + 0.1
    assert record["accuracy"] == sorted(record["accuracy"])
    row = record["accuracy_in_a_row"]
    assert row[0] == pytest.approx(record["accuracy"][0]) and len(row) == 5
    assert row[1] > record["accuracy_in_a_row_untrained"][1]
    assert record["losses"][-1] < record["losses"][0]
    assert (tmp_path / "loss.svg").read_text().endswith("</svg>\n")
    loaded = EagleHead.load(tmp_path, model.folder, model.settings)
    tokenizer = Tokenizer(model.folder)
    tokenizer.eos = frozenset()
    passes = []
    for drafting_head in (untrained_head(shape_of(model.settings), 0), loaded):
        total = 0
        for text in texts[:4]:
            prompt = Prompt(text.prefix, max_tokens=40)
            total += run(model, tokenizer, prompt, eagle(model, drafting_head, 12, 3, 4))[
                1
            ].usage.forwards
        passes.append(total)
    assert passes[1] < 0.8 * passes[0]
    assert torch.equal(loaded.fc.weight, head.fc.weight)


@pytest.mark.full
def test_an_interrupted_training_makes_the_same_head(
    model: TorchTarget, texts: list[TrainingText], folder: Path, tmp_path: Path
) -> None:
    complete, interrupted = tmp_path / "complete", tmp_path / "interrupted"
    train(texts[:9], model, complete, PLAN)
    with pytest.raises(Killed):
        train(texts[:9], model, interrupted, PLAN, kill_at("epoch 2 of"))
    reloaded = self_distill.load(folder / "answers.jsonl", Tokenizer(model.folder), 500)[:9]
    train(reloaded, model, interrupted, PLAN)
    for name in ("model.safetensors", "config.json", "report.json"):
        assert (complete / name).read_bytes() == (interrupted / name).read_bytes(), name


def test_published_dialogues(model: TorchTarget, tmp_path: Path) -> None:
    tokenizer, file = Tokenizer(model.folder), tmp_path / "sharegpt.json"
    turns = [("human", "add(1, 2)"), ("gpt", "return 3"), ("human", "class"), ("gpt", "Point")]
    dialogue = {"id": "a", "conversations": [{"from": a, "value": b} for a, b in turns]}
    file.write_text(json.dumps([dialogue, {"conversations": []}]))
    found = self_distill.load(file, tokenizer, 500)
    assert [tokenizer.decode(text.tokens) for text in found] == ["return 3", "Point"]
    messages = [
        {"role": "user", "content": "add(1, 2)"},
        {"role": "assistant", "content": "return 3"},
        {"role": "user", "content": "class"},
    ]
    assert [text.prefix for text in found] == [
        tokenizer.chat(messages[:1]), tokenizer.chat(messages)
    ]  # fmt: skip
    short = self_distill.load(file, tokenizer, len(found[0].prefix) + 2)
    assert [len(text.tokens) for text in short] == [2]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[]", "contains no answer"),
        ("{", "line 1: not JSON"),
        ('[{"a": 1}]', "entry 1: neither conversations nor prefix"),
        ('[{"conversations": [{"from": "moon", "value": "x"}]}]', "a turn needs from and value"),
        ('[{"conversations": 7}]', "a turn needs from and value"),
        ('{"prefix": [1], "tokens": ["a"]}', "are not token ids"),
    ],
)
def test_bad_files_are_reported_in_one_line(
    model: TorchTarget, tmp_path: Path, text: str, message: str
) -> None:
    file = tmp_path / "data.json"
    file.write_text(text)
    with pytest.raises(SampleError, match=message) as caught:
        self_distill.load(file, Tokenizer(model.folder), 500)
    assert str(file) in str(caught.value) and "\n" not in str(caught.value)


def test_unusable_texts_and_models_are_refused(
    model: TorchTarget, tiny: Any, tmp_path: Path
) -> None:
    with pytest.raises(SampleError, match="1 answers: at least two are needed"):
        train([TrainingText([1], [2])], model, tmp_path)
    with pytest.raises(SampleError, match="token 9999: made with another tokenizer"):
        train([TrainingText([1], [9999])] * 2, model, tmp_path)
    with pytest.raises(CheckpointError, match="Llama family only"):
        train([TrainingText([1], [2])] * 2, load(tiny("gpt2")), tmp_path)
    unanswered = EagleLesson([1, 2], torch.zeros(2, 32), torch.tensor([False]))
    frozen, head = FrozenEnds(model), untrained_head(shape_of(model.settings), 0)
    assert float(loss_of(head, [unanswered], frozen).detach()) == 0
    assert accuracy(head, [unanswered], frozen) == [0, 0, 0]
