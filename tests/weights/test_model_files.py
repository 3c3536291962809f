"""GGUF files as people have them: odd ids, names and parts, and what is no model."""

from __future__ import annotations

import json
import logging
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from engine import Config, Engine, Request, weights
from engine.engine import NO_TEMPLATE
from engine.model.families.gguf_tensors import GgufTensors
from engine.prompts.chat_template import ChatTemplate
from engine.prompts.tokenizer import Tokenizer
from engine.weights import find
from engine.weights.gguf.chat_templates import BY_MARKS, MISTRAL, of_ollama
from engine.weights.gguf.gguf_file import read_gguf
from engine.weights.gguf.parts import parts_of, size_of
from engine.weights.gguf.tokenizer import write_folder
from tests.support.local_models import add_blob, add_to_ollama, empty_home, ollama_manifest
from tests.support.tiny_gguf import SPECIAL, TOKENS, add_tokenizer, write_gguf
from tests.support.weights import fails

SIZE = len(TOKENS) + len(SPECIAL)


def changed(path: Path, key: str, value: int) -> Path:
    """Replace a number of 32 bits in a file's metadata."""
    data = bytearray(path.read_bytes())
    at = data.index(key.encode()) + len(key) + 4
    data[at : at + 4] = struct.pack("<I", value)
    path.write_bytes(data)
    return path


def answer(path: Path) -> str:
    """What the model of a file says."""
    config = Config(model=str(path), device="cpu", threads=1, library=False)
    with Engine(config) as engine:
        return engine.submit(Request("complete", "def f", max_tokens=20)).result().text


# -- special tokens ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["eos", "bos", "padding"])
@pytest.mark.parametrize("number", [SIZE, 0xFFFFFFFF])
def test_special_ids_outside_the_vocabulary_are_ignored(
    home: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str, number: int
) -> None:
    """The model answers as it does without that field, and the log says so."""
    path = tmp_path / "m.gguf"
    write_gguf(path)
    write_gguf(tmp_path / "plain.gguf")
    key = f"tokenizer.ggml.{name}_token_id"
    with caplog.at_level(logging.WARNING):
        write_folder(read_gguf(changed(path, key, number)), tmp_path / "m")
    assert f"'{key}' is {number}, outside of {SIZE} tokens: ignored" in caplog.text
    generation = json.loads((tmp_path / "m" / "generation_config.json").read_text())
    end, text_end = len(TOKENS) + 2, len(TOKENS)
    assert sorted(generation["eos_token_id"]) == [text_end, end], "known by their names"
    config = json.loads((tmp_path / "m" / "tokenizer_config.json").read_text())
    assert f"{'pad' if name == 'padding' else name}_token" not in config
    assert answer(path) == answer(tmp_path / "plain.gguf")


def test_a_vocabulary_s_last_id_is_one_of_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_gguf(tmp_path / "m.gguf")
    file = read_gguf(changed(tmp_path / "m.gguf", "tokenizer.ggml.eos_token_id", SIZE - 1))
    with caplog.at_level(logging.WARNING):
        write_folder(file, tmp_path / "m")
    assert "ignored" not in caplog.text
    config = json.loads((tmp_path / "m" / "tokenizer_config.json").read_text())
    assert config["eos_token"] == "[PAD2]"


# -- names ---------------------------------------------------------------------------------------


def test_a_name_that_is_not_utf8_is_read(home: Path, tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    write_gguf(path, more=lambda writer: writer.add_name("caf_ noir"))
    path.write_bytes(path.read_bytes().replace(b"caf_ noir", b"caf\xe9 noir"))
    assert read_gguf(path).fields["general.name"] == "caf\ufffd noir"
    with GgufTensors(path) as file:
        assert file.config


# -- split files ---------------------------------------------------------------------------------


@pytest.mark.parametrize("each", [1, 5, 100])
def test_a_split_file_is_the_whole_one(home: Path, tmp_path: Path, each: int) -> None:
    write_gguf(tmp_path / "whole.gguf", "qwen2")
    write_gguf(tmp_path / "part.gguf", "qwen2", split=each)
    first, *others = sorted(tmp_path.glob("part-*")) or [tmp_path / "part.gguf"]
    assert parts_of(first) == [first, *others]
    assert size_of(first) == sum(part.stat().st_size for part in [first, *others])
    whole, split = read_gguf(tmp_path / "whole.gguf"), read_gguf(first)
    plain = {key: value for key, value in split.fields.items() if not key.startswith("split.")}
    assert plain == whole.fields and split.tensors.keys() == whole.tensors.keys()
    assert {tensor.part for tensor in split.tensors.values()} == {*range(1 + len(others))}
    with GgufTensors(tmp_path / "whole.gguf") as ours, GgufTensors(first) as theirs:
        for name in ours:
            one, other = ours.read(name), theirs.read(name)
            assert one.kind == other.kind and np.array_equal(one.rows, other.rows)
    for name in whole.tensors:
        assert np.array_equal(whole.rows(name, 0, 1), split.rows(name, 0, 1))
    assert answer(first) == answer(tmp_path / "whole.gguf")


def test_a_changed_part_is_prepared_again(home: Path, tmp_path: Path) -> None:
    write_gguf(tmp_path / "m.gguf", split=9)
    first, second, *_ = sorted(tmp_path.glob("m-*"))
    weights.locate(str(first))
    assert find(str(first))
    second.write_bytes(second.read_bytes() + b"\0" * 32)
    assert find(str(first)) is None


def test_parts_that_do_not_belong_together_are_refused(tmp_path: Path) -> None:
    write_gguf(tmp_path / "m.gguf", split=9)
    first, second, third, *_ = sorted(tmp_path.glob("m-*"))
    kept = second.read_bytes()
    second.write_bytes(third.read_bytes())
    fails(lambda: read_gguf(first), str(second), "no part 2 of")
    second.unlink()
    fails(lambda: read_gguf(first), str(second), "fetch or copy it again")
    second.write_bytes(kept)
    other = first.rename(tmp_path / "other.gguf")
    fails(lambda: read_gguf(other), "keep the names")


# -- folders -------------------------------------------------------------------------------------


def test_a_folder_with_one_gguf_file_is_that_model(home: Path, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    fails(lambda: weights.locate(str(folder)), "no config.json", "or one GGUF file")
    write_gguf(folder / "a.gguf")
    (folder / "mmproj-a.gguf").write_bytes(b"GGUF")
    (folder / "README.md").write_text("x")
    assert weights.locate(str(folder)) == weights.locate(str(folder / "a.gguf"))
    write_gguf(folder / "b.gguf")
    fails(lambda: weights.locate(str(folder)), "2 GGUF files", "a.gguf, b.gguf")
    (folder / "a.gguf").unlink()
    (folder / "b.gguf").unlink()
    write_gguf(folder / "c.gguf", split=9)
    assert weights.locate(str(folder)).is_dir()


# -- what is no model ------------------------------------------------------------------------------


def adapter(path: Path) -> None:
    write_gguf(path, more=lambda writer: writer.add_type("adapter"))


def projector(path: Path) -> None:
    writer = gguf.GGUFWriter(path, "clip")
    finish(writer)


def vocabulary(path: Path) -> None:
    writer = gguf.GGUFWriter(path, "llama")
    add_tokenizer(writer)
    finish(writer)


def finish(writer: gguf.GGUFWriter) -> None:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def big_endian(path: Path) -> None:
    writer = gguf.GGUFWriter(path, "llama", endianess=gguf.GGUFEndian.BIG)
    writer.add_context_length(1)
    finish(writer)


def new_format(path: Path) -> None:
    write_gguf(path)
    data = bytearray(path.read_bytes())
    at = data.index(b"output_norm.weight") + len("output_norm.weight") + 4 + 8
    data[at : at + 4] = struct.pack("<I", 999)
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("write", "words"),
    [
        (adapter, ("an adapter (LoRA), no model", "name the model's own file")),
        (projector, ("sees or hears, no model",)),
        (vocabulary, ("a vocabulary only", "choose a whole model")),
        (big_endian, ("it is big-endian", "convert it")),
        (new_format, ("a number format that is not known here (999)", "another quantization")),
    ],
)
def test_what_is_no_model_is_named_with_a_remedy_that_helps(
    home: Path, tmp_path: Path, write: Callable[[Path], Any], words: tuple[str, ...]
) -> None:
    path = tmp_path / "m.gguf"
    write(path)
    fails(lambda: weights.locate(str(path)), str(path), *words)
    with pytest.raises(weights.WeightsError) as caught:
        weights.locate(str(path))
    assert "fetch it again" not in str(caught.value) and "llama.cpp" not in str(caught.value)


# -- chat templates --------------------------------------------------------------------------------


def without_template(path: Path) -> Path:
    """Rename the field, so that the file has none."""
    data = path.read_bytes()
    path.write_bytes(data.replace(b"tokenizer.chat_template", b"tokenizer.chat_nothings"))
    return path


def test_a_model_without_a_template_says_so(home: Path, tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    write_gguf(path)
    config = Config(model=str(path), device="cpu", threads=1, library=False)
    with Engine(config) as engine:
        assert engine.warnings == []
    without_template(path)
    with Engine(config) as engine:
        assert engine.warnings == [NO_TEMPLATE]


OLLAMAS = {
    "chatml": "{{ range .Messages }}<|im_start|>{{ .Role }}\n{{ .Content }}<|im_end|>\n{{ end }}",
    "unknown": "{{ if .System }}### System: {{ .System }}{{ end }}### User: {{ .Prompt }}",
}


def test_ollama_s_template_stands_in_where_a_file_has_none(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    store = empty_home(tmp_path / "user", monkeypatch) / ".ollama" / "models"
    write_gguf(tmp_path / "m.gguf")
    file = without_template(tmp_path / "m.gguf")
    for name, template in OLLAMAS.items():
        manifest = ollama_manifest(store, file)
        layer = {"mediaType": "application/vnd.ollama.image.template"}
        manifest["layers"][1] = layer | add_blob(store, template.encode())
        add_to_ollama(store, manifest, name)
    known = Tokenizer(weights.locate("ollama:chatml:1b"))
    ids = known.chat([{"role": "user", "content": "hi"}])
    assert ids.count(known.control["<|im_start|>"]) == 2 and known.eos
    assert find("ollama:chatml:1b") and not find("ollama:unknown:1b")
    assert Tokenizer(weights.locate("ollama:unknown:1b")).template is None
    assert "Ollama's template is not understood" in caplog.text


@pytest.mark.parametrize(("marks", "template"), BY_MARKS)
def test_a_family_s_marks_are_those_of_its_template(marks: tuple[str, ...], template: str) -> None:
    """The template writes each of them; of a vocabulary that lacks one it is not the template."""
    ollamas = " ".join(marks)
    assert of_ollama(ollamas, marks) == template
    assert of_ollama(" ".join(marks[:-1]), marks) == ""
    assert of_ollama(ollamas, marks[:-1]) == (template if template == MISTRAL else "")
    roles = ["system", "user", "assistant", "user"]
    text = ChatTemplate(template, bos_token="<s>", eos_token="</s>").render(roles)
    assert all(mark in text for mark in marks)
