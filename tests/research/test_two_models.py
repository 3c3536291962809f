"""Batched speculative decoding with two models: the output equals the target model's own."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from engine.records import Request
from engine.sampling.verify import choose
from research import two_models
from research.two_models import (
    BatchSpeculation,
    CachedModel,
    ModelPair,
    agreement,
    generate_and_check,
    speculative_decoding,
)
from tests.conftest import tiny_model
from tests.support.command import ROOT, environment

PROMPTS = ["def add(left", "x", "class Point:\n    def __init__(self, x: int", "return\n"]
SAMPLED = {"temperature": 0.8, "top_k": 20, "top_p": 0.9}


@pytest.fixture(scope="module", params=["llama", "gpt2"])
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> ModelPair:
    """Two random models with the same tokenizer, which seldom agree. In float64: padded batches
    round differently from single rows, and the tests compare for equality."""
    root = tmp_path_factory.mktemp("pair")
    folders = [str(tiny_model(root / str(seed), request.param, seed)) for seed in (1, 2)]
    pair = two_models.load(*folders)
    return replace(
        pair, draft_model=pair.draft_model.double(), target_model=pair.target_model.double()
    )


@pytest.fixture(scope="module")
def twins(pair: ModelPair) -> ModelPair:
    """Identical models, which always agree."""
    return replace(pair, draft_model=pair.target_model)


MAX_ORACLE_TOKENS = 14  # tokens that the oracle writes


@cache
@torch.inference_mode()
def oracle(pair: ModelPair, prompt: str, request: Request) -> list[int]:
    """The target model on one prompt without cache or padding, one token per pass, up to an end
    token."""
    row = pair.tokenizer.encode(prompt)
    start = len(row)
    while len(row) - start < MAX_ORACLE_TOKENS:
        logits = pair.target_model(input_ids=torch.tensor([row])).logits[0, -1].float()
        token = choose(logits, len(row), request)
        if token in pair.tokenizer.eos:
            break
        row.append(token)
    return row[start:]


def target_output(
    pair: ModelPair, prompt: str, count: int, request: Request
) -> tuple[list[int], str]:
    """The target model's own tokens, and why they end."""
    assert count <= MAX_ORACLE_TOKENS
    key = request if request.temperature > 0 else Request("complete")
    tokens = oracle(replace(pair, draft_model=None), prompt, key)
    return tokens[:count], "length" if len(tokens) >= count else "eos"


@settings(max_examples=12)
@example(["def add(left", "return\n"], 11, 1, False, True, 4)  # a near tie in float32
@given(
    st.lists(st.sampled_from(PROMPTS), min_size=1, max_size=4),
    st.integers(0, 14),
    st.integers(0, 6),
    st.booleans(),
    st.booleans(),
    st.integers(0, 9),
)
def test_output_equals_the_target_models(
    pair: ModelPair,
    twins: ModelPair,
    prompts: list[str],
    count: int,
    draft_tokens: int,
    same: bool,
    sampled: bool,
    seed: int,
) -> None:
    """For greedy decoding and sampling, per row, with any draft length and padding."""
    options: dict[str, Any] = {"seed": seed, **(SAMPLED if sampled else {})}
    models = twins if same else pair
    result = speculative_decoding(models, prompts, count, draft_tokens, **options)
    for n, prompt in enumerate(prompts):
        request = Request("complete", **{**options, "seed": seed + n})
        tokens, reason = target_output(pair, prompt, count, request)
        assert (result.tokens[n], result.reasons[n]) == (tokens, reason)
        whole = [*pair.tokenizer.encode(prompt), *tokens]
        assert result.texts[n] == pair.tokenizer.decode(whole)
        assert result.accepted[n] <= min(result.drafted[n], len(tokens))
    assert result.passes <= max(map(len, result.tokens), default=0) + 1


def with_eos(pair: ModelPair, *tokens: int) -> ModelPair:
    """The same pair with these end tokens."""
    import copy

    tokenizer = copy.copy(pair.tokenizer)
    tokenizer.eos = frozenset(tokens)
    return replace(pair, tokenizer=tokenizer)


def test_end_tokens_at_every_position(pair: ModelPair, twins: ModelPair) -> None:
    """Within a draft, as a correction and after an accepted draft; rows end independently."""
    endless = with_eos(twins)
    texts = [target_output(endless, prompt, 12, Request("complete"))[0] for prompt in PROMPTS]
    ended = 0
    for token in sorted({token for text in texts for token in text})[::4]:
        for models in (with_eos(pair, token), with_eos(twins, token)):
            result = speculative_decoding(models, PROMPTS, 12, 3)
            for text, tokens, reason in zip(texts, result.tokens, result.reasons, strict=True):
                stop = text.index(token) if token in text else 12
                assert tokens == text[:stop] and reason == ("eos" if stop < 12 else "length")
                ended += stop < 12
    assert ended > 12


def test_agreeing_models_need_few_passes(twins: ModelPair) -> None:
    """A draft of 5 and the target's next token: 6 tokens per pass."""
    models = with_eos(twins)
    result = speculative_decoding(models, PROMPTS, 30, 5)
    assert result.passes == 5 and result.accepted == result.drafted == [25] * 4
    assert speculative_decoding(models, PROMPTS, 30, 0).passes == 30
    assert speculative_decoding(models, PROMPTS, 0).passes == 0
    single = speculative_decoding(models, PROMPTS, 1)
    assert single.passes == 1 and single.drafted == [0] * 4 and single.reasons == ["length"] * 4


def test_drafting_stops_at_an_end_token(twins: ModelPair) -> None:
    endless = with_eos(twins)
    text = target_output(endless, PROMPTS[0], 6, Request("complete"))[0]
    models = with_eos(twins, text[2])
    stop = text.index(text[2])
    row = models.tokenizer.encode(PROMPTS[0])
    (draft,) = BatchSpeculation(models, [row], 20, 6).drafts()
    assert draft.tokens == text[: stop + 1]


# -- checks ----------------------------------------------------------------------------------------


def test_generate_and_check_needs_agreement_in_all_rows(pair: ModelPair, twins: ModelPair) -> None:
    models = with_eos(twins)
    tokenizer = models.tokenizer
    expected = [
        tokenizer.decode(
            [*tokenizer.encode(prompt), *target_output(models, prompt, 7, Request("complete"))[0]]
        )
        for prompt in PROMPTS
    ]
    assert generate_and_check(models, PROMPTS, 7) == expected, "prompts and all new tokens"
    assert generate_and_check(with_eos(pair), PROMPTS, 7) is None
    assert generate_and_check(with_eos(pair), PROMPTS, 0) == PROMPTS


def test_tokens_after_an_end_token_need_not_agree(twins: ModelPair) -> None:
    """In the original notebook, models had to agree on them."""
    text = target_output(with_eos(twins), PROMPTS[0], 9, Request("complete"))[0]
    models = with_eos(twins, text[3])
    stop = text.index(text[3]) + 1
    (generated,) = generate_and_check(models, PROMPTS[:1], 9) or [""]
    whole = [*models.tokenizer.encode(PROMPTS[0]), *text[:stop]]
    assert generated == models.tokenizer.decode(whole)
    assert agreement(models, PROMPTS[0], 9) == stop


def test_agreement_is_counted_and_shown(pair: ModelPair, twins: ModelPair) -> None:
    shown: list[str] = []
    assert agreement(with_eos(twins), PROMPTS[0], 6, shown.append) == 6
    assert [line.split()[0] for line in shown] == ["1", "2", "3", "4", "5", "6"]
    models, counts = with_eos(pair), set()
    draft_only = replace(models, target_model=pair.draft_model)
    for prompt in PROMPTS:
        target = target_output(models, prompt, 6, Request("complete"))[0]
        draft = target_output(draft_only, prompt, 6, Request("complete"))[0]
        expected = next((n for n in range(6) if target[n] != draft[n]), 6)
        assert agreement(models, prompt, 6) == expected
        counts.add(expected)
    assert counts != {6}


# -- the cache -------------------------------------------------------------------------------------


def test_rejected_tokens_do_not_affect_the_cache(pair: ModelPair) -> None:
    """After rollbacks in a batch, logits equal those of each text computed from scratch."""
    texts = [[[5, 6, 7], [8]], [[5, 6, 9, 9], [8, 1, 2]], [[5, 6], [8, 1, 3, 4]], [[7], [8, 1]]]
    model = CachedModel(pair.target_model, 2)
    for step in [*texts, *texts[::-1]]:
        for n, logits in model.forward(step, [True, True]).items():
            with torch.inference_mode():
                expected = pair.target_model(input_ids=torch.tensor([step[n]])).logits[0].float()
            assert torch.allclose(logits, expected[-len(logits) :], atol=1e-4)
    assert model.width <= 12, "columns that no row uses are cropped"
    before = [list(tokens) for tokens in model.tokens]
    assert list(model.forward([[1, 2], [8, 8]], [False, True])) == [1]
    assert model.tokens[0] == before[0]


# -- errors, and the example ------------------------------------------------------------


def test_invalid_arguments(pair: ModelPair) -> None:
    for prompts in ([], [""], ["x", ""]):
        with pytest.raises(ValueError, match="a prompt is empty"):
            speculative_decoding(pair, prompts, 5)
    with pytest.raises(ValueError, match="give 0 or more"):
        speculative_decoding(pair, ["x"], -1)
    with pytest.raises(ValueError, match="temperature -1"):
        speculative_decoding(pair, ["x"], 5, temperature=-1)


def test_models_with_different_tokenizers_are_refused(tiny: Any, tmp_path: Path) -> None:
    other = tiny_model(tmp_path / "other")
    text = (other / "tokenizer.json").read_text().replace("<|start|>", "<|begin|>")
    (other / "tokenizer.json").write_text(text)
    with pytest.raises(ValueError, match="their tokenizers differ"):
        two_models.load(str(tiny()), str(other))


@pytest.mark.full
def test_the_example_runs(tiny: Any, tmp_path: Path) -> None:
    other = tiny_model(tmp_path / "other", seed=3)
    line = [sys.executable, str(ROOT / "examples" / "two_models.py"), str(tiny()), str(other)]
    result = subprocess.run(line, capture_output=True, env=environment(tmp_path), timeout=300)
    assert result.returncode == 0, result.stderr.decode()
    shown = result.stdout.decode()
    first, second = shown.split("however long the drafts are:\n")[1].split(" passes:\n")[1:]
    assert first.rsplit("\n", 1)[0] == second.rstrip("\n"), "sampled texts of the same seed"


def test_a_draft_model_may_have_a_larger_vocabulary(pair: ModelPair, tmp_path: Path) -> None:
    """As with padded embeddings: ids that the target model lacks are never drafted."""
    import copy

    draft_model = copy.deepcopy(pair.target_model)
    draft_model.resize_token_embeddings(draft_model.config.vocab_size + 9)
    with torch.no_grad():
        draft_model.get_output_embeddings().weight[-9:] = 50.0
        draft_model.get_output_embeddings().weight[-8:] = -50.0
    models = with_eos(replace(pair, draft_model=draft_model))
    result = speculative_decoding(models, PROMPTS, 12)
    for prompt, tokens in zip(PROMPTS, result.tokens, strict=True):
        assert tokens == target_output(models, prompt, 12, Request("complete"))[0]
