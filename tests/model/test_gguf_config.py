"""Models of transformers survive the way through a GGUF file: their config, their tensors and
their logits; and files that would be read wrongly are refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import pytest
import torch
from safetensors.torch import load_file

from engine.model import _kernels
from engine.model.families import read_config, read_metadata
from engine.model.families.gguf_names import FORMATS, checked_outputs, outputs_of
from engine.model.families.gguf_tensors import settings_of
from engine.model.rope import frequencies
from engine.model.torch.gguf_weights import weights_of
from engine.model.torch.llama import Llama
from engine.model.unsupported import UnsupportedModel
from engine.weights import WeightsError, locate
from engine.weights.gguf.gguf_file import read_gguf
from tests.conftest import tiny_model
from tests.model.test_families import BIASES, FAMILIES, GRANITE, YARN, chain
from tests.model.test_target import begin, load, some_tokens
from tests.support.gguf_of_model import VOCABULARY, write_gguf_of
from tests.support.tiny_gguf import write_gguf

SAME = (  # fields of config.json that a GGUF file has, too
    "model_type", "num_key_value_heads", "max_position_embeddings", "rms_norm_eps",
    "attention_bias", "mlp_bias", "no_rope_layers", *GRANITE,
)  # fmt: skip
MODELS = {name: made for name, made in FAMILIES.items() if made[0] != "mistral3"} | {
    "llama": ("llama", {}),
    "qwen3": ("qwen3", {"head_dim": 16}),
    # llama.cpp knows no other models of these two
    "smollm3": ("smollm3", {"no_rope_layer_interval": 4}),
    "smollm3-biases": ("smollm3", {"no_rope_layer_interval": 4, **BIASES}),
    "qwen2-attention-factor": ("qwen2", {"rope_parameters": YARN | {"attention_factor": 1.5}}),
}

FAST = ("granite-biases", "smollm3", "llama-3", "llama-linear", "ministral3")


@pytest.mark.parametrize(
    "name", [one if one in FAST else pytest.param(one, marks=pytest.mark.full) for one in MODELS]
)
def test_a_model_survives_the_way_through_a_gguf_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    from transformers import AutoModelForCausalLM

    monkeypatch.setenv("DRAFTLINE_HOME", str(tmp_path / "home"))
    kind, changes = MODELS[name]
    layers = 4 if kind == "smollm3" else 2
    sizes = {"vocab_size": VOCABULARY, **changes}
    original = tiny_model(tmp_path / "original", kind, layers=layers, **sizes)
    write_gguf_of(original, tmp_path / "m.gguf")
    folder = locate(str(tmp_path / "m.gguf"))

    expected, found = json.loads((original / "config.json").read_text()), settings_of(folder)
    same = [field for field in SAME if field in expected]
    assert {field: found[field] for field in same} == {field: expected[field] for field in same}
    head_dim = found["head_dim"]
    ours, theirs = frequencies(found, head_dim), frequencies(expected, head_dim)
    torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=0)

    weights, stored = load_file(original / "model.safetensors"), weights_of(folder)
    assert outputs_of(read_config(found)).keys() == weights.keys()
    assert weights.keys() == set(stored)
    assert all(torch.equal(stored[one], weights[one]) for one in weights)

    target = load(folder, threads=1)
    assert isinstance(target.model, Llama)
    tokens = some_tokens(40, target.vocab)
    begin(target, tokens[:31])
    logits = target.forward(tokens[30], chain(tokens[31:])).logits
    with torch.inference_mode():
        oracle = AutoModelForCausalLM.from_pretrained(original, dtype=torch.float32)
        truth = oracle(torch.tensor([tokens])).logits[0, 30:]
    torch.testing.assert_close(logits, truth, rtol=1e-4, atol=1e-4)


@pytest.fixture
def refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """refused(architecture, change) -> the line that refuses a GGUF file; "" where it is read.
    `change` gets the file's writer before its header is written."""

    def line(architecture: str, change: Callable[[Any], object]) -> str:
        usual = gguf.GGUFWriter.write_header_to_file

        def changed(writer: Any, *given: Any) -> None:
            change(writer)
            usual(writer, *given)

        with monkeypatch.context() as patch:
            patch.setattr(gguf.GGUFWriter, "write_header_to_file", changed)
            write_gguf(tmp_path / "m.gguf", architecture)
        file = read_gguf(tmp_path / "m.gguf")
        try:
            settings = read_metadata(file)
            checked_outputs(file, settings, read_config(settings))
        except (WeightsError, UnsupportedModel) as error:
            assert str(error).isprintable()
            return str(error)
        return ""

    return line


def ones(*shape: int) -> Any:
    return torch.ones(shape).numpy()


@pytest.mark.parametrize(
    ("architecture", "change", "reason"),
    [
        ("llama", lambda w: w.add_rope_scaling_type(gguf.RopeScalingType.LONGROPE), "longrope"),
        ("llama", lambda w: w.add_rope_scaling_attn_factors(1.2), "attn_factor"),
        ("llama", lambda w: w.add_sliding_window(16), "sliding window"),
        ("llama", lambda w: w.add_tensor("rope_freqs.weight", ones(7)), "rope_freqs"),
        ("llama", lambda w: w.add_tensor("rope_freqs.weight", -ones(8)), "above 0"),
        ("llama", lambda w: w.add_tensor("blk.0.attn_q.bias", ones(64)), "none of attn_k"),
        ("llama", lambda w: w.add_tensor("blk.0.ffn_up.bias", ones(96)), "none of ffn_gate"),
        ("qwen2", lambda w: w.add_tensor("blk.0.ffn_up.bias", ones(96)), "ffn_up.bias"),
        ("llama", lambda w: w.add_expert_count(4), "'llama.expert_count'"),
        ("llama", lambda w: w.add_logit_scale(2.0), "llama.logit_scale"),
        ("llama", lambda w: w.add_causal_attention(False), "'llama.attention.causal'"),
        ("qwen3", lambda w: w.add_attn_temperature_scale(0.1), "qwen3.attention.temperature_scale"),
        ("qwen3moe", lambda w: w.add_expert_count(0), "'qwen3moe.expert_count' is 0"),
        ("gemma3n", lambda w: None, "architecture 'gemma3n'"),
        ("granite", lambda w: None, "granite.logit_scale"),
        ("granite", lambda w: w.add_logit_scale(0.0), "granite.logit_scale"),
        ("granite", lambda w: w.add_logit_scale(1e-9), "logits_scaling"),
        (
            "granite",
            lambda w: (w.add_logit_scale(8.0), w.add_rope_scaling_finetuned(False)),
            "no rotary",
        ),
    ],
)
def test_files_that_would_be_read_wrongly_are_refused(
    refused: Any, architecture: str, change: Any, reason: str
) -> None:
    assert reason in refused(architecture, change)


def test_scaling_by_one_is_none(refused: Any, tmp_path: Path) -> None:
    def change(writer: Any) -> None:
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(1.0)

    assert refused("llama", change) == ""
    rope = read_metadata(read_gguf(tmp_path / "m.gguf"))["rope_parameters"]
    assert rope == {"rope_type": "default", "rope_theta": 5000.0}


def test_formats_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    """And they are those that the kernels refuse."""
    write_gguf(tmp_path / "m.gguf")
    file = read_gguf(tmp_path / "m.gguf")
    whole, found = file.tensors["blk.0.ffn_up.weight"], read_metadata(file)
    config = read_config(found)
    for kind in gguf.GGMLQuantizationType:
        file.tensors["blk.0.ffn_up.weight"] = whole._replace(kind=int(kind))
        block, size = gguf.GGML_QUANT_SIZES[kind]
        row = torch.zeros(1, size, dtype=torch.uint8).numpy()
        if kind.name in FORMATS:
            checked_outputs(file, found, config)
            _kernels.dequantize(int(kind), row, ones(1, block))
        else:
            with pytest.raises(
                WeightsError, match=f"'blk.0.ffn_up.weight' is stored as {kind.name}"
            ):
                checked_outputs(file, found, config)
            with pytest.raises(ValueError, match="not known"):
                _kernels.dequantize(int(kind), row, ones(1, block))
