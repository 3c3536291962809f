"""Compiles Triton's kernels ahead of time for cards that are not here, as their callers would, and
prints what each takes: `python -m tests.support.compiled_kernels 90 86`, where the arguments are
capabilities of cards. One JSON object a line."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from engine.model.torch.cuda import expert_ops, products, triton_ops
from engine.model.torch.cuda.prompt_inputs import READ_ROWS
from engine.model.torch.cuda.static_pass import MAX_ROWS, TOP, USUAL_ROWS, WORD_BITS
from engine.model.torch.cuda.weight_formats import GROUP

OLDER = 86  # Ampere of consumers, which reads no fp8
COLUMNS, INNER = (3584, 37888), 3584  # of products of a 7B model
HEADS, KV, D = 28, 4, 128
VOCABULARY = 152064
PTXAS = next(Path(triton.__file__).parent.rglob("ptxas"))
POINTERS = {4: "*fp32", 2: "*bf16"}  # by the bytes of a number


def compiled(
    kernel: Any, types: dict[str, str], constants: dict[str, Any], card: int, **options: int
) -> dict[str, int]:
    """Bytes of registers spilled by a thread and of shared memory, of one variant of a kernel, and
    its multiplications that are fused with an addition."""
    names = kernel.arg_names
    constants = {one.name: one.default for one in kernel.params if one.has_default} | constants
    source = ASTSource(
        fn=kernel,
        signature={name: "constexpr" if name in constants else types[name] for name in names},
        constexprs={(names.index(name),): value for name, value in constants.items()},
        attrs={
            (n,): [["tt.divisibility", 16]]
            for n, name in enumerate(names)
            if types.get(name, "").startswith("*")
        },
    )
    made = triton.compile(source, target=GPUTarget("cuda", card, 32), options=options)
    with tempfile.NamedTemporaryFile("w", suffix=".ptx") as file:
        file.write(made.asm["ptx"])
        file.flush()
        name = f"sm_{card}a" if card == 90 else f"sm_{card}"
        said = subprocess.run(
            [str(PTXAS), "-v", f"--gpu-name={name}", file.name, "-o", "/dev/null"],
            capture_output=True, text=True, check=True,
        ).stderr  # fmt: skip
    spilled = re.search(r"(\d+) bytes spill stores", said)
    assert spilled is not None, said
    fused = made.asm["ptx"].count("fma.rn.f32")
    return {"spilled": int(spilled[1]), "shared": made.metadata.shared, "fused": fused}


def tiled(card: int) -> Iterator[dict[str, Any]]:
    for columns in COLUMNS:
        for number, weight in ((2, "bf16"), (2, "i8"), (2, "fp8e4nv"))[: 3 if card > OLDER else 2]:
            size = 2 if weight == "bf16" else 1
            n, k, stages = products.tile_of(columns, number, size)
            types = dict.fromkeys(("x", "bias", "out"), POINTERS[number])
            types |= {"weight": f"*{weight}", "scales": "*fp32", "rows": "i32", "N": "i32"}
            constants = {
                "K": INNER, "SCALED": size == 1, "BIAS": True, "BLOCK_N": n, "BLOCK_K": k,
                "BLOCK_M": products.PRODUCT_ROWS, "PRECISION": "ieee",
            }  # fmt: skip
            found = compiled(
                products._product, types, constants, card, num_warps=4, num_stages=stages
            )
            what = f"product of {columns} columns, weights in {weight}"
            yield {"kernel": what, "in_flight": n * k * size * (stages - 1)} | found


def grouped(card: int) -> Iterator[dict[str, Any]]:
    for columns in COLUMNS:
        n, warps, stages = products.grouped_tile_of(columns)
        types = dict.fromkeys(("x", "scales", "bias", "out"), "*bf16")
        types |= {"weight": "*i16", "rows": "i32", "N": "i32"}
        constants = {
            "K": INNER, "BIAS": True, "BLOCK_M": products.GROUPED_ROWS, "BLOCK_N": n,
            "GROUP": GROUP, "PRECISION": "ieee",
        }  # fmt: skip
        found = compiled(
            products._grouped_product, types, constants, card, num_warps=warps, num_stages=stages
        )
        what = f"product of {columns} columns, weights in groups of 4 bits"
        yield {"kernel": what, "in_flight": n * 2 * GROUP * (stages - 1)} | found


def attention(card: int) -> Iterator[dict[str, Any]]:
    types = dict.fromkeys(("meta", "positions", "seen"), "*i64") | {"path": "*u8"}
    types |= dict.fromkeys(("mixed", "highest", "total"), "*fp32")
    types |= {"layer": "i32", "rows": "i32", "scale": "fp32"}
    shape = {"HEADS": HEADS, "KV": KV, "D": D, "WIDTH": D, "KEYS": triton_ops.TILE}
    for tree, exact, number, rows in (
        (True, False, 2, USUAL_ROWS),
        (True, False, 4, MAX_ROWS),
        *product((True, False), (False, True), (2,), (MAX_ROWS,)),
    ):
        group = HEADS // KV
        constants = shape | {
            "TREE": tree, "EXACT": exact, "RUN": triton_ops.EXACT_RUN if exact else 1,
            "BLOCK": triton_ops.block_of(group if exact else rows * group, exact, number),
            "PARTS": triton_ops.EXACT_PARTS if exact else triton_ops.SPLITS,
            "WORDS": rows // WORD_BITS, "TYPE": tl.float32 if number == 4 else tl.bfloat16,
            "PRECISION": "ieee",
        }  # fmt: skip
        found = compiled(
            triton_ops._attend, types | {"q": POINTERS[number]}, constants, card, num_warps=4,
            num_stages=1 if number == 4 else 2, enable_fp_fusion=not exact,
        )  # fmt: skip
        kind = f"{'exact ' * exact}attention of {rows} rows{'' if tree else ' of a prompt'}"
        yield {"kernel": f"{kind}, {number} bytes a number"} | found
    direct = types | dict.fromkeys(("q", "mixed", "highest", "total"), "*bf16")
    constants |= {
        "EXACT": False, "RUN": 1, "TREE": False, "PARTS": 1,
        "BLOCK": triton_ops.block_of(READ_ROWS[-1], False, 2),
    }  # fmt: skip
    found = compiled(triton_ops._attend, direct, constants, card, num_warps=4, num_stages=2)
    yield {"kernel": "attention of a prompt, its result written directly"} | found
    parts = triton_ops.MOST_PARTS
    types = dict.fromkeys(("mixed", "highest", "total", "sinks"), "*fp32") | {"out": "*bf16"}
    constants = {"HEADS": HEADS, "D": D, "WIDTH": D, "PARTS": parts}
    warps = triton_ops.combining_warps(parts, D)
    found = compiled(triton_ops._combine, types, constants, card, num_warps=warps, num_stages=3)
    yield {"kernel": f"{parts} parts of attention"} | found


def described(card: int) -> Iterator[dict[str, Any]]:
    """Attention of gpt-oss, with windows, and of Gemma 4, whose heads are wide."""
    for heads, kv, d, window in ((64, 8, 64, 128), (8, 4, 256, 1024), (16, 2, 512, 0)):
        keys, stages = triton_ops.tile_of(d, 2)
        types = dict.fromkeys(("meta", "positions", "seen"), "*i64") | {"path": "*u8"}
        types |= dict.fromkeys(("mixed", "highest", "total"), "*fp32")
        types |= {"q": "*bf16", "layer": "i32", "rows": "i32", "scale": "fp32"}
        constants = {
            "TREE": True, "EXACT": False, "HEADS": heads, "KV": kv, "D": d, "WIDTH": d,
            "BLOCK": min(64, triton_ops.PROGRAM_SUMS // d), "KEYS": keys,
            "PARTS": triton_ops.SPLITS, "WORDS": 1, "TYPE": tl.bfloat16, "PRECISION": "ieee",
            "WINDOW": window, "ADDRESSES": 5,
        }  # fmt: skip
        found = compiled(triton_ops._attend, types, constants, card, num_warps=4, num_stages=stages)
        yield {"kernel": f"attention of heads of {d} dimensions, window {window}"} | found


def experts(card: int) -> Iterator[dict[str, Any]]:
    """Of Qwen3-30B-A3B, and of gpt-oss, whose experts have biases."""
    for count, chosen, width, inner, activation in (
        (128, 8, 2048, 768, ""), (32, 4, 2880, 2880, "clamped_swiglu"),
    ):  # fmt: skip
        for gated, by_expert in product((True, False), (True, False)):
            n, k, stages = (expert_ops.GATED_TILES if gated else expert_ops.DOWN_TILES)[2]
            columns, inputs = (inner, width) if gated else (width, inner)
            types = dict.fromkeys(("x", "weight", "bias", "out"), "*bf16")
            types |= dict.fromkeys(("choice", "starts", "order"), "*i32")
            types |= {"alpha": "fp32", "limit": "fp32"}
            constants = {
                "E": count, "CHOSEN": chosen, "N": columns, "K": inputs, "GATED": gated,
                "ACTIVATION": activation, "BIAS": bool(activation), "BY_EXPERT": by_expert,
                "BLOCK_M": expert_ops.PAIR_ROWS, "BLOCK_N": n, "BLOCK_K": k, "PRECISION": "ieee",
            }  # fmt: skip
            found = compiled(
                expert_ops._expert_product, types, constants, card, num_warps=4, num_stages=stages
            )
            yield {"kernel": f"{count} experts, {columns} columns of {inputs} inputs"} | found


def likeliest(card: int) -> Iterator[dict[str, Any]]:
    parts = triton.cdiv(VOCABULARY, triton_ops.LOGITS)
    sizes = {"TOP": TOP, "PARTS": parts}
    types = {"logits": "*bf16", "parts": "*i64", "out": "*i32", "N": "i32", "rows": "i32"}
    for kernel, block, warps in (
        (triton_ops._top_parts, triton_ops.LOGITS, 8),
        (triton_ops._top_merged, triton.next_power_of_2(parts * TOP), 2),
    ):
        constants = sizes | {"BLOCK": block}
        found = compiled(kernel, types, constants, card, num_warps=warps, num_stages=3)
        yield {"kernel": kernel.__name__} | found


if __name__ == "__main__":
    for one in map(int, sys.argv[1:]):
        found = (*tiled(one), *grouped(one), *likeliest(one))
        if one != OLDER:
            found = (*found, *attention(one), *described(one), *experts(one))
        for line in found:
            print(json.dumps({"card": one} | line), flush=True)
