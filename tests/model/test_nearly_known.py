"""Models that are nearly of a known family, or whose tensors are not those of their config.json:
refused in one line that names the field or the tensor, before weights are read."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from engine.model.native.weights import NativeWeights
from engine.model.unsupported import UnsupportedModel
from engine.weights import WeightsError
from tests.model.test_target import load
from tests.support.native_families import native_model

FULL = ["full_attention"] * 4
FLAT_ROPE = {"rope_type": "default", "rope_theta": 1e4}


@pytest.fixture(scope="module")
def family(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """family(name) -> the folder of a tiny random model, created once."""
    root = tmp_path_factory.mktemp("families")

    def make(name: str) -> Path:
        return root / name if (root / name).exists() else native_model(root / name, name)

    return make


def refusal(folder: Path) -> str:
    with pytest.raises((UnsupportedModel, WeightsError)) as caught:
        load(folder, threads=1)
    said = str(caught.value)
    assert said.isprintable() and len(said) < 600
    assert "choose" in said or "fetch this model again" in said
    return said


@pytest.mark.parametrize(
    ("name", "changes", "reason"),
    [
        ("gpt-oss", {"hidden_act": "relu"}, "hidden_act 'relu'"),
        ("qwen3.5", {"hidden_act": "gelu_pytorch_tanh"}, "hidden_act 'gelu_pytorch_tanh'"),
        ("gemma4-e", {"hidden_activation": "silu"}, "hidden_activation 'silu'"),
        ("phi3", {"hidden_act": "gelu"}, "hidden_act 'gelu'"),
        ("gpt-oss", {"final_logit_softcapping": 30.0}, "final_logit_softcapping"),
        ("gemma4", {"attn_logit_softcapping": 30.0}, "attn_logit_softcapping"),
        ("qwen3-moe", {"logits_scaling": 8.0}, "logits_scaling"),
        ("olmo3", {"kv_lora_rank": 16}, "MLA"),
        ("olmo2", {"mamba_d_conv": 4}, "recurrent state"),
        ("qwen3-moe", {"layer_types": ["linear_attention"] * 2}, "type 'linear_attention'"),
        ("gemma3", {"use_bidirectional_attention": True}, "use_bidirectional_attention"),
        ("gemma4", {"use_bidirectional_attention": "all"}, "use_bidirectional_attention 'all'"),
        ("gemma3", {"sliding_window": None}, "sliding_window None"),
        ("gpt-oss", {"sliding_window": 0}, "sliding_window 0"),
        ("gpt-oss", {"partial_rotary_factor": 0.5}, "partial_rotary_factor 0.5"),
        ("gpt-oss", {"rope_parameters": FLAT_ROPE | {"rope_type": "odd"}}, "rope type 'odd'"),
        ("gemma4", {"rope_parameters": FLAT_ROPE}, "without sliding_attention"),
        ("gemma4-moe", {"layer_types": FULL}, "per_layer_config of layer 1"),
        ("gpt-oss", {"num_local_experts": 0}, "expert count (num_experts) of 0"),
        ("qwen3.5-moe", {"num_experts": 0}, "expert count (num_experts) of 0"),
        ("qwen3-moe", {"num_experts_per_tok": 9}, "with 8 experts, num_experts_per_tok 9"),
        ("gemma4-moe", {"top_k_experts": 9}, "with 8 experts, top_k_experts 9"),
        ("gpt-oss", {"num_experts_per_tok": 0}, "'num_experts_per_tok' is 0"),
        ("qwen3-next", {"shared_expert_intermediate_size": 0}, "'shared_expert_intermediate_size'"),
        ("qwen3.5", {"linear_num_key_heads": 0}, "'linear_num_key_heads' is 0"),
        ("qwen3.5", {"linear_num_key_heads": 3}, "linear_num_value_heads 4"),
        ("qwen3.5", {"linear_key_head_dim": 12}, "linear_key_head_dim 12"),
        ("qwen3.5", {"linear_conv_kernel_dim": 9}, "linear_conv_kernel_dim 9"),
        (
            "qwen3.5",
            {"layer_types": ["linear_attention"] * 4},
            "without layers of type 'full_attention'",
        ),
        ("qwen3.5", {"layer_types": FULL}, "layers.0.self_attn.q_proj.weight"),
        ("qwen3-moe", {"attention_bias": True}, "layers.0.self_attn.q_proj.bias"),
        ("olmo2", {"num_hidden_layers": 3}, "layers.2."),
        ("gemma3", {"num_attention_heads": 8}, "layers.0.self_attn.o_proj.weight' is F32 [32, 64]"),
        ("qwen3-moe", {"num_experts": 16}, "layers.0.mlp.gate.weight' is F32 [8, 32]"),
        ("qwen3-moe", {"moe_intermediate_size": 32}, "experts.0.down_proj.weight' is F32 [32, 24]"),
    ],
)  # fmt: skip
def test_a_config_of_another_model_is_refused(
    family: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    changes: dict[str, Any],
    reason: str,
) -> None:
    monkeypatch.delattr(NativeWeights, "_array")  # no tensor is read
    folder = Path(shutil.copytree(family(name), tmp_path / "m"))
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))
    assert reason in refusal(folder)


def nan(values: torch.Tensor) -> torch.Tensor:
    places = torch.arange(values.numel()).view_as(values)
    return torch.where(places == values.numel() - 1, torch.nan, values)


def infinite(values: torch.Tensor) -> torch.Tensor:
    return nan(values).nan_to_num(torch.inf)


def shorter(values: torch.Tensor) -> torch.Tensor:
    return values[:-1]


def missing(values: torch.Tensor) -> None:
    return None


ATTENTION, EXPERTS = "model.layers.1.self_attn.", "model.layers.1.mlp.experts."
DELTA_NET = "model.layers.1.linear_attn."


@pytest.mark.parametrize("change", [nan, infinite, shorter, missing])
@pytest.mark.parametrize(
    ("name", "tensor"),
    [
        ("gpt-oss", f"{ATTENTION}k_proj.bias"),
        ("gpt-oss", f"{EXPERTS}down_proj_bias"),
        ("gpt-oss", f"{EXPERTS}gate_up_proj"),
        ("qwen3-moe", f"{EXPERTS}5.up_proj.weight"),
        ("phi3", f"{ATTENTION}qkv_proj.weight"),
        ("qwen3-next", f"{DELTA_NET}in_proj_ba.weight"),
        ("qwen3.5", f"{DELTA_NET}conv1d.weight"),
        ("qwen3.5", f"{DELTA_NET}A_log"),
        ("gemma4", "model.layers.1.layer_scalar"),
    ],
)
def test_a_damaged_tensor_is_named(
    family: Any, tmp_path: Path, name: str, tensor: str, change: Any
) -> None:
    folder = Path(shutil.copytree(family(name), tmp_path / "m"))
    tensors = load_file(folder / "model.safetensors")
    values = change(tensors.pop(tensor))
    if values is not None:
        tensors[tensor] = values.contiguous()
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    said = refusal(folder)
    assert tensor.removesuffix("_log") in said or change is missing
    assert "model.layers.1." in said


def test_a_head_that_should_be_the_embedding_is_named(family: Any, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(family("olmo2"), tmp_path / "m"))
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"tie_word_embeddings": True}))
    assert "'tie_word_embeddings' is true" in refusal(folder)
