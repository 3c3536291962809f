"""EAGLE's head learns: its loss by hand, its texts, the same weights from the same seed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.drafting.methods.eagle import eagle, embed
from engine.drafting.methods.eagle_head import EagleHead, shape_of, untrained_head
from engine.drafting.methods.head_checkpoint import CheckpointError
from engine.model.torch_target import TorchTarget
from engine.prompts.builder import Prompt
from engine.prompts.tokenizer import Tokenizer
from engine.research.train import self_distill
from engine.research.train.eagle import (
    EagleLesson,
    FrozenModel,
    accuracy,
    chain_accuracy,
    lesson,
    loss_of,
    losses,
    predict_states,
    train,
)
from engine.research.train.loop import Plan, fit, generator
from engine.research.train.sample_file import SampleError
from engine.research.train.self_distill import TrainingText, ask
from tests.conftest import CORPUS
from tests.model.test_target import load
from tests.support.heads import Killed, calm, kill_at, written
from tests.support.law import run

PLAN = Plan(epochs=6, batch=4, rate=1e-2, clip=0.5, betas=(0.9, 0.95), patience=9)
QUESTIONS = [f"{line} {n}" for n, line in enumerate(CORPUS[:6] * 5)]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> TorchTarget:
    """The next token is mostly the last one's doing."""
    return load(calm(tmp_path_factory.mktemp("eagle") / "model", 0.05), threads=1)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("texts")


@pytest.fixture(scope="module")
def texts(model: TorchTarget, place: Path) -> list[TrainingText]:
    return ask(QUESTIONS, model, Tokenizer(model.folder), place / "answers.jsonl", 60)


def test_the_loss_by_hand(model: TorchTarget) -> None:
    """Of two rows: smooth L1, the mean over the width, and a tenth of the cross entropy."""
    frozen = FrozenModel(model)
    frozen.head = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    found, truth = torch.tensor([[0.0, 0.0], [2.0, 1.0]]), torch.tensor([[0.5, 3.0], [2.0, 1.0]])
    apart = [(0.5 * 0.5**2 + (3.0 - 0.5)) / 2, 0.0]
    expected = []
    for row in range(2):
        wanted = torch.tensor([truth[row, 0], truth[row, 1], truth[row].sum()]).softmax(0)
        said = torch.tensor([found[row, 0], found[row, 1], found[row].sum()]).log_softmax(0)
        expected.append(apart[row] - 0.1 * float((wanted * said).sum()))
    assert losses(found, truth, frozen).tolist() == pytest.approx(expected, abs=1e-6)


def test_rows_stand_one_ahead_and_only_answers_count(
    model: TorchTarget, texts: list[TrainingText]
) -> None:
    """Against the model's own logits: the state that is wanted gives the token after the next."""
    one, frozen = lesson(texts[0], model), FrozenModel(model)
    count = len(texts[0].prefix) + len(texts[0].tokens)
    assert len(one.tokens) == len(one.states) == count and len(one.counts) == count - 1
    assert one.counts.tolist() == [n >= len(texts[0].prefix) for n in range(count - 1)]
    model.begin([*one.tokens, 0], 2)
    for _ in model.prefill([*one.tokens, 0], 2):
        pass
    assert torch.allclose(frozen.logits(one.states), model.model.head(one.states), atol=1e-4)
    head = untrained_head(shape_of(model.settings), 0)
    whole = loss_of(head, [one], frozen)
    rows = losses(predict_states(head, one, frozen), one.states[1:], frozen)
    assert float(whole.detach()) == pytest.approx(float(rows[one.counts].mean().detach()), rel=1e-5)
    noisy = [float(loss_of(head, [one], frozen, generator(0, n)).detach()) for n in (1, 1, 2)]
    assert noisy[0] == noisy[1] != noisy[2] and noisy[0] != float(whole.detach())


@torch.no_grad()
def followed(
    head: EagleHead, one: EagleLesson, frozen: FrozenModel, row: int, most: int
) -> list[bool]:
    """Whether each guess behind a row is right, one at a time and all anew; to the first wrong one,
    or to where the text is not what the model would have said."""
    wanted = [int(frozen.logits(state).argmax()) for state in one.states]
    states, tokens = list(one.states[: row + 1]), list(one.tokens[1 : row + 2])
    found: list[bool] = []
    for at in range(row + 1, row + 1 + most):
        if at >= len(wanted) or (found and one.tokens[at] != wanted[at - 1]):
            break
        mask = torch.ones(len(states), len(states), dtype=torch.bool).tril()
        read = embed(frozen.model, tokens)
        out = head(read, torch.stack(states), torch.arange(len(states)), head.empty(), mask)[0][-1]
        guess = int(frozen.logits(out).argmax())
        found.append(guess == wanted[at])
        if not found[-1]:
            break
        states.append(out)
        tokens.append(guess)
    return found


@pytest.mark.full
def test_guesses_in_a_row_are_followed_one_by_one(
    model: TorchTarget, texts: list[TrainingText]
) -> None:
    """On a sampled text, which soon leaves what the model would have said, and on a greedy one,
    with a head that has learnt nothing and one that is often right."""
    frozen, greedy = FrozenModel(model), written(model, texts[0].prefix, 40, {})
    lessons = [lesson(one, model) for one in (texts[0], TrainingText(texts[0].prefix, greedy))]
    head = untrained_head(shape_of(model.settings), 0)

    def loss(rows: list[int], noise: Any) -> torch.Tensor:
        return loss_of(head, [lessons[row] for row in rows], frozen)

    for epochs in (0, 30):
        fit(head, len(lessons), loss, lambda: 0.0, replace(PLAN, epochs=epochs))
        hits, tried = [0] * 4, [0] * 4
        for one in lessons:
            for row in one.counts.nonzero()[:, 0].tolist():
                found = followed(head, one, frozen, row, 4)
                found += [False] * (4 - len(found)) if found and not found[-1] else []
                for step, right in enumerate(found):
                    hits[step] += right
                    tried[step] += 1
        shares = [hit / max(one, 1) for hit, one in zip(hits, tried, strict=True)]
        assert chain_accuracy(head, lessons, frozen, 4) == pytest.approx(shares, abs=1e-6)
        assert shares[0] == pytest.approx(accuracy(head, lessons, frozen, 1)[0], abs=1e-6)
    assert 1 > shares[0] > 0 and shares[3] > 0 and tried[3] < tried[0]


def test_training_sees_what_drafting_sees(model: TorchTarget, texts: list[TrainingText]) -> None:
    """The first level of a drafted tree is what the training's row says."""
    one, head, frozen = (
        lesson(texts[1], model),
        untrained_head(shape_of(model.settings), 0),
        FrozenModel(model),
    )
    rows = frozen.logits(predict_states(head, one, frozen)).detach()
    tokenizer = Tokenizer(model.folder)
    tokenizer.eos = frozenset()
    seen: list[list[int]] = []
    drafter = eagle(model, head, total=6, depth=1, width=5)
    propose = drafter.propose

    def watched(context: Any, target: Any) -> Any:
        draft = propose(context, target)
        seen.append([t for t, p in zip(draft.tokens, draft.parents, strict=True) if p < 0])
        return draft

    drafter.propose = watched  # type: ignore[method-assign]
    run(model, tokenizer, Prompt(one.tokens, max_tokens=8), drafter)
    best = rows[-1].topk(5).indices.tolist()
    assert seen[0] and seen[0] == best[: len(seen[0])]


@pytest.mark.full
def test_a_trained_head_beats_an_untrained_one(
    model: TorchTarget, texts: list[TrainingText], tmp_path: Path
) -> None:
    """On answers that were held out, and where it drafts."""
    head = train(texts, model, tmp_path, PLAN)
    record = json.loads((tmp_path / "report.json").read_text())
    assert record["accuracy"][0] > record["accuracy_untrained"][0] + 0.1
    assert record["accuracy"] == sorted(record["accuracy"])
    row = record["accuracy_in_a_row"]
    assert row[0] == pytest.approx(record["accuracy"][0]) and len(row) == 5
    assert row[1] > record["accuracy_in_a_row_untrained"][1]
    assert record["losses"][-1] < record["losses"][0]
    assert (tmp_path / "loss.svg").read_text().endswith("</svg>\n")
    again = EagleHead.load(tmp_path, model.folder, model.settings)
    tokenizer = Tokenizer(model.folder)
    tokenizer.eos = frozenset()
    passes = []
    for each in (untrained_head(shape_of(model.settings), 0), again):
        total = 0
        for text in texts[:4]:
            prompt = Prompt(text.prefix, max_tokens=40)
            total += run(model, tokenizer, prompt, eagle(model, each, 12, 3, 4))[1].usage.forwards
        passes.append(total)
    assert passes[1] < 0.8 * passes[0]
    assert torch.equal(again.fc.weight, head.fc.weight)


@pytest.mark.full
def test_a_killed_training_makes_the_same_head(
    model: TorchTarget, texts: list[TrainingText], place: Path, tmp_path: Path
) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    train(texts[:9], model, whole, PLAN)
    with pytest.raises(Killed):
        train(texts[:9], model, killed, PLAN, kill_at("epoch 2 of"))
    again = self_distill.load(place / "answers.jsonl", Tokenizer(model.folder), 500)[:9]
    train(again, model, killed, PLAN)
    for name in ("model.safetensors", "config.json", "report.json"):
        assert (whole / name).read_bytes() == (killed / name).read_bytes(), name


def test_published_dialogues(model: TorchTarget, tmp_path: Path) -> None:
    tokenizer, file = Tokenizer(model.folder), tmp_path / "sharegpt.json"
    turns = [("human", "add(1, 2)"), ("gpt", "return 3"), ("human", "class"), ("gpt", "Point")]
    dialogue = {"id": "a", "conversations": [{"from": a, "value": b} for a, b in turns]}
    file.write_text(json.dumps([dialogue, {"conversations": []}]))
    found = self_distill.load(file, tokenizer, 500)
    assert [tokenizer.decode(one.tokens) for one in found] == ["return 3", "Point"]
    shown = [{"role": "user", "content": "add(1, 2)"}, {"role": "assistant", "content": "return 3"},
             {"role": "user", "content": "class"}]  # fmt: skip
    assert [one.prefix for one in found] == [tokenizer.chat(shown[:1]), tokenizer.chat(shown)]
    short = self_distill.load(file, tokenizer, len(found[0].prefix) + 2)
    assert [len(one.tokens) for one in short] == [2]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[]", "contains no answer"),
        ("{", "line 1: not JSON"),
        ('[{"a": 1}]', "entry 1: neither conversations nor prefix"),
        ('[{"conversations": [{"from": "moon", "value": "x"}]}]', "a turn needs from and value"),
        ('[{"conversations": 7}]', "a turn needs from and value"),
        ('{"prefix": [1], "tokens": ["a"]}', "are not token ids"),
    ],
)
def test_bad_files_are_one_line(
    model: TorchTarget, tmp_path: Path, text: str, complaint: str
) -> None:
    file = tmp_path / "data.json"
    file.write_text(text)
    with pytest.raises(SampleError, match=complaint) as caught:
        self_distill.load(file, Tokenizer(model.folder), 500)
    assert str(file) in str(caught.value) and "\n" not in str(caught.value)


def test_what_it_refuses(model: TorchTarget, tiny: Any, tmp_path: Path) -> None:
    with pytest.raises(SampleError, match="1 answers: at least two are needed"):
        train([TrainingText([1], [2])], model, tmp_path)
    with pytest.raises(SampleError, match="token 9999: made with another tokenizer"):
        train([TrainingText([1], [9999])] * 2, model, tmp_path)
    with pytest.raises(CheckpointError, match="Llama family only"):
        train([TrainingText([1], [2])] * 2, load(tiny("gpt2")), tmp_path)
    nothing = EagleLesson([1, 2], torch.zeros(2, 32), torch.tensor([False]))
    frozen, head = FrozenModel(model), untrained_head(shape_of(model.settings), 0)
    assert float(loss_of(head, [nothing], frozen).detach()) == 0
    assert accuracy(head, [nothing], frozen) == [0, 0, 0]
