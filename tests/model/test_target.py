"""`TorchTarget` on tiny random models: logits agree with transformers, and the rows of a pass do
not affect each other, bit for bit, for chains and trees in every dtype."""

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
from engine.model.torch.torch_target import TorchTarget
from engine.model.unsupported import UnsupportedModel
from engine.prompts.builder import Prompt
from engine.prompts.tokenizer import Tokenizer
from engine.records import Draft
from tests.conftest import KINDS
from tests.support.drafters import drafters, trying
from tests.support.law import answer, plain, run

DTYPES = ("f32", "bf16", "q8")
ALL = [(kind, dtype) for kind in KINDS for dtype in DTYPES]
# Whole answers (kind, dtype, sampled). `make test` runs all for llama, and two of each other kind.
ANSWERS = [
    case
    if case[0] == "llama" or case[1:] in (("f32", True), ("q8", False))
    else pytest.param(*case, marks=pytest.mark.full)
    for case in itertools.product(KINDS, DTYPES, (False, True))
]


def load(folder: Path, dtype: str = "f32", threads: int = 2, **options: Any) -> TorchTarget:
    """A target on the CPU. Two threads show that splitting work changes no bit; tests with many
    passes use one, since threads of tiny models mostly wait for each other."""
    return TorchTarget(folder, Config(device="cpu", dtype=dtype, threads=threads, **options))


def begin(target: TorchTarget, prompt: list[int], capacity: int = 96) -> int:
    """Begin and prefill a prompt; returns how many of its tokens were cached."""
    cached = target.begin(prompt, capacity)
    for _ in target.prefill(prompt, capacity):
        pass
    return cached


def some_tokens(count: int, vocab: int, seed: int = 0) -> list[int]:
    return random.Random(seed).choices(range(3, vocab), k=count)


def some_tree(size: int, vocab: int, seed: int = 0) -> Draft:
    """A random tree with siblings, some of them children of the root."""
    chance, draft = random.Random(seed), Draft()
    for node in range(size):
        parent = chance.randrange(max(-1, node - 6), node) if node else -1
        draft.add(chance.randrange(3, vocab), parent, 0.5, "test")
    return draft


def path_to(draft: Draft, node: int) -> list[int]:
    """The nodes from the root to `node`, inclusive."""
    path = [node]
    while draft.parents[path[0]] >= 0:
        path.insert(0, draft.parents[path[0]])
    return path


def assert_nodes_have_the_bits_of_one_token_passes(
    target: Any, prompt: list[int], draft: Draft, paths: int
) -> None:
    """Along about so many paths from the root to a leaf."""
    begin(target, prompt)
    tree = target.forward(prompt[-1], draft).logits.clone()
    leaves = [node for node in range(len(draft)) if node not in draft.parents]
    for leaf in leaves[:: len(leaves) // paths]:
        begin(target, prompt)
        assert torch.equal(tree[0], target.forward(prompt[-1], Draft()).logits[0])
        for node in path_to(draft, leaf):
            target.keep([])
            alone = target.forward(draft.tokens[node], Draft()).logits[0]
            assert torch.equal(tree[node + 1], alone), node


@pytest.mark.parametrize("kind", KINDS)
def test_logits_agree_with_transformers(tiny: Any, kind: str) -> None:
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


@pytest.mark.parametrize(("kind", "dtype"), ALL)
def test_nodes_of_a_tree_have_the_bits_of_one_token_passes(
    tiny: Any, kind: str, dtype: str
) -> None:
    target = load(tiny(kind), dtype, threads=2 if kind == "llama" else 1)
    prompt = some_tokens(150, target.vocab)
    assert target.exact
    assert_nodes_have_the_bits_of_one_token_passes(target, prompt, some_tree(40, target.vocab), 4)


@pytest.mark.parametrize(("kind", "dtype"), ALL)
def test_the_cache_after_keep_equals_that_of_a_prefill(tiny: Any, kind: str, dtype: str) -> None:
    target = load(tiny(kind), dtype, threads=2 if kind == "llama" else 1)
    text = some_tokens(140, target.vocab)
    begin(target, text)
    for seed in range(4):
        draft = some_tree(20, target.vocab, seed)
        target.forward(text[-1], draft)
        path = path_to(draft, 19 - seed)
        target.keep(path)
        text += [draft.tokens[node] for node in path] + [5]
    assert target.tokens == text[:-1]
    kept = target.sequence.cache[0][..., : len(text) - 1, :].clone()
    target.pool.sequences.clear()
    assert begin(target, text) == 0
    assert torch.equal(target.sequence.cache[0][..., : len(text) - 1, :], kept)


@pytest.mark.parametrize(("kind", "dtype", "sampled"), ANSWERS)
def test_no_drafter_changes_the_answer(tiny: Any, kind: str, dtype: str, sampled: bool) -> None:
    folder = tiny(kind)
    target, tokenizer = load(folder, dtype, threads=1), Tokenizer(folder)
    options = {"temperature": 0.9, "top_k": 20, "top_p": 0.95, "seed": 7} if sampled else {}
    # A target does not know which drafter made a draft: all of them run on one kind only.
    make, prompts = (drafters, [[9]]) if kind == "llama" else (trying, [])
    for ids in (*prompts, some_tokens(60, target.vocab)):
        prompt = Prompt(ids, max_tokens=40)
        expected, truth = plain(target, tokenizer, prompt, **options)
        prompt.predictions = [truth[5:30]]
        for name, drafter in make(truth, target.vocab).items():
            _, done = run(target, tokenizer, prompt, drafter, **options)
            assert answer(done) == answer(expected), name


@pytest.mark.parametrize("sequences", [1, 4])  # one cached sequence, or enough for both
def test_interleaved_requests_do_not_change_the_answer(tiny: Any, sequences: int) -> None:
    """One request is interrupted anywhere, also in its prompt, by others; some are abandoned."""
    from engine.generate import Generation, generate
    from engine.records import Request

    folder = tiny("llama")
    tokenizer = Tokenizer(folder)
    long, short = (Prompt(some_tokens(n, 200, n), max_tokens=20) for n in (200, 150))
    alone = load(folder, threads=1)
    expected, urgent = (run(alone, tokenizer, one, NullDrafter())[1] for one in (long, short))
    for steps in range(0, 24, 5):
        target = load(folder, threads=1, cached_sequences=sequences)
        events: list[Any] = []
        running = generate(
            Generation(Request("complete"), long, tokenizer, target.context), target, NullDrafter()
        )
        for turn in range(steps):
            events.append(next(running))
            if turn % 2:
                inner = generate(
                    Generation(Request("complete"), short, tokenizer, target.context),
                    target,
                    NullDrafter(),
                )
                abandoned = list(itertools.islice(inner, 1 + turn % 4))
                assert len(abandoned) == 1 + turn % 4
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
    assert begin(target, [*first[:100], 6]) == 100  # a copy: the longer sequence is kept
    assert begin(target, [*first[:250], 4, 4, 5, 5]) == 252


def test_cached_sequences_are_evicted_beyond_their_limits(tiny: Any) -> None:
    target = load(tiny("llama"), cache_bytes=1)
    begin(target, some_tokens(20, target.vocab))
    begin(target, some_tokens(20, target.vocab, seed=1))
    assert len(target.pool.sequences) == 1
    target = load(tiny("llama"), cached_sequences=2)
    for seed in range(5):
        begin(target, some_tokens(20, target.vocab, seed))
    assert len(target.pool.sequences) == 2


def test_a_failed_pass_does_not_change_the_cache(tiny: Any) -> None:
    target = load(tiny("llama"))
    prompt = some_tokens(50, target.vocab)
    begin(target, prompt, capacity=4)
    expected = target.forward(prompt[-1], Draft()).logits
    with pytest.raises(ValueError, match="rows"):
        target.forward(prompt[-1], some_tree(400, target.vocab))
    bad = Draft()
    bad.add(10**6, -1, 1.0, "test")
    with pytest.raises(IndexError):
        target.forward(prompt[-1], bad)
    assert torch.equal(target.forward(prompt[-1], Draft()).logits, expected)
    assert target.tokens == prompt[:-1]


def test_a_head_equal_to_the_embedding_is_tied_to_it(tiny: Any, tmp_path: Path) -> None:
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
        ({"model_type": "gemma2", "layer_types": ["sliding_attention"] * 2}, "sliding window"),
        ({"model_type": "mamba"}, "mamba"),
        ({"is_encoder_decoder": True}, "encoder-decoder"),
        ({"final_logit_softcapping": 30.0}, "caps"),
    ],
)
def test_models_that_cannot_roll_back_their_cache_are_refused(
    tiny: Any, tmp_path: Path, changes: dict[str, Any], reason: str
) -> None:
    for file in tiny("llama").iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    settings = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(settings | changes))
    with pytest.raises(UnsupportedModel, match=reason) as caught:
        load(tmp_path)
    assert "\n" not in str(caught.value)
