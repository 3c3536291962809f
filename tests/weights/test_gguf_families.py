"""Models with windows, experts, sinks and shared keys survive the way through a GGUF file: their
config and their tensors, by transformers' own reading of them; and llama.cpp computes from that
file what transformers does from the original, so the file is what llama.cpp's converter writes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from engine.model.gguf_weights import GgufWeights
from engine.weights.gguf_config import model_config
from engine.weights.gguf_file import read_gguf
from engine.weights.gguf_tensors import GgufTensors
from tests.conftest import tiny_model
from tests.model.test_target import some_tokens
from tests.support.gguf_of_model import F32, VOCABULARY, stored_tensors, write_gguf_of
from tests.support.llama_cpp_logits import llama_cpp_logits

Q8_0, MXFP4 = gguf.GGMLQuantizationType.Q8_0, gguf.GGMLQuantizationType.MXFP4
FULL, SLIDING = "full_attention", "sliding_attention"
TRAINED = {"original_max_position_embeddings": 64}
YARN = {"rope_type": "yarn", "factor": 8.0, "rope_theta": 1e4, **TRAINED}
LENGTHS = {"original_max_position_embeddings": 256}  # from which llama.cpp takes the long factors
LONGROPE = LENGTHS | {
    "rope_parameters": LENGTHS
    | {
        "rope_type": "longrope",
        "rope_theta": 1e4,
        "partial_rotary_factor": 0.75,
        "short_factor": [1.0, 1.1, 1.25],
        "long_factor": [1.5, 2.0, 4.0],
    }
}
GPT_OSS = {"head_dim": 16, "sliding_window": 7, "num_local_experts": 4, "num_experts_per_tok": 2}
GEMMA3 = {"head_dim": 16, "sliding_window": 7, "query_pre_attn_scalar": 16}
GEMMA4 = {
    "head_dim": 16,
    "global_head_dim": 32,
    "sliding_window": 7,
    "layer_types": [SLIDING, FULL] * 3,
    "hidden_size_per_layer_input": 0,
    "tie_word_embeddings": True,
    "final_logit_softcapping": 30.0,
}
E2B = {
    "num_kv_shared_layers": 2,
    "hidden_size_per_layer_input": 8,
    "vocab_size_per_layer_input": VOCABULARY,
    "use_double_wide_mlp": True,
}
GLOBAL = {"attention_k_eq_v": True, "num_global_key_value_heads": 1}
EXPERTS = {"enable_moe_block": True, "num_experts": 4, "top_k_experts": 2}
ROPES = {FULL: {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6}}
LOCAL = {"rope_type": "default", "rope_theta": 1e4}
MODELS: dict[str, tuple[str, int, dict[str, Any]]] = {  # model type, layers, changes of its config
    "phi3": ("phi3", 2, {"sliding_window": 7, "original_max_position_embeddings": 512}),
    "phi3-longrope": ("phi3", 2, LONGROPE | {"tie_word_embeddings": True}),
    "gemma3": ("gemma3_text", 7, GEMMA3 | {"tie_word_embeddings": True}),
    "gemma3-linear": (
        "gemma3_text",
        7,
        GEMMA3 | {"rope_parameters": ROPES | {SLIDING: LOCAL}, "final_logit_softcapping": 30.0},
    ),
    "gpt-oss": ("gpt_oss", 3, GPT_OSS | {"rope_parameters": YARN | {"truncate": False}}),
    "olmo2": ("olmo2", 2, {}),
    "olmo3": (
        "olmo3", 5, {"sliding_window": 7, "rope_parameters": {FULL: YARN, SLIDING: LOCAL}},
    ),
    "gemma4-e2b": ("gemma4_text", 6, GEMMA4 | E2B),
    "gemma4-31b": ("gemma4_text", 6, GEMMA4 | GLOBAL),
    "gemma4-26b-a4b": (
        "gemma4_text", 6, GEMMA4 | GLOBAL | EXPERTS | {"moe_intermediate_size": 24},
    ),
}  # fmt: skip
SLOW = ("gemma3", "gemma4-31b", "olmo2", "phi3")  # beside others like them
UNLIKE = {  # fields that no forward pass reads, or that are of the tests' tokenizer
    "bos_token_id", "eos_token_id", "pad_token_id", "dtype", "_sliding_window_pattern",
}  # fmt: skip
PROMPT = some_tokens(40, VOCABULARY)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """model(name) -> the folder of a tiny random model, created once."""
    root = tmp_path_factory.mktemp("models")

    def make(name: str) -> Path:
        kind, layers, changes = MODELS[name]
        if not (root / name).exists():
            folder = tiny_model(
                root / name, kind, layers=layers,
                **{"vocab_size": VOCABULARY, "pad_token_id": 0} | changes,
            )  # fmt: skip
            randomise_vectors(folder / "model.safetensors")
        return root / name

    return make


def randomise_vectors(path: Path) -> None:
    """Norms, scales and sinks that matter."""
    torch.manual_seed(1)
    tensors = load_file(path)
    for values in tensors.values():
        if values.dim() == 1:
            values += torch.randn_like(values) * 0.3
    save_file(tensors, path, {"format": "pt"})


def logits_of(config: dict[str, Any], folder: Path, f16_gelu: bool = False) -> torch.Tensor:
    """transformers' logits of the tensors of `folder` under a config: f32 [40, vocabulary].
    `f16_gelu`: with llama.cpp's GELU, a table of f16 values."""
    from transformers import CONFIG_MAPPING, AutoModelForCausalLM

    read = CONFIG_MAPPING[config["model_type"]](**config)
    model = AutoModelForCausalLM.from_pretrained(
        folder, config=read, dtype=torch.float32, attn_implementation="eager"
    )
    for module in model.modules() if f16_gelu else ():
        if hasattr(module, "act_fn"):
            module.act_fn = F16Gelu()
    with torch.inference_mode():
        return model(torch.tensor([PROMPT])).logits[0]


class F16Gelu(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.nn.functional.gelu(x.half().float(), approximate="tanh").half().float()
        return torch.where(x >= 10, x, torch.where(x <= -10, 0.0, y))


def settings_of(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "config.json").read_text())


@pytest.mark.parametrize("name", MODELS)
def test_the_config_survives(model: Any, tmp_path: Path, name: str) -> None:
    from transformers import CONFIG_MAPPING

    write_gguf_of(model(name), tmp_path / "m.gguf")
    found, expected = model_config(read_gguf(tmp_path / "m.gguf")), settings_of(model(name))
    assert found["architectures"] == expected["architectures"]
    ours, theirs = (CONFIG_MAPPING[one["model_type"]](**one).to_dict() for one in (found, expected))
    ropes = ours.pop("rope_parameters"), theirs.pop("rope_parameters")
    assert {field for field in theirs if ours.get(field) != theirs[field]} <= UNLIKE
    for kind in (FULL, SLIDING) if FULL in ropes[0] else ("",):
        our_rope, their_rope = (one[kind] if kind else one for one in ropes)
        assert our_rope | their_rope == our_rope
    truth = logits_of(expected, model(name))
    torch.testing.assert_close(logits_of(found, model(name)), truth, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "kind"),
    [(name, kind) for name in MODELS for kind in (F32, Q8_0)] + [("gpt-oss", MXFP4)],
)
def test_tensors_survive(
    model: Any, tmp_path: Path, name: str, kind: gguf.GGMLQuantizationType
) -> None:
    write_gguf_of(model(name), tmp_path / "m.gguf", kind)
    expected, quantised = stored_tensors(model(name)), 0
    with GgufTensors(tmp_path / "m.gguf") as tensors:
        found = GgufWeights(tensors)
        assert set(found) == expected.keys()
        for one, values in expected.items():
            stored = tensors.gguf.tensors[tensors.outputs[one].source].kind
            if stored != F32:
                packed = gguf.quants.quantize(np.ascontiguousarray(values.numpy()), kind)
                values, quantised = torch.from_numpy(gguf.quants.dequantize(packed, kind)), 1
            assert torch.equal(found[one], values), one
    assert quantised == (kind != F32)


@pytest.mark.parametrize(
    "name", [pytest.param(one, marks=pytest.mark.full) if one in SLOW else one for one in MODELS]
)
def test_llama_cpp_computes_what_transformers_does(model: Any, tmp_path: Path, name: str) -> None:
    """But for Phi-3's windows, which it leaves out, and the borders of YaRN's ramp, which it rounds
    also where gpt-oss was trained without."""
    write_gguf_of(model(name), tmp_path / "m.gguf")
    settings = settings_of(model(name))
    if settings["model_type"] == "phi3":
        settings["sliding_window"] = None
    if settings["model_type"] == "gpt_oss":
        settings["rope_parameters"]["truncate"] = True
    f16_gelu = settings["model_type"].startswith("gemma")
    truth = logits_of(settings, model(name), f16_gelu)
    theirs = torch.from_numpy(llama_cpp_logits(tmp_path / "m.gguf", PROMPT))
    error = 2e-3 if f16_gelu else 1e-4
    torch.testing.assert_close(theirs, truth, rtol=error, atol=error)
