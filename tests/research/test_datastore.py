"""Building corpora from files and from the model's answers; interrupted runs resume."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from engine import Config, Engine, Request
from engine.model.torch.torch_target import TorchTarget
from engine.prompts.builder import prompt_of
from engine.prompts.tokenizer import Tokenizer
from research.methods.datastore import load
from research.train.datastore import from_answers, from_files, read_answers
from research.train.sample_file import SampleError, read_questions
from tests.support.command import draftline, one_line

QUESTIONS = ["What is a map?", "Write a loop."]


@pytest.fixture(scope="module")
def folder(tiny: Any) -> Path:
    model: Path = tiny()
    return model


@pytest.fixture(scope="module")
def tokenizer(folder: Path) -> Tokenizer:
    return Tokenizer(folder)


@pytest.fixture(scope="module")
def target(folder: Path) -> TorchTarget:
    return TorchTarget(folder, Config(model=str(folder), dtype="f32", threads=2))


# -- files --------------------------------------------------------------------------------------


def test_files_are_filtered_as_in_a_workspace(tmp_path: Path, tokenizer: Tokenizer) -> None:
    (tmp_path / "b.py").write_text("x = 1\n")
    (tmp_path / "a.py").write_text("def add(left, right):\n")
    (tmp_path / "c.bin").write_bytes(b"\0\1\2")
    (tmp_path / ".git").mkdir()
    (tmp_path / ".gitignore").write_text("d.py\n")
    (tmp_path / "d.py").write_text("ignored = 1\n")
    texts = [tokenizer.decode(ids.tolist()) for ids in from_files([tmp_path], tokenizer)]
    assert texts == ["d.py\n", "def add(left, right):\n", "x = 1\n"]


# -- prompts ---------------------------------------------------------------------------------------


def test_published_prompt_formats(tmp_path: Path) -> None:
    file = tmp_path / "prompts"
    records = [
        {"turns": ["first", "second"]},
        {"prompt": "a prompt"},
        {"question": "gsm8k's", "answer": "4"},
        {"instruction": "alpaca's", "input": "", "output": "x"},
        {"instruction": "with", "input": "an input", "output": "x", "prompt": ""},
    ]
    expected = ["first", "a prompt", "gsm8k's", "alpaca's", "with\n\nan input"]
    file.write_text("\n".join(json.dumps(record) for record in records) + "\n\n")
    assert read_questions(file) == expected
    file.write_text(json.dumps(records, indent=1))
    assert read_questions(file) == expected


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "contains no question"),
        ("[]", "contains no question"),
        ("nothing", "line 1: not JSON"),
        ('{"prompt": "x"}\n{', "line 2: not JSON"),
        ('{"prompt": "x"}\n{"text": "y"}', "line 2: no question"),
        ('[{"turns": []}]', "entry 1: no question"),
        ('[["x"]]', "entry 1: no question"),
        ('{"prompt": 3}', "entry 1: no question"),
    ],
)
def test_files_without_questions_are_refused(tmp_path: Path, text: str, why: str) -> None:
    file = tmp_path / "prompts"
    file.write_text(text)
    with pytest.raises(SampleError, match=why) as caught:
        read_questions(file)
    assert str(file) in str(caught.value) and "\n" not in str(caught.value)


# -- answers ------------------------------------------------------------------------------------


def test_documents_are_prompts_with_the_models_answers(
    tmp_path: Path, folder: Path, target: TorchTarget, tokenizer: Tokenizer, home: Path
) -> None:
    file = tmp_path / "answers"
    documents = from_answers(QUESTIONS, "tiny", target, tokenizer, file, 20)
    for number, (text, document) in enumerate(zip(QUESTIONS, documents, strict=True)):
        messages = ({"role": "user", "content": text},)
        request = Request(
            "chat", messages=messages, max_tokens=20, temperature=0.8, top_p=0.95, seed=number
        )
        ids = prompt_of(request, tokenizer).ids
        assert document[: len(ids)].tolist() == ids and 1 <= len(document) - len(ids) <= 20
        config = Config(model=str(folder), dtype="f32", threads=2, library=False)
        with Engine(config) as engine:
            answer = engine.submit(request, speculation=False).result()
        assert tokenizer.decode(document[len(ids) :].tolist()) == answer.text


def test_answers_are_reused(tmp_path: Path, target: TorchTarget, tokenizer: Tokenizer) -> None:
    """Even after an interruption in the middle of a line, but not with another seed or model."""
    file, reported = tmp_path / "answers", list[str]()

    def answers(model: str = "tiny", seed: int = 0) -> list[list[int]]:
        reported.clear()
        documents = from_answers(
            QUESTIONS, model, target, tokenizer, file, 12, seed, reported.append
        )
        return [document.tolist() for document in documents]

    first = answers()
    assert len(reported) == 2 and len(read_answers(file)) == 2
    assert answers() == first and not reported
    complete = file.read_bytes()
    file.write_bytes(complete[:-9])
    assert answers() == first and len(reported) == 1 and "prompt 2 of 2" in reported[0]
    assert answers() == first and not reported
    file.write_bytes(b'\xff\n{"key": 3}\n[[[[\n{"key": "x", "tokens": [-1]}\n' + complete)
    assert answers() == first and not reported
    assert answers(seed=9) != first and len(reported) == 2
    answers("other")
    assert len(reported) == 2


def test_prompts_that_do_not_fit_are_skipped(
    tmp_path: Path, target: TorchTarget, tokenizer: Tokenizer
) -> None:
    reported: list[str] = []
    questions, file = ["x" * 5000, "short"], tmp_path / "answers"
    documents = from_answers(questions, "tiny", target, tokenizer, file, 4, report=reported.append)
    assert len(documents) == 1 and "prompt 1 of 2: skipped: the prompt has" in reported[0]


# -- the command -----------------------------------------------------------------------------------


@pytest.mark.full
def test_train_corpus_command(tmp_path: Path, folder: Path, tokenizer: Tokenizer) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "a.py").write_text("def add(left, right):\n    return left\n")
    (tmp_path / "prompts.jsonl").write_text('{"prompt": "What?"}\n')
    command = ["train", "corpus", "--model", folder, "--out", "corpus"]
    options = ["--files", "src", "--prompts", "prompts.jsonl", "--max-tokens", "9"]
    result = draftline(tmp_path, *command, *options)
    assert result.returncode == 0, result.stderr.decode()
    assert result.stdout.decode().startswith("corpus: 2 texts, ")
    assert b"prompt 1 of 1: " in result.stderr
    corpus = load(tmp_path / "corpus", tokenizer.fingerprint, 1 << 20)
    ids = tokenizer.encode("def add(left, right):\n    return left\n")
    assert corpus.after(ids[:5], 3) == (5, ids[5:8])
    again = draftline(tmp_path, *command, *options)
    assert again.stdout == result.stdout and b"prompt 1 of 1: " not in again.stderr


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ([], "no texts: give --files DIR or --prompts FILE"),
        (["--files", "gone"], "gone: not a folder: name"),
        (["--prompts", "gone"], "gone: unreadable: No such file or directory: give"),
        (["--files", ".", "--max-tokens", "0"], "--max-tokens 0: no answers: give 1 or more"),
        (["--files", ".", "--out", "."], ".: a folder: name a file in it"),
    ],
)
def test_bad_options_are_reported_in_one_line(tmp_path: Path, options: list[str], why: str) -> None:
    result = draftline(tmp_path, "train", "corpus", "--out", "corpus", *options)
    assert result.returncode == 2 and why in one_line(result)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_without_text_is_refused(tmp_path: Path, folder: Path) -> None:
    (tmp_path / "src").mkdir()
    line = ["train", "corpus", "--out", "corpus", "--files", "src", "--model", folder]
    result = draftline(tmp_path, *line)
    assert result.returncode == 2 and "src: no usable text in it" in one_line(result)
    assert not (tmp_path / "corpus").exists()
