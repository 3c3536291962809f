"""GGUF files of every family: our forward pass gives transformers' logits, and keeps the law with
quantised weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch

from engine.model.native.weights import NativeWeights
from engine.model.torch.cuda.described_model import DescribedModel
from engine.model.torch.gguf_weights import arrays_of, weights_of
from engine.model.torch.tensor_model import TensorModel
from engine.records import Draft
from engine.weights import WeightsError, locate
from engine.weights.gguf.gguf_file import read_gguf
from tests.model.test_families import chain
from tests.model.test_gguf_families import MODELS, logits_of, model, settings_of
from tests.model.test_target import (
    assert_nodes_have_the_bits_of_one_token_passes,
    begin,
    load,
    some_tokens,
    some_tree,
)
from tests.support.gguf_of_model import VOCABULARY, write_gguf_of

__all__ = ["model"]  # a fixture
TOKENS = some_tokens(40, VOCABULARY)
Q8_0 = gguf.GGMLQuantizationType.Q8_0


@pytest.fixture
def stored(model: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """stored(name, kind) -> the folder of the GGUF file of a tiny model."""

    def make(name: str, kind: gguf.GGMLQuantizationType) -> Path:
        monkeypatch.setenv("DRAFTLINE_HOME", str(tmp_path / "home"))
        write_gguf_of(model(name), tmp_path / "m.gguf", kind)
        return locate(str(tmp_path / "m.gguf"))

    return make


@pytest.mark.parametrize("name", MODELS)
def test_logits_are_those_of_transformers(model: Any, stored: Any, name: str) -> None:
    target = load(stored(name, gguf.GGMLQuantizationType.F32), "auto", threads=1)
    assert isinstance(target.model, TensorModel) and target.exact
    assert target.dtype_name == "stored"
    begin(target, TOKENS[:31])
    logits = target.forward(TOKENS[30], chain(TOKENS[31:])).logits
    truth = logits_of(settings_of(model(name)), model(name))[30:]
    # transformers itself is that far from its own logits in f64.
    error = 3e-4 if name == "qwen3.5-moe" else 1e-4
    torch.testing.assert_close(logits, truth, rtol=error, atol=error)


@pytest.mark.parametrize("name", ["phi3", "gpt-oss", "olmo2", "gemma4-26b-a4b"])
def test_a_card_reads_the_same_weights(stored: Any, name: str) -> None:
    """Here in f32, on a CPU."""
    target = load(stored(name, Q8_0), "f32", threads=1)
    assert isinstance(target.model, TensorModel)
    logits = []
    for _ in range(2):
        target.pool.sequences.clear()
        begin(target, TOKENS[:31])
        logits.append(target.forward(TOKENS[30], chain(TOKENS[31:])).logits)
        files = NativeWeights(
            arrays_of(weights_of(target.folder)), target.model.description, 32, target.folder
        )
        target.model = DescribedModel(files, torch.device("cpu"), torch.float32)
    torch.testing.assert_close(*logits, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", MODELS)
def test_quantised_weights_keep_the_law(stored: Any, name: str) -> None:
    target = load(stored(name, Q8_0), "auto", threads=2)
    assert target.exact
    draft = some_tree(20, VOCABULARY)
    assert_nodes_have_the_bits_of_one_token_passes(target, TOKENS, draft, 3)
    begin(target, TOKENS)
    first = target.forward(TOKENS[-1], Draft()).logits
    begin(target, [*TOKENS, 5])
    assert not torch.equal(first, target.forward(5, Draft()).logits)


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("blk.1.ffn_up_exps.weight", "layers.1.mlp.experts.up_proj"),
        ("blk.2.attn_v.weight", "layers.2.self_attn.v_proj"),
        ("token_embd.weight", "embed_tokens"),
    ],
)
def test_a_block_that_is_not_finite_is_named(
    stored: Any, tmp_path: Path, source: str, name: str
) -> None:
    """The scale of the tensor's first block is NaN."""
    folder = stored("gpt-oss", Q8_0)
    with (tmp_path / "m.gguf").open("r+b") as file:
        file.seek(read_gguf(tmp_path / "m.gguf").tensors[source].start)
        file.write(np.float16("nan").tobytes())
    with pytest.raises(WeightsError, match=rf"m\.gguf.*{name}' holds values that are not finite"):
        load(folder, "auto", threads=1)
