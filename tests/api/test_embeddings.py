"""/v1/embeddings: OpenAI's client gets the vectors of the embedding model."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

import numpy as np
import openai
import pytest

from index.documents.embeddings import (
    EMBED_BATCH,
    MAX_BATCH_CHARS,
    MAX_TEXT_CHARS,
    Vectors,
    batches,
)
from tests.support.server import LocalServer, reciter, serve_engine, serve_model
from ui.api.embeddings import EmbeddingModel, answer
from ui.api.errors import ApiError
from ui.api.schemas import EmbeddingsRequest

PATH = "/v1/embeddings"


def counts(texts: list[str]) -> Vectors:
    """How often each of three letters occurs in a text."""
    return np.array([[text.count(letter) for letter in "abc"] for text in texts], np.float32)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalServer]:
    model = reciter(tmp_path_factory.mktemp("models") / "reciter")
    with serve_model(model, embedding=EmbeddingModel("letters", counts)) as server:
        yield server


@pytest.mark.parametrize("form", ["float", "base64"])
def test_the_vectors_are_those_of_the_model_at_unit_length(server: LocalServer, form: Any) -> None:
    texts = ["aab", "c" * 10, "no such letter: x"]
    answer = server.client().embeddings.create(model="letters", input=texts, encoding_format=form)
    expected = counts(texts)
    expected /= np.maximum(np.linalg.norm(expected, axis=1, keepdims=True), 1e-9)
    found = [
        np.frombuffer(base64.b64decode(one.embedding), "<f4")
        if isinstance(one.embedding, str)
        else np.array(one.embedding)
        for one in answer.data
    ]
    assert [one.index for one in answer.data] == [0, 1, 2]
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    assert answer.model == "letters" and answer.usage.total_tokens == sum(map(len, texts))


def test_openais_client_needs_no_options(server: LocalServer) -> None:
    answer = server.client().embeddings.create(model="letters", input="ab")
    np.testing.assert_allclose(answer.data[0].embedding, [0.5**0.5, 0.5**0.5, 0], rtol=1e-6)


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"input": ""}, "input"),
        ({"input": []}, "input"),
        ({"input": ["a", ""]}, "input"),
        ({"input": [1, 2]}, "input"),
        ({"input": [[1], [2]]}, "input"),
        ({"input": ["a"] * 2049}, "input"),
        ({}, "input"),
        ({"input": "a", "dimensions": 2}, "dimensions"),
        ({"input": "a", "encoding_format": "hex"}, "encoding_format"),
    ],
)
def test_bad_requests_are_refused(server: LocalServer, body: dict[str, Any], param: str) -> None:
    with server.http() as http:
        answer = http.post(PATH, json=body)
        assert answer.status_code == 400 and answer.json()["error"]["param"].startswith(param)
        assert http.post(PATH, json={"input": "a", "dimensions": 3}).status_code == 200


def test_without_such_a_model_it_is_not_found(server: LocalServer) -> None:
    with pytest.raises(openai.NotFoundError, match="the embedding model here is letters"):
        server.client().embeddings.create(model="reciter", input="a")
    with serve_engine(server.engine) as other, other.http() as http:
        answer = http.post(PATH, json={"input": "a"})
        assert answer.status_code == 404 and "--embed" in answer.json()["error"]["message"]


def test_a_text_that_is_too_long_is_refused(server: LocalServer) -> None:
    for texts in ("a" * (MAX_TEXT_CHARS + 1), ["b", "a" * (MAX_TEXT_CHARS + 1)]):
        with pytest.raises(openai.BadRequestError, match=f"over {MAX_TEXT_CHARS} characters"):
            server.client().embeddings.create(model="letters", input=texts)


def test_batches_are_as_large_as_their_padded_texts() -> None:
    texts = ["a" * 9_000, *["b"] * 10, "c" * 2_000, *["d" * 300] * 200, "e" * 20_000, "f"]
    found = [*batches(texts)]
    assert [text for batch in found for text in batch] == texts
    for batch in found:
        size = len(batch) * max(map(len, batch))
        assert len(batch) == 1 or (size <= MAX_BATCH_CHARS and len(batch) <= EMBED_BATCH)


def test_no_batch_is_embedded_after_the_client_left() -> None:
    asked: list[int] = []

    def embed(texts: list[str]) -> Vectors:
        asked.append(len(texts))
        return counts(texts)

    body = EmbeddingsRequest(input=["a" * MAX_BATCH_CHARS] * 9)
    model = EmbeddingModel("letters", embed)
    with pytest.raises(ApiError, match="cancelled"):
        answer(body, model, len, lambda: len(asked) == 2)
    assert asked == [1, 1]
