"""Rotary embeddings are those of transformers, but for the rounding of powers."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.model.families import read_config
from engine.model.families.refusal import has_llama_pass
from engine.model.model_config import Attention, Rope
from engine.model.rope import check_rope, frequencies
from engine.model.torch.llama import query_scales, rotations
from engine.weights.config_json import stretched
from engine.weights.errors import WeightsError

SCALES = st.floats(1, 64) | st.sampled_from([1, 2.0, 8, 40])
TINY = {
    "vocab_size": 8, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1,
    "num_attention_heads": 4, "max_position_embeddings": 100, "rms_norm_eps": 1e-6,
}  # fmt: skip
LENGTHS = st.sampled_from([16, 64, 4096, 8192])
OPTIONAL = st.none() | st.floats(0.1, 4)


def parameters(head_dim: int) -> st.SearchStrategy[dict[str, Any]]:
    factors = st.lists(st.floats(0.5, 64), min_size=head_dim // 2, max_size=head_dim // 2)
    return st.one_of(
        st.fixed_dictionaries({"rope_type": st.just("default")}),
        st.fixed_dictionaries({"rope_type": st.just("linear"), "factor": SCALES}),
        st.fixed_dictionaries(
            {
                "rope_type": st.just("llama3"),
                "factor": SCALES,
                "low_freq_factor": st.sampled_from([1.0, 2]),
                "high_freq_factor": st.sampled_from([4.0, 8]),
                "original_max_position_embeddings": LENGTHS,
            }
        ),
        st.fixed_dictionaries(
            {"rope_type": st.just("yarn"), "factor": SCALES},
            optional={
                "original_max_position_embeddings": LENGTHS,
                "beta_fast": st.sampled_from([None, 32.0, 8]),
                "beta_slow": st.sampled_from([None, 1.0, 2]),
                "mscale": OPTIONAL,
                "mscale_all_dim": OPTIONAL,
                "attention_factor": OPTIONAL,
                "truncate": st.booleans(),
            },
        ),
        factors.map(lambda f: {"rope_type": "longrope", "short_factor": f, "long_factor": f}),
    )


def assert_same_but_for_powers(inverse: Any, oracle: Any) -> None:
    """Frequencies equal those of transformers but for the last bits of torch's powers, which
    transformers' module then takes from us: the angles are compared bit by bit."""
    np.testing.assert_allclose(inverse, oracle.inv_freq.numpy(), rtol=1e-6)
    oracle.inv_freq = torch.from_numpy(inverse)


@given(st.sampled_from([64, 80, 96, 128, 256]), st.floats(2, 1e7))
def test_powers_are_rounded_once(head_dim: int, theta: float) -> None:
    rope = {"rope_type": "default", "rope_theta": theta}
    model = {"model_type": "llama", "max_position_embeddings": 300, "rope_parameters": rope}
    inverse, _ = frequencies(model, head_dim)
    for n, found in enumerate(inverse):
        power = np.float32(2 * n) / np.float32(head_dim)
        exact = math.pow(np.float32(theta), power)
        assert found == 1 / np.float32(exact)


@settings(max_examples=25)
@given(st.data(), st.sampled_from([8, 24, 64, 128]), st.sampled_from([1e4, 5e5, 1e6]))
def test_frequencies_are_those_of_transformers(
    data: st.DataObject, head_dim: int, theta: float
) -> None:
    from transformers import LlamaConfig
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

    rope = data.draw(parameters(head_dim)) | {"rope_theta": theta}
    sizes = {"head_dim": head_dim, "hidden_size": 4 * head_dim, "num_attention_heads": 4}
    model = {"model_type": "llama", "max_position_embeddings": 300, "rope_parameters": rope}
    oracle = LlamaRotaryEmbedding(LlamaConfig(**sizes, **model | {"rope_parameters": {**rope}}))
    inverse, factor = frequencies(model, head_dim)
    assert_same_but_for_powers(inverse, oracle)
    assert factor == oracle.attention_scaling
    cos, sin = oracle(torch.zeros(1), torch.arange(300)[None])
    rotary = Rope(head_dim, head_dim // 2, tuple(inverse.tolist()), factor)
    found = torch.view_as_real(rotations(rotary, 300))
    expected = torch.stack([cos[0, :, : head_dim // 2], sin[0, :, : head_dim // 2]], -1)
    torch.testing.assert_close(found, expected, rtol=3e-7, atol=3e-7)


PUBLISHED: dict[str, dict[str, Any]] = {  # sizes, and how each says what stretches it
    "Llama-3.1-8B": {
        "model_type": "llama", "hidden_size": 4096, "num_attention_heads": 32,
        "num_key_value_heads": 8, "max_position_embeddings": 131072, "rope_theta": 500000.0,
        "rope_scaling": {
            "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192, "rope_type": "llama3",
        },
    },
    "Llama-3.2-1B": {
        "model_type": "llama", "hidden_size": 2048, "num_attention_heads": 32, "head_dim": 64,
        "num_key_value_heads": 8, "max_position_embeddings": 131072, "rope_theta": 500000.0,
        "rope_scaling": {
            "factor": 32.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
            "original_max_position_embeddings": 8192, "rope_type": "llama3",
        },
    },
    "Qwen2.5-Coder-7B, stretched": {
        "model_type": "qwen2", "hidden_size": 3584, "num_attention_heads": 28,
        "num_key_value_heads": 4, "max_position_embeddings": 32768, "rope_theta": 1000000.0,
        "sliding_window": 131072, "use_sliding_window": False, "max_window_layers": 28,
        "rope_scaling": {
            "factor": 4.0, "original_max_position_embeddings": 32768, "type": "yarn",
        },
    },
    "Qwen3-8B, stretched": {
        "model_type": "qwen3", "hidden_size": 4096, "num_attention_heads": 32, "head_dim": 128,
        "num_key_value_heads": 8, "max_position_embeddings": 40960, "rope_theta": 1000000,
        "rope_scaling": {
            "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768,
        },
    },
    "deepseek-coder-6.7b": {
        "model_type": "llama", "hidden_size": 4096, "num_attention_heads": 32,
        "num_key_value_heads": 32, "max_position_embeddings": 16384, "rope_theta": 100000,
        "rope_scaling": {"factor": 4.0, "type": "linear"},
    },
}  # fmt: skip


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_models_run_in_the_fast_path(name: str) -> None:
    """With the rotations of transformers' own module, to their last position."""
    from transformers import CONFIG_MAPPING
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

    published = PUBLISHED[name] | {"hidden_act": "silu"}
    model = stretched(published)
    assert has_llama_pass(model)
    positions = 131072 if name.endswith("stretched") else published["max_position_embeddings"]
    assert model["max_position_embeddings"] == positions
    head_dim = model.get("head_dim") or model["hidden_size"] // model["num_attention_heads"]
    config = CONFIG_MAPPING[model["model_type"]].from_dict(published)
    inverse, factor = frequencies(model, head_dim)
    oracle = LlamaRotaryEmbedding(config)
    assert_same_but_for_powers(inverse, oracle)
    assert factor == oracle.attention_scaling
    some = torch.arange(positions - 1, -1, -997)
    cos, sin = oracle(torch.zeros(1), some[None])
    rotary = Rope(head_dim, head_dim // 2, tuple(inverse.tolist()), factor)
    found = torch.view_as_real(rotations(rotary, positions)[some])
    expected = torch.stack([cos[0, :, : head_dim // 2], sin[0, :, : head_dim // 2]], -1)
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=3e-7)


def test_yarn_alone_lengthens_the_context() -> None:
    """By what it was trained with; never shortens it."""
    yarn = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 100}
    model = {"model_type": "llama", "max_position_embeddings": 120}
    for rope, expected in (
        (yarn, 400),
        (yarn | {"factor": 1.0}, 120),
        (yarn | {"factor": 1e6, "original_max_position_embeddings": 1 << 24}, 1 << 24),
        (yarn | {"original_max_position_embeddings": None}, 120),
        (yarn | {"rope_type": "llama3"}, 120),
        (None, 120),
    ):
        for place in ("rope_scaling", "rope_parameters"):
            assert stretched(model | {place: rope})["max_position_embeddings"] == expected


def test_the_places_where_a_config_has_its_parameters() -> None:
    """Older files have `rope_scaling`, `type`, and theta and the trained length outside."""
    llama3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
    model = {"model_type": "llama", "max_position_embeddings": 512}
    expected, _ = frequencies(
        model
        | {
            "rope_parameters": {
                "rope_type": "llama3",
                "rope_theta": 5e5,
                "original_max_position_embeddings": 64,
                **llama3,
            }
        },
        16,
    )
    older = model | {"rope_scaling": llama3 | {"type": "llama3"}, "rope_theta": 5e5}
    found, _ = frequencies(older | {"original_max_position_embeddings": 64}, 16)
    assert np.array_equal(found, expected)
    assert not np.array_equal(found, frequencies(older, 16)[0])


def test_query_scales_are_those_of_ministral() -> None:
    from transformers.models.ministral3.modeling_ministral3 import get_llama_4_attn_scale

    rope = {"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 16}
    model = TINY | {"model_type": "ministral3"}
    scaled = model | {"rope_parameters": rope | {"llama_4_scaling_beta": 0.1}}
    assert read_config(scaled).query_scales == (0.1, 16)
    found = query_scales(0.1, 16, 100)
    assert torch.equal(found, get_llama_4_attn_scale(torch.arange(100)[None], 0.1, 16).flatten())
    assert read_config(model | {"rope_parameters": rope}).query_scales is None


def test_rotary_layers_are_those_of_transformers() -> None:
    from transformers import SmolLM3Config

    for changes in ({}, {"no_rope_layer_interval": 3}, {"no_rope_layers": [0, 1] * 6}):
        oracle = SmolLM3Config(num_hidden_layers=12, **changes)
        model = TINY | {"model_type": "smollm3", "num_hidden_layers": 12, **changes}
        mixers = [layer.mixer for layer in read_config(model).layers]
        rotary = [isinstance(one, Attention) and one.rope is not None for one in mixers]
        assert rotary == [bool(one) for one in oracle.no_rope_layers]


@pytest.mark.parametrize(
    ("rope", "name"),
    [
        ({"rope_type": "linear"}, "factor"),
        ({"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0}, "high_freq_factor"),
        (
            {
                "rope_type": "llama3",
                "factor": 8.0,
                "low_freq_factor": 4.0,
                "high_freq_factor": 4.0,
            },
            "high_freq_factor",
        ),
        ({"rope_type": "yarn", "factor": 4.0, "rope_theta": 1.0}, "rope_theta"),
        ({"rope_type": "longrope", "short_factor": [1.0], "long_factor": [1.0]}, "short_factor"),
    ],
)
def test_parameters_that_give_no_rotation_are_named(rope: dict[str, Any], name: str) -> None:
    model = {"model_type": "llama", "max_position_embeddings": 64, "rope_parameters": rope}
    with pytest.raises(WeightsError, match=f"config.json: '{name}'"):
        check_rope(Path("config.json"), model, 16)
