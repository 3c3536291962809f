"""Formats of matrix weights on a card that take less memory than bf16, and how weights get them.

    int8  8 bits, a scale for each output channel: its largest weight is 127
    fp8   e4m3, 8 bits, a scale for each output channel: its largest weight is 448
    int4  4 bits, a scale for each group of 64 inputs of an output channel; the head in int8

All are symmetric: a weight is its level times its scale. Plain torch; the kernels that multiply
with them are in `engine.model.torch.cuda.products`.

What they cost, over 960 tokens of code and prose: the mean KL divergence from the next-token
distributions of the weights before, and how often those weights' likeliest token stays the
likeliest. (Qwen2.5-Coder 0.5B from its GGUF file of 5 to 8 bits, with noise within the file's own
steps, which would favour grids like its own.)

    int8                                  0.0015  97 %
    fp8                                   0.0069  94 %
    int4                                  0.081   84 %
    int4, the head too                    0.103   81 %
    int4 in groups of 32 (4.5 bits)       0.065   87 %
    int4 in groups of 128 (4.125 bits)    0.107   81 %
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

FORMATS = ("int8", "fp8", "int4")
FP8 = torch.float8_e4m3fn
DTYPES = {"int8": torch.int8, "fp8": FP8}
LARGEST = {torch.int8: 127.0, FP8: 448.0}
GROUP = 64  # inputs that share a scale in int4
LEVELS = {"int8": 2, "fp8": 2, "int4": 4}  # levels in a word of 16 bits, one of a group each
QUAD = 4  # levels in a word of 16 bits: one of each of four groups
PAIR = 2 * GROUP  # inputs of a pair: words of 16 bits have a level of each of its two groups
SLICE = 1 << 22  # weights that are quantized at a time, whose f32 copies take memory
TINY = 1e-12  # a value below any scale that matters


def head_format(narrow: str) -> str:
    """Choose the format of a model's head, for weights in `narrow`: 4 bits are too few for it."""
    return "int8" if narrow == "int4" else narrow


def matrix_bytes(narrow: str, width: int, out: int, inner: int) -> int:
    """Count the bytes of a matrix [out, inner] in a format, and of its scales.

    `narrow`: the format; "" for numbers of `width` bytes.
    """
    if not narrow:
        return out * inner * width
    if narrow == "int4":
        return out * _quads(inner) * QUAD * (GROUP // 2 + 2)
    return out * (-(-inner // PAIR) * PAIR + 4)


def by_channel(weight: Tensor, narrow: str) -> tuple[Tensor, Tensor]:
    """Quantize a weight [out, in] to int8 or fp8.

    Returns words, int16 [out, 64 * pairs], and scales, f32 [out]. A pair is 128 inputs, the last
    one padded with zeros. Its word i has the level of input i as its lower byte, and that of input
    64 + i as its upper one.
    """
    out, inner = weight.shape
    dtype = DTYPES[narrow]
    scales = torch.empty(out, device=weight.device)
    words = torch.empty(out, -(-inner // PAIR) * GROUP, dtype=torch.int16, device=weight.device)
    for some in _slices(weight):
        wide = weight[some].float()
        scales[some] = wide.abs().amax(1).clamp(min=TINY) / LARGEST[dtype]
        wide = wide / scales[some, None]
        levels = (wide.round() if dtype == torch.int8 else wide).to(dtype).view(torch.uint8)
        halves = F.pad(levels, (0, -inner % PAIR)).view(len(levels), -1, 2, GROUP)
        words[some].view(torch.uint8).view(len(levels), -1, GROUP, 2).copy_(halves.transpose(2, 3))
    return words, scales


def unpaired(words: Tensor, inner: int, narrow: str) -> Tensor:
    """Unpack the levels in words of `by_channel`, in the order of inputs: int8 or FP8 [out, in]."""
    levels = words.view(torch.uint8).view(len(words), -1, GROUP, 2).transpose(2, 3)
    return levels.flatten(1)[:, :inner].contiguous().view(DTYPES[narrow])


def by_group(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Quantize a weight [out, in] to int4.

    Returns words, int16 [out, 64 * quads], and scales, bf16 [4 * quads, out]. A quad is 256 inputs,
    the last one padded with zeros. Its word i has the levels of the inputs i, 64 + i, 128 + i and
    192 + i, from the lowest bits up, each 8 more than it is: 0 to 15.
    """
    out, inner = weight.shape
    quads = _quads(inner)
    words = torch.empty(out, quads * GROUP, dtype=torch.int16, device=weight.device)
    scales = torch.empty(QUAD * quads, out, dtype=torch.bfloat16, device=weight.device)
    shifts = torch.arange(0, 4 * QUAD, 4, device=weight.device, dtype=torch.int32)[:, None]
    for some in _slices(weight):
        padded = F.pad(weight[some].float(), (0, quads * QUAD * GROUP - inner))
        levels, steps = _levels(padded.view(-1, QUAD * quads, GROUP))
        quad = (levels.int() + 8).view(-1, quads, QUAD, GROUP) << shifts
        words[some] = quad.sum(2, dtype=torch.int32).to(torch.int16).flatten(1)
        scales[:, some] = steps.squeeze(2).T
    return words, scales


def _levels(groups: Tensor) -> tuple[Tensor, Tensor]:
    """Quantize f32 groups [..., inputs]: levels -8 to 7, and scales [..., 1] in bf16.

    A scale may be negative: the largest weight, whatever its sign, has the level -8.

    In the measure above, this gives 0.081, levels of -7 to 7 give 0.105, and a search for the scale
    of the least squared error 0.096; weighted by the weights' size, as llama.cpp searches, 0.079 to
    0.082, which is not worth 16 times the work.
    """
    largest = groups.gather(-1, groups.abs().argmax(-1, keepdim=True))
    scales = torch.where(largest.abs() < TINY, 1.0, largest / -8).bfloat16()
    return (groups / scales.float()).round().clamp(-8, 7), scales


def widened(words: Tensor, scales: Tensor, inner: int, dtype: torch.dtype) -> Tensor:
    """Compute the weights [out, inner] that output channels of `by_group` stand for, in `dtype`."""
    wide = levels_of(words).to(dtype).sub_(8)  # in place, as these may be many
    wide.view(len(words), -1, GROUP).mul_(scales.T.to(dtype)[:, :, None])
    return wide[:, :inner]


def levels_of(words: Tensor) -> Tensor:
    """Unpack the levels 0 to 15 in words of `by_group`, in the order of inputs: int16 [out, in]."""
    shifts = torch.arange(0, 4 * QUAD, 4, device=words.device, dtype=torch.int16)[:, None]
    return (words.view(len(words), -1, 1, GROUP) >> shifts).bitwise_and_(15).flatten(1)


def _quads(inner: int) -> int:
    return -(-inner // (QUAD * GROUP))


def _slices(weight: Tensor) -> list[slice]:
    """Split the output channels into slices of at most SLICE weights, one after another."""
    count = max(1, SLICE // weight.shape[1])
    return [slice(n, n + count) for n in range(0, len(weight), count)]
