"""llama.cpp agrees with our engine and with transformers on files of families with full attention,
and files that it cannot run are named."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from engine.weights import locate
from tests.conftest import tiny_model
from tests.model.test_families import chain
from tests.model.test_target import begin, load, some_tokens
from tests.support.gguf_of_model import VOCABULARY, write_gguf_of
from tests.support.llama_cpp_logits import llama_cpp_logits
from tests.weights.test_gguf_config import MODELS

TOKENS = some_tokens(40, VOCABULARY)
# llama.cpp reads neither biases of these two nor YaRN's attention factor.
UNLIKE = ("smollm3-biases", "qwen3-biases", "qwen2-attention-factor")
FAST = ("llama-3", "smollm3", "granite-biases", "ministral3")
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
QWEN3_MOE = ("qwen3_moe", EXPERTS | {"head_dim": 16, "norm_topk_prob": True})
FAMILIES = {name: one for name, one in MODELS.items() if name not in UNLIKE} | {
    "qwen3-moe": QWEN3_MOE
}


@pytest.mark.parametrize("kind", ["llama", "qwen2"])
def test_llama_cpp_gives_our_logits(home: Path, tmp_path: Path, kind: str) -> None:
    write_gguf_of(tiny_model(tmp_path / "m", kind, vocab_size=VOCABULARY), tmp_path / "m.gguf")
    theirs = torch.from_numpy(llama_cpp_logits(tmp_path / "m.gguf", TOKENS))

    target = load(locate(str(tmp_path / "m.gguf")), threads=1)
    begin(target, TOKENS[:1])
    ours = target.forward(TOKENS[0], chain(TOKENS[1:])).logits
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "name",
    [one if one in FAST else pytest.param(one, marks=pytest.mark.full) for one in FAMILIES],
)
def test_llama_cpp_computes_what_transformers_does(tmp_path: Path, name: str) -> None:
    """So these files are what its converter writes."""
    from transformers import AutoModelForCausalLM

    kind, changes = FAMILIES[name]
    layers = 4 if kind == "smollm3" else 2
    folder = tiny_model(
        tmp_path / "m", kind, layers=layers, **{"vocab_size": VOCABULARY, **changes}
    )
    write_gguf_of(folder, tmp_path / "m.gguf")
    theirs = torch.from_numpy(llama_cpp_logits(tmp_path / "m.gguf", TOKENS))
    with torch.inference_mode():
        oracle = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        truth = oracle(torch.tensor([TOKENS])).logits[0]
    torch.testing.assert_close(theirs, truth, rtol=1e-4, atol=1e-4)


def test_a_file_that_llama_cpp_cannot_run_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "m.gguf").write_bytes(b"GGUF")
    with pytest.raises(RuntimeError, match=r"m\.gguf: llama\.cpp cannot run it"):
        llama_cpp_logits(tmp_path / "m.gguf", [1])
