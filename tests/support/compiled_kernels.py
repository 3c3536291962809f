"""Compiles Triton's kernels ahead of time for cards that are not here, as their callers would, and
prints what each takes: `python -m tests.support.compiled_kernels`. One JSON object a line."""

from __future__ import annotations

import json
import re
import subprocess
import tempfile
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from engine.model.torch.cuda import products, sampling, triton_ops
from engine.model.torch.cuda.static_pass import MAX_ROWS, TOP, USUAL_ROWS, WORD_BITS
from engine.model.torch.cuda.weight_formats import GROUP

CARDS = (90, 89)  # Hopper, and Ada of consumers
OLDER = 86  # Ampere of consumers, which reads no fp8
COLUMNS, INNER = (3584, 37888), 3584  # of products of a 7B model
HEADS, KV, D = 28, 4, 128
VOCABULARY = 152064
PTXAS = next(Path(triton.__file__).parent.rglob("ptxas"))
POINTERS = {4: "*fp32", 2: "*bf16"}  # by the bytes of a number


def compiled(
    kernel: Any, types: dict[str, str], constants: dict[str, Any], card: int, **options: int
) -> dict[str, int]:
    """Bytes of registers spilled by a thread and of shared memory, of one variant of a kernel."""
    names = kernel.arg_names
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
    return {"spilled": int(spilled[1]), "shared": made.metadata.shared}


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
    for number, rows in product((2, 4), (USUAL_ROWS, MAX_ROWS)):
        block = triton_ops.block_of(rows * HEADS // KV, False, number)
        types = dict.fromkeys(("meta", "positions", "seen"), "*i64") | {"path": "*u8"}
        types |= dict.fromkeys(("mixed", "highest", "total"), "*fp32")
        types |= {"q": POINTERS[number], "layer": "i32", "rows": "i32", "scale": "fp32"}
        constants = {
            "TREE": True, "EXACT": False, "HEADS": HEADS, "KV": KV, "D": D, "WIDTH": D,
            "BLOCK": block, "KEYS": triton_ops.TILE, "PARTS": triton_ops.SPLITS,
            "WORDS": rows // WORD_BITS, "TYPE": tl.float32 if number == 4 else tl.bfloat16,
            "PRECISION": "ieee",
        }  # fmt: skip
        found = compiled(
            triton_ops._attend, types, constants, card, num_warps=4,
            num_stages=1 if number == 4 else 2,
        )  # fmt: skip
        yield {"kernel": f"attention of {rows} rows, {number} bytes a number"} | found
    parts = triton_ops.MOST_PARTS
    types = dict.fromkeys(("mixed", "highest", "total"), "*fp32") | {"out": "*bf16"}
    constants = {"HEADS": HEADS, "D": D, "WIDTH": D, "PARTS": parts}
    warps = triton_ops.combining_warps(parts, D)
    found = compiled(triton_ops._combine, types, constants, card, num_warps=warps, num_stages=3)
    yield {"kernel": f"{parts} parts of attention"} | found


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


def drawing(card: int) -> Iterator[dict[str, Any]]:
    """The kernels that draw tokens, for both formats of logits and all kinds of requests."""
    parts = triton.cdiv(VOCABULARY, sampling.LOGITS)
    groups = parts * sampling.LOGITS // sampling.GROUP
    types = {"scores": "*fp64", "weights": "*fp32", "masses": "*i64"}
    types |= dict.fromkeys(("top", "ids", "counts", "groups"), "*i32") | {"positions": "*i64"}
    types |= dict.fromkeys(("maxima", "values"), "*fp32") | {"chosen": "*i64"}
    types |= dict.fromkeys(("N", "rows", "shift", "count"), "i32")
    types |= {"key": "i64", "share": "i64", "temperature": "fp32"}
    sizes = {"TOP": TOP, "PARTS": parts, "BLOCK": sampling.LOGITS}
    likely = {
        "GROUPS": groups, "GROUP": sampling.GROUP, "BLOCK": triton.next_power_of_2(groups),
        "TILE": sampling.TILE, "LIKELY": sampling.LIKELY, "TOP": TOP,
    }  # fmt: skip
    for number, nucleus in product((2, 4), (False, True)):
        steps = sampling.STEPS if nucleus else 1
        entries = {"STEPS": steps, "ENTRIES": triton.next_power_of_2(parts * steps)}
        merged = sizes | entries | {"BLOCK": triton.next_power_of_2(parts), "NUCLEUS": nucleus}
        for kernel, constants, warps in (
            (sampling._score_parts, sizes | {"STEPS": steps}, 4),
            (sampling._mass_parts, sizes | entries, 4),
            (sampling._choose, merged, 4),
            (sampling._group_maxima, sizes | {"GROUP": sampling.GROUP}, 4),
            (sampling._choose_likely, likely | {"NUCLEUS": nucleus}, 16),
        ):
            given = {name: value for name, value in constants.items() if name in kernel.arg_names}
            found = compiled(
                kernel, types | {"logits": POINTERS[number]}, given, card, num_warps=warps,
                num_stages=3,
            )  # fmt: skip
            what = f"{kernel.__name__}{', top-p' * nucleus}, {number} bytes a logit"
            yield {"kernel": what} | found


if __name__ == "__main__":
    for one in CARDS:
        made = (*tiled(one), *grouped(one), *attention(one), *likeliest(one), *drawing(one))
        for line in made:
            print(json.dumps({"card": one} | line), flush=True)
    for line in (*tiled(OLDER), *grouped(OLDER), *drawing(OLDER)):
        print(json.dumps({"card": OLDER} | line), flush=True)
