"""What an answer comes to: checked, asked for once more, and shown with what remains to check."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.editing.edits import EditRefused
from engine.editing.outcome import better, judge, second_request, why_unchanged
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


def test_a_good_answer_is_not_asked_for_again() -> None:
    first = judge(asked(), answer(GOOD))
    assert (first.failed, first.warning) == ((), "")
    assert first.text == TEXT.replace(PART, GOOD)
    assert second_request(asked(), first) is None


def test_the_second_request_names_what_fails_and_nothing_else_changes() -> None:
    request = asked()
    first = judge(request, answer(LOST))
    again = second_request(request, first)
    assert again is not None
    head, hint = again.instruction.split("\n")
    assert head == request.instruction and hint == "Keep every comment as it is."
    assert again.text == request.text and again.selection == request.selection
    assert "# Sorted by name." in first.warning


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
    assert first.is_nonsense and second_request(asked(), first)
    with pytest.raises(EditRefused, match="answered twice") as refused:
        better(asked(), first, answer("Here you are ("))
    assert "\n" not in str(refused.value)
    assert better(asked(), first, answer(GOOD)).text == TEXT.replace(PART, GOOD)


def test_an_unusable_answer_is_refused() -> None:
    with pytest.raises(EditRefused):
        judge(asked(), Done("length", GOOD))


def test_a_new_import_moves_unless_it_hides_a_name() -> None:
    log = GOOD.replace("return ", "logging.info(path)\n    return ")
    new = judge(asked("Log the path."), answer(f"import logging\n\n\n{log}"))
    assert new.text.startswith("import os\nimport logging\n\n\ndef f") and not new.failed
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
