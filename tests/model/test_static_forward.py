"""Forward passes of static shape, on a CPU without CUDA graphs: results do not depend on the bucket
a pass is padded to, and the padding affects nothing."""

from __future__ import annotations

import itertools
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from engine.config import USUAL_BUDGET, WIDE_BUDGET, Config
from engine.drafting import DraftContext, NullDrafter, chain
from engine.drafting._drafting import Recycling
from engine.generate import Generation, generate
from engine.model.torch.cuda.cuda_graphs import CAPTURE_AFTER_USES, CudaGraphs
from engine.model.torch.cuda.prompt_inputs import MOST_PADDED, READ_ROWS, PromptInputs
from engine.model.torch.cuda.static_pass import (
    BUCKETS,
    MAX_ROWS,
    TOP,
    USUAL_ROWS,
    PassOutput,
    StaticPass,
)
from engine.model.torch.cuda.torch_ops import top
from engine.model.torch.loading import _usual_budget
from engine.model.torch.ops import Rows
from engine.model.torch.torch_target import TorchTarget
from engine.prompts.builder import Prompt
from engine.prompts.tokenizer import Tokenizer
from engine.records import Draft, Request
from engine.sampling.batched import signed
from engine.sampling.verify import choose
from research.methods.sdsat import install_embeddings
from tests.model import test_target
from tests.model.test_target import load, path_to, some_tokens, some_tree
from tests.support.drafters import drafters, trying
from tests.support.law import SAMPLED, answer, plain, run

LLAMAS = ("llama", "qwen2", "qwen3")
DTYPES = ("f32", "bf16")
SIZES = sorted({size for most in BUCKETS for size in (most // 2, most - 1)})  # of drafts


def static(folder: Path, dtype: str = "f32", threads: int = 2, **options: Any) -> TorchTarget:
    """With the widest passes, unless `budget` is one of the options."""
    options = {"budget": MAX_ROWS - 1, **options}
    target = load(folder, dtype, threads, graphs="static", **options)
    assert target.static is not None
    return target


def begin(target: TorchTarget, prompt: list[int], capacity: int = MAX_ROWS) -> int:
    """Begin and prefill a prompt; returns how many of its tokens were cached."""
    return test_target.begin(target, prompt, capacity)


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", LLAMAS)
def test_rows_equal_the_dynamic_path(tiny: Any, kind: str, dtype: str, exact: bool) -> None:
    """Bit for bit, in every bucket, full and padded."""
    ours, theirs = static(tiny(kind), dtype, exact=exact), load(tiny(kind), dtype)
    prompt = some_tokens(150, ours.vocab)
    for target in (ours, theirs):
        begin(target, prompt)
    for size in SIZES:
        draft = some_tree(size, ours.vocab, size)
        mine, other = (one.forward(prompt[-1], draft, hidden=True) for one in (ours, theirs))
        assert torch.equal(mine.logits, other.logits), size
        assert torch.equal(mine.hidden, other.hidden), size
        assert mine.logits.dtype == torch.float32


def test_a_row_has_the_same_bits_in_every_bucket(tiny: Any) -> None:
    target = static(tiny("qwen2"), "bf16", exact=True)
    prompt = some_tokens(90, target.vocab)
    begin(target, prompt)
    tree = some_tree(MAX_ROWS - 1, target.vocab)
    whole = target.forward(prompt[-1], tree).logits
    for size in range(MAX_ROWS):
        assert torch.equal(target.forward(prompt[-1], tree.first(size)).logits, whole[: size + 1])


@pytest.mark.parametrize(("kind", "sampled"), [("llama", False), ("qwen2", True)])
def test_no_drafter_changes_the_answer(tiny: Any, kind: str, sampled: bool) -> None:
    target, usual = (make(tiny(kind), threads=1) for make in (static, load))
    tokenizer = Tokenizer(tiny(kind))
    tokenizer.eos = frozenset()
    options: dict[str, Any] = {"seed": 3, **(SAMPLED if sampled else {})}
    prompt = Prompt(some_tokens(30, target.vocab), max_tokens=40)
    expected, truth = plain(target, tokenizer, prompt, **options)
    assert answer(run(usual, tokenizer, prompt, NullDrafter(), **options)[1]) == answer(expected)
    prompt.predictions = [truth[3:30]]
    for name, drafter in drafters(truth, target.vocab).items():
        _, done = run(target, tokenizer, prompt, drafter, **options)
        assert answer(done) == answer(expected), name


def test_a_pass_does_not_depend_on_the_widest_one(tiny: Any) -> None:
    """Drafts of up to 63 nodes get the same bits from a model that takes 255."""
    wide, usual = static(tiny("qwen3")), static(tiny("qwen3"), budget=48)
    prompt = some_tokens(90, wide.vocab)
    for target in (wide, usual):
        begin(target, prompt)
    assert (wide.capacity(), usual.capacity()) == (MAX_ROWS - 1, USUAL_ROWS - 1)
    for size in (0, 7, 40, USUAL_ROWS - 1):
        draft = some_tree(size, wide.vocab, size)
        rows = [target.forward(prompt[-1], draft).logits for target in (wide, usual)]
        assert torch.equal(*rows), size


def test_a_large_draft_is_verified_as_a_whole(tiny: Any) -> None:
    """Of a budget above 63 nodes, no node is left out."""
    target, tokenizer = static(tiny("llama"), threads=1), Tokenizer(tiny("llama"))
    tokenizer.eos = frozenset()
    prompt = Prompt(some_tokens(30, target.vocab), max_tokens=300)
    expected, truth = plain(target, tokenizer, prompt)
    steps, done = run(target, tokenizer, prompt, Whole(truth))
    assert answer(done) == answer(expected)
    assert max(step.drafted for step in steps) == MAX_ROWS - 1
    assert len([step for step in steps if step.drafted]) == 2


class Whole(NullDrafter):
    """Drafts all of the answer that is left, and fits."""

    def __init__(self, truth: list[int]) -> None:
        self.truth = truth

    def propose(self, context: DraftContext, target: Any) -> Draft:
        done = len(context.output)
        return chain(self.truth[done : done + context.capacity], "test")


def test_drafts_are_wide_where_many_rows_cost_little(tiny: Any) -> None:
    """That is where a card streams weights of two bytes for all rows at once."""
    model, other = load(tiny("llama")).model, object()
    one, two = [torch.device("cuda")], [torch.device("cuda", n) for n in range(2)]
    off = Config(graphs="off")
    assert _usual_budget(model, "bf16", False, Config(), one) == WIDE_BUDGET
    for kind, dtype, exact, config, places in (
        (other, "bf16", False, Config(), one), (model, "f32", False, Config(), one),
        (model, "int4", False, Config(), one), (model, "bf16", True, Config(), one),
        (model, "bf16", False, off, one), (model, "bf16", False, Config(), two),
        (model, "bf16", False, Config(), [torch.device("cpu")]),
    ):  # fmt: skip
        assert _usual_budget(kind, dtype, exact, config, places) == USUAL_BUDGET
    assert load(tiny("llama")).budget == USUAL_BUDGET
    assert load(tiny("llama"), budget=9).budget == 9


def test_a_budget_that_no_pass_takes_is_refused(tiny: Any) -> None:
    with pytest.raises(ValueError, match=r"a budget of 256 nodes: .* choose 255 or less"):
        static(tiny("llama"), budget=MAX_ROWS)
    assert static(tiny("llama"), budget=USUAL_ROWS).max_rows == 2 * USUAL_ROWS
    assert load(tiny("llama"), budget=1000).static is None


def test_padding_affects_nothing(tiny: Any) -> None:
    """Cache rows before and behind the real ones do not change."""
    target = static(tiny("llama"))
    prompt = some_tokens(40, target.vocab)
    for size in SIZES:
        target.pool.sequences.clear()
        begin(target, prompt)
        target.catch_up()
        (cache,) = target.sequence.cache
        base, stop = len(prompt) - 1, len(prompt) + size
        cache[..., base:, :] = float("nan")
        before = cache.clone()
        draft = some_tree(size, target.vocab)
        scores = target.forward(prompt[-1], draft)
        assert scores.logits.isfinite().all()
        assert len(scores.logits) == size + 1
        assert torch.equal(cache[..., :base, :], before[..., :base, :])
        assert cache[..., base:stop, :].isfinite().all()
        assert cache[..., stop:, :].isnan().all()
        assert scores.chosen is not None
        assert len(scores.chosen(Request("chat"), len(prompt))) == size + 1


def test_the_last_rows_of_a_cache_can_be_used(tiny: Any) -> None:
    """Padding may reach beyond the cache; real rows may not."""
    target = static(tiny("llama"))
    prompt = some_tokens(200, target.vocab)
    begin(target, prompt, capacity=40)
    capacity = target.sequence.capacity - len(prompt)
    assert 40 <= capacity < MAX_ROWS - 1
    assert len(target.forward(prompt[-1], some_tree(capacity, target.vocab)).logits) == capacity + 1
    with pytest.raises(ValueError, match="rows"):
        target.forward(prompt[-1], some_tree(capacity + 1, target.vocab))
    assert target.capacity() == capacity


def test_the_likeliest_tokens_of_every_row(tiny: Any) -> None:
    """For any width, and of the logits' current values."""
    target = static(tiny("llama"))
    prompt = some_tokens(40, target.vocab)
    begin(target, prompt)
    for size, width in ((0, 8), (5, 8), (40, 8), (12, 3), (63, 3), (7, 1), (200, 8)):
        scores = target.forward(prompt[-1], some_tree(size, target.vocab, size))
        with torch.inference_mode():
            scores.logits[-1, 7] = 50.0
        assert scores.chosen is not None
        assert scores.likely is not None
        assert len(scores.chosen(Request("chat"), len(prompt))) == size + 1
        words, values = scores.likely(width)
        expected = scores.logits.topk(width)
        assert words.tolist() == expected.indices.tolist()
        assert values.tolist() == expected.values.tolist()
        table = Recycling(target.vocab, width)
        table.put(np.arange(size + 1, dtype=np.int32), words, values)
        assert table.table[: size + 1].tolist() == words.tolist()


@pytest.mark.parametrize("sampled", [False, True])
def test_every_pass_gives_the_likeliest_tokens(tiny: Any, sampled: bool) -> None:
    """The same as of its logits; they come with the choices, or alone."""
    target = static(tiny("llama"), "bf16")
    prompt = some_tokens(40, target.vocab)
    begin(target, prompt)
    request = Request("chat", **(SAMPLED if sampled else {}))
    for size in (0, 6, 200):
        for width in (TOP, 3):
            scores = target.forward(prompt[-1], some_tree(size, target.vocab, size))
            assert scores.chosen is not None
            assert scores.likely is not None
            if width == TOP:
                chosen = scores.chosen(request, len(prompt))
            words, values = scores.likely(width)
            assert scores.rows == size + 1 and not scores.has_logits
            logits = scores.logits
            assert torch.equal(torch.tensor(values), logits.topk(width).values)
            assert torch.equal(logits.gather(1, torch.tensor(words).long()), torch.tensor(values))
            expected = [choose(row, len(prompt) + n, request) for n, row in enumerate(logits[:1])]
            assert chosen[:1] == expected


def check_kept_paths(ours: TorchTarget, theirs: TorchTarget, tolerance: float = 0.0) -> None:
    """Two targets have the same cached rows and states after the same paths of the same trees."""
    text = some_tokens(60, ours.vocab)
    for target in (ours, theirs):
        target.keeps_states = True
        begin(target, text)
    for seed, size in enumerate((0, 1, 5, 20, 63, 40, 200)):
        draft = some_tree(size, ours.vocab, seed)
        chance = random.Random(seed)
        path = path_to(draft, chance.randrange(size)) if size else []
        for target in (ours, theirs):
            target.forward(text[-1], draft)
            target.keep(path)
        text += [draft.tokens[node] for node in path] + [5]
        assert ours.tokens == theirs.tokens == text[:-1]
        count = len(ours.tokens)
        one, other = ours.sequence, theirs.sequence
        assert one.states is not None
        assert other.states is not None
        for mine, its in (
            (one.cache[0][..., :count, :], other.cache[0][..., :count, :]),
            (one.states[:count], other.states[:count]),
        ):
            torch.testing.assert_close(mine, its, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("kind", LLAMAS)
def test_kept_paths_equal_those_of_the_dynamic_path(tiny: Any, kind: str) -> None:
    """Bit for bit."""
    check_kept_paths(static(tiny(kind), "bf16"), load(tiny(kind), "bf16"))


def test_tokens_that_need_the_whole_vocabulary_are_drawn_again(tiny: Any) -> None:
    """Where the likeliest candidates of a row are not enough: rows of equal logits."""
    target = static(tiny("llama"))
    passes = target.static
    assert passes is not None
    prompt = some_tokens(40, target.vocab)
    begin(target, prompt)
    target.catch_up()
    siblings = Draft([5, 6], [-1, -1], [0.5, 0.5], ["test", "test"])
    rows = torch.randn(4, 3000, generator=torch.Generator().manual_seed(0))  # the last is padding
    rows[1] = 0.5
    said = PassOutput(torch.empty(4, 1), rows, top(rows))
    for options in ({"top_p": 0.9}, {"top_k": 7}, {"top_k": 7, "top_p": 0.5}, {}):
        request = Request("chat", temperature=0.7, seed=3, **options)  # type: ignore[arg-type]
        expected = [
            choose(row, place, request) for row, place in zip(rows[:3], (9, 10, 10), strict=True)
        ]
        target.forward(prompt[-1], siblings)
        assert passes.choices(said, 3, request, 9) == expected


@pytest.mark.parametrize("cached", [0, 70])
@pytest.mark.parametrize("size", [0, 20, 255])
def test_the_last_tokens_of_a_prompt_share_a_pass_with_the_draft(
    tiny: Any, size: int, cached: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With equal results, and unless they are too many together."""
    ours, theirs = static(tiny("qwen2"), "bf16"), load(tiny("qwen2"), "bf16")
    passes = ours.static
    assert passes is not None
    reads, read = [], passes.read

    def recorded(tokens: list[int], *rest: Any) -> Any:
        reads.append(tokens)
        return read(tokens, *rest)

    monkeypatch.setattr(passes, "read", recorded)
    for more in (1, 2, 40, 200):
        prompt, tree = some_tokens(cached + more, ours.vocab), some_tree(size, ours.vocab)
        for target in (ours, theirs):
            target.keeps_states = True
            target.pool.sequences.clear()
            if cached:
                begin(target, prompt[: cached + 1])
                target.forward(prompt[cached], Draft())
            begin(target, prompt)
        reads.clear()
        mine, other = (one.forward(prompt[-1], tree, hidden=True) for one in (ours, theirs))
        assert len(reads) == (more + size > MAX_ROWS)
        assert torch.equal(mine.logits, other.logits)
        assert torch.equal(mine.hidden, other.hidden)
        assert mine.chosen is not None and mine.likely is not None
        for request in (Request("chat"), Request("chat", **SAMPLED)):
            expected = [choose(mine.logits[0], len(prompt), request)]
            assert mine.chosen(request, len(prompt))[:1] == expected
        assert torch.equal(torch.tensor(mine.likely(3)[1]), other.logits.topk(3).values)
        path = path_to(tree, size - 1) if size else []
        for target in (ours, theirs):
            target.keep(path)
        assert ours.tokens == theirs.tokens and not ours.unread
        count = len(ours.tokens)
        assert torch.equal(
            ours.sequence.cache[0][..., :count, :], theirs.sequence.cache[0][..., :count, :]
        )
        assert ours.sequence.states is not None and theirs.sequence.states is not None
        assert torch.equal(ours.sequence.states[:count], theirs.sequence.states[:count])


def test_padding_of_prompts_affects_nothing(tiny: Any) -> None:
    """The hidden states of chunks of any length are those of the dynamic path, and what the cache
    has behind them stays."""
    ours, theirs = static(tiny("qwen3"), "bf16"), load(tiny("qwen3"), "bf16")
    for length, chunk in ((2, 512), (65, 512), (300, 256), (400, 512), (500, 1024)):
        prompt = some_tokens(length, ours.vocab, length)
        states: list[list[Any]] = [[], []]
        for target, found in zip((ours, theirs), states, strict=True):
            target.chunk = chunk
            target.begin(prompt, 8)
            (cache,) = target.sequence.cache
            cache[..., length - 1 :, :] = float("nan")
            for _ in target.prefill(prompt, 8, lambda _, some, found=found: found.append(some)):
                pass
            assert cache[..., length - 1 :, :].isnan().all()
        assert torch.equal(torch.cat(states[0]), torch.cat(states[1]))
        assert ours.tokens == prompt[:-1]


@pytest.mark.parametrize("exact", [False, True])
def test_chunks_of_a_prompt(exact: bool) -> None:
    """Few passes read it, and only narrow ones have much padding."""
    inputs = PromptInputs(torch.device("cpu"), exact)
    widest = inputs.sizes[-1]
    assert widest == (MAX_ROWS if exact else READ_ROWS[-1])
    for count in range(1, 2 * widest + 100):
        left, passes = count, 0
        while left > 0:
            chunk = inputs.chunk_of(left)
            assert chunk in inputs.sizes
            assert chunk <= left or chunk <= MOST_PADDED
            assert chunk < 2 * left or chunk == READ_ROWS[0]
            left, passes = left - chunk, passes + 1
        assert passes <= count // widest + 2


def test_interleaved_requests_with_growing_caches(tiny: Any) -> None:
    """Each pass reads the cache of its own sequence."""
    folder = tiny("llama")
    tokenizer = Tokenizer(folder)
    tokenizer.eos = frozenset()
    long, short = (Prompt(some_tokens(n, 200, n), max_tokens=20) for n in (200, 150))
    target = static(folder, threads=1)
    expected, urgent = (run(target, tokenizer, one, NullDrafter())[1] for one in (long, short))
    for place in range(0, 24, 5):
        running = generate(
            Generation(Request("complete"), long, tokenizer, target.context), target, NullDrafter()
        )
        events: list[Any] = list(itertools.islice(running, place))
        assert answer(run(target, tokenizer, short, NullDrafter())[1]) == answer(urgent)
        events += running
        assert answer(events[-1]) == answer(expected)


def test_token_ids_outside_the_vocabulary_are_refused(tiny: Any) -> None:
    """On a GPU they would end the process."""
    target = static(tiny("llama"))
    prompt = some_tokens(20, target.vocab)
    begin(target, prompt)
    expected = target.forward(prompt[-1], Draft()).logits
    for token in (-1, target.vocab, 10**6):
        draft = Draft()
        draft.add(token, -1, 1.0, "test")
        with pytest.raises(IndexError, match="tokens 0 to"):
            target.forward(prompt[-1], draft)
    assert torch.equal(target.forward(prompt[-1], Draft()).logits, expected)


def test_installed_embeddings_are_used(tiny: Any) -> None:
    """SDSAT's adaptive tokens."""
    ours, theirs = static(tiny("llama")), load(tiny("llama"))
    prompt = some_tokens(20, ours.vocab)
    rows = torch.randn(3, ours.model.width, generator=torch.Generator().manual_seed(1))
    logits = []
    for target in (ours, theirs):
        begin(target, prompt)
        ids = install_embeddings(target, rows)
        logits.append(target.forward(prompt[-1], chain(ids, "test")).logits)
    assert torch.equal(*logits)


@pytest.mark.parametrize("seed", range(8))
def test_visibility_bits_equal_the_mask(seed: int) -> None:
    """Of a tree and of a chain."""
    chance = random.Random(seed)
    base, size = chance.choice([0, 1, 70]), (0, 3, 63, 64, 100, 127, 128, 255)[seed]
    tree = some_tree(size, 100, seed)
    parents = [-1, *(parent + 1 for parent in tree.parents)]
    cpu = torch.device("cpu")
    rows = Rows.of(base, parents, cpu)
    bits: list[int] = []
    for row, parent in enumerate(parents):
        bits.append((bits[parent] if parent >= 0 else 0) | 1 << row)
    words = [[signed(bit >> 64 * word) for word in range(MAX_ROWS // 64)] for bit in bits]
    seen = torch.tensor(words)
    nothing = torch.empty(0)
    now = StaticPass(
        base, len(parents), rows.parents, (), nothing, rows.positions, seen, nothing,
        True, False,
    )  # fmt: skip
    assert torch.equal(now.mask(cpu), rows.mask(cpu))
    chain = [-1, *range(size)]
    rows = Rows.of(base, chain, cpu)
    now = StaticPass(
        base, size + 1, rows.parents, (), nothing, rows.positions, seen, nothing,
        False, False,
    )  # fmt: skip
    assert torch.equal(now.mask(cpu), rows.mask(cpu))


class Full:
    """A linear layer on a GPU with memory for `rows` rows only."""

    def __init__(self, inner: Any, rows: int) -> None:
        self.inner, self.rows, self.refused = inner, rows, 0

    def __call__(self, x: Any) -> Any:
        if len(x) > self.rows:
            self.refused += 1
            raise torch.OutOfMemoryError("CUDA out of memory")
        return self.inner(x)


def test_drafts_shrink_when_memory_is_full(tiny: Any, caplog: pytest.LogCaptureFixture) -> None:
    target = static(tiny("llama"), threads=1)
    tokenizer = Tokenizer(tiny("llama"))
    tokenizer.eos = frozenset()
    prompt = Prompt(some_tokens(30, target.vocab), max_tokens=30)
    expected, truth = plain(target, tokenizer, prompt)
    few = {name: trying(truth, target.vocab)[name] for name in ("long", "trees", "next token")}
    down = Full(target.model.blocks[1].mlp.down, 100)
    target.model.blocks[1].mlp.down = down
    for rows in (100, 8, 2, 1):
        target.max_rows, down.rows = USUAL_ROWS, rows
        target._warned, down.refused = False, 0
        caplog.clear()
        target.pool.sequences[:-1] = []
        for name, drafter in few.items():
            _, done = run(target, tokenizer, Prompt(prompt.ids, max_tokens=30), drafter)
            assert answer(done) == answer(expected), (name, rows)
        assert bool(down.refused) == (rows < USUAL_ROWS)
        assert target.max_rows <= max(rows, 1) or rows == 100
        assert len([one for one in caplog.records if "memory is full" in one.message]) == (
            1 if down.refused else 0
        )
    down.rows = 0
    with pytest.raises(RuntimeError, match="memory is full"):
        target.forward(5, Draft())


def test_prompts_are_read_in_smaller_chunks_when_memory_is_full(tiny: Any) -> None:
    target, usual = static(tiny("llama"), budget=48), load(tiny("llama"))
    down = Full(target.model.blocks[0].mlp.down, 70)
    target.model.blocks[0].mlp.down = down
    prompt = some_tokens(300, target.vocab)
    for one in (target, usual):
        begin(one, prompt)
    assert down.refused
    rows = [one.forward(prompt[-1], Draft()).logits for one in (target, usual)]
    assert torch.equal(*rows)
    assert target.tokens == prompt[:-1]


@pytest.mark.skipif(torch.cuda.is_available(), reason="graphs can be captured here")
def test_passes_run_without_graphs_if_kernels_cannot_be_compiled(
    tiny: Any, caplog: pytest.LogCaptureFixture
) -> None:
    target, usual = static(tiny("llama")), load(tiny("llama"))
    assert target.static is not None
    target.static.graphs = CudaGraphs(target.static)  # without a card
    assert list(target.warm())[-1] == (0, len(BUCKETS) + len(READ_ROWS))
    assert not target.static.ready
    assert len([one for one in caplog.records if "cannot be used" in one.message]) == 1
    prompt = some_tokens(30, target.vocab)
    for one in (target, usual):
        begin(one, prompt)
    for _ in range(CAPTURE_AFTER_USES + 2):
        rows = [one.forward(prompt[-1], Draft()).logits for one in (target, usual)]
        assert torch.equal(*rows)


def test_an_unknown_graphs_setting_is_refused(tiny: Any) -> None:
    with pytest.raises(ValueError, match="graphs 'on': choose auto, off or static"):
        load(tiny("llama"), graphs="on")
    assert load(tiny("llama")).static is None
    assert load(tiny("llama"), exact=True).exact
