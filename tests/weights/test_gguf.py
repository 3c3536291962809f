"""Reading and converting GGUF files, compared with the gguf package and transformers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import psutil
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.model.families.gguf_tensors import GgufTensors, settings_of
from engine.weights import WeightsError, locate
from engine.weights.gguf.gguf_file import read_gguf
from engine.weights.gguf.tokenizer import write_folder
from tests.support.tiny_gguf import SPECIAL, TOKENS, write_gguf
from tests.support.weights import REPOSITORY


@pytest.mark.parametrize("architecture", ["llama", "qwen2", "qwen3"])
def test_reading_agrees_with_the_gguf_package(tmp_path: Path, architecture: str) -> None:
    write_gguf(tmp_path / "m.gguf", architecture)
    ours, oracle = read_gguf(tmp_path / "m.gguf"), gguf.GGUFReader(tmp_path / "m.gguf")
    theirs = {key: field.contents() for key, field in oracle.fields.items()}
    assert ours.fields == {k: v for k, v in theirs.items() if not k.startswith("GGUF.")}
    assert list(ours.tensors) == [tensor.name for tensor in oracle.tensors]
    for tensor in oracle.tensors:
        shape = ours.tensors[tensor.name].shape
        values = ours.rows(tensor.name, 0, 1 if len(shape) == 1 else shape[0])
        expected = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        assert np.array_equal(values.reshape(shape), expected.reshape(shape))


@pytest.mark.parametrize("head", ["own", "absent", "equal"])
@pytest.mark.parametrize("architecture", ["llama", "qwen2", "qwen3"])
def test_weights_and_logits_are_those_of_transformers(
    home: Path, tmp_path: Path, architecture: str, head: str
) -> None:
    """Weights bit for bit, logits up to rounding; those of stored weights as far as 8 bits of x."""
    import torch
    from transformers import AutoModelForCausalLM

    from engine.config import Config
    from engine.model.torch.gguf_weights import weights_of
    from engine.model.torch.torch_target import TorchTarget
    from engine.records import Draft

    write_gguf(tmp_path / "m.gguf", architecture, head, pre="qwen2")
    folder = locate(str(tmp_path / "m.gguf"))
    oracle = AutoModelForCausalLM.from_pretrained(tmp_path, gguf_file="m.gguf", dtype=torch.float32)
    expected, found = oracle.state_dict(), weights_of(folder)
    if head != "own":
        expected.pop("lm_head.weight")
    assert set(found) == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in expected)
    assert settings_of(folder)["tie_word_embeddings"] == (head != "own")
    ids = list(range(40))
    with torch.no_grad():
        logits = oracle(torch.tensor([ids])).logits[0, -1]
    for dtype, error in (("f32", 1e-4), ("auto", 0.1), ("q8", 0.1)):
        target = TorchTarget(folder, Config(device="cpu", dtype=dtype, threads=1))
        assert target.exact and target.dtype_name == {"auto": "stored"}.get(dtype, dtype)
        target.begin(ids, 1)
        for _ in target.prefill(ids, 1):
            pass
        ours = target.forward(ids[-1], Draft()).logits[0]
        assert (ours - logits).abs().max() < error * logits.abs().max()


@pytest.fixture(scope="module", params=["smollm", "qwen2", "gpt-2", "llama-bpe"])
def tokenizer(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    from tokenizers import Tokenizer

    folder = tmp_path_factory.mktemp("tokenizer")
    write_gguf(folder / "m.gguf", pre=request.param)
    write_folder(read_gguf(folder / "m.gguf"), folder / "m")
    return Tokenizer.from_file(str(folder / "m" / "tokenizer.json"))


PIECES = st.sampled_from(
    [
        "def ",
        "\t",
        "\r\n",
        "\r",
        "e\u0301",
        "\u212b",
        "👩‍💻",
        "<|im_end|>",
        "<tool_call>",
        "12345",
        "\ufeff",
    ]
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(PIECES | st.text(max_size=8)).map("".join))
def test_encoding_preserves_every_byte(tokenizer: Any, text: str) -> None:
    """Also text that is not in NFC and text that spells control tokens."""
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    assert tokenizer.decode(ids, skip_special_tokens=False) == text
    tokenizer.encode_special_tokens = True  # encode control tokens' spellings as text
    control = {len(TOKENS) + i for i, (_, kind) in enumerate(SPECIAL) if kind == 3}
    try:
        ids = tokenizer.encode(text, add_special_tokens=False).ids
    finally:
        tokenizer.encode_special_tokens = False
    assert tokenizer.decode(ids) == text and not control & set(ids)


def test_control_tokens_keep_their_ids_and_unused_tokens_are_left_out(tokenizer: Any) -> None:
    for i, (token, kind) in enumerate(SPECIAL):
        assert tokenizer.token_to_id(token) == (None if kind == 5 else len(TOKENS) + i)
    for text, token in (("<|im_end|>", len(TOKENS) + 2), (" def", TOKENS.index("Ġdef"))):
        assert tokenizer.encode(text, add_special_tokens=False).ids == [token]


def test_end_tokens_and_chat_template_are_saved(tmp_path: Path) -> None:
    write_gguf(tmp_path / "m.gguf")
    write_folder(read_gguf(tmp_path / "m.gguf"), tmp_path / "m")
    generation = json.loads((tmp_path / "m" / "generation_config.json").read_text())
    assert generation["eos_token_id"] == [len(TOKENS) + 2, len(TOKENS)]
    config = json.loads((tmp_path / "m" / "tokenizer_config.json").read_text())
    assert "im_start" in config["chat_template"] and config["eos_token"] == "<|im_end|>"


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("sound") / "m.gguf"
    write_gguf(path, "qwen2")
    return path.read_bytes()


@settings(max_examples=100, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_a_damaged_gguf_is_a_folder_or_a_weights_error(
    tmp_path_factory: pytest.TempPathFactory, sound: bytes, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("damaged")
    header = sound.index(b"token_embd") + 2000  # metadata and some of the tensor list
    bad = bytearray(sound)
    for at in data.draw(st.lists(st.integers(0, header), min_size=1, max_size=4)):
        bad[at] = data.draw(st.integers(0, 255))
    bad = bad[: data.draw(st.just(len(bad)) | st.integers(0, len(bad)))]
    (folder / "m.gguf").write_bytes(bad)
    try:
        with GgufTensors(folder / "m.gguf") as file:
            write_folder(file.gguf, folder / "m")
    except WeightsError as error:
        assert str(folder) in str(error)
    else:
        assert file.config.family == "qwen2"


def test_preparing_does_not_import_torch(home: Path, tmp_path: Path) -> None:
    """Nor transformers, tokenizers or huggingface_hub. Needs a process of its own."""
    write_gguf(tmp_path / "m.gguf")
    script = (
        "import sys; from engine import weights; weights.locate(sys.argv[1]);"
        "heavy = {'torch', 'transformers', 'tokenizers', 'huggingface_hub'};"
        "print(sorted(heavy & set(sys.modules)))"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "m.gguf")]
    done = subprocess.run(command, cwd=REPOSITORY, text=True, capture_output=True, env=os.environ)
    assert done.stdout == "[]\n", done.stderr


def test_reading_reports_how_much_of_the_file_was_read(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    write_gguf(path)
    expected = sum(int(one.n_bytes) for one in gguf.GGUFReader(path).tensors)
    seen: list[tuple[int, int]] = []
    with GgufTensors(path, lambda done, total: seen.append((done, total))) as tensors:
        for name in tensors:
            tensors.read(name)
    assert len(seen) == len(tensors.outputs)
    assert [total for _, total in seen] == [expected] * len(seen)
    assert seen == sorted(set(seen)) and seen[-1] == (expected, expected)


def test_a_file_that_is_refused_is_closed(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    write_gguf(path)
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(WeightsError):
        GgufTensors(path)
    assert str(path) not in {one.path for one in psutil.Process().open_files()}
