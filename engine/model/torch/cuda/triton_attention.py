"""Attention of a pass over the cache on a CUDA card (Triton).

With `exact`, a row's sums run over the places of its own text, whatever rows stand next to it: a
row gets the same bits in every pass. In plain torch it is `torch_ops.attend`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl
from torch import Tensor

from engine.model.torch.cuda.launching import overlap, wait_for_inputs

if TYPE_CHECKING:
    from engine.model.torch.cuda.static_pass import HeadSizes, StaticPass

TYPES = {torch.float32: tl.float32, torch.bfloat16: tl.bfloat16}
LOG2_E = 1.4426950408889634
TILE = 64  # keys at a time: bits of at most two words of a row's ancestors
# Exact: a position alone decides in which part its key is summed.
EXACT_PARTS = 32  # parts of the cache
EXACT_RUN = 1  # tiles of a part that follow each other
EXACT_PAIRS = 32  # rows and query heads of a program, in 16-bit numbers
TILE_BYTES = 32768  # bytes of the keys of a tile
PROGRAM_SUMS = 8192  # sums of rows and dimensions that a program's registers hold
USUAL_DIMENSIONS = 128  # of a head; shared memory holds one tile of larger ones
MOST_PARTS = 128  # parts that a long cache is cut in, for a model with few key heads
LONG = 256  # rows of a prompt for which programs are wide, as each loads all keys
LONG_PAIRS = 128  # rows and query heads of a program, in 16-bit numbers


@triton.jit
def _tiles_of(split, below, PARTS: tl.constexpr, RUN: tl.constexpr):
    """Count the tiles of part `split` among the first `below`: parts take turns, RUN at a time."""
    last = tl.minimum(tl.maximum(below % (PARTS * RUN) - split * RUN, 0), RUN)
    return (below // (PARTS * RUN) * RUN + last).to(tl.int32)


@triton.jit
def _tile(n, split, PARTS: tl.constexpr, RUN: tl.constexpr):
    """Find the n-th tile of part `split`."""
    return (n // RUN * PARTS + split) * RUN + n % RUN


@triton.jit
def _add_tile(
    query, keys, values, place, live, sees, best, weight, sums, scale, PRECISION: tl.constexpr,
    CAP: tl.constexpr,
):  # fmt: skip
    """Add the keys and values at `place` to a softmax's running maximum, weight and weighted sums.

    `live`: which numbers to load; `sees`: which keys a row sees, None for all; CAP: scores are
    capped, 0: not.
    """
    k = tl.load(keys + place, mask=live, other=0.0)
    scores = tl.dot(query, tl.trans(k), input_precision=PRECISION) * scale
    if CAP > 0.0:  # c tanh(x / c)
        scores = CAP * (2.0 * tl.sigmoid(2.0 / CAP * scores) - 1.0)
    if sees is not None:
        scores = tl.where(sees, scores, float("-inf"))
    above = tl.maximum(best, tl.max(scores, 1))
    shift = tl.where(above == float("-inf"), 0.0, above)
    weights = tl.exp2(scores - shift[:, None])
    fade = tl.exp2(best - shift)
    weight = weight * fade + tl.sum(weights, 1)
    v = tl.load(values + place, mask=live, other=0.0)
    sums = sums * fade[:, None]
    sums += tl.dot(weights.to(v.dtype), v, input_precision=PRECISION)
    return above, weight, sums


@triton.jit(do_not_specialize=["layer", "rows"])
def _attend(
    q, meta, positions, seen, path, mixed, highest, total, layer, rows, scale,
    TREE: tl.constexpr, EXACT: tl.constexpr, HEADS: tl.constexpr,
    KV: tl.constexpr, D: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr,
    KEYS: tl.constexpr, PARTS: tl.constexpr, RUN: tl.constexpr, WORDS: tl.constexpr,
    TYPE: tl.constexpr, PRECISION: tl.constexpr, WINDOW: tl.constexpr = 0,
    CAP: tl.constexpr = 0.0, ADDRESSES: tl.constexpr = 0, OVERLAP: tl.constexpr = False,
):  # fmt: skip
    """Attend to part `split` of the cache with BLOCK (row, query head) pairs that share a key head.

    First to the keys of committed tokens, which all rows see, then to those of the pass. EXACT: the
    pairs of whole rows, over the keys in the order of each row's positions. WINDOW: a row sees so
    many tokens, 0: all.
    """
    wait_for_inputs(OVERLAP)
    GROUP: tl.constexpr = HEADS // KV
    ROWS: tl.constexpr = BLOCK // GROUP
    block, kv, split = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    pair = tl.arange(0, BLOCK)
    if EXACT:
        row = block * ROWS + pair // GROUP
        real = (row < rows) & (pair < ROWS * GROUP)
    else:
        row = (block * BLOCK + pair) // GROUP
        pair += block * BLOCK
        real = row < rows
    head = kv * GROUP + pair % GROUP
    row = tl.where(real, row, 0).to(tl.int64)
    head = tl.where(real, head, 0)
    wide = tl.arange(0, WIDTH)
    inside = wide < D
    query = tl.load(
        q + ((row * HEADS + head) * D)[:, None] + wide[None, :],
        mask=real[:, None] & inside[None, :], other=0.0,
    )  # fmt: skip
    capacity, base = tl.load(meta + 2), tl.load(meta + 3)
    start = tl.multiple_of((layer.to(tl.int64) * KV + kv) * capacity * D, 8)
    keys = tl.load(meta + ADDRESSES).to(tl.pointer_type(TYPE))
    keys = tl.multiple_of(keys, 16) + start
    values = tl.load(meta + ADDRESSES + 1).to(tl.pointer_type(TYPE))
    values = tl.multiple_of(values, 16) + start
    own = tl.load(positions + row, mask=real, other=0)
    best = tl.full([BLOCK], float("-inf"), tl.float32)
    weight = tl.zeros([BLOCK], tl.float32)
    sums = tl.zeros([BLOCK, WIDTH], tl.float32)
    shared = _tiles_of(split, base // KEYS, PARTS, RUN)
    begin = 0
    if WINDOW > 0:  # no row sees a key before those that the first one sees
        lowest = base if TREE else tl.min(own, 0)
        begin = _tiles_of(split, tl.maximum(lowest - WINDOW + 1, 0) // KEYS, PARTS, RUN)
    for n in range(begin, shared):  # all rows see these keys, but for windows
        at = _tile(n, split, PARTS, RUN) * KEYS + tl.arange(0, KEYS).to(tl.int64)
        place = at[:, None] * D + wide[None, :]
        near = at[None, :] > own[:, None] - WINDOW if WINDOW > 0 else None
        best, weight, sums = _add_tile(
            query, keys, values, place, inside[None, :], near, best, weight, sums, scale, PRECISION,
            CAP,
        )  # fmt: skip
    begin = tl.maximum(begin, shared)
    if TREE and EXACT:  # a position of this pass is where a row's ancestor was put
        first = block * ROWS
        count = tl.load(meta + 4)
        # Rows of a chain share its keys; else each takes its own ancestors, in turn.
        apart = real & (row < count) & (own != base + row)
        chain = tl.sum(apart.to(tl.int32), 0) == 0
        furthest = tl.max(own, 0)
        for one in range(first, tl.where(chain, first + 1, tl.minimum(first + ROWS, rows))):
            stop = tl.where(chain, furthest, tl.load(positions + one)) + 1
            for n in range(begin, _tiles_of(split, tl.cdiv(stop, KEYS), PARTS, RUN)):
                key = _tile(n, split, PARTS, RUN) * KEYS + tl.arange(0, KEYS).to(tl.int64)
                behind = tl.minimum(tl.maximum(key - base, 0), WORDS * 64 - 1)
                # Four at a time: where bytes are loaded, the compiler adds in another order.
                four = tl.load(
                    path.to(tl.pointer_type(tl.int32)) + (one * WORDS * 64 + behind) // 4
                )
                ancestor = (four >> (behind % 4 * 8).to(tl.int32)) & 255
                there = tl.where(chain | (key < base), key, base + ancestor)
                place = there[:, None] * D + wide[None, :]
                live = (key < stop)[:, None] & inside[None, :]
                sees = (chain | (row == one))[:, None] & (key[None, :] <= own[:, None])
                if WINDOW > 0:
                    sees = sees & (key[None, :] > own[:, None] - WINDOW)
                best, weight, sums = _add_tile(
                    query, keys, values, place, live, sees, best, weight, sums, scale, PRECISION,
                    CAP,
                )  # fmt: skip
    else:
        stop = base + tl.load(meta + 4) if TREE else tl.max(own, 0) + 1
        for n in range(begin, _tiles_of(split, tl.cdiv(stop, KEYS), PARTS, RUN)):
            tile = _tile(n, split, PARTS, RUN)
            key = tile * KEYS + tl.arange(0, KEYS).to(tl.int64)
            there = key < stop
            if TREE:
                first = tl.maximum(tile * KEYS - base, 0) // 64
                behind = tl.maximum(key - base, 0)
                low = tl.load(seen + row * WORDS + first, mask=real & (first < WORDS), other=0)
                high = tl.load(
                    seen + row * WORDS + first + 1, mask=real & (first + 1 < WORDS), other=0
                )
                word = tl.where((behind // 64 == first)[None, :], low[:, None], high[:, None])
                sees = (key < base)[None, :] | (((word >> (behind % 64)[None, :]) & 1) != 0)
                sees = sees & there[None, :]
            else:
                sees = key[None, :] <= own[:, None]
            if WINDOW > 0:
                spot = key  # the key's position
                if TREE:
                    new = there & (key >= base)
                    spot = tl.where(new, tl.load(positions + key - base, mask=new, other=0), key)
                sees = sees & (spot[None, :] > own[:, None] - WINDOW)
            place = key[:, None] * D + wide[None, :]
            live = there[:, None] & inside[None, :]
            best, weight, sums = _add_tile(
                query, keys, values, place, live, sees, best, weight, sums, scale, PRECISION, CAP
            )
    out = (row * HEADS + head) * PARTS + split
    if PARTS == 1:  # `mixed` is the result itself, as `_combine` would write it
        sums = sums / weight[:, None]
    else:
        tl.store(highest + out, best, mask=real)
        tl.store(total + out, weight, mask=real)
    if EXACT:  # most parts of a short context are empty
        real = real & (weight > 0)
    to = mixed + (out * D)[:, None] + wide[None, :]
    tl.store(to, sums.to(mixed.dtype.element_ty), mask=real[:, None] & inside[None, :])


@triton.jit
def _combine(
    mixed, highest, total, out, sinks,
    EXACT: tl.constexpr, HEADS: tl.constexpr, D: tl.constexpr, WIDTH: tl.constexpr,
    PARTS: tl.constexpr, SINKS: tl.constexpr = False, OVERLAP: tl.constexpr = False,
):  # fmt: skip
    """Add up the parts of one head of one row, weighed. SINKS: a further logit takes a share."""
    wait_for_inputs(OVERLAP)
    pair = tl.program_id(0).to(tl.int64) * HEADS + tl.program_id(1)
    part = tl.arange(0, PARTS)
    wide = tl.arange(0, WIDTH)
    inside = wide < D
    best = tl.load(highest + pair * PARTS + part)
    top = tl.max(best, 0)
    if SINKS:
        sink = tl.load(sinks + tl.program_id(1)) * 1.4426950408889634
        top = tl.maximum(top, sink)
    share = tl.exp2(best - top)
    whole = tl.sum(share * tl.load(total + pair * PARTS + part), 0)
    if SINKS:
        whole += tl.exp2(sink - top)
    at = ((pair * PARTS + part) * D)[:, None] + wide[None, :]
    there = inside[None, :]
    if EXACT:
        there = there & (best > float("-inf"))[:, None]
    sums = tl.load(mixed + at, mask=there, other=0.0)
    found = tl.sum(sums * share[:, None], 0) / whole
    tl.store(out + pair * D + wide, found.to(out.dtype.element_ty), mask=inside)


def attend(
    model: HeadSizes,
    n: int,
    q: Tensor,
    now: StaticPass,
    window: int = 0,
    cap: float = 0.0,
    sinks: Tensor | None = None,
    addresses: int = 0,
) -> Tensor:
    """Attend over the live part of the cache: [rows, heads * d].

    `window`: tokens that a row sees, 0 for all. `cap`: of scores, 0 for none. `sinks`: a further
    logit of each head, f32 [heads]. `addresses`: the place in `meta` of the cache's addresses.
    """
    rows, heads, d = q.shape
    group = heads // model.kv_heads
    exact = now.exact
    width = max(16, triton.next_power_of_2(d))
    keys, stages = tile_of(width, q.element_size())
    block = block_of(group if exact else rows * group, exact, q.element_size())
    warps = 4
    if not exact:
        block = min(block, max(16, PROGRAM_SUMS // width))
        if not now.tree and rows >= LONG and q.element_size() == 2 and width <= USUAL_DIMENSIONS:
            block, warps = LONG_PAIRS, 8
    blocks = triton.cdiv(rows, block // group) if exact else triton.cdiv(rows * group, block)
    programs = blocks * model.kv_heads if now.tree else 2 * blocks * model.kv_heads
    parts = EXACT_PARTS if exact else parts_of(q.device, programs)
    if sinks is not None:  # they are added where parts are
        parts = max(parts, 2)

    def empty(*shape: int) -> Tensor:
        return torch.empty(shape, dtype=torch.float32, device=q.device)

    out = torch.empty(rows, heads * d, dtype=q.dtype, device=q.device)
    mixed = highest = total = out
    if parts > 1:
        mixed = empty(rows, heads, parts, d)
        highest, total = empty(rows, heads, parts), empty(rows, heads, parts)
    scale = model.scale * LOG2_E  # the kernel's exponentials are of two
    _attend[(blocks, model.kv_heads, parts)](
        q, now.meta, now.positions, now.seen, now.path, mixed, highest, total, n, rows, scale,
        TREE=now.tree, EXACT=exact, HEADS=heads, KV=model.kv_heads, D=d, WIDTH=width,
        BLOCK=block, KEYS=keys, PARTS=parts, RUN=EXACT_RUN if exact else 1,
        WORDS=now.seen.shape[1], TYPE=TYPES[q.dtype], PRECISION="ieee",
        WINDOW=window, CAP=cap * LOG2_E, ADDRESSES=addresses, num_warps=warps, num_stages=stages,
        enable_fp_fusion=not exact,  # else a loop may round unlike another
        **overlap(),
    )  # fmt: skip
    if parts == 1:
        return out
    _combine[(rows, heads)](
        mixed, highest, total, out, highest if sinks is None else sinks, EXACT=exact, HEADS=heads,
        D=d, WIDTH=width, PARTS=parts, SINKS=sinks is not None,
        num_warps=combining_warps(parts, width), **overlap(),
    )  # fmt: skip
    return out


def tile_of(width: int, number_bytes: int) -> tuple[int, int]:
    """Choose the keys of a tile and the stages of its loop, for heads of `width` dimensions."""
    keys = max(16, min(TILE, TILE_BYTES // (width * number_bytes)))
    return keys, 2 if number_bytes == 2 and width <= USUAL_DIMENSIONS else 1


def block_of(pairs: int, exact: bool, number_bytes: int) -> int:
    """Choose how many of `pairs` of rows and query heads a program handles.

    As many as registers hold, which is fewer in f32; in exact passes, where `pairs` are those of
    one row, at least these, and as many for any number of rows.
    """
    least: int = max(16, triton.next_power_of_2(pairs))
    if exact:
        return max(least, EXACT_PAIRS if number_bytes == 2 else 16)
    return min(least, 64 if number_bytes == 2 else 16)


def combining_warps(parts: int, width: int) -> int:
    """Choose the warps that combine the parts of one head, for 64 numbers a thread."""
    return min(16, max(2, parts * width // 2048))


def parts_of(device: torch.device, programs: int) -> int:
    """Choose the parts to cut the cache in, so that the card's processors all have some."""
    count = 8
    if device.type == "cuda":
        count = torch.cuda.get_device_properties(device).multi_processor_count
    most: int = triton.next_power_of_2(triton.cdiv(count, programs))
    return min(MOST_PARTS, most)
