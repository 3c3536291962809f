"""Models with windows, experts, sinks and shared keys survive the way through a GGUF file: their
config and their tensors, by transformers' own reading of them; and llama.cpp computes from that
file what transformers does from the original, so the file is what llama.cpp's converter writes."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from engine.model.families import read_config, read_metadata
from engine.model.families.gguf_names import checked_outputs
from engine.model.families.gguf_tensors import GgufTensors
from engine.model.torch.gguf_weights import GgufWeights
from engine.model.unsupported import UnsupportedModel
from engine.weights import WeightsError
from engine.weights.gguf.gguf_file import Gguf, read_gguf
from engine.weights.gguf.ollama_form import read_model
from tests.conftest import tiny_model
from tests.model import test_gguf_config
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
LINEAR = "linear_attention"
DELTA_NET: dict[str, Any] = {
    "head_dim": 16,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 6,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.25},
}
SECTIONS = {"mrope_section": [1, 1, 0], "mrope_interleaved": True}
QWEN_3_5 = DELTA_NET | {"rope_parameters": DELTA_NET["rope_parameters"] | SECTIONS}
SHARED = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24}
SHARED |= {"shared_expert_intermediate_size": 40}
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
    "gemma3-27b": ("gemma3_text", 62, GEMMA3 | {"query_pre_attn_scalar": 8}),
    "gemma3-full": ("gemma3_text", 2, GEMMA3 | {"layer_types": [FULL] * 2, "sliding_window": 512}),
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
    "qwen3-next": ("qwen3_next", 4, DELTA_NET | SHARED),
    "qwen3.5": ("qwen3_5_text", 4, QWEN_3_5 | {"tie_word_embeddings": True}),
    "qwen3.5-moe": (
        "qwen3_5_moe_text", 3, QWEN_3_5 | SHARED | {"layer_types": [LINEAR, FULL, LINEAR]},
    ),
}  # fmt: skip
# llama.cpp reads neither biases of these two nor YaRN's attention factor.
UNLIKE_LLAMA_CPP = ("smollm3-biases", "qwen3-biases", "qwen2-attention-factor")
MOE = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
LLAMAS: dict[str, tuple[str, int, dict[str, Any]]] = {  # and Qwen3's mixture
    **{
        name: (kind, 4 if kind == "smollm3" else 2, changes)
        for name, (kind, changes) in test_gguf_config.MODELS.items()
        if name not in UNLIKE_LLAMA_CPP
    },
    "qwen3-moe": ("qwen3_moe", 2, MOE | {"head_dim": 16, "norm_topk_prob": True}),
}
GEMMAS_4 = ("gemma4-e2b", "gemma4-26b-a4b")
MANY_LAYERS = ("gemma3-27b",)
NAMES = [pytest.param(one, marks=pytest.mark.full) if one in MANY_LAYERS else one for one in MODELS]
# Beside others like them.
SLOW = (*MANY_LAYERS, "gemma3", "gemma3-full", "gemma4-31b", "olmo2", "phi3")
FAST_LLAMAS = ("llama-3", "smollm3", "granite-biases", "ministral3")
UNLIKE = {  # fields that no forward pass reads, or that are of the tests' tokenizer
    "bos_token_id", "eos_token_id", "pad_token_id", "dtype", "_sliding_window_pattern",
    "architectures",
}  # fmt: skip
PROMPT = some_tokens(40, VOCABULARY)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """model(name) -> the folder of a tiny random model, created once."""
    root = tmp_path_factory.mktemp("models")

    def make(name: str) -> Path:
        if not (root / name).exists():
            random_model(root / name, *(MODELS | LLAMAS)[name])
        return root / name

    return make


def random_model(folder: Path, kind: str, layers: int, changes: dict[str, Any]) -> None:
    """Write a tiny random model."""
    settings = {"vocab_size": VOCABULARY, "pad_token_id": 0} | changes
    tiny_model(folder, kind, layers=layers, **settings)
    randomise_vectors(folder / "model.safetensors")


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


@pytest.mark.parametrize("name", NAMES)
def test_the_config_survives(model: Any, tmp_path: Path, name: str) -> None:
    from transformers import CONFIG_MAPPING

    write_gguf_of(model(name), tmp_path / "m.gguf")
    found, expected = read_metadata(read_gguf(tmp_path / "m.gguf")), settings_of(model(name))
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
    [(name, kind) for name in MODELS if name not in MANY_LAYERS for kind in (F32, Q8_0)]
    + [("gpt-oss", MXFP4)],
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
    "name",
    [
        one if one in quick else pytest.param(one, marks=pytest.mark.full)
        for names, quick in ((MODELS, MODELS.keys() - set(SLOW)), (LLAMAS, FAST_LLAMAS))
        for one in names
    ],
)
def test_llama_cpp_computes_what_transformers_does(model: Any, tmp_path: Path, name: str) -> None:
    """But for Phi-3's windows, which it leaves out, the borders of YaRN's ramp, which it rounds
    also where gpt-oss was trained without, and the epsilon of linear attention's L2 norms."""
    write_gguf_of(model(name), tmp_path / "m.gguf")
    settings = settings_of(model(name))
    if settings["model_type"] == "phi3":
        settings["sliding_window"] = None
    if settings["model_type"] == "gpt_oss":
        settings["rope_parameters"]["truncate"] = True
    f16_gelu = settings["model_type"].startswith("gemma")
    truth = logits_of(settings, model(name), f16_gelu)
    theirs = torch.from_numpy(llama_cpp_logits(tmp_path / "m.gguf", PROMPT))
    error = 2e-3 if f16_gelu or "linear_num_key_heads" in settings else 1e-4
    torch.testing.assert_close(theirs, truth, rtol=error, atol=error)


@pytest.fixture
def refusal(model: Any, tmp_path: Path) -> Any:
    """refusal(name, change) -> the line that refuses the file of a model; "" where it is read.
    `change` gets the file's writer before its header is written."""

    def line(name: str, change: Callable[[Any], object]) -> str:
        return refusal_of(model(name), tmp_path / "m.gguf", change)

    return line


def refusal_of(folder: Path, path: Path, change: Callable[[Any], object]) -> str:
    """The line that refuses the changed file of a model; "" where it is read."""
    write_gguf_of(folder, path, change=change)
    try:
        file = read_model(path)
        check(file)
    except WeightsError as error:
        assert str(error).isprintable()
        return str(error)
    return ""


def check(file: Gguf) -> dict[str, Any]:
    """The fields of config.json of a file that can be read."""
    settings = read_metadata(file)
    checked_outputs(file, settings, read_config(settings))
    return settings


def field(key: str, value: Any) -> Callable[[Any], None]:
    """A change: the field `key`, without the architecture, is `value`."""

    def change(writer: Any) -> None:
        fields, whole = writer.kv_data[0], f"{writer.arch}.{key}"
        fields.pop(whole, None)
        adds = {bool: "bool", int: "uint32", float: "float32", str: "string", list: "array"}
        getattr(writer, f"add_{adds[type(value)]}")(whole, value)

    return change


def no_field(key: str) -> Callable[[Any], object]:
    return lambda writer: writer.kv_data[0].pop(f"{writer.arch}.{key}")


def no_tensor(name: str) -> Callable[[Any], object]:
    return lambda writer: writer.tensors[0].pop(name)


def tensor(name: str, *values: float) -> Callable[[Any], object]:
    def change(writer: Any) -> None:
        writer.tensors[0].pop(name, None)
        writer.add_tensor(name, np.float32(values))

    return change


WINDOWS, RECURRENT = "attention.sliding_window_pattern", "attention.recurrent_layers"
LAST_HAS_A_WINDOW = [True, False, True, False, False, True]
REFUSALS: list[tuple[str, Callable[[Any], object], str]] = [
    ("phi3", no_field("attention.sliding_window"), "'phi3.attention.sliding_window'"),
    ("phi3", field("rope.dimension_count", 7), "'phi3.rope.dimension_count' is 7"),
    ("phi3", field("rope.dimension_count", 16), "'phi3.rope.dimension_count' is 16"),
    ("phi3", field("expert_count", 4), "phi3.expert_count"),
    ("phi3", field("rope.scaling.factor", 4.0), "rope scaling linear"),
    ("phi3-longrope", no_tensor("rope_factors_short.weight"), "no 'rope_factors_short.weight'"),
    ("phi3-longrope", tensor("rope_factors_long.weight", 1.0), "'rope_factors_long.weight' is [1]"),
    ("phi3-longrope", tensor("rope_factors_long.weight", 1, -1, 1), "not above 0"),
    ("phi3-longrope", field("rope.scaling.type", "yarn"), "'phi3.rope.scaling.type'"),
    ("gemma3", field("attn_logit_softcapping", 50.0), "gemma3.attn_logit_softcapping"),
    ("gemma3", field("rope.local.freq_base", 2e4), "gemma3.rope.local.freq_base"),
    ("gemma3", field("rope.dimension_count", 8), "'gemma3.rope.dimension_count'"),
    ("gemma3", field("attention.value_length", 8), "'gemma3.attention.value_length'"),
    ("gemma3", field("attention.causal", False), "'gemma3.attention.causal'"),
    ("gemma3", field(WINDOWS, [True]), f"'gemma3.{WINDOWS}'"),
    ("gemma3", field("rope.scaling.type", "yarn"), "rope scaling yarn"),
    ("gemma3", tensor("blk.0.attn_q.bias", *[0.0] * 64), "blk.0.attn_q.bias"),
    ("gemma3", no_tensor("blk.3.post_ffw_norm.weight"), "blk.3.post_ffw_norm.weight"),
    ("gpt-oss", field("expert_count", 0), "'gpt-oss.expert_count' is 0"),
    ("gpt-oss", field("expert_used_count", 5), "'gpt-oss.expert_used_count' is 5"),
    ("gpt-oss", field("expert_count", 5), "the metadata say [5, 32]"),
    ("gpt-oss", field("expert_weights_scale", 2.5), "gpt-oss.expert_weights_scale"),
    ("gpt-oss", field("swiglu_clamp_exp", [5.0]), "gpt-oss.swiglu_clamp_exp"),
    ("gpt-oss", field("attention.sliding_window", 0), "gpt-oss.attention.sliding_window"),
    ("gpt-oss", field("rope.freq_base_swa", 5e3), "'gpt-oss.rope.freq_base_swa'"),
    ("gpt-oss", no_tensor("blk.1.attn_sinks.weight"), "blk.1.attn_sinks.weight"),
    ("gpt-oss", no_tensor("blk.1.attn_k.bias"), "blk.1.attn_k.bias"),
    ("olmo2", field("attention.clamp_kqv", 8.0), "olmo2.attention.clamp_kqv"),
    ("olmo3", field("attention.sliding_window", "7"), "'olmo2.attention.sliding_window'"),
    ("olmo3", tensor("blk.0.attn_norm.weight", *[1.0] * 32), "blk.0.attn_norm.weight"),
    ("gemma4-31b", no_field("final_logit_softcapping"), "'gemma4.final_logit_softcapping'"),
    ("gemma4-31b", field(WINDOWS, LAST_HAS_A_WINDOW), f"'gemma4.{WINDOWS}'"),
    ("gemma4-31b", no_field(WINDOWS), f"'gemma4.{WINDOWS}'"),
    ("gemma4-31b", field("attention.shared_kv_layers", 5), "'gemma4.attention.shared_kv_layers'"),
    ("gemma4-31b", field("attention.shared_kv_layers", 6), "'gemma4.attention.shared_kv_layers'"),
    ("gemma4-31b", field("attention.head_count_kv", [2, 1, 1] * 2), "differ in 'gemma4.attention"),
    ("gemma4-31b", field("attention.head_count_kv", 2), "blk.1.attn_k.weight"),
    ("gemma4-31b", field("feed_forward_length", [48] * 5 + [96]), "'gemma4.feed_forward_length'"),
    ("gemma4-31b", field("attention.value_length_swa", 8), "'gemma4.attention.value_length_swa'"),
    ("gemma4-31b", field("attention.key_length_swa", 8), "unlike its key_length_swa"),
    ("gemma4-31b", field("rope.scaling.factor", 8.0), "'gemma4.rope.scaling.factor'"),
    ("gemma4-31b", tensor("rope_freqs.weight", *[2.0] * 16), "'rope_freqs.weight'"),
    ("gemma4-31b", no_tensor("rope_freqs.weight"), "'rope_freqs.weight'"),
    ("gemma4-31b", no_tensor("blk.0.layer_output_scale.weight"), "layer_output_scale"),
    ("gemma4-e2b", field("embedding_length_per_layer_input", 0), "in a gemma4_text model"),
    ("gemma4-e2b", field("embedding_length_per_layer_input", 4), "the metadata say"),
    ("qwen3.5", field("ssm.group_count", 4), "'qwen35.ssm.group_count': 6 is not a multiple of 4"),
    ("qwen3.5", field("ssm.group_count", 7), "'qwen35.ssm.group_count' is 7"),
    ("qwen3.5", field("ssm.group_count", 3), "the metadata say [96, 32]"),
    ("qwen3.5", field("ssm.inner_size", 50), "'qwen35.ssm.inner_size': 50 is not a multiple"),
    ("qwen3.5", field("ssm.inner_size", 96), "the metadata say [128, 32]"),
    ("qwen3.5", field("ssm.state_size", 16), "the metadata say [112, 32]"),
    ("qwen3.5", field("ssm.conv_kernel", 3), "the metadata say [80, 3]"),
    ("qwen3.5", field("ssm.dt_b_c_rms", True), "qwen35.ssm.dt_b_c_rms"),
    ("qwen3.5", no_field("ssm.time_step_rank"), "'qwen35.ssm.time_step_rank'"),
    ("qwen3.5", field(RECURRENT, [True]), f"'qwen35.{RECURRENT}' is not an array of 4"),
    ("qwen3.5", field(RECURRENT, [True, True, False, True]), "'blk.2.attn_gate.weight' in a"),
    ("qwen3.5", field("rope.dimension_count", 3), "'qwen35.rope.dimension_count' is 3"),
    ("qwen3.5", field("rope.dimension_count", 18), "'qwen35.rope.dimension_count' is 18"),
    ("qwen3.5", no_field("rope.dimension_sections"), "'qwen35.rope.dimension_sections'"),
    ("qwen3.5", field("rope.dimension_sections", [0, 0, 0, 0]), "expected three counts and a 0"),
    ("qwen3.5", field("rope.dimension_sections", [2, 0, 0, 0]), "leaves frequencies out"),
    ("qwen3.5", field("nextn_predict_layers", 4), "'qwen35.nextn_predict_layers' is 4"),
    ("qwen3.5", field("expert_count", 4), "qwen35.expert_count"),
    ("qwen3.5", no_tensor("blk.0.ssm_a"), "no tensor 'blk.0.ssm_a'"),
    ("qwen3-next", no_tensor("blk.0.ssm_ba.weight"), "no tensor 'blk.0.ssm_ba.weight'"),
    ("qwen3-next", field("expert_count", 0), "'qwen3next.expert_count' is 0"),
    ("qwen3-next", field("expert_gating_func", 2), "qwen3next.expert_gating_func"),
    ("qwen3.5-moe", no_field("expert_shared_feed_forward_length"), "expert_shared_feed_forward"),
    ("qwen3.5-moe", field("expert_shared_feed_forward_length", 24), "the metadata say [24, 32]"),
    ("gemma4-26b-a4b", field("expert_count", 0), "in a gemma4_text model"),
    ("gemma4-26b-a4b", no_tensor("blk.2.ffn_down_exps.scale"), "blk.2.ffn_down_exps.scale"),
]


@pytest.mark.parametrize(("name", "change", "reason"), REFUSALS)
def test_files_that_would_be_read_wrongly_are_refused(
    refusal: Any, name: str, change: Any, reason: str
) -> None:
    assert reason in refusal(name, change)


@pytest.mark.parametrize("factor", [1.2079441541679836, 1.5])  # the first follows from the scale
def test_a_factor_of_attention_in_olmo_3_is_the_models_own(
    refusal: Any, model: Any, tmp_path: Path, factor: float
) -> None:
    """So does llama.cpp's converter write it, and llama.cpp multiplies it by what follows."""
    assert refusal("olmo3", field("rope.scaling.attn_factor", factor)) == ""
    found, expected = read_metadata(read_gguf(tmp_path / "m.gguf")), settings_of(model("olmo3"))
    expected["rope_parameters"][FULL]["attention_factor"] = factor
    ours, theirs = (logits_of(config, model("olmo3")) for config in (found, expected))
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["gpt-oss", "gemma4-e2b", "olmo3"])
def test_metadata_that_change_nothing_are_read_over(refusal: Any, name: str) -> None:
    assert refusal(name, field("expert_shared_count", 0)) == ""
    assert refusal(name, field("vocab_size", VOCABULARY)) == ""


def test_keys_that_no_layer_reads_may_be_there(refusal: Any, tmp_path: Path) -> None:
    """Published Gemma 4 models have them in layers that read other layers' keys and values."""
    assert refusal("gemma4-e2b", tensor("blk.5.attn_k_norm.weight", *[1.0] * 32)) == ""
    with GgufTensors(tmp_path / "m.gguf") as tensors:
        assert "model.layers.5.self_attn.k_norm.weight" not in tensors
        assert "model.layers.1.self_attn.k_norm.weight" in tensors


def test_gate_and_up_of_experts_may_be_apart(refusal: Any, model: Any, tmp_path: Path) -> None:
    def split(writer: Any) -> None:
        for name in [one for one in writer.tensors[0] if "gate_up_exps" in one]:
            gate, up = np.split(writer.tensors[0].pop(name).tensor, 2, axis=1)
            for half, values in (("gate", gate), ("up", up)):
                writer.add_tensor(name.replace("gate_up", half), np.ascontiguousarray(values))

    assert refusal("gemma4-26b-a4b", split) == ""
    whole = load_file(model("gemma4-26b-a4b") / "model.safetensors")
    with GgufTensors(tmp_path / "m.gguf") as tensors:
        found = GgufWeights(tensors)
        halves = [found[f"model.layers.0.experts.{one}_proj.weight"] for one in ("gate", "up")]
        assert torch.equal(torch.cat(halves, 1), whole["model.layers.0.experts.gate_up_proj"])


@pytest.mark.parametrize("name", ["attn_sinks", "post_attention_norm"])
def test_values_that_are_not_finite_are_found(refusal: Any, tmp_path: Path, name: str) -> None:
    size = 4 if name == "attn_sinks" else 32
    nans = tensor(f"blk.1.{name}.weight", *[1.0] * (size - 1), float("nan"))
    assert refusal("gpt-oss", nans) == ""
    with GgufTensors(tmp_path / "m.gguf") as tensors:
        found = GgufWeights(tensors)
        (broken,) = (
            one for one, there in tensors.outputs.items() if name in there.source and ".1." in one
        )
        with pytest.raises(WeightsError, match="not finite"):
            found[broken]


@pytest.mark.parametrize("name", ["qwen3-next", "qwen3.5"])
def test_linear_layers_follow_from_the_interval_where_they_are_not_listed(
    refusal: Any, model: Any, tmp_path: Path, name: str
) -> None:
    assert refusal(name, no_field(RECURRENT)) == ""
    found = read_metadata(read_gguf(tmp_path / "m.gguf"))
    assert found["layer_types"] == settings_of(model(name))["layer_types"] == [LINEAR] * 3 + [FULL]


def test_layers_that_predict_the_token_after_the_next_are_left_out(
    refusal: Any, tmp_path: Path
) -> None:
    """Converted files have them after the model's own."""

    def add(writer: Any) -> None:
        for name, one in list(writer.tensors[0].items()):
            if name.startswith("blk.3."):
                writer.add_tensor(name.replace("blk.3.", "blk.4."), one.tensor)
        for name in ("eh_proj", "enorm", "hnorm", "shared_head_norm"):
            writer.add_tensor(f"blk.4.nextn.{name}.weight", np.ones((32, 32), np.float32))
        field("block_count", 5)(writer)
        field("nextn_predict_layers", 1)(writer)
        field(RECURRENT, [True] * 3 + [False] * 2)(writer)

    for name in ("qwen3-next", "qwen3.5"):
        assert refusal(name, add) == ""
        found = read_metadata(read_gguf(tmp_path / "m.gguf"))
        assert (found["num_hidden_layers"], found["mtp_num_hidden_layers"]) == (4, 1)
        assert found["layer_types"] == [LINEAR] * 3 + [FULL]
        with GgufTensors(tmp_path / "m.gguf") as tensors:
            assert not any(".4." in one for one in tensors)


def test_projections_of_older_qwen3_next_files_stay_fused(
    refusal: Any, model: Any, tmp_path: Path
) -> None:
    whole = load_file(model("qwen3-next") / "model.safetensors")

    def fuse(writer: Any) -> None:
        for n in range(3):
            del writer.tensors[0][f"blk.{n}.attn_qkv.weight"]
            del writer.tensors[0][f"blk.{n}.attn_gate.weight"]
            values = whole[f"model.layers.{n}.linear_attn.in_proj_qkvz.weight"]
            writer.add_tensor(f"blk.{n}.ssm_in.weight", values.numpy())

    assert refusal("qwen3-next", fuse) == ""
    with GgufTensors(tmp_path / "m.gguf") as tensors:
        found = GgufWeights(tensors)
        for name in ("qkvz", "ba"):
            name = f"model.layers.1.linear_attn.in_proj_{name}.weight"
            assert torch.equal(found[name], whole[name])


def test_the_gate_of_the_shared_expert_may_be_a_vector(
    refusal: Any, model: Any, tmp_path: Path
) -> None:
    """llama.cpp's quantizer drops dimensions of 1; its converter does not."""

    def flatten(writer: Any) -> None:
        for n in range(3):
            name = f"blk.{n}.ffn_gate_inp_shexp.weight"
            writer.add_tensor(name, writer.tensors[0].pop(name).tensor.reshape(-1))

    assert refusal("qwen3.5-moe", flatten) == ""
    name = "model.layers.2.mlp.shared_expert_gate.weight"
    with GgufTensors(tmp_path / "m.gguf") as tensors:
        assert torch.equal(
            GgufWeights(tensors)[name], load_file(model("qwen3.5-moe") / "model.safetensors")[name]
        )


ODD = ("", "x", 0, -1, 3, 1 << 40, 0.5, -2.0, float("nan"), float("inf"), True, False, [], [0],
       [1.5], ["x"], [1] * 6, [True] * 6, [1 << 40] * 6)  # fmt: skip


@pytest.mark.parametrize("name", ["phi3-longrope", "gemma3", "gpt-oss", "olmo3", *GEMMAS_4])
def test_odd_metadata_are_read_or_refused(model: Any, tmp_path: Path, name: str) -> None:
    """Whatever stands in a field: no other error, and no config that is not plain JSON."""
    write_gguf_of(model(name), tmp_path / "m.gguf")
    file = read_gguf(tmp_path / "m.gguf")
    start, read = file.text("general.architecture"), 0
    for key in [one for one in file.fields if one.startswith(f"{start}.")]:
        for value in ODD:
            odd = replace(file, fields=file.fields | {key: value})
            try:
                settings = check(odd)
            except (WeightsError, UnsupportedModel) as error:
                assert str(error).isprintable()
            else:
                read += 1
                json.dumps(settings, allow_nan=False)
    assert read


@pytest.mark.parametrize("name", ["phi3-longrope", "gemma3", "gpt-oss", "olmo3", *GEMMAS_4])
def test_odd_shapes_are_refused(model: Any, tmp_path: Path, name: str) -> None:
    write_gguf_of(model(name), tmp_path / "m.gguf")
    file = read_gguf(tmp_path / "m.gguf")
    for key, whole in file.tensors.items():
        for shape in {(1,), (3, 1), (1, *whole.shape), whole.shape[1:] or (2,)} - {whole.shape}:
            odd = replace(file, tensors=file.tensors | {key: whole._replace(shape=shape)})
            with pytest.raises(WeightsError):
                check(odd)
