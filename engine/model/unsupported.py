"""The error for models that cannot run here, and the words of several such errors."""

from __future__ import annotations

from engine.weights.errors import one_line

# The families that run here, for errors.
CHOOSE = "choose a model of another family (Llama, Qwen, Granite, Ministral, Phi, Gemma 3, gpt-oss)"
MASKED = "a masked language model, which does not continue a text"
RECURRENT = "its layers with recurrent state cannot be rolled back"


class UnsupportedModel(ValueError):
    """A model that cannot be decoded speculatively; one line with the reason."""

    def __init__(self, message: str) -> None:
        super().__init__(one_line(message))
