"""Fitting the weights of the Token Recycling source on a model's answers, and no others."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from engine import Config
from engine.drafting._drafting import Ngram, Recycling, Weights
from engine.drafting.drafter_weights import WEIGHT_KINDS, load_weights
from engine.drafting.recycling import WIDTH
from engine.drafting.vocabulary import vocabulary
from engine.model.torch.torch_target import TorchTarget
from engine.prompts.tokenizer import Tokenizer
from research.train.recycling_weights import (
    RecordedAnswer,
    ask,
    fit,
    replay_answer,
)
from research.train.sample_file import SampleError, read_questions
from tests.conftest import tiny_model
from tests.research.test_train_command import run
from tests.support.training import make_place

QUESTIONS = ["Add left and right.", "What is a Point?", "Sum three of them."]
EMPTY_NGRAM = Ngram()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_place(tmp_path_factory.mktemp("answers"), tiny_model)


@pytest.fixture(scope="module")
def tokenizer(folder: Path) -> Tokenizer:
    return Tokenizer(folder / "model")


@pytest.fixture(scope="module")
def answers(folder: Path, tokenizer: Tokenizer) -> list[RecordedAnswer]:
    target = TorchTarget(folder / "model", Config(model=str(folder / "model"), dtype="f32"))
    return ask(QUESTIONS, target, tokenizer, length=24)


def recycling_mask() -> np.ndarray:
    """Which weights belong to the recycling source."""
    mask = np.zeros(len(np.asarray(Weights().values)), bool)
    for start, stop in Weights.recycling():
        mask[start:stop] = True
    return mask


def test_recorded_answers_hold_the_most_likely_tokens(answers: list[RecordedAnswer]) -> None:
    assert len(answers) == len(QUESTIONS) and any(len(answer.tokens) > 8 for answer in answers)
    for answer in answers:
        assert answer.ids.shape == answer.logits.shape == (len(answer.tokens), WIDTH)
        assert answer.ids[:, 0].tolist() == answer.tokens
        assert (np.diff(answer.logits, axis=1) <= 0).all()


def test_fit_changes_only_the_sources_weights_and_lowers_the_loss(
    answers: list[RecordedAnswer], tokenizer: Tokenizer
) -> None:
    vocab = vocabulary(tokenizer)
    weights = {kind: Weights() for kind in WEIGHT_KINDS}
    rng = np.random.default_rng(0)
    for kind in WEIGHT_KINDS:
        weights[kind].values[:] = rng.normal(size=len(weights[kind].values)) * 0.1
    before = {kind: np.array(weights[kind].values) for kind in WEIGHT_KINDS}
    fit(answers, vocab, EMPTY_NGRAM, weights, 400)
    mask = recycling_mask()
    for kind in WEIGHT_KINDS:
        assert (weights[kind].values[~mask] == before[kind][~mask]).all()
    assert (weights["file"].values[mask] == weights["hunk"].values[mask]).all()
    assert weights["hunk"].values[mask].any()
    bits = []
    for values in (before["hunk"], np.array(weights["hunk"].values)):
        table = Recycling(400)
        bits.append(
            sum(
                replay_answer(answer, vocab, EMPTY_NGRAM, Weights(values), table)
                for answer in answers
            )
        )
    assert bits[1] < 0.8 * bits[0]


@pytest.mark.full
def test_the_command_fits_the_weights_or_keeps_the_shipped_ones(
    folder: Path, tmp_path: Path
) -> None:
    """With --questions they are fitted, reproducibly; without, the shipped ones are kept."""
    file = tmp_path / "questions.jsonl"
    file.write_text("".join(json.dumps({"prompt": question}) + "\n" for question in QUESTIONS))
    outputs = []
    for n in range(2):
        out = tmp_path / f"{n}.safetensors"
        result = run(folder, tmp_path, "--out", out, "--rounds", "1", "--questions", file)
        assert result.returncode == 0, result.stderr.decode()
        assert f"question 3 of {len(QUESTIONS)}: " in result.stderr.decode()
        outputs.append(out.read_bytes())
    assert outputs[0] == outputs[1]
    kept = tmp_path / "kept.safetensors"
    assert run(folder, tmp_path, "--out", kept, "--rounds", "1").returncode == 0
    mask, shipped = recycling_mask(), load_weights()["hunk"].values
    fitted = load_weights(tmp_path / "0.safetensors")
    for kind, weights in load_weights(kept).items():
        assert (weights.values[mask] == shipped[mask]).all()
        assert (weights.values[~mask] == fitted[kind].values[~mask]).all()
        assert (fitted[kind].values[mask] != shipped[mask]).any()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "contains no question: give another file"),
        ("[]\n", "contains no question: "),
        ('{"prompt": "a"}\n{"turns": []}\n', "line 2: "),
        ('{"prompt": 3}\n', "entry 1: no question"),
        ("{", "line 1: "),
    ],
)
def test_bad_questions_are_reported_in_one_line(
    folder: Path, tmp_path: Path, text: str, why: str
) -> None:
    file = tmp_path / "q.jsonl"
    file.write_text(text)
    with pytest.raises(SampleError, match=why) as caught:
        read_questions(file)
    assert str(caught.value).startswith(str(file)) and "\n" not in str(caught.value)


def test_a_missing_file_of_questions_is_reported_in_one_line(folder: Path, tmp_path: Path) -> None:
    result = run(folder, tmp_path, "--questions", "nowhere.jsonl", "--out", "w")
    assert result.returncode == 2
    (line,) = result.stderr.decode().splitlines()
    assert line.startswith("draftline: nowhere.jsonl: unreadable: No such file")
    assert not (tmp_path / "w").exists()
