"""An edit by rule or by the model: checked, asked for once more, and shown with what remains."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.editing.dialogue import Ask, Dialogue, advance, better, dialogue, hold, judge
from engine.editing.edits import EditRefused
from engine.editing.outcome import Outcome, why_unchanged
from engine.records import Done, Request

TEXT = "import os\n\n\ndef f(path):\n    # Sorted by name.\n    return os.listdir(path)\n"
PART = TEXT[TEXT.index("def") : -1]
LOST = PART.replace("    # Sorted by name.\n", "")
WORSE = f"{LOST}\n\n\nprint(f('.'))"
GOOD = PART.replace("    return", "    assert path\n    return")


def asked(instruction: str = "Check the path.") -> Request:
    span = (TEXT.index("def"), len(TEXT))
    return Request("edit", TEXT, path="a.py", selection=span, instruction=instruction)


def answer(text: str) -> Done:
    return Done("stop", text, matched="\n```")


def held(steps: Dialogue, *answers: str) -> tuple[list[Ask], Ask | Outcome]:
    """What a dialogue asks, and where it stands after these answers."""
    at, asks = advance(steps), []
    for text in answers:
        assert isinstance(at, Ask)
        asks.append(at)
        at = advance(steps, answer(text))
    return asks, at


def test_a_rule_asks_nothing_of_the_model() -> None:
    request = Request("edit", TEXT, path="a.py", instruction="Rename f to g")
    outcome = advance(dialogue(request))
    assert isinstance(outcome, Outcome) and outcome.rule and "def g(path)" in outcome.text


def test_without_checks_neither_a_rule_nor_a_check_counts() -> None:
    request = Request("edit", TEXT, path="a.py", instruction="Rename f to g")
    asks, outcome = held(dialogue(request, checks=False), LOST)
    assert asks == [Ask(request)]
    assert isinstance(outcome, Outcome) and not outcome.failed and not outcome.rule


def test_a_good_answer_is_not_asked_for_again() -> None:
    asks, outcome = held(dialogue(asked()), GOOD)
    assert asks == [Ask(asked())]
    assert isinstance(outcome, Outcome)
    assert outcome.text == TEXT.replace(PART, GOOD) and not outcome.failed


def test_the_second_request_names_what_fails_and_nothing_else_changes() -> None:
    request = asked()
    asks, outcome = held(dialogue(request), LOST, GOOD)
    again, first = asks[1]
    head, hint = again.instruction.split("\n")
    assert head == request.instruction and hint == "Keep every comment as it is."
    assert again.text == request.text and again.selection == request.selection
    assert first == judge(request, answer(LOST)) and "# Sorted by name." in first.warning
    assert isinstance(outcome, Outcome)
    assert outcome.text == TEXT.replace(PART, GOOD) and not outcome.failed


def test_on_an_event_loop_a_dialogue_comes_to_the_same() -> None:
    for texts in ([GOOD], [LOST, GOOD], [LOST, WORSE]):
        left = iter(texts)

        async def ask(asked: Ask, left: Iterator[str] = left) -> Done:
            return answer(next(left))

        assert asyncio.run(hold(dialogue(asked()), ask)) == held(dialogue(asked()), *texts)[1]


def test_on_an_event_loop_a_refusal_is_raised() -> None:
    async def ask(asked: Ask) -> Done:
        return answer("")

    with pytest.raises(EditRefused, match="delete everything"):
        asyncio.run(hold(dialogue(asked()), ask))


@pytest.mark.parametrize(
    ("first", "second", "taken"),
    [
        (LOST, GOOD, GOOD),
        (LOST, PART, LOST),  # the second changes nothing
        (LOST, WORSE, LOST),
        (LOST, LOST, LOST),
        (WORSE, LOST, LOST),
        (LOST, "", LOST),  # the second is refused
    ],
)
def test_the_answer_with_fewer_failed_checks_is_taken(first: str, second: str, taken: str) -> None:
    outcome = better(asked(), judge(asked(), answer(first)), answer(second))
    assert outcome.text == TEXT.replace(PART, taken)
    assert bool(outcome.warning) == (taken != GOOD)


def test_a_second_answer_that_failed_leaves_the_first() -> None:
    first = judge(asked(), answer(LOST))
    for reason in ("length", "cancelled", "failed"):
        assert better(asked(), first, Done(reason, GOOD)) is first  # type: ignore[arg-type]


def test_nonsense_is_refused_after_the_second_answer() -> None:
    first = judge(asked(), answer("The path is (checked."))
    assert first.is_nonsense
    with pytest.raises(EditRefused, match="answered more than once") as refused:
        better(asked(), first, answer("Here you are ("))
    assert "\n" not in str(refused.value)
    assert better(asked(), first, answer(GOOD)).text == TEXT.replace(PART, GOOD)


def test_an_unusable_answer_is_refused() -> None:
    with pytest.raises(EditRefused):
        judge(asked(), Done("length", GOOD))


def test_a_new_import_moves_unless_it_hides_a_name() -> None:
    log = GOOD.replace("return ", "logging.info(path)\n    return ")
    new = judge(asked("Log the path."), answer(f"import logging\n\n\n{log}"))
    assert new.text.startswith("import logging\nimport os\n\n\ndef f") and not new.failed
    hidden = judge(asked("Log the path."), answer(f"from json import load as os\n\n\n{GOOD}"))
    assert [one.kind for one in hidden.failed] == ["hidden"]
    assert "\n\nfrom json import load as os\n" in hidden.text


@pytest.mark.parametrize(
    ("instruction", "why"),
    [
        ("Rename `paths` to `names`.", "`paths` does not occur in the selected lines"),
        ("Rename `os` to `system`.", "the model repeated the text"),
        ("Make it faster.", "the model repeated the text"),
    ],
)
def test_why_nothing_changed(instruction: str, why: str) -> None:
    assert why_unchanged(asked(instruction)).startswith(why)


@given(st.lists(st.sampled_from(["x = 1", "# x", "def f():", "    y", "import a", "(", '"'])))
def test_a_repeated_text_passes_and_changes_nothing(lines: list[str]) -> None:
    text = "\n".join(lines)
    request = Request("edit", text, path="a.py", instruction="Add comments.")
    outcome = judge(request, answer(text))
    assert outcome.text == text and not outcome.failed
