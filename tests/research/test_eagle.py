"""EAGLE-2: unchanged answers with any head, the tree against a naive reference, and the head's
files."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.drafting import DraftContext, NullDrafter
from engine.model.torch.torch_target import TorchTarget
from engine.prompts.builder import Prompt
from engine.prompts.tokenizer import Tokenizer
from engine.records import Done, Draft
from research.methods.eagle import Eagle, EagleTree, auto_total, eagle, embed
from research.methods.eagle_head import EagleHead, shape_of, untrained_head
from research.methods.head_checkpoint import CheckpointError
from tests.conftest import tiny_model
from tests.model.test_target import begin, load
from tests.support.heads import same_wherever_it_ends
from tests.support.law import SAMPLED, answer, run

PROMPT = [40, 41, 42, 43]
KINDS = ("llama", "qwen2", "qwen3")


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, TorchTarget]:
    root = tmp_path_factory.mktemp("eagle")
    return {kind: load(tiny_model(root / kind, kind), threads=1) for kind in KINDS}


@pytest.fixture(scope="module")
def endless(models: dict[str, TorchTarget]) -> Tokenizer:
    tokenizer = Tokenizer(models["llama"].folder)
    tokenizer.eos = frozenset()
    return tokenizer


def head_of(target: TorchTarget, kind: str = "untrained") -> EagleHead:
    """An untrained head, or a degenerate one that training would not produce."""
    head = untrained_head(shape_of(target.settings), 0)
    with torch.no_grad():
        if kind == "broken":
            head.fc.weight.fill_(math.nan)
        if kind == "flat":  # all tokens are equally likely: nothing but ties
            for weight in head.parameters():
                weight.zero_()
    return head


@pytest.mark.parametrize("options", [{}, SAMPLED], ids=str)
@pytest.mark.parametrize("kind", ["untrained", "broken", "flat"])
def test_no_head_changes_the_answer(
    models: dict[str, TorchTarget], endless: Tokenizer, kind: str, options: Any
) -> None:
    """Two answers in a row, in models with and without biases."""
    for target in models.values():
        head = head_of(target, kind)
        for ids in (PROMPT, [60]):
            prompt = Prompt(ids, max_tokens=12)
            _, expected = run(target, endless, prompt, NullDrafter(), **options)
            drafter = eagle(target, head, total=20, depth=3, width=4)
            _, done = run(target, endless, prompt, drafter, **options)
            assert answer(done) == answer(expected)
            assert done.usage.drafted > 12


def test_answers_match_at_every_end_position_and_length(models: dict[str, TorchTarget]) -> None:
    target = models["llama"]
    head = head_of(target)
    same_wherever_it_ends(target, PROMPT, lambda: [eagle(target, head, 12, 3, 3)], {})


def test_the_context_may_end_before_the_answer(
    models: dict[str, TorchTarget], endless: Tokenizer
) -> None:
    short = load(models["llama"].folder, threads=1, max_context=24)
    prompt = Prompt(PROMPT, max_tokens=60)
    _, expected = run(short, endless, prompt, NullDrafter())
    _, done = run(short, endless, prompt, eagle(short, head_of(short)))
    assert answer(done) == answer(expected) and done.usage.completion_tokens == 20


def test_rejection_sampling_works_with_eagle_trees(
    models: dict[str, TorchTarget], endless: Tokenizer
) -> None:
    target = models["llama"]
    prompt, drafter = Prompt(PROMPT, max_tokens=20), eagle(target, head_of(target))
    _, done = run(target, endless, prompt, drafter, verification="rejection", temperature=1.0)
    assert isinstance(done, Done) and done.usage.completion_tokens == 20


# -- the tree --------------------------------------------------------------------------------------


def states_of(target: TorchTarget, text: list[int]) -> Any:
    """The model's true hidden states for a text."""
    begin(target, [*text, 0])
    assert target.sequence.states is not None
    return target.sequence.states[: len(text)].clone()


def naive_log_probs(target: TorchTarget, head: EagleHead, text: list[int], path: list[int]) -> Any:
    """Log probabilities after `path`: the head over the whole text from the start, with no cache
    and no tree. Past the text, its own outputs replace the model's states."""
    states = states_of(target, text[:-1])
    tokens = text[1:] + path
    for _ in range(len(path) + 1):
        count = len(states)
        rows = torch.arange(count)
        out, _ = head(
            embed(target, tokens[:count]), states, rows, head.empty(),
            torch.ones(count, count).tril().bool(),
        )  # fmt: skip
        states = torch.cat([states, out[-1:]])
    return target.model.head(out[-1:])[0].log_softmax(-1)


def oracle(
    target: TorchTarget, head: EagleHead, text: list[int], total: int, depth: int, width: int
) -> dict[tuple[int, ...], float]:
    """Path -> score of the nodes that EAGLE-2 verifies, by its definition."""
    everything: dict[tuple[int, ...], float] = {}
    frontier: dict[tuple[int, ...], float] = {(): 0.0}
    for _ in range(depth + 1):
        expanded: dict[tuple[int, ...], float] = {}
        for path, score in frontier.items():
            best = naive_log_probs(target, head, text, list(path)).topk(width)
            for token, log_prob in zip(best.indices.tolist(), best.values.tolist(), strict=True):
                expanded[(*path, token)] = score + log_prob
        everything |= expanded
        frontier = dict(sorted(expanded.items(), key=lambda item: -item[1])[:width])
    return dict(sorted(everything.items(), key=lambda item: -item[1])[: total - 1])


def paths(draft: Draft) -> dict[tuple[int, ...], float]:
    """The same for a draft."""
    found: list[tuple[tuple[int, ...], float]] = []
    for token, parent, prob in zip(draft.tokens, draft.parents, draft.probs, strict=True):
        prefix, score = found[parent] if parent >= 0 else ((), 0.0)
        found.append(((*prefix, token), score + math.log(prob)))
    return dict(found)


@torch.inference_mode()
def test_trees_match_the_naive_reference_in_every_round(
    models: dict[str, TorchTarget], endless: Tokenizer
) -> None:
    """So the head's cache holds only committed text, with the model's true states."""
    target, head, rounds = models["qwen2"], head_of(models["qwen2"]), 0
    target.keeps_states = True
    reference = load(target.folder, threads=1)
    reference.keeps_states = True

    class Watched(Eagle):
        def propose(self, context: DraftContext, target: Any) -> Draft:
            nonlocal rounds
            draft = super().propose(context, target)
            text = [*context.prompt, *context.output]
            if context.capacity >= 15:
                expected = oracle(reference, head, text, 16, 2, 3)
                assert paths(draft).keys() == expected.keys()
                assert paths(draft) == pytest.approx(expected, abs=1e-3)
                rounds += 1
            return draft

    run(target, endless, Prompt(PROMPT, max_tokens=24), Watched(head, 16, 2, 3))
    assert rounds > 5


def test_hidden_states_are_kept_with_the_cache(
    models: dict[str, TorchTarget], endless: Tokenizer
) -> None:
    """After trees, other requests and a longer prompt, they equal those of a fresh pass."""
    target = models["llama"]
    target.keeps_states = True
    for ids in (PROMPT, [60, 61, 62], PROMPT + [50] * 300):
        run(target, endless, Prompt(ids, max_tokens=30), eagle(target, head_of(target)))
        kept, text = target.sequence.states, list(target.tokens)
        assert kept is not None
        fresh = load(target.folder, threads=1)
        fresh.keeps_states = True
        assert torch.equal(kept[: len(text)], states_of(fresh, text))


def test_a_sequence_without_hidden_states_is_recomputed(
    models: dict[str, TorchTarget], endless: Tokenizer
) -> None:
    target = load(models["llama"].folder, threads=1)
    prompt = Prompt(PROMPT, max_tokens=20)
    _, expected = run(target, endless, prompt, NullDrafter())
    assert target.sequence.states is None
    _, done = run(target, endless, prompt, eagle(target, head_of(target)))
    assert answer(done) == answer(expected) and done.usage.cached_tokens == 0
    _, done = run(target, endless, prompt, eagle(target, head_of(target)))
    assert done.usage.cached_tokens == 3


def test_ties_never_separate_a_node_from_its_parent() -> None:
    tree = EagleTree()
    first = tree.grow([-1], [[(1, 0.0), (2, 0.0), (3, -1.0)]])
    tree.grow(first[:2], [[(4, 0.0), (5, 0.0)], [(6, 0.0), (7, -0.5)]])
    for count in range(1, 8):
        draft = tree.reranked(count)
        assert len(draft) == count
        assert all(parent < node for node, parent in enumerate(draft.parents))
    assert tree.reranked(5).tokens == [1, 2, 4, 5, 6]
    assert tree.mask([3, 5], [0, 1, 3, 5], 2).tolist() == [
        [True, True, True, False, True, False],
        [True, True, False, True, False, True],
    ]


def test_tree_size_follows_the_cost_of_a_pass() -> None:
    assert auto_total(lambda rows: 1.0) == 60  # nodes cost nothing
    assert auto_total(lambda rows: float(rows)) == 40  # each costs as much as the one before
    assert auto_total(lambda rows: 1.0 if rows <= 50 else 2.0) == 50
    with pytest.raises(ValueError, match="EAGLE-2 with total 1"):
        Eagle(untrained_head(shape_of_tiny(), 0), total=1)


def shape_of_tiny() -> Any:
    return shape_of(
        {"hidden_size": 8, "num_attention_heads": 2, "intermediate_size": 8,
         "rms_norm_eps": 1e-6, "model_type": "llama"}
    )  # fmt: skip


# -- the head --------------------------------------------------------------------------------------


def test_the_layer_is_the_models_own_without_its_first_norm(models: dict[str, TorchTarget]) -> None:
    """Compared with transformers' decoder layer with the same weights."""
    from transformers import AutoConfig
    from transformers.models.qwen2.modeling_qwen2 import Qwen2DecoderLayer, Qwen2RotaryEmbedding

    target = models["qwen2"]
    head = head_of(target)
    config = AutoConfig.from_pretrained(target.folder, attn_implementation="eager")
    layer = Qwen2DecoderLayer(config, 0).eval()
    layer.input_layernorm = torch.nn.Identity()
    head_layer: Any = head.layers[0]
    layer.load_state_dict(head_layer.state_dict())
    count = 7
    x = torch.randn(2, count, 32)
    rows = torch.arange(count) + 5000  # beyond the model's context
    joined = head.fc(torch.cat([x[0], x[1]], -1))
    mask = torch.full((count, count), -1e30).triu(1)[None, None]
    angles = Qwen2RotaryEmbedding(config)(joined[None], rows[None])
    with torch.no_grad():
        expected = layer(joined[None], attention_mask=mask, position_embeddings=angles)
        expected = expected[0] if isinstance(expected, tuple) else expected
        actual, _ = head(x[0], x[1], rows, head.empty(), torch.ones(count, count).tril().bool())
    assert torch.allclose(actual, expected.reshape(count, 32), atol=1e-4)


def test_a_head_is_saved_under_published_names(
    models: dict[str, TorchTarget], tmp_path: Path
) -> None:
    from safetensors.torch import load_file, save_file

    target = models["qwen2"]
    head = head_of(target)
    head.save(tmp_path, target.folder)
    weights = load_file(tmp_path / "model.safetensors")
    assert {"fc.weight", "fc.bias", "layers.0.self_attn.q_proj.bias",
            "layers.0.mlp.gate_proj.weight",
            "layers.0.post_attention_layernorm.weight"} < set(weights)  # fmt: skip
    loaded = EagleHead.load(tmp_path, target.folder, target.settings)
    for name, weight in head.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], weight)
    # published heads include the embedding, and their config does not name the model
    save_file(weights | {"embed_tokens.weight": torch.ones(3, 3)}, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps({"bias": True, "hidden_size": 32}))
    EagleHead.load(tmp_path, target.folder, target.settings)


def test_mismatched_heads_raise_one_line_errors(
    models: dict[str, TorchTarget], tmp_path: Path, tiny: Any
) -> None:
    llama, qwen = models["llama"], models["qwen2"]
    head_of(llama).save(tmp_path, llama.folder)
    with pytest.raises(CheckpointError, match="trained for llama, not for qwen2"):
        EagleHead.load(tmp_path, qwen.folder, qwen.settings)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(CheckpointError, match=r"does not fit qwen2 \(.*train a head for qwen2"):
        EagleHead.load(tmp_path, qwen.folder, qwen.settings)
    with pytest.raises(CheckpointError, match="Llama family only"):
        eagle(load(tiny("gpt2")), head_of(llama))
