"""LoRA adapters: a model reads what its weights would be with them merged, and nothing else."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from engine import Engine, Request
from engine.config import Config
from engine.model.families.gguf_tensors import GgufTensors, rope_order, tensors_of_gguf
from engine.model.native.gguf_arrays import GgufArrays
from engine.model.native.native_target import NativeTarget
from engine.model.torch.torch_target import TorchTarget
from engine.records import Draft
from engine.weights import WeightsError, locate
from tests.support.llama_cpp_logits import llama_cpp_logits
from tests.support.tiny_gguf import HEADS, HIDDEN, INNER, KV_HEADS, write_gguf

RANK, ALPHA = 4, 8.0
SHAPES = {  # of matrices: quantised in both ways, in rope order, and the head
    "blk.0.attn_q.weight": (HIDDEN, HIDDEN),
    "blk.1.attn_k.weight": (HIDDEN * KV_HEADS // HEADS, HIDDEN),
    "blk.1.ffn_down.weight": (HIDDEN, INNER),
}
OURS = {
    "model.layers.0.self_attn.q_proj.weight": ("blk.0.attn_q.weight", HEADS),
    "model.layers.1.self_attn.k_proj.weight": ("blk.1.attn_k.weight", KV_HEADS),
    "model.layers.1.mlp.down_proj.weight": ("blk.1.ffn_down.weight", 0),
}


def write_adapter(
    path: Path, seed: int = 1, architecture: str = "llama", **shapes: Any
) -> dict[str, np.ndarray]:
    """Write an adapter; returns what it adds to each matrix."""
    random, changes = np.random.default_rng(seed), {}
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_type(gguf.GGUFType.ADAPTER)
    writer.add_string("adapter.type", "lora")
    writer.add_float32("adapter.lora.alpha", ALPHA)
    for name, (out, inputs) in (SHAPES | shapes).items():
        a = random.normal(0, 0.3, (RANK, inputs)).astype(np.float32)
        b = random.normal(0, 0.3, (out, RANK)).astype(np.float32)
        writer.add_tensor(f"{name}.lora_a", a)
        writer.add_tensor(f"{name}.lora_b", b)
        changes[name] = ALPHA / RANK * (b @ a)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return changes


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DRAFTLINE_HOME", str(tmp_path / "home"))
    write_gguf(tmp_path / "m.gguf")
    return tmp_path / "m.gguf"


def test_adapters_are_added_to_the_weights(model: Path, tmp_path: Path) -> None:
    """Each by its scale, in the order of the file's rows; all other weights stay."""
    first = write_adapter(tmp_path / "a.gguf")
    second = write_adapter(tmp_path / "b.gguf", seed=2)
    lora = [str(tmp_path / "a.gguf"), f"{tmp_path / 'b.gguf'}:-0.5"]
    with GgufTensors(model) as plain, GgufTensors(model, lora=lora) as changed:
        for name in plain:
            expected = GgufArrays(plain)[name]
            if name in OURS:
                source, heads = OURS[name]
                change = first[source] - 0.5 * second[source]
                if heads:
                    change = rope_order(change.astype(np.float32).view(np.uint8), heads)
                    change = np.ascontiguousarray(change).view(np.float32)
                expected = expected + change
            np.testing.assert_allclose(GgufArrays(changed)[name], expected, atol=1e-5)
        assert plain.digest() != changed.digest()


def logits(folder: Path, **options: Any) -> tuple[np.ndarray, NativeTarget]:
    target = NativeTarget(folder, Config(**options))
    target.begin([1, 2, 3], 8)
    for _ in target.prefill([1, 2, 3], 8):
        pass
    return np.array(target.forward(3, Draft()).logits[0]), target


@pytest.mark.parametrize("dtype", ["auto", "q8"])
def test_a_pass_runs_on_the_merged_weights(model: Path, tmp_path: Path, dtype: str) -> None:
    """A scale of 0 changes what 8 bits do at most; rows stay independent of each other."""
    write_adapter(tmp_path / "a.gguf")
    folder = locate(str(model))
    plain, _ = logits(folder, dtype=dtype)
    same, _ = logits(folder, dtype=dtype, lora=[f"{tmp_path / 'a.gguf'}:0"])
    other, target = logits(folder, dtype=dtype, lora=[str(tmp_path / "a.gguf")])
    spread = np.abs(plain).max()
    assert np.abs(same - plain).max() < 0.05 * spread < np.abs(other - plain).max()
    assert target.exact


@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_speculation_never_changes_the_answer(
    model: Path, tmp_path: Path, temperature: float
) -> None:
    write_adapter(tmp_path / "a.gguf")
    request = Request("complete", "a b a b", max_tokens=40, temperature=temperature, seed=5)
    found = []
    for lora in ([], [str(tmp_path / "a.gguf")]):
        with Engine(Config(model=str(model), lora=lora, library=False, threads=1)) as engine:
            plain = engine.submit(request, speculation=False).result()
            asked = replace(request, predictions=(f"{request.text}{plain.text}", "a b"))
            drafted = engine.submit(asked).result()
        assert (drafted.text, drafted.reason) == (plain.text, plain.reason)
        assert drafted.usage.accepted and not plain.usage.drafted
        found.append(plain.text)
    assert found[0] != found[1]


def test_llama_cpp_reads_adapters_so(model: Path, tmp_path: Path) -> None:
    """But for its activations in 8 bits. The adapter changes the logits."""
    write_adapter(tmp_path / "a.gguf")
    tokens = [1, 2, 3, 5, 8]
    expected = llama_cpp_logits(model, tokens, str(tmp_path / "a.gguf"))
    plain = llama_cpp_logits(model, tokens)
    lora = [str(tmp_path / "a.gguf")]
    target = TorchTarget(locate(str(model)), Config(device="cpu", dtype="f32", lora=lora))
    target.begin(tokens, 8)
    for _ in target.prefill(tokens, 8):
        pass
    found = target.forward(tokens[-1], Draft()).logits[0].numpy()
    assert np.abs(found - expected[-1]).max() < 0.05 * np.abs(expected[-1] - plain[-1]).max()


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("nothing.gguf", "nothing.gguf: No such file"),
        ("m.gguf", "m.gguf: no LoRA adapter"),
        ("a.gguf:nan", "a.gguf:nan: name a GGUF file, or FILE:SCALE"),
        ("qwen.gguf", "an adapter of 'qwen2' models, not of 'llama'"),
        ("wide.gguf", r"is of a matrix of \[64, 32\], the model's is \[64, 96\]"),
        ("norm.gguf", "'blk.0.attn_norm.weight.lora_a' is of a matrix"),
        ("table.gguf", "'token_embd.weight.lora_a' is of nothing that can be changed here"),
        ("more.gguf", "'blk.9.attn_q.weight.lora_a' is of nothing that can be changed here"),
    ],
)
def test_what_does_not_fit_is_refused(
    model: Path, tmp_path: Path, name: str, expected: str
) -> None:
    write_adapter(tmp_path / "a.gguf")
    write_adapter(tmp_path / "qwen.gguf", architecture="qwen2")
    for file, tensor, shape in (
        ("wide", "blk.1.ffn_down.weight", (HIDDEN, 32)),
        ("norm", "blk.0.attn_norm.weight", (1, HIDDEN)),
        ("table", "token_embd.weight", (HIDDEN, HIDDEN)),
        ("more", "blk.9.attn_q.weight", (HIDDEN, HIDDEN)),
    ):
        write_adapter(tmp_path / f"{file}.gguf", **{tensor: shape})
    with pytest.raises(WeightsError, match=expected):
        GgufTensors(model, lora=[str(tmp_path / name)])


def test_only_a_gguf_file_takes_adapters(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match="use a GGUF file of the model"):
        tensors_of_gguf(tmp_path, lora=["a.gguf"])
