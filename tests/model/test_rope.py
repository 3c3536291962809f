"""Rotary embeddings have the bits of transformers' own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.model.rope import check_rope, frequencies, query_scales, rotary_layers, rotations
from engine.weights.errors import WeightsError

SCALES = st.floats(1, 64) | st.sampled_from([1, 2.0, 8, 40])
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


@settings(max_examples=25)
@given(st.data(), st.sampled_from([8, 24, 64, 128]), st.sampled_from([1e4, 5e5, 1e6]))
def test_frequencies_have_the_bits_of_transformers(
    data: st.DataObject, head_dim: int, theta: float
) -> None:
    from transformers import LlamaConfig
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

    rope = data.draw(parameters(head_dim)) | {"rope_theta": theta}
    sizes = {"head_dim": head_dim, "hidden_size": 4 * head_dim, "num_attention_heads": 4}
    model = {"model_type": "llama", "max_position_embeddings": 300, "rope_parameters": rope}
    oracle = LlamaRotaryEmbedding(LlamaConfig(**sizes, **model | {"rope_parameters": {**rope}}))
    inverse, factor = frequencies(model, head_dim)
    assert torch.equal(inverse, oracle.inv_freq)
    assert factor == oracle.attention_scaling
    cos, sin = oracle(torch.zeros(1), torch.arange(300)[None])
    found = torch.view_as_real(rotations(model, head_dim))
    expected = torch.stack([cos[0, :, : head_dim // 2], sin[0, :, : head_dim // 2]], -1)
    torch.testing.assert_close(found, expected, rtol=3e-7, atol=3e-7)


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
    assert torch.equal(found, expected)
    assert not torch.equal(found, frequencies(older, 16)[0])


def test_query_scales_are_those_of_ministral() -> None:
    from transformers.models.ministral3.modeling_ministral3 import get_llama_4_attn_scale

    rope = {"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 16}
    model = {"model_type": "ministral3", "max_position_embeddings": 100}
    found = query_scales(model | {"rope_parameters": rope | {"llama_4_scaling_beta": 0.1}})
    assert found is not None
    assert torch.equal(found, get_llama_4_attn_scale(torch.arange(100)[None], 0.1, 16).flatten())
    assert query_scales(model | {"rope_parameters": rope}) is None


def test_rotary_layers_are_those_of_transformers() -> None:
    from transformers import SmolLM3Config

    for changes in ({}, {"no_rope_layer_interval": 3}, {"no_rope_layers": [0, 1] * 6}):
        oracle = SmolLM3Config(num_hidden_layers=12, **changes)
        model = {"model_type": "smollm3", "num_hidden_layers": 12, **changes}
        assert rotary_layers(model) == [bool(one) for one in oracle.no_rope_layers]
    assert rotary_layers({"model_type": "llama", "num_hidden_layers": 2}) == [True, True]


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
