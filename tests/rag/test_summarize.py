"""Summaries cover each section once, fit the context, resume, and do not depend on drafts."""

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
from engine.rag.response_cache import ResponseCache
from engine.rag.sentences import normalize
from engine.rag.summarize import Summary, SummaryDelta, SummaryTask, TaskResult, summarize
from engine.rag.summary_plan import (
    EXAMPLE_SENTENCES,
    MERGED_SENTENCES,
    SENTENCES,
    SENTENCES_PER_SECTION,
    SummaryOptions,
    SummaryPlan,
    messages,
)
from index.documents.documents import Document, Heading
from tests.conftest import tiny_model

TEXT = "".join(
    f"# Part {number}\n\ndef add(left, right):\n    return left + right\n\n" * 2
    for number in range(9)
)
OPTIONS = SummaryOptions("short", section_tokens=160)


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


def run(engine: Engine, *given: Any, **more: Any) -> tuple[list[SummaryTask], list[Step], Summary]:
    """The tasks, steps and Summary of one run; the deltas must make up its text."""
    *events, summary = summarize(engine, document(), *given, **more)
    assert isinstance(summary, Summary)
    tasks = [one for one in events if isinstance(one, SummaryTask)]
    steps = [one for one in events if isinstance(one, Step)]
    results = [one for one in events if isinstance(one, TaskResult)]
    deltas = [piece.text for one in events if isinstance(one, SummaryDelta) for piece in one.pieces]
    assert {type(one) for one in events} <= {SummaryTask, Step, TaskResult, SummaryDelta}
    assert len(results) == summary.done
    assert [one.task for one in results] == tasks[: len(results)]
    if summary.whole:
        assert "".join(deltas) == summary.text
    return tasks, steps, summary


def test_every_section_is_summarized_once(engine: Engine) -> None:
    tasks, steps, summary = run(engine, OPTIONS)
    assert [task.number for task in tasks] == list(range(1, summary.total + 1))
    assert summary.whole and summary.done == summary.total > len(summary.sections) > 3
    assert summary.sections[0].start == 0
    for one, after in pairwise(summary.sections):
        assert one.stop == after.start
    assert summary.sections[-1].stop == len(TEXT)
    assert steps and tasks[0].start == 0 and tasks[-1].stop == 1
    for task, later in pairwise(tasks):
        assert task.start < task.stop == later.start
    assert {task.sections for task in tasks} == {len(summary.sections)}
    for one in summary.citations:
        quote = summary.text[one.start : one.stop]
        assert quote.split() == TEXT[one.source_start : one.source_stop].split()


@pytest.mark.parametrize("sampling", [{}, {"temperature": 0.8, "seed": 3}])
def test_speculation_changes_no_summary_and_no_citation(
    engine: Engine, sampling: dict[str, Any]
) -> None:
    options = SummaryOptions("short", "bullets", 200, sampling)
    plain = run(engine, options, speculation=False)[2]
    assert run(engine, options)[2] == plain


@pytest.fixture(scope="module")
def whole(engine: Engine) -> Summary:
    """A summary that was not stopped."""
    return run(engine, OPTIONS)[2]


@pytest.mark.parametrize("after", [0, 8, 25])
def test_a_stopped_summary_resumes_with_the_same_result(
    engine: Engine, whole: Summary, tmp_path: Path, after: int
) -> None:
    cache = ResponseCache(tmp_path, "m")
    steps = 0

    def stopped() -> bool:
        nonlocal steps
        steps += 1
        return steps > after

    tasks, _, first = run(engine, OPTIONS, cache, stopped)
    assert not first.whole and first.done < first.total == whole.total
    assert first.done == len(list(tmp_path.iterdir())) == len(tasks) - 1
    assert first.sections == whole.sections[: len(first.sections)]
    assert all(one.text in first.text for one in first.sections)
    tasks, _, second = run(engine, OPTIONS, cache)
    assert [task.cached for task in tasks] == [number < first.done for number in range(first.total)]
    assert second == whole
    tasks, third_steps, third = run(engine, OPTIONS, cache)
    assert third == whole and not third_steps and all(task.cached for task in tasks)


def test_a_long_summary_has_the_sections_below_their_titles(engine: Engine) -> None:
    tasks, _, summary = run(engine, SummaryOptions("long", section_tokens=160))
    assert summary.total == len(summary.sections) == len(tasks)
    at = 0
    for number, one in enumerate(summary.sections):
        again = number and summary.sections[number - 1].title == one.title
        section = one.text if again else f"{one.title}\n\n{one.text}"
        at = summary.text.index(section, at) + len(section)


def test_one_section_gives_the_whole_summary(engine: Engine) -> None:
    *_, summary = summarize(engine, document("def add(left, right):"), SummaryOptions("short"))
    assert isinstance(summary, Summary) and summary.total == 1
    assert summary.text == summary.sections[0].text


def test_closing_the_stream_frees_the_model(engine: Engine) -> None:
    events = summarize(engine, document(), OPTIONS)
    assert isinstance(next(events), SummaryTask) and isinstance(next(events), Step)
    events.close()  # type: ignore[attr-defined]
    assert run(engine, OPTIONS)[2].whole


@pytest.fixture(scope="module")
def tokenizer(tiny: Any) -> Tokenizer:
    return Tokenizer(tiny("llama"))


@settings(max_examples=40)
@given(
    st.sampled_from([TEXT, TEXT * 9, "x" * 3000, "\U0001f600" * 800, "a b\n" * 2000, "\n\nend"]),
    st.sampled_from(list(SENTENCES)),
    st.integers(1, 3000),
    st.integers(1, 2000),
)
def test_no_request_exceeds_the_context(
    tokenizer: Tokenizer, text: str, length: Any, context: int, section_tokens: int
) -> None:
    try:
        plan = SummaryPlan(
            document(text),
            SummaryOptions(length, section_tokens=section_tokens),
            tokenizer,
            context,
        )
    except RequestError as error:
        assert "context" in str(error)
        return
    texts = [["\U0001f600" * 3 + "def return " * 60], ["ok"]] * plan.fan_in
    sections = [*zip(plan.sections, plan.sentences, strict=True)]
    prompts = [
        *(plan.section_prompt(section, sentences) for section, sentences in sections),
        plan.merge_prompt(texts[: plan.fan_in], final=True),
        plan.merge_prompt(texts[: plan.fan_in], final=False),
    ]
    for prompt in prompts:
        request = prompt.request
        assert request.max_tokens and request.max_tokens > 0
        assert len(tokenizer.chat(request.messages)) + request.max_tokens <= context
    assert plan.fan_in > 1


@settings(max_examples=60)
@given(st.sampled_from(list(SENTENCES)), st.integers(1, 400), st.integers(33, 200))
def test_sections_contribute_evenly(
    tokenizer: Tokenizer, length: Any, paragraphs: int, section_tokens: int
) -> None:
    text = "\n\n".join(f"ab {n} cd ef gh ij kl mn." for n in range(paragraphs))
    plan = SummaryPlan(
        document(text), SummaryOptions(length, section_tokens=section_tokens), tokenizer, 4096
    )
    wanted, parts = SENTENCES[length], len(plan.sections)
    assert len(plan.sentences) == parts and min(plan.sentences) >= 1
    left = parts
    for groups in plan.rounds:
        assert [start for start, _ in groups] + [left] == [0] + [stop for _, stop in groups]
        assert all(0 < stop - start <= plan.fan_in for start, stop in groups)
        left = len(groups)
    if not wanted:
        assert not plan.rounds and max(plan.sentences) <= SENTENCES_PER_SECTION
    elif parts <= wanted:
        assert not plan.rounds and sum(plan.sentences) <= wanted + parts
    else:
        assert left == wanted and max(plan.sentences) <= MERGED_SENTENCES
    joins = sum(stop - start > 1 for groups in plan.rounds for start, stop in groups)
    assert plan.tasks == len(plan.work) == parts + joins


def test_the_example_is_never_part_of_a_summary(tokenizer: Tokenizer) -> None:
    shown = messages("text", 1)[2]["content"]
    assert shown == " ".join(EXAMPLE_SENTENCES)
    prompt = SummaryPlan(document(), SummaryOptions(), tokenizer, 4096)
    assert {normalize(one) for one in EXAMPLE_SENTENCES} <= prompt.titles


def test_a_document_without_text_is_refused(engine: Engine) -> None:
    with pytest.raises(RequestError, match="contains no text"):
        next(summarize(engine, document(" \n\t\n")))
