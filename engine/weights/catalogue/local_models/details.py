"""The facts that a list shows of a model, from the start of its GGUF file or its config.json.

Not `read_gguf`, which parses the vocabulary too: 0.2 s a file, where a list has hundreds.
"""

from __future__ import annotations

import math
import struct
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from engine.weights.catalogue.local_models.local_model import entries, read_json
from engine.weights.config_json import LIMITS
from engine.weights.errors import WeightsError
from engine.weights.gguf.gguf_file import ARRAY, MAGIC, SCALARS, STRING, read_gguf, version_problem
from engine.weights.gguf.parts import size_of

HEAD_BYTES = 256 << 10  # bytes of a GGUF file: more than the fields before the vocabulary take
MAX_VOCABULARY_BYTES = 32 << 20
CHUNK_BYTES = 1 << 20
MAX_CONFIG_BYTES = 1 << 20
FILE_TYPE = "general.file_type"
CACHE_BYTES = 4  # bytes of a number in the KV cache on a CPU
TEXT_MODELS = ("ForCausalLM", "ForConditionalGeneration")
DTYPES = {"bfloat16": "BF16", "float16": "F16", "float32": "F32"}
MAX_DTYPE_CHARS = 12


@dataclass(frozen=True, slots=True)
class Details:
    """Facts about a model."""

    bytes: int  # size of its weights on disk
    quantization: str  # Q4_K_M, BF16; "" where nothing says it
    architecture: str
    parameters: str  # 7B, as the file states it, or ""
    context: int  # tokens; 0: unknown
    token_bytes: int  # bytes of the KV cache for each token; 0: unknown


def details_of(path: Path) -> Details | None:
    """Read the facts about a GGUF file or a model folder; None if it is no language model.

    An embedding model, a projector or an adapter is none. WeightsError for a damaged one.
    """
    try:
        return _of_folder(path) if path.is_dir() else _of_gguf(path)
    except OSError as error:
        raise WeightsError(f"{path}: {error.strerror or error}") from error


# --- GGUF ---------------------------------------------------------------------------------------


def _of_gguf(path: Path) -> Details | None:
    with path.open("rb") as file:
        head = file.read(HEAD_BYTES)
        try:
            fields = _Fields(head).read()
        except (struct.error, ValueError) as error:
            raise WeightsError(
                f"{path}: truncated or damaged GGUF file, or one with over {HEAD_BYTES >> 10} KiB "
                f"of metadata before its vocabulary ({error}); fetch it again"
            ) from error
        kind = fields.get(FILE_TYPE)
        if kind is None:
            kind = _late_file_type(file, head)
    name, label = fields.get("general.architecture"), fields.get("general.size_label", "")
    if not isinstance(name, str):
        raise WeightsError(f"{path}: its metadata begin with no architecture; fetch it again")
    if fields.get("general.type", "model") != "model" or name == "clip":
        return None
    if f"{name}.pooling_type" in fields:
        return None
    return Details(
        size_of(path),
        _type_name(kind) or _commonest_type(path),
        name,
        label if isinstance(label, str) else "",
        _size(fields, f"{name}.context_length", "max_position_embeddings"),
        _gguf_token_bytes(fields, name),
    )


class _Fields:
    """A reader of a GGUF file's metadata up to its vocabulary, which makes up most of it."""

    def __init__(self, head: bytes) -> None:
        self.head, self.at = head, 0

    def read(self) -> dict[str, Any]:
        """Read the scalars and strings by their keys.

        struct.error or ValueError where the file ends, or `head` does.
        """
        if self.head[: len(MAGIC)] != MAGIC:
            raise ValueError("its first four bytes are not 'GGUF'")
        self.at = len(MAGIC)
        if problem := version_problem(self._scalar(4)):
            raise ValueError(problem)
        _tensors, count = self._scalar(10), self._scalar(10)
        fields = {}
        for _ in range(count):
            key = self._string()
            if key.startswith("tokenizer."):
                break
            fields[key] = self._value(self._scalar(4))
        return fields

    def _scalar(self, kind: int) -> Any:
        if kind not in SCALARS:
            raise ValueError(f"unknown type {kind}")
        layout = "<" + SCALARS[kind]
        (value,) = struct.unpack_from(layout, self.head, self.at)
        self.at += struct.calcsize(layout)
        return value

    def _string(self) -> str:
        size = self._scalar(10)
        start, self.at = self.at, self.at + size
        if self.at > len(self.head):
            raise ValueError(f"a string of {size} bytes")
        return self.head[start : self.at].decode("utf-8", "replace")

    def _value(self, kind: int) -> Any:
        """Read a value; None for an array of strings."""
        if kind == STRING:
            return self._string()
        if kind != ARRAY:
            return self._scalar(kind)
        inner, count = self._scalar(4), self._scalar(10)
        if count > len(self.head):
            raise ValueError(f"an array of {count} entries")
        if inner == STRING:
            for _ in range(count):
                self._string()
            return None
        return [self._scalar(inner) for _ in range(count)]


def _late_file_type(file: BinaryIO, head: bytes) -> int | None:
    """Find the file type after the vocabulary, where llama-quantize writes it.

    It is searched for as bytes, in milliseconds, since strings have no fixed length and there are
    300,000 of them to step over. A file whose vocabulary holds these very bytes gets a wrong label.
    """
    key = struct.pack("<Q", len(FILE_TYPE)) + FILE_TYPE.encode() + struct.pack("<I", 4)
    data, done = head, len(head)
    while (at := data.find(key)) < 0 or at + len(key) + 4 > len(data):
        chunk = file.read(CHUNK_BYTES)
        done += len(chunk)
        if not chunk or done > MAX_VOCABULARY_BYTES:
            return None
        data = data[-len(key) - 4 :] + chunk
    (kind,) = struct.unpack_from("<I", data, at + len(key))
    return int(kind)


def _type_name(kind: object) -> str:
    """Name a file type: Q4_K_M for 15; "" for an unknown one."""
    from gguf.constants import LlamaFileType

    try:
        name: str = LlamaFileType(kind).name
    except ValueError:
        return ""
    return name.removeprefix("MOSTLY_").removeprefix("ALL_")


def _commonest_type(path: Path) -> str:
    """Name the tensor type that takes most of a GGUF file."""
    from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

    taken: Counter[GGMLQuantizationType] = Counter()
    for tensor in read_gguf(path).tensors.values():
        kind = GGMLQuantizationType(tensor.kind)
        block, block_bytes = GGML_QUANT_SIZES[kind]
        taken[kind] += math.prod(tensor.shape) // block * block_bytes
    return taken.most_common(1)[0][0].name if taken else ""


def _gguf_token_bytes(fields: dict[str, Any], name: str) -> int:
    """Count the bytes of the KV cache of one token."""
    layers = _size(fields, f"{name}.block_count", "num_hidden_layers")
    heads = _size(fields, f"{name}.attention.head_count", "num_attention_heads")
    hidden = _size(fields, f"{name}.embedding_length", "hidden_size")
    kv_heads = _size(fields, f"{name}.attention.head_count_kv", "num_key_value_heads") or heads
    dim = _size(fields, f"{name}.attention.key_length", "head_dim") or hidden // max(1, heads)
    return 2 * layers * kv_heads * dim * CACHE_BYTES


# --- folders ------------------------------------------------------------------------------------


def _of_folder(folder: Path) -> Details | None:
    config = read_json(folder / "config.json", MAX_CONFIG_BYTES)
    kinds = config.get("architectures")
    if not isinstance(kinds, list) or not any(str(kind).endswith(TEXT_MODELS) for kind in kinds):
        return None
    text = config.get("text_config")
    sizes = text if isinstance(text, dict) else config
    stored = str(config.get("dtype") or config.get("torch_dtype") or sizes.get("dtype") or "")
    layers = _size(sizes, "num_hidden_layers")
    heads = _size(sizes, "num_attention_heads")
    kv_heads = _size(sizes, "num_key_value_heads") or heads
    dim = _size(sizes, "head_dim") or _size(sizes, "hidden_size") // max(1, heads)
    return Details(
        sum(entry.stat().st_size for entry in entries(folder) if entry.suffix == ".safetensors"),
        DTYPES.get(stored, stored[:MAX_DTYPE_CHARS]),
        str(config.get("model_type", "")),
        "",
        _size(sizes, "max_position_embeddings"),
        2 * layers * kv_heads * dim * CACHE_BYTES,
    )


def _size(values: dict[str, Any], key: str, limit: str = "") -> int:
    """Read a size of the model; 0 where it is absent or cannot be one.

    `limit`: its name in LIMITS, if not the key. Of an array, with a size for each layer, the
    largest counts.
    """
    value = values.get(key)
    if isinstance(value, list):
        value = max((item for item in value if type(item) is int), default=0)
    return value if type(value) is int and 0 < value <= LIMITS[limit or key] else 0
