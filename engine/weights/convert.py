"""GGUF -> a model folder: config, generation config, tokenizer and model.safetensors, once.

Matrices are dequantised and stored in bf16, vectors (norms, biases) in f32. The models were
published in bf16, and rounding to it is far below the quantisation error, so every dtype of the
engine starts from this one set of weights. A head is tied to the embedding only where the two are
equal. torch, transformers and tokenizers are not needed: the files' formats are written directly,
a chunk of rows at a time.

Not converted: architectures, tensors and rope scalings that are not listed here; such a file is
refused, never read approximately.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

from engine.weights.errors import Progress, WeightsError
from engine.weights.gguf_config import checked_tensors, model_config
from engine.weights.gguf_file import Gguf
from engine.weights.tokenizer import generation_config, tokenizer, tokenizer_config

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

CHUNK_VALUES = 1 << 20  # dequantised at a time: 4 MiB of f32 stays in the caches


class Output(NamedTuple):
    """One tensor to write: its name in safetensors, its source, and its rows' order if changed."""

    name: str
    source: str
    shape: tuple[int, ...]
    rope_heads: int  # heads whose rows are put back in order; 0: rows stay as they are

    @property
    def dtype(self) -> str:
        return "F32" if len(self.shape) == 1 else "BF16"

    @property
    def size(self) -> int:
        return math.prod(self.shape) * (4 if self.dtype == "F32" else 2)


def convert(file: Gguf, folder: Path, progress: Progress) -> None:
    """Write the model folder of a GGUF file. `progress` gets the bytes of weights written."""
    config, outputs = _plan(file)
    folder.mkdir()
    _write_json(folder / "config.json", config)
    _write_json(folder / "generation_config.json", generation_config(file))
    _write_json(folder / "tokenizer.json", tokenizer(file, config["vocab_size"]))
    _write_json(folder / "tokenizer_config.json", tokenizer_config(file))
    with (folder / "model.safetensors").open("wb") as out:
        _write_safetensors(file, outputs, out, progress)
    _verify(folder / "model.safetensors", outputs)


def converted_bytes(file: Gguf) -> int:
    """Bytes that `convert` writes, to within the small files."""
    return sum(output.size for output in _plan(file)[1]) + (32 << 20)


def _plan(file: Gguf) -> tuple[dict[str, Any], list[Output]]:
    """The config and the tensors to write. WeightsError for metadata that describe no model."""
    config = model_config(file)
    return config, _outputs(file, config)


# --- weights ------------------------------------------------------------------------------------


def _outputs(file: Gguf, config: dict[str, Any]) -> list[Output]:
    """Every tensor to write, checked against the config: none missing, none unknown."""
    table = checked_tensors(file, config)
    return [Output(target, name, shape, turned) for name, (target, shape, turned) in table.items()]


def _chunks(file: Gguf, name: str) -> Iterator[NDArray[np.float32]]:
    """A matrix or a vector in f32, some rows at a time."""
    shape = file.tensors[name].shape
    rows, columns = (1, shape[0]) if len(shape) == 1 else shape
    step = max(1, CHUNK_VALUES // columns)
    for first in range(0, rows, step):
        yield file.rows(name, first, min(step, rows - first))


def _write_safetensors(
    file: Gguf, outputs: list[Output], out: BinaryIO, progress: Progress
) -> None:
    """The safetensors format: 8 bytes of header length, a JSON header, then the raw tensors."""
    import numpy as np

    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    total = 0
    for output in outputs:
        offsets = [total, total := total + output.size]
        header[output.name] = {
            "dtype": output.dtype, "shape": output.shape, "data_offsets": offsets
        }  # fmt: skip
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    out.write(len(text).to_bytes(8, "little") + text)
    done = 0
    for output in outputs:
        chunks = _chunks(file, output.source)
        if output.rope_heads:
            whole = np.concatenate(list(chunks)).reshape(output.shape[0], -1)
            chunks = iter([_rope_order(whole, output.rope_heads)])
        for values in chunks:
            if not np.isfinite(values).all():
                raise file.damaged(f"'{output.source}' holds values that are not finite")
            data = values if output.dtype == "F32" else _bf16(values)
            out.write(np.ascontiguousarray(data).data)
            done += data.nbytes
            progress("converting", done, total)


def _rope_order(values: NDArray[np.float32], heads: int) -> NDArray[np.float32]:
    """Undo GGML's interleaving of each head's two rotary halves: f32 [rows, columns]."""
    rows, columns = values.shape
    pairs = values.reshape(heads, rows // heads // 2, 2, columns)
    return pairs.swapaxes(1, 2).reshape(rows, columns)


def _bf16(values: NDArray[np.float32]) -> NDArray[np.uint16]:
    """Finite f32 rounded to the nearest bf16, ties to even, as its bits."""
    import numpy as np

    bits = np.ascontiguousarray(values).view(np.uint32)
    rounded: NDArray[np.uint16] = ((bits + (0x7FFF + (bits >> 16 & 1))) >> 16).astype(np.uint16)
    return rounded


def _verify(path: Path, outputs: list[Output]) -> None:
    """Open the written file as any reader would and compare names and shapes."""
    from safetensors import safe_open

    with safe_open(path, framework="np") as file:
        shapes = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
    if shapes != {output.name: output.shape for output in outputs}:
        raise WeightsError(f"{path}: the converted file does not hold what was written; try again")


def _write_json(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
