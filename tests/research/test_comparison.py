"""Comparing decoding methods: their output, counters and expected gains; loading the models."""

from __future__ import annotations

import copy
import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.records import Request
from engine.sampling.rejection_sampling import probabilities
from research import two_models
from research.comparison import (
    METHODS,
    TimedRun,
    benchmark,
    counters,
    decode,
    expected_gain,
    median_rate,
    profiled,
)
from research.model_pair import ModelPair, locate_pair, max_context
from research.two_models import BatchSpeculation, Round, speculative_decoding
from tests.conftest import tiny_model
from tests.oracles.probability import least_likely

PROMPTS = ["def add(left", "x", "class Point:\n    def"]
SPECULATIVE = [name for name, method in METHODS.items() if method.speculates]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> ModelPair:
    return make(tmp_path_factory.mktemp("pair"), "llama")


def make(root: Path, kind: str) -> ModelPair:
    """A model and a noisy copy, which agree now and then, without end tokens. In float64: padded
    batches round differently from single rows, and texts must be equal."""
    folder = tiny_model(root / kind, kind)
    models = two_models.load(str(folder), str(folder))
    if kind != "bloom":  # its attention is always in float32
        models = replace(
            models,
            draft_model=models.draft_model.double(),
            target_model=models.target_model.double(),
        )
    torch.manual_seed(3)
    with torch.no_grad():
        for weight in models.draft_model.parameters():
            weight += 0.01 * torch.randn_like(weight)
    tokenizer = copy.copy(models.tokenizer)
    tokenizer.eos = frozenset()
    return replace(models, tokenizer=tokenizer)


@pytest.mark.parametrize("kind", ["llama", "gpt2", "bloom"])
def test_greedy_output_equals_the_targets(kind: str, tmp_path: Path) -> None:
    """For every method, with and without caches, including Bloom's attention."""
    pair = make(tmp_path, kind)
    expected = decode(pair, "target", PROMPTS, 16, 4, temperature=0).result
    for method in SPECULATIVE:
        result = decode(pair, method, PROMPTS, 16, 4, temperature=0).result
        assert result.tokens == expected.tokens, method
        assert 0 < sum(result.accepted) < sum(result.drafted), method
    sampled = {"temperature": 0.9, "top_k": 20, "top_p": 0.9, "seed": 0}
    texts = [
        decode(pair, method, PROMPTS, 9, 4, **sampled).result.tokens
        for method in ("target", "ours")
    ]
    assert texts[0] == texts[1]


@pytest.mark.parametrize("method", ["leviathan", "chen"])
def test_equal_seeds_give_equal_texts(pair: ModelPair, method: str) -> None:
    """Including seed 0; both methods draw the same tokens, since caches change nothing."""

    def texts(method: str, seed: int) -> list[list[int]]:
        return decode(pair, method, PROMPTS, 8, 4, temperature=1, seed=seed).result.tokens

    assert texts(method, 0) == texts(method, 0) == texts("leviathan", 0)
    assert texts(method, 0) != texts(method, 7)


@pytest.mark.parametrize("method", SPECULATIVE)
def test_sampled_texts_follow_the_targets_distribution(pair: ModelPair, method: str) -> None:
    """Three tokens with three candidates each; each row of the batch has its own seed."""
    rows, sampling = 300, {"temperature": 1.5, "top_k": 3, "seed": 100}
    request = Request("complete", **sampling)
    prompt = pair.tokenizer.encode(PROMPTS[0])

    @torch.inference_mode()
    def next_token(text: list[int]) -> dict[int, float]:
        logits = pair.target_model(input_ids=torch.tensor([text])).logits[0, -1].float()
        return {n: float(p) for n, p in enumerate(probabilities(logits, request)) if p > 0}

    expected = {
        (first, second, third): p * q * r
        for first, p in next_token(prompt).items()
        for second, q in next_token([*prompt, first]).items()
        for third, r in next_token([*prompt, first, second]).items()
    }
    assert len(expected) == 27
    result = decode(pair, method, PROMPTS[:1] * rows, 3, 4, **sampling).result
    assert least_likely(Counter(map(tuple, result.tokens)), expected) < 4
    assert 0 < sum(result.accepted) < sum(result.drafted)


def test_equal_models_accept_every_draft_including_token_0(pair: ModelPair) -> None:
    """p = q everywhere, and token 0 is the most likely."""
    flat = copy.deepcopy(pair.target_model)
    flat.lm_head = torch.nn.Linear(32, flat.config.vocab_size, dtype=torch.float64)
    with torch.no_grad():
        flat.lm_head.weight.zero_()
        flat.lm_head.bias.zero_()
        flat.lm_head.bias[0] = 4
    models = replace(pair, draft_model=flat, target_model=flat)
    for method in SPECULATIVE:
        result = decode(models, method, ["x"] * 4, 10, 4, temperature=1).result
        assert result.accepted == result.drafted
        assert any(0 in tokens for tokens in result.tokens)
        greedy = decode(models, method, ["x"], 5, 4, temperature=0).result
        assert greedy.tokens == [[0] * 5]


@pytest.mark.parametrize("method", SPECULATIVE)
def test_end_tokens_and_length_limits(pair: ModelPair, method: str) -> None:
    sampling: dict[str, Any] = {"temperature": 1, "seed": 5}
    (whole,) = decode(pair, method, ["x"], 9, 4, **sampling).result.tokens
    ending = replace(pair, tokenizer=copy.copy(pair.tokenizer))
    ending.tokenizer.eos = frozenset(whole[4:5])
    ended = decode(ending, method, ["x"], 9, 4, **sampling).result
    assert ended.tokens == [whole[: whole.index(whole[4])]] and ended.reasons == ["eos"]
    for count in (0, 1):
        (tokens,) = decode(pair, method, ["x"], count, 4, **sampling).result.tokens
        assert len(tokens) == count and (method != "ours" or tokens == whole[:count])


# -- counters ---------------------------------------------------------------------------


def test_counters_by_hand() -> None:
    rounds = [
        Round(4, 2, [1, 2, 3]),
        Round(4, 4, [1, 2, 3, 4, 5]),
        Round(3, 0, [9]),
        Round(0, 0, [1]),
    ]
    assert counters(rounds) == (10, 11, 6, 2, 2)
    cut = [Round(4, 2, [1, 2])]  # an end token follows the second one
    assert counters(cut) == (2, 4, 2, 0, 0)


def test_expected_gain_by_leviathans_formulas() -> None:
    """A known value: alpha 0.8, gamma 4, c 0.05."""
    rounds = [Round(4, 4, [0] * 5)] * 2 + [Round(4, 0, [0])] * 2
    gain = expected_gain(rounds, draft_rate=20, target_rate=1, gamma=4)
    assert gain.alpha == pytest.approx(0.8) and gain.cost == 0.05
    assert gain.gain == pytest.approx(2.8013, abs=1e-4)
    assert gain.best_gain >= gain.gain
    slow = expected_gain(rounds, draft_rate=1, target_rate=2, gamma=4)
    assert slow.gain < 1 and (slow.best, slow.best_gain) == (0, 1)
    assert expected_gain([Round(0, 0, [1])], 1, 1, 4).alpha == 0


def test_benchmark_runs_interleave_after_a_warm_up(pair: ModelPair) -> None:
    order: list[str] = []

    def run(method: str) -> TimedRun:
        order.append(method)
        return decode(pair, method, PROMPTS, 3, 2, temperature=0)

    timed = benchmark(run, ["target", "ours"], 2)
    assert order == ["target", "ours"] * 3
    assert [len(runs) for runs in timed.values()] == [2, 2]
    first = timed["ours"][0]
    assert first.rate == pytest.approx(9 / first.seconds)
    assert median_rate([first._replace(seconds=s) for s in (1.0, 2.0, 9.0)]) == 4.5


def test_profiled_writes_a_trace(pair: ModelPair, tmp_path: Path) -> None:
    with profiled(tmp_path / "trace.json"):
        decode(pair, "ours", PROMPTS[:1], 2, 2)
    names = {
        event.get("name", "")
        for event in json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    }
    assert any("mm" in name for name in names)


# -- loading models ------------------------------------------------------------------------------


def test_encoder_decoder_models_are_refused(tiny: Any, tmp_path: Path) -> None:
    for file in ("tokenizer.json",):
        (tmp_path / file).write_bytes((tiny() / file).read_bytes())
    (tmp_path / "config.json").write_text('{"model_type": "t5"}')
    (tmp_path / "model.safetensors").write_bytes(b"\2" + bytes(7) + b"{}")
    with pytest.raises(ValueError, match="encoder-decoder models such as t5") as caught:
        locate_pair(str(tiny()), str(tmp_path))
    assert str(tmp_path) in str(caught.value) and "\n" not in str(caught.value)


def test_texts_longer_than_the_context_are_refused(pair: ModelPair) -> None:
    limit = max_context(pair)
    if limit is None:
        assert pair.target_model.config.model_type == "bloom", "only Bloom is unlimited"
        return
    count = limit - len(pair.tokenizer.encode("x"))
    BatchSpeculation(pair, [pair.tokenizer.encode("x")], count)
    with pytest.raises(
        ValueError, match=f"need {limit + 1} tokens, the models' context has {limit}"
    ):
        speculative_decoding(pair, ["x"], count + 1)


def test_device_memory_limits(tiny: Any) -> None:
    """As far as this can be tested without GPUs."""
    pytest.importorskip("accelerate")
    folder = str(tiny())
    plain, split = (
        two_models.load(folder, folder),
        two_models.load(folder, folder, memory={"cpu": "1GB"}, draft_memory={"cpu": "1GB"}),
    )
    texts = [speculative_decoding(models, PROMPTS, 8).tokens for models in (plain, split)]
    assert texts[0] == texts[1]
    with pytest.raises(ValueError, match="does not fit"):
        two_models.load(folder, folder, memory={"cpu": "1KB"})
    gpus = torch.cuda.device_count()
    with pytest.raises(ValueError, match=f"no GPU {gpus}: this machine has {gpus}"):
        two_models.load(folder, folder, memory={gpus: "1GB", "cpu": "1GB"})
