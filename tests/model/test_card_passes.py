"""What static passes and graphs do around their kernels on a card, shown on a stub of one: which
card is the current one, what is waited for, and how graphs are captured anew."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from engine.model.torch.cuda.cuda_graphs import CudaGraphs
from engine.model.torch.cuda.prompt_inputs import READ_ROWS
from engine.model.torch.cuda.static_pass import BUCKETS
from engine.model.torch.torch_target import TorchTarget
from engine.records import Request
from research.methods.sdsat import install_embeddings
from tests.model.test_static_forward import static
from tests.model.test_target import begin, path_to, some_tokens, some_tree
from tests.support.stub_card import StubCard, StubStream, stub_card

__all__ = ["stub_card"]  # a fixture
SECOND = torch.device("cuda", 1)


class Watched:
    """A linear layer that records which card is the current one when it is launched."""

    def __init__(self, inner: Any, card: StubCard) -> None:
        self.inner, self.card = inner, card
        self.seen: set[int] = set()

    def __call__(self, x: Any) -> Any:
        self.seen.add(self.card.current)
        return self.inner(x)


def graphs_of(target: TorchTarget) -> CudaGraphs:
    passes = target.static
    assert passes is not None
    passes.ready = True  # nothing is compiled here
    passes.graphs = CudaGraphs(passes)
    return passes.graphs


def test_passes_run_with_their_card_as_the_current_one(tiny: Any, stub_card: StubCard) -> None:
    """Also where they are captured."""
    target = static(tiny("llama"))
    passes: Any = target.static
    prompt, tree = some_tokens(20, target.vocab), some_tree(9, target.vocab)
    begin(target, prompt)
    passes.device = SECOND
    layer = target.model.blocks[1].mlp
    watched = layer.down = Watched(layer.down, stub_card)
    scores = target.forward(prompt[-1], tree)
    assert watched.seen == {1} and stub_card.current == 0
    assert scores.chosen is not None
    before = stub_card.main.waits
    scores.chosen(Request("chat"), len(prompt))
    assert stub_card.main.waits == before + 1
    target.keep(path_to(tree, 8))
    watched.seen.clear()
    graphs = graphs_of(target)
    for _ in graphs.warm(passes):
        pass
    assert sorted(graphs.captured) == list(BUCKETS)
    assert sorted(graphs.reading) == list(READ_ROWS)
    assert watched.seen == {1} and stub_card.current == 0


def test_graphs_are_captured_again_after_embeddings_were_installed(
    tiny: Any, stub_card: StubCard, caplog: pytest.LogCaptureFixture
) -> None:
    """Into a new pool, as torch takes none whose graphs are gone; on one stream, since every other
    one would keep a workspace of each library."""
    target = static(tiny("llama"))
    graphs, passes = graphs_of(target), target.static
    assert passes is not None
    rows = torch.zeros(3, target.model.width)
    for pools in (1, 2):
        for _ in graphs.warm(passes):
            pass
        assert sorted(graphs.captured) == list(BUCKETS)
        assert sorted(graphs.reading) == list(READ_ROWS)
        assert len(stub_card.pools) == pools
        install_embeddings(target, rows)
    assert not caplog.records
    assert [one.device for one in StubStream.made] == [None, passes.device]


def test_a_chunk_of_a_prompt_has_been_read_when_it_is_announced(
    tiny: Any, stub_card: StubCard
) -> None:
    """A card is waited for: otherwise the time of decoding would begin while the prompt is still
    being read, and a cancelled prompt would be read to its end."""
    target = static(tiny("llama"), budget=48)
    target.chunk, target.devices = 20, [SECOND]
    prompt = some_tokens(140, target.vocab)
    target.begin(prompt, 64)
    seen = [stub_card.main.waits for _ in target.prefill(prompt, 64)]
    assert seen == [1, 2, 3, 4]
