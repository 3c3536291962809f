"""The collapsed section *Answer settings* of the Ask tab: sampling options."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import gradio as gr

from engine.rag.answer import MAX_ANSWER_TOKENS as DEFAULT_ANSWER_TOKENS

MAX_ANSWER_TOKENS = 2048


class SamplingOptions(NamedTuple):
    """The options, in the order of `components`."""

    temperature: float
    top_p: float
    seed: int
    max_tokens: int
    speculation: bool


def components() -> list[Any]:
    """Create the components in the current block, in the order of `SamplingOptions`."""
    created: list[Any] = []
    with gr.Row():
        created += [
            gr.Slider(0, 2, 0, step=0.1, label="Temperature", info="0: always the likeliest token"),
            gr.Slider(
                0.05,
                1,
                1,
                step=0.05,
                label="Top-p",
                info="sample from this share of the likeliest tokens",
            ),
        ]
    with gr.Row():
        created += [
            gr.Number(0, precision=0, minimum=0, label="Seed", info="of the random sampling"),
            gr.Slider(
                16,
                MAX_ANSWER_TOKENS,
                DEFAULT_ANSWER_TOKENS,
                step=16,
                label="Longest answer, in tokens",
            ),
        ]
    created.append(gr.Checkbox(True, label="Speculation: the same answer, sooner"))
    return created


def options_of(values: Sequence[Any]) -> SamplingOptions:
    """Return the options from the components' values; an empty one has its default."""
    temperature, top_p, seed, max_tokens, speculation = values
    return SamplingOptions(
        float(temperature or 0),
        float(top_p or 1),
        int(seed or 0),
        int(max_tokens or DEFAULT_ANSWER_TOKENS),
        bool(speculation),
    )
