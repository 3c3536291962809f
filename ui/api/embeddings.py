"""/v1/embeddings: vectors of texts, by the embedding model that documents are searched with."""

from __future__ import annotations

import base64
import math
import sys
import threading
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from index.documents.embeddings import batches
from ui.api import schemas as types
from ui.api.errors import ApiError

if TYPE_CHECKING:
    from index.documents.embeddings import Embed

NONE = "this server has no embedding model: install draftline[page], or start it with --embed DIR"


_embedding = threading.Lock()


@dataclass(frozen=True)
class EmbeddingModel:
    """A function from texts to vectors, and its name in requests."""

    name: str
    embed: Embed

    def vectors(self, texts: list[str], stopped: Callable[[], bool]) -> Iterator[list[float]]:
        """Yield a vector for each text, of length 1, as OpenAI's are, until `stopped`.

        One batch of all requests is embedded at a time.
        """
        for batch in batches(texts):
            if stopped():
                return
            with _embedding:
                found = self.embed(batch)
            yield from (unit(vector.tolist()) for vector in found)


def unit(vector: list[float]) -> list[float]:
    """Return the vector at length 1; zeros stay."""
    length = math.hypot(*vector) or 1.0
    return [number / length for number in vector]


def answer(
    body: types.EmbeddingsRequest,
    model: EmbeddingModel,
    count: Callable[[str], int],
    stopped: Callable[[], bool] = lambda: False,
) -> bytes:
    """Return the JSON that answers a request, an `EmbeddingsAnswer`.

    `count` tells how many tokens a text has, `stopped` whether the client has left. Raises
    ApiError.

    Numbers become JSON vector by vector: a million at once would hold up all other threads.
    """
    texts = [body.input] if isinstance(body.input, str) else body.input
    parts: list[bytes] = []
    tokens = 0
    for index, vector in enumerate(model.vectors(texts, stopped)):
        if body.dimensions not in (None, len(vector)):
            message = f"dimensions: this model's vectors have {len(vector)}: leave it out"
            raise ApiError(400, message, "dimensions")
        one = types.Embedding(index=index, embedding=encoded(vector, body.encoding_format))
        parts.append(one.model_dump_json().encode())
        tokens += count(texts[index])
    if len(parts) < len(texts):
        raise ApiError(503, "the answer was cancelled: the client disconnected")
    usage = types.EmbeddingsUsage(prompt_tokens=tokens, total_tokens=tokens)
    frame = types.EmbeddingsAnswer(data=[], model=model.name, usage=usage).model_dump_json()
    start, end = frame.encode().split(b"[]", 1)
    return b"".join((start, b"[", b",".join(parts), b"]", end))


def encoded(vector: list[float], form: str | None) -> list[float] | str:
    """Return a vector as numbers, or as base64 of little-endian f32."""
    if form != "base64":
        return vector
    data = array("f", vector)
    if sys.byteorder == "big":
        data.byteswap()
    return base64.b64encode(data.tobytes()).decode("ascii")
