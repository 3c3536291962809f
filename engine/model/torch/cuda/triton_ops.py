"""The small steps of a pass on a CUDA card, each in one kernel (Triton).

Where a cache lies, how long it is and how many rows are real is read from device memory (`Pass`'s
`meta`), so one captured graph serves every sequence. With `exact`, a row's sums run over the places
of its own text, whatever rows stand next to it: a row gets the same bits in every pass. The same
functions in plain torch, which say what is meant, are in `engine.model.torch.cuda.torch_ops`; here
is nothing that they do not have. Matrix products are in `engine.model.torch.cuda.products`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl
from torch import Tensor

from engine.model.torch.cuda.launching import overlap, wait_for_inputs
from engine.model.torch.cuda.static_pass import TOP

if TYPE_CHECKING:
    from engine.model.torch.cuda.static_pass import AttentionShape, HeadSizes, StaticPass

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
LOGITS = 4096  # logits at a time
LONG = 256  # rows of a prompt for which programs are wide, as each loads all keys
LONG_PAIRS = 128  # rows and query heads of a program, in 16-bit numbers


@triton.jit
def _add_norm(
    x, delta, weight, kept, out, eps,
    ADD: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr, OVERLAP: tl.constexpr = False,
):  # fmt: skip
    wait_for_inputs(OVERLAP)
    row = tl.program_id(0).to(tl.int64) * WIDTH
    at = tl.arange(0, BLOCK)
    live = at < WIDTH
    value = tl.load(x + row + at, mask=live, other=0.0)
    if ADD:
        added = value.to(tl.float32) + tl.load(delta + row + at, mask=live, other=0.0)
        value = added.to(value.dtype)
        tl.store(kept + row + at, value, mask=live)
    wide = value.to(tl.float32)
    scale = 1.0 / tl.sqrt(tl.sum(wide * wide, 0) / WIDTH + eps)
    normed = wide * scale * tl.load(weight + at, mask=live, other=0.0)
    tl.store(out + row + at, normed.to(value.dtype), mask=live)


@triton.jit
def _gate(
    both, out, INNER: tl.constexpr, BLOCK: tl.constexpr,
    OVERLAP: tl.constexpr = False,
):  # fmt: skip
    wait_for_inputs(OVERLAP)
    row = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    live = at < INNER
    gate = tl.load(both + row * 2 * INNER + at, mask=live, other=0.0)
    up = tl.load(both + row * 2 * INNER + INNER + at, mask=live, other=0.0)
    wide = gate.to(tl.float32)
    opened = (wide / (1.0 + tl.exp(-wide))).to(gate.dtype)  # rounded where plain torch rounds
    tl.store(out + row * INNER + at, opened * up, mask=live)


@triton.jit(do_not_specialize=["layer"])
def _turn(
    qkv, phases, norms, positions, meta, q, layer, eps,
    NORM: tl.constexpr, HEADS: tl.constexpr, KV: tl.constexpr, D: tl.constexpr,
    HALF: tl.constexpr, TYPE: tl.constexpr, PAIRS: tl.constexpr, ADDRESSES: tl.constexpr,
    OVERLAP: tl.constexpr = False,
):  # fmt: skip
    """Turn one head of one row: q to its output, k, turned too, and v into the cache."""
    wait_for_inputs(OVERLAP)
    row = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    pair = tl.arange(0, HALF)
    live = pair < D // 2
    start = qkv + (row * (HEADS + 2 * KV) + head) * D + 2 * pair
    a = tl.load(start, mask=live, other=0.0).to(tl.float32)
    b = tl.load(start + 1, mask=live, other=0.0).to(tl.float32)
    if head < HEADS + KV:
        if NORM:
            scale = 1.0 / tl.sqrt((tl.sum(a * a, 0) + tl.sum(b * b, 0)) / D + eps)
            weight = norms + (head >= HEADS).to(tl.int32) * D + 2 * pair
            a = a * scale * tl.load(weight, mask=live, other=0.0)
            b = b * scale * tl.load(weight + 1, mask=live, other=0.0)
        phase = phases + tl.load(positions + row) * (2 * PAIRS) + 2 * pair
        real = tl.load(phase, mask=pair < PAIRS, other=1.0)
        imaginary = tl.load(phase + 1, mask=pair < PAIRS, other=0.0)
        turned = a * real - b * imaginary
        b = a * imaginary + b * real
        a = turned
    if head < HEADS:
        to = q + (row * HEADS + head) * D + 2 * pair
        tl.store(to, a.to(TYPE), mask=live)
        tl.store(to + 1, b.to(TYPE), mask=live)
    else:
        real_row = pair < tl.where(row < tl.load(meta + 4), D // 2, 0)
        cache = tl.load(meta + ADDRESSES + (head - HEADS) // KV).to(tl.pointer_type(TYPE))
        place = (layer.to(tl.int64) * KV + (head - HEADS) % KV) * tl.load(meta + 2)
        to = cache + (place + tl.load(meta + 3) + row) * D + 2 * pair
        tl.store(to, a.to(TYPE), mask=real_row)
        tl.store(to + 1, b.to(TYPE), mask=real_row)


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


@triton.jit
def _top_parts(
    logits, parts, N, BLOCK: tl.constexpr, TOP: tl.constexpr, PARTS: tl.constexpr,
    OVERLAP: tl.constexpr = False,
):  # fmt: skip
    """Find the TOP largest keys of BLOCK logits of a row: a logit's order above, its id below."""
    wait_for_inputs(OVERLAP)
    row, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    at = part * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(logits + row * N + at, mask=at < N, other=0.0).to(tl.float32)
    value = tl.where(value != value, float("inf"), tl.where(value == 0.0, 0.0, value))
    bits = value.to(tl.int32, bitcast=True)
    order = (bits ^ ((bits >> 31) & 0x7FFFFFFF)).to(tl.int64)
    keys = tl.where(at < N, (order << 32) | (0x7FFFFFFF - at), -0x7F80000100000000)
    for n in range(TOP):
        best = tl.max(keys, 0)
        tl.store(parts + (row * PARTS + part) * TOP + n, best)
        keys = tl.where(keys == best, -0x7F80000100000000, keys)


@triton.jit
def _top_merged(
    parts, out, rows, BLOCK: tl.constexpr, TOP: tl.constexpr, PARTS: tl.constexpr,
    OVERLAP: tl.constexpr = False,
):  # fmt: skip
    """Write the TOP largest keys of a row as tokens and bits of logits."""
    wait_for_inputs(OVERLAP)
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    keys = tl.load(
        parts + row.to(tl.int64) * PARTS * TOP + at, mask=at < PARTS * TOP,
        other=-0x7F80000100000000,
    )  # fmt: skip
    for n in range(TOP):
        best = tl.max(keys, 0)
        none = best == -0x7F80000100000000
        order = (best >> 32).to(tl.int32)
        bits = order ^ ((order >> 31) & 0x7FFFFFFF)
        token = tl.where(none, -1, 0x7FFFFFFF - (best & 0x7FFFFFFF)).to(tl.int32)
        tl.store(out + rows + row * TOP + n, token)
        tl.store(out + rows * (1 + TOP) + row * TOP + n, bits)
        if n == 0:
            finite = (bits & 0x7F800000) != 0x7F800000
            tl.store(out + row, tl.where(finite, token, -1))
        keys = tl.where(keys == best, -0x7F80000100000000, keys)


# -- what a pass calls -----------------------------------------------------------------------------


def add_norm(x: Tensor, delta: Tensor | None, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """Compute x + delta, and the same normed by root mean square: [rows, width]."""
    rows, width = x.shape
    kept, out = x if delta is None else torch.empty_like(x), torch.empty_like(x)
    block = triton.next_power_of_2(width)
    _add_norm[(rows,)](
        x, x if delta is None else delta, weight, kept, out, eps,
        ADD=delta is not None, WIDTH=width, BLOCK=block, num_warps=8 if block > 1024 else 4,
        **overlap(),
    )  # fmt: skip
    return kept, out


def gate(both: Tensor) -> Tensor:
    """Compute silu(first half) * second half of [rows, 2 * inner]."""
    rows, inner = both.shape[0], both.shape[1] // 2
    out = torch.empty(rows, inner, dtype=both.dtype, device=both.device)
    _gate[(rows, triton.cdiv(inner, 1024))](both, out, INNER=inner, BLOCK=1024, **overlap())
    return out


def rotate(
    model: AttentionShape, n: int, norms: Tensor | None, qkv: Tensor, now: StaticPass
) -> Tensor:
    """Turn q [rows, heads, d] by position, and write k and v to the cache."""
    phases, positions = model.phases, now.positions
    if not model.rotary[n]:
        phases, positions = torch.ones_like(phases[:1]), torch.zeros_like(positions)
    q = turned(model, n, norms, qkv, phases, positions, now.meta)
    if model.query_scales is not None and model.rotary[n]:
        q *= model.query_scales[now.positions, None, None]
    return q


def turned(
    heads: HeadSizes,
    n: int,
    norms: Tensor | None,
    qkv: Tensor,
    phases: Tensor,
    places: Tensor,
    meta: Tensor,
    addresses: int = 0,
) -> Tensor:
    """Turn q [rows, heads, d] and write k and v to layer `n` of the cache.

    `phases`: complex [places, pairs]; pairs of a head behind these are not turned. `places`: those
    of the rows, int64 [rows]. `addresses`: the place in `meta` of the cache's addresses.
    """
    rows, d = len(qkv), heads.head_dim
    q = torch.empty(rows, heads.heads, d, dtype=qkv.dtype, device=qkv.device)
    turns = torch.view_as_real(phases)
    _turn[(rows, heads.heads + 2 * heads.kv_heads)](
        qkv, turns, turns if norms is None else norms, places, meta, q, n, heads.eps,
        NORM=norms is not None, HEADS=heads.heads, KV=heads.kv_heads, D=d,
        HALF=triton.next_power_of_2(d // 2), TYPE=TYPES[qkv.dtype], PAIRS=phases.shape[1],
        ADDRESSES=addresses, num_warps=1, **overlap(),
    )  # fmt: skip
    return q


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


def top(logits: Tensor) -> Tensor:
    """Compute `PassOutput.top` of logits [rows, vocabulary]."""
    rows, count = logits.shape
    parts = triton.cdiv(count, LOGITS)
    keys = torch.empty(rows, parts, TOP, dtype=torch.int64, device=logits.device)
    _top_parts[(rows, parts)](
        logits, keys, count, BLOCK=LOGITS, TOP=TOP, PARTS=parts, num_warps=8, **overlap()
    )
    out = torch.empty(rows * (1 + 2 * TOP), dtype=torch.int32, device=logits.device)
    block = triton.next_power_of_2(parts * TOP)
    _top_merged[(rows,)](
        keys, out, rows, BLOCK=block, TOP=TOP, PARTS=parts, num_warps=2, **overlap()
    )
    return out


def parts_of(device: torch.device, programs: int) -> int:
    """Choose the parts to cut the cache in, so that the card's processors all have some."""
    count = 8
    if device.type == "cuda":
        count = torch.cuda.get_device_properties(device).multi_processor_count
    most: int = triton.next_power_of_2(triton.cdiv(count, programs))
    return min(MOST_PARTS, most)
