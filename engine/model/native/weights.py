"""The weights of a model for the CPU, as products of its kernels or as matrices, from any format.

Names are those of transformers; values are those that a pass multiplies with, as GGUF files hold
them: a norm's weight with its offset, A of linear attention and not its logarithm, experts one
after another. What safetensors files have in other forms is brought into these here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from engine.model import _kernels
from engine.model.families.gguf_tensors import Stored
from engine.model.families.tensors import FUSED, shapes_of
from engine.model.model_config import Attention, Experts, LinearAttention, ModelConfig
from engine.model.native.gguf_arrays import ArraySource, GgufArrays, StoredArrays
from engine.model.native.product import (
    Array,
    NativeProduct,
    Part,
    is_finite,
    is_numbers,
    widened,
)
from engine.weights.errors import WeightsError, shown
from engine.weights.fetch.integrity import damaged

UNSHIFTED = "linear_attn.norm.weight"  # the one norm of its families that has no offset


class NativeWeights:
    """A model's weights: vectors as arrays, matrices as products."""

    def __init__(
        self, source: ArraySource, description: ModelConfig, bits: int, folder: Path
    ) -> None:
        """Read weights from a source of arrays.

        `bits`: those of matrices that are not stored as a GGUF file has them: 32, 16, 8 or 4.
        `folder`: the model's folder, for errors.
        """
        self.source, self.description, self.bits = source, description, bits
        self.shapes = shapes_of(description)
        self.stored = isinstance(source, StoredArrays)
        self.place = source.tensors.path if isinstance(source, GgufArrays) else folder

    @property
    def has_head(self) -> bool:
        """Whether the head is another matrix than the embedding.

        WeightsError where config.json and the files do not agree on that.
        """
        head, embedding = "lm_head.weight", "model.embed_tokens.weight"
        if head not in self.source or not self.description.tied:
            return head in self.source
        if not np.array_equal(widened(self.source[head]), widened(self.source[embedding])):
            raise damaged(
                self.place, f"'tie_word_embeddings' is true, and {shown(head)} not the embedding"
            )
        return False

    def vector(self, name: str) -> Array:
        """Read a vector, f32 [values]."""
        if name.endswith("linear_attn.A") and name not in self.source:
            decay: Array = -np.exp(widened(self._array(f"{name}_log", self.shapes[name])))
            return decay
        value = widened(self._array(name, self.shapes.get(name)))
        offset = self.description.norm_offset
        if (
            offset
            and not isinstance(self.source, GgufArrays)
            and "norm" in name
            and not name.endswith(UNSHIFTED)
        ):
            value = value + np.float32(offset)
        return value.reshape(-1)

    def matrix(self, name: str) -> Array:
        """Read a matrix, f32 [rows, columns]."""
        rows, columns = self.shapes[name]
        value = widened(self._array(name, (rows, columns), (rows, 1, columns)))
        return value.reshape(rows, columns)

    def table(self, name: str) -> Array | None:
        """Read a matrix as it is; None where a GGUF file stores it."""
        return None if self.stored else self.array(name)

    def array(self, name: str) -> Array:
        """Read a matrix of a file that stores none quantised."""
        return self._array(name, self.shapes[name])

    def product(self, names: list[tuple[str, Array | None]], bits: int = 0) -> NativeProduct:
        """Make the product with the matrices of `names` (see `parts`), in at least `bits` bits."""
        parts, bias = self.parts(names)
        return self._quantized([name for name, _ in names], parts, bias, max(bits, self.bits))

    def parts(self, names: list[tuple[str, Array | None]]) -> tuple[list[Part], Array | None]:
        """Read several matrices, whose output channels follow each other, and their bias.

        `names`: without ".weight" or ".bias", each with the order of its rows, if that changes.
        """
        parts, biases = [], []
        for name, order in names:
            part, bias = self._part(name), self._bias(name)
            if order is not None:
                part = _reordered(part, order)
                bias = None if bias is None else bias[order]
            parts.append(part)
            biases.append(bias)
        joined = None
        if any(vector is not None for vector in biases):
            sizes = [len(part.rows) if isinstance(part, Stored) else len(part) for part in parts]
            joined = np.concatenate(
                [
                    np.zeros(size, np.float32) if one is None else widened(one)
                    for one, size in zip(biases, sizes, strict=True)
                ]
            )
        return parts, joined

    def query_rows(self, spec: Attention, order: Array) -> tuple[Array, Array | None]:
        """List the rows of q's projection, with each head in `order`, and those of its gate."""
        heads, d = spec.heads, spec.head_dim
        step = 2 * d if spec.gated else d
        starts = np.arange(heads)[:, None] * step
        gate = (starts + np.arange(d, 2 * d)).reshape(-1) if spec.gated else None
        return (starts + order).reshape(-1), gate

    def experts(self, at: str, spec: Experts) -> tuple[list[Any], list[Any]]:
        """Make each expert's products: those of gate and up together, and those of down."""
        gate_up, down = [], []
        names = [f"{at}gate_proj", f"{at}up_proj"], [f"{at}down_proj"]
        for first, second in self.expert_parts(at, spec):
            gate_up.append(self._quantized(names[0], *first, self.bits).native)
            down.append(self._quantized(names[1], *second, self.bits).native)
        return gate_up, down

    def expert_parts(
        self, at: str, spec: Experts
    ) -> Iterator[tuple[tuple[list[Part], Array | None], tuple[list[Part], Array | None]]]:
        """Read the matrices and the bias of each expert: of gate and up together, and of down."""
        gates, ups, downs = (self._experts(at, name, spec) for name in ("gate", "up", "down"))
        biases = self._expert_biases(at, spec)
        for gate, up, down, (both, out) in zip(gates, ups, downs, biases, strict=True):
            yield ([gate, up], both), ([down], out)

    def _quantized(
        self, names: list[str], parts: list[Part], bias: Array | None, bits: int
    ) -> NativeProduct:
        """Make the product with the matrices `names`.

        WeightsError where one that a GGUF file stores in blocks has values that are not finite.
        """
        try:
            return NativeProduct(parts, bias, bits)
        except ValueError:
            for name, part in zip(names, parts, strict=True):
                if isinstance(part, Stored) and not _stores_finite(part):
                    raise self._not_finite(name) from None
            raise

    def _not_finite(self, name: str) -> WeightsError:
        return damaged(self.place, f"tensor {shown(name)} holds values that are not finite")

    def _bias(self, name: str) -> Array | None:
        """Read the bias of a matrix, if its file or its model has one."""
        bias = f"{name}.bias"
        if bias not in self.source and bias not in self.shapes:
            return None
        return self._array(bias, self.shapes[f"{name}.weight"][:1])

    def _part(self, name: str) -> Part:
        """Read a matrix of the file, or the rows of a fused one."""
        whole = f"{name}.weight"
        at, _, last = name.rpartition(".")
        fused = f"{at}.{FUSED.get(last, last)}.weight"
        if whole in self.source or fused not in self.source:
            return self._whole(whole, self.shapes[whole])
        rows = self._rows_of(at, last)
        parts = [one for one, other in FUSED.items() if other == FUSED[last]]
        shapes = [self.shapes.get(f"{at}.{part}.weight", (0, 0)) for part in parts]
        size = sum(shape[0] for shape in shapes)
        return _reordered(self._whole(fused, (size, self.shapes[whole][1])), rows)

    def _whole(self, name: str, shape: tuple[int, ...]) -> Part:
        """Read a matrix of the file that must have a shape."""
        if isinstance(self.source, StoredArrays) and name in self.source:
            found = self.source.stored(name)
            return found._replace(rows=found.rows)
        return self._array(name, shape)

    def _array(self, name: str, *shapes: tuple[int, ...] | None) -> Array:
        """Read a tensor of the file, in one of the shapes (None: any). WeightsError otherwise."""
        if name not in self.source:
            raise damaged(self.place, f"no file of it has its tensor {shown(name)}")
        found: Array = self.source[name]
        if None not in shapes and found.shape not in shapes:
            raise damaged(
                self.place,
                f"tensor {shown(name)} is {list(found.shape)}, its config says "
                f"{list(shapes[0] or ())}",
            )
        if not is_numbers(found):
            raise damaged(self.place, f"tensor {shown(name)} is {found.dtype}, not numbers")
        if not is_finite(found):
            raise self._not_finite(name)
        return found

    def _rows_of(self, at: str, name: str) -> Array:
        """List the rows of a fused matrix that are the projection `name`."""
        found = re.search(r"layers\.(\d+)\.", at)
        assert found is not None
        layer = self.description.layers[int(found[1])]
        mixer = layer.mixer
        if name in ("gate_proj", "up_proj"):
            assert layer.dense is not None
            start = layer.dense.width * (name == "up_proj")
            return np.arange(start, start + layer.dense.width)
        if isinstance(mixer, Attention):
            q, kv = mixer.heads * mixer.head_dim, mixer.kv_heads * mixer.head_dim
            start, size = {"q_proj": (0, q), "k_proj": (q, kv), "v_proj": (q + kv, kv)}[name]
            return np.arange(start, start + size)
        return _delta_net_rows(mixer, name)

    def _experts(self, at: str, name: str, spec: Experts) -> list[Part]:
        """Read one of the matrices of each expert: [out, in]."""
        stacked, fused = f"{at}{name}_proj.weight", f"{at}gate_up_proj.weight"
        if f"{at}0.{name}_proj.weight" in self.source:
            shape = self.shapes[stacked][1:]
            return [self._whole(f"{at}{n}.{name}_proj.weight", shape) for n in range(spec.count)]
        if stacked in self.source:
            return self._slices(stacked, self.shapes[stacked])
        rows = np.arange(spec.width) + spec.width * (name == "up")
        if fused in self.source:
            shape = (spec.count, 2 * spec.width, self.description.width)
            return [_reordered(part, rows) for part in self._slices(fused, shape)]
        # transformers' own parameters: of gpt-oss transposed, with gates and ups in turns
        stem, width = "down" if name == "down" else "gate_up", self.description.width
        wanted = (2 * spec.width, width) if stem == "gate_up" else (width, spec.width)
        whole = f"{at}{stem}_proj"
        shape = (spec.count, *(wanted[::-1] if spec.biased else wanted))
        values = self._array(whole if whole in self.source else stacked, shape)
        if spec.biased:
            values = values.swapaxes(1, 2)
            rows = np.arange(name == "up", 2 * spec.width, 2)
        if name == "down":
            return list(values)
        return [_reordered(value, rows) for value in values]

    def _slices(self, name: str, shape: tuple[int, ...]) -> list[Part]:
        """Split a tensor of all experts into its parts."""
        if not isinstance(self.source, StoredArrays):
            return list(self._array(name, shape))
        whole = self.source.stored(name)
        return [whole._replace(rows=rows) for rows in np.split(whole.rows, shape[0])]

    def _expert_biases(
        self, at: str, spec: Experts
    ) -> list[tuple[Array, Array]] | list[tuple[None, None]]:
        """Read the biases of each expert: of gate and up together, and of the down projection."""
        if not spec.biased:
            return [(None, None)] * spec.count
        both, down, wide = f"{at}gate_up_proj_bias", f"{at}down_proj", spec.width
        if both in self.source:  # transformers' own: gates and ups in turns
            joined = self._array(both, (spec.count, 2 * wide))
            gate, up, down = joined[:, ::2], joined[:, 1::2], f"{down}_bias"
        else:
            names = [f"{at}{name}_proj.bias" for name in ("gate", "up")]
            gate, up = (self._array(name, self.shapes[name]) for name in names)
            down = f"{down}.bias"
        out = self._array(down, self.shapes[f"{at}down_proj.bias"])
        both_biases = np.concatenate([widened(gate), widened(up)], 1)
        return list(zip(both_biases, widened(out), strict=True))


def _stores_finite(part: Stored) -> bool:
    values = np.empty((len(part.rows), part.columns), np.float32)
    _kernels.dequantize(part.kind, part.rows, values)
    return bool(np.isfinite(values).all())


def _reordered(part: Part, rows: Array) -> Part:
    """Select rows of a matrix, in the order given."""
    if isinstance(part, Stored):
        return part._replace(rows=np.ascontiguousarray(part.rows[rows]))
    reordered: Array = part[rows]
    return reordered


def _delta_net_rows(spec: LinearAttention, name: str) -> Array:
    """List the rows of Qwen3-Next's fused projections that are one of Qwen3.5's.

    They are grouped by key heads, each with its query, key, values and gates.
    """
    group = spec.value_heads // spec.key_heads
    if name in ("in_proj_b", "in_proj_a"):
        sizes, wanted = [group, group], [0] if name == "in_proj_b" else [1]
    else:
        values = group * spec.value_dim
        sizes = [spec.key_dim, spec.key_dim, values, values]
        wanted = [3] if name == "in_proj_z" else [0, 1, 2]
    starts = np.cumsum([0, *sizes])
    heads = np.arange(spec.key_heads)[:, None] * starts[-1]
    parts = [(heads + np.arange(starts[n], starts[n + 1])).reshape(-1) for n in wanted]
    return np.concatenate(parts)
