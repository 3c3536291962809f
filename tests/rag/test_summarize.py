"""Summaries: whatever the model writes, every chapter is mentioned in the document's own words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine import Config, Engine, RequestError, Step
from engine.prompts.tokenizer import Tokenizer
from engine.rag.outline import find_outline
from engine.rag.response_cache import ResponseCache
from engine.rag.sentences import words
from engine.rag.summarize import Summary, SummaryBody, summarize
from engine.rag.summary_plan import LENGTHS, SummaryOptions, SummaryPlan
from index.documents.documents import Document
from index.documents.formats.headings import find_headings
from tests.conftest import tiny_model
from tests.support.held_model import unfinished
from tests.support.questions import make_model

STATEMENT = "Jump\tby\u00a0red\x0bfox."  # no letter occurs twice
LEAD = "A fox can jump over dogs, be they red or brown."
TEXT = f"# Foxes\n\n{LEAD}\n\n" + "".join(
    f"## Part {n} of it\n\nIn part {n} there are {n + 20} foxes. They do not see the others. "
    "All of them sleep by day. It rains a lot. Most are red.\n\n"
    for n in range(9)
)
STYLES = ["prose", "bullets"]


def document(text: str = TEXT, pages: tuple[tuple[int, int], ...] = ()) -> Document:
    return Document("d", "d.md", "md", text, pages, find_headings("md", text))


def make_engine(folder: Any) -> Engine:
    return Engine(Config(model=str(folder), dtype="f32", threads=1, library=False))


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """A model that writes nonsense."""
    with make_engine(tiny_model(tmp_path_factory.mktemp("model") / "m", context=2048)) as engine:
        yield engine


@pytest.fixture(scope="module")
def fox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """A model that always writes STATEMENT."""
    with make_engine(make_model(tmp_path_factory.mktemp("fox") / "m", STATEMENT)) as engine:
        yield engine


def run(engine: Engine, text: str, *given: Any, **more: Any) -> tuple[list[Step], Summary]:
    body, *steps, summary = summarize(engine, document(text), *given, **more)
    assert isinstance(body, SummaryBody) and isinstance(summary, Summary)
    assert body.sections == summary.sections and all(isinstance(one, Step) for one in steps)
    return steps, summary  # type: ignore[return-value]


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("style", STYLES)
def test_every_chapter_is_mentioned_and_all_is_copied(
    engine: Engine, length: Any, style: Any
) -> None:
    steps, summary = run(engine, TEXT, SummaryOptions(length, style))
    assert steps and summary.whole and summary.covered == 1.0
    at = summary.text.index(LEAD)
    for chapter in find_outline(document()).chapters:
        at = summary.text.index(chapter.title, at)
    for section in summary.sections:
        assert all(one in TEXT and one in summary.text for one in section.sentences)
    for one in summary.citations:
        quote = summary.text[one.start : one.stop]
        assert quote.split() == TEXT[one.source_start : one.source_stop].split()


def test_a_longer_summary_says_more(engine: Engine) -> None:
    found = [run(engine, TEXT, SummaryOptions(length))[1] for length in LENGTHS]
    chars = [len(one.text) for one in found]
    assert chars == sorted(chars) and chars[0] < chars[-1] < len(TEXT)


def test_a_supported_statement_comes_first(fox: Engine) -> None:
    _, summary = run(fox, TEXT)
    assert summary.text.startswith("Foxes\n\nJump by red fox.\n\n")
    _, summary = run(fox, TEXT.replace("jump", "leap"))
    assert summary.text.startswith("Foxes\n\nA fox can leap")


@pytest.mark.parametrize("sampling", [{}, {"temperature": 0.8, "seed": 3}])
def test_speculation_changes_no_summary_and_no_citation(
    engine: Engine, sampling: dict[str, Any]
) -> None:
    options = SummaryOptions("short", "bullets", sampling)
    assert run(engine, TEXT, options)[1] == run(engine, TEXT, options, speculation=False)[1]


def test_a_stopped_summary_lacks_only_the_statement(fox: Engine, tmp_path: Any) -> None:
    cache = ResponseCache(tmp_path, "m")
    steps, first = run(fox, TEXT, None, cache, lambda: True)
    assert not steps and not first.whole and not [*tmp_path.iterdir()]
    polls = iter(range(99))
    with unfinished(fox):
        steps, first = run(fox, TEXT, None, cache, lambda: next(polls) > 0, speculation=False)
    assert steps and not first.whole and not [*tmp_path.iterdir()]
    _, whole = run(fox, TEXT, None, cache)
    assert whole.whole and whole.sections == first.sections
    assert whole.text == first.text.replace("Foxes\n\n", "Foxes\n\nJump by red fox.\n\n", 1)
    steps, again = run(fox, TEXT, None, cache)
    assert again == whole and not steps
    steps, short = run(fox, TEXT, SummaryOptions("short"), cache)
    assert not steps and short.whole, "the statement does not depend on the length"


def test_chapters_name_their_pages(engine: Engine) -> None:
    starts = [0, TEXT.index("## Part 1"), TEXT.index("## Part 3") - 1]
    pages = tuple(zip(starts, [*starts[1:], len(TEXT)], strict=True))
    *_, summary = summarize(engine, document(TEXT, pages))
    assert isinstance(summary, Summary)
    titles = [one.title for one in summary.sections]
    assert titles[1:4] == ["Part 0 of it, page 1", "Part 1 of it, page 2", "Part 2 of it, page 2"]
    assert titles[4] == "Part 3 of it, page 3"


def test_a_chapter_without_sentences_is_its_title(engine: Engine) -> None:
    code = "class Fox:\n    pass\n\ndef jump():\n    # Foxes jump over brown dogs.\n    pass\n"
    given = Document("d", "d.py", "code", code, (), find_headings("code", code))
    *_, summary = summarize(engine, given, SummaryOptions(style="bullets"))
    assert isinstance(summary, Summary)
    assert summary.text.endswith("- Fox\n- jump: Foxes jump over brown dogs.")


@pytest.mark.parametrize("text", ["def add(left, right):", "One word", "| a b | c d |\n|---|---|"])
def test_a_text_without_sentences(engine: Engine, text: str) -> None:
    summary = run(engine, text)[1]
    assert summary.whole and summary.text and set(words(summary.text)) <= set(words(text))


def test_closing_the_stream_frees_the_model(engine: Engine) -> None:
    events = summarize(engine, document())
    assert isinstance(next(events), SummaryBody) and isinstance(next(events), Step)
    events.close()  # type: ignore[attr-defined]
    assert run(engine, TEXT)[1].whole


def test_a_document_without_text_is_refused(engine: Engine) -> None:
    with pytest.raises(RequestError, match="contains no text"):
        next(summarize(engine, document(" \n\t\n")))


# -- the plan --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tokenizer(tiny: Any) -> Tokenizer:
    return Tokenizer(tiny("llama"))


def make_plan(tokenizer: Tokenizer, text: str) -> SummaryPlan:
    return SummaryPlan(document(text), SummaryOptions(), tokenizer, 4096)


@settings(max_examples=15)
@given(
    st.sampled_from([TEXT, TEXT * 9, "x" * 3000, "\U0001f600" * 800, "a b\n" * 2000]),
    st.integers(1, 3000),
)
def test_no_request_exceeds_the_context(tokenizer: Tokenizer, text: str, context: int) -> None:
    try:
        request = SummaryPlan(document(text), SummaryOptions(), tokenizer, context).request
    except RequestError as error:
        assert "context" in str(error)
        return
    assert request.max_tokens
    assert len(tokenizer.chat(request.messages)) + request.max_tokens <= context


def test_a_statement_needs_the_documents_numbers_and_words(tokenizer: Tokenizer) -> None:
    plan = make_plan(tokenizer, TEXT)
    assert plan.is_supported("In part 3 there are 23 foxes.")
    assert not plan.is_supported("In part 3 there are 99 foxes.")
    assert not plan.is_supported("Elephants dream about bananas.")
    assert not plan.is_supported("")
    assert make_plan(tokenizer, "# 泵\n\n本手册说明泵的安装与维护。").is_supported(
        "手册说明泵的安装。"
    )
