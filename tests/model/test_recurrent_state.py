"""Sequences of a hybrid model: reuse to the token, rollback, several at once, and failures."""

from __future__ import annotations

import contextlib
import itertools
import random
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.drafting import NullDrafter
from engine.generate import Generation, generate
from engine.model.native.recurrent_state import CHECKPOINT_TOKENS, MAX_CHECKPOINTS
from engine.model.torch.torch_target import TorchTarget
from engine.prompts.builder import Prompt
from engine.prompts.tokenizer import Tokenizer
from engine.records import Draft, Request
from tests.model.test_target import begin, load, path_to, some_tokens, some_tree
from tests.support.drafters import drafters
from tests.support.law import answer, plain, run
from tests.support.native_families import native_model


@pytest.fixture(scope="module")
def hybrid(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hybrid") / "qwen3.5"
    return native_model(folder, "qwen3.5", max_position_embeddings=4096)


def next_logits(target: TorchTarget, text: list[int]) -> torch.Tensor:
    """Of the token behind `text`, whose tokens but the last are committed."""
    assert target.tokens == text[:-1]
    return target.forward(text[-1], Draft()).logits[0].clone()


def fresh_logits(folder: Path, text: list[int]) -> torch.Tensor:
    """The same by a target that has read nothing else."""
    target = load(folder, threads=1)
    begin(target, text)
    return next_logits(target, text)


def test_states_after_keep_are_those_of_a_prefill(hybrid: Path) -> None:
    target = load(hybrid, threads=2)
    text = some_tokens(140, target.vocab)
    begin(target, text, capacity=200)
    for seed in range(4):
        draft = some_tree(20, target.vocab, seed)
        target.forward(text[-1], draft)
        path = path_to(draft, 19 - seed)
        target.keep(path)
        text += [draft.tokens[node] for node in path] + [5]
    assert torch.equal(next_logits(target, text), fresh_logits(hybrid, text))


def test_a_prefix_is_reused_from_the_last_checkpoint_before_it(hybrid: Path) -> None:
    target = load(hybrid, threads=1)
    first = some_tokens(2 * CHECKPOINT_TOKENS + 300, target.vocab)
    assert begin(target, first) == 0
    assert begin(target, first) == len(first) - 1
    for shared in (CHECKPOINT_TOKENS + 200, CHECKPOINT_TOKENS - 1, len(first) - 40):
        text = [*first[:shared], 4, 4]
        cached = begin(target, text)
        assert shared - CHECKPOINT_TOKENS - target.chunk < cached <= shared
        assert torch.equal(next_logits(target, text), fresh_logits(hybrid, text))


def keep_a_chain(target: TorchTarget, last: int) -> Draft:
    """A draft of eight tokens behind `last`, all of them accepted."""
    draft = Draft()
    for node, token in enumerate(some_tokens(8, target.vocab, seed=1)):
        draft.add(token, node - 1, 1.0, "test")
    target.forward(last, draft)
    target.keep(list(range(8)))
    return draft


def test_what_was_kept_last_is_reused_to_the_token(hybrid: Path) -> None:
    target = load(hybrid, threads=1)
    text = some_tokens(60, target.vocab)
    begin(target, text)
    draft = keep_a_chain(target, text[-1])
    shorter = [*text, *draft.tokens[:3], 4]
    assert begin(target, shorter) == len(shorter) - 1
    assert torch.equal(next_logits(target, shorter), fresh_logits(hybrid, shorter))


def test_old_checkpoints_are_thinned_out(hybrid: Path) -> None:
    target = load(hybrid, threads=1)
    begin(target, some_tokens(40, target.vocab))
    recurrent = target.sequence.recurrent
    assert recurrent is not None
    for position in range(100, 100 + 3 * MAX_CHECKPOINTS):
        recurrent.position = position
        recurrent.checkpoint(1 << 40)
    positions = [one.position for one in recurrent.checkpoints]
    assert len(positions) <= MAX_CHECKPOINTS and positions == sorted(set(positions))
    assert positions[-1] == 99 + 3 * MAX_CHECKPOINTS
    size = recurrent.checkpoints[0].nbytes
    for limit, most in ((3 * size, 3), (0, 1)):
        recurrent.position += 1
        recurrent.checkpoint(limit)
        assert len(recurrent.checkpoints) <= most
        assert recurrent.checkpoints[-1].position == recurrent.position


def test_no_drafter_changes_the_answer(hybrid: Path) -> None:
    target, tokenizer = load(hybrid, threads=1), Tokenizer(hybrid)
    for options in ({}, {"temperature": 0.9, "top_k": 20, "top_p": 0.95, "seed": 7}):
        prompt = Prompt(some_tokens(60, target.vocab), max_tokens=40)
        expected, truth = plain(target, tokenizer, prompt, **options)
        prompt.predictions = [truth[5:30]]
        for name, drafter in drafters(truth, target.vocab).items():
            _, done = run(target, tokenizer, prompt, drafter, **options)
            assert answer(done) == answer(expected), name


@pytest.mark.parametrize("sequences", [1, 4])
def test_interleaved_requests_do_not_change_the_answer(hybrid: Path, sequences: int) -> None:
    tokenizer = Tokenizer(hybrid)
    long, short = (Prompt(some_tokens(n, 200, n), max_tokens=20) for n in (200, 150))
    alone = load(hybrid, threads=1)
    expected, urgent = (run(alone, tokenizer, one, NullDrafter())[1] for one in (long, short))
    for steps in range(0, 24, 5):
        target = load(hybrid, threads=1, cached_sequences=sequences)
        running = generate(
            Generation(Request("complete"), long, tokenizer, target.context), target, NullDrafter()
        )
        events: list[Any] = []
        for turn in range(steps):
            events.append(next(running))
            inner = Generation(Request("complete"), short, tokenizer, target.context)
            list(itertools.islice(generate(inner, target, NullDrafter()), 1 + turn % 4))
        assert answer(run(target, tokenizer, short, NullDrafter())[1]) == answer(urgent)
        events += running
        assert answer(events[-1]) == answer(expected)


@pytest.mark.parametrize("layer", [0, 1, 3])
@pytest.mark.parametrize("prefill", [True, False])
def test_a_pass_that_fails_midway_changes_nothing(
    hybrid: Path, monkeypatch: pytest.MonkeyPatch, layer: int, prefill: bool
) -> None:
    """Neither in a prompt, nor with a draft, after rows that wait to be applied."""
    target = load(hybrid, threads=1)
    text = some_tokens(60, target.vocab)
    begin(target, text)
    target.forward(text[-1], Draft())
    target.keep([])
    text.append(7)
    block = target.model.blocks[layer].mlp  # type: ignore[union-attr]
    usual = type(block).run

    def failing(self: Any, *given: Any) -> None:
        if self is block:
            raise MemoryError
        usual(self, *given)

    longer = [*text, *some_tokens(20, target.vocab, seed=2)]
    with monkeypatch.context() as patch:
        patch.setattr(type(block), "run", failing)
        with pytest.raises(MemoryError):
            if prefill:
                begin(target, longer)
            else:
                target.forward(text[-1], some_tree(5, target.vocab))
    if prefill:
        begin(target, longer)
        assert torch.equal(next_logits(target, longer), fresh_logits(hybrid, longer))
    else:
        assert torch.equal(next_logits(target, text), fresh_logits(hybrid, text))


def test_going_back_behind_a_pass_that_failed_over_waiting_rows(
    hybrid: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first layers' states have the rows, so that the log alone cannot be cut."""
    target = load(hybrid, threads=1)
    text = some_tokens(60, target.vocab)
    begin(target, text)
    draft = keep_a_chain(target, text[-1])
    block = target.model.blocks[3].mlp  # type: ignore[union-attr]
    with monkeypatch.context() as patch:
        patch.setattr(type(block), "run", only_before(block, 0))
        with pytest.raises(MemoryError):
            target.forward(7, Draft())
    shorter = [*text, *draft.tokens[:3], 4]
    begin(target, shorter)
    assert torch.equal(next_logits(target, shorter), fresh_logits(hybrid, shorter))


def some_prompt(chance: random.Random, texts: list[list[int]], vocab: int) -> list[int]:
    """One that is new, or goes on with, repeats, cuts or changes an earlier text."""
    base, more = chance.choice(texts), some_tokens(chance.randrange(2, 50), vocab, chance.random())
    place = chance.randrange(1, len(base))
    made = [more, base, base + more, base[: place + 1], base[:place] + more + base[place:]]
    return chance.choice(made)[:1400]


SEEDS = [*range(3), *(pytest.param(seed, marks=pytest.mark.full) for seed in range(3, 20))]


@pytest.mark.parametrize("seed", SEEDS)
def test_any_order_of_requests_gives_the_bits_of_plain_decoding(
    hybrid: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Prompts that share prefixes, some cancelled and some failing in a layer, with few sequences
    and little memory for checkpoints; and trees, of which a path is kept."""
    chance = random.Random(seed)
    limits = {"cached_sequences": chance.choice([1, 2, 4])}
    limits["cache_bytes"] = chance.choice([1, 200_000, 1 << 30])
    target, oracle = load(hybrid, threads=1, **limits), load(hybrid, threads=1, cached_sequences=1)
    target.chunk = chance.choice([7, 32, 128])
    texts = [some_tokens(chance.choice([60, 1100]), target.vocab, seed)]
    for _ in range(12):
        text = some_prompt(chance, texts, target.vocab)
        if chance.random() < 0.2:
            target.begin(text, 96)
            list(itertools.islice(target.prefill(text, 96), chance.randrange(3)))
        elif chance.random() < 0.3:
            block = target.model.blocks[chance.randrange(4)].mlp  # type: ignore[union-attr]
            with monkeypatch.context() as patch:
                patch.setattr(type(block), "run", only_before(block, chance.randrange(3)))
                with contextlib.suppress(MemoryError):
                    begin(target, text)
                    target.forward(text[-1], some_tree(5, target.vocab, seed))
        begin(target, text)
        for _ in range(chance.randrange(1, 4)):
            draft = some_tree(chance.choice([0, 1, 8, 30]), target.vocab, chance.random())
            path = path_to(draft, chance.randrange(len(draft))) if draft else []
            logits = target.forward(text[-1], draft).logits.clone()
            target.keep(path)
            oracle.pool.sequences.clear()
            begin(oracle, text)
            line = [text[-1], *(draft.tokens[node] for node in path)]
            for row, token in zip([0, *(node + 1 for node in path)], line, strict=True):
                assert torch.equal(logits[row], oracle.forward(token, Draft()).logits[0])
                oracle.keep([])
            text = [*text, *line[1:], chance.randrange(3, target.vocab)]
        texts.append(text)


def only_before(block: Any, passes: int) -> Any:
    """`run` of a block's class, which fails for this block after so many passes."""
    usual, left = type(block).run, [passes]

    def run(self: Any, *given: Any) -> None:
        if self is block:
            left[0] -= 1
            if left[0] < 0:
                raise MemoryError
        usual(self, *given)

    return run
