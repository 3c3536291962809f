"""The matrix products of a model's shapes, by the format of their weights: ours, and libraries'.

On a card a product is captured as a CUDA graph that goes over copies of the weights which no cache
holds together, as a pass does. `same_bits`: whether a row's result is the same alone and beside the
others, which `--exact` needs. 4-bit weights of the libraries are ours in their packing: torch's own
product, which torchao takes on a card too, and gemlite's where it is installed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from bench.gpu.steps import seconds_of
from engine.model.torch.cuda.weight_formats import FORMATS, GROUP, by_group, levels_of
from engine.model.torch.ops import Product, product

ROWS = (1, 16, 64)
UNCACHED_BYTES = {"cuda": 256 << 20, "cpu": 0}  # bytes of weights, more than a cache holds
MAX_COPIES = 64
NEAR = 0.02  # difference of a library's results and ours, relative to their size

Maker = Callable[[Tensor], Product]


def matrices(settings: dict[str, Any]) -> dict[str, tuple[int, int]]:
    """Return the shapes [out, in] of a model of Llama's family, by what they are."""
    width, inner = settings["hidden_size"], settings["intermediate_size"]
    heads, kv = settings["num_attention_heads"], settings["num_key_value_heads"]
    d = width // heads
    return {
        "qkv": ((heads + 2 * kv) * d, width),
        "out": (width, heads * d),
        "gate_up": (2 * inner, width),
        "down": (width, inner),
    }


def makers(device: torch.device) -> dict[str, Maker]:
    """Return, by name, what makes a product of bf16 weights [out, in] on a device."""
    found: dict[str, Maker] = {"bf16": product}
    if device.type != "cuda":
        return found
    found["bf16, exact"] = partial(product, exact=True)
    for name in FORMATS:
        found[name] = partial(product, exact=True, narrow=name)
    found["int4, torch"] = of_torch
    if find_spec("gemlite") is not None:
        found["int4, gemlite"] = of_gemlite
    return found


def of_torch(weight: Tensor) -> Product:
    """torch's product with 4-bit weights, whose zero points are 0 here."""
    levels, scales = _four_bits(weight)
    pairs = levels[:, ::2] << 4 | levels[:, 1::2]
    packed = torch.ops.aten._convert_weight_to_int4pack(pairs.contiguous(), 8)
    both = torch.stack([scales, torch.zeros_like(scales)], 2)  # [groups, out, 2]
    return lambda x: torch.ops.aten._weight_int4pack_mm(x, packed, GROUP, both)


def of_gemlite(weight: Tensor) -> Product:
    """gemlite's."""
    from gemlite.helper import A16Wn

    levels, scales = _four_bits(weight)
    steps = scales.T.contiguous()
    packer = A16Wn(device=str(weight.device), dtype=weight.dtype)
    return packer.from_weights(levels, steps, torch.full_like(steps, 8), 4, GROUP)


def _four_bits(weight: Tensor) -> tuple[Tensor, Tensor]:
    """uint8 levels 0 to 15 [out, in], 8 of which are 0, and scales [groups, out]."""
    words, scales = by_group(weight)
    inner = weight.shape[1]
    return levels_of(words)[:, :inner].to(torch.uint8), scales[: -(-inner // GROUP)]


def measure(
    name: str, shape: tuple[int, int], make: Maker, device: torch.device
) -> Iterator[dict[str, Any]]:
    """Microseconds of one product of a shape [out, in], by its rows.

    ValueError where a library's differs from ours with the same weights.
    """
    out, inner = shape
    weight = torch.empty(shape, dtype=torch.bfloat16, device=device).normal_(0.0, 0.02)
    x = torch.empty(max(ROWS), inner, dtype=torch.bfloat16, device=device).normal_()
    least = 2 * out * inner if name.startswith("bf16") else out * inner // 2  # bytes
    count = min(MAX_COPIES, 1 + UNCACHED_BYTES[device.type] // least)
    copies = [make(weight.clone()) for _ in range(count)]
    first, whole = copies[0], copies[0](x)
    if name.startswith("int4, ") and not near(whole, product(weight, None, True, "int4")(x)):
        raise ValueError(f"the product {name} is not that of its weights")
    for rows in ROWS:
        starts = range(0, len(x), rows)
        same = all(torch.equal(first(x[n : n + rows]), whole[n : n + rows]) for n in starts)
        seconds = seconds_of(captured(copies, x[:rows]), device) / count
        yield {"rows": rows, "product": name, "us": round(1e6 * seconds, 2), "same_bits": same}


def near(found: Tensor, expected: Tensor) -> bool:
    apart = (found.float() - expected.float()).norm() / expected.float().norm()
    return bool(apart < NEAR)


def captured(copies: list[Product], x: Tensor) -> Callable[[], object]:
    """Return a function that runs all products with x.

    On a card it is the replay of a CUDA graph.
    """

    def run() -> None:
        for one in copies:
            one(x)

    if x.device.type != "cuda":
        return run
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):  # libraries choose kernels and allocate
        for _ in range(2):
            run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        run()
    return graph.replay
