"""A card whose memory is full in the middle of an answer: the answer goes on, or ends with one
line, and the next one is complete."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from engine import Config, Engine, Request
from engine.model.torch.torch_target import MEMORY_FULL, TorchTarget
from engine.records import Done, RequestError, Step
from tests.model.test_target import begin, load, some_tokens

TEXT = "def add(left, right):\n    return left + right\n"
REQUEST = Request("complete", TEXT, max_tokens=24, temperature=0.8, top_p=0.9, seed=1)


FULL = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0")
OTHERS = (  # what libraries raise
    torch.AcceleratorError("CUDA error: out of memory"),
    RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
    RuntimeError("Triton Error [CUDA]: out of memory"),
)


class Short:
    """A linear layer on a card without memory from some call on, but for so many calls of it."""

    def __init__(self, inner: Any, after: int, times: int, error: Exception = FULL) -> None:
        self.inner, self.after, self.times, self.error = inner, after, times, error

    def __call__(self, x: Any) -> Any:
        self.after -= 1
        if self.after < 0 and self.times:
            self.times -= 1
            raise self.error
        return self.inner(x)


@pytest.fixture(params=["off", "static"])
def engine(request: Any, tiny: Any, home: Path) -> Iterator[Engine]:
    config = Config(
        model=str(tiny("llama")), device="cpu", dtype="f32", threads=1, library=False,
        graphs=request.param,
    )  # fmt: skip
    with Engine(config) as made:
        yield made


@pytest.mark.parametrize("after", [0, 3, 9])
def test_an_answer_ends_with_one_line_and_the_next_is_complete(engine: Engine, after: int) -> None:
    """While the prompt is read, and after some steps; then nothing is cached."""
    expected = engine.submit(REQUEST).result()
    assert expected.reason in ("stop", "length")
    target = engine.parts.target
    target.pool.sequences.clear()
    layer = target.model.blocks[0].mlp
    inner, layer.down = layer.down, Short(layer.down, after, -1)
    *steps, done = engine.submit(REQUEST, speculation=False)
    assert isinstance(done, Done) and done.reason == "failed"
    assert done.error == MEMORY_FULL and "\n" not in MEMORY_FULL
    assert all(isinstance(step, Step) for step in steps)
    assert not target.pool.sequences
    layer.down = inner
    again = engine.submit(REQUEST).result()
    assert (again.reason, again.text) == (expected.reason, expected.text)
    assert engine.failure is None


@pytest.mark.parametrize("error", OTHERS)
def test_libraries_without_memory_end_one_answer_only(engine: Engine, error: Exception) -> None:
    layer = engine.parts.target.model.blocks[0].mlp
    inner, layer.down = layer.down, Short(layer.down, 2, -1, error)
    assert engine.submit(REQUEST, speculation=False).result().error == MEMORY_FULL
    layer.down = inner
    assert engine.submit(REQUEST).result().reason in ("stop", "length")
    assert engine.failure is None


def test_other_errors_of_a_card_are_not_taken_for_full_memory(tiny: Any) -> None:
    target: TorchTarget = load(tiny("llama"))
    with pytest.raises(RuntimeError, match="illegal"), target.limited_memory():
        raise RuntimeError("CUDA error: an illegal memory access was encountered")


def test_earlier_prompts_are_dropped_before_a_draft_is_cut(
    tiny: Any, caplog: pytest.LogCaptureFixture
) -> None:
    target: TorchTarget = load(tiny("llama"), graphs="static")
    for seed in range(3):
        begin(target, some_tokens(140, target.vocab, seed))
    assert len(target.pool.sequences) == 3
    prompt = some_tokens(140, target.vocab, 9)
    target.begin(prompt, 64)
    down = target.model.blocks[0].mlp.down
    target.model.blocks[0].mlp.down = Short(down, 0, 1)
    for _ in target.prefill(prompt, 64):
        pass
    assert target.tokens and target.tokens + target.unread == prompt[:-1]
    assert len(target.pool.sequences) == 1
    assert target.chunk == load(tiny("llama")).chunk
    (line,) = (one.getMessage() for one in caplog.records)
    assert line.startswith("the card's memory is full: earlier prompts are dropped from it")


def test_a_target_without_memory_says_what_to_do(tiny: Any) -> None:
    """As a request's error, of whatever runs out: here reading a prompt and its first pass."""
    target: TorchTarget = load(tiny("llama"))
    target.model.blocks[1].mlp.down = Short(target.model.blocks[1].mlp.down, 1, -1)
    with pytest.raises(RequestError, match="memory is full"), target.limited_memory():
        begin(target, some_tokens(200, target.vocab))
    assert not target.pool.sequences
