"""The class that vLLM loads, without vLLM: its interface, its tokenizer, and the shared index."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from engine.drafting.hosts import vllm
from engine.drafting.hosts.vllm import Proposer, shared_index, tokenizer_folder
from engine.drafting.stdlib_ngram import StdlibNgram
from engine.prompts.tokenizer import Tokenizer
from index import Workspace
from tests.conftest import byte_bpe
from tests.support.encoders import Bytes

CODE = "def add(left, right):\n    return left + right\n" * 3


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    byte_bpe(folder)
    return folder


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A standard library of one file."""
    sources = tmp_path / "library"
    sources.mkdir()
    (sources / "one.py").write_text(CODE, "utf-8")
    made = StdlibNgram
    monkeypatch.setattr(vllm, "StdlibNgram", lambda home, encoder: made(home, encoder, sources))


def config(model: Path, tokens: int = 8) -> Any:
    """As much of vLLM's configuration as the proposer reads."""
    return SimpleNamespace(
        model_config=SimpleNamespace(
            tokenizer=str(model), max_model_len=512, get_vocab_size=lambda: 300
        ),
        speculative_config=SimpleNamespace(num_speculative_tokens=tokens),
        device_config=SimpleNamespace(device_type="cpu"),
    )


@pytest.mark.usefixtures("home", "library")
def test_a_block_of_the_prompt_is_drafted(model: Path) -> None:
    tokenizer, proposer = Tokenizer(model), Proposer(config(model))
    proposer.load_model(None)
    prompt = tokenizer.chat([{"role": "user", "content": f"Repeat:\n```python\n{CODE}```\n"}])
    answer = tokenizer.encode(f"```python\n{CODE}```\n")
    rows, sizes = np.zeros((4, 512), np.int32), np.zeros(4, np.int32)
    done, passes, draft = 0, 0, list[int]()
    while done < len(answer):
        count = 1
        while count <= len(draft) and draft[count - 1 : count] == answer[done + count - 1 :][:1]:
            count += 1
        new = answer[done : done + count]
        done += len(new)
        written = prompt + answer[:done]
        rows[1, : len(written)], sizes[1] = written, len(written)
        none, draft = proposer.propose([[], new], sizes, rows, slot_mappings=None)
        assert none == [] and len(draft) <= 8
        passes += 1
    assert passes < len(answer) / 2


@pytest.mark.usefixtures("home", "library")
def test_what_cannot_be_used_is_named(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="unknown model 'no-such-model'"):
        tokenizer_folder("no-such-model")
    assert tokenizer_folder(str(model)) == model
    monkeypatch.setenv(vllm.HISTORY, "many")
    with pytest.raises(ValueError, match="DRAFTLINE_HISTORY=many: give a number of tokens"):
        Proposer(config(model))
    monkeypatch.setenv(vllm.HISTORY, "0")
    with pytest.raises(ValueError, match="DRAFTLINE_COSTS=free: choose from cpu, gpu"):
        vllm.usual_costs("free", "cpu")
    assert vllm.usual_costs("", "cuda").seconds[5] < vllm.usual_costs("", "cpu").seconds[5]
    monkeypatch.setenv(vllm.INDEX, str(model))
    with pytest.raises(OSError, match="table"):
        Proposer(config(model))


# -- the shared index ------------------------------------------------------------------------------


def saved(folder: Path, home: Path) -> Path:
    """The index of a folder with one file, saved; returns where."""
    folder.mkdir()
    (folder / "code.py").write_text(CODE, "utf-8")
    with Workspace(folder, Bytes(), home) as workspace:
        workspace.build()
        workspace.compact()
    (table,) = home.glob("index/*/table")
    return table.parent


def test_a_saved_index_is_shared_and_never_written(tmp_path: Path) -> None:
    """Even where the folder is another user's, which is why it is only read."""
    place = saved(tmp_path / "code", tmp_path / "home")
    place.chmod(0o755)
    before = {path: path.read_bytes() for path in place.iterdir()}
    paths = os.pathsep.join([str(place), str(place)])
    parts = shared_index(paths, Bytes.fingerprint)
    assert [part.living for part in parts] == [len(CODE)] * 2
    assert bytes(parts[0].tokens(0).astype(np.uint8).tolist()).decode() == CODE
    assert {path: path.read_bytes() for path in place.iterdir()} == before
    assert shared_index("", Bytes.fingerprint) == []


def test_an_index_of_another_tokenizer_or_a_damaged_one_is_refused(tmp_path: Path) -> None:
    place = saved(tmp_path / "code", tmp_path / "home")
    with pytest.raises(ValueError, match="made with tokenizer bytes/1, the model has 0123"):
        shared_index(str(place), "0123456789abcdef")
    (part,) = place.glob("*.part")
    data = bytearray(part.read_bytes())
    data[len(data) // 2] ^= 1
    part.chmod(0o600)
    part.write_bytes(data)
    with pytest.raises(ValueError, match=part.name):
        shared_index(str(place), Bytes.fingerprint)
    part.unlink()
    with pytest.raises(ValueError, match="missing, but named by the table"):
        shared_index(str(place), Bytes.fingerprint)
