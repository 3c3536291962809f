"""The target on tiny random models: right by transformers' own forward, and rows that do not see
each other, bit for bit, for chains and for trees, in every dtype."""

from __future__ import annotations

import itertools
import json
import random
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.config import Config
from engine.drafting import NullDrafter
from engine.model.hf_model import UnsupportedModel
from engine.model.torch_target import TorchTarget
from engine.prompts.builder import Prompt
from engine.prompts.tokenizer import Tokenizer
from engine.records import Draft
from tests.conftest import KINDS
from tests.support.drafters import drafters, trying
from tests.support.law import answer, plain, run

DTYPES = ("f32", "bf16", "q8")
EVERY = [(kind, dtype) for kind in KINDS for dtype in DTYPES]
# bf16 rounds alike in all families: whole answers of one are enough for the fast tests
ANSWERS = [
    pytest.param(*one, marks=pytest.mark.full) if one[1] == "bf16" and one[0] != "llama" else one
    for one in EVERY
]


def load(folder: Path, dtype: str = "f32", threads: int = 2, **options: Any) -> TorchTarget:
    """Two threads where bits are compared, which shows that sharing out changes none. One where
    whole answers are: with two, tiny models only wait, on a busy machine for minutes."""
    return TorchTarget(folder, Config(device="cpu", dtype=dtype, threads=threads, **options))


def begin(target: TorchTarget, prompt: list[int], room: int = 96) -> int:
    """Begin and read a prompt; how much of it was cached."""
    cached = target.begin(prompt, room)
    for _ in target.prefill(prompt, room):
        pass
    return cached


def some_tokens(count: int, vocab: int, seed: int = 0) -> list[int]:
    return random.Random(seed).choices(range(3, vocab), k=count)


def some_tree(size: int, vocab: int, seed: int = 0) -> Draft:
    """A random tree with siblings, among them children of the root."""
    chance, draft = random.Random(seed), Draft()
    for node in range(size):
        parent = chance.randrange(max(-1, node - 6), node) if node else -1
        draft.add(chance.randrange(3, vocab), parent, 0.5, "test")
    return draft


def path_to(draft: Draft, node: int) -> list[int]:
    path = [node]
    while draft.parents[path[0]] >= 0:
        path.insert(0, draft.parents[path[0]])
    return path


@pytest.mark.parametrize("kind", KINDS)
def test_logits_are_those_of_transformers(tiny: Any, kind: str) -> None:
    from transformers import AutoModelForCausalLM

    folder, target = tiny(kind), load(tiny(kind))
    tokens = some_tokens(40, target.vocab)
    with torch.inference_mode():
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        expected = model(torch.tensor([tokens])).logits[0]
    begin(target, tokens[:31])
    draft = Draft()
    for node, token in enumerate(tokens[31:]):
        draft.add(token, node - 1, 1.0, "test")
    logits = target.forward(tokens[30], draft).logits
    torch.testing.assert_close(logits, expected[30:], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("kind", "dtype"), EVERY)
def test_a_tree_gives_every_node_the_bits_it_has_alone(tiny: Any, kind: str, dtype: str) -> None:
    target = load(tiny(kind), dtype)
    prompt = some_tokens(150, target.vocab)
    assert target.exact
    draft = some_tree(40, target.vocab)
    begin(target, prompt)
    tree = target.forward(prompt[-1], draft).logits.clone()
    for node in range(0, len(draft), 3):
        begin(target, prompt)
        last = prompt[-1]
        rows = [target.forward(last, Draft()).logits[0]]
        for step in path_to(draft, node):
            target.keep([])
            last = draft.tokens[step]
            rows.append(target.forward(last, Draft()).logits[0])
        assert torch.equal(tree[0], rows[0])
        assert torch.equal(tree[node + 1], rows[-1])


@pytest.mark.parametrize(("kind", "dtype"), EVERY)
def test_after_keep_the_cache_is_that_of_a_fresh_prefill(tiny: Any, kind: str, dtype: str) -> None:
    target = load(tiny(kind), dtype)
    text = some_tokens(140, target.vocab)
    begin(target, text)
    for seed in range(4):
        draft = some_tree(20, target.vocab, seed)
        target.forward(text[-1], draft)
        path = path_to(draft, 19 - seed)
        target.keep(path)
        text += [draft.tokens[node] for node in path] + [5]
    assert target.tokens == text[:-1]
    fresh = load(tiny(kind), dtype)
    begin(fresh, text)
    ours, theirs = (one.sequence.cache[0][..., : len(text) - 1, :] for one in (target, fresh))
    assert torch.equal(ours, theirs)


@pytest.mark.parametrize(("kind", "dtype"), ANSWERS)
@pytest.mark.parametrize("sampled", [False, True])
def test_no_drafter_changes_the_answer(tiny: Any, kind: str, dtype: str, sampled: bool) -> None:
    folder = tiny(kind)
    target, tokenizer = load(folder, dtype, threads=1), Tokenizer(folder)
    options = {"temperature": 0.9, "top_k": 20, "top_p": 0.95, "seed": 7} if sampled else {}
    every = drafters if kind == "llama" else trying  # to the target all drafts are alike
    for ids in ([9], some_tokens(60, target.vocab)):
        prompt = Prompt(ids, max_tokens=40)
        expected, truth = plain(target, tokenizer, prompt, **options)
        prompt.predictions = [truth[5:30]]
        for name, drafter in every(truth, target.vocab).items():
            _, done = run(target, tokenizer, prompt, drafter, **options)
            assert answer(done) == answer(expected), name


@pytest.mark.parametrize("sequences", [1, 4])  # without and with the memory for both caches
def test_other_requests_in_between_change_nothing(tiny: Any, sequences: int) -> None:
    """A request that others interrupt anywhere, in its prompt too, some of them given up."""
    from engine.generate import Generation, generate
    from engine.records import Request

    folder = tiny("llama")
    tokenizer = Tokenizer(folder)
    long, short = (Prompt(some_tokens(n, 200, n), max_tokens=20) for n in (200, 150))
    alone = load(folder, threads=1)
    expected, urgent = (run(alone, tokenizer, one, NullDrafter())[1] for one in (long, short))
    for place in range(0, 24, 3):
        target = load(folder, threads=1, cached_sequences=sequences)
        events: list[Any] = []
        running = generate(
            Generation(Request("complete"), long, tokenizer, target.context), target, NullDrafter()
        )
        for turn in range(place):
            events.append(next(running))
            if turn % 2:
                inner = generate(
                    Generation(Request("complete"), short, tokenizer, target.context),
                    target,
                    NullDrafter(),
                )
                given_up = list(itertools.islice(inner, place % 5))
                assert len(given_up) == place % 5
        assert answer(run(target, tokenizer, short, NullDrafter())[1]) == answer(urgent)
        events += running
        assert answer(events[-1]) == answer(expected)


def test_the_longest_common_prefix_is_reused(tiny: Any) -> None:
    target = load(tiny("llama"))
    first = some_tokens(300, target.vocab)
    assert begin(target, first) == 0
    assert begin(target, first) == 299
    assert begin(target, [*first[:250], 4, 4]) == 250
    assert begin(target, some_tokens(80, target.vocab, seed=9)) == 0
    assert begin(target, [*first[:250], 4, 4, 5]) == 251
    assert begin(target, [*first[:100], 6]) == 100  # a branch: the longer sequence stays
    assert begin(target, [*first[:250], 4, 4, 5, 5]) == 252


def test_sequences_are_kept_within_their_memory(tiny: Any) -> None:
    target = load(tiny("llama"), cache_bytes=1)
    begin(target, some_tokens(20, target.vocab))
    begin(target, some_tokens(20, target.vocab, seed=1))
    assert len(target.pool.sequences) == 1
    target = load(tiny("llama"), cached_sequences=2)
    for seed in range(5):
        begin(target, some_tokens(20, target.vocab, seed))
    assert len(target.pool.sequences) == 2


def test_a_failed_pass_leaves_the_cache_as_it_was(tiny: Any) -> None:
    target = load(tiny("llama"))
    prompt = some_tokens(50, target.vocab)
    begin(target, prompt, room=4)
    expected = target.forward(prompt[-1], Draft()).logits
    with pytest.raises(ValueError, match="rows"):
        target.forward(prompt[-1], some_tree(400, target.vocab))
    bad = Draft()
    bad.add(10**6, -1, 1.0, "test")
    with pytest.raises(IndexError):
        target.forward(prompt[-1], bad)
    assert torch.equal(target.forward(prompt[-1], Draft()).logits, expected)
    assert target.tokens == prompt[:-1]


def test_equal_heads_are_tied_and_others_kept(tiny: Any, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    from tests.conftest import tiny_model

    folder = tiny_model(tmp_path / "tied")
    tensors = load_file(folder / "model.safetensors")
    own = load(folder)
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].clone()
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    equal = load(folder)
    del tensors["lm_head.weight"]
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    settings = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(settings | {"tie_word_embeddings": True}))
    tied = load(folder)
    logits = []
    for target in (own, equal, tied):
        begin(target, [5, 6, 7])
        logits.append(target.forward(7, Draft()).logits)
    assert torch.equal(logits[1], logits[2])
    assert not torch.equal(logits[0], logits[1])


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"model_type": "mistral", "sliding_window": 16}, "sliding window"),
        ({"model_type": "gemma2", "layer_types": ["sliding_attention"] * 2}, "sliding window"),
        ({"model_type": "mamba"}, "mamba"),
        ({"is_encoder_decoder": True}, "encoder-decoder"),
        ({"final_logit_softcapping": 30.0}, "caps"),
    ],
)
def test_what_cannot_be_rolled_back_is_refused(
    tiny: Any, tmp_path: Path, changes: dict[str, Any], reason: str
) -> None:
    for file in tiny("llama").iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    settings = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(settings | changes))
    with pytest.raises(UnsupportedModel, match=reason) as caught:
        load(tmp_path)
    assert "\n" not in str(caught.value)
