"""The Triton kernels agree with plain torch: compiled on a GPU, else in Triton's interpreter."""

from __future__ import annotations

import itertools
import random
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests.support.triton_interpreter import cases, needs_triton

needs_triton()

import triton  # noqa: E402
import triton.language as tl  # noqa: E402

from engine.config import Config  # noqa: E402
from engine.drafting import chain  # noqa: E402
from engine.model.families import read_config  # noqa: E402
from engine.model.torch import llama  # noqa: E402
from engine.model.torch.cuda import torch_ops, triton_attention, triton_ops  # noqa: E402
from engine.model.torch.cuda.products import Tiled  # noqa: E402
from engine.model.torch.cuda.static_forward import Static  # noqa: E402
from engine.model.torch.cuda.static_pass import MAX_ROWS, bucket_of  # noqa: E402
from engine.model.torch.cuda.weight_formats import FORMATS  # noqa: E402
from engine.model.torch.llama import rotations  # noqa: E402
from engine.model.torch.ops import masked_attention  # noqa: E402
from engine.model.torch.torch_target import TorchTarget  # noqa: E402
from engine.records import Draft  # noqa: E402
from tests.model.test_target import path_to, some_tree  # noqa: E402

CUDA = torch.cuda.is_available()
pytestmark = [pytest.mark.gpu] if CUDA else []
DEVICE = torch.device("cuda" if CUDA else "cpu")
CLOSE = {"rtol": 1e-4, "atol": 1e-4}
# The interpreter is slow.
SIZES, BASES = ([0, 2, 9, 40, 63], (0, 1, 150)) if CUDA else ([0, 2, 12], (0, 70))


def model_of(tiny: Any, kind: str, exact: bool = False, budget: int = 48) -> TorchTarget:
    """On a CPU only the attention is ours, so only its exactness is tested."""
    config = Config(
        device=DEVICE.type, dtype="f32", threads=2, graphs="static", exact=exact, budget=budget
    )
    target = TorchTarget(tiny(kind), config)
    assert target.static is not None
    if target.static.exact != exact:  # as on a card
        target.static = Static(target.model, exact, target.static.rows)  # type: ignore[arg-type]
    target.static.fused, target.static.ready = triton_ops, True
    return target


def cache_of(target: TorchTarget, rows: int) -> torch.Tensor:
    model = target.model
    shape = (2, model.layers, model.kv_heads, rows, model.head_dim)
    return torch.randn(shape, generator=torch.Generator().manual_seed(1)).to(DEVICE)


@pytest.fixture(autouse=True)
def inference() -> Any:
    with torch.inference_mode():
        yield


@pytest.fixture(autouse=True)
def few_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that the interpreter's short contexts take turns through them."""
    if not CUDA:
        monkeypatch.setattr(triton_attention, "EXACT_PARTS", 2)
        monkeypatch.setattr(triton_attention, "EXACT_RUN", 1)


def normal(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape))).to(DEVICE)


@pytest.mark.parametrize("width", [32, 100, 896])
@pytest.mark.parametrize("rows", [1, 3])
def test_norms(rows: int, width: int) -> None:
    x, delta, weight = normal(rows, width), normal(rows, width) * 3, normal(width)
    for added in (None, delta):
        for ours, theirs in zip(
            triton_ops.add_norm(x, added, weight, 1e-6),
            torch_ops.add_norm(x, added, weight, 1e-6),
            strict=True,
        ):
            torch.testing.assert_close(ours, theirs, **CLOSE)


@pytest.mark.parametrize("inner", [48, 1024, 1500])
def test_gates(inner: int) -> None:
    both = normal(3, 2 * inner) * 4
    torch.testing.assert_close(triton_ops.gate(both), torch_ops.gate(both), **CLOSE)


def filled(target: TorchTarget, base: int, tree: Draft, exact: bool, cache: Any) -> tuple[Any, int]:
    static = target.static
    assert static is not None
    bucket = bucket_of(1 + len(tree))
    static.send(5, tree, (cache,), base)
    static.receive()
    now = static.sent(tree, (cache,), base, bucket)
    assert now.exact == exact
    return now, bucket


KINDS = ("llama", "qwen3", "unrotated", "scaled", "yarn")
FEW = [*((kind, 2, False) for kind in KINDS), ("qwen3", 2, True)]


@pytest.mark.parametrize(
    ("kind", "size", "exact"), cases(itertools.product(KINDS, SIZES, (False, True)), FEW)
)
def test_rope_and_attention(tiny: Any, kind: str, size: int, exact: bool) -> None:
    target = model_of(tiny, kind if kind == "qwen3" else "llama", exact)
    model: Any = target.model
    model.rotary[1] = kind != "unrotated"
    if kind == "yarn":  # q and k grow by its attention factor
        rope = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}
        config = read_config(target.settings | {"rope_parameters": rope})
        model.phases = rotations(config.ropes["all"], config.positions).to(DEVICE)
        assert (model.phases.abs() > 1.1).all()
    if kind == "scaled":
        model.query_scales = torch.linspace(1, 2, model.max_positions, device=DEVICE)
    for base in BASES:
        tree = some_tree(size, target.vocab, size)
        outs, caches = [], []
        for steps in (triton_ops, torch_ops):
            cache = cache_of(target, 256)
            now, bucket = filled(target, base, tree, exact, cache)
            qkv = normal(bucket, (model.heads + 2 * model.kv_heads) * model.head_dim)
            norms = target.static._norms[1]  # type: ignore[union-attr]
            q = steps.rotate(model, 1, norms, qkv, now)
            outs.append((q, steps.attend(model, 1, q, now)[: size + 1]))
            caches.append(cache)
        for ours, theirs in zip(*outs, strict=True):
            torch.testing.assert_close(ours, theirs, **CLOSE)
        torch.testing.assert_close(*caches, **CLOSE)
        assert torch.equal(caches[0][:, 0], cache_of(target, 256)[:, 0])


WIDE = [
    (101, 64, False), (101, 64, True), (0, 64, False), (101, 150, False), (50, 150, False),
    (64, 150, False),
]  # fmt: skip
if CUDA:
    WIDE = [*itertools.product((0, 50, 64, 101), (64, 127, 255), (False, True))]


@pytest.mark.parametrize(("base", "size", "exact"), cases(WIDE, [(101, 64, False)]))
def test_attention_of_wide_trees(tiny: Any, base: int, size: int, exact: bool) -> None:
    """Words of ancestors begin anywhere in a tile of keys."""
    target = model_of(tiny, "llama", exact, MAX_ROWS - 1)
    model: Any = target.model
    tree, cache = some_tree(size, target.vocab, size + base), cache_of(target, 512)
    now, bucket = filled(target, base, tree, exact, cache)
    q = normal(bucket, model.heads, model.head_dim)
    ours, theirs = (ops.attend(model, 1, q, now)[: size + 1] for ops in (triton_ops, torch_ops))
    torch.testing.assert_close(ours, theirs, **CLOSE)


@pytest.mark.skipif(CUDA, reason="what a kernel calls is seen in the interpreter only")
@pytest.mark.parametrize("exact", [False, True])
def test_committed_keys_are_read_without_masks(
    tiny: Any, exact: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of a tree take more time than the keys."""
    inner, masked = triton_attention._add_tile.fn, []

    def add_tile(query: Any, keys: Any, values: Any, place: Any, live: Any, sees: Any,
                 *rest: Any) -> Any:  # fmt: skip
        masked.append(sees is not None)
        return inner(query, keys, values, place, live, sees, *rest)

    monkeypatch.setattr(triton_attention, "_add_tile", add_tile)
    target = model_of(tiny, "llama", exact)
    model: Any = target.model
    now, bucket = filled(target, 200, chain([5, 6], "test"), exact, cache_of(target, 256))
    triton_ops.attend(model, 1, normal(bucket, model.heads, model.head_dim), now)
    assert masked.count(False) == 200 // triton_attention.TILE * model.kv_heads
    assert masked.count(True) == model.kv_heads  # the tile where the draft begins


def test_exact_attention_is_cut_by_positions_alone(tiny: Any) -> None:
    """A row has the same bits whatever number of rows is next to it."""
    target = model_of(tiny, "llama", exact=True)
    model: Any = target.model
    cache, q = cache_of(target, 256), normal(16, model.heads, model.head_dim)
    for base in (190, 230):  # three and four tiles
        found = []
        for size in (0, 3, 12):
            now, bucket = filled(target, base, chain([5] * size, "test"), True, cache)
            found.append(triton_ops.attend(model, 1, q[:bucket], now)[0])
        assert torch.equal(found[0], found[1]) and torch.equal(found[0], found[2])


@pytest.mark.parametrize("exact", cases([False, True], [False]))
def test_prompts(tiny: Any, exact: bool) -> None:
    target = model_of(tiny, "qwen2", exact)
    static = target.static
    assert static is not None
    before, count = (30, 100) if CUDA else (3, 10)
    if not CUDA:  # the interpreter is slow at padding
        static.prompts.sizes = [8]
    tokens = [(7 * n) % target.vocab for n in range(count)]
    states = []
    for steps in (triton_ops, None):
        static.fused = steps
        cache = cache_of(target, 256)
        static.read(tokens[:before], (cache,), 0)
        states.append(static.read(tokens[before:], (cache,), before))
    torch.testing.assert_close(*states, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("base", [0, 70])
@pytest.mark.parametrize("rows", [64, 256])
def test_attention_of_prompts_in_16_bits(
    tiny: Any, rows: int, base: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Padded; in wide programs from LONG rows on, which write their results directly. In f16, as
    the interpreter has no products in bf16."""
    monkeypatch.setitem(triton_attention.TYPES, torch.float16, tl.float16)
    target = model_of(tiny, "llama")
    model: Any = target.model
    static: Any = target.static
    count, cache = rows - 5, cache_of(target, 512).half()
    static.send_prompt([0] * count, (cache,), base, rows)
    now = static.sent_prompt(count, (cache,), base, rows)
    cache[:, :, :, base + count :] = float("nan")  # nothing reads what is not written
    q = normal(rows, model.heads, model.head_dim).half()
    ours = triton_ops.attend(model, 1, q, now)[:count]
    keys, values = cache[:, 1, :, : base + count].float()
    mask = now.mask(q.device)[:count]
    theirs = masked_attention(q[:count].float(), keys, values, mask, model.scale)
    torch.testing.assert_close(ours.float(), theirs, rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    ("rows", "vocab"),
    cases([(3, 5), (2, 4096), (3, 9001), (1, 152064)], [(3, 5), (2, 4096), (3, 9001)]),
)
def test_the_likeliest_tokens(rows: int, vocab: int, dtype: torch.dtype) -> None:
    """Equal to the last bit, with ties, and with what is not finite."""
    logits = normal(rows, vocab).to(dtype)
    logits = torch.where(logits > 1, logits.round(), logits)
    assert torch.equal(triton_ops.top(logits), torch_ops.top(logits))
    logits[0, 1], logits[0, 3], logits[-1] = float("nan"), float("inf"), float("-inf")
    logits[-1, 2:4] = torch.tensor([0.0, -0.0])
    assert torch.equal(triton_ops.top(logits), torch_ops.top(logits))


@pytest.mark.parametrize("parts", [16, 128])
def test_parts_of_attention_are_combined(parts: int) -> None:
    """Some of them empty."""
    mixed, highest, total = normal(2, 3, parts, 40), normal(2, 3, parts), normal(2, 3, parts).abs()
    highest[:, :, parts // 2 :] = float("-inf")
    total[:, :, parts // 2 :] = 0
    mixed[:, :, parts // 2 :] = 0
    share = (highest - highest.amax(-1, keepdim=True)).exp2()
    expected = (mixed * share[..., None]).sum(2) / (share * total).sum(-1, keepdim=True)
    out = torch.empty(2, 120, device=DEVICE)
    triton_attention._combine[(2, 3)](
        mixed, highest, total, out, highest, EXACT=False, HEADS=3, D=40, WIDTH=64, PARTS=parts,
        num_warps=triton_attention.combining_warps(parts, 64),
    )  # fmt: skip
    torch.testing.assert_close(out, expected.flatten(1), **CLOSE)


@triton.jit
def tiles_of_parts(
    out, below, PARTS: tl.constexpr, RUN: tl.constexpr, MOST: tl.constexpr
):  # fmt: skip
    """The tiles of each part, in its order."""
    split = tl.program_id(0)
    for n in range(0, triton_attention._tiles_of(split, below, PARTS, RUN)):
        tl.store(out + split * MOST + n, triton_attention._tile(n, split, PARTS, RUN))


@pytest.mark.parametrize(("parts", "run"), [(1, 1), (4, 1), (4, 2), (2, 8)])
@pytest.mark.parametrize("below", [0, 1, 7, 8, 21])
def test_a_tile_s_part_is_decided_by_its_number(parts: int, run: int, below: int) -> None:
    out = torch.full((parts, 32), -1, dtype=torch.int32, device=DEVICE)
    tiles_of_parts[(parts,)](out, below, PARTS=parts, RUN=run, MOST=32)
    for part, found in enumerate(out.tolist()):
        expected = [tile for tile in range(below) if tile // run % parts == part]
        assert found[: len(expected)] == expected
        assert set(found[len(expected) :]) <= {-1}


def test_a_long_cache_occupies_all_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a card with 132 of them, for a model of two key heads."""
    monkeypatch.setattr(
        torch.cuda, "get_device_properties", lambda card: SimpleNamespace(multi_processor_count=132)
    )
    for programs, parts in ((2, 128), (4, 64), (64, 4), (500, 1)):
        assert triton_attention.parts_of(torch.device("cuda"), programs) == parts


def said(static: Static, last: int, draft: Draft, cache: Any, base: int) -> Any:
    return static.step(last, draft, (cache,), base).states.clone()


@pytest.mark.parametrize("narrow", cases(["", *FORMATS], [""]))
def test_exact_passes_give_nodes_the_bits_of_one_token_passes(
    tiny: Any, narrow: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a tree, ancestors are at other rows, with other branches between them. `narrow`: also with
    a card's own products in this format."""
    if narrow:  # as on a card
        made = partial(Tiled, narrow=narrow)
        monkeypatch.setattr(llama, "product", lambda weight, bias, *_: made(weight, bias))
    target = model_of(tiny, "llama", exact=True)
    static = target.static
    assert static is not None
    chance = random.Random(0)
    most = 40 if CUDA else 10
    for base in (0, 61, 130) if CUDA else (61,):
        tree = some_tree(most, target.vocab, base)
        cache = cache_of(target, 256)
        whole = said(static, 5, tree, cache, base)
        for node in chance.sample(range(most), 4 if CUDA else 2):
            path = path_to(tree, node)
            alone = cache_of(target, 256)
            for place, token in enumerate([5, *(tree.tokens[one] for one in path)]):
                row = said(static, token, Draft(), alone, base + place)
            assert torch.equal(row[0], whole[node + 1]), (base, node)
