"""Two models in several ways: whose texts they are, what is counted, which models can be had."""

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
from engine.research import two_models
from engine.research.comparison import (
    METHODS,
    TimedRun,
    benchmark,
    counters,
    expected_gain,
    median_rate,
    profiled,
    write,
)
from engine.research.model_pair import ModelPair, locate_pair, max_context
from engine.research.two_models import BatchSpeculation, Round, speculative_decoding
from engine.sampling.rejection_sampling import probabilities
from tests.conftest import tiny_model
from tests.oracles.probability import least_likely

PROMPTS = ["def add(left", "x", "class Point:\n    def"]
SPECULATING = [name for name, way in METHODS.items() if way.speculates]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> ModelPair:
    return make(tmp_path_factory.mktemp("pair"), "llama")


def make(root: Path, kind: str) -> ModelPair:
    """A model, and the same with noise in it: they agree now and then. Nothing ends a text. In
    float64: padded batches round otherwise than rows alone, and texts must be equal."""
    folder = tiny_model(root / kind, kind)
    found = two_models.load(str(folder), str(folder))
    if kind != "bloom":  # its attention is in float32 whatever its weights are
        found = replace(found, little=found.little.double(), big=found.big.double())
    torch.manual_seed(3)
    with torch.no_grad():
        for weight in found.little.parameters():
            weight += 0.01 * torch.randn_like(weight)
    tokenizer = copy.copy(found.tokenizer)
    tokenizer.eos = frozenset()
    return replace(found, tokenizer=tokenizer)


@pytest.mark.parametrize("kind", ["llama", "gpt2", "bloom"])
def test_greedy_texts_are_the_targets_own(kind: str, tmp_path: Path) -> None:
    """Temperature 0, by either rule, with caches and without; Bloom's attention, too."""
    pair = make(tmp_path, kind)
    alone = write(pair, "target", PROMPTS, 16, 4, temperature=0).written
    for way in SPECULATING:
        found = write(pair, way, PROMPTS, 16, 4, temperature=0).written
        assert found.tokens == alone.tokens, way
        assert 0 < sum(found.accepted) < sum(found.drafted), way
    sampled = {"temperature": 0.9, "top_k": 20, "top_p": 0.9, "seed": 0}
    texts = [
        write(pair, way, PROMPTS, 9, 4, **sampled).written.tokens for way in ("target", "ours")
    ]
    assert texts[0] == texts[1]


@pytest.mark.parametrize("way", ["leviathan", "chen"])
def test_a_seed_is_a_seed(pair: ModelPair, way: str) -> None:
    """0, too; and both ways draw alike, for caches change nothing."""

    def texts(way: str, seed: int) -> list[list[int]]:
        return write(pair, way, PROMPTS, 8, 4, temperature=1, seed=seed).written.tokens

    assert texts(way, 0) == texts(way, 0) == texts("leviathan", 0)
    assert texts(way, 0) != texts(way, 7)


@pytest.mark.parametrize("way", SPECULATING)
def test_sampled_texts_are_distributed_as_the_targets(pair: ModelPair, way: str) -> None:
    """Three tokens of three each; a row of a batch is a seed."""
    rows, asked = 300, {"temperature": 1.5, "top_k": 3, "seed": 100}
    request = Request("complete", **asked)
    prompt = pair.tokenizer.encode(PROMPTS[0])

    @torch.inference_mode()
    def after(text: list[int]) -> dict[int, float]:
        logits = pair.big(input_ids=torch.tensor([text])).logits[0, -1].float()
        return {n: float(p) for n, p in enumerate(probabilities(logits, request)) if p > 0}

    expected = {
        (one, two, three): p * q * r
        for one, p in after(prompt).items()
        for two, q in after([*prompt, one]).items()
        for three, r in after([*prompt, one, two]).items()
    }
    assert len(expected) == 27
    found = write(pair, way, PROMPTS[:1] * rows, 3, 4, **asked).written
    assert least_likely(Counter(map(tuple, found.tokens)), expected) < 4
    assert 0 < sum(found.accepted) < sum(found.drafted)


def test_equal_models_refuse_nothing_and_token_0_is_a_token(pair: ModelPair) -> None:
    """p = q everywhere, and the first token is the likeliest."""
    flat = copy.deepcopy(pair.big)
    flat.lm_head = torch.nn.Linear(32, flat.config.vocab_size, dtype=torch.float64)
    with torch.no_grad():
        flat.lm_head.weight.zero_()
        flat.lm_head.bias.zero_()
        flat.lm_head.bias[0] = 4
    used = replace(pair, little=flat, big=flat)
    for way in SPECULATING:
        found = write(used, way, ["x"] * 4, 10, 4, temperature=1).written
        assert found.accepted == found.drafted
        assert any(0 in tokens for tokens in found.tokens)
        greedy = write(used, way, ["x"], 5, 4, temperature=0).written
        assert greedy.tokens == [[0] * 5]


@pytest.mark.parametrize("way", SPECULATING)
def test_texts_end_at_end_tokens_and_limits(pair: ModelPair, way: str) -> None:
    asked: dict[str, Any] = {"temperature": 1, "seed": 5}
    (whole,) = write(pair, way, ["x"], 9, 4, **asked).written.tokens
    ending = replace(pair, tokenizer=copy.copy(pair.tokenizer))
    ending.tokenizer.eos = frozenset(whole[4:5])
    ended = write(ending, way, ["x"], 9, 4, **asked).written
    assert ended.tokens == [whole[: whole.index(whole[4])]] and ended.reasons == ["eos"]
    for count in (0, 1):
        (found,) = write(pair, way, ["x"], count, 4, **asked).written.tokens
        assert len(found) == count and (way != "ours" or found == whole[:count])


# -- what is counted ---------------------------------------------------------------------------


def test_counters_by_hand() -> None:
    rounds = [
        Round(4, 2, [1, 2, 3]),
        Round(4, 4, [1, 2, 3, 4, 5]),
        Round(3, 0, [9]),
        Round(0, 0, [1]),
    ]
    assert counters(rounds) == (10, 11, 6, 2, 2)
    cut = [Round(4, 2, [1, 2])]  # an end token behind the second one
    assert counters(cut) == (2, 4, 2, 0, 0)


def test_worth_by_leviathans_formulas() -> None:
    """SPEC's golden vector: alpha 0.8, gamma 4, c 0.05."""
    rounds = [Round(4, 4, [0] * 5)] * 2 + [Round(4, 0, [0])] * 2
    found = expected_gain(rounds, draft_rate=20, target_rate=1, gamma=4)
    assert found.alpha == pytest.approx(0.8) and found.cost == 0.05
    assert found.gain == pytest.approx(2.8013, abs=1e-4)
    assert found.best_gain >= found.gain
    slow = expected_gain(rounds, draft_rate=1, target_rate=2, gamma=4)
    assert slow.gain < 1 and (slow.best, slow.best_gain) == (0, 1)
    assert expected_gain([Round(0, 0, [1])], 1, 1, 4).alpha == 0


def test_a_benchmark_runs_by_turns_and_counts_only_what_was_written(pair: ModelPair) -> None:
    order: list[str] = []

    def run(way: str) -> TimedRun:
        order.append(way)
        return write(pair, way, PROMPTS, 3, 2, temperature=0)

    found = benchmark(run, ["target", "ours"], 2)
    assert order == ["target", "ours"] * 3
    assert [len(one) for one in found.values()] == [2, 2]
    one = found["ours"][0]
    assert one.rate == pytest.approx(9 / one.seconds)
    assert median_rate([one._replace(seconds=s) for s in (1.0, 2.0, 9.0)]) == 4.5


def test_a_profile_is_a_trace(pair: ModelPair, tmp_path: Path) -> None:
    with profiled(tmp_path / "trace.json"):
        write(pair, "ours", PROMPTS[:1], 2, 2)
    names = {
        one.get("name", "")
        for one in json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    }
    assert any("mm" in name for name in names)


# -- which models ------------------------------------------------------------------------------


def test_a_model_with_an_encoder_is_refused(tiny: Any, tmp_path: Path) -> None:
    for file in ("tokenizer.json",):
        (tmp_path / file).write_bytes((tiny() / file).read_bytes())
    (tmp_path / "config.json").write_text('{"model_type": "t5"}')
    (tmp_path / "model.safetensors").write_bytes(b"\2" + bytes(7) + b"{}")
    with pytest.raises(ValueError, match="encoder-decoder models such as t5") as caught:
        locate_pair(str(tiny()), str(tmp_path))
    assert str(tmp_path) in str(caught.value) and "\n" not in str(caught.value)


def test_texts_longer_than_the_models_read_are_refused(pair: ModelPair) -> None:
    most = max_context(pair)
    if most is None:
        assert pair.big.config.model_type == "bloom", "nothing limits it"
        return
    count = most - len(pair.tokenizer.encode("x"))
    BatchSpeculation(pair, [pair.tokenizer.encode("x")], count)
    with pytest.raises(ValueError, match=f"need {most + 1} tokens, the models' context has {most}"):
        speculative_decoding(pair, ["x"], count + 1)


def test_memory_of_devices(tiny: Any) -> None:
    """As far as a machine without GPUs shows it."""
    pytest.importorskip("accelerate")
    folder = str(tiny())
    plain, placed = (
        two_models.load(folder, folder),
        two_models.load(folder, folder, memory={"cpu": "1GB"}, little_memory={"cpu": "1GB"}),
    )
    texts = [speculative_decoding(one, PROMPTS, 8).tokens for one in (plain, placed)]
    assert texts[0] == texts[1]
    with pytest.raises(ValueError, match="does not fit"):
        two_models.load(folder, folder, memory={"cpu": "1KB"})
    gpus = torch.cuda.device_count()
    with pytest.raises(ValueError, match=f"no GPU {gpus}: this machine has {gpus}"):
        two_models.load(folder, folder, memory={gpus: "1GB", "cpu": "1GB"})
