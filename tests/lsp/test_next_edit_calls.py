"""Next-edit rules for signatures and repetition, and which of the model's answers are rejected."""

from __future__ import annotations

import pytest

from engine.editing import signatures
from engine.editing.signatures import Signature, call_fits, find_calls, find_signatures
from engine.editing.syntax import parse
from lsp_server.next_edit import rules
from lsp_server.next_edit.candidate import Candidate, rejection_reason
from lsp_server.next_edit.rules import find_candidates
from tests.support.edited_files import OPEN, A, B, Step, candidate_lines, edited, expected_changes

# -- signature ---------------------------------------------------------------------------------


def test_calls_that_no_longer_fit() -> None:
    found = candidate_lines(OPEN, (A, "width, height", "width, height, depth"))
    assert [one.split("\n")[0] for one in found] == [
        "return area(width, 2) + area(",
        'print(area(1, 2), f"{LIMIT} LIMIT", Box().size)',
        "x = area(3, 4)",
        "y = min(LIMIT, Box().size) + shapes.area(5, 6)",
    ]
    assert candidate_lines(OPEN, (A, "width, height", "width, height, depth=1")) == []
    text = "def f(a):\n    pass\n\nf(1)\nf(1, 2)\nf(*args)\nx.f(1)\n# f(1)\nf(a=1)\nf(b=1)\n"
    assert candidate_lines({A: text}, (A, "(a)", "(a, b)")) == ["f(1)", "f(a=1)"]


def test_a_parameter_added_to_a_constructor_on_several_lines() -> None:
    text = "class A:\n    def __init__(\n        self,\n        a,\n    ):\n        pass\n\nA(1)\n"
    assert candidate_lines({A: text}, (A, "        a,\n", "        a,\n        b,\n")) == ["A(1)"]


@pytest.mark.parametrize(
    ("head", "call", "fit"),
    [
        ("def f(a, b=1)", "f(1)", True),
        ("def f(a, b=1)", "f(1, 2, 3)", False),
        ("def f(a, *, b)", "f(1, 2)", False),
        ("def f(a, *, b)", "f(1, b=2)", True),
        ("def f(a, *rest, **more)", "f(1, 2, x=3)", True),
        ("def f(self, a: dict[str, int], /)", "f({1: 2, 3: 4})", True),
        ("def f(a)", "f(a=1)", True),
        ("def f(a)", "f(1, a=1)", False),
        ("def f(a)", "f(x == 1)", True),
        ("def f(a)", 'f("a, b")', True),
        ("def f(a, b)", "f(*x)", True),
        ("def f()", "f()", True),
        ("def f(a)", "f()", False),
    ],
)
def test_whether_a_call_fits(head: str, call: str, fit: bool) -> None:
    tree = parse("a.py", text := f"{head}: pass\n{call}\n")
    assert tree
    (found,) = find_signatures(tree, 0, len(text))
    (given,) = find_calls(tree, {text.index(f"\n{call}") + 1})
    assert call_fits(found, given) == fit


@pytest.mark.parametrize("count", [1, 9, 400])
def test_a_file_is_read_once_however_many_calls_it_has(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is said of a changed signature is the same for all calls of a file."""
    read = []

    def recorded(*args: Signature) -> list[str]:
        read.append(args)
        return missing(*args)

    missing = signatures.missing_parameters
    monkeypatch.setattr(rules, "missing_parameters", recorded)
    calls = "".join(f"def f{number}():\n    return area({number})\n" for number in range(count))
    texts = {A: f"def area(w):\n    return w\n{calls}", B: f"from shapes import area\n{calls}"}
    edits, now, uri, cursor = edited(texts, (A, "(w)", "(w, h)"))
    found = find_candidates(edits, now, uri, cursor)
    assert len(found) == min(2 * count, rules.MAX_CANDIDATES)
    assert {one.unknown for one in found} == {frozenset({"h"})}
    assert len(read) == 4  # what is removed and what is added, in two files


# -- repetition --------------------------------------------------------------------------------


def test_the_same_change_on_similar_lines() -> None:
    text = "x = int(row[0])\ny = int(row[1])\nprint(int(2))\nz = int(row[2])\n"
    assert expected_changes({A: text}, (A, "int", "float")) == [
        ("y = int(row[1])", "y = float(row[1])"),
        ("z = int(row[2])", "z = float(row[2])"),
    ]
    text = 'log.info("a", x)\nlog.info("b c", y)\n'
    assert expected_changes({A: text}, (A, "x)", "x, 1)")) == [
        ('log.info("b c", y)', 'log.info("b c", y, 1)')
    ]


def test_dissimilar_lines_need_two_examples() -> None:
    text = "a = 1\nb = 1\nc = 1\n"
    assert expected_changes({A: text}, (A, "a = 1", "a = 2")) == []
    steps = [(A, "a = 1", "a = 2"), (A, "b = 1", "b = 2")]
    assert expected_changes({A: text}, *steps) == [("c = 1", "c = 2")]


def test_distant_lines_are_not_candidates() -> None:
    far = "x = int(row[0])\n" + "\n" * 40 + "y = int(row[1])\n"
    assert expected_changes({A: far}, (A, "int", "float")) == []


# -- the model ---------------------------------------------------------------------------------


def candidate(texts: dict[str, str], step: Step, start: str) -> tuple[Candidate, str]:
    edits, now, uri, cursor = edited(texts, step)
    found = find_candidates(edits, now, uri, cursor)
    return next(one for one in found if now[A][one.start :].startswith(start)), now[A]


def repeated() -> tuple[Candidate, str]:
    text = "x = int(row[0])\ny = int(row[1])\n"
    return candidate({A: text}, (A, "int", "float"), "y")


def test_a_request_selects_the_lines_and_predicts_their_new_text() -> None:
    one, text = repeated()
    asked = one.request(text, "w/shapes.py", 7)
    assert (asked.kind, asked.text, asked.path, asked.version) == ("edit", text, "w/shapes.py", 7)
    assert asked.selection == (one.start, one.stop) and asked.predictions == (one.expected,)
    assert "`int(row[1])`" in asked.instruction and "`float(row[1])`" in asked.instruction


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ("y = float(row[1])", None),
        ("y = int(row[1])", "nothing"),
        ("y = float(row[2])", "another change"),
        ("", "another change"),
    ],
)
def test_answers_to_a_repetition(answer: str, why: str | None) -> None:
    one, text = repeated()
    found = rejection_reason(one, text[one.start : one.stop], answer)
    assert found is None if why is None else found and why in found


@pytest.mark.parametrize(
    ("call", "why"),
    [
        ("area(1, 2, 3)", None),
        ("area(1, 2, z=3)", None),
        ("area(1, 2)", "nothing"),
        ("area(1, 2, 3, 4)", "does not fit"),
        ("area(2, 1, 3)", "other arguments"),
        ("area(1, 2, z)", "not known"),
        ("area(1, 2, z=z)", "not known"),
        ("volume(1, 2, 3)", "a call"),
        ("area(1, 2, 3) + 1", "more than the call"),
    ],
)
def test_answers_to_a_changed_signature(call: str, why: str | None) -> None:
    one, text = candidate(OPEN, (A, "width, height", "width, height, z"), "print(")
    old = text[one.start : one.stop]
    found = rejection_reason(one, old, old.replace("area(1, 2)", call))
    assert found is None if why is None else found and why in found
