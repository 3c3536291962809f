"""/v1/embeddings: vectors of texts, by the embedding model that documents are searched with."""

from __future__ import annotations

import base64
import math
import sys
from array import array
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ui.api import schemas as types
from ui.api.errors import ApiError

if TYPE_CHECKING:
    from index.documents.embeddings import Embed

NONE = "this server has no embedding model: install draftline[embed], or start it with --embed DIR"


@dataclass(frozen=True)
class EmbeddingModel:
    """A function from texts to vectors, and its name in requests."""

    name: str
    embed: Embed

    def vectors(self, texts: list[str]) -> list[list[float]]:
        """A vector for each text, of length 1, as OpenAI's are."""
        return [unit(vector) for vector in self.embed(texts).tolist()]


def unit(vector: list[float]) -> list[float]:
    """The vector at length 1; zeros stay."""
    length = math.hypot(*vector) or 1.0
    return [number / length for number in vector]


def answer(
    body: types.EmbeddingsRequest, model: EmbeddingModel, count: Callable[[str], int]
) -> types.EmbeddingsAnswer:
    """The answer to a request. `count` tells how many tokens a text has. Raises ApiError."""
    texts = [body.input] if isinstance(body.input, str) else body.input
    vectors = model.vectors(texts)
    width = len(vectors[0])
    if body.dimensions not in (None, width):
        message = f"dimensions: this model's vectors have {width}: leave it out"
        raise ApiError(400, message, "dimensions")
    tokens = sum(map(count, texts))
    return types.EmbeddingsAnswer(
        data=[
            types.Embedding(index=index, embedding=encoded(vector, body.encoding_format))
            for index, vector in enumerate(vectors)
        ],
        model=model.name,
        usage=types.EmbeddingsUsage(prompt_tokens=tokens, total_tokens=tokens),
    )


def encoded(vector: list[float], form: str | None) -> list[float] | str:
    """A vector as numbers, or as base64 of little-endian f32."""
    if form != "base64":
        return vector
    data = array("f", vector)
    if sys.byteorder == "big":
        data.byteswap()
    return base64.b64encode(data.tobytes()).decode("ascii")
