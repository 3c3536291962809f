"""Drawing the tokens of a pass's rows on a CUDA card, in two or three kernels (Triton).

`engine.sampling.batched` in plain torch says what is meant; tokens are the same, or UNSURE. A
token's score is its log-weight and keyed noise; the highest that top-k and top-p leave is drawn.

Neither sorts the vocabulary. Only scores that may be the highest are computed: 1 - u bounds the
noise -log(-log(u)) from above, and costs no f64. With top-p, each part of a row gives the token of
its highest score, then that of the highest among those likelier than it, and so on; the first of
them with little enough mass before it is drawn. With top-k, groups of logits tell a limit that
the k likeliest reach, and few others.
"""

from __future__ import annotations

import struct

import torch
import triton
import triton.language as tl
from torch import Tensor

from engine.model.torch.cuda.static_pass import TOP
from engine.records import Request
from engine.sampling import batched, verify
from engine.sampling.batched import signed
from engine.sampling.verify import CANDIDATES, mix

LOGITS = 2048  # logits at a time
STEPS = 6  # tokens of a part or a row that top-p may drop, one after another
GROUP = 64  # logits of which the largest is kept, to find the limit of the k likeliest
LIKELY = 2 * CANDIDATES  # tokens of a row that reach the limit, at most
TILE = 4096  # logits at a time, of groups that reach the limit

# a request for each variant of the kernels
KINDS = tuple(
    Request("complete", temperature=1, top_k=top_k, top_p=top_p)
    for top_k in (0, 1)
    for top_p in (1.0, 0.5)
)

MIX1, MIX2 = tl.constexpr(verify.MIX1), tl.constexpr(verify.MIX2)
GOLDEN = tl.constexpr(verify.GOLDEN)
NEGLIGIBLE = tl.constexpr(verify.NEGLIGIBLE)
UNSURE = tl.constexpr(batched.UNSURE)
NO_TOKEN = tl.constexpr((1 << 31) - 1)  # above every id
LOG2_E = tl.constexpr(1.4426950408889634)
# the 32 bits and the 127 of an exponent that bounds leave out, and more than rounding takes
SLACK = tl.constexpr((32 + 127) / 1.4426950408889634 + 1e-3)


@triton.jit
def _mixed(x):
    x = (x ^ (x >> 30)) * MIX1
    x = (x ^ (x >> 27)) * MIX2
    return x ^ (x >> 31)


@triton.jit
def _hashed(ids, place, key):
    """Hash token ids at one position: 64 random bits each."""
    row = _mixed(place.to(tl.uint64) * GOLDEN + key.to(tl.int64).to(tl.uint64))
    return _mixed(ids.to(tl.uint64) * GOLDEN + row)


@triton.jit
def _noise(hashed):
    uniform = ((hashed >> 11).to(tl.float64) + 0.5) * 1.1102230246251565e-16  # 2^-53
    return -tl.log(-tl.log(uniform))


@triton.jit
def _masses(weight):
    """Round exp(weight) * 2^40: 2^52 more is a number whose bits end with the integer."""
    raised = tl.exp(weight.to(tl.float64)) * 1099511627776.0 + 4503599627370496.0
    return raised.to(tl.int64, bitcast=True) - 0x4330000000000000


@triton.jit
def _peak(top, rows, row, n, temperature, TOP: tl.constexpr):
    """Read the n-th largest logit of a row, over the temperature."""
    bits = tl.load(top + rows * (1 + TOP) + row * TOP + n)
    return tl.div_rn(bits.to(tl.float32, bitcast=True), temperature)


@triton.jit
def _scaled(logits, at, N, temperature):
    value = tl.load(logits + at, mask=at < N, other=float("-inf")).to(tl.float32)
    return tl.div_rn(value, temperature)


@triton.jit(do_not_specialize=["rows", "shift", "key", "temperature"])
def _score_parts(
    logits, top, positions, scores, weights, ids, counts, N, rows, shift, key, temperature,
    BLOCK: tl.constexpr, STEPS: tl.constexpr, PARTS: tl.constexpr, TOP: tl.constexpr,
):  # fmt: skip
    """Find the token of the highest score in BLOCK logits of a row.

    Then the highest of those likelier than it, and so on: STEPS at most, as long as their scores
    are above that of the row's likeliest token.
    """
    row, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    peak = _peak(top, rows, row, 0, temperature, TOP)
    likeliest = tl.load(top + rows + row * TOP)
    place = tl.load(positions + row) + shift
    at = part * BLOCK + tl.arange(0, BLOCK)
    scaled = _scaled(logits + row * N, at, N, temperature)
    weight = scaled - peak
    rest = ((_hashed(at, place, key) >> 32) ^ 0xFFFFFFFF).to(tl.uint32).to(tl.float32)
    # An exponent and its mantissa are the base-2 logarithm, or less.
    rarity = rest.to(tl.int32, bitcast=True).to(tl.float32) * 1.1920928955078125e-07  # 2^-23
    bound = tl.where(scaled >= peak - NEGLIGIBLE, weight * LOG2_E - rarity, float("-inf"))
    least = _noise(_hashed(likeliest, place, key))
    to = (row * PARTS + part) * STEPS
    count = 0
    looking = True
    while looking:
        score, found, its = least, likeliest, 0.0
        left = bound
        most = tl.max(left, 0)
        while (most / LOG2_E + SLACK).to(tl.float64) >= score:
            token = tl.min(tl.where(left == most, at, NO_TOKEN), 0)
            here = tl.div_rn(tl.load(logits + row * N + token).to(tl.float32), temperature) - peak
            exact = here.to(tl.float64) + _noise(_hashed(token, place, key))
            if (exact > score) | ((exact == score) & (token < found)):
                score, found, its = exact, token, here
            left = tl.where(at == token, float("-inf"), left)
            most = tl.max(left, 0)
        looking = found != likeliest
        if looking:
            tl.store(scores + to + count, score)
            tl.store(weights + to + count, its)
            tl.store(ids + to + count, found)
            count += 1
            looking = count < STEPS
        likelier = (weight > its) | ((weight == its) & (at < found))
        bound = tl.where(likelier, bound, float("-inf"))
    tl.store(counts + row * PARTS + part, count)


@triton.jit
def _best_of(score, weight, token, live, likeliest):
    """Return the token of the highest live score, and its weight; the likeliest without any."""
    best = tl.max(tl.where(live, score, float("-inf")), 0)
    found = tl.min(tl.where(live & (score == best), token, NO_TOKEN), 0)
    its = tl.max(tl.where(live & (token == found), weight, float("-inf")), 0)
    none = found == NO_TOKEN
    return tl.where(none, likeliest, found), tl.where(none, 0.0, its)


@triton.jit
def _entries(scores, weights, ids, counts, row, slot, STEPS: tl.constexpr, PARTS: tl.constexpr):
    """Load what the parts of a row gave: which entries they filled, scores, weights and tokens."""
    real = slot < PARTS * STEPS
    live = slot % STEPS < tl.load(counts + row * PARTS + slot // STEPS, mask=real, other=0)
    at = row * PARTS * STEPS + slot
    score = tl.load(scores + at, mask=live, other=float("-inf"))
    weight = tl.load(weights + at, mask=live, other=0.0)
    return live, score, weight, tl.load(ids + at, mask=live, other=0)


@triton.jit(do_not_specialize=["rows", "temperature"])
def _mass_parts(
    logits, top, scores, weights, ids, counts, masses, N, rows, temperature,
    BLOCK: tl.constexpr, ENTRIES: tl.constexpr, STEPS: tl.constexpr, PARTS: tl.constexpr,
    TOP: tl.constexpr,
):  # fmt: skip
    """Add up the mass of BLOCK logits of a row before each token that may be drawn, and all."""
    row, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    peak = _peak(top, rows, row, 0, temperature, TOP)
    likeliest = tl.load(top + rows + row * TOP)
    slot = tl.arange(0, ENTRIES)
    live, score, weight, token = _entries(scores, weights, ids, counts, row, slot, STEPS, PARTS)
    found, its = _best_of(score, weight, token, live, likeliest)
    alone = _peak(top, rows, row, 1, temperature, TOP) - peak < 0
    if (found != likeliest) | (not alone):
        at = part * BLOCK + tl.arange(0, BLOCK)
        scaled = _scaled(logits + row * N, at, N, temperature)
        other = scaled - peak
        mass = tl.where(scaled >= peak - NEGLIGIBLE, _masses(other), 0)
        to = masses + (row * PARTS + part) * (STEPS + 1)
        tl.store(to + STEPS, tl.sum(mass, 0))
        n = 0
        while n < STEPS:
            before = (other > its) | ((other == its) & (at < found))
            tl.store(to + n, tl.sum(tl.where(before, mass, 0), 0))
            n = tl.where(found == likeliest, STEPS, n + 1)
            live = live & ((weight > its) | ((weight == its) & (token < found)))
            found, its = _best_of(score, weight, token, live, likeliest)


@triton.jit(do_not_specialize=["rows", "temperature", "share"])
def _choose(
    top, scores, weights, ids, counts, masses, chosen, rows, temperature, share,
    ENTRIES: tl.constexpr, STEPS: tl.constexpr, PARTS: tl.constexpr, BLOCK: tl.constexpr,
    TOP: tl.constexpr, NUCLEUS: tl.constexpr,
):  # fmt: skip
    """Draw the token of a row from those of its parts. `share`: the bits of top-p."""
    row = tl.program_id(0).to(tl.int64)
    peak = _peak(top, rows, row, 0, temperature, TOP)
    likeliest = tl.load(top + rows + row * TOP)
    slot = tl.arange(0, ENTRIES)
    live, score, weight, token = _entries(scores, weights, ids, counts, row, slot, STEPS, PARTS)
    found, its = _best_of(score, weight, token, live, likeliest)
    drawn = found
    if NUCLEUS:
        alone = _peak(top, rows, row, 1, temperature, TOP) - peak < 0
        if (found != likeliest) | (not alone):
            part = tl.arange(0, BLOCK)
            sums = masses + (row * PARTS + part) * (STEPS + 1)
            whole = tl.sum(tl.load(sums + STEPS, mask=part < PARTS, other=0), 0)
            limit = share.to(tl.float64, bitcast=True) * whole.to(tl.float64)
            last = live & (slot % STEPS == STEPS - 1)  # behind these a part may have had more
            drawn = tl.full([], UNSURE, tl.int32)
            n = 0
            while n < STEPS:
                before = tl.sum(tl.load(sums + n, mask=part < PARTS, other=0), 0)
                if before.to(tl.float64) <= limit:
                    drawn = found
                    n = STEPS
                else:
                    live = live & ((weight > its) | ((weight == its) & (token < found)))
                    unknown = tl.max((last & (not live)).to(tl.int32), 0) > 0
                    n = tl.where((found == likeliest) | unknown, STEPS, n + 1)
                    found, its = _best_of(score, weight, token, live, likeliest)
    tl.store(chosen + row, tl.where(tl.abs(peak) < float("inf"), drawn, -1).to(tl.int64))


# -- the k likeliest -------------------------------------------------------------------------------


@triton.jit
def _ordered(value):
    """Map f32 numbers to unsigned integers of the same order, all above 0."""
    bits = tl.where(value == 0.0, 0.0, value).to(tl.int32, bitcast=True)
    return (bits ^ ((bits >> 31) & 0x7FFFFFFF)).to(tl.uint32, bitcast=True) ^ 0x80000000


@triton.jit
def _largest(keys, count):
    """Return the `count`-th largest of the keys, bit by bit; 0 where there are fewer above 0."""
    found = tl.full([], 0, tl.uint32)
    for n in range(32):
        trial = found | (tl.full([], 0x80000000, tl.uint32) >> n)
        found = tl.where(tl.sum((keys >= trial).to(tl.int32), 0) >= count, trial, found)
    return found


@triton.jit(do_not_specialize=["temperature"])
def _group_maxima(
    logits, maxima, N, temperature, BLOCK: tl.constexpr, GROUP: tl.constexpr, PARTS: tl.constexpr
):  # fmt: skip
    """Write the largest of each GROUP of BLOCK logits of a row, over the temperature."""
    row, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    group = part * (BLOCK // GROUP) + tl.arange(0, BLOCK // GROUP)
    at = group[:, None] * GROUP + tl.arange(0, GROUP)[None, :]
    value = tl.load(logits + row * N + at, mask=at < N, other=float("-inf")).to(tl.float32)
    to = maxima + row * PARTS * (BLOCK // GROUP) + group
    tl.store(to, tl.div_rn(tl.max(value, 1), temperature))


@triton.jit(do_not_specialize=["rows", "shift", "key", "temperature", "count", "share"])
def _choose_likely(
    logits, top, positions, maxima, groups, ids, values, chosen, N, rows, shift, key, temperature,
    count, share, GROUPS: tl.constexpr, GROUP: tl.constexpr, BLOCK: tl.constexpr,
    TILE: tl.constexpr, LIKELY: tl.constexpr, TOP: tl.constexpr, NUCLEUS: tl.constexpr,
):  # fmt: skip
    """Draw the token of a row from its `count` likeliest. `share`: the bits of top-p."""
    row = tl.program_id(0).to(tl.int64)
    peak = _peak(top, rows, row, 0, temperature, TOP)
    place = tl.load(positions + row) + shift
    group = tl.arange(0, BLOCK)
    highest = tl.load(maxima + row * GROUPS + group, mask=group < GROUPS, other=0.0)
    keys = tl.where(group < GROUPS, _ordered(highest), 0)
    limit = tl.maximum(_largest(keys, count), _ordered(peak - NEGLIGIBLE))
    reach = (keys >= limit).to(tl.int32)
    groups += row * GROUPS
    tl.store(groups + tl.cumsum(reach, 0) - 1, group, mask=reach > 0)
    stop = tl.sum(reach, 0) * GROUP
    tl.debug_barrier()  # so that all threads see what each has stored
    ids += row * LIKELY
    values += row * LIKELY
    kept = 0
    for start in range(0, stop, TILE):
        slot = start + tl.arange(0, TILE)
        at = tl.load(groups + slot // GROUP, mask=slot < stop, other=0) * GROUP + slot % GROUP
        scaled = _scaled(logits + row * N, at, N, temperature)
        keep = ((_ordered(scaled) >= limit) & (slot < stop) & (at < N)).to(tl.int32)
        to = kept + tl.cumsum(keep, 0) - 1
        fits = (keep > 0) & (to < LIKELY)
        tl.store(ids + to, at, mask=fits)
        tl.store(values + to, scaled, mask=fits)
        kept += tl.sum(keep, 0)
    tl.debug_barrier()
    slot = tl.arange(0, LIKELY)
    live = slot < kept
    token = tl.load(ids + slot, mask=live, other=0)
    scaled = tl.load(values + slot, mask=live, other=0.0)
    keys = tl.where(live, _ordered(scaled), 0)
    live = live & (keys >= _largest(keys, count))
    weight = scaled - peak
    score = weight.to(tl.float64) + _noise(_hashed(token, place, key))
    mass = tl.where(live, _masses(weight), 0)
    most = share.to(tl.float64, bitcast=True) * tl.sum(mass, 0).to(tl.float64)
    drawn = tl.full([], UNSURE, tl.int32)
    finite = tl.abs(peak) < float("inf")
    looking = finite & (kept <= LIKELY)
    while looking:
        found, its = _best_of(score, weight, token, live, NO_TOKEN)
        live = live & ((weight > its) | ((weight == its) & (token < found)))
        looking = False
        if NUCLEUS:
            before = tl.sum(tl.where(live, mass, 0), 0)
            looking = (before.to(tl.float64) > most) & (found != NO_TOKEN)
        drawn = tl.where(looking, drawn, found)
    tl.store(chosen + row, tl.where(finite, drawn, -1).to(tl.int64))


# -- what a pass calls -----------------------------------------------------------------------------


def draws(request: Request, vocab: int) -> bool:
    """Return whether `drawn` knows such requests: all but those with a large top-k."""
    return request.top_k < CANDIDATES or request.top_k >= vocab


def drawn(logits: Tensor, top: Tensor, positions: Tensor, shift: int, request: Request) -> Tensor:
    """Draw the token of every row of a pass, as `engine.sampling.batched.drawn` does.

    UNSURE where only that knows it; -1 where logits are not finite. `top`: the pass's own
    (`PassOutput`); a row's token is at its position and `shift`.
    """
    rows, count = logits.shape
    wide = len(top) // (1 + 2 * TOP)  # rows of the pass, padding included
    parts = triton.cdiv(count, LOGITS)
    chosen = torch.empty(rows, dtype=torch.int64, device=logits.device)
    key, temperature = signed(mix(request.seed + verify.GOLDEN)), float(request.temperature)
    (share,) = struct.unpack("<q", struct.pack("<d", request.top_p))

    def empty(dtype: torch.dtype, *shape: int) -> Tensor:
        return torch.empty(rows, *shape, dtype=dtype, device=logits.device)

    if 0 < request.top_k < count:
        size = parts * (LOGITS // GROUP)
        maxima, groups = empty(torch.float32, size), empty(torch.int32, size)
        _group_maxima[(rows, parts)](
            logits, maxima, count, temperature, BLOCK=LOGITS, GROUP=GROUP, PARTS=parts,
            num_warps=4,
        )  # fmt: skip
        ids, values = empty(torch.int32, LIKELY), empty(torch.float32, LIKELY)
        _choose_likely[(rows,)](
            logits, top, positions, maxima, groups, ids, values, chosen, count, wide, shift, key,
            temperature, request.top_k, share, GROUPS=size, GROUP=GROUP,
            BLOCK=triton.next_power_of_2(size), TILE=TILE, LIKELY=LIKELY, TOP=TOP,
            NUCLEUS=request.top_p < 1, num_warps=16,
        )  # fmt: skip
        return chosen
    nucleus = request.top_p < 1
    steps = STEPS if nucleus else 1
    entries = triton.next_power_of_2(parts * steps)
    scores, weights, ids, counts = (
        empty(torch.float64, parts, steps), empty(torch.float32, parts, steps),
        empty(torch.int32, parts, steps), empty(torch.int32, parts),
    )  # fmt: skip
    _score_parts[(rows, parts)](
        logits, top, positions, scores, weights, ids, counts, count, wide, shift, key,
        temperature, BLOCK=LOGITS, STEPS=steps, PARTS=parts, TOP=TOP, num_warps=4,
    )  # fmt: skip
    masses = empty(torch.int64, parts, steps + 1) if nucleus else counts
    if nucleus:
        _mass_parts[(rows, parts)](
            logits, top, scores, weights, ids, counts, masses, count, wide, temperature,
            BLOCK=LOGITS, ENTRIES=entries, STEPS=steps, PARTS=parts, TOP=TOP, num_warps=4,
        )  # fmt: skip
    _choose[(rows,)](
        top, scores, weights, ids, counts, masses, chosen, wide, temperature, share,
        ENTRIES=entries, STEPS=steps, PARTS=parts, BLOCK=triton.next_power_of_2(parts), TOP=TOP,
        NUCLEUS=nucleus, num_warps=4,
    )  # fmt: skip
    return chosen
