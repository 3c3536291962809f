"""Requests that change logits or ask for probabilities: as a plain rule says, with any draft."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.drafting import NullDrafter
from engine.generate import Generation, generate
from engine.prompts.builder import Prompt
from engine.prompts.tokenizer import Tokenizer
from engine.records import Done, Request, RequestError, Step
from engine.sampling.choices import check_tokens, likeliest
from engine.sampling.grammar import Grammars, json_grammar
from engine.sampling.verify import choose, warp
from tests.conftest import HashTarget
from tests.support import law
from tests.support.drafters import drafters
from tests.support.law import SAMPLED, answer

tokenizer = law.tokenizer  # fixture
VOCAB, IDS, ROOM = 11, [3, 1, 2], 40
LOGITS = st.floats(-4, 4, width=16)
CHANGES = st.fixed_dictionaries(
    {},
    optional={
        "logit_bias": st.dictionaries(st.integers(0, VOCAB - 1), LOGITS, max_size=4).map(
            lambda found: tuple(found.items())
        ),
        "presence_penalty": st.floats(-2, 2, width=16),
        "frequency_penalty": st.floats(-2, 2, width=16),
        "repetition_penalty": st.sampled_from([0.5, 1.0, 1.3, 5.0]),
        "min_tokens": st.integers(0, 50),
        "ignore_end": st.booleans(),
        "stop_tokens": st.lists(st.integers(0, VOCAB - 1), max_size=2).map(tuple),
        "min_p": st.sampled_from([0.0, 0.01, 0.2, 1.0]),
        "logprobs": st.integers(0, 5),
    },
)


def written(
    target: HashTarget, tokenizer: Tokenizer, request: Request, drafter: Any, grammar: Any = None
) -> tuple[Done, list[int], list[Any]]:
    """An answer, its tokens, and the chances that its steps tell."""
    prompt = Prompt(IDS, max_tokens=ROOM, stop=request.stop)
    generation = Generation(request, prompt, tokenizer, target.context, grammar=grammar)
    *steps, done = generate(generation, target, drafter)
    assert isinstance(done, Done)
    told = [entry for step in steps if isinstance(step, Step) for entry in step.logprobs]
    return done, generation.output, told


def naive(target: HashTarget, request: Request, ends: frozenset[int]) -> list[int]:
    """The tokens of an answer by the rules one by one, without the code that is tested."""
    out: list[int] = []
    while len(out) < ROOM:
        row = target.row([*IDS, *out]).numpy().copy()
        for token in range(VOCAB):
            if token in {*IDS, *out}:
                factor = np.float32(request.repetition_penalty)
                row[token] = row[token] / factor if row[token] > 0 else row[token] * factor
            if count := out.count(token):
                frequency = np.float32(count) * np.float32(request.frequency_penalty)
                row[token] -= np.float32(request.presence_penalty) + frequency
            row[token] += np.float32(dict(request.logit_bias).get(token, 0.0))
            early = len(out) < request.min_tokens
            if (token in ends and (request.ignore_end or early)) or (
                token in request.stop_tokens and early
            ):
                row[token] = -np.inf
        token = choose(row, len(IDS) + len(out), request)
        if token in ends or token in request.stop_tokens:
            break
        out.append(token)
    return out


@settings(max_examples=60)
@given(st.integers(0, 99), st.booleans(), CHANGES)
def test_no_drafter_changes_an_answer_whose_request_changes_logits(
    tokenizer: Tokenizer, seed: int, sampled: bool, changes: dict[str, Any]
) -> None:
    """Its tokens are those that the rules choose one by one; the chances of all are the same."""
    target = HashTarget(VOCAB, seed=seed)
    request = Request("complete", seed=seed, **(SAMPLED if sampled else {}), **changes)
    expected, tokens, chances = written(target, tokenizer, request, NullDrafter())
    assert tokens == naive(target, request, tokenizer.eos)
    assert len(chances) == (0 if request.logprobs is None else len(tokens))
    for name, drafter in drafters([*tokens, *range(VOCAB)], VOCAB).items():
        done, others, told = written(target, tokenizer, request, drafter)
        assert (answer(done), others, told) == (answer(expected), tokens, chances), name


@settings(max_examples=30)
@given(st.integers(0, 99), st.booleans(), st.integers(0, VOCAB + 2), CHANGES)
def test_chances_are_the_models_own(
    tokenizer: Tokenizer, seed: int, sampled: bool, count: int, changes: dict[str, Any]
) -> None:
    """They are those of its logits, whatever the request changes."""
    target = HashTarget(VOCAB, seed=seed)
    changes |= {"logprobs": count}
    request = Request("complete", seed=seed, **(SAMPLED if sampled else {}), **changes)
    _, tokens, told = written(target, tokenizer, request, NullDrafter())
    for place, (own, *others) in enumerate(told):
        logits = target.row([*IDS, *tokens[:place]]).double()
        values = logits.log_softmax(-1).tolist()
        assert bytes(own.data) == tokenizer.bytes_of(tokens[place])
        assert own.logprob == pytest.approx(values[tokens[place]], abs=1e-12)
        best = sorted(range(VOCAB), key=lambda token: (-values[token], token))[:count]
        assert [bytes(other.data) for other in others] == [*map(tokenizer.bytes_of, best)]
        found = [other.logprob for other in others]
        assert found == pytest.approx([values[token] for token in best], abs=1e-12)


@settings(max_examples=20)
@given(st.integers(0, 99), st.booleans(), st.integers(0, 3))
def test_chances_of_the_prompt_precede_those_of_the_answer(
    tokenizer: Tokenizer, seed: int, sampled: bool, count: int
) -> None:
    target, sampling = HashTarget(VOCAB, seed=seed), SAMPLED if sampled else {}
    request = Request("complete", seed=seed, logprobs=count, **sampling)
    _, tokens, chances = written(target, tokenizer, request, NullDrafter())
    request = replace(request, prompt_logprobs=True)
    for name, drafter in drafters([*tokens, *range(VOCAB)], VOCAB).items():
        _, others, (first, *told) = written(target, tokenizer, request, drafter)
        assert (others, told[len(IDS) - 1 :]) == (tokens, chances), name
        assert [(bytes(one.data), one.logprob) for one in first] == [
            (tokenizer.bytes_of(IDS[0]), None)
        ]
        for place, (own, *likeliest_ones) in enumerate(told[: len(IDS) - 1], 1):
            values = target.row(IDS[:place]).double().log_softmax(-1).tolist()
            assert own.logprob == pytest.approx(values[IDS[place]], abs=1e-12)
            best = sorted(range(VOCAB), key=lambda token: (-values[token], token))[:count]
            assert [bytes(one.data) for one in likeliest_ones] == [*map(tokenizer.bytes_of, best)]


@settings(max_examples=20)
@given(st.integers(0, 99), st.booleans(), st.integers(0, 3))
def test_chances_of_an_answer_with_a_grammar(
    tokenizer: Tokenizer, seed: int, sampled: bool, count: int
) -> None:
    """Every token has some, forced ones too, and the answer is the one without them."""
    target, grammars = HashTarget(300, seed=seed), Grammars(tokenizer)
    schema = {"type": "object", "properties": {"name_of_it": {"type": "boolean"}}}
    text = json_grammar(schema | {"required": ["name_of_it"], "additionalProperties": False})
    sampling = SAMPLED if sampled else {}

    def start() -> Any:
        return grammars.start(text, tokenizer.eos)

    plain = Request("complete", seed=seed, **sampling)
    request = Request("complete", seed=seed, logprobs=count, **sampling)
    expected, tokens, _ = written(target, tokenizer, plain, NullDrafter(), start())
    _, _, chances = written(target, tokenizer, request, NullDrafter(), start())
    assert len(chances) == len(tokens)
    for name, drafter in drafters([*tokens, *range(99)], 300).items():
        done, others, told = written(target, tokenizer, request, drafter, start())
        assert (answer(done), others, told) == (answer(expected), tokens, chances), name


def test_a_stop_string_ends_the_chances_with_the_tokens(tokenizer: Tokenizer) -> None:
    tokenizer.eos, kept = frozenset(), tokenizer.eos
    target = HashTarget(120, seed=9)
    whole, truth, _ = written(target, tokenizer, Request("complete"), NullDrafter())
    request = Request("complete", stop=(whole.text[9:12],), logprobs=0)
    for drafter in (NullDrafter(), drafters(truth, 120)["right"]):
        done, tokens, told = written(target, tokenizer, request, drafter)
        assert done.matched and len(told) == len(tokens) == done.usage.completion_tokens
    tokenizer.eos = kept


@given(st.lists(st.floats(-9, 9, width=16), min_size=1, max_size=30), st.sampled_from([0.1, 0.5]))
def test_min_p_keeps_what_is_likely_enough(row: list[float], least: float) -> None:
    logits = np.array(row, np.float32)
    ids, _ = warp(logits, Request("complete", temperature=1.0, min_p=least))
    shares = np.exp(logits.astype(np.float64) - logits.max())
    clear = np.abs(shares - least) > 1e-6
    assert all((number in ids) == (shares[number] > least) for number in np.flatnonzero(clear))


@given(st.lists(st.integers(0, 4), min_size=1, max_size=20), st.integers(1, 25))
def test_the_likeliest_are_the_first_of_all_in_order(row: list[int], count: int) -> None:
    order = sorted(range(len(row)), key=lambda token: (-row[token], token))
    assert likeliest(np.array(row, np.float64), count) == order[:count]


def test_ids_outside_the_vocabulary_are_named() -> None:
    for name, options in (
        ("logit_bias", {"logit_bias": ((7, 1.0),)}),
        ("stop_token_ids", {"stop_tokens": (7,)}),
    ):
        request = Request("complete", **options)  # type: ignore[arg-type]
        check_tokens(request, 8)
        with pytest.raises(RequestError, match=f"^{name}: .*0 to 6"):
            check_tokens(request, 7)
