"""Acceptance heads: their data, loss, training and files, on tiny random models."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from engine.model.torch_target import TorchTarget
from engine.prompts.tokenizer import Tokenizer
from engine.records import Draft
from engine.research.train.acceptance import (
    AcceptanceLessons,
    calibration,
    lessons,
    mix_tokens,
    split,
    train,
    undo_weight,
    untrained_head,
    weighted_loss,
)
from engine.research.train.acceptance_data import Sample, label, load_samples, make
from engine.research.train.loop import Plan, generator
from engine.research.train.sample_file import SampleError
from engine.research.train.teacher_forcing import CHUNK_ROWS, forced_rows, hidden_states
from tests.support.heads import QUESTIONS, Killed, kill_at, pair

PLAN = Plan(epochs=6, batch=64, rate=3e-3, seed=3)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("acceptance")


@pytest.fixture(scope="module")
def models(place: Path) -> tuple[TorchTarget, TorchTarget]:
    return pair(place, 0.3)


@pytest.fixture(scope="module")
def samples(place: Path, models: tuple[TorchTarget, TorchTarget]) -> list[Sample]:
    return make(QUESTIONS, *models, Tokenizer(place / "model"), place / "samples.jsonl", 100)


def alone(model: TorchTarget, ids: list[int]) -> tuple[Any, Any]:
    """Logits and hidden states, a row a pass: what `read` must give."""
    model.begin(ids[:1], len(ids))
    rows = []
    for token in ids:
        rows.append(model.forward(token, Draft(), hidden=True))
        model.keep([])
    return torch.cat([one.logits for one in rows]), torch.cat([one.hidden for one in rows])


@pytest.mark.parametrize("first", [0, 5])
def test_reading_gives_every_row_as_if_alone(
    models: tuple[TorchTarget, TorchTarget], first: int
) -> None:
    ids = [3 + n * 7 % 200 for n in range(2 * CHUNK_ROWS + 3)]
    logits, hidden = alone(models[0], ids)
    found = list(forced_rows(models[0], ids, first))
    assert [row for row, _, _ in found] == [first, first + CHUNK_ROWS, first + 2 * CHUNK_ROWS][
        : len(found)
    ]
    assert torch.equal(torch.cat([one for _, one, _ in found]), logits[first:])
    assert torch.equal(hidden_states(models[0], ids, first), hidden[first:])


# -- data ------------------------------------------------------------------------------------------


def test_samples_say_what_both_models_do(
    samples: list[Sample], models: tuple[TorchTarget, TorchTarget]
) -> None:
    """Against rows that are computed one by one."""
    model, draft = models
    for one in samples[:3]:
        assert len(one.tokens) == len(one.draft) == len(one.p_acc) > 0
        ids, first = [*one.prefix, *one.tokens], len(one.prefix) - 1
        for by, logs in ((model, one.log_p), (draft, one.log_q)):
            said = alone(by, ids)[0].log_softmax(-1)
            expected = [float(said[first + n, token]) for n, token in enumerate(one.draft)]
            assert logs == pytest.approx(expected, abs=1e-5)
        for chance, p, q in zip(one.p_acc, one.log_p, one.log_q, strict=True):
            assert chance == pytest.approx(min(1.0, math.exp(p - q)), abs=1e-5)
    everything = [chance for one in samples for chance in one.p_acc]
    assert 0.2 < sum(everything) / len(everything) < 0.95


def test_drafted_tokens_are_drawn_as_the_draft_model_says(
    models: tuple[TorchTarget, TorchTarget],
) -> None:
    prefix, counts = [3, 4], dict.fromkeys(range(models[1].vocab), 0)
    for seed in range(300):
        one = label(prefix, [5], *models, generator(seed, 0))
        counts[one.draft[0]] += 1
    said = alone(models[1], prefix)[0][-1].softmax(-1)
    best = int(said.argmax())
    assert counts[best] / 300 == pytest.approx(float(said[best]), abs=0.1)


def test_made_samples_are_not_made_again(
    samples: list[Sample], models: tuple[TorchTarget, TorchTarget], place: Path, tmp_path: Path
) -> None:
    """Killed in the middle of a line, it goes on, and ends with the same file."""
    whole = (place / "samples.jsonl").read_bytes()
    lines = whole.split(b"\n")
    broken = tmp_path / "samples.jsonl"
    broken.write_bytes(b"\n".join(lines[:5]) + b"\n" + lines[5][:40])
    said: list[str] = []
    tokenizer = Tokenizer(place / "model")
    again = make(QUESTIONS, *models, tokenizer, broken, 100, report=said.append)
    assert again == samples and broken.read_bytes() == whole
    assert said[0].startswith("answer 5 of 12: ") and len(said) == 8
    with pytest.raises(SampleError, match="made from other questions or models: remove it"):
        make(QUESTIONS[1:], *models, tokenizer, broken, 100)


def test_files_of_samples(samples: list[Sample], place: Path, tmp_path: Path) -> None:
    """Ours, and published ones: one list, in which lists may be text."""
    ours = load_samples(place / "samples.jsonl")
    assert [one.p_acc for one in ours if one.tokens] == [one.p_acc for one in samples]
    names = ("prefix", "tokens", "draft", "p_acc")
    records = [{name: getattr(one, name) for name in names} for one in samples]
    for number, form in enumerate((lambda value: value, str)):
        file = tmp_path / f"{number}.json"
        file.write_text(json.dumps([{k: form(v) for k, v in one.items()} for one in records]))
        assert [one.draft for one in load_samples(file)] == [one.draft for one in samples]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "contains no samples"),
        ("[]", "contains no samples"),
        ("no json\n", "line 1: not JSON"),
        ("[7]", "entry 1: prefix is not a list of numbers"),
        ('[{"prefix": "[1", "tokens": [], "draft": [], "p_acc": []}]', "prefix is not a list"),
        ('[{"prefix": [1], "tokens": [2], "draft": [], "p_acc": []}]', "differ in length"),
        (
            '[{"prefix": [1], "tokens": [2], "draft": [2], "p_acc": [1.5]}]',
            "must be between 0 and 1",
        ),
    ],
)
def test_bad_files_are_one_line(tmp_path: Path, text: str, complaint: str) -> None:
    file = tmp_path / "data.json"
    file.write_text(text)
    with pytest.raises(SampleError, match=complaint) as caught:
        load_samples(file)
    assert str(file) in str(caught.value) and "\n" not in str(caught.value)


# -- learning --------------------------------------------------------------------------------------


def test_golden_loss() -> None:
    """Values computed by hand."""
    logits = torch.tensor([[0.1, 0.9], [0.6, 0.4]]).log()
    assert float(weighted_loss(logits, torch.tensor([1.0, 0.25]), 6)) == pytest.approx(
        0.457939, abs=1e-6
    )


@given(st.floats(0.01, 0.99), st.floats(0.5, 20))
def test_the_weight_can_be_undone(chance: float, weight: float) -> None:
    """The belief of the least loss, where `chance` is the truth, and back from it."""
    beliefs = torch.linspace(0.0005, 0.9995, 1000, dtype=torch.float64)
    losses = -(weight * (1 - chance) * (1 - beliefs).log() + chance * beliefs.log())
    best = beliefs[int(losses.argmin())]
    assert float(undo_weight(best, weight)) == pytest.approx(chance, abs=0.02)


probabilities = st.lists(st.floats(0, 1), min_size=1, max_size=30)


@given(probabilities, st.randoms(use_true_random=False))
def test_quality_by_the_book(labels: list[float], chance: Any) -> None:
    beliefs = [chance.uniform(0.01, 0.99) for _ in labels]
    found = calibration(torch.tensor(beliefs), torch.tensor(labels))

    def nats(p: float, q: float) -> float:
        return 0.0 if p == 0 else p * math.log(p / q)

    kl = [nats(p, q) + nats(1 - p, 1 - q) for p, q in zip(labels, beliefs, strict=True)]
    assert found.kl == pytest.approx(sum(kl) / len(kl), abs=1e-4)
    assert sum(count for *_, count in found.bins) == len(labels) and 0 <= found.ece <= 1
    right = calibration(torch.tensor(labels), torch.tensor(labels))
    assert right.kl == pytest.approx(0, abs=1e-6) and right.ece == pytest.approx(0, abs=1e-6)


def test_mixing_takes_a_share_of_what_was_written() -> None:
    sample = Sample([1], [5] * 2000, [6] * 2000, [0.5] * 2000, [], [])
    tokens, drawn = mix_tokens(sample, 0.15, generator(0, 0))
    assert tokens == [6 if each else 5 for each in drawn]
    assert 250 < drawn.count(False) < 350
    assert mix_tokens(sample, 0.0, generator(0, 0)) == ([6] * 2000, [True] * 2000)
    assert mix_tokens(sample, 1.0, generator(0, 0))[1] == [False] * 2000


def test_lessons_stand_at_the_drafted_tokens_own_places(
    samples: list[Sample], models: tuple[TorchTarget, TorchTarget]
) -> None:
    draft, one = models[1], samples[0]
    found = lessons([one], draft, 0.3, seed=4)
    tokens, drawn = mix_tokens(one, 0.3, generator(4, 0))
    _, hidden = alone(draft, [*one.prefix, *tokens])
    places = [len(one.prefix) + n for n, each in enumerate(drawn) if each]
    assert 0 < len(places) < len(tokens)
    assert torch.equal(found.states, hidden[places])
    assert found.labels.tolist() == pytest.approx(
        [chance for chance, each in zip(one.p_acc, drawn, strict=True) if each]
    )


def test_parts_do_not_overlap(samples: list[Sample]) -> None:
    parts = split(samples, 0)
    assert sum(len(part) for part in parts) == len(samples) and all(parts)
    assert len({id(one) for part in parts for one in part}) == len(samples)
    with pytest.raises(SampleError, match="2 answers: at least three are needed"):
        split(samples[:2], 0)


@pytest.mark.parametrize("tied", [False, True])
def test_a_trained_head_beats_an_untrained_one(
    samples: list[Sample], models: tuple[TorchTarget, TorchTarget], tmp_path: Path, tied: bool
) -> None:
    """On answers that were held out; what is learnt is nothing that is copied."""
    said: list[str] = []
    train(samples, models[1], tmp_path, PLAN, 2, tied, report=said.append)
    record = json.loads((tmp_path / "report.json").read_text())
    assert record["kl"] < 0.9 * record["kl_untrained"]
    assert record["loss"] < 0.9 * record["loss_untrained"]
    assert record["losses"][-1] < record["losses"][0]
    assert 0 <= record["ece"] <= 1 and len(record["losses"]) == len(record["held_out"])
    for name in ("loss.svg", "reliability.svg"):
        assert (tmp_path / name).read_text().endswith("</svg>\n")
    assert said[-1].startswith("held out: KL ")


def test_a_head_learns_what_can_be_learnt() -> None:
    """A refusal that one value of the state decides."""
    noise = generator(0, 0)
    states = torch.randn(2000, 8, generator=noise)
    data = AcceptanceLessons(states, (states[:, 0] > 0).float())
    head = untrained_head(8, 2, False, 0)
    before = calibration(head.accepted(data.states), data.labels)
    optimizer = torch.optim.AdamW(head.parameters(), 1e-2)
    for _ in range(150):
        optimizer.zero_grad()
        weighted_loss(head(data.states), data.labels, 6.0).backward()
        optimizer.step()
    after = calibration(head.accepted(data.states), data.labels)
    assert after.kl < 0.1 * before.kl and after.ece < 0.1


def test_a_killed_training_makes_the_same_head(
    samples: list[Sample], models: tuple[TorchTarget, TorchTarget], place: Path, tmp_path: Path
) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    train(samples, models[1], whole, PLAN)
    with pytest.raises(Killed):
        train(samples, models[1], killed, PLAN, report=kill_at("epoch 3 of"))
    assert not (killed / "config.json").exists()
    said: list[str] = []
    train(load_samples(place / "samples.jsonl"), models[1], killed, PLAN, report=said.append)
    assert any(line.startswith("resuming at step") for line in said)
    for name in ("model.safetensors", "config.json", "report.json", "loss.svg"):
        assert (whole / name).read_bytes() == (killed / name).read_bytes(), name
