"""A smaller model as the drafter: unchanged answers, its cache, shared noise, and mismatched pairs.
The models are tiny and random; a model that drafts for itself shows what must be accepted."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.config import Config
from engine.drafting import DraftContext, NullDrafter
from engine.drafting.draft_length import (
    AdaptiveLength,
    ConfidenceStop,
    ConstantLength,
    HeuristicLength,
    OracleLength,
)
from engine.drafting.draft_model import (
    DraftModel,
    PairError,
    SeparateModel,
    check_pair,
    draft_model,
    load_draft,
)
from engine.generate import Generation, generate
from engine.model.torch.torch_target import TorchTarget
from engine.prompts.builder import Prompt
from engine.prompts.tokenizer import Tokenizer
from engine.records import Done, Draft, Request
from engine.sampling.rejection_sampling import probabilities
from tests.conftest import byte_bpe, tiny_model
from tests.model.test_target import begin, load
from tests.support.heads import same_wherever_it_ends
from tests.support.law import SAMPLED, answer, run

PROMPT = [40, 41, 42, 43]
LENGTHS: dict[str, Any] = {
    "constant": ConstantLength,
    "none": lambda: ConstantLength(0),
    "heuristic": HeuristicLength,
    "oracle": lambda: OracleLength([3, 0, 9, 1, 4]),
    "adaptive": AdaptiveLength,
    "confident": lambda: ConfidenceStop(threshold=0.5, bounds=(1, 6)),
    "confident, lagged": lambda: ConfidenceStop(threshold=0.5, bounds=(2, 6), lag=True),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("pairs")


@pytest.fixture(scope="module")
def target(folder: Path) -> TorchTarget:
    return load(tiny_model(folder / "model"), threads=1)


@pytest.fixture(scope="module")
def twin(folder: Path, target: TorchTarget) -> TorchTarget:
    """The same model again, with a cache of its own."""
    return load(folder / "model", threads=1)


@pytest.fixture(scope="module")
def other(folder: Path) -> TorchTarget:
    """A model that agrees only sometimes: the same weights, with some noise in the output head."""
    from safetensors.torch import load_file, save_file

    tiny_model(folder / "other")
    file = folder / "other" / "model.safetensors"
    weights = load_file(file)
    torch.manual_seed(1)
    weights["lm_head.weight"] += 0.15 * torch.randn_like(weights["lm_head.weight"])
    save_file(weights, file, {"format": "pt"})
    return load(folder / "other", threads=1)


@pytest.fixture(scope="module")
def tokenizer(folder: Path, target: TorchTarget) -> Tokenizer:
    return Tokenizer(folder / "model")


@pytest.fixture(scope="module")
def endless(folder: Path, target: TorchTarget) -> Tokenizer:
    tokenizer = Tokenizer(folder / "model")
    tokenizer.eos = frozenset()
    return tokenizer


@pytest.mark.parametrize("options", [{}, SAMPLED, {"temperature": 1.0, "seed": 7}], ids=str)
@pytest.mark.parametrize("name", LENGTHS)
def test_no_draft_length_changes_the_answer(
    target: TorchTarget, other: TorchTarget, endless: Tokenizer, name: str, options: Any
) -> None:
    """Two answers in a row, so that state left over from the first would show in the second."""
    lengths = LENGTHS[name]()
    for ids in (PROMPT, [60]):
        prompt = Prompt(ids, max_tokens=40)
        _, expected = run(target, endless, prompt, NullDrafter(), **options)
        _, done = run(target, endless, prompt, draft_model(other, lengths), **options)
        assert answer(done) == answer(expected)


@pytest.mark.parametrize("options", [{}, SAMPLED], ids=str)
def test_answers_match_at_every_end_position_and_length(
    target: TorchTarget, other: TorchTarget, options: Any
) -> None:
    same_wherever_it_ends(target, PROMPT, lambda: [draft_model(other)], options)


@pytest.mark.parametrize("options", [{}, SAMPLED, {"temperature": 2.0, "seed": 3}], ids=str)
def test_a_model_agrees_with_itself(
    target: TorchTarget, twin: TorchTarget, endless: Tokenizer, options: Any
) -> None:
    """Also under sampling: both use the same noise."""
    prompt = Prompt(PROMPT, max_tokens=42)
    steps, done = run(target, endless, prompt, draft_model(twin, ConstantLength(5)), **options)
    assert done.usage.forwards == 7 and done.usage.accepted == 35
    assert [step.accepted for step in steps if step.prefill is None] == [5] * 7


def test_each_drafted_token_takes_one_pass(
    target: TorchTarget, twin: TorchTarget, endless: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also after a fully accepted draft, whose last token the draft model has not read yet. A long
    prompt is first read in chunks."""
    passes: list[int] = []
    forward, read = twin.forward, twin._read

    def counted(last: int, draft: Draft, hidden: bool = False) -> Any:
        passes.append(1 + len(draft))
        return forward(last, draft, hidden)

    def counted_chunk(chunk: list[int]) -> Any:
        passes.append(-len(chunk))
        return read(chunk)

    monkeypatch.setattr(twin, "forward", counted)
    monkeypatch.setattr(twin, "_read", counted_chunk)
    for prompt in (PROMPT, [44, *PROMPT * 6]):
        passes.clear()
        drafter = draft_model(twin, ConstantLength(5))
        _, done = run(target, endless, Prompt(prompt, max_tokens=42), drafter)
        assert done.usage.drafted == 35 == sum(count > 0 for count in passes)
        assert set(passes[6:]) == {1, 2}
    assert passes[0] == -24


def test_shared_noise_makes_models_agree_more_often(
    target: TorchTarget, other: TorchTarget, endless: Tokenizer
) -> None:
    """Compared with drafts sampled from the same distribution with independent noise."""
    accepted = {}
    for shared in (True, False):
        total = 0
        for seed in range(4):
            drafter = draft_model(other, ConstantLength(1))
            if not shared:
                drafter._add = independent_noise(drafter)  # type: ignore[method-assign]
            prompt = Prompt(PROMPT, max_tokens=40)
            _, done = run(target, endless, prompt, drafter, temperature=0.3, seed=seed)
            total += done.usage.accepted
        accepted[shared] = total
    assert accepted[True] > 1.2 * accepted[False] > 0


def independent_noise(drafter: DraftModel) -> Any:
    def add(draft: Any, logits: Any, position: int, context: DraftContext) -> int:
        token = drafter.dice.pick(probabilities(logits, context.request))
        draft.add(token, len(draft) - 1, 0.5, "independent noise")
        return token

    return add


def test_the_draft_models_cache_matches_the_committed_text(
    target: TorchTarget, other: TorchTarget, endless: Tokenizer, folder: Path
) -> None:
    """Bit for bit, whatever was rejected or accepted."""
    fresh = load(folder / "other", threads=1)
    rounds = 0

    class Watched(DraftModel):
        def propose(self, context: DraftContext, target: Any) -> Any:
            nonlocal rounds
            draft = super().propose(context, target)
            text = [*context.prompt, *context.output, *draft.tokens[:-1]]
            if draft.tokens:
                assert other.tokens == text
                begin(fresh, [*text, 0])
                actual, expected = (model.sequence.cache[0] for model in (other, fresh))
                assert torch.equal(actual[..., : len(text), :], expected[..., : len(text), :])
                rounds += 1
            return draft

    for options in ({}, SAMPLED):
        drafter = Watched(SeparateModel(other), ConstantLength(3))
        _, done = run(target, endless, Prompt(PROMPT, max_tokens=30), drafter, **options)
        assert 0 < done.usage.accepted < done.usage.drafted
    assert rounds > 20


def test_a_long_prompt_is_read_one_chunk_per_round(
    target: TorchTarget, twin: TorchTarget, endless: Tokenizer
) -> None:
    """Drafting starts once the prompt is read; until then, decoding goes on without drafts."""
    twin.pool.sequences.clear()
    prompt = Prompt([40 + n % 50 for n in range(300)], max_tokens=40)
    steps, done = run(target, endless, prompt, draft_model(twin, ConstantLength(4)))
    drafted = [step.drafted for step in steps if step.prefill is None]
    assert drafted[:2] == [0, 0] and min(drafted[2:-1]) == 4
    _, expected = run(target, endless, prompt, NullDrafter())
    assert answer(done) == answer(expected)


def test_a_draft_models_context_may_be_shorter(
    target: TorchTarget, folder: Path, endless: Tokenizer, caplog: pytest.LogCaptureFixture
) -> None:
    short = load(folder / "model", threads=1, max_context=24)
    prompt = Prompt(PROMPT, max_tokens=60)
    _, expected = run(target, endless, prompt, NullDrafter())
    with caplog.at_level(logging.WARNING):
        _, done = run(target, endless, prompt, draft_model(short))
    assert answer(done) == answer(expected) and 10 <= done.usage.accepted <= 20
    (line,) = [record.getMessage() for record in caplog.records]
    assert line == (
        "the draft model cannot continue: its context of 24 tokens is full; decoding without it"
    )


def test_a_draft_model_may_have_a_smaller_vocabulary(
    target: TorchTarget, tmp_path: Path, endless: Tokenizer, caplog: pytest.LogCaptureFixture
) -> None:
    """Models with the same tokenizer may pad their embeddings differently."""
    from safetensors.torch import load_file, save_file

    folder = tiny_model(tmp_path / "narrow")
    weights = load_file(folder / "model.safetensors")
    for name in ("model.embed_tokens.weight", "lm_head.weight"):
        weights[name] = weights[name][:200].contiguous()
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    settings = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(settings | {"vocab_size": 200}))
    narrow = load(folder, threads=1)
    for ids in (PROMPT, [250, 3]):
        prompt = Prompt(ids, max_tokens=30)
        for options in ({}, {"temperature": 3.0}):
            _, expected = run(target, endless, prompt, NullDrafter(), **options)
            _, done = run(target, endless, prompt, draft_model(narrow), **options)
            assert answer(done) == answer(expected)
    assert "it has only 200 tokens; decoding without it" in caplog.text
    prompt = Prompt(PROMPT, max_tokens=30)
    rejection: dict[str, Any] = {"verification": "rejection", "temperature": 1.0}
    _, done = run(target, endless, prompt, draft_model(narrow), **rejection)
    assert isinstance(done, Done) and done.usage.completion_tokens == 30


def test_sampled_drafts_of_the_same_model_are_all_accepted(
    target: TorchTarget, twin: TorchTarget, other: TorchTarget, endless: Tokenizer
) -> None:
    """Rejection sampling with p = q rejects nothing; drafts of another model are sometimes
    rejected."""
    for drafting, lowest, highest in ((twin, 1.0, 1.0), (other, 0.0, 0.95)):
        drafter = draft_model(drafting, ConstantLength(5))
        prompt = Prompt(PROMPT, max_tokens=42)
        request = Request("complete", temperature=0.5, top_p=0.9, seed=5)
        *_, done = generate(
            Generation(request, prompt, endless, target.context, verification="rejection"),
            target,
            drafter,
        )
        assert isinstance(done, Done)
        assert lowest <= done.usage.accepted / done.usage.drafted <= highest


# -- pairs -----------------------------------------------------------------------------------------


def test_pairs_with_different_tokenizers_raise_one_line_errors(
    folder: Path, tmp_path: Path
) -> None:
    tokenizer = Tokenizer(folder / "model")
    wrong = tiny_model(tmp_path / "wrong")
    byte_bpe(wrong, 290)
    config = Config(model="big-one", device="cpu", dtype="f32")
    with pytest.raises(PairError) as caught:
        load_draft(str(wrong), config, tokenizer)
    line = str(caught.value)
    assert "\n" not in line and "big-one" in line and str(wrong) in line
    assert line.endswith("choose a draft model of the same tokenizer")
    assert "token 290 is missing in" in line
    spec = json.loads((folder / "model" / "tokenizer.json").read_text())
    vocab = spec["model"]["vocab"]
    first, second = [word for word, number in sorted(vocab.items()) if number in (70, 71)]
    vocab[first], vocab[second] = vocab[second], vocab[first]
    (wrong / "tokenizer.json").write_text(json.dumps(spec))
    with pytest.raises(PairError, match=f"token 70 is .* in {wrong}, "):
        check_pair("big-one", tokenizer, str(wrong), Tokenizer(wrong))


def test_a_pair_with_the_same_tokenizer_is_loaded(folder: Path, target: TorchTarget) -> None:
    config = Config(model="big-one", device="cpu", dtype="f32", threads=1)
    found = load_draft(str(folder / "model"), config, Tokenizer(folder / "model"))
    assert found.vocab == target.vocab and found is not target


def test_a_prompt_is_read_in_one_round_in_passes_of_static_shape(tiny: Any) -> None:
    """As on a card, where a target may leave the last tokens of a prompt to its next pass."""
    model = load(tiny("llama"), graphs="static")
    text = [5 + n % 90 for n in range(50)]
    assert SeparateModel(model).prepare(text, 8) == 8
    assert model.tokens == text[:-1]
