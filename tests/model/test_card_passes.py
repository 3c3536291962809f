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


def test_a_card_without_a_number_is_the_current_one(tiny: Any, stub_card: StubCard) -> None:
    """Entering it would take as long as a launch, in every step."""
    target = static(tiny("llama"))
    passes: Any = target.static
    prompt, tree = some_tokens(20, target.vocab), some_tree(9, target.vocab)
    begin(target, prompt)
    for device, entered in (("cuda:1", 2), ("cuda:0", 0), ("cuda", 0)):
        passes.device, stub_card.entered = torch.device(device), 0
        target.forward(prompt[-1], tree)
        target.keep(path_to(tree, 8))
        assert stub_card.entered == entered, device


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


def test_pinned_buffers_are_rewritten_once_the_card_has_used_them(
    tiny: Any, stub_card: StubCard
) -> None:
    """A step whose choices were fetched has used them: it waits once."""
    target = static(tiny("llama"))
    passes: Any = target.static
    prompt, tree = some_tokens(20, target.vocab), some_tree(9, target.vocab)
    begin(target, prompt)
    passes.device = SECOND
    main, last = stub_card.main, prompt[-1]

    def step(*, fetched: bool) -> int:
        before = main.waits
        scores = target.forward(last, tree)
        if fetched:
            assert scores.chosen is not None and scores.likely is not None
            scores.chosen(Request("chat"), len(prompt))
        target.keep(path_to(tree, 8))
        if fetched:
            scores.likely(8)
        return main.waits - before

    step(fetched=True)
    assert [step(fetched=True) for _ in range(3)] == [1, 1, 1]
    assert [step(fetched=False) for _ in range(3)] == [1, 1, 1]  # for the path of the last `keep`
    before = main.waits
    for waits in (0, 1, 2):  # for the inputs of the last pass
        target.forward(last, tree)
        assert main.waits - before == waits


def test_a_pass_begins_and_ends_with_its_transfers(tiny: Any) -> None:
    """So that a graph has them: what was sent reaches the device in the pass, `top` the host."""
    target = static(tiny("llama"))
    passes: Any = target.static
    tree, cache = some_tree(9, target.vocab), passes.scratch()
    before = passes.box.clone()
    passes.send(5, tree, cache, 30)
    assert torch.equal(passes.box, before)
    output = passes.run(passes.sent(tree, cache, 30, 16))
    assert torch.equal(passes.box, passes._host) and not torch.equal(passes.box, before)
    assert passes._fetch(output)[0].tolist() == output.logits.argmax(-1).tolist()
