"""Summaries: every part once, within the context; stopped ones go on; drafts change nothing."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine import Config, Engine, RequestError, Step
from engine.prompts.tokenizer import Tokenizer
from engine.rag.citations import same
from engine.rag.response_cache import Finished
from engine.rag.sentences import said_as
from engine.rag.summarize import LENGTHS, Choices, Grown, Plan, Said, Summary, Task, summarize
from engine.rag.summary_plan import EACH, FEW, SHOWN, messages
from index.documents.documents import Document, Heading
from tests.conftest import tiny_model

TEXT = "".join(
    f"# Part {number}\n\ndef add(left, right):\n    return left + right\n\n" * 2
    for number in range(9)
)
CHOICES = Choices("short", part=160)


def document(text: str = TEXT) -> Document:
    starts = [at for at in range(len(text)) if text.startswith("# ", at)]
    headings = tuple(Heading(at, 1, text[at + 2 : at + 8]) for at in starts)
    return Document("d", "d.md", "md", text, (), headings)


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    patch = pytest.MonkeyPatch()
    patch.setenv("DRAFTLINE_HOME", str(tmp_path_factory.mktemp("home")))
    folder = tiny_model(tmp_path_factory.mktemp("model") / "m", context=2048)
    with Engine(Config(model=str(folder), threads=2, library=False)) as engine:
        yield engine
    patch.undo()


def run(engine: Engine, *given: Any, **more: Any) -> tuple[list[Task], list[Step], Summary]:
    """All events of one summary, whose text grows as it is in the end."""
    *events, summary = summarize(engine, document(), *given, **more)
    assert isinstance(summary, Summary)
    tasks = [one for one in events if isinstance(one, Task)]
    steps = [one for one in events if isinstance(one, Step)]
    said = [one for one in events if isinstance(one, Said)]
    grown = [piece.text for one in events if isinstance(one, Grown) for piece in one.pieces]
    assert {type(one) for one in events} <= {Task, Step, Said, Grown}
    assert len(said) == summary.done
    assert [one.task for one in said] == tasks[: len(said)]
    if summary.whole:
        assert "".join(grown) == summary.text
    return tasks, steps, summary


def test_every_part_is_told_once_and_the_last_text_is_the_summary(engine: Engine) -> None:
    tasks, steps, summary = run(engine, CHOICES)
    assert [task.number for task in tasks] == list(range(1, summary.of + 1))
    assert summary.whole and summary.done == summary.of > len(summary.parts) > 3
    assert summary.parts[0].start == 0
    for one, after in pairwise(summary.parts):
        assert one.stop == after.start
    assert summary.parts[-1].stop == len(TEXT)
    assert steps and tasks[0].start == 0 and tasks[-1].stop == 1
    for task, later in pairwise(tasks):
        assert task.start < task.stop == later.start
    assert {task.parts for task in tasks} == {len(summary.parts)}
    for one in summary.citations:
        quote = summary.text[one.start : one.stop]
        assert same(quote, TEXT[one.source_start : one.source_stop])


@pytest.mark.parametrize("sampling", [{}, {"temperature": 0.8, "seed": 3}])
def test_speculation_changes_no_summary_and_no_citation(
    engine: Engine, sampling: dict[str, Any]
) -> None:
    choices = Choices("short", "bullets", 200, sampling)
    plain = run(engine, choices, speculation=False)[2]
    assert run(engine, choices)[2] == plain


@pytest.mark.parametrize("after", [0, 1, 8, 25])
def test_a_stopped_summary_goes_on_and_is_the_same(
    engine: Engine, tmp_path: Path, after: int
) -> None:
    whole = run(engine, CHOICES)[2]
    kept = Finished(tmp_path, "m")
    steps = 0

    def stopped() -> bool:
        nonlocal steps
        steps += 1
        return steps > after

    tasks, _, first = run(engine, CHOICES, kept, stopped)
    assert not first.whole and first.done < first.of == whole.of
    assert first.done == len(list(tmp_path.iterdir())) == len(tasks) - 1
    assert first.parts == whole.parts[: len(first.parts)]
    assert all(one.text in first.text for one in first.parts)
    tasks, _, second = run(engine, CHOICES, kept)
    assert [task.known for task in tasks] == [number < first.done for number in range(first.of)]
    assert second == whole
    tasks, steps_again, third = run(engine, CHOICES, kept)
    assert third == whole and not steps_again and all(task.known for task in tasks)


def test_a_long_summary_is_its_parts_behind_their_titles(engine: Engine) -> None:
    tasks, _, summary = run(engine, Choices("long", part=160))
    assert summary.of == len(summary.parts) == len(tasks)
    at = 0
    for number, one in enumerate(summary.parts):
        again = number and summary.parts[number - 1].title == one.title
        told = one.text if again else f"{one.title}\n\n{one.text}"
        at = summary.text.index(told, at) + len(told)


def test_one_part_is_asked_for_the_whole_summary(engine: Engine) -> None:
    *_, summary = summarize(engine, document("def add(left, right):"), Choices("short"))
    assert isinstance(summary, Summary) and summary.of == 1
    assert summary.text == summary.parts[0].text


def test_a_reader_who_leaves_frees_the_model(engine: Engine) -> None:
    events = summarize(engine, document(), CHOICES)
    assert isinstance(next(events), Task) and isinstance(next(events), Step)
    events.close()  # type: ignore[attr-defined]
    assert run(engine, CHOICES)[2].whole


@pytest.fixture(scope="module")
def reader(tiny: Any) -> Tokenizer:
    return Tokenizer(tiny("llama"))


@settings(deadline=None, max_examples=40)
@given(
    st.sampled_from([TEXT, TEXT * 9, "x" * 3000, "\U0001f600" * 800, "a b\n" * 2000, "\n\nend"]),
    st.sampled_from(list(LENGTHS)),
    st.integers(1, 3000),
    st.integers(1, 2000),
)
def test_no_request_exceeds_the_context(
    reader: Tokenizer, text: str, length: Any, context: int, part: int
) -> None:
    try:
        plan = Plan(document(text), Choices(length, part=part), reader, context)
    except RequestError as error:
        assert "context" in str(error)
        return
    texts = [["\U0001f600" * 3 + "def return " * 60], ["ok"]] * plan.fan
    sections = [*zip(plan.sections, plan.sentences, strict=True)]
    all_asked = [
        *(plan.of_section(section, sentences) for section, sentences in sections),
        plan.of_group(texts[: plan.fan], last=True),
        plan.of_group(texts[: plan.fan], last=False),
    ]
    for asked in all_asked:
        request = asked.request
        assert request.max_tokens and request.max_tokens > 0
        assert len(reader.chat(request.messages)) + request.max_tokens <= context
    assert plan.fan > 1


@settings(deadline=None, max_examples=60)
@given(st.sampled_from(list(LENGTHS)), st.integers(1, 400), st.integers(33, 200))
def test_all_of_a_document_is_in_its_summary_alike(
    reader: Tokenizer, length: Any, paragraphs: int, part: int
) -> None:
    text = "\n\n".join(f"ab {n} cd ef gh ij kl mn." for n in range(paragraphs))
    plan = Plan(document(text), Choices(length, part=part), reader, 4096)
    wanted, parts = LENGTHS[length], len(plan.sections)
    assert len(plan.sentences) == parts and min(plan.sentences) >= 1
    left = parts
    for groups in plan.rounds:
        assert [start for start, _ in groups] + [left] == [0] + [stop for _, stop in groups]
        assert all(0 < stop - start <= plan.fan for start, stop in groups)
        left = len(groups)
    if not wanted:
        assert not plan.rounds and max(plan.sentences) <= EACH
    elif parts <= wanted:
        assert not plan.rounds and sum(plan.sentences) <= wanted + parts
    else:
        assert left == wanted and max(plan.sentences) <= FEW
    joins = sum(stop - start > 1 for groups in plan.rounds for start, stop in groups)
    assert plan.tasks == len(plan.work) == parts + joins


def test_the_example_is_never_a_summary(reader: Tokenizer) -> None:
    shown = messages("text", 1)[2]["content"]
    assert shown == " ".join(SHOWN)
    asked = Plan(document(), Choices(), reader, 4096)
    assert {said_as(one) for one in SHOWN} <= asked.titles


def test_what_holds_no_text_is_refused(engine: Engine) -> None:
    with pytest.raises(RequestError, match="holds no text"):
        next(summarize(engine, document(" \n\t\n")))
