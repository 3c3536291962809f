"""llama.cpp agrees with our engine, and files that it cannot run are named."""

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

TOKENS = some_tokens(40, VOCABULARY)


@pytest.mark.parametrize("kind", ["llama", "qwen2"])
def test_llama_cpp_gives_our_logits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setenv("DRAFTLINE_HOME", str(tmp_path / "home"))
    write_gguf_of(tiny_model(tmp_path / "m", kind, vocab_size=VOCABULARY), tmp_path / "m.gguf")
    theirs = torch.from_numpy(llama_cpp_logits(tmp_path / "m.gguf", TOKENS))

    target = load(locate(str(tmp_path / "m.gguf")), threads=1)
    begin(target, TOKENS[:1])
    ours = target.forward(TOKENS[0], chain(TOKENS[1:])).logits
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


def test_a_file_that_llama_cpp_cannot_run_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "m.gguf").write_bytes(b"GGUF")
    with pytest.raises(RuntimeError, match=r"m\.gguf: llama\.cpp cannot run it"):
        llama_cpp_logits(tmp_path / "m.gguf", [1])
