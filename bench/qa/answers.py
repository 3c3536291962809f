"""Answers to questions with a known passage, and summaries: content, citations and speed.

Public questions and summaries are run with and without speculation in turns, with an empty answer
history and a cached prompt. Both texts must be equal. Our own questions are answered once.
"""

from __future__ import annotations

import re
import time
import unicodedata
from collections.abc import Sequence
from statistics import mean, median
from typing import TYPE_CHECKING, Any, NamedTuple

from bench.common import report
from bench.common.engine_thread import in_engine_thread
from bench.common.stats import bootstrap
from bench.qa.own import add_documents, groups, mentions, share, with_passages
from engine.rag.answer import CitedAnswer, cite_answer, prepare, second_question, with_verdict
from engine.rag.citations import Citation
from engine.rag.summarize import Summary, summarize
from engine.rag.summary_plan import SummaryOptions
from engine.records import Step

if TYPE_CHECKING:
    from bench.qa.own import Checklist, OwnQuestion
    from bench.qa.retrieval import PassageQuestion
    from engine import Done, Engine, Request
    from index.documents.documents import Document, Documents

MARKUP = re.compile(r"[`*]+")
QUOTE_SHARE = 0.5  # share of an answer's words that are copied: the answer quotes


class AnswerRow(NamedTuple):
    """One question; `answer` is None if it was refused."""

    name: str
    answer: CitedAnswer | None
    right: bool  # contains the known passage
    ratios: list[float]  # plain over speculative decode time, by repeat
    whole: list[float]  # the same with prefill included
    tokens: int
    prepare_ms: float  # retrieval and prompt
    first_s: float  # seconds from the question to the first token


def contains(answer: str, passage: str) -> bool:
    """Return whether an answer contains a passage, ignoring blanks, case and Markdown emphasis."""
    one, other = (" ".join(MARKUP.sub("", text).split()).casefold() for text in (answer, passage))
    return other in one


def count_precise(citations: Sequence[Citation], answer: str, texts: dict[str, str]) -> int:
    """Return the number of citations whose source has the quoted words, checked independently."""
    found = 0
    for one in citations:
        span = texts[one.document][one.source_start : one.source_stop]
        quote = answer[one.start : one.stop]
        found += _words(quote) != "" and _words(quote) in _words(span)
    return found


def _words(text: str) -> str:
    return " ".join(unicodedata.normalize("NFC", text).split())


def answers(
    documents: dict[str, Document],
    asked: Sequence[PassageQuestion],
    library: Documents,
    engine: Engine,
    repeats: int,
    typed: bool = False,
) -> dict[str, Any]:
    """Answer every question about all documents.

    `typed`: as on the page, the model has read ahead for the question without its last word.
    """
    ids = [one.id for one in documents.values()]
    rows = []
    for number, one in enumerate(asked):
        report.progress("", number, len(asked), one.name, "answer")
        if typed:
            begun = one.question.rpartition(" ")[0]
            if ahead := prepare(begun, library, ids, engine, engine.context).request:
                engine.read_ahead(ahead).result()
        began = time.perf_counter()
        prepared = prepare(one.question, library, ids, engine, engine.context)
        took = (time.perf_counter() - began) * 1000
        if prepared.request is None:
            rows.append(AnswerRow(one.name, None, False, [], [], 0, took, 0.0))
            continue
        done, ratios, whole = timed_pairs(engine, prepared.request, repeats)
        passage = documents[one.document].text[one.start : one.stop]
        right = contains(done.text, passage)
        tokens = done.usage.completion_tokens
        said = cite_answer(prepared, done.text)
        first = took / 1000 + done.usage.prefill_seconds
        rows.append(AnswerRow(one.name, said, right, ratios, whole, tokens, took, first))
    return figures(rows, {one.id: one.text for one in documents.values()})


def own_answers(
    questions: Sequence[OwnQuestion], library: Documents, engine: Engine
) -> dict[str, Any]:
    """Answer our own questions once each, about all documents; the figures by group."""
    documents = add_documents(library)
    ids = [one.id for one in documents.values()]
    given: dict[str, CitedAnswer | None] = {}  # by question; None: refused without a model
    for number, one in enumerate(with_passages(questions, documents)):
        report.progress("", number, len(questions), one.name, "answer")
        prepared = prepare(one.question, library, ids, engine, engine.context, earlier=one.earlier)
        request = prepared.request
        text = engine.submit(request).result().text if request else ""
        answer = given[one.name] = cite_answer(prepared, text) if request else None
        if answer and (second := second_question(prepared, answer, engine.folder)):
            given[one.name] = with_verdict(answer, engine.submit(second).result().text)
    by_group = {name: own_figures(some, given) for name, some in groups(questions).items()}
    texts = {id: answer and answer.text for id, answer in given.items()}
    return own_figures(questions, given) | {"groups": by_group, "each": texts}


def own_figures(
    questions: Sequence[OwnQuestion], given: dict[str, CitedAnswer | None]
) -> dict[str, float | int | None]:
    """Return shares of the questions whose answers are right, in several ways.

    Of the answerable ones: those whose answer has the short answer, the passage, evidence. Of the
    unanswerable ones: those that are refused or whose answer has a warning. And the shares of right
    answers, and of all others, that have one.
    """
    asked = [(one, given[one.id]) for one in questions if one.passage]
    others = [given[one.id] for one in questions if not one.passage]
    shown = [answer for _, answer in asked if answer]
    texts = [(one, answer.text if answer else "") for one, answer in asked]
    right = [mentions(text, one.answer) for one, text in texts]
    given_right = [answer for (_, answer), is_right in zip(asked, right, strict=True) if is_right]
    given_wrong = [
        answer for (_, answer), is_right in zip(asked, right, strict=True) if not is_right
    ]
    held = sum(all(contains(text, part) for part in one.passage) for one, text in texts)
    return {
        "questions": len(asked),
        "short_answer": share(sum(right), len(asked)),
        "passage": share(held, len(asked)),
        "evidence": share(sum(bool(one.evidence) for one in shown), len(shown)),
        "right_doubted": _doubted(given_right),
        "wrong_doubted": _doubted([*given_wrong, *others]),
        "refused_wrongly": len(asked) - sum(one.supported for one in shown),
        "unanswerable_refused": share(
            sum(not (answer and answer.supported) for answer in others), len(others)
        ),
    }


def _doubted(given: Sequence[CitedAnswer | None]) -> float | None:
    """Return the share of the answers that have a warning."""
    shown = [answer for answer in given if answer]
    return share(sum(not answer.supported for answer in shown), len(shown))


def timed_pairs(
    engine: Engine, request: Request, repeats: int
) -> tuple[Done, list[float], list[float]]:
    """Return the answer, and by repeat the ratios of plain to speculative decode time.

    They are without and with prefill.
    """
    done = engine.submit(request, speculation=False).result()
    reading = done.usage.prefill_seconds
    ratios, whole = [], []
    for repeat in range(repeats):
        seconds = {}
        for speculation in (False, True) if repeat % 2 else (True, False):
            in_engine_thread(engine, engine.forget)
            other = engine.submit(request, speculation=speculation).result()
            if (other.text, other.reason) != (done.text, done.reason):
                raise RuntimeError(f"speculation changed an answer: {done.text!r}, {other.text!r}")
            seconds[speculation] = other.usage.decode_seconds
        ratios.append(seconds[False] / seconds[True])
        whole.append((reading + seconds[False]) / (reading + seconds[True]))
    return done, ratios, whole


def figures(rows: Sequence[AnswerRow], texts: dict[str, str]) -> dict[str, Any]:
    """Return the figures over all questions."""
    answered = [row for row in rows if row.answer is not None]
    given = [row.answer for row in answered if row.answer is not None]
    first = [row.first_s for row in answered]
    citations = sum(len(one.citations) for one in given)
    right = sum(count_precise(one.citations, one.text, texts) for one in given)
    quoting = [
        row for row in answered if row.answer is not None and row.answer.covered >= QUOTE_SHARE
    ]
    return {
        "answer_containment": round(sum(row.right for row in rows) / len(rows), 4),
        "citation_precision": round(right / citations, 4) if citations else None,
        "citations": citations,
        "cited_answers": sum(bool(one.citations) for one in given),
        "covered": round(mean(one.covered for one in given), 4) if given else None,
        "not_answered": [row.name for row in rows if row.answer is None],
        "prepare_ms": round(median(row.prepare_ms for row in rows), 2),
        "first_token_s": round(median(first), 3) if first else None,
        "longest_first_token_s": round(max(first), 3) if first else None,
        "ratio_to_plain": ratio_of([row.ratios for row in answered]),
        "ratio_where_quoted": ratio_of([row.ratios for row in quoting]),
        "lowest_ratio": lowest([row.ratios for row in answered]),
        "ratio_whole": ratio_of([row.whole for row in answered]),
        "lowest_whole": lowest([row.whole for row in answered]),
        "each": [row_record(row) for row in rows],
    }


def row_record(row: AnswerRow) -> dict[str, Any]:
    """Return one question in the results."""
    return {
        "question": row.name,
        "right": row.right,
        "tokens": row.tokens,
        "covered": row.answer and round(row.answer.covered, 4),
        "ratio": round(median(row.ratios), 4) if row.ratios else None,
    }


def lowest(ratios: Sequence[list[float]]) -> float | None:
    """Return the lowest median over requests; None if there are none."""
    return round(min(median(one) for one in ratios), 4) if ratios else None


def ratio_of(ratios: Sequence[list[float]]) -> float | None:
    """Return the geometric mean of medians over requests; None if there are none."""
    usable = [one for one in ratios if one]
    return round(bootstrap(usable).value, 4) if usable else None


def summaries(
    documents: Sequence[Document],
    engine: Engine,
    options: SummaryOptions,
    checklists: Sequence[Checklist] = (),
) -> dict[str, Any]:
    """Summarize each document once plainly and once with speculation.

    `checklists` are those of the documents, if they have any.
    """
    ratios, cited, right, whole = [], 0, 0, 0
    texts, copied = [], []
    for number, one in enumerate(documents):
        found: dict[bool, Summary] = {}
        seconds = {False: 0.0, True: 0.0}
        for speculation in (False, True):
            report.progress("", number, len(documents), one.name, "summary")
            in_engine_thread(engine, engine.forget)
            for event in summarize(engine, one, options, speculation=speculation):
                if isinstance(event, Summary):
                    found[speculation] = event
                elif isinstance(event, Step) and event.prefill is None:
                    seconds[speculation] += event.seconds
        if found[False] != found[True]:
            raise RuntimeError(f"{one.name}: speculation changed its summary")
        ratios.append([seconds[False] / seconds[True]])
        summary = found[True]
        cited += len(summary.citations)
        right += count_precise(summary.citations, summary.text, {one.id: one.text})
        whole += summary.whole
        texts.append(summary.text)
        copied.append(summary.covered)
    figures = {
        "summaries": whole,
        "citations": cited,
        "citation_precision": round(right / cited, 4) if cited else None,
        "ratio_to_plain": ratio_of(ratios),
        "lowest_ratio": round(min(ratio for (ratio,) in ratios), 4),
        "covered": round(mean(copied), 4),
    }
    if not checklists:
        return figures
    each = [
        {"document": one.document, **one.score(text), "covered": round(covered, 4), "text": text}
        for one, text, covered in zip(checklists, texts, copied, strict=True)
    ]
    return figures | {
        "facts_found": share_of(each, "facts_found", "facts"),
        "chapters_covered": share_of(each, "chapters_covered", "chapters"),
        "each": each,
    }


def share_of(rows: Sequence[dict[str, Any]], part: str, whole: str) -> float | None:
    """Return one count's share of another, over all rows."""
    return share(sum(row[part] for row in rows), sum(row[whole] for row in rows))
