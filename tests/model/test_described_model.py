"""Described models as a card runs them, in plain torch, here on a CPU: they agree with transformers
and with the native forward, and passes of static shape have the same bits."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from engine.config import Config
from engine.model.families import read_config
from engine.model.native.weights import NativeWeights
from engine.model.torch.cuda.attention import TorchPass
from engine.model.torch.cuda.described_model import DescribedModel
from engine.model.torch.cuda.feed_forward import TorchExpertsBlock
from engine.model.torch.cuda.static_forward import Static, rows_for
from engine.model.torch.cuda.static_pass import DESCRIBED_ROWS, StaticPass
from engine.model.torch.cuda.weight_formats import FORMATS
from engine.model.torch.gguf_weights import arrays_of, weights_of
from engine.model.torch.hf_model import with_defaults
from engine.model.torch.loading import load as load_model
from engine.model.torch.ops import Rows
from engine.model.torch.placement import size_of_described
from engine.model.torch.torch_target import TorchTarget
from engine.model.unsupported import UnsupportedModel
from engine.prompts.builder import Prompt
from engine.prompts.tokenizer import Tokenizer
from engine.records import Draft
from engine.weights.fetch.integrity import config_of
from tests.model.test_target import begin, load, path_to, some_tokens, some_tree
from tests.support.drafters import trying
from tests.support.law import SAMPLED, answer, plain, run
from tests.support.native_families import FAMILIES, HYBRID, native_model
from tests.support.stub_card import list_cards

CPU = torch.device("cpu")
GATED = "qwen3.5-moe-full"  # a hybrid's gated attention and shared expert, in every layer
NAMES = [*(name for name, (_, own) in FAMILIES.items() if own.get("layer_types") != HYBRID), GATED]
FEW = ("olmo3", "gemma4-e", "gemma4-moe", "gpt-oss", GATED)
SOME = [one if one in FEW else pytest.param(one, marks=pytest.mark.full) for one in NAMES]
MIXTURES = [name for name in NAMES if name in (GATED, "qwen3-moe", "gpt-oss", "gemma4-moe")]


@pytest.fixture(scope="module")
def family(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """family(name) -> the folder of a tiny random model, created once."""
    root = tmp_path_factory.mktemp("described")

    def make(name: str) -> Path:
        if (root / name).exists():
            return root / name
        if name == GATED:
            return native_model(root / name, "qwen3.5-moe", layer_types=["full_attention"] * 4)
        return native_model(root / name, name)

    return make


def model_of(
    folder: Path, dtype: torch.dtype = torch.float32, device: torch.device = CPU
) -> DescribedModel:
    described = read_config(with_defaults(folder, config_of(folder)))
    files = NativeWeights(arrays_of(weights_of(folder)), described, 32, folder)
    return DescribedModel(files, device, dtype)


def as_on_a_card(folder: Path, static: bool = False, torch_attention: bool = False) -> TorchTarget:
    """`torch_attention`: with a cache in f64, which the CPU's own kernel does not take."""
    target = load(folder, threads=1)
    model = model_of(folder)
    if torch_attention:
        model.cache_dtype = torch.float64  # type: ignore[assignment]
    target.model, target.static = model, Static(model) if static else None
    return target


@pytest.mark.parametrize("name", NAMES)
def test_logits_agree_with_transformers(family: Any, name: str) -> None:
    """After a prompt that is longer than the windows and read in two chunks."""
    from transformers import AutoModelForCausalLM

    tokens = some_tokens(40, load(family(name), threads=1).vocab)
    with torch.inference_mode():
        oracle = AutoModelForCausalLM.from_pretrained(family(name), dtype=torch.float32).eval()
        expected = oracle(input_ids=torch.tensor([tokens])).logits[0][30:]
    draft = Draft()
    for node, token in enumerate(tokens[31:]):
        draft.add(token, node - 1, 1.0, "test")
    for static, torch_attention in ((False, False), (True, True)):
        target = as_on_a_card(family(name), static, torch_attention)
        target.chunk = 20
        begin(target, tokens[:31])
        logits = target.forward(tokens[30], draft).logits
        torch.testing.assert_close(logits, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", NAMES)
def test_trees_agree_with_the_native_forward(family: Any, name: str) -> None:
    """With torch's attention, and again after a path was kept."""
    for static in (False, True):
        ours, native = as_on_a_card(family(name), static, True), load(family(name), threads=1)
        prompt, draft = some_tokens(60, ours.vocab), some_tree(24, ours.vocab)
        for target in (ours, native):
            begin(target, prompt)
        for token in (prompt[-1], 5):
            logits = [target.forward(token, draft).logits for target in (ours, native)]
            torch.testing.assert_close(*logits, rtol=1e-4, atol=1e-4)
            for target in (ours, native):
                target.keep(path_to(draft, 20))


@pytest.mark.parametrize("name", NAMES)
def test_passes_of_static_shape_have_the_same_bits(family: Any, name: str) -> None:
    """In full and padded buckets, and so have the caches after them."""
    ours, theirs = as_on_a_card(family(name), static=True), as_on_a_card(family(name))
    text = some_tokens(50, ours.vocab)
    for target in (ours, theirs):
        begin(target, text)
    for seed, size in enumerate((0, 1, 4, 20, 31)):
        draft = some_tree(size, ours.vocab, seed)
        path = path_to(draft, size - 1) if size else []
        mine, other = (one.forward(text[-1], draft, hidden=True) for one in (ours, theirs))
        assert torch.equal(mine.logits, other.logits), size
        assert torch.equal(mine.hidden, other.hidden), size
        for target in (ours, theirs):
            target.keep(path)
        text += [draft.tokens[node] for node in path] + [5]
    count = len(ours.tokens)
    for one, other in zip(ours.sequence.cache, theirs.sequence.cache, strict=True):
        assert torch.equal(one[..., :count, :], other[..., :count, :])


@pytest.mark.parametrize("name", SOME)
def test_passes_stay_on_their_device(family: Any, name: str) -> None:
    """On a fake device: torch rejects operations that mix two of them, two number formats of a
    product, and values that Python would wait for, which passes of static shape have none of."""
    meta = torch.device("meta")
    model = model_of(family(name), torch.bfloat16, meta)
    with torch.inference_mode(), FakeTensorMode(allow_non_fake_inputs=True):
        cache = tuple(
            torch.empty((2, count, heads, 200, d), dtype=torch.bfloat16, device=device)
            for device, count, heads, d in model.cache_shapes
        )
        for rows, real in ((1, 1), (DESCRIBED_ROWS, 50)):
            ids, positions = torch.empty(2, rows, dtype=torch.int64, device=meta)
            seen = torch.empty(rows, 1, dtype=torch.int64, device=meta)
            parents = np.arange(-1, real - 1, dtype=np.int32)
            now = StaticPass(70, real, parents, cache, ids, positions, seen, ids, True, False)
            states = model.run(ids, now, cache)
            logits = model.words(states)
            assert states.device == logits.device == meta
            assert states.dtype == logits.dtype == torch.bfloat16
            assert states.shape == (rows, model.width) and logits.shape == (rows, model.vocab)


def test_a_budget_that_no_pass_takes_is_refused(family: Any) -> None:
    model = model_of(family("gemma3"))
    assert rows_for(DESCRIBED_ROWS - 1, model) == DESCRIBED_ROWS
    with pytest.raises(ValueError, match=r"a budget of 64 nodes: .* take 63: choose 63 or less"):
        rows_for(DESCRIBED_ROWS, model)


@pytest.mark.parametrize(("name", "sampled"), [("gemma4", False), ("gpt-oss", True)])
def test_no_drafter_changes_the_answer(family: Any, name: str, sampled: bool) -> None:
    """Within a window, and far behind one."""
    target = as_on_a_card(family(name), static=True)
    tokenizer = Tokenizer(family(name))
    tokenizer.eos = frozenset()
    options: dict[str, Any] = {"seed": 3, **(SAMPLED if sampled else {})}
    prompt = Prompt(some_tokens(5, target.vocab), max_tokens=20)
    expected, truth = plain(target, tokenizer, prompt, **options)
    for drafter_name, drafter in trying(truth, target.vocab).items():
        _, done = run(target, tokenizer, prompt, drafter, **options)
        assert answer(done) == answer(expected), drafter_name


@pytest.mark.parametrize("name", ["gemma3", "gpt-oss", "qwen3-moe"])
def test_numbers_of_16_bits_give_nearly_the_same_logits(family: Any, name: str) -> None:
    """All that a card computes in bf16, with its cache."""
    target = as_on_a_card(family(name), static=True)
    tokens, logits = some_tokens(30, target.vocab), []
    for dtype in (torch.float32, torch.bfloat16):
        target.model = model_of(family(name), dtype)
        target.model.cache_dtype = dtype
        target.static = Static(target.model)
        target.pool.sequences.clear()
        begin(target, tokens)
        logits.append(target.forward(tokens[-1], some_tree(3, target.vocab)).logits)
    error = (logits[0] - logits[1]).norm() / logits[0].norm()
    assert 0 < error < 0.1, float(error)


@pytest.mark.parametrize("name", MIXTURES)
def test_experts_give_the_same_in_each_way(family: Any, name: str) -> None:
    mlp: Any = model_of(family(name)).blocks[0].mlp
    block: TorchExpertsBlock = mlp if isinstance(mlp, TorchExpertsBlock) else mlp.experts
    generator = torch.Generator().manual_seed(0)
    h = torch.randn(21, 32, generator=generator)
    with torch.inference_mode():
        choice, shares = block._route(h)
        ways = [one(h, choice) for one in (block._gathered, block._every, block._sorted)]
        every = block.router(h).softmax(-1)
    for way in ways[1:]:
        torch.testing.assert_close(way, ways[0], rtol=1e-5, atol=1e-5)
    expected = every.gather(1, choice)
    if block.spec.normalised:
        expected = expected / expected.sum(-1, keepdim=True)
    torch.testing.assert_close(shares, expected)
    assert sorted(choice[0].tolist()) == sorted(every[0].topk(3).indices.tolist())


def test_a_window_holds_the_last_tokens_of_each_branch() -> None:
    base, window = 6, 4
    draft = some_tree(20, 100, 3)
    parents = [-1, *(parent + 1 for parent in draft.parents)]
    now = TorchPass(Rows.of(base, parents, CPU), (), [], {}, None)
    for row in range(len(parents)):
        line = [row]
        while parents[line[0]] >= 0:
            line.insert(0, parents[line[0]])
        text = [*range(base), *(base + one for one in line)]
        assert now.sees(0)[row].nonzero()[:, 0].tolist() == sorted(text)
        assert now.sees(window)[row].nonzero()[:, 0].tolist() == sorted(text[-window:])


@pytest.mark.parametrize("name", NAMES)
def test_predicted_sizes_equal_the_loaded_ones(family: Any, name: str) -> None:
    """Of all matrices and of the cache; norms and biases are few."""
    target = as_on_a_card(family(name))
    model: Any = target.model
    size = size_of_described(model.description, 4)
    begin(target, [3, 4, 5])
    assert size.token * target.sequence.capacity == target.sequence.nbytes
    stored = weights_of(family(name))
    named = [one for one in stored if len(stored.shape(one)) > 1]
    tied = model.description.tied
    matrices = sum(stored[one].nbytes for one in named if not (tied and one == "lm_head.weight"))
    assert matrices <= size.weights < matrices + 4 * 32 * 40 * model.layers


def test_the_size_of_a_known_mixture() -> None:
    """Qwen3-30B-A3B: 30.5 billion parameters, 98 KB of keys and values per token, and up to 5 rows
    whose 8 experts of 4.7 million weights each are copied."""
    settings = {
        "model_type": "qwen3_moe", "hidden_size": 2048, "num_hidden_layers": 48, "num_experts": 128,
        "num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128, "vocab_size": 151936,
        "num_experts_per_tok": 8, "moe_intermediate_size": 768, "intermediate_size": 6144,
        "max_position_embeddings": 40960, "rms_norm_eps": 1e-6, "norm_topk_prob": True,
    }  # fmt: skip
    described = read_config(settings)
    size = size_of_described(described, 2)
    assert size.weights == pytest.approx(2 * 30.53e9, rel=0.001)
    assert size.token == 2 * 48 * 4 * 128 * 2
    wider = size_of_described(described, 4)
    assert wider.overhead - size.overhead == 2 * 5 * 8 * 3 * 2048 * 768


# -- which models run on a card --------------------------------------------------------------------


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """A fake card's free bytes."""
    memory = {"free": 24 * 10**9}
    list_cards(monkeypatch)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda card: (memory["free"], 24 * 10**9))
    return memory


def test_linear_attention_runs_on_a_cpu(
    family: Any, card: dict[str, int], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    with pytest.raises(UnsupportedModel, match="CPU only: choose --device cpu") as caught:
        load_model(family("qwen3.5"), Config(device="cuda"))
    assert "\n" not in str(caught.value)
    loaded = load_model(family("qwen3.5"), Config(device="auto", dtype="f32", threads=1))
    assert loaded.device == CPU
    assert "qwen3.5: a qwen3_5_text model has no path on cuda, so it runs on the CPU" in caplog.text


@pytest.mark.parametrize(
    ("free", "options", "why"),
    [
        (10**8, {}, "it does not fit the card"),
        (10**10, {"exact": True}, "exact passes of a gpt_oss model have no path on a card"),
        (10**10, {"dtype": "q8"}, "q8 has no path on a card"),
    ],
)
def test_auto_takes_the_cpu_for_what_the_card_cannot_run(
    family: Any,
    card: dict[str, int],
    caplog: pytest.LogCaptureFixture,
    free: int,
    options: dict[str, Any],
    why: str,
) -> None:
    caplog.set_level(logging.INFO)
    card["free"] = free
    loaded = load_model(family("gpt-oss"), Config(device="auto", threads=1, **options))
    assert loaded.device == CPU
    assert f"gpt-oss: {why}, so it runs on the CPU" in caplog.text


def test_a_mixture_that_does_not_fit_is_refused_with_the_numbers(
    family: Any, card: dict[str, int]
) -> None:
    card["free"] = 10**8
    with pytest.raises(UnsupportedModel, match=r"gpt-oss needs 0\.6 GB .* free") as caught:
        load_model(family("gpt-oss"), Config(device="cuda"))
    assert "\n" not in str(caught.value)
    refused: list[tuple[dict[str, Any], str]] = [({"exact": True}, "exact: not for")]
    refused += [({"dtype": name}, f"{name}: not for gpt_oss on cuda") for name in FORMATS]
    for options, line in refused:
        with pytest.raises(UnsupportedModel, match=line):
            load_model(family("gpt-oss"), Config(device="cuda", **options))
