"""Answers that follow a grammar: they fit it, and are the same with any draft or none."""

from __future__ import annotations

import json
import math
import re
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.drafting import NullDrafter
from engine.editing.merge_ways import MergeWays, Run
from engine.generate import Generation, generate
from engine.prompts.builder import Prompt
from engine.prompts.line_grammar import ways_grammar
from engine.prompts.tokenizer import Tokenizer
from engine.records import Done, Draft, Request, RequestError, Step
from engine.sampling.grammar import Grammars, check_grammar, json_grammar
from tests.conftest import HashTarget
from tests.editing.test_merge_ways import graphs
from tests.support import law
from tests.support.drafters import drafters
from tests.support.law import SAMPLED, answer, run

tokenizer = law.tokenizer  # fixture
VOCAB = 300
ENDS = frozenset({2})

SCHEMAS: list[dict[str, Any]] = [
    {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
    {"enum": ["red", "green", 7, None]},
    {"type": "array", "items": {"type": "boolean"}, "minItems": 2, "maxItems": 4},
    {
        "type": "object",
        "properties": {"name": {"type": "string", "maxLength": 8}, "big": {"type": "boolean"}},
        "required": ["name", "big"],
        "additionalProperties": False,
    },
]


@settings(max_examples=20)
@given(st.integers(0, 99), st.booleans(), st.sampled_from(SCHEMAS), st.integers(0, 60))
def test_no_drafter_changes_an_answer_with_a_grammar(
    tokenizer: Tokenizer, seed: int, sampled: bool, schema: dict[str, Any], room: int
) -> None:
    """A draft may be of anything: the model's own text without the grammar, or noise."""
    options = {"seed": seed, **(SAMPLED if sampled else {})}
    target, grammars = HashTarget(VOCAB, seed=seed), Grammars(tokenizer)
    prompt, text = Prompt([5, 6], max_tokens=room), json_grammar(schema)

    def start() -> Any:
        return grammars.start(text, tokenizer.eos)

    _, expected = run(target, tokenizer, prompt, NullDrafter(), grammar=start(), **options)
    if expected.reason == "stop":
        jsonschema.validate(json.loads(expected.text), schema)
    truth = target.tokens[2:]
    prompt.predictions = [truth]
    for name, drafter in drafters(truth, VOCAB).items():
        _, done = run(target, tokenizer, prompt, drafter, grammar=start(), **options)
        assert answer(done) == answer(expected), name


class Forced(NullDrafter):
    """Drafts nothing, but takes what the grammar forces without a pass."""

    takes_forced = True


@settings(max_examples=20)
@given(graphs(), st.integers(0, 99), st.booleans(), st.integers(0, 60), st.integers(1, 9))
def test_no_drafter_changes_an_answer_that_has_few_choices(
    tokenizer: Tokenizer, ways: MergeWays, seed: int, sampled: bool, room: int, every: int
) -> None:
    """Nor does another request that runs in between, or a limit."""
    options = {"seed": seed, **(SAMPLED if sampled else {})}
    target, grammars = HashTarget(VOCAB, seed=seed), Grammars(tokenizer)
    prompt, text = Prompt([5, 6], max_tokens=room), ways_grammar(ways, "```")

    def start() -> Any:
        return grammars.start(text, tokenizer.eos)

    _, expected = run(target, tokenizer, prompt, NullDrafter(), grammar=start(), **options)
    if expected.reason == "stop":
        assert ways.allow(expected.text.split("\n")[:-1])
    prompt.predictions = [target.tokens[2:]]
    known = {**drafters(target.tokens[2:], VOCAB), "forced": Forced()}
    for name, drafter in known.items():
        _, done = run(target, tokenizer, prompt, drafter, grammar=start(), **options)
        assert answer(done) == answer(expected), name
    generation = Generation(
        Request("complete", **options), prompt, tokenizer, target.context, grammar=start()
    )
    for number, event in enumerate(generate(generation, target, Forced())):
        if number in (every, 2 * every):
            target.begin([9, 9, 9], 1)
        last = event
    assert isinstance(last, Done) and answer(last) == answer(expected)


def test_text_without_a_choice_takes_no_pass(tokenizer: Tokenizer) -> None:
    ways = MergeWays([[], [Run(("def f(): pass",) * 9, 0)]], 1)
    grammar = Grammars(tokenizer).start(ways_grammar(ways, "```"), tokenizer.eos)
    prompt = Prompt([5], stop=("\n```",), max_tokens=300)
    steps, done = run(HashTarget(VOCAB), tokenizer, prompt, Forced(), grammar=grammar)
    assert (done.text, done.reason) == ("\n".join(["def f(): pass"] * 9), "stop")
    assert done.usage.forwards == 0 < done.usage.completion_tokens
    assert "".join(step.text for step in steps) == done.text


def test_reading_text_without_a_choice_can_be_cancelled(tokenizer: Tokenizer) -> None:
    ends = [Run((one,), 0) for one in "ab"]
    ways = MergeWays([[], ends, [Run(("def f(): pass",) * 9, 1)]], 2)
    grammar = Grammars(tokenizer).start(ways_grammar(ways, "```"), tokenizer.eos)
    prompt, target = Prompt([5], max_tokens=300), HashTarget(VOCAB)
    answer = Generation(Request("complete"), prompt, tokenizer, 400, grammar=grammar)
    asked = iter([False, False, True])  # after the prompt and after the second chunk
    *steps, done = generate(answer, target, Forced(), lambda: next(asked, True))
    assert isinstance(done, Done) and done.reason == "cancelled"
    assert done.text.startswith("def f(): pass\n" * 8)
    assert "".join(step.text for step in steps if isinstance(step, Step)) == done.text


@pytest.mark.parametrize("schema", SCHEMAS)
def test_answers_end_and_fit(tokenizer: Tokenizer, schema: dict[str, Any]) -> None:
    ended = 0
    for seed in range(10):
        state = Grammars(tokenizer).start(json_grammar(schema), tokenizer.eos)
        target, prompt = HashTarget(VOCAB, seed=seed), Prompt([5], max_tokens=300)
        _, done = run(target, tokenizer, prompt, NullDrafter(), grammar=state)
        if done.reason == "stop":
            jsonschema.validate(json.loads(done.text), schema)
            ended += 1
    assert ended, "no answer ended, so none was checked"


STRING = re.compile(r'"(?:[^"\\]|\\.)*(?:"|$)', re.DOTALL)  # in JSON; the last may not end
SCALARS = st.sampled_from(
    [{"type": "boolean"}, {"type": "null"}, {"enum": ["a  b", 7]},
     {"type": "string", "maxLength": 3}, {"type": "integer", "minimum": 0, "maximum": 99}]
)  # fmt: skip


def containers(inner: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    """Schemas of short arrays, and of objects with known properties."""
    arrays = inner.map(lambda one: {"type": "array", "items": one, "maxItems": 3})
    objects = st.dictionaries(st.sampled_from(["a", "b b", "c"]), inner, max_size=3).map(
        lambda found: {"type": "object", "properties": found, "additionalProperties": False}
    )
    return arrays | objects


FINITE_SCHEMAS = st.recursive(SCALARS, containers, max_leaves=4)


class BlankTarget(HashTarget):
    """A target that prefers blanks to all other tokens, and several to one."""

    def __init__(self, tokenizer: Tokenizer, seed: int = 0) -> None:
        super().__init__(VOCAB, seed=seed)
        self.bonus = [
            100.0 + len(one) if one and not one.strip(b" \t\r\n") else 0.0
            for one in tokenizer.token_bytes[:VOCAB]
        ]

    def row(self, text: list[int]) -> Any:
        import torch

        bonus = torch.tensor(self.bonus + [0.0] * (VOCAB - len(self.bonus)))
        return super().row(text) + bonus


def blank_runs(text: str) -> list[str]:
    """The blanks between the parts of a JSON text, which may not end."""
    return re.findall(r"[ \t\r\n]+", STRING.sub("s", text))


@settings(max_examples=20)
@given(FINITE_SCHEMAS, st.integers(0, 99), st.booleans(), st.booleans())
def test_an_answer_in_a_format_has_few_blanks(
    tokenizer: Tokenizer, schema: dict[str, Any], seed: int, sampled: bool, pretty_draft: bool
) -> None:
    """Also of a model that would write nothing else, with a draft of indented JSON or none."""
    options = {"seed": seed, **(SAMPLED if sampled else {})}
    target, prompt = BlankTarget(tokenizer, seed), Prompt([5], max_tokens=390)

    def start() -> Any:
        return Grammars(tokenizer).start(json_grammar(schema), tokenizer.eos)

    _, done = run(target, tokenizer, prompt, NullDrafter(), grammar=start(), **options)
    assert done.reason == "stop"
    value = json.loads(done.text)
    jsonschema.validate(value, schema)
    assert all(len(one) == 1 for one in blank_runs(done.text))
    indented = json.dumps(value, indent=2) if pretty_draft else done.text
    prompt.predictions = [tokenizer.encode(indented)]
    for name, drafter in drafters(tokenizer.encode(indented), VOCAB).items():
        _, drafted = run(target, tokenizer, prompt, drafter, grammar=start(), **options)
        assert answer(drafted) == answer(done), name


BLANKS_OF_CLIENTS = [
    {},
    {"whitespace_pattern": r"[ \r\n]+"},
    {"whitespace_flexible": True},
    {"whitespace_flexible": False},
    {"item_separator": ", *", "key_separator": " *: *"},
    {"whitespace_flexible": False, "item_separator": "\n*,"},
]


@pytest.mark.parametrize("options", BLANKS_OF_CLIENTS, ids=str)
@pytest.mark.parametrize("schema", [{"type": "object"}, {"type": "array"}, {}], ids=str)
def test_no_option_of_a_schema_allows_many_blanks(
    tokenizer: Tokenizer, schema: dict[str, Any], options: dict[str, Any]
) -> None:
    text = json_grammar(schema | {"x-guidance": options})
    for seed in range(4):
        state = Grammars(tokenizer).start(text, tokenizer.eos)
        target, prompt = BlankTarget(tokenizer, seed), Prompt([5], max_tokens=60)
        _, done = run(target, tokenizer, prompt, NullDrafter(), grammar=state)
        assert all(len(one) == 1 for one in blank_runs(done.text))
        assert done.text.strip() or done.reason == "stop"


def test_a_schema_with_options_that_are_none_is_refused() -> None:
    with pytest.raises(RequestError, match="cannot be enforced"):
        json_grammar({"type": "object", "x-guidance": []})


@given(st.lists(st.integers(0, 299), max_size=40), st.data())
def test_what_is_pruned_is_what_the_grammar_forbids(
    tokenizer: Tokenizer, tokens: list[int], data: st.DataObject
) -> None:
    """The oracle asks for the mask after every path of the tree, from the root each time."""
    chars = st.sampled_from([*tokenizer.encode('{"a": 12}'), *tokenizer.eos])
    draft = Draft()
    for token in tokens:
        one = data.draw(chars | st.just(token))
        draft.add(one, data.draw(st.integers(-1, len(draft) - 1)), 1.0, "x")
    grammars, text = Grammars(tokenizer), json_grammar(SCHEMAS[0])

    def allowed(node: int) -> bool:
        path = [node]
        while draft.parents[path[0]] >= 0:
            path.insert(0, draft.parents[path[0]])
        state = grammars.start(text, tokenizer.eos)
        for at in path[:-1]:
            if draft.tokens[at] in tokenizer.eos or not state._allowed(VOCAB)[draft.tokens[at]]:
                return False
            state.advance(draft.tokens[at])
        last = draft.tokens[node]
        return last in tokenizer.eos or bool(state._allowed(VOCAB)[last])

    kept = [node for node in range(len(draft)) if allowed(node)]
    state = grammars.start(text, tokenizer.eos)
    before = state._allowed(VOCAB).copy()
    assert state.pruned(draft).tokens == draft.only(kept).tokens
    assert (state._allowed(VOCAB) == before).all()  # the state is where it was


def test_schemas_that_cannot_be_enforced(tokenizer: Tokenizer) -> None:
    for schema in ({"type": "fish"}, {"$ref": "#/nowhere"}, {"type": "string", "pattern": "("}):
        with pytest.raises(RequestError) as caught:
            json_grammar(schema)
        assert "\n" not in str(caught.value) and "schema" in str(caught.value)
    with pytest.raises(RequestError, match="100,000"):
        json_grammar({"enum": ["x" * 100_001]})
    with pytest.raises(RequestError, match="grammar"):
        Grammars(tokenizer).start("no grammar", ENDS)


def test_what_is_too_complex_is_refused_before_an_answer(tokenizer: Tokenizer) -> None:
    grammar = json_grammar({"type": "string", "pattern": "(a?)" * 9_000})
    with pytest.raises(RequestError, match=r"^the grammar is too complex: lexer error") as caught:
        Grammars(tokenizer).start(grammar, ENDS)
    assert "<" not in str(caught.value)


@pytest.mark.parametrize("number", [-(10**19), 2**64, 10**30, 10**400, math.inf, math.nan])
def test_numbers_of_any_size_are_taken_or_refused(number: float) -> None:
    json_grammar({"const": 2**53})
    for schema in ({"const": number}, {"type": "integer", "minimum": number}, {"x": [number]}):
        try:
            check_grammar(json_grammar(schema))
        except RequestError as error:
            assert "the schema cannot be enforced" in str(error)


@pytest.mark.parametrize(
    ("schema", "part"),
    [
        ({"type": "fish"}, "the schema cannot"),
        ({"properties": {"a": {"type": "fish"}}}, "properties.a cannot"),
        ({"anyOf": [{"type": "string"}, {"type": "string", "pattern": "("}]}, "anyOf.1 cannot"),
        ({"$ref": "#/$defs/x", "$defs": {"x": {"type": "fish"}}}, "$defs.x cannot"),
        ({"enum": [{}, 1], "required": ["a"], "allOf": [{}, {"type": "fish"}]}, "allOf.1 cannot"),
        ({"properties": {key: {} for key in map(str, range(300))} | {"q": {"type": "fish"}}},
         "properties cannot"),
    ],
)  # fmt: skip
def test_the_part_that_cannot_be_enforced_is_named(schema: dict[str, Any], part: str) -> None:
    """As far as it is found in bounded time; the schema is left as it was."""
    before = json.dumps(schema)
    with pytest.raises(RequestError) as caught:
        json_grammar(schema)
    assert part in str(caught.value)
    assert json.dumps(schema) == before
