"""`draftline train` of heads: what it writes, that it resumes, and its errors."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest

from research.commands.train_heads import fraction, positive_number
from research.methods import sdsat
from research.methods.eagle_head import EagleHead
from research.methods.head_checkpoint import CheckpointError
from research.methods.specdec import AcceptanceHead
from tests.conftest import CORPUS, byte_bpe
from tests.support.command import draftline, draftline_process, environment, one_line
from tests.support.heads import QUESTIONS, killed_at, pair
from ui.cli.options import positive

SMALL = ("--length", "24", "--epochs", "3", "--layers", "1", "--batch", "16")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("heads")
    pair(folder)
    lines = [json.dumps({"prompt": text}) for text in QUESTIONS]
    (folder / "questions.jsonl").write_text("\n".join(lines))
    return folder


def options(out: str, *more: str) -> list[str]:
    given = ["--model", "./model", "--draft-model", "./other", "--questions", "questions.jsonl"]
    return ["train", "acceptance-head", "--out", out, *given, *SMALL, *more]


@pytest.mark.full
def test_a_killed_training_resumes_to_the_same_head(place: Path) -> None:
    """Killed while the head learns; test_acceptance.py kills while the model answers. All runs are
    processes: rounding depends on the number of threads."""
    whole = draftline_process(place, *options("whole"))
    assert whole.returncode == 0, whole.stderr.decode()
    assert whole.stdout.decode().startswith("whole: an acceptance head for ./other; report.json")
    reported = whole.stderr.decode()
    assert (
        "draftline: answer 12 of 12: " in reported and "draftline: epoch 3 of 3: loss " in reported
    )
    command = f"sys.exit(main({options('killed')!r}))"
    code = f"sys.stderr = sys.stdout\nfrom ui.cli.main import main\n{command}"
    killed_at(code, "epoch 1 of 3", place, DRAFTLINE_HOME=environment(place)["DRAFTLINE_HOME"])
    assert not (place / "killed" / "config.json").exists()
    again = draftline_process(place, *options("killed"))
    assert again.returncode == 0 and b"of 12: " not in again.stderr
    assert b"resuming at step" in again.stderr
    names = {path.name for path in (place / "whole").iterdir()}
    assert names == {
        "config.json", "model.safetensors", "report.json", "loss.svg", "reliability.svg",
        "samples.jsonl", "work",
    }  # fmt: skip
    for name in names - {"work"}:
        assert (place / "whole" / name).read_bytes() == (place / "killed" / name).read_bytes()
    head = AcceptanceHead.load(place / "whole", place / "other", 32)
    assert head.layers == 1 and not head.tied
    data = draftline(
        place, "train", "acceptance-head", "--out", "data", "--draft-model", "./other", *SMALL,
        "--data", "whole/samples.jsonl", "--tied",
    )  # fmt: skip
    assert data.returncode == 0, data.stderr.decode()
    assert AcceptanceHead.load(place / "data", place / "other", 32).tied
    other = draftline(place, *options("whole", "--seed", "5"))
    assert other.returncode == 2
    assert "samples.jsonl: made from other questions or models: remove it" in one_line(other)


@pytest.mark.full
def test_an_eagle_head_and_adaptive_tokens(place: Path) -> None:
    """The second from the answers that were made for the first."""
    settings = json.loads((place / "model" / "config.json").read_text())
    made = draftline(
        place, "train", "eagle-head", "--out", "eagle", "--model", "./model", "--epochs", "1",
        "--questions", "questions.jsonl", "--length", "12", "--seed", "4",
    )  # fmt: skip
    assert made.returncode == 0, made.stderr.decode()
    assert made.stdout.decode().startswith("eagle: an EAGLE head for ./model; report.json says")
    EagleHead.load(place / "eagle", place / "model", settings)
    with pytest.raises(CheckpointError, match="contains 'eagle head', expected 'acceptance head'"):
        AcceptanceHead.load(place / "eagle", place / "model", 32)
    made = draftline(
        place, "train", "adaptive-tokens", "--out", "tokens", "--model", "./model", "--epochs", "1",
        "--data", "eagle/samples.jsonl", "--slots", "3", "--tokens", "2",
    )  # fmt: skip
    assert made.returncode == 0, made.stderr.decode()
    assert made.stdout.decode().startswith("tokens: adaptive tokens for ./model; report.json says")
    assert sdsat.load(place / "tokens", place / "model", 32).shape == (2, 32)


@pytest.mark.full
def test_heads_train_on_folders(place: Path) -> None:
    """Alone, and together with the model's answers."""
    (place / "package").mkdir()
    for number in range(6):
        (place / "package" / f"{number}.py").write_text(f"# {number}\n" + "".join(CORPUS))
    files = ["--files", "package", "--pieces", "5", "--epochs", "1", "--length", "24"]
    made = draftline(place, "train", "eagle-head", "--out", "e", "--model", "./model", *files)
    assert made.returncode == 0, made.stderr.decode()
    assert b"5 pieces of " in made.stderr and b"read 5 of 5 answers" in made.stderr
    assert not (place / "e" / "samples.jsonl").exists()
    made = draftline(place, *options("both", *files))
    assert made.returncode == 0, made.stderr.decode()
    reported = made.stderr.decode()
    assert "answer 12 of 12: " in reported and "text 5 of 5: " in reported
    names = {path.name for path in (place / "both").iterdir()}
    assert {"samples.jsonl", "pieces.jsonl", "model.safetensors"} <= names


@pytest.mark.full
def test_errors(place: Path, tmp_path: Path) -> None:
    wrong = place / "wrong"
    if not wrong.exists():
        wrong.mkdir()
        for file in (place / "other").iterdir():
            (wrong / file.name).write_bytes(file.read_bytes())
        byte_bpe(wrong, 290)
    long = [json.dumps({"prompt": text}) for text in ("x", "left right " * 400)]
    (place / "long.jsonl").write_text("\n".join(long))
    cases = [
        (["--draft-model", "./wrong"], 2, "./wrong cannot draft for ./model: their tokenizers"),
        (["--questions", "none.jsonl"], 2, "none.jsonl: unreadable: No such file or directory"),
        (["--questions", "model/model.safetensors"], 2, "model.safetensors: unreadable: 'utf-8'"),
        (["--questions", "long.jsonl"], 2, "question 2: the prompt has "),
        (["--draft-model", "./nowhere"], 3, "nowhere"),
        (["--layers", "-1"], 2, "--layers -1: give 0 or more"),
    ]
    for given, code, complaint in cases:
        result = draftline(place, *options(str(tmp_path / "out"), *given))
        assert result.returncode == code, result.stderr.decode()
        *progress, last = result.stderr.decode().splitlines()
        assert complaint in last and all("answer 1 of" in line for line in progress)
    given = ["train", "eagle-head", "--model", "./model", "--data", "none.jsonl"]
    result = draftline(place, *given, "--out", str(tmp_path / "out"), "--files", ".")
    assert result.returncode == 2 and "--files with --data: leave out one" in one_line(result)
    result = draftline(place, *given, "--out", str(tmp_path / "out"))
    assert result.returncode == 2
    assert "none.jsonl: unreadable: No such file or directory" in one_line(result)
    result = draftline(place, *options(str(tmp_path / "out"), "--mixing", "2"))
    assert result.returncode == 2 and b"2: give a number from 0 to 1" in result.stderr


def test_numbers() -> None:
    for read, good, bad in (
        (positive, "3", "0"),
        (fraction, "0", "1.1"),
        (positive_number, "0.5", "nan"),
    ):
        assert read(good) == float(good)
        for text in (bad, "x", "-1"):
            with pytest.raises(argparse.ArgumentTypeError, match=f"^{text}: give a "):
                read(text)
