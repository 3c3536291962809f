"""Chains of rules and references: what llguidance could not bear is refused before it sees it.

It ends the process where it recurses too deep, so chains are given to a process of their own."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.records import RequestError
from engine.sampling.grammar_depth import MAX_DEPTH, check_rules, check_schema, depth_of

Link = Callable[[dict[str, Any]], dict[str, Any]]

LINKS: dict[str, Link] = {
    "reference": lambda to: to,
    "anyOf": lambda to: {"anyOf": [{"type": "string"}, to]},
    "allOf": lambda to: {"allOf": [to, {"description": "x"}]},
    "properties": lambda to: {"properties": {"a": to}, "required": ["a"]},
    "two properties": lambda to: {"properties": {"a": to, "b": to}},
    "a property named default": lambda to: {"properties": {"default": to}},
    "items": lambda to: {"type": "array", "items": to, "minItems": 1},
    "prefixItems": lambda to: {"prefixItems": [to], "minItems": 1},
    "patternProperties": lambda to: {"patternProperties": {"^a": to}},
    "additionalProperties": lambda to: {"additionalProperties": to},
}
RULES = [
    "a{0}",
    '"x" a{0}',
    '"x" | a{0} a{0}',
    "(a{0})*",
    '["x" a{0}]',
    '("x" ' * 28 + "a{0}" + ")?" * 28,
]
COMPILE = """
import json, sys
from engine.records import RequestError
from engine.sampling.grammar import check_grammar, json_grammar
from engine.sampling.grammar_depth import check_rules
for given in json.load(sys.stdin):
    try:
        if isinstance(given, str):
            check_rules(given)
            check_grammar(given)
        else:
            json_grammar(given)
        print("compiled")
    except RequestError as error:
        print(error)
"""


def chain(link: Link, length: int) -> dict[str, Any]:
    """A schema whose definitions refer to one another in a chain."""
    named = {f"d{number}": link({"$ref": f"#/$defs/d{number + 1}"}) for number in range(length)}
    return {"$ref": "#/$defs/d0", "$defs": {**named, f"d{length}": {"type": "integer"}}}


def rules(body: str, length: int) -> str:
    """A grammar whose rules refer to one another in a chain."""
    lines = [f"a{number}: {body.format(number + 1)}" for number in range(length)]
    return "\n".join(["start: a0", *lines, f'a{length}: "y"'])


def compiled(given: list[Any]) -> list[str]:
    """What each schema or grammar comes to, in a process that a fault may end."""
    done = subprocess.run(
        [sys.executable, "-c", COMPILE],
        input=json.dumps(given),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr[-300:]
    return done.stdout.splitlines()


def test_chains_that_would_end_the_process_are_refused() -> None:
    given: list[Any] = [chain(link, 1_000) for link in LINKS.values()]
    given += [rules(body, 3_000) for body in RULES]
    answers = compiled(given)
    assert len(answers) == len(given)
    for answer in answers:
        assert f"over {MAX_DEPTH}" in answer or "characters, over" in answer


def test_the_deepest_chains_that_are_allowed_do_no_harm() -> None:
    given: list[Any] = []
    for link in LINKS.values():
        first, second = depth_of(chain(link, 1)), depth_of(chain(link, 2))
        fits = 1 + (MAX_DEPTH - first) // (second - first)
        assert depth_of(chain(link, fits)) <= MAX_DEPTH < depth_of(chain(link, fits + 1))
        given.append(chain(link, fits))
    for body in RULES:
        given.append(rules(body, MAX_DEPTH // (1 + body.count("(") + body.count("[")) - 2))
    assert compiled(given) == ["compiled"] * len(given)


@pytest.mark.parametrize(
    "reference",
    ["#/$defs/d{}", "http://a/#/$defs/d{}", "#/%24defs/d{}", "d{}", "#d{}", "http://a/d{}"],
)
def test_references_are_followed_however_they_are_written(reference: str) -> None:
    named = {
        f"d{n}": {"$id": f"d{n}", "$anchor": f"d{n}", "$ref": reference.format(n + 1)}
        for n in range(MAX_DEPTH)
    }
    with pytest.raises(RequestError, match=r"levels deep|too many"):
        check_schema({"$id": "http://a/", "$ref": reference.format(0), "$defs": named})


@given(st.recursive(st.none(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))
def test_the_depth_without_references_is_that_of_the_brackets(value: Any) -> None:
    def depth(one: Any) -> int:
        inner = one.values() if isinstance(one, dict) else one if isinstance(one, list) else None
        return 0 if inner is None else 1 + max(map(depth, inner), default=0)

    assert depth_of(value) == depth(value)


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=14))
def test_no_path_of_references_is_longer_than_the_depth(pairs: list[tuple[int, int]]) -> None:
    schema: dict[str, Any] = {"$ref": "#/0"}
    for number in range(7):
        schema[str(number)] = {"anyOf": [{"$ref": f"#/{to}"} for of, to in pairs if of == number]}

    def longest(part: int, before: frozenset[int]) -> int:
        after = {to for of, to in pairs if of == part} - before - {part}
        return 3 + max((longest(one, before | {part}) for one in after), default=0)

    assert depth_of(schema) >= longest(0, frozenset())


def test_a_tree_of_many_kinds_is_allowed() -> None:
    """Kinds that refer to each other count once each."""
    kinds = {
        f"k{n}": {"type": "object", "properties": {"a": {"$ref": f"#/$defs/k{(n * 7 + 1) % 60}"}}}
        for n in range(60)
    }
    check_schema({"$ref": "#/$defs/k0", "$defs": kinds})


def test_parts_in_each_other_are_counted_in_bounded_work() -> None:
    schema: dict[str, Any] = {"enum": list(range(5_000))}
    for number in range(200):
        schema = {"a": schema, "$ref": "#" + "/a" * number}
    with pytest.raises(RequestError, match="too many"):
        check_schema(schema)


@pytest.mark.parametrize("form", ['{"grammars": [{"json_schema": DEEP}]}', "start: %json DEEP"])
def test_schemas_in_a_grammar_are_measured(form: str) -> None:
    deep = json.dumps(chain(LINKS["properties"], 1_000))
    with pytest.raises(RequestError, match="levels deep"):
        check_rules(form.replace("DEEP", deep))


def test_json_in_a_grammar_that_is_none_is_refused() -> None:
    with pytest.raises(RequestError, match="its JSON"):
        check_rules("start: %json {")
