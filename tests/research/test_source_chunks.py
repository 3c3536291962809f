"""Training texts from source files: which files, how many chunks, reproducible draws."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from research.train import acceptance_data
from research.train.loop import generator
from research.train.sample_file import SampleError
from research.train.self_distill import TrainingText
from research.train.source_chunks import MAX_CHUNKS_PER_FILE, source_chunks
from tests.conftest import CORPUS
from tests.support.drafters import toy_tokenizer
from tests.support.heads import pair

CODE = "".join(CORPUS)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two usable files, one of them ignored by git; a short file, a secret and a binary."""
    package = tmp_path / "package"
    package.mkdir()
    for number, name in enumerate(("a.py", "b.py")):
        (package / name).write_text(f"# {number}\n" + CODE * 9)
    (package / ".gitignore").write_text("b.py\n")
    (package / "short.py").write_text("x = 1\n")
    (package / ".env").write_text(CODE * 9)
    (package / "data.bin").write_bytes(b"\0" + CODE.encode() * 9)
    return package


def test_chunks_come_from_the_files(folder: Path) -> None:
    """Consecutive tokens, a few chunks per file, each with a prefix that is not learned."""
    tokenizer, reported, expected = toy_tokenizer(), list[str](), list[list[int]]()
    for name in ("a.py", "b.py"):
        ids = tokenizer.encode((folder / name).read_text())
        expected += [ids[at : at + 40] for at in range(0, len(ids), 40)]
    chunks = source_chunks([folder], tokenizer, 99, 40, report=reported.append)
    assert len(chunks) == 2 * MAX_CHUNKS_PER_FILE and reported == ["8 pieces of 2 files"]
    for chunk in chunks:
        ids = chunk.prefix + chunk.tokens
        assert ids in expected and len(ids) > 20 and len(chunk.prefix) == len(ids) // 8
        expected.remove(ids)  # each chunk is drawn only once


def test_equal_seeds_draw_equal_chunks(folder: Path) -> None:
    tokenizer = toy_tokenizer()
    drawn = [source_chunks([folder], tokenizer, 5, 32, seed) for seed in (0, 0, 1)]
    assert drawn[0] == drawn[1] != drawn[2]
    assert all(len(chunks) == 5 for chunks in drawn)


def test_folders_without_usable_text_are_refused(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for path, why in (
        (tmp_path / "empty", "empty: no text of 16 tokens or more: give another folder"),
        (folder / "short.py", "short.py: not a folder; name one that exists"),
        (tmp_path / "gone", "gone: not a folder; name one that exists"),
    ):
        with pytest.raises(SampleError, match=why):
            source_chunks([path], toy_tokenizer(), 9, 32)


def test_acceptance_samples_along_chunks(folder: Path, tmp_path: Path) -> None:
    """As for a model's own answers; existing samples are reused."""
    models = pair(tmp_path)
    texts = source_chunks([folder], toy_tokenizer(), 3, 24)
    file, reported = tmp_path / "samples.jsonl", list[str]()
    samples = acceptance_data.along(texts, *models, file, 4, reported.append)
    for number, (text, sample) in enumerate(zip(texts, samples, strict=True)):
        assert (sample.prefix, sample.tokens) == (text.prefix, text.tokens)
        expected = acceptance_data.label(text.prefix, text.tokens, *models, generator(4, number))
        assert sample == expected and 0 < min(sample.p_acc) <= max(sample.p_acc) <= 1
    assert [line.partition(":")[0] for line in reported] == [f"text {n} of 3" for n in (1, 2, 3)]
    file.write_text("".join(f"{line}\n" for line in file.read_text().splitlines()[:3]))
    reported.clear()
    assert acceptance_data.along(texts, *models, file, 4, reported.append) == samples
    assert len(reported) == 1
    loaded = acceptance_data.load_samples(file)
    assert [sample.draft for sample in loaded] == [sample.draft for sample in samples]
    with pytest.raises(SampleError, match="made from other questions or models: remove it"):
        acceptance_data.along([TrainingText([1], [2, 3])], *models, file, 4)
    assert json.loads(file.read_text().splitlines()[0])["seed"] == 4
