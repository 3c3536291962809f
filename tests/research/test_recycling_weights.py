"""What a model's own table is worth: the model is asked, and only that table's weights learn."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from engine import Config
from engine.drafting._drafting import Ngram, Recycling, Weights
from engine.drafting.drafter_weights import WEIGHT_KINDS, load_weights
from engine.drafting.methods.token_recycling import WIDTH
from engine.drafting.vocabulary import vocabulary
from engine.model.torch_target import TorchTarget
from engine.prompts.tokenizer import Tokenizer
from engine.research.train.recycling_weights import (
    RecordedAnswer,
    ask,
    fit,
    go_through,
)
from engine.research.train.sample_file import SampleError, read_questions
from tests.cli.test_train import run
from tests.conftest import tiny_model
from tests.support.training import make_place

QUESTIONS = ["Add left and right.", "What is a Point?", "Sum three of them."]
NOTHING = Ngram()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_place(tmp_path_factory.mktemp("answers"), tiny_model)


@pytest.fixture(scope="module")
def tokenizer(place: Path) -> Tokenizer:
    return Tokenizer(place / "model")


@pytest.fixture(scope="module")
def answers(place: Path, tokenizer: Tokenizer) -> list[RecordedAnswer]:
    target = TorchTarget(place / "model", Config(model=str(place / "model"), dtype="f32"))
    return ask(QUESTIONS, target, tokenizer, length=24)


def of_the_table() -> np.ndarray:
    """Which weights are the table's."""
    found = np.zeros(len(np.asarray(Weights().values)), bool)
    for start, stop in Weights.recycling():
        found[start:stop] = True
    return found


def test_the_model_said_itself_what_it_held_likely(answers: list[RecordedAnswer]) -> None:
    assert len(answers) == len(QUESTIONS) and any(len(one.tokens) > 8 for one in answers)
    for one in answers:
        assert one.ids.shape == one.logits.shape == (len(one.tokens), WIDTH)
        assert one.ids[:, 0].tolist() == one.tokens
        assert (np.diff(one.logits, axis=1) <= 0).all()


def test_only_the_tables_weights_learn_and_they_lower_the_bits(
    answers: list[RecordedAnswer], tokenizer: Tokenizer
) -> None:
    words = vocabulary(tokenizer)
    weights = {kind: Weights() for kind in WEIGHT_KINDS}
    chance = np.random.default_rng(0)
    for kind in WEIGHT_KINDS:
        weights[kind].values[:] = chance.normal(size=len(weights[kind].values)) * 0.1
    before = {kind: np.array(weights[kind].values) for kind in WEIGHT_KINDS}
    fit(answers, words, NOTHING, weights, 400)
    table = of_the_table()
    for kind in WEIGHT_KINDS:
        assert (weights[kind].values[~table] == before[kind][~table]).all()
    assert (weights["file"].values[table] == weights["hunk"].values[table]).all()
    assert weights["hunk"].values[table].any()
    bits = []
    for values in (before["hunk"], np.array(weights["hunk"].values)):
        rows = Recycling(400)
        bits.append(sum(go_through(one, words, NOTHING, Weights(values), rows) for one in answers))
    assert bits[1] < 0.8 * bits[0]


@pytest.mark.full
def test_the_command_learns_it_and_later_keeps_it(place: Path, tmp_path: Path) -> None:
    """Without --questions the weights in use say it; with them the model does, the same twice."""
    file = tmp_path / "questions.jsonl"
    file.write_text("".join(json.dumps({"prompt": one}) + "\n" for one in QUESTIONS))
    made = []
    for n in range(2):
        out = tmp_path / f"{n}.safetensors"
        done = run(place, tmp_path, "--out", out, "--rounds", "1", "--questions", file)
        assert done.returncode == 0, done.stderr.decode()
        assert f"question 3 of {len(QUESTIONS)}: " in done.stderr.decode()
        made.append(out.read_bytes())
    assert made[0] == made[1]
    kept = tmp_path / "kept.safetensors"
    assert run(place, tmp_path, "--out", kept, "--rounds", "1").returncode == 0
    table, shipped = of_the_table(), load_weights()["hunk"].values
    learnt = load_weights(tmp_path / "0.safetensors")
    for kind, weights in load_weights(kept).items():
        assert (weights.values[table] == shipped[table]).all()
        assert (weights.values[~table] == learnt[kind].values[~table]).all()
        assert (learnt[kind].values[table] != shipped[table]).any()


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
def test_bad_questions_get_one_line(place: Path, tmp_path: Path, text: str, why: str) -> None:
    file = tmp_path / "q.jsonl"
    file.write_text(text)
    with pytest.raises(SampleError, match=why) as caught:
        read_questions(file)
    assert str(caught.value).startswith(str(file)) and "\n" not in str(caught.value)


def test_questions_that_are_not_there_get_one_line(place: Path, tmp_path: Path) -> None:
    done = run(place, tmp_path, "--questions", "nowhere.jsonl", "--out", "w")
    assert done.returncode == 2
    (line,) = done.stderr.decode().splitlines()
    assert line.startswith("draftline: nowhere.jsonl: unreadable: No such file")
    assert not (tmp_path / "w").exists()
