"""How fast a loaded model is here: what a pass takes by its rows, and the weights that it reads.

Without speculation an answer takes one pass a token, and on most machines a pass takes as long as
reading its weights from memory. A pass over the rows of a draft reads them once for all rows.
"""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from engine.model.cost_model import GRID, NEAR_TOKENS, scratch, timed
from engine.model.families.gguf_tensors import tensors_of_gguf
from engine.weights.fetch.integrity import tensors_of

if TYPE_CHECKING:
    from engine.model.native.native_target import NativeTarget
    from engine.model.torch.torch_target import TorchTarget

ROWS = (1, 8, 16)  # rows of the timed passes
ROUNDS, MAX_SECONDS = 10, 5.0  # rounds and seconds of timing, whichever ends first after one round
# bytes of a weight; q8 and q4 have a scale for each block of 32, int4 has one for each group of 64
WEIGHT_BYTES = {
    "f32": 4.0, "bf16": 2.0, "int8": 1.0, "fp8": 1.0, "int4": 0.53125, "q8": 1.125, "q4": 0.625,
}  # fmt: skip
HEADS = {"q4": "q8", "int4": "int8"}  # formats; a head is never quantized to 4 bits
TABLE = re.compile(r"(^|\.)(embed_tokens|wte|embed_in)\.weight$")  # looked up, not multiplied
HEAD = re.compile(r"(^|\.)(lm_head|embed_out)\.weight$")
OTHER_SENSES = re.compile(r"(^|\.)(vision|visual|audio|multi_modal)")  # not run for text
EXPERT = re.compile(r"\.experts\.")


@dataclass(frozen=True, slots=True)
class Speed:
    """Seconds of the fastest pass by its rows, and bytes of weights that a pass of one row reads.

    The bytes are an estimate where the weights are quantized at load.
    """

    seconds: dict[int, float]
    weight_bytes: int

    @property
    def tokens_per_second(self) -> float:
        """Tokens per second without speculation."""
        return 1 / self.seconds[1]

    @property
    def bytes_per_second(self) -> float:
        return self.weight_bytes / self.seconds[1]


def measured(target: NativeTarget | TorchTarget) -> Speed:
    """Time passes with up to NEAR_TOKENS cached tokens.

    ValueError where the context is too short for them.
    """
    cached = min(NEAR_TOKENS, target.context - GRID[-1] - 1)
    if cached < 1:
        raise ValueError(f"its context of {target.context} tokens is too short to time passes")
    for _ in target.warm():
        pass
    probe, best, spent = scratch(target, cached), dict.fromkeys(ROWS, math.inf), 0.0
    for _ in range(ROUNDS):
        for rows in ROWS:
            seconds = timed(probe, cached, rows)
            best[rows], spent = min(best[rows], seconds), spent + seconds
        if spent > MAX_SECONDS:
            break
    return Speed(best, weight_bytes(target))


def weight_bytes(target: NativeTarget | TorchTarget) -> int:
    """Count the bytes of weights that a pass over one row reads."""
    if (known := getattr(target.model, "nbytes", None)) is not None:
        return int(known)
    file = tensors_of_gguf(target.folder)
    with file or contextlib.nullcontext():
        infos = tensors_of(target.folder) if file is None else file.infos()
    shapes = {name: one.shape for name, one in infos.items()}
    dtype = target.dtype_name
    sizes = {
        name: int(math.prod(shape) * WEIGHT_BYTES[storage_format(name, dtype)])
        for name, shape in shapes.items()
    }
    return read_bytes(sizes, target.settings)


def storage_format(name: str, dtype: str) -> str:
    """Return the format of one tensor."""
    is_head = HEAD.search(name) or TABLE.search(name)
    return HEADS.get(dtype, dtype) if is_head else dtype


def read_bytes(sizes: Mapping[str, int], settings: Mapping[str, Any]) -> int:
    """Count the bytes of a model's tensors, given by name, that a pass over one row reads.

    They are all but the table of embeddings, unless it is the head, and of a mixture's experts only
    those of one row.
    """
    experts = settings.get("num_experts") or settings.get("num_local_experts") or 1
    chosen = min(settings.get("num_experts_per_tok") or experts, experts)
    has_head = any(HEAD.search(name) for name in sizes)
    total = 0
    for name, size in sizes.items():
        if OTHER_SENSES.search(name) or (has_head and TABLE.search(name)):
            continue
        total += size * chosen // experts if EXPERT.search(name) else size
    return total
