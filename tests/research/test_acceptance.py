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

from engine.model.torch.torch_target import TorchTarget
from engine.prompts.tokenizer import Tokenizer
from engine.records import Draft
from research.train.acceptance import (
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
from research.train.acceptance_data import Sample, label, load_samples, make
from research.train.loop import TrainingPlan, generator
from research.train.sample_file import SampleError
from research.train.teacher_forcing import CHUNK_ROWS, forced_rows, hidden_states
from tests.support.heads import QUESTIONS, Killed, kill_at, pair

PLAN = TrainingPlan(epochs=6, batch=64, rate=3e-3, seed=3)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("acceptance")


@pytest.fixture(scope="module")
def models(folder: Path) -> tuple[TorchTarget, TorchTarget]:
    return pair(folder, 0.3)


@pytest.fixture(scope="module")
def samples(folder: Path, models: tuple[TorchTarget, TorchTarget]) -> list[Sample]:
    return make(QUESTIONS, *models, Tokenizer(folder / "model"), folder / "samples.jsonl", 100)


def sequential(model: TorchTarget, ids: list[int]) -> tuple[Any, Any]:
    """Logits and hidden states, one row per pass: what `forced_rows` must give."""
    model.begin(ids[:1], len(ids))
    rows = []
    for token in ids:
        rows.append(model.forward(token, Draft(), hidden=True))
        model.keep([])
    return torch.cat([row.logits for row in rows]), torch.cat([row.hidden for row in rows])


@pytest.mark.parametrize("first", [0, 5])
def test_forced_rows_equal_sequential_decoding(
    models: tuple[TorchTarget, TorchTarget], first: int
) -> None:
    ids = [3 + n * 7 % 200 for n in range(2 * CHUNK_ROWS + 3)]
    logits, hidden = sequential(models[0], ids)
    chunks = list(forced_rows(models[0], ids, first))
    starts = [first, first + CHUNK_ROWS, first + 2 * CHUNK_ROWS]
    assert [row for row, _, _ in chunks] == starts[: len(chunks)]
    assert torch.equal(torch.cat([part for _, part, _ in chunks]), logits[first:])
    assert torch.equal(hidden_states(models[0], ids, first), hidden[first:])


# -- data ------------------------------------------------------------------------------------------


def test_samples_hold_the_scores_of_both_models(
    samples: list[Sample], models: tuple[TorchTarget, TorchTarget]
) -> None:
    """Compared with rows that are computed one at a time."""
    model, draft = models
    for sample in samples[:3]:
        assert len(sample.tokens) == len(sample.draft) == len(sample.p_acc) > 0
        ids, first = [*sample.prefix, *sample.tokens], len(sample.prefix) - 1
        for scorer, scores in ((model, sample.log_p), (draft, sample.log_q)):
            log_probs = sequential(scorer, ids)[0].log_softmax(-1)
            expected = [float(log_probs[first + n, token]) for n, token in enumerate(sample.draft)]
            assert scores == pytest.approx(expected, abs=1e-5)
        for p_acc, log_p, log_q in zip(sample.p_acc, sample.log_p, sample.log_q, strict=True):
            assert p_acc == pytest.approx(min(1.0, math.exp(log_p - log_q)), abs=1e-5)
    p_acc_values = [p_acc for sample in samples for p_acc in sample.p_acc]
    assert 0.2 < sum(p_acc_values) / len(p_acc_values) < 0.95


def test_draft_tokens_follow_the_draft_models_distribution(
    models: tuple[TorchTarget, TorchTarget],
) -> None:
    prefix, counts = [3, 4], dict.fromkeys(range(models[1].vocab), 0)
    for seed in range(300):
        sample = label(prefix, [5], *models, generator(seed, 0))
        counts[sample.draft[0]] += 1
    probs = sequential(models[1], prefix)[0][-1].softmax(-1)
    best = int(probs.argmax())
    assert counts[best] / 300 == pytest.approx(float(probs[best]), abs=0.1)


def test_interrupted_sample_generation_resumes(
    samples: list[Sample], models: tuple[TorchTarget, TorchTarget], folder: Path, tmp_path: Path
) -> None:
    """Interrupted in the middle of a line, it resumes and writes the same file."""
    whole = (folder / "samples.jsonl").read_bytes()
    lines = whole.split(b"\n")
    partial = tmp_path / "samples.jsonl"
    partial.write_bytes(b"\n".join(lines[:5]) + b"\n" + lines[5][:40])
    reported: list[str] = []
    tokenizer = Tokenizer(folder / "model")
    resumed = make(QUESTIONS, *models, tokenizer, partial, 100, report=reported.append)
    assert resumed == samples and partial.read_bytes() == whole
    assert reported[0].startswith("answer 5 of 12: ") and len(reported) == 8
    with pytest.raises(SampleError, match="made from other questions or models: remove it"):
        make(QUESTIONS[1:], *models, tokenizer, partial, 100)


def test_load_samples(samples: list[Sample], folder: Path, tmp_path: Path) -> None:
    """Our files, and published ones: a JSON list whose records may store lists as text."""
    ours = load_samples(folder / "samples.jsonl")
    assert [sample.p_acc for sample in ours if sample.tokens] == [s.p_acc for s in samples]
    names = ("prefix", "tokens", "draft", "p_acc")
    records = [{name: getattr(sample, name) for name in names} for sample in samples]
    for number, form in enumerate((lambda value: value, str)):
        file = tmp_path / f"{number}.json"
        file.write_text(json.dumps([{k: form(v) for k, v in each.items()} for each in records]))
        assert [loaded.draft for loaded in load_samples(file)] == [s.draft for s in samples]


@pytest.mark.parametrize(
    ("text", "message"),
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
def test_bad_files_are_reported_in_one_line(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "data.json"
    file.write_text(text)
    with pytest.raises(SampleError, match=message) as caught:
        load_samples(file)
    assert str(file) in str(caught.value) and "\n" not in str(caught.value)


# -- training --------------------------------------------------------------------------------------


def test_weighted_loss_by_hand() -> None:
    """Values computed by hand."""
    logits = torch.tensor([[0.1, 0.9], [0.6, 0.4]]).log()
    assert float(weighted_loss(logits, torch.tensor([1.0, 0.25]), 6)) == pytest.approx(
        0.457939, abs=1e-6
    )


@given(st.floats(0.01, 0.99), st.floats(0.5, 20))
def test_undo_weight(chance: float, weight: float) -> None:
    """The prediction that minimises the weighted loss for a true `chance` maps back to it."""
    predictions = torch.linspace(0.0005, 0.9995, 1000, dtype=torch.float64)
    losses = -(weight * (1 - chance) * (1 - predictions).log() + chance * predictions.log())
    best = predictions[int(losses.argmin())]
    assert float(undo_weight(best, weight)) == pytest.approx(chance, abs=0.02)


probabilities = st.lists(st.floats(0, 1), min_size=1, max_size=30)


@given(probabilities, st.randoms(use_true_random=False))
def test_calibration_by_definition(labels: list[float], rng: Any) -> None:
    predictions = [rng.uniform(0.01, 0.99) for _ in labels]
    measured = calibration(torch.tensor(predictions), torch.tensor(labels))

    def kl_term(p: float, q: float) -> float:
        return 0.0 if p == 0 else p * math.log(p / q)

    kl = [kl_term(p, q) + kl_term(1 - p, 1 - q) for p, q in zip(labels, predictions, strict=True)]
    assert measured.kl == pytest.approx(sum(kl) / len(kl), abs=1e-4)
    assert sum(count for *_, count in measured.bins) == len(labels) and 0 <= measured.ece <= 1
    perfect = calibration(torch.tensor(labels), torch.tensor(labels))
    assert perfect.kl == pytest.approx(0, abs=1e-6) and perfect.ece == pytest.approx(0, abs=1e-6)


def test_mixing_keeps_a_share_of_the_answer() -> None:
    sample = Sample([1], [5] * 2000, [6] * 2000, [0.5] * 2000, [], [])
    tokens, drawn = mix_tokens(sample, 0.15, generator(0, 0))
    assert tokens == [6 if from_draft else 5 for from_draft in drawn]
    assert 250 < drawn.count(False) < 350
    assert mix_tokens(sample, 0.0, generator(0, 0)) == ([6] * 2000, [True] * 2000)
    assert mix_tokens(sample, 1.0, generator(0, 0))[1] == [False] * 2000


def test_lessons_use_the_states_at_draft_tokens(
    samples: list[Sample], models: tuple[TorchTarget, TorchTarget]
) -> None:
    draft, sample = models[1], samples[0]
    found = lessons([sample], draft, 0.3, seed=4)
    tokens, drawn = mix_tokens(sample, 0.3, generator(4, 0))
    _, hidden = sequential(draft, [*sample.prefix, *tokens])
    positions = [len(sample.prefix) + n for n, from_draft in enumerate(drawn) if from_draft]
    assert 0 < len(positions) < len(tokens)
    assert torch.equal(found.states, hidden[positions])
    assert found.labels.tolist() == pytest.approx(
        [p_acc for p_acc, from_draft in zip(sample.p_acc, drawn, strict=True) if from_draft]
    )


def test_split_parts_do_not_overlap(samples: list[Sample]) -> None:
    parts = split(samples, 0)
    assert sum(len(part) for part in parts) == len(samples) and all(parts)
    assert len({id(sample) for part in parts for sample in part}) == len(samples)
    with pytest.raises(SampleError, match="2 answers: at least three are needed"):
        split(samples[:2], 0)


@pytest.mark.parametrize("tied", [False, True])
def test_a_trained_head_beats_an_untrained_one(
    samples: list[Sample], models: tuple[TorchTarget, TorchTarget], tmp_path: Path, tied: bool
) -> None:
    """On held-out answers."""
    reported: list[str] = []
    train(samples, models[1], tmp_path, PLAN, 2, tied, report=reported.append)
    record = json.loads((tmp_path / "report.json").read_text())
    assert record["kl"] < 0.9 * record["kl_untrained"]
    assert record["loss"] < 0.9 * record["loss_untrained"]
    assert record["losses"][-1] < record["losses"][0]
    assert 0 <= record["ece"] <= 1 and len(record["losses"]) == len(record["held_out"])
    for name in ("loss.svg", "reliability.svg"):
        assert (tmp_path / name).read_text().endswith("</svg>\n")
    assert reported[-1].startswith("held out: KL ")


def test_a_head_learns_a_learnable_rule() -> None:
    """Acceptance that depends on one value of the state."""
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


def test_an_interrupted_training_makes_the_same_head(
    samples: list[Sample], models: tuple[TorchTarget, TorchTarget], folder: Path, tmp_path: Path
) -> None:
    complete, interrupted = tmp_path / "complete", tmp_path / "interrupted"
    train(samples, models[1], complete, PLAN)
    with pytest.raises(Killed):
        train(samples, models[1], interrupted, PLAN, report=kill_at("epoch 3 of"))
    assert not (interrupted / "config.json").exists()
    reported: list[str] = []
    train(
        load_samples(folder / "samples.jsonl"), models[1], interrupted, PLAN, report=reported.append
    )
    assert any(line.startswith("resuming at step") for line in reported)
    for name in ("model.safetensors", "config.json", "report.json", "loss.svg"):
        assert (complete / name).read_bytes() == (interrupted / name).read_bytes(), name
