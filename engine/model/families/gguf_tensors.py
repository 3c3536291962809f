"""The tensors of a GGUF file by the names that safetensors files have for them, as they are stored.

The folder of a GGUF file has no weights; its draftline.json names the file. Tensors are read, not
mapped: where another program cuts the file short, reading is an error, and touching mapped memory
would end this process.
"""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Callable, Iterator, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from engine.model import _kernels
from engine.model.families import read_config, read_metadata
from engine.model.families.gguf_names import checked_outputs, mtp_layer
from engine.model.families.lora import Adapters
from engine.model.unsupported import UnsupportedModel
from engine.weights.errors import WeightsError
from engine.weights.fetch.integrity import TensorInfo, config_of
from engine.weights.gguf.ollama_form import read_model
from engine.weights.gguf.parts import parts_of
from engine.weights.resolve import gguf_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

READ_BYTES = 1 << 30  # bytes at a time; Linux reads 2 GiB at most
F32_KIND = 0  # GGUF's type of numbers in f32
SAMPLE_BYTES = 4096  # bytes of each tensor that tell two versions of a file apart
OnRead = Callable[[int, int], None]


class Stored(NamedTuple):
    """A tensor as a GGUF file stores it. A vector is one row; experts follow each other."""

    kind: int  # a gguf.GGMLQuantizationType
    rows: NDArray[np.uint8]  # [rows, bytes of a row], in transformers' order
    columns: int


class GgufTensors:
    """The tensors of one file, each read when it is requested, and its model. A context manager.

    `settings`: the fields of a config.json that its metadata mean; `config`: what they say.

    `on_read` is called with the bytes that were read so far and those of all tensors."""

    def __init__(
        self,
        path: Path,
        on_read: OnRead = lambda done, total: None,
        lora: Sequence[str] = (),
    ) -> None:
        """Open a file, and the adapters `lora` (`FILE[:scale]`), which are merged into it.

        WeightsError where one is gone, damaged or of no model that can run here.
        """
        self.path, self.on_read = path, on_read
        with contextlib.ExitStack() as opened:
            try:
                parts = parts_of(path)
                self._files = [opened.enter_context(one.open("rb", buffering=0)) for one in parts]
            except OSError as error:
                name = error.filename or path
                raise WeightsError(f"{name}: {error.strerror}: fetch or copy it again") from error
            self._version = self._stamp()
            self.gguf = read_model(path)
            self.settings = read_metadata(self.gguf)
            try:
                self.config = read_config(self.settings)
            except UnsupportedModel as error:
                raise WeightsError(f"{path}: {error}") from error
            self.outputs = checked_outputs(self.gguf, self.settings, self.config)
            self.adapters = Adapters(lora, self.gguf)
            self._close = opened.pop_all().close
        self._read_bytes = 0
        self._total_bytes = sum(self.sizes().values())

    def choose_mtp(self) -> None:
        """From now on, have only the layer that predicts the token after the next.

        It is described as a model of one layer. UnsupportedModel or WeightsError, as `mtp_layer`.
        """
        self.config, self.outputs = mtp_layer(self.gguf, self.settings, self.config)

    def __enter__(self) -> GgufTensors:
        return self

    def __exit__(self, *error: object) -> None:
        self._close()

    def __contains__(self, name: object) -> bool:
        return name in self.outputs

    def __iter__(self) -> Iterator[str]:
        return iter(self.outputs)

    def infos(self) -> dict[str, TensorInfo]:
        """Give the shapes of all tensors, as those of f32."""
        return {name: TensorInfo("F32", one.shape) for name, one in self.outputs.items()}

    def sizes(self) -> dict[str, int]:
        """Count the bytes of all tensors, as they are stored."""
        return {name: self._size(one.source) for name, one in self.outputs.items()}

    def read(self, name: str) -> Stored:
        """Read one tensor, in f32 if adapters change it.

        WeightsError where the file has changed since it was opened.
        """
        import numpy as np

        output = self.outputs[name]
        place = self.gguf.tensors[output.source]
        kind = place.kind
        columns, size = place.shape[-1], self.gguf.row_bytes(output.source)
        count = math.prod(place.shape[:-1])
        rows = np.empty((count, size), np.uint8)
        rest, at = memoryview(rows.reshape(-1).data), place.start
        file = self._files[place.part]
        file.seek(at)
        while rest:
            got = file.readinto(rest[:READ_BYTES])
            if not got:
                break
            rest = rest[got:]
        if rest or self._stamp() != self._version:
            raise WeightsError(f"{self.path}: it was changed while it was read: load it again")
        self._read_bytes += rows.nbytes
        if output.source in self.adapters.names:
            values = np.empty((count, columns), np.float32)
            _kernels.dequantize(kind, rows, values)
            self.adapters.merge(output.source, values)
            kind, rows, size = F32_KIND, values.view(np.uint8), 4 * columns
        if output.rope_heads and len(output.shape) == 1:  # its values are the rows
            width = size // columns
            ordered = rope_order(rows.reshape(columns, width), output.rope_heads)
            rows = np.ascontiguousarray(ordered).reshape(1, size)
        elif output.rope_heads:
            rows = np.ascontiguousarray(rope_order(rows, output.rope_heads))
        self.on_read(self._read_bytes, self._total_bytes)
        return Stored(kind, rows, columns)

    def digest(self) -> str:
        """Identify the file by its size and time stamp, its metadata and the start of each tensor.

        With it, the adapters. Reading all of it would take as long as loading it.
        """
        made = blake2b(repr(self.adapters.digests).encode(), digest_size=16)
        for number, (file, stamp) in enumerate(zip(self._files, self._version, strict=True)):
            made.update(repr(stamp[1:]).encode())
            places = self.gguf.tensors.values()
            starts = sorted(place.start for place in places if place.part == number)
            for start, size in [(0, starts[0]), *((start, SAMPLE_BYTES) for start in starts)]:
                file.seek(start)
                made.update(file.read(size))
        return made.hexdigest()

    def _size(self, source: str) -> int:
        """Count the bytes of a tensor of the file."""
        return math.prod(self.gguf.tensors[source].shape[:-1]) * self.gguf.row_bytes(source)

    def _stamp(self) -> list[tuple[int, int, int]]:
        found = [os.fstat(file.fileno()) for file in self._files]
        return [(one.st_ino, one.st_size, one.st_mtime_ns) for one in found]


def rope_order(rows: NDArray[np.uint8], heads: int) -> NDArray[np.uint8]:
    """Undo GGML's interleaving of each head's two rotary halves: [rows, bytes]."""
    pairs = rows.reshape(heads, len(rows) // heads // 2, 2, -1)
    return pairs.swapaxes(1, 2).reshape(rows.shape)


def tensors_of_gguf(
    folder: Path, on_read: OnRead = lambda done, total: None, lora: Sequence[str] = ()
) -> GgufTensors | None:
    """Open the GGUF file that a folder was made for; None for a folder with weights."""
    path = gguf_of(folder)
    if path is None and lora:
        raise WeightsError(f"lora {lora[0]}: not for {folder.name}: use a GGUF file of the model")
    return None if path is None else GgufTensors(path, on_read, lora)


def settings_of(folder: Path) -> dict[str, Any]:
    """Read a model's config.json, or what the metadata of its GGUF file mean in one."""
    file = tensors_of_gguf(folder)
    if file is None:
        return config_of(folder)
    with file:
        return file.settings
