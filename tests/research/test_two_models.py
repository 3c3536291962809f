"""Two models in batches: the texts are the big model's own, padded, cut and sampled as they are."""

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
from engine.research import two_models
from engine.research.two_models import (
    BatchSpeculation,
    CachedModel,
    ModelPair,
    agreement,
    generate_and_check,
    speculative_decoding,
)
from engine.sampling.verify import choose
from tests.conftest import tiny_model
from tests.support.command import ROOT, environment

PROMPTS = ["def add(left", "x", "class Point:\n    def __init__(self, x: int", "return\n"]
SAMPLED = {"temperature": 0.8, "top_k": 20, "top_p": 0.9}


@pytest.fixture(scope="module", params=["llama", "gpt2"])
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> ModelPair:
    """Two random models of one tokenizer. They seldom agree. In float64: a padded batch rounds
    otherwise than a row alone, and equality is asked for here."""
    root = tmp_path_factory.mktemp("pair")
    folders = [str(tiny_model(root / str(seed), request.param, seed)) for seed in (1, 2)]
    pair = two_models.load(*folders)
    return replace(pair, little=pair.little.double(), big=pair.big.double())


@pytest.fixture(scope="module")
def twins(pair: ModelPair) -> ModelPair:
    """They always agree."""
    return replace(pair, little=pair.big)


LONGEST = 14  # tokens that the oracle writes


@cache
@torch.inference_mode()
def oracle(pair: ModelPair, prompt: str, request: Request) -> list[int]:
    """The big model, one prompt, no cache, no padding, one token per pass; up to an end token."""
    row = pair.tokenizer.encode(prompt)
    start = len(row)
    while len(row) - start < LONGEST:
        logits = pair.big(input_ids=torch.tensor([row])).logits[0, -1].float()
        token = choose(logits, len(row), request)
        if token in pair.tokenizer.eos:
            break
        row.append(token)
    return row[start:]


def alone(pair: ModelPair, prompt: str, count: int, request: Request) -> tuple[list[int], str]:
    """What the big model writes without a little one, and why it ends."""
    assert count <= LONGEST
    key = request if request.temperature > 0 else Request("complete")
    tokens = oracle(replace(pair, little=None), prompt, key)
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
def test_texts_are_the_big_models_own(
    pair: ModelPair,
    twins: ModelPair,
    prompts: list[str],
    count: int,
    draft: int,
    same: bool,
    sampled: bool,
    seed: int,
) -> None:
    """Greedily and sampled, row by row, whatever is written ahead and however they are padded."""
    options: dict[str, Any] = {"seed": seed, **(SAMPLED if sampled else {})}
    used = twins if same else pair
    found = speculative_decoding(used, prompts, count, draft, **options)
    for n, prompt in enumerate(prompts):
        request = Request("complete", **{**options, "seed": seed + n})
        tokens, reason = alone(pair, prompt, count, request)
        assert (found.tokens[n], found.reasons[n]) == (tokens, reason)
        whole = [*pair.tokenizer.encode(prompt), *tokens]
        assert found.texts[n] == pair.tokenizer.decode(whole)
        assert found.accepted[n] <= min(found.drafted[n], len(tokens))
    assert found.passes <= max(map(len, found.tokens), default=0) + 1


def ending(pair: ModelPair, *tokens: int) -> ModelPair:
    """The same pair where these tokens end a text."""
    import copy

    tokenizer = copy.copy(pair.tokenizer)
    tokenizer.eos = frozenset(tokens)
    return replace(pair, tokenizer=tokenizer)


def test_every_place_of_an_end_token(pair: ModelPair, twins: ModelPair) -> None:
    """In a draft, as a correction, behind a whole draft; of each row by itself."""
    endless = ending(twins)
    texts = [alone(endless, prompt, 12, Request("complete"))[0] for prompt in PROMPTS]
    ended = 0
    for token in sorted({token for text in texts for token in text})[::4]:
        for used in (ending(pair, token), ending(twins, token)):
            found = speculative_decoding(used, PROMPTS, 12, 3)
            for text, tokens, reason in zip(texts, found.tokens, found.reasons, strict=True):
                stop = text.index(token) if token in text else 12
                assert tokens == text[:stop] and reason == ("eos" if stop < 12 else "length")
                ended += stop < 12
    assert ended > 12


def test_agreeing_models_take_few_passes(twins: ModelPair) -> None:
    """A draft of 5 and the token behind it: 6 tokens a pass; a draft's last token is caught up."""
    used = ending(twins)
    found = speculative_decoding(used, PROMPTS, 30, 5)
    assert found.passes == 5 and found.accepted == found.drafted == [25] * 4
    assert speculative_decoding(used, PROMPTS, 30, 0).passes == 30
    assert speculative_decoding(used, PROMPTS, 0).passes == 0
    one = speculative_decoding(used, PROMPTS, 1)
    assert one.passes == 1 and one.drafted == [0] * 4 and one.reasons == ["length"] * 4


def test_drafts_end_with_an_end_token(twins: ModelPair) -> None:
    endless = ending(twins)
    text = alone(endless, PROMPTS[0], 6, Request("complete"))[0]
    used = ending(twins, text[2])
    stop = text.index(text[2])
    row = used.tokenizer.encode(PROMPTS[0])
    (draft,) = BatchSpeculation(used, [row], 20, 6).drafts()
    assert draft.tokens == text[: stop + 1]


# -- checks ----------------------------------------------------------------------------------------


def test_texts_are_given_where_all_rows_agree(pair: ModelPair, twins: ModelPair) -> None:
    used = ending(twins)
    found = generate_and_check(used, PROMPTS, 7)
    expected = [
        used.tokenizer.decode(
            [*used.tokenizer.encode(one), *alone(used, one, 7, Request("complete"))[0]]
        )
        for one in PROMPTS
    ]
    assert found == expected, "prompts and all that was written"
    assert generate_and_check(ending(pair), PROMPTS, 7) is None
    assert generate_and_check(ending(pair), PROMPTS, 0) == PROMPTS


def test_behind_an_end_token_nothing_need_agree(twins: ModelPair) -> None:
    """The notebook's defect: models had to agree on what followed it."""
    text = alone(ending(twins), PROMPTS[0], 9, Request("complete"))[0]
    used = ending(twins, text[3])
    stop = text.index(text[3]) + 1
    (found,) = generate_and_check(used, PROMPTS[:1], 9) or [""]
    whole = [*used.tokenizer.encode(PROMPTS[0]), *text[:stop]]
    assert found == used.tokenizer.decode(whole)
    assert agreement(used, PROMPTS[0], 9) == stop


def test_agreement_is_counted_and_shown(pair: ModelPair, twins: ModelPair) -> None:
    said: list[str] = []
    assert agreement(ending(twins), PROMPTS[0], 6, said.append) == 6
    assert [line.split()[0] for line in said] == ["1", "2", "3", "4", "5", "6"]
    used, counts = ending(pair), set()
    for prompt in PROMPTS:
        big = alone(used, prompt, 6, Request("complete"))[0]
        little = alone(replace(used, big=pair.little), prompt, 6, Request("complete"))[0]
        expected = next((n for n in range(6) if big[n] != little[n]), 6)
        assert agreement(used, prompt, 6) == expected
        counts.add(expected)
    assert counts != {6}


# -- the cache -------------------------------------------------------------------------------------


def test_what_was_taken_back_leaves_no_trace(pair: ModelPair) -> None:
    """Logits behind texts that come and go in a batch are those of each text read afresh."""
    texts = [[[5, 6, 7], [8]], [[5, 6, 9, 9], [8, 1, 2]], [[5, 6], [8, 1, 3, 4]], [[7], [8, 1]]]
    reader = CachedModel(pair.big, 2)
    for step in [*texts, *texts[::-1]]:
        for n, logits in reader.after(step, [True, True]).items():
            with torch.inference_mode():
                fresh = pair.big(input_ids=torch.tensor([step[n]])).logits[0].float()
            assert torch.allclose(logits, fresh[-len(logits) :], atol=1e-4)
    assert reader.width <= 12, "columns that count in no row are given back"
    before = [list(one) for one in reader.read]
    assert list(reader.after([[1, 2], [8, 8]], [False, True])) == [1]
    assert reader.read[0] == before[0]


# -- what is refused, and the example ------------------------------------------------------------


def test_what_cannot_be_written_is_refused(pair: ModelPair) -> None:
    for prompts in ([], [""], ["x", ""]):
        with pytest.raises(ValueError, match="a prompt is empty"):
            speculative_decoding(pair, prompts, 5)
    with pytest.raises(ValueError, match="give 0 or more"):
        speculative_decoding(pair, ["x"], -1)
    with pytest.raises(ValueError, match="temperature -1"):
        speculative_decoding(pair, ["x"], 5, temperature=-1)


def test_models_of_other_tokens_are_refused(tiny: Any, tmp_path: Path) -> None:
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
    assert first.rsplit("\n", 1)[0] == second.rstrip("\n"), "sampled texts of one seed"


def test_a_little_model_may_have_more_ids(pair: ModelPair, tmp_path: Path) -> None:
    """As models have whose embeddings are padded: what the big one has not is never drafted."""
    import copy

    little = copy.deepcopy(pair.big)
    little.resize_token_embeddings(little.config.vocab_size + 9)
    with torch.no_grad():
        little.get_output_embeddings().weight[-9:] = 50.0
        little.get_output_embeddings().weight[-8:] = -50.0
    used = ending(replace(pair, little=little))
    found = speculative_decoding(used, PROMPTS, 12)
    for prompt, tokens in zip(PROMPTS, found.tokens, strict=True):
        assert tokens == alone(used, prompt, 12, Request("complete"))[0]
