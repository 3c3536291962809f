"""Next edits that are certain: calls for a changed signature, written without a model."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from lsp_server.next_edit.candidate import Candidate
from lsp_server.next_edit.rules import find_candidates
from tests.support.edited_files import A, edited

NAMES = ["alpha", "beta", "gamma", "delta"]


def by_rule(text: str, *steps: tuple[str, str]) -> list[tuple[str, str]]:
    """(old lines, new lines) of what is written without a model after some edits of a file."""
    edits, now, uri, cursor = edited({A: text}, *[(A, *step) for step in steps])
    found = find_candidates(edits, now, uri, cursor)
    return [(lines(now, one), one.expected.strip()) for one in found if not one.instruction]


def lines(texts: dict[str, str], one: Candidate) -> str:
    return texts[one.uri][one.start : one.stop].strip()


@st.composite
def signatures(draw: st.DrawFn) -> str:
    """Parameters of a function: required ones, then some with defaults, then keywords."""
    names = draw(st.lists(st.sampled_from(NAMES), unique=True, max_size=4))
    first = draw(st.integers(0, len(names)))
    star = draw(st.integers(first, len(names)))
    given = [name if n < first else f"{name}={n}" for n, name in enumerate(names)]
    if star < len(names):
        given.insert(star, "*")
    return ", ".join(given)


@given(signatures(), signatures(), st.data())
def test_a_call_for_a_new_signature_gives_each_parameter_what_it_gave_it(
    was: str, now: str, data: st.DataObject
) -> None:
    """Python itself binds both calls: the oracle."""
    assume(was != now)
    space: dict[str, Any] = {}
    exec(f"def old({was}): pass\ndef new({now}): pass", space)  # the oracle
    old, new = (inspect.signature(space[name]) for name in ("old", "new"))
    arguments: list[str] = []
    for name, parameter in old.parameters.items():
        if parameter.default is inspect.Parameter.empty or data.draw(st.booleans()):
            by_name = parameter.kind is inspect.Parameter.KEYWORD_ONLY or "=" in str(arguments)
            arguments.append(f"{name}='{name}'" if by_name else f"'{name}'")
    call = f"name({', '.join(arguments)})"
    text = f"def name({was}):\n    pass\n\n{call}\n"
    for _, made in by_rule(text, (f"({was})", f"({now})")):
        before, after = _bound(old, call), _bound(new, made)
        removed, added = ([p for p in a if p not in b] for a, b in _both(old, new))
        renamed = dict(zip(added, removed, strict=True)) if len(removed) == len(added) == 1 else {}
        for name, value in after.items():
            assert value == before[renamed.get(name, name)]
        kept = {name for name in before if name in new.parameters}
        assert kept <= after.keys()


def _both(old: inspect.Signature, new: inspect.Signature) -> list[tuple[list[str], list[str]]]:
    first, second = [*old.parameters], [*new.parameters]
    return [(first, second), (second, first)]


def _bound(signature: inspect.Signature, call: str) -> dict[str, str]:
    bind: Callable[..., inspect.BoundArguments] = signature.bind
    return dict(eval(call, {"name": bind}).arguments)


@pytest.mark.parametrize(
    ("text", "step", "made"),
    [
        ("def f(a, b):\n    pass\n\nf(1, 2)\n", ("(a, b)", "(a)"), ["f(1)"]),
        ("def f(a, b):\n    pass\n\nf(1, b=2)\n", ("(a, b)", "(a)"), ["f(1)"]),
        ("def f(a, b):\n    pass\n\nf(1, b=2)\n", ("(a, b)", "(a, c)"), ["f(1, c=2)"]),
        ("def f(a):\n    pass\n\ndef g(x, b):\n    f(x)\n", ("(a)", "(a, b)"), ["f(x, b)"]),
        ("def f(a):\n    pass\n\ndef g(x, b):\n    f(x)\n", ("(a)", "(a, *, b)"), ["f(x, b=b)"]),
        ("def f(a):\n    pass\n\ndef g(x):\n    f(x)\n", ("(a)", "(a, b)"), []),  # what is b?
        ("def f(a):\n    pass\n\nf(1)\n\ndef g(b): pass\n", ("(a)", "(a, b)"), []),
        ("def f(a):\n    pass\n\nf(*x)\n", ("(a)", "()"), []),
        ("def f(a, *b):\n    pass\n\nf(1, 2)\n", ("(a, *b)", "(a)"), []),
        ("class A:\n    def f(self, a): pass\n\nx.f(1)\n", ("self, a", "self"), []),
        ("class A:\n    def f(self, a): super().f(1)\n", ("self, a", "self"), []),
        ("class A:\n    def f(self, a): self.b.f(1)\n", ("self, a", "self"), []),
        ("class A:\n    def f(self, a): pass\n\nA.f(1)\n", ("self, a", "self"), ["A.f()"]),
        (
            "class A:\n    def f(self, a): pass\n\n    def g(self):\n        self.f(1)\n",
            ("self, a", "self"),
            ["self.f()"],
        ),
        (
            "class A:\n    def f(self, a): pass\n\nclass B:\n    def f(self, a): self.f(1)\n",
            ("self, a", "self"),
            [],
        ),
        ("def f(a, b):\n    pass\n\nf(1, 2) + f(3, 4)\n", ("(a, b)", "(a)"), ["f(1) + f(3)"]),
        ("def f(a, b):\n    pass\n\nf(f(1, 2), 3)\n", ("(a, b)", "(a)"), []),  # one in the other
    ],
)
def test_calls_of_a_changed_signature(text: str, step: tuple[str, str], made: list[str]) -> None:
    assert [new for _, new in by_rule(text, step)] == made
