"""The oracle agrees with our engine on files that both run, and names files that it cannot run."""

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


@pytest.mark.parametrize("kind", ["llama", "qwen2"])
def test_llama_cpp_gives_our_logits(home: Path, tmp_path: Path, kind: str) -> None:
    write_gguf_of(tiny_model(tmp_path / "m", kind, vocab_size=VOCABULARY), tmp_path / "m.gguf")
    tokens = some_tokens(20, VOCABULARY)
    theirs = torch.from_numpy(llama_cpp_logits(tmp_path / "m.gguf", tokens))

    target = load(locate(str(tmp_path / "m.gguf")), threads=1)
    begin(target, tokens[:1])
    ours = target.forward(tokens[0], chain(tokens[1:])).logits
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


def test_a_file_that_llama_cpp_cannot_run_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "m.gguf").write_bytes(b"GGUF")
    with pytest.raises(RuntimeError, match=r"m\.gguf: llama\.cpp cannot run it"):
        llama_cpp_logits(tmp_path / "m.gguf", [1])
