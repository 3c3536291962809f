"""CUDA graphs: replays equal passes launched step by step, with one synchronization per step; exact
mode; and full memory."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from engine.config import Config  # noqa: E402
from engine.drafting import chain  # noqa: E402
from engine.model.torch.cuda.cuda_graphs import CAPTURE_AFTER_USES  # noqa: E402
from engine.model.torch.cuda.prompt_inputs import READ_ROWS  # noqa: E402
from engine.model.torch.cuda.static_pass import BUCKETS, MAX_ROWS  # noqa: E402
from engine.model.torch.cuda.weight_formats import FORMATS  # noqa: E402
from engine.model.torch.random_weights import RandomWeights  # noqa: E402
from engine.model.torch.torch_target import TorchTarget  # noqa: E402
from engine.model.unsupported import UnsupportedModel  # noqa: E402
from engine.prompts.builder import Prompt  # noqa: E402
from engine.prompts.tokenizer import Tokenizer  # noqa: E402
from engine.records import Draft, Request  # noqa: E402
from research.methods.sdsat import install_embeddings  # noqa: E402
from tests.model import test_target  # noqa: E402
from tests.model.test_static_forward import check_kept_paths  # noqa: E402
from tests.model.test_target import path_to, some_tokens, some_tree  # noqa: E402
from tests.support.drafters import drafters  # noqa: E402
from tests.support.law import SAMPLED, answer, plain, run  # noqa: E402

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here"),
]


def load(folder: Path, dtype: str = "bf16", **options: Any) -> TorchTarget:
    """With the widest passes."""
    options = {"exact": False} | options
    config = Config(device="cuda", dtype=dtype, budget=MAX_ROWS - 1, **options)
    target = TorchTarget(folder, config)
    for _ in target.warm():
        pass
    return target


def begin(target: TorchTarget, prompt: list[int], capacity: int = MAX_ROWS) -> int:
    """Begin and prefill a prompt; returns how many of its tokens were cached."""
    return test_target.begin(target, prompt, capacity)


def compiled(folder: Path, **options: Any) -> TorchTarget:
    """Nothing is captured yet."""
    target = TorchTarget(folder, Config(device="cuda", dtype="f32", **options))
    static = target.static
    assert static is not None
    assert static.graphs is not None, "Triton is missing: the log says so"
    until = monotonic() + 240
    while not static.ready:
        assert static.graphs.on, "Triton's kernels cannot be used: the log says why"
        assert monotonic() < until
        sleep(0.05)
    return target


def test_often_used_buckets_are_captured_while_serving(tiny: Any) -> None:
    """The answer is the same before, during and after."""
    target = compiled(tiny("llama"), exact=False)  # whose load runs no passes to check them
    graphs: Any = target.static.graphs  # type: ignore[union-attr]
    prompt, tree = some_tokens(40, target.vocab), some_tree(3, target.vocab)
    begin(target, prompt)
    target.catch_up()
    first = target.forward(prompt[-1], tree).logits
    for n in range(1, CAPTURE_AFTER_USES + 3):
        assert sorted(graphs.captured) == ([4] if n >= CAPTURE_AFTER_USES else [])
        again = target.forward(prompt[-1], tree).logits
        torch.testing.assert_close(again, first, rtol=1e-3, atol=1e-3)


def test_a_first_request_is_served_while_kernels_are_compiled(tiny: Any) -> None:
    """Immediately, while the compiler's thread runs the same passes on another stream."""
    plainly = TorchTarget(tiny("qwen3"), Config(device="cuda", dtype="f32", graphs="off"))
    target = TorchTarget(tiny("qwen3"), Config(device="cuda", dtype="f32"))
    prompt, tree = some_tokens(200, target.vocab), some_tree(20, target.vocab)
    for one in (plainly, target):
        begin(one, prompt)
    expected = plainly.forward(prompt[-1], tree).logits
    until = monotonic() + 240
    static: Any = target.static
    while monotonic() < until:
        ready = static.ready
        logits = target.forward(prompt[-1], tree).logits
        torch.testing.assert_close(logits, expected, rtol=1e-3, atol=1e-3)
        if ready or not static.graphs.on:
            break
    assert static.ready


def test_every_bucket_is_captured(tiny: Any) -> None:
    static = load(tiny("qwen2")).static
    assert static is not None
    assert static.graphs is not None, "Triton is missing: the log says so"
    assert static.graphs.on, "compiling or a capture failed: the log says which"
    assert sorted(static.graphs.captured) == list(BUCKETS)
    assert sorted(static.graphs.reading) == list(READ_ROWS)


@pytest.mark.parametrize("kind", ["llama", "qwen2", "qwen3"])
def test_graphs_equal_passes_launched_step_by_step(tiny: Any, kind: str) -> None:
    """For caches at other addresses and of other lengths than at capture."""
    captured = load(tiny(kind), "f32")
    launched = load(tiny(kind), "f32", graphs="static")
    plainly = load(tiny(kind), "f32", graphs="off")
    for length, capacity in ((30, 260), (300, 270), (31, 260)):
        prompt = some_tokens(length, captured.vocab, length)
        for target in (captured, launched, plainly):
            begin(target, prompt, capacity)
        for size in (0, 1, 2, 5, 12, 31, 63, 100, 255):
            draft = some_tree(size, captured.vocab, size)
            logits = [
                target.forward(prompt[-1], draft).logits for target in (captured, launched, plainly)
            ]
            torch.testing.assert_close(logits[0], logits[1], rtol=1e-3, atol=1e-3)
            torch.testing.assert_close(logits[0], logits[2], rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("kind", ["llama", "qwen2", "qwen3"])
def test_captured_passes_read_prompts_as_launched_ones(tiny: Any, kind: str) -> None:
    """In chunks of every size, padded or not, wherever the cache lies; what the cache has behind
    the prompt stays."""
    captured, plainly = load(tiny(kind), "f32"), load(tiny(kind), "f32", graphs="off")
    for length in (500, 2, 65, 130, 300, 512):
        prompt = some_tokens(length, captured.vocab, length)
        states: list[list[Any]] = [[], []]
        for target, found in zip((captured, plainly), states, strict=True):
            target.pool.sequences.clear()
            target.begin(prompt, 8)
            (cache,) = target.sequence.cache
            cache[..., length - 1 :, :] = float("nan")
            for _ in target.prefill(prompt, 8, lambda _, some, found=found: found.append(some)):
                pass
            assert cache[..., length - 1 :, :].isnan().all()
        torch.testing.assert_close(*(torch.cat(found) for found in states), rtol=1e-3, atol=1e-3)


def test_the_last_tokens_of_a_prompt_share_a_pass_with_the_draft(tiny: Any) -> None:
    captured, plainly = load(tiny("llama"), "f32"), load(tiny("llama"), "f32", graphs="off")
    prompt = some_tokens(300, captured.vocab)
    for size in (0, 20, 200):
        logits = []
        for target in (captured, plainly):
            target.pool.sequences.clear()
            begin(target, prompt)
            assert bool(target.unread) == (target is captured)
            logits.append(target.forward(prompt[-1], some_tree(size, target.vocab)).logits)
        torch.testing.assert_close(*logits, rtol=1e-3, atol=1e-3)


def test_kept_rows_are_the_accepted_ones(tiny: Any) -> None:
    target, plainly = load(tiny("llama"), "f32"), load(tiny("llama"), "f32", graphs="off")
    check_kept_paths(target, plainly, tolerance=1e-3)


def test_installed_embeddings_are_used(tiny: Any) -> None:
    """SDSAT's adaptive tokens, installed after graphs were captured."""
    captured, plainly = load(tiny("llama"), "f32"), load(tiny("llama"), "f32", graphs="off")
    prompt = some_tokens(20, captured.vocab)
    rows = torch.randn(3, captured.model.width, generator=torch.Generator().manual_seed(1))
    for _ in range(2):
        logits = []
        for target in (captured, plainly):
            begin(target, prompt)
            ids = install_embeddings(target, rows)
            logits.append(target.forward(prompt[-1], chain(ids, "test")).logits)
        torch.testing.assert_close(*logits, rtol=1e-3, atol=1e-3)
        for _ in captured.warm():
            pass


@pytest.mark.parametrize("sampled", [False, True])
def test_a_step_synchronizes_once(tiny: Any, sampled: bool) -> None:
    target = load(tiny("llama"))
    prompt = some_tokens(60, target.vocab)
    begin(target, prompt)
    request = Request("chat", **({"temperature": 0.8, "top_k": 6, "top_p": 0.9} if sampled else {}))
    draft = some_tree(20, target.vocab)
    for _ in range(3):
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            torch.cuda.set_sync_debug_mode("warn")
            try:
                scores = target.forward(prompt[-1], draft)
                assert scores.chosen is not None
                assert scores.likely is not None
                scores.chosen(request, len(prompt))
                target.keep(path_to(draft, 15))
                words, values = scores.likely(8)
            finally:
                torch.cuda.set_sync_debug_mode("default")
        expected = scores.logits.topk(8)
        assert torch.equal(torch.tensor(values), expected.values.cpu())
        assert torch.equal(scores.logits.cpu().gather(1, torch.tensor(words).long()),
                           expected.values.cpu())  # fmt: skip
        prompt = [*target.tokens, 5]
    waits = [one for one in seen if "synchroniz" in str(one.message)]  # of the last step
    assert len(waits) <= 1, [str(one.message) for one in waits]


@pytest.mark.parametrize("dtype", ["bf16", "f32", *FORMATS])
@pytest.mark.parametrize("kind", ["llama", "qwen2", "qwen3"])
def test_exact_nodes_have_the_bits_of_one_token_passes(tiny: Any, kind: str, dtype: str) -> None:
    target = load(tiny(kind), dtype, exact=True)
    assert target.exact
    prompt = some_tokens(150, target.vocab)
    draft = some_tree(MAX_ROWS - 1, target.vocab)
    begin(target, prompt)
    whole = target.forward(prompt[-1], draft).logits
    for size in range(0, MAX_ROWS, 5):
        assert torch.equal(target.forward(prompt[-1], draft.first(size)).logits, whole[: size + 1])
    for node in range(0, len(draft), 5):
        begin(target, prompt)
        row = target.forward(prompt[-1], Draft()).logits[0]
        for step in path_to(draft, node):
            target.keep([])
            row = target.forward(draft.tokens[step], Draft()).logits[0]
        assert torch.equal(row, whole[node + 1]), node


@pytest.mark.parametrize(("dtype", "most"), [("int8", 0.1), ("fp8", 0.3), ("int4", 0.8)])
@pytest.mark.parametrize("kind", ["llama", "qwen2", "qwen3"])
def test_narrow_weights_give_nearly_the_same_logits(
    tiny: Any, kind: str, dtype: str, most: float
) -> None:
    target, plainly = load(tiny(kind), dtype), load(tiny(kind), "bf16")
    prompt, tree = some_tokens(100, target.vocab), some_tree(20, target.vocab)
    logits = []
    for one in (target, plainly):
        begin(one, prompt)
        logits.append(one.forward(prompt[-1], tree).logits)
    apart = (logits[0] - logits[1]).std() / logits[1].std()
    assert 0 < apart < most


@pytest.mark.parametrize("sampled", [False, True])
@pytest.mark.parametrize("kind", ["llama", "qwen2"])
def test_exact_texts_never_diverge(tiny: Any, kind: str, sampled: bool) -> None:
    """In bf16, with every drafter."""
    target = load(tiny(kind), exact=True)
    tokenizer = Tokenizer(tiny(kind))
    tokenizer.eos = frozenset()
    options: dict[str, Any] = {"seed": 4, **(SAMPLED if sampled else {})}
    prompt = Prompt([7, 8, 9, 10], max_tokens=60)
    expected, truth = plain(target, tokenizer, prompt, **options)
    for name, drafter in drafters(truth, target.vocab).items():
        assert answer(run(target, tokenizer, prompt, drafter, **options)[1]) == answer(expected), (
            name
        )


class Hungry:
    """A linear layer that runs out of memory for more than a few rows."""

    def __init__(self, inner: Any, rows: int) -> None:
        self.inner, self.rows = inner, rows

    def __call__(self, x: Any) -> Any:
        if len(x) > self.rows:
            torch.empty(1 << 50, dtype=torch.uint8, device=x.device)
        return self.inner(x)


def test_drafts_shrink_when_memory_is_full(tiny: Any, caplog: pytest.LogCaptureFixture) -> None:
    target = load(tiny("llama"), "f32", graphs="static")
    prompt = some_tokens(20, target.vocab)
    begin(target, prompt)
    expected = target.forward(prompt[-1], Draft()).logits
    block = target.model.blocks[0]
    block.mlp.down = Hungry(block.mlp.down, 8)
    for _ in range(2):
        scores = target.forward(prompt[-1], some_tree(30, target.vocab))
        assert len(scores.logits) == 8
        assert target.capacity() == 7
        torch.testing.assert_close(scores.logits[:1], expected, rtol=1e-3, atol=1e-3)
    assert len([one for one in caplog.records if "memory is full" in one.message]) == 1


def test_a_capture_without_memory_is_logged(tiny: Any, caplog: pytest.LogCaptureFixture) -> None:
    target = compiled(tiny("llama"))
    block = target.model.blocks[0]
    block.mlp.down = Hungry(block.mlp.down, 1)
    for _ in target.warm():
        pass
    assert target.static is not None
    assert target.static.graphs is not None
    assert list(target.static.graphs.captured) == [1]
    assert len([one for one in caplog.records if "cannot be captured" in one.message]) == 1
    begin(target, [5])
    assert len(target.forward(5, Draft()).logits) == 1


def test_a_model_larger_than_the_gpu_is_an_error_of_one_line(tiny: Any, tmp_path: Path) -> None:
    settings = json.loads((tiny("llama") / "config.json").read_text())
    settings |= {"hidden_size": 1 << 15, "intermediate_size": 1 << 17, "num_hidden_layers": 200}
    (tmp_path / "config.json").write_text(json.dumps(settings))
    noise = RandomWeights(settings, torch.device("cuda"), torch.bfloat16)
    with pytest.raises(UnsupportedModel, match=r"needs .* GB for weights.*free") as caught:
        TorchTarget(tmp_path, Config(device="cuda"), weights=noise)
    assert "\n" not in str(caught.value)
