"""Compiles Triton's kernels ahead of time for cards that are not here, as their callers would, and
prints what each takes: `python -m tests.support.compiled_kernels 90 86`, where the arguments are
capabilities of cards. One JSON object a line. With `--first`, only one kernel of each kind."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from itertools import islice, product
from pathlib import Path
from typing import Any

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from engine.model.torch.cuda import expert_ops, products, sampling, triton_attention, triton_ops
from engine.model.torch.cuda.static_pass import MAX_ROWS, TOP, USUAL_ROWS, WORD_BITS
from engine.model.torch.cuda.weight_formats import FORMATS, GROUP

OLDER = 86  # Ampere of consumers
COLUMNS, INNER = (3584, 37888), 3584  # of products of a 7B model
HEADS, KV, D = 28, 4, 128
VOCABULARY = 152064
SPLITS = 16  # parts of a cache, as of a long one on a large card
PTXAS = next(Path(triton.__file__).parent.rglob("ptxas"))
POINTERS = {4: "*fp32", 2: "*bf16"}  # by the bytes of a number


def compiled(
    kernel: Any, types: dict[str, str], constants: dict[str, Any], card: int, **options: int
) -> dict[str, Any]:
    """Bytes of registers spilled by a thread and of shared memory, of one variant of a kernel, its
    multiplications that are fused with an addition, those of two numbers at once, and the orders in
    which its matrix instructions take the terms of a sum."""
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
    fused, paired = (made.asm["ptx"].count(f"fma.rn.{kind}") for kind in ("f32", "bf16x2"))
    orders = sorted(set(re.findall(r"versionMajor = \d|kWidth = \d", made.asm["ttgir"])))
    return {
        "spilled": int(spilled[1]), "shared": made.metadata.shared, "fused": fused,
        "paired": paired, "orders": orders,
    }  # fmt: skip


def multiplied(card: int) -> Iterator[dict[str, Any]]:
    for columns, rows, narrow in product(COLUMNS, (1, 64, 1024), ("", *FORMATS)):
        parts = -(-INNER // products.part_inputs(columns, INNER, bool(narrow)))
        limit = (227 if card == 90 else 99) << 10
        wide = not narrow or rows > MAX_ROWS
        tile = products.tile_of(rows, narrow, 2, parts)
        tile = products.fitting(tile, "" if wide else narrow, 2, limit)
        types = dict.fromkeys(("x", "bias", "out"), "*bf16") | {"shared": "*fp32"}
        types |= {"weight": "*bf16" if wide else "*i16", "counters": "*i32"}
        types |= {"scales": "*bf16" if narrow == "int4" else "*fp32"}
        types |= dict.fromkeys(("rows", "N", "stride", "part"), "i32")
        constants = {
            "K": INNER, "NARROW": narrow, "WIDE": wide, "BIAS": True,
            "SHARED": rows <= MAX_ROWS and parts > 1, "BLOCK_M": tile.rows,
            "BLOCK_N": tile.columns, "BLOCK_K": tile.inputs, "GROUP": GROUP,
            "UNIT": products.PART_STEP,
            "ASSEMBLY": True, "OVERLAP": card == 90, "PRECISION": "ieee",
        }  # fmt: skip
        found = compiled(
            products._product, types, constants, card, num_warps=tile.warps, num_stages=tile.stages
        )
        what = f"product of {rows} rows and {columns} columns, weights in {narrow or 'bf16'}"
        stage = products.stage_bytes(tile, "" if wide else narrow, 2)
        yield {"kernel": what, "stages": tile.stages, "stage_bytes": stage} | found


def attention(card: int) -> Iterator[dict[str, Any]]:
    types = dict.fromkeys(("meta", "positions", "seen"), "*i64") | {"path": "*u8"}
    types |= dict.fromkeys(("mixed", "highest", "total"), "*fp32")
    types |= {"layer": "i32", "rows": "i32", "scale": "fp32"}
    shape = {"HEADS": HEADS, "KV": KV, "D": D, "WIDTH": D, "KEYS": triton_attention.TILE}
    for tree, exact, number, rows in (
        (True, False, 2, USUAL_ROWS),
        (True, False, 4, MAX_ROWS),
        *product((True, False), (False, True), (2,), (MAX_ROWS,)),
    ):
        group = HEADS // KV
        constants = shape | {
            "TREE": tree, "EXACT": exact, "RUN": triton_attention.EXACT_RUN if exact else 1,
            "BLOCK": triton_attention.block_of(group if exact else rows * group, exact, number),
            "PARTS": triton_attention.EXACT_PARTS if exact else SPLITS,
            "WORDS": rows // WORD_BITS, "TYPE": tl.float32 if number == 4 else tl.bfloat16,
            "PRECISION": "ieee",
        }  # fmt: skip
        found = compiled(
            triton_attention._attend, types | {"q": POINTERS[number]}, constants, card, num_warps=4,
            num_stages=1 if number == 4 else 2, enable_fp_fusion=not exact,
        )  # fmt: skip
        kind = f"{'exact ' * exact}attention of {rows} rows{'' if tree else ' of a prompt'}"
        yield {"kernel": f"{kind}, {number} bytes a number"} | found
    types |= dict.fromkeys(("q", "mixed", "highest", "total"), "*bf16")
    constants = shape | {
        "TREE": False, "EXACT": False, "RUN": 1, "BLOCK": triton_attention.LONG_PAIRS, "PARTS": 1,
        "WORDS": 1, "TYPE": tl.bfloat16, "PRECISION": "ieee",
    }  # fmt: skip
    found = compiled(triton_attention._attend, types, constants, card, num_warps=8, num_stages=2)
    yield {"kernel": "attention of a long prompt"} | found
    parts = triton_attention.MOST_PARTS
    types = dict.fromkeys(("mixed", "highest", "total", "sinks"), "*fp32") | {"out": "*bf16"}
    constants = {"EXACT": False, "HEADS": HEADS, "D": D, "WIDTH": D, "PARTS": parts}
    warps = triton_attention.combining_warps(parts, D)
    found = compiled(
        triton_attention._combine, types, constants, card, num_warps=warps, num_stages=3
    )
    yield {"kernel": f"{parts} parts of attention"} | found


def described(card: int) -> Iterator[dict[str, Any]]:
    """Attention of gpt-oss, with windows, and of Gemma 4, whose heads are wide."""
    for heads, kv, d, window in ((64, 8, 64, 128), (8, 4, 256, 1024), (16, 2, 512, 0)):
        keys, stages = triton_attention.tile_of(d, 2)
        types = dict.fromkeys(("meta", "positions", "seen"), "*i64") | {"path": "*u8"}
        types |= dict.fromkeys(("mixed", "highest", "total"), "*fp32")
        types |= {"q": "*bf16", "layer": "i32", "rows": "i32", "scale": "fp32"}
        constants = {
            "TREE": True, "EXACT": False, "HEADS": heads, "KV": kv, "D": d, "WIDTH": d,
            "BLOCK": min(64, triton_attention.PROGRAM_SUMS // d), "KEYS": keys,
            "PARTS": SPLITS, "WORDS": 1, "TYPE": tl.bfloat16, "PRECISION": "ieee",
            "RUN": 1, "WINDOW": window, "ADDRESSES": 5,
        }  # fmt: skip
        found = compiled(
            triton_attention._attend, types, constants, card, num_warps=4, num_stages=stages
        )
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
    only_first = "--first" in sys.argv
    for one in map(int, filter(str.isdigit, sys.argv[1:])):
        kinds = [multiplied, likeliest, drawing]
        kinds += [attention, described, experts] if one != OLDER else []
        for kind in kinds:
            for line in islice(kind(one), 1 if only_first else None):
                print(json.dumps({"card": one} | line), flush=True)
