"""Folders of Ollama, LM Studio, llama.cpp and the hub's cache as those programs write them, with
small GGUF files."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

Kind = gguf.GGMLQuantizationType
LAYERS, HEADS, KV_HEADS, HIDDEN, CONTEXT = 2, 4, 2, 64, 4096
TOKEN_BYTES = 2 * LAYERS * KV_HEADS * (HIDDEN // HEADS) * 4  # keys and values in f32
COMMIT = "0123456789abcdef" * 2 + "01234567"
VARIABLES = (
    "OLLAMA_MODELS", "HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "XDG_CACHE_HOME",
    "LLAMA_CACHE", "LOCALAPPDATA",
)  # fmt: skip


def empty_home(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make `folder` the user's home folder, with no program's folder named elsewhere."""
    folder.mkdir(parents=True, exist_ok=True)
    for variable in VARIABLES:
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("HOME", str(folder))
    return folder


def write_model(
    path: Path,
    file_type: int | None = 15,
    late: bool = False,
    tensors: dict[str, tuple[int, Kind]] | None = None,
    architecture: str = "qwen2",
    **fields: Any,
) -> Path:
    """Write a GGUF file with a vocabulary, but only the given tensors (rows of 256, and their
    type). `late`: the file type comes after the vocabulary, as llama-quantize writes it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_type(fields.pop("type", "model"))
    writer.add_size_label("7B")
    writer.add_tags(["code", "chat"])
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(HIDDEN)
    writer.add_block_count(LAYERS)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(fields.pop("kv_heads", KV_HEADS))
    if "pooling" in fields:
        writer.add_pooling_type(fields.pop("pooling"))
    if file_type is not None and not late:
        writer.add_file_type(file_type)
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list([f"token {n}" for n in range(300)])
    if file_type is not None and late:
        writer.add_file_type(file_type)
    for name, (rows, kind) in (tensors or {"output_norm.weight": (1, Kind.F32)}).items():
        values = np.zeros((rows, 256), np.float32)
        data = values if kind == Kind.F32 else gguf.quants.quantize(values, kind)
        writer.add_tensor(name, data, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def add_blob(store: Path, data: bytes) -> dict[str, Any]:
    """Store a blob of Ollama's; the layer that names it."""
    path = store / "blobs" / f"sha256-{sha256(data)}"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return {"digest": f"sha256:{sha256(data)}", "size": len(data)}


def ollama_manifest(store: Path, file: Path) -> dict[str, Any]:
    """A manifest of the model in `file`, whose blobs are stored."""
    image = "application/vnd.ollama.image."
    layers = [
        {"mediaType": f"{image}model"} | add_blob(store, file.read_bytes()),
        {"mediaType": f"{image}template"} | add_blob(store, b"{{ .Prompt }}"),
        {"mediaType": f"{image}license"} | add_blob(store, b"Apache"),
    ]
    config = {"mediaType": "application/vnd.docker.container.image.v1+json"}
    return {
        "schemaVersion": 2,
        "mediaType": "application/vnd.docker.distribution.manifest.v2+json",
        "config": config | add_blob(store, b"{}"),
        "layers": layers,
    }


def add_to_ollama(
    store: Path,
    manifest: dict[str, Any] | bytes,
    name: str = "tiny",
    tag: str = "1b",
    place: str = "manifests/registry.ollama.ai/library",
) -> Path:
    """Write a manifest; its path."""
    path = store / place / name / tag
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(manifest if isinstance(manifest, bytes) else json.dumps(manifest).encode())
    return path


def add_to_hub(cache: Path, repository: str, files: dict[str, bytes]) -> Path:
    """Store a repository as the hub's library does, as links to blobs; its snapshot."""
    folder = cache / f"models--{repository.replace('/', '--')}"
    snapshot = folder / "snapshots" / COMMIT
    for name, data in files.items():
        blob, link = folder / "blobs" / sha256(data), snapshot / name
        for path in (blob, link):
            path.parent.mkdir(parents=True, exist_ok=True)
        blob.write_bytes(data)
        up = Path(*[".."] * (len(Path(name).parts) + 1))
        link.symlink_to(up / "blobs" / blob.name)
    (folder / "refs").mkdir(exist_ok=True)
    (folder / "refs" / "main").write_text(COMMIT)
    return snapshot


def folder_files(**config: Any) -> dict[str, bytes]:
    """The files of a model folder of 16-bit weights, which are not real ones."""
    settings = {
        "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "torch_dtype": "bfloat16",
        "hidden_size": HIDDEN, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS, "max_position_embeddings": CONTEXT,
    }  # fmt: skip
    return {
        "config.json": json.dumps(settings | config).encode(),
        "tokenizer.json": b"{}",
        "model.safetensors": bytes(1000),
    }


def contents(folder: Path) -> dict[str, tuple[int, int, bytes]]:
    """Everything in a folder: mode, time of change and bytes (or target) of each entry."""
    found = {}
    for path in sorted(folder.rglob("*")):
        status = path.lstat()
        data = b""
        if path.is_symlink():
            data = str(path.readlink()).encode()
        elif path.is_file():
            data = path.read_bytes()
        found[str(path)] = (status.st_mode, status.st_mtime_ns, data)
    return found
