"""Pieces of files that heads learn from: which files, how many, the same ones for a seed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from engine.research.train import acceptance_data
from engine.research.train.loop import generator
from engine.research.train.sample_file import SampleError
from engine.research.train.self_distill import TrainingText
from engine.research.train.source_chunks import MAX_CHUNKS_PER_FILE, source_chunks
from tests.conftest import CORPUS
from tests.support.drafters import toy_tokenizer
from tests.support.heads import pair

CODE = "".join(CORPUS)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two texts, one of them ignored by git; a short one, a secret and a binary."""
    place = tmp_path / "package"
    place.mkdir()
    for number, name in enumerate(("a.py", "b.py")):
        (place / name).write_text(f"# {number}\n" + CODE * 9)
    (place / ".gitignore").write_text("b.py\n")
    (place / "short.py").write_text("x = 1\n")
    (place / ".env").write_text(CODE * 9)
    (place / "data.bin").write_bytes(b"\0" + CODE.encode() * 9)
    return place


def test_pieces_are_of_the_texts(folder: Path) -> None:
    """Whole runs of a file's tokens, a few of each file, the first of them only to be read."""
    tokenizer, said, known = toy_tokenizer(), list[str](), list[list[int]]()
    for name in ("a.py", "b.py"):
        text = tokenizer.encode((folder / name).read_text())
        known += [text[at : at + 40] for at in range(0, len(text), 40)]
    found = source_chunks([folder], tokenizer, 99, 40, report=said.append)
    assert len(found) == 2 * MAX_CHUNKS_PER_FILE and said == ["8 pieces of 2 files"]
    for one in found:
        whole = one.prefix + one.tokens
        assert whole in known and len(whole) > 20 and len(one.prefix) == len(whole) // 8
        known.remove(whole)  # none comes twice


def test_a_seed_draws_the_same_ones(folder: Path) -> None:
    tokenizer = toy_tokenizer()
    drawn = [source_chunks([folder], tokenizer, 5, 32, seed) for seed in (0, 0, 1)]
    assert drawn[0] == drawn[1] != drawn[2]
    assert all(len(one) == 5 for one in drawn)


def test_where_there_is_nothing_to_learn_from(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for place, why in (
        (tmp_path / "empty", "empty: no text of 16 tokens or more: give another folder"),
        (folder / "short.py", "short.py: not a folder; name one that exists"),
        (tmp_path / "gone", "gone: not a folder; name one that exists"),
    ):
        with pytest.raises(SampleError, match=why):
            source_chunks([place], toy_tokenizer(), 9, 32)


def test_what_a_draft_model_would_have_drawn_along_them(folder: Path, tmp_path: Path) -> None:
    """As beside a model's own answers; what is there is not made again."""
    models = pair(tmp_path)
    texts = source_chunks([folder], toy_tokenizer(), 3, 24)
    file, said = tmp_path / "pieces.jsonl", list[str]()
    made = acceptance_data.along(texts, *models, file, 4, said.append)
    for number, (text, sample) in enumerate(zip(texts, made, strict=True)):
        assert (sample.prefix, sample.tokens) == (text.prefix, text.tokens)
        alone = acceptance_data.label(text.prefix, text.tokens, *models, generator(4, number))
        assert sample == alone and 0 < min(sample.p_acc) <= max(sample.p_acc) <= 1
    assert [line.partition(":")[0] for line in said] == [f"text {n} of 3" for n in (1, 2, 3)]
    file.write_text("".join(f"{line}\n" for line in file.read_text().splitlines()[:3]))
    said.clear()
    assert acceptance_data.along(texts, *models, file, 4, said.append) == made
    assert len(said) == 1
    assert [one.draft for one in acceptance_data.load_samples(file)] == [one.draft for one in made]
    with pytest.raises(SampleError, match="made from other questions or models: remove it"):
        acceptance_data.along([TrainingText([1], [2, 3])], *models, file, 4)
    assert json.loads(file.read_text().splitlines()[0])["seed"] == 4
