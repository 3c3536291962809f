"""The closed section *More* of a question: how its answer is written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import gradio as gr

from engine.rag.answer import MAX_ANSWER_TOKENS

MOST_TOKENS = 2048


class Settings(NamedTuple):
    """How an answer is written, in the order of `parts`."""

    temperature: float
    top_p: float
    seed: int
    max_tokens: int
    remember: bool
    speculation: bool


def parts() -> list[Any]:
    """The parts, where the caller is, in the order of `Settings`."""
    made: list[Any] = []
    with gr.Row():
        made += [
            gr.Slider(0, 2, 0, step=0.1, label="Temperature", info="0: always the likeliest word"),
            gr.Slider(0.05, 1, 1, step=0.05, label="Top-p", info="of the likely words, this share"),
        ]
    with gr.Row():
        made += [
            gr.Number(0, precision=0, minimum=0, label="Seed", info="of the chance in it"),
            gr.Slider(16, MOST_TOKENS, MAX_ANSWER_TOKENS, step=16, label="Most tokens of an answer"),
        ]
    made += [
        gr.Checkbox(True, label="Follow up: earlier questions are known"),
        gr.Checkbox(True, label="Speculation (the answer is the same without it, later)"),
    ]
    return made


def of(given: Sequence[Any]) -> Settings:
    """What the parts say; an empty one says what it did at first."""
    temperature, top_p, seed, max_tokens, remember, speculation = given
    return Settings(
        float(temperature or 0),
        float(top_p or 1),
        int(seed or 0),
        int(max_tokens or MAX_ANSWER_TOKENS),
        bool(remember),
        bool(speculation),
    )
