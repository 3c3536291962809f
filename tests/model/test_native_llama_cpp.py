"""llama.cpp computes from a quantised file what we do, in every family, but for the rounding of
what is multiplied with 4- and 8-bit weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from gguf.constants import GGMLQuantizationType as Kind

from bench.families.random_gguf import write_random_gguf
from bench.families.shapes import SHAPES, filled
from engine.weights import locate
from tests.model.test_families import GRANITE, MINISTRAL, chain
from tests.model.test_target import begin, load
from tests.support.llama_cpp_logits import llama_cpp_logits

TINY: dict[str, Any] = {
    "hidden_size": 256, "intermediate_size": 512, "vocab_size": 600,
    "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 64, "sliding_window": 16,
    "num_experts": 8, "num_experts_per_tok": 2, "num_local_experts": 8,
    "moe_intermediate_size": 256, "shared_expert_intermediate_size": 256, "global_head_dim": 128,
    "num_global_key_value_heads": 1, "linear_num_key_heads": 2, "linear_num_value_heads": 4,
    "linear_key_head_dim": 32, "linear_value_head_dim": 32, "num_hidden_layers": 6,
}  # fmt: skip
WHOLE = {"head_dim": 32}  # the width over the heads, in families whose heads have no width
SMOOTH = {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4}}
CHANGES = {
    "gpt-oss-20b": SMOOTH,
    "olmo-3-7b": WHOLE,
    "olmo2": WHOLE,
    "phi3": WHOLE,
    "qwen2": WHOLE,
}  # llama.cpp rounds the borders of its YaRN's ramp
GEMMA_4 = SHAPES["gemma-4-31b"][1]
OTHERS: dict[str, tuple[str, dict[str, Any]]] = {  # families that the bench does not time
    "llama": ("llama", {}),
    "qwen2": ("qwen2", {}),
    "smollm3": ("smollm3", {"no_rope_layer_interval": 4, "pad_token_id": None}),
    "granite": ("granite", GRANITE),
    "ministral3": ("ministral3", MINISTRAL),
    "phi3": ("phi3", {"pad_token_id": None}),
    "olmo2": ("olmo2", {"pad_token_id": None}),
    "gemma-4-e2b": ("gemma4_text", GEMMA_4 | {
        "hidden_size_per_layer_input": 256, "vocab_size_per_layer_input": 600,
        "num_kv_shared_layers": 2, "use_double_wide_mlp": True, "attention_k_eq_v": False,
        "layer_types": ["sliding_attention", "full_attention"] * 3,
    }),
    "gemma-4-26b-a4b": ("gemma4_text", GEMMA_4 | {
        "enable_moe_block": True, "num_experts": 8, "top_k_experts": 8,
        "moe_intermediate_size": 256,
    }),
}  # fmt: skip
FAMILIES = SHAPES | OTHERS
TOKENS = [7 + n * 79 % 500 for n in range(24)]
FAST = {
    ("granite", Kind.Q4_K),
    ("gemma-4-31b", Kind.Q4_K),
    ("qwen3.5-35b-a3b", Kind.Q4_K),
    ("gpt-oss-20b", Kind.Q8_0),
}
CASES = [
    case if case in FAST else pytest.param(*case, marks=pytest.mark.full)
    for case in ((name, kind) for name in FAMILIES for kind in (Kind.Q4_K, Kind.Q8_0))
]


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_llama_cpp_computes_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, kind: Kind
) -> None:
    monkeypatch.setenv("DRAFTLINE_HOME", str(tmp_path / "home"))
    model_type, fields = FAMILIES[name]
    usual = filled(model_type, fields)
    tiny = {key: value for key, value in TINY.items() if key in usual} | CHANGES.get(name, {})
    write_random_gguf(filled(model_type, fields | tiny), tmp_path / "m.gguf", kind)
    theirs = torch.from_numpy(llama_cpp_logits(tmp_path / "m.gguf", TOKENS))
    target = load(locate(str(tmp_path / "m.gguf")), "auto", threads=1)
    begin(target, TOKENS[:9])
    ours = target.forward(TOKENS[8], chain(TOKENS[9:])).logits
    error = (ours - theirs[8:]).norm(dim=-1) / theirs[8:].norm(dim=-1)
    # A rounding may choose another expert; a pass that is wrong is off by 1 and more.
    assert error.median() < 0.2, error
    top = theirs[8:].topk(5).indices
    assert (ours.argmax(-1, keepdim=True) == top).any(-1).float().mean() > 0.8
