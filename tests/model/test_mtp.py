"""The layer that predicts the token after the next: what llama.cpp computes, and refused files."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import pytest
from gguf.constants import GGMLQuantizationType as Kind

from bench.families.random_gguf import write_random_gguf
from bench.families.shapes import filled
from engine.config import Config
from engine.model.families import read_config
from engine.model.families.gguf_names import mtp_outputs
from engine.model.native.forward_pass import PassRows
from engine.model.native.native_target import NativeTarget
from engine.model.unsupported import UnsupportedModel
from engine.weights import locate
from tests.model.test_native_llama_cpp import FAMILIES, TINY
from tests.support.llama_cpp_logits import llama_cpp_mtp

NAMES = ["qwen3.5-4b", "qwen3.5-35b-a3b", "qwen3-coder-next-80b-a3b"]
TOKENS = [7 + n * 79 % 500 for n in range(12)]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRAFTLINE_HOME", str(tmp_path / "home"))


def mtp_model(path: Path, name: str, layers: int = 1) -> NativeTarget:
    """A tiny random model in f32 with a layer that predicts the token after the next."""
    model_type, fields = FAMILIES[name]
    usual = filled(model_type, fields)
    tiny = {key: value for key, value in TINY.items() if key in usual}
    config = filled(model_type, fields | tiny) | {"mtp_num_hidden_layers": layers}
    write_random_gguf(config, path, Kind.F32)
    chance = np.random.default_rng(1)
    for tensor in gguf.GGUFReader(path, "r+").tensors:  # all of them matter
        if tensor.name.endswith("norm.weight") and "ssm" not in tensor.name:
            tensor.data[:] = chance.uniform(0.5, 1.5, tensor.data.shape)
        elif tensor.tensor_type == Kind.F32 and len(tensor.shape) > 1:
            tensor.data[:] *= 4
    return NativeTarget(locate(str(path)), Config(str(path), threads=1))


@pytest.mark.parametrize("name", NAMES)
def test_llama_cpp_computes_the_same(tmp_path: Path, name: str) -> None:
    layer = mtp_model(tmp_path / "m.gguf", name).mtp_head()
    chance = np.random.default_rng(2)
    states = chance.standard_normal((len(TOKENS), layer.model.width), np.float32)
    logits, expected = llama_cpp_mtp(tmp_path / "m.gguf", TOKENS, states)
    rows = PassRows.of(0, [*range(-1, len(TOKENS) - 1)])
    found = layer.run(np.array(TOKENS), states, rows, layer.new_cache(64))
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(layer.head(found), logits, rtol=1e-3, atol=1e-3)


def test_files_without_such_a_layer_or_with_several_are_refused(tmp_path: Path) -> None:
    for layers in (0, 2):
        target = mtp_model(tmp_path / f"{layers}.gguf", NAMES[0], layers)
        with pytest.raises(UnsupportedModel, match="one is needed: choose another drafter"):
            target.mtp_head()


def test_experts_whose_gates_are_stored_with_their_inputs_are_found_by_the_files_names() -> None:
    model_type, fields = FAMILIES["qwen3.5-35b-a3b"]
    config = read_config(filled(model_type, fields))
    source = f"blk.{len(config.layers)}.ffn_gate_up_exps.weight"
    apart = {output.source for output in mtp_outputs(config).values()}
    fused = {output.source for output in mtp_outputs(config, {source}).values()}
    assert source in fused - apart
    assert {name.split(".")[2] for name in apart - fused} >= {"ffn_gate_exps", "ffn_up_exps"}
