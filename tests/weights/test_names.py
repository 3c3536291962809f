"""Resolving model names, and `add` and `remove`."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from engine import weights
from engine.weights import Builtin, resolve
from tests.support.tiny_gguf import write_gguf
from tests.support.weights import READY, fails, left_over


def loose_parts(model: Builtin, tmp_path: Path) -> list[Path]:
    """The parts of the GGUF as files, in order, without their wheels."""
    data, made = (tmp_path / "tiny.gguf").read_bytes(), []
    for n in range(1, model.wheels.parts + 1):
        name, size = model.part(n)
        made.append(tmp_path / Path(name).name)
        start = (n - 1) * model.wheels.part_bytes
        made[-1].write_bytes(data[start : start + size])
    return made


@pytest.mark.parametrize("kind", ["gguf", "wheels", "folder", "parts", "shuffled parts"])
def test_add_accepts_a_gguf_wheels_a_folder_or_parts(
    home: Path, tiny: Builtin, tmp_path: Path, kind: str
) -> None:
    wheels = sorted((tmp_path / "wheels").iterdir())
    paths = {
        "gguf": [tmp_path / "tiny.gguf"],
        "wheels": wheels[::-1],
        "folder": [tmp_path / "wheels"],
        "parts": loose_parts(tiny, tmp_path),
        "shuffled parts": loose_parts(tiny, tmp_path)[::-1],
    }[kind]
    before = {path: path.read_bytes() for path in wheels}
    assert weights.add(paths) == "tiny"
    assert left_over(home) == READY
    assert {path: path.read_bytes() for path in wheels} == before  # unchanged


def test_add_refuses_unknown_and_incomplete_files(
    home: Path, tiny: Builtin, tmp_path: Path
) -> None:
    other = tmp_path / "other.gguf"
    write_gguf(other, seed=1)
    sha = hashlib.sha256(other.read_bytes()).hexdigest()
    fails(lambda: weights.add([other]), "other.gguf", sha, "used directly")
    cut = tmp_path / "cut.gguf"
    cut.write_bytes((tmp_path / "tiny.gguf").read_bytes()[:-1])
    fails(lambda: weights.add([cut]), "cut.gguf", "none of the built-in models")
    (tmp_path / "text.txt").write_text("no model")
    fails(lambda: weights.add([tmp_path / "text.txt"]), "text.txt", "not a GGUF file")
    fails(lambda: weights.add([tmp_path / "gone"]), "gone", "no such file")
    wheels = sorted((tmp_path / "wheels").iterdir())
    fails(lambda: weights.add([wheels[0], wheels[2]]), "tiny-part2==1.0", "1 of its 3 parts")
    parts = loose_parts(tiny, tmp_path)
    parts[1].write_bytes(bytes(parts[1].stat().st_size))
    fails(lambda: weights.add(parts), "truncated or altered", tiny.sha256)
    assert left_over(home) == []


def test_remove_returns_the_bytes_it_freed(home: Path, tiny: Builtin, tmp_path: Path) -> None:
    weights.add([tmp_path / "tiny.gguf"])
    taken = sum((home / "models" / name).stat().st_size for name in READY)
    assert [model.name for model in weights.installed()] == ["tiny"]
    assert weights.remove("tiny") == taken
    assert left_over(home) == [] and weights.installed() == []
    fails(lambda: weights.remove("tiny"), "not in the cache")
    fails(lambda: weights.remove("../wheels"), "not in the cache")
    assert len(list((tmp_path / "wheels").iterdir())) == 3


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("qwen2.5-coder-0.5", "qwen2.5-coder-0.5b"),
        ("smollm2", "smollm2-135m"),
        ("Qwen2.5-Coder-1.5B", "qwen2.5-coder-1.5b"),
        ("qwen-1.5b", "qwen2.5-coder-1.5b"),
    ],
)
def test_an_unknown_name_gets_suggestions(home: Path, name: str, near: str) -> None:
    fails(lambda: weights.locate(name), repr(name), f"did you mean {near}", "hub id")


@pytest.mark.parametrize("name", ["", "zzz", "/no/such/model.gguf", "../x", "a/b.gguf", "a/b/c"])
def test_names_that_cannot_be_hub_ids_are_unknown(home: Path, name: str) -> None:
    fails(lambda: weights.locate(name), "unknown model", "smollm2-135m")


def test_a_model_folder_is_used_in_place(home: Path, tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "tokenizer.json").write_text("{}")
    (folder / "pytorch_model.bin").write_bytes(b"pickle")
    fails(lambda: weights.locate(str(folder)), str(folder), "safetensors", "pickled")
    (folder / "model.safetensors").write_bytes(b"")
    assert weights.locate(str(folder)) == folder and left_over(home) == []


def test_a_gguf_file_is_prepared_again_only_when_it_changes(home: Path, tmp_path: Path) -> None:
    path = tmp_path / "mine.gguf"
    write_gguf(path)
    folder = weights.locate(str(path))
    assert weights.find(str(path)) == folder and weights.gguf(str(path)) == path
    first = (folder / "tokenizer.json").read_bytes()
    write_gguf(path, "qwen2", pre="qwen2")
    assert weights.find(str(path)) is None
    assert weights.locate(str(path)) == folder
    assert (folder / "tokenizer.json").read_bytes() != first
    assert resolve.gguf_of(folder) == path
    assert [model.name for model in weights.installed()] == [str(path)]
    assert weights.remove(str(path)) > 0 and path.exists() and weights.installed() == []


def test_unsupported_gguf_files_are_refused(home: Path, tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    write_gguf(path, "falcon")
    fails(lambda: weights.locate(str(path)), str(path), "architecture 'falcon'", "llama.cpp")
    write_gguf(path, pre="poro-chat")
    fails(lambda: weights.locate(str(path)), "pre-tokenizer 'poro-chat'")
    write_gguf(path, "qwen2")
    path.write_bytes(path.read_bytes().replace(b"attn_v.bias", b"attn_x.bias"))
    fails(lambda: weights.locate(str(path)), "tensor 'blk.0.attn_x.bias'")
    path.write_text("not a model")
    fails(lambda: weights.locate(str(path)), str(path), "not a GGUF file")
    path.write_text("")
    fails(lambda: weights.locate(str(path)), str(path), "not a GGUF file")
    assert left_over(home) == []
